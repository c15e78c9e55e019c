// SPDX-License-Identifier: BSD-2-Clause

package stack

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/google/pprof/profile"
)

// ValueType names what is counted, and its unit: "count", "nanoseconds",
// "bytes".
type ValueType struct{ Type, Unit string }

// Profile is a profile of stacks in the making, for go tool pprof. It is not
// safe for concurrent use.
type Profile struct {
	// Start and Duration say of which time the profile is.
	Start    time.Time
	Duration time.Duration
	// Period is how much of PeriodType there is from one sample to the next, if
	// the stacks are sampled: 512 << 10 of {"space", "bytes"}.
	Period     int64
	PeriodType ValueType

	symbolizer *Symbolizer
	samples    *profile.Profile
	mappings   map[mappingKey]*profile.Mapping
	locations  map[place]*profile.Location
	functions  map[functionKey]*profile.Function
	names      int // bytes of the names of functions
}

// mappingKey tells mappings apart: of different processes, too.
type mappingKey struct {
	pid   int
	start uint64
	file  *file
}

// place is an instruction. The same address means another one in another
// process.
type place struct {
	pid     int
	address uint64
}

// functionKey is a function. The same name means another one in another file.
type functionKey struct {
	file *file
	name string
}

// NewProfile returns an empty profile, of one or more values for each stack.
// pprof shows the last one unless it is asked for another. The Symbolizer names
// the functions.
func NewProfile(symbolizer *Symbolizer, types ...ValueType) *Profile {
	p := &Profile{
		symbolizer: symbolizer,
		samples:    &profile.Profile{},
		mappings:   make(map[mappingKey]*profile.Mapping),
		locations:  make(map[place]*profile.Location),
		functions:  make(map[functionKey]*profile.Function),
	}
	for _, t := range types {
		p.samples.SampleType = append(p.samples.SampleType, &profile.ValueType{Type: t.Type, Unit: t.Unit})
		p.samples.DefaultSampleType = t.Type
	}
	return p
}

// Add adds a stack of a process, as [Symbolizer.Frames] takes it, with a value
// for each type. Labels may be nil; the process becomes one. A stack without
// addresses becomes one of an unknown function.
func (p *Profile) Add(ctx context.Context, pid int, stack []uint64, values []int64, labels map[string]string) {
	s := p.symbolizer
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.earn(pid)
	sample := &profile.Sample{Value: slices.Clone(values), Label: map[string][]string{"process": {s.processName(pid)}}}
	for key, value := range labels {
		sample.Label[valid(key)] = []string{valid(value)}
	}
	for i, address := range stack {
		sample.Location = append(sample.Location, p.location(ctx, pid, address, i > 0))
	}
	if len(stack) == 0 {
		sample.Location = append(sample.Location, p.location(ctx, pid, 0, false))
	}
	p.samples.Sample = append(p.samples.Sample, sample)
}

// valid returns a text as the format wants it, in UTF-8: names of files and
// functions are arbitrary bytes.
func valid(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }

// processName is what people call the process.
func (s *Symbolizer) processName(pid int) string {
	if known := s.processes[pid]; known != nil {
		return valid(fmt.Sprintf("%s (%d)", known.Command, pid))
	}
	return fmt.Sprint(pid)
}

// location returns the place of an address, new or as it is known.
func (p *Profile) location(ctx context.Context, pid int, address uint64, isReturn bool) *profile.Location {
	key := place{pid, address}
	if isReturn && address > 0 {
		key.address-- // pprof wants the call
	}
	location := p.locations[key]
	if location == nil {
		location = p.newLocation(ctx, pid, address, isReturn)
		location.Address = key.address
		p.locations[key] = location
	}
	p.symbolizer.count(location.Mapping != nil, len(location.Line) > 0)
	return location
}

func (p *Profile) newLocation(ctx context.Context, pid int, address uint64, isReturn bool) *profile.Location {
	location := &profile.Location{ID: uint64(len(p.samples.Location)) + 1}
	p.samples.Location = append(p.samples.Location, location)
	at, frame := p.symbolizer.find(ctx, pid, address, isReturn)
	if at == nil {
		return location
	}
	location.Mapping = p.mapping(pid, at)
	if function := p.function(at.file, frame.Function); function != nil {
		location.Mapping.HasFunctions = true
		location.Line = []profile.Line{{Function: function}}
	}
	return location
}

func (p *Profile) mapping(pid int, at *mapping) *profile.Mapping {
	key := mappingKey{pid, at.Start, at.file}
	if m := p.mappings[key]; m != nil {
		return m
	}
	m := &profile.Mapping{
		ID: uint64(len(p.samples.Mapping)) + 1, Start: at.Start, Limit: at.End, Offset: at.Offset,
		File: valid(at.path), BuildID: at.buildID,
	}
	p.mappings[key] = m
	p.samples.Mapping = append(p.samples.Mapping, m)
	return m
}

// function returns a function by its name, nil if it has none or there is no
// room for more names.
func (p *Profile) function(f *file, name string) *profile.Function {
	key := functionKey{f, name}
	if known := p.functions[key]; known != nil || name == "" {
		return known
	}
	if p.names += len(name); p.names > maxProfileNames {
		p.names -= len(name)
		return nil
	}
	text := valid(name)
	known := &profile.Function{ID: uint64(len(p.samples.Function)) + 1, Name: text, SystemName: text}
	p.functions[key] = known
	p.samples.Function = append(p.samples.Function, known)
	return known
}

// Write writes the profile, compressed.
func (p *Profile) Write(w io.Writer) error {
	p.samples.TimeNanos, p.samples.DurationNanos = p.Start.UnixNano(), int64(p.Duration)
	p.samples.Period = p.Period
	if p.PeriodType != (ValueType{}) {
		p.samples.PeriodType = &profile.ValueType{Type: p.PeriodType.Type, Unit: p.PeriodType.Unit}
	}
	if err := p.samples.CheckValid(); err != nil {
		return err
	}
	return p.samples.Write(w)
}
