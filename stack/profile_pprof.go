// SPDX-License-Identifier: BSD-2-Clause

package stack

import (
	"io"

	"github.com/google/pprof/profile"
)

// Write writes the profile for go tool pprof, compressed.
func (p *Profile) Write(w io.Writer) error {
	b := &pprofBuilder{
		Profile:   p,
		mappings:  make(map[mappingKey]*profile.Mapping),
		locations: make(map[int]*profile.Location),
		functions: make(map[functionKey]*profile.Function),
	}
	if !p.Start.IsZero() {
		b.out.TimeNanos = p.Start.UnixNano()
	}
	b.out.DurationNanos = int64(p.Duration)
	b.out.Period = p.Period
	if p.PeriodType != (ValueType{}) {
		b.out.PeriodType = &profile.ValueType{Type: p.PeriodType.Type, Unit: p.PeriodType.Unit}
	}
	for _, t := range p.types {
		b.out.SampleType = append(b.out.SampleType, &profile.ValueType{Type: t.Type, Unit: t.Unit})
		b.out.DefaultSampleType = t.Type
	}
	for _, s := range p.samples {
		b.add(s)
	}
	if err := b.out.CheckValid(); err != nil {
		return err
	}
	return b.out.Write(w)
}

// pprofBuilder makes the format of pprof of a profile.
type pprofBuilder struct {
	*Profile
	out       profile.Profile
	mappings  map[mappingKey]*profile.Mapping
	locations map[int]*profile.Location // by the number of the place
	functions map[functionKey]*profile.Function
}

// mappingKey tells apart the parts of files that are mapped.
type mappingKey struct {
	file         *file
	offset, size uint64
}

// functionKey is a function. The same name means another one in another file.
type functionKey struct {
	file *file
	name string
}

func (b *pprofBuilder) add(s *sample) {
	out := &profile.Sample{Value: s.values, Label: make(map[string][]string)}
	for key, value := range s.labels {
		out.Label[valid(key)] = []string{valid(value)}
	}
	for _, at := range s.places {
		out.Location = append(out.Location, b.location(at))
	}
	b.out.Sample = append(b.out.Sample, out)
}

func (b *pprofBuilder) location(at *place) *profile.Location {
	if known := b.locations[at.number]; known != nil {
		return known
	}
	l := &profile.Location{ID: uint64(len(b.out.Location)) + 1, Address: at.address}
	b.locations[at.number] = l
	b.out.Location = append(b.out.Location, l)
	if at.at != nil {
		l.Mapping = b.mapping(at.at)
		// Processes map the file at different addresses, a profile once.
		l.Address = at.address - at.at.Start + l.Mapping.Start
	}
	if at.function != "" {
		l.Line = []profile.Line{{Function: b.function(at)}}
		if l.Mapping != nil {
			l.Mapping.HasFunctions = true
		}
	}
	return l
}

func (b *pprofBuilder) mapping(at *mapping) *profile.Mapping {
	key := mappingKey{at.file, at.Offset, at.End - at.Start}
	if known := b.mappings[key]; known != nil {
		return known
	}
	m := &profile.Mapping{
		ID: uint64(len(b.out.Mapping)) + 1, Start: at.Start, Limit: at.End, Offset: at.Offset,
		File: valid(at.path), BuildID: at.buildID,
	}
	b.mappings[key] = m
	b.out.Mapping = append(b.out.Mapping, m)
	return m
}

func (b *pprofBuilder) function(at *place) *profile.Function {
	key := functionKey{at.file, at.function}
	if known := b.functions[key]; known != nil {
		return known
	}
	name := valid(at.function)
	f := &profile.Function{ID: uint64(len(b.out.Function)) + 1, Name: name, SystemName: name}
	b.functions[key] = f
	b.out.Function = append(b.out.Function, f)
	return f
}
