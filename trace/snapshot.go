// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gousdt/gousdt/internal/tracing"
	"github.com/gousdt/gousdt/trace/internal/bpfgen"
)

// A Snapshot is the result of an [Aggregation] from one moment to another. It
// is the caller's own, to keep and to change.
type Snapshot struct {
	// Start is when the session was made or the rows were last taken, and Time
	// when the snapshot was made.
	Start, Time time.Time

	// By names the keys, as Aggregation.By does.
	By []string

	// Rows are sorted by their count, the greatest first, then by their keys.
	// Without keys there is one row, or none if there was no hit.
	Rows []Row

	// Other has the hits of all keys that have no row, because there are more
	// than Aggregation.MaxKeys: those with the fewest hits. It has no Keys. The
	// rows and Other together are all hits.
	Other Row

	// Overflow is the number of hits in Other that came while the kernel had no
	// room for keys, because new keys came too fast. Their keys may have a row.
	Overflow uint64
}

// A Row is the result for one combination of keys. It is the caller's, with its
// Keys and its Stack. Only its Site is shared, and must not be changed.
type Row struct {
	// Keys are the values of the keys. The text of a key that is longer than
	// the key's limit is cut, see [Value.Data]. The value of "site" is the
	// site's location in its file, which Site has.
	Keys []Value

	// Site is set if "site" is a key, unless the site is not known any more. It
	// stands for the same sites of other attachments of the file.
	Site *Site

	// Stack is set if "stack" is a key: the addresses, the innermost first. The
	// key's value is then the process, present if the kernel could walk the
	// stack.
	Stack []uint64

	// Count is the number of hits.
	Count uint64

	// Partial means that other hits of the keys may be in Snapshot.Other: there
	// were more keys than Aggregation.MaxKeys, or than the kernel had room for.
	Partial bool

	// Sum, Min and Max are present if the aggregation keeps them. A histogram
	// has a Sum, too.
	Sum, Min, Max Value

	histogram *bpfgen.Histogram // nil if there is none
	buckets   tracing.Buckets   // of the histogram, by their numbers
}

// Snapshot returns the result of one of SessionOptions.Aggregations since the
// session was made, or since the last [Session.Take]. After the session was
// closed it returns os.ErrClosed.
//
// A hit is in a snapshot as a whole or not at all. The kernel takes some
// milliseconds for that.
func (s *Session) Snapshot(of *Aggregation) (*Snapshot, error) {
	snapshots, err := s.snapshots(false, of)
	if err != nil {
		return nil, err
	}
	return snapshots[0], nil
}

// Take returns the snapshots of aggregations, of one moment and in the same
// order, and has them begin again: each hit is in one of the snapshots that
// Take returns, and there is room for other keys. Without arguments it takes
// those of all SessionOptions.Aggregations. A hit that counts for several of
// them is in the snapshots of all, or will be in the next ones of all. If one
// cannot be read none begins again, and the hits are in the next snapshots.
func (s *Session) Take(of ...*Aggregation) ([]*Snapshot, error) {
	if len(of) == 0 {
		of = s.opts.Aggregations
	}
	return s.snapshots(true, of...)
}

func (s *Session) snapshots(anew bool, of ...*Aggregation) ([]*Snapshot, error) {
	some, all := make([]*aggregation, len(of)), make([]*Snapshot, len(of))
	for i, a := range of {
		n := slices.Index(s.opts.Aggregations, a)
		if n < 0 {
			return nil, errors.New("the session does not compute this aggregation: " +
				"put it into SessionOptions.Aggregations")
		}
		some[i] = s.aggregations[n]
	}
	err := s.use(func() error {
		locked, unlock := s.lock(some...)
		defer unlock()
		err := s.take(locked)
		for _, a := range some {
			if err == nil {
				err, a.failed = a.failed, nil
			}
		}
		if err != nil {
			return err
		}
		for i, a := range some {
			all[i] = a.snapshot()
		}
		for _, a := range some {
			if anew {
				a.totals, a.started = totals{}, a.moment
			}
		}
		return nil
	})
	if err != nil {
		return nil, explain("reading an aggregation", err)
	}
	return all, nil
}

