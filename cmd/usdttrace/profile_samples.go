// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gousdt/gousdt/stack"
	"github.com/gousdt/gousdt/trace"
)

// samples are the stacks of events, counted.
type samples struct {
	by      []string
	sum     int            // the argument to add up, -1 for none
	profile *stack.Profile // nil if no file is to be written
	rows    *stackRows     // nil if no rows are to be printed

	unreadable   uint64 // hits without the value that is to be added up
	events, hits uint64 // and how many hits these stand for
}

// needsKernel returns the flag for which stacks cannot be counted from events,
// "" if they can.
func (o *options) needsKernel() string {
	switch _, isArgument := argumentNumber(o.sum); {
	case o.latency != nil:
		return "--latency"
	case o.byStack() && o.hist != "":
		return "--hist"
	case o.sum != "" && !isArgument:
		return "--sum of more than an argument"
	}
	for _, by := range o.by {
		if _, ok := argumentNumber(by); !ok && !slices.Contains([]string{"stack", "comm", "pid",
			"tid", "cpu", "probe"}, by) {
			return "--by " + by
		}
	}
	return ""
}

// fromEvents reports whether stacks are counted here, from events: to unwind
// them, or because not all hits are to be taken.
func (o *options) fromEvents() bool {
	return (o.profiles() || o.byStack()) && o.needsKernel() == "" && (o.unwind > 0 || o.samples())
}

// samples reports whether some of the hits are taken for all.
func (o *options) samples() bool { return o.every > 1 || o.rate > 0 }

// argumentNumber returns N of "argN".
func argumentNumber(term string) (int, bool) {
	digits, ok := strings.CutPrefix(term, "arg")
	n, err := strconv.ParseUint(digits, 10, 8)
	return int(n), ok && err == nil
}

func (t *tracer) newSamples() *samples {
	o := t.options
	s := &samples{sum: -1}
	var sum *stack.ValueType
	if n, ok := argumentNumber(o.sum); ok {
		s.sum = n
		sum = &stack.ValueType{Type: o.sum, Unit: "count"}
	}
	for _, by := range o.by {
		if by != "stack" && !slices.Contains(s.by, by) {
			s.by = append(s.by, by)
		}
	}
	if o.profiles() {
		s.profile = t.newProfile(sum)
	}
	if o.byStack() {
		s.rows = &stackRows{tracer: t}
	}
	return s
}

// add adds an event.
func (s *samples) add(e *trace.Event, stack []uint64) {
	s.events++
	s.hits += e.Weight
	values := []int64{int64(e.Weight)}
	var value trace.Value
	if s.sum >= 0 {
		if s.sum >= len(e.Args) || !isInteger(e.Args[s.sum]) {
			s.unreadable += e.Weight
			return
		}
		value = e.Args[s.sum]
		values = append(values, value.Int()*int64(e.Weight))
	}
	if s.rows != nil {
		s.rows.add(e, stack, value)
	}
	if s.profile == nil {
		return
	}
	labels := make(map[string]string)
	for _, by := range s.by {
		labels[by] = label(e, by)
	}
	s.profile.Add(context.Background(), e.PID, stack, values, labels)
}

func isInteger(v trace.Value) bool {
	return v.Kind() == trace.Unsigned || v.Kind() == trace.Signed
}

// period returns how many hits an event stands for, on average.
func (s *samples) period() int64 {
	if s.events == 0 {
		return 1
	}
	return int64((s.hits + s.events/2) / s.events)
}

// label returns the value of a key for an event.
func label(e *trace.Event, by string) string {
	switch by {
	case "comm":
		return e.Command
	case "pid":
		return fmt.Sprint(e.PID)
	case "tid":
		return fmt.Sprint(e.TID)
	case "cpu":
		return fmt.Sprint(e.CPU)
	case "probe":
		return probeName(e.Site)
	}
	if n, ok := argumentNumber(by); ok && n < len(e.Args) {
		return e.Args[n].String()
	}
	return "?"
}
