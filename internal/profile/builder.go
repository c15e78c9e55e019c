// SPDX-License-Identifier: BSD-2-Clause

package profile

import (
	"fmt"
	"io"
	"time"

	"github.com/google/pprof/profile"
)

// ValueType names what is counted, and its unit: "count", "nanoseconds",
// "bytes".
type ValueType struct{ Type, Unit string }

// Builder makes a profile of stacks. It is not safe for concurrent use.
type Builder struct {
	processes *Processes
	profile   *profile.Profile
	mappings  map[mappingKey]*profile.Mapping
	locations map[place]*profile.Location
	functions map[function]*profile.Function
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

// function is a function. The same name means another one in another file.
type function struct {
	file *file
	name string
}

// NewBuilder returns an empty profile of one or more values for each stack. The
// last one is what pprof shows unless asked for another.
func NewBuilder(processes *Processes, types ...ValueType) *Builder {
	b := &Builder{
		processes: processes,
		profile:   &profile.Profile{},
		mappings:  make(map[mappingKey]*profile.Mapping),
		locations: make(map[place]*profile.Location),
		functions: make(map[function]*profile.Function),
	}
	for _, t := range types {
		b.profile.SampleType = append(b.profile.SampleType, &profile.ValueType{Type: t.Type, Unit: t.Unit})
		b.profile.DefaultSampleType = t.Type
	}
	return b
}

// Add adds a stack of a process, the innermost address first, with a value for
// each type. Labels may be nil; the process becomes one. A stack without
// addresses becomes one of an unknown function.
func (b *Builder) Add(pid int, stack []uint64, values []int64, labels map[string]string) {
	p := b.processes
	p.mu.Lock()
	defer p.mu.Unlock()
	sample := &profile.Sample{Value: values, Label: map[string][]string{"process": {p.name(pid)}}}
	for key, value := range labels {
		sample.Label[key] = []string{value}
	}
	for i, address := range stack {
		sample.Location = append(sample.Location, b.location(pid, address, i > 0))
	}
	if len(stack) == 0 {
		sample.Location = append(sample.Location, b.location(pid, 0, false))
	}
	b.profile.Sample = append(b.profile.Sample, sample)
}

// name is what people call the process.
func (p *Processes) name(pid int) string {
	if known := p.known[pid]; known != nil {
		return fmt.Sprintf("%s (%d)", known.Command, pid)
	}
	return fmt.Sprint(pid)
}

func (b *Builder) location(pid int, address uint64, isReturn bool) *profile.Location {
	at, frame := b.processes.find(pid, address, isReturn)
	if isReturn {
		address-- // pprof wants the call
	}
	key := place{pid, address}
	if location := b.locations[key]; location != nil {
		return location
	}
	location := &profile.Location{ID: uint64(len(b.profile.Location)) + 1, Address: address}
	b.locations[key] = location
	b.profile.Location = append(b.profile.Location, location)
	if at == nil {
		return location // code that no file holds, as a JIT compiler makes
	}
	location.Mapping = b.mapping(pid, at)
	if frame.Function != "" {
		location.Mapping.HasFunctions = true
		location.Line = []profile.Line{{Function: b.function(at.file, frame.Function)}}
	}
	return location
}

func (b *Builder) mapping(pid int, at *mapping) *profile.Mapping {
	key := mappingKey{pid, at.Start, at.file}
	if m := b.mappings[key]; m != nil {
		return m
	}
	m := &profile.Mapping{
		ID: uint64(len(b.profile.Mapping)) + 1, Start: at.Start, Limit: at.End, Offset: at.Offset,
		File: at.path, BuildID: at.buildID,
	}
	b.mappings[key] = m
	b.profile.Mapping = append(b.profile.Mapping, m)
	return m
}

func (b *Builder) function(f *file, name string) *profile.Function {
	key := function{f, name}
	if known := b.functions[key]; known != nil {
		return known
	}
	known := &profile.Function{ID: uint64(len(b.profile.Function)) + 1, Name: name, SystemName: name}
	b.functions[key] = known
	b.profile.Function = append(b.profile.Function, known)
	return known
}

// Write writes the profile, compressed, with the time when it began and how
// long it took.
func (b *Builder) Write(w io.Writer, start time.Time, took time.Duration) error {
	b.profile.TimeNanos, b.profile.DurationNanos = start.UnixNano(), int64(took)
	if err := b.profile.CheckValid(); err != nil {
		return err
	}
	return b.profile.Write(w)
}