func (a *aggregation) snapshot() *Snapshot {
	a.dropRows()
	s := &Snapshot{Start: a.started, Time: a.moment, By: slices.Clone(a.names),
		Overflow: a.totals.overflow, Other: a.totals.other.clone()}
	s.Other.histogram = a.Histogram
	for _, t := range a.totals.rows {
		if t.Count > 0 { // else there are no keys, and no hits
			row := t.clone()
			row.Partial = row.Partial || s.Overflow > 0
			s.Rows = append(s.Rows, row)
		}
	}
	slices.SortFunc(s.Rows, compareRows)
	return s
}

func compareRows(a, b Row) int {
	if c := cmp.Compare(b.Count, a.Count); c != 0 {
		return c // most rows differ here
	}
	return cmp.Or(slices.CompareFunc(a.Keys, b.Keys, compareValues), slices.Compare(a.Stack, b.Stack))
}

func (r *Row) identity() string {
	var b strings.Builder
	for _, k := range r.Keys {
		fmt.Fprintf(&b, "%d %d %d %q\x00", k.kind, k.dataState, k.bits, k.data)
	}
	fmt.Fprint(&b, r.Stack)
	if r.Site != nil {
		fmt.Fprintf(&b, "%q %v", r.Site.File, r.Site.Site.Site)
	}
	return b.String()
}

// within returns the number nearest to x between Min and Max.
func (r *Row) within(x float64) float64 {
	if r.Min.state == valuePresent {
		x = max(x, r.Min.Float())
	}
	if r.Max.state == valuePresent {
		x = min(x, r.Max.Float())
	}
	return x
}

// extreme returns the lesser of two numbers if sign is -1, and the greater if
// it is 1. A number that is not present does not count.
func extreme(a, b Value, sign int) Value {
	if a.state != valuePresent || number(b).Compare(number(a)) == sign {
		return b
	}
	return a
}

// Merge returns a snapshot in which rows with the same key are one: their
// counts, sums and histograms are added, and the least minimum and the greatest
// maximum are kept. It is for stacks: different processes have different
// addresses for the same places, for which stack.Symbolizer.Key returns equal
// keys. The function must not change the row.
func (s *Snapshot) Merge(key func(*Row) string) *Snapshot {
	merged := *s
	merged.Rows = nil
	known := make(map[string]int)
	for i := range s.Rows {
		k := key(&s.Rows[i])
		if at, ok := known[k]; ok {
			merged.Rows[at].merge(&s.Rows[i])
			continue
		}
		known[k] = len(merged.Rows)
		merged.Rows = append(merged.Rows, s.Rows[i].clone())
	}
	slices.SortFunc(merged.Rows, compareRows)
	return &merged
}

// Top returns a snapshot of the first rows, with the hits of the others in
// Other. It keeps the order of Rows: sort them before.
func (s *Snapshot) Top(rows int) *Snapshot {
	top := *s
	top.Other = s.Other.clone()
	top.Rows = s.Rows[:min(max(rows, 0), len(s.Rows))]
	for i := len(top.Rows); i < len(s.Rows); i++ {
		top.Other.merge(&s.Rows[i])
	}
	return &top
}

func (r *Row) clone() Row {
	c := *r
	c.Keys, c.Stack = slices.Clone(c.Keys), slices.Clone(c.Stack)
	for i := range c.Keys {
		if k := &c.Keys[i]; k.data != "" {
			k.setData(bytes.Clone(k.bytes()), k.dataState)
		}
	}
	c.buckets.Counts = slices.Clone(c.buckets.Counts)
	return c
}

func (r *Row) merge(other *Row) {
	r.Count += other.Count
	r.Partial = r.Partial || other.Partial
	if other.Sum.state == valuePresent {
		r.Sum = plus(r.Sum, other.Sum)
	}
	if other.Min.state == valuePresent {
		r.Min = extreme(r.Min, other.Min, -1)
	}
	if other.Max.state == valuePresent {
		r.Max = extreme(r.Max, other.Max, 1)
	}
	r.buckets.AddAll(&other.buckets)
}
