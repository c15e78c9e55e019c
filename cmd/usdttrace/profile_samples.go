// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gousdt/gousdt/trace"
)

// maxSamples bounds the different stacks that are kept, each of which takes a
// kilobyte or two.
const maxSamples = 1 << 18

// samples are the stacks of a profile that is made from events.
type samples struct {
	by  []string
	sum int // the argument to add up, -1 for none
	of  map[string]*sample
	all []*sample // in the order in which they came
	key []byte

	leftOut    uint64 // events with a stack for which there is no room
	unreadable uint64 // events without the value that is to be added up
}

// sample is a stack, and what hits with it come to.
type sample struct {
	pid    int
	stack  []uint64
	labels map[string]string
	count  int64
	sum    int64
}

// profileNeedsKernel returns the flag for which a profile cannot be made from
// events, "" if it can.
func (o *options) profileNeedsKernel() string {
	if o.pprofFile == "" {
		return ""
	}
	if o.latency != nil {
		return "--latency"
	}
	if _, ok := argumentNumber(o.sum); o.sum != "" && !ok {
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

func newSamples(o *options) *samples {
	s := &samples{sum: -1, of: make(map[string]*sample)}
	if n, ok := argumentNumber(o.sum); ok {
		s.sum = n
	}
	for _, by := range o.by {
		if by != "stack" && !slices.Contains(s.by, by) {
			s.by = append(s.by, by)
		}
	}
	return s
}

// add adds an event.
func (s *samples) add(e *trace.Event, stack []uint64) {
	value := int64(0)
	if s.sum >= 0 {
		if s.sum >= len(e.Args) || e.Args[s.sum].State() != trace.Present {
			s.unreadable++
			return
		}
		value = e.Args[s.sum].Int()
	}
	key := binary.NativeEndian.AppendUint64(s.key[:0], uint64(e.PID))
	for _, by := range s.by {
		key = append(append(key, label(e, by)...), 0)
	}
	for _, address := range stack {
		key = binary.NativeEndian.AppendUint64(key, address)
	}
	s.key = key
	known := s.of[string(key)]
	if known == nil {
		if len(s.all) == maxSamples {
			s.leftOut++
			return
		}
		known = &sample{pid: e.PID, stack: slices.Clone(stack), labels: make(map[string]string)}
		for _, by := range s.by {
			known.labels[by] = label(e, by)
		}
		s.of[string(key)] = known
		s.all = append(s.all, known)
	}
	known.count++
	known.sum += value
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
