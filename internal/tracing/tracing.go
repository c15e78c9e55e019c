// SPDX-License-Identifier: BSD-2-Clause

// Package tracing has the part of package trace that is only for the commands
// and the receiver of this project: the option that is wrong, counts of
// buckets, the clocks, and when all events have been read. It also has what
// packages defs and trace share.
package tracing

import (
	"cmp"
	"context"
	"fmt"
	"math/bits"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// An OptionError is the error of one option of a session.
type OptionError struct {
	// Field is a field of trace.SessionOptions or EventOptions. If the error is
	// the Err of another OptionError, it is a field of Aggregation, Latency or
	// Capture.
	Field string
	Index int // of the element if the field is a slice, else -1
	Err   error
}

func (e *OptionError) Error() string {
	if e.Index >= 0 {
		return fmt.Sprintf("%s[%d]: %v", e.Field, e.Index, e.Err)
	}
	return fmt.Sprintf("%s: %v", e.Field, e.Err)
}

func (e *OptionError) Unwrap() error { return e.Err }

// A FilteredError says that a session has no use for any site of a file: the
// filter cannot hold there, or no aggregation or span is about them. Nothing
// was attached.
type FilteredError struct {
	File    string
	Filter  string
	Missing error // an argument that is missing at one of the sites, or nil
}

func (e *FilteredError) Error() string {
	text := e.File + ": its probes that match have no part in what is asked for"
	switch {
	case e.Filter != "":
		text = fmt.Sprintf("%s: the condition %q can never hold", e.File, e.Filter)
	case e.Missing != nil:
		text = e.File + ": nothing can be measured"
	}
	if e.Missing != nil {
		text += ": " + e.Missing.Error()
	}
	return text
}

// TypeName is the type of arguments that are names of C++ types, in definitions
// of providers.
const TypeName = "cxx_type *"

// PointerAt splits the value of a probe's argument that is read from memory:
// arg1[1] is the second of the pointers that the second argument points to.
func PointerAt(value string) (argument, pointer int, ok bool) {
	name, index, _ := strings.Cut(strings.TrimSuffix(value, "]"), "[")
	number, ok := strings.CutPrefix(name, "arg")
	argument, err := strconv.Atoi(number)
	pointer, err2 := strconv.Atoi(index)
	const most = 64
	return argument, pointer, ok && err == nil && err2 == nil && strings.HasSuffix(value, "]") &&
		argument >= 0 && argument < most && pointer >= 0 && pointer < most
}

// Buckets are the counts of buckets whose indices follow each other. The first
// and the last count are not 0.
type Buckets struct {
	Offset int // index of the first bucket; the value 1 has the index -1
	Counts []uint64
}

// AddAll adds the counts of other buckets.
func (b *Buckets) AddAll(other *Buckets) {
	for i, count := range other.Counts {
		b.Add(other.Offset+i, count)
	}
}

// Exponential is a histogram as OpenTelemetry's protocol has it: hits with the
// value 0, buckets of values above 0, and buckets of values below 0, by their
// absolute value.
type Exponential struct {
	Zero               uint64
	Positive, Negative Buckets
}

// Add adds a bucket of package trace, by its bound and its index.
func (e *Exponential) Add(high float64, index int, count uint64) {
	switch {
	case high > 0:
		e.Positive.Add(index, count)
	case high < 0:
		e.Negative.Add(index, count)
	default:
		e.Zero += count
	}
}

// Scale returns OpenTelemetry's scale of a trace.Exponential histogram.
func Scale(perDoubling int) int { return bits.TrailingZeros(uint(cmp.Or(perDoubling, 8))) }

// Add adds to the bucket of an index.
func (b *Buckets) Add(index int, count uint64) {
	switch {
	case count == 0:
		return
	case len(b.Counts) == 0:
		b.Offset = index
	case index < b.Offset:
		b.Counts = slices.Concat(make([]uint64, b.Offset-index), b.Counts)
		b.Offset = index
	}
	if missing := index - b.Offset - len(b.Counts) + 1; missing > 0 {
		b.Counts = append(b.Counts, make([]uint64, missing)...)
	}
	b.Counts[index-b.Offset] += count
}

// ClockOffsets are the times that the clocks of a time namespace are ahead of
// those of the initial one, which BPF programs read.
type ClockOffsets struct {
	Monotonic, Boot time.Duration
}

// OwnClockOffsets returns the offsets of the time namespace of this process.
// They do not change while a process is in it.
var OwnClockOffsets = sync.OnceValue(func() ClockOffsets {
	// Before Linux 5.6 there are no time namespaces. The kernel shows the
	// offsets for new processes, which may be in another namespace.
	own, _ := os.Readlink("/proc/self/ns/time")
	if of, _ := os.Readlink("/proc/self/ns/time_for_children"); of != own {
		return ClockOffsets{}
	}
	text, _ := os.ReadFile("/proc/self/timens_offsets")
	return parseClockOffsets(string(text))
})

// parseClockOffsets reads lines like "monotonic -86400 0": the name of a clock,
// seconds and nanoseconds.
func parseClockOffsets(text string) (o ClockOffsets) {
	for line := range strings.Lines(text) {
		var name string
		var seconds, nanoseconds int64
		if _, err := fmt.Sscan(line, &name, &seconds, &nanoseconds); err != nil {
			continue
		}
		offset := time.Duration(seconds)*time.Second + time.Duration(nanoseconds)
		switch name {
		case "monotonic":
			o.Monotonic = offset
		case "boottime":
			o.Boot = offset
		}
	}
	return o
}

// AnyOrder are endings of the names of pairs of probes whose calls do not end
// as they are nested.
var AnyOrder = [][2]string{{"acquire", "release"}, {"submit", "complete"}, {"request", "response"},
	{"alloc", "free"}}

// CountKnownStacks has a session with these *trace.EventOptions count the hits
// with a stack in the map of a descriptor, as unwind.KnownStacks makes it, and
// send the others. Package trace sets it.
var CountKnownStacks func(opts any, descriptor int)

type restKey struct{}

// WithRest returns a context for [trace.Session.Events] that has a function
// called whenever the loop has had all events that there are.
func WithRest(ctx context.Context, rest func()) context.Context {
	return context.WithValue(ctx, restKey{}, rest)
}

// Rest returns the function of [WithRest], or nil.
func Rest(ctx context.Context) func() {
	rest, _ := ctx.Value(restKey{}).(func())
	return rest
}
