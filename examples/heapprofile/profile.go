// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"fmt"
	"log"

	"github.com/google/pprof/profile"
)

// newProfile turns what the kernel has added up into a profile of the kinds of
// value that Go's heap profiles have.
func newProfile(t *tracer, mappings *mappings) (*profile.Profile, error) {
	b := &builder{
		Profile: &profile.Profile{
			SampleType: []*profile.ValueType{
				{Type: "alloc_objects", Unit: "count"}, {Type: "alloc_space", Unit: "bytes"},
				{Type: "inuse_objects", Unit: "count"}, {Type: "inuse_space", Unit: "bytes"},
			},
			DefaultSampleType: "inuse_space",
			PeriodType:        &profile.ValueType{Type: "space", Unit: "bytes"},
		},
		mappings:  make(map[*mapping]*profile.Mapping),
		locations: make(map[place]*profile.Location),
		functions: make(map[named]*profile.Function),
	}
	var site heapSite
	var totals heapTotals
	var stack [127]uint64 // MAX_FRAMES
	sites := t.Sites.Iterate()
	for sites.Next(&site, &totals) {
		if err := t.Stacks.Lookup(site.Stack, &stack); err != nil {
			return nil, fmt.Errorf("stack %d: %w", site.Stack, err)
		}
		p := mappings.processes[int(site.Pid)]
		if p == nil {
			p = new(process) // it ended before it was seen, as a child of a traced process may
			p.PID = int(site.Pid)
			mappings.processes[p.PID] = p
		}
		b.add(p, stack[:], &totals)
	}
	if err := sites.Err(); err != nil {
		return nil, err
	}
	var lost uint64
	if err := t.Lost.Get(&lost); err != nil {
		return nil, err
	}
	if lost > 0 {
		log.Printf("%d samples left out: no stack (it takes -fno-omit-frame-pointer), or no room (raise the period)", lost)
	}
	return b.Profile, b.CheckValid()
}

// builder adds to a profile what it does not have yet.
type builder struct {
	*profile.Profile
	mappings  map[*mapping]*profile.Mapping
	locations map[place]*profile.Location
	functions map[named]*profile.Function
}

// place is an instruction. The same address means another one in another
// process.
type place struct {
	process *process
	address uint64
}

// named is a function. The same name means another one in another file.
type named struct {
	file *file
	name string
}

func (b *builder) add(p *process, stack []uint64, totals *heapTotals) {
	sample := &profile.Sample{
		Value: []int64{
			int64(totals.Allocs), int64(totals.AllocBytes),
			int64(totals.Allocs - totals.Frees), int64(totals.AllocBytes - totals.FreeBytes),
		},
		Label: map[string][]string{"process": {p.name()}},
	}
	for _, address := range stack {
		if address == 0 {
			break
		}
		// These are addresses to return to. The call is before them, perhaps
		// the last instruction of its function.
		sample.Location = append(sample.Location, b.location(p, address-1))
	}
	b.Sample = append(b.Sample, sample)
}

func (b *builder) location(p *process, address uint64) *profile.Location {
	key := place{p, address}
	if location := b.locations[key]; location != nil {
		return location
	}
	location := &profile.Location{ID: uint64(len(b.Location)) + 1, Address: address}
	b.locations[key] = location
	b.Location = append(b.Location, location)
	m := p.find(address)
	if m == nil {
		return location // code that no file holds, as a JIT compiler makes
	}
	location.Mapping = b.mapping(m)
	if name := m.function(address - m.Start + m.Offset); name != "" {
		location.Mapping.HasFunctions = true
		location.Line = []profile.Line{{Function: b.function(m.file, name)}}
	}
	return location
}

func (b *builder) mapping(m *mapping) *profile.Mapping {
	if mapping := b.mappings[m]; mapping != nil {
		return mapping
	}
	mapping := &profile.Mapping{
		ID: uint64(len(b.Mapping)) + 1, Start: m.Start, Limit: m.End, Offset: m.Offset, File: m.path,
		BuildID: m.buildID,
	}
	b.mappings[m] = mapping
	b.Profile.Mapping = append(b.Profile.Mapping, mapping)
	return mapping
}

func (b *builder) function(f *file, name string) *profile.Function {
	key := named{f, name}
	if function := b.functions[key]; function != nil {
		return function
	}
	function := &profile.Function{ID: uint64(len(b.Function)) + 1, Name: name, SystemName: name}
	b.functions[key] = function
	b.Function = append(b.Function, function)
	return function
}
