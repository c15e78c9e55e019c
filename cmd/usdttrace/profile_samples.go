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
	sum     int // the argument to add up, -1 for none
	profile *stack.Profile

	unreadable uint64 // events without the value that is to be added up
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
		if _, ok := argumentNumber(by); !ok && !slices.Contains([]string{"stack", "comm", "pid", "tid", "cpu", "probe"}, by) {
			return "--by " + by
		}
	}
	return ""
}

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
	s.profile = t.newProfile(sum)
	return s
}

// add adds an event.
func (s *samples) add(e *trace.Event, stack []uint64) {
	values := []int64{1}
	if s.sum >= 0 {
		if s.sum >= len(e.Args) || e.Args[s.sum].State() != trace.Present {
			s.unreadable++
			return
		}
		values = append(values, e.Args[s.sum].Int())
	}
	labels := make(map[string]string)
	for _, by := range s.by {
		labels[by] = label(e, by)
	}
	s.profile.Add(context.Background(), e.PID, stack, values, labels)
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
