// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/gousdt/gousdt/trace"
)

// maxStackRows bounds the rows that are kept, each of which takes a kilobyte or
// two.
const maxStackRows = 1 << 17

// stackRows are the rows of --by stack where events bring the stacks: what the
// kernel has of aggregations by keys that it knows.
type stackRows struct {
	tracer *tracer

	mu    sync.Mutex
	since time.Time
	rows  []*trace.Row
	of    map[string]*trace.Row
	lost  uint64 // hits for which there was no room
}

// add adds an event, with the value that is to be added up if there is one.
func (s *stackRows) add(e *trace.Event, stack []uint64, value trace.Value) {
	s.mu.Lock()
	defer s.mu.Unlock()
	row := s.row(e, stack)
	if row == nil {
		s.lost += e.Weight
		return
	}
	row.Count += e.Weight
	if !value.IsPresent() {
		return
	}
	product := value.Uint() * e.Weight
	if !row.Sum.IsPresent() {
		row.Min, row.Max = value, value
	} else {
		product += row.Sum.Uint()
		if less(value, row.Min) {
			row.Min = value
		}
		if less(row.Max, value) {
			row.Max = value
		}
	}
	row.Sum = trace.ValueOf(product)
	if value.Kind() == trace.Signed {
		row.Sum = trace.ValueOf(int64(product))
	}
}

// row returns the row of an event, nil if there is no room for another one.
func (s *stackRows) row(e *trace.Event, stack []uint64) *trace.Row {
	by := s.tracer.options.by
	key := []byte(s.tracer.stacks.Key(e.PID, stack))
	for _, name := range by {
		if name != "stack" {
			key = fmt.Appendf(key, "/%q", label(e, name))
		}
	}
	if known := s.of[string(key)]; known != nil {
		return known
	}
	if len(s.rows) == maxStackRows {
		return nil
	}
	row := &trace.Row{Stack: slices.Clone(stack)}
	for _, name := range by {
		row.Keys = append(row.Keys, keyOf(e, name))
	}
	if s.of == nil {
		s.of = make(map[string]*trace.Row)
	}
	s.of[string(key)] = row
	s.rows = append(s.rows, row)
	return row
}

// keyOf returns the value of a key for an event, as a row has it.
func keyOf(e *trace.Event, by string) trace.Value {
	switch by {
	case "stack", "pid":
		return trace.ValueOf(uint64(e.PID))
	case "tid":
		return trace.ValueOf(uint64(e.TID))
	case "cpu":
		return trace.ValueOf(uint64(e.CPU))
	}
	if n, ok := argumentNumber(by); ok && n < len(e.Args) {
		return e.Args[n]
	}
	return trace.ValueOf(label(e, by))
}

// less compares two values of the same argument.
func less(a, b trace.Value) bool {
	if a.Kind() == trace.Signed || b.Kind() == trace.Signed {
		return a.Int() < b.Int()
	}
	return a.Uint() < b.Uint()
}

// snapshot returns the rows as the kernel's are returned: copies, the largest
// first. Then it forgets them if they are to begin anew.
func (s *stackRows) snapshot(anew bool) *trace.Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := &trace.Snapshot{Start: s.since, Time: time.Now(), By: s.tracer.options.by,
		Other: trace.Row{Count: s.lost}}
	for _, row := range s.rows {
		all.Rows = append(all.Rows, *row)
	}
	slices.SortStableFunc(all.Rows,
		func(a, b trace.Row) int { return cmp.Compare(b.Count, a.Count) })
	if anew {
		s.since, s.rows, s.of, s.lost = all.Time, nil, nil, 0
	}
	return all
}
