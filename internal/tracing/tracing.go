// SPDX-License-Identifier: BSD-2-Clause

// Package tracing has the part of package trace that is only for the commands
// and the receiver of this project: the option that is wrong, the costs of a
// session, and exponential histograms as they are exported. It also has the
// calls that packages providers and trace share.
package tracing

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/suggest"
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

// A PairError says that a file has no pair of probes that a pattern selects.
type PairError struct {
	Pattern elfnote.PairPattern
	Pairs   []elfnote.Pair // those of the file whose names end as usual
}

// NewPairError returns the error for a file with these probes.
func NewPairError(pattern elfnote.PairPattern, listing *elfnote.Listing) *PairError {
	return &PairError{Pattern: pattern, Pairs: listing.Pairs(elfnote.MustParsePairPattern("*"))}
}

// maxNamedPairs is the greatest number of pairs that an error names.
const maxNamedPairs = 20

func (e *PairError) Error() string {
	text := fmt.Sprintf("there is no pair of probes %s", e.Pattern)
	if len(e.Pairs) == 0 {
		return text + " (the names of no two probes end as those of a pair do)"
	}
	pairs, intro, more := suggest.Pairs(e.Pairs, e.Pattern), "nearest", ""
	if len(pairs) == 0 {
		pairs, intro = e.Pairs, "there are"
		if len(pairs) > maxNamedPairs {
			pairs, more = pairs[:maxNamedPairs], ", ..."
		}
	}
	names := make([]string, len(pairs))
	for i, p := range pairs {
		names[i] = p.String()
	}
	return fmt.Sprintf("%s (%s: %s%s)", text, intro, strings.Join(names, ", "), more)
}

// Stats are the costs of a session, as the kernel accounts for them.
type Stats struct {
	Programs   []ProgramStats // that are attached
	MapMemory  uint64         // bytes of all maps; an estimate before Linux 6.4
	PerfEvents int            // they decide how long Detach takes, see usdt.Link.PerfEvents

	// Filtered is true if SessionOptions.Filter was false for some hit. That
	// explains why no event came.
	Filtered bool

	// LostBy has the owners of events that found no room in the ring buffer,
	// those with the most first. It is empty without
	// trace.EventOptions.ShareRing. Of thousands of owners some may be missing.
	LostBy []OwnerLoss
}

// ProgramStats are the kernel's figures of a generated program.
type ProgramStats struct {
	// Name is the name of the program: a system profiler shows it as
	// bpf_prog_TAG_NAME.
	Name         string
	ID           uint32
	Instructions int    // that the verifier left, of 8 bytes; 0 if the kernel does not say
	Memory       uint64 // bytes

	// Runs and Time count the program's runs and their time while the kernel
	// measured it, for this process or another one. Time includes about 20 ns
	// of measuring for each run.
	Runs uint64
	Time time.Duration
	// Missed is the number of hits at which the program did not run because it,
	// or another BPF program, was running on the processor already (Linux
	// 5.12).
	Missed uint64
}

// An OwnerLoss counts the events of an owner that found no room in the ring
// buffer.
type OwnerLoss struct {
	CgroupID uint64 // 0 for the root: then User is the owner of the processes
	User     uint32
	Events   uint64
}

// String returns "12 of cgroup 4711" or "12 of user 1000".
func (l OwnerLoss) String() string {
	if l.CgroupID != 0 {
		return fmt.Sprintf("%d of cgroup %d", l.Events, l.CgroupID)
	}
	return fmt.Sprintf("%d of user %d", l.Events, l.User)
}

// Call is a call of package providers, which several probes can start and end,
// also inside each other. The outermost pair of them counts.
type Call[Argument any] struct {
	Provider string
	Name     string
	// Arguments are those of the start, whichever probe that is.
	Arguments []Argument
	// Pairs are the names of probes that start it, each with its end.
	Pairs [][2]string
	// Failed are probes that end it, too, where it fails.
	Failed []CallProbe
	// Attempts are probes that are passed before a call. If the call fails or
	// hangs before its start, it has started there. An attempt that does not
	// fail is no call, and ends where the probe is passed again.
	Attempts []CallProbe
}

// CallProbe is a probe that ends or announces a call.
type CallProbe struct {
	Name string
	// If is the condition, in the language of package trace, on which the probe
	// counts. If it is empty, the probe always counts.
	If string
}

// TypeName is the type of arguments that are names of C++ types, in definitions
// of package providers.
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

// Exponential is a histogram with the buckets that OpenTelemetry and the
// Prometheus native histograms define. With base = 2^(2^-Scale), the bucket of
// index i has the values above base^i up to and including base^(i+1).
type Exponential struct {
	Scale int    // from 0 to 4
	Zero  uint64 // hits with the value 0

	// Positive are the buckets of values above 0, Negative those of values
	// below 0, by their absolute value.
	Positive, Negative Buckets
}

// Buckets are the counts of buckets whose indices follow each other. The first
// and the last count are not 0.
type Buckets struct {
	Offset int // index of the first bucket; the value 1 has the index -1
	Counts []uint64
}

// Add adds a histogram of the same scale.
func (e *Exponential) Add(other *Exponential) {
	e.Zero += other.Zero
	e.Positive.AddAll(&other.Positive)
	e.Negative.AddAll(&other.Negative)
}

// AddAll adds the counts of other buckets.
func (b *Buckets) AddAll(other *Buckets) {
	for i, count := range other.Counts {
		b.Add(other.Offset+i, count)
	}
}

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
