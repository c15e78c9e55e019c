// SPDX-License-Identifier: BSD-2-Clause

package stack

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// ValueType names what is counted, and its unit: "count", "nanoseconds",
// "bytes".
type ValueType struct{ Type, Unit string }

// Profile is a profile of stacks in the making. It is written for go tool
// pprof, for tools that make flame graphs, or as a flame graph. It is not safe
// for concurrent use.
type Profile struct {
	// Start and Duration say of which time the profile is. Zero is not known.
	Start    time.Time
	Duration time.Duration
	// Period is how much of PeriodType there is from one sample to the next, if
	// the stacks are sampled: 512 << 10 of {"space", "bytes"}.
	Period     int64
	PeriodType ValueType

	// ByProcess keeps stacks of different processes apart, by the label
	// "process". Otherwise stacks of the same places in the same files are one,
	// in whatever processes they were. It must be set before Add is called.
	ByProcess bool

	symbolizer *Symbolizer
	types      []ValueType
	samples    []*sample // in the order in which they came
	known      map[string]*sample
	rest       *sample // of all stacks for which there is no room, nil if there are none
	places     map[placeKey]*place
	placed     int // how many places have a number
	key        []byte
	frames     int // of all samples
	names      int // bytes of the names of functions
}

// sample is a stack, with what its values add up to.
type sample struct {
	places []*place // the innermost first
	labels map[string]string
	values []int64
}

// place is an instruction: of a file, or at an address that is in none.
type place struct {
	number   int
	file     *file    // nil if it is in none
	at       *mapping // where a process maps the file, nil if it is in none
	address  uint64   // by that mapping
	function string   // "" if it is not known
}

// placeKey is equal for the same place. An address that is in no file means
// another place in another process.
type placeKey struct {
	file   *file
	pid    int
	offset uint64
}

// NewProfile returns an empty profile, of one or more values for each stack.
// The last one is what pprof shows unless it is asked for another, and what a
// flame graph is made of. The Symbolizer names the functions.
func NewProfile(symbolizer *Symbolizer, types ...ValueType) *Profile {
	return &Profile{
		symbolizer: symbolizer,
		types:      slices.Clone(types),
		known:      make(map[string]*sample),
		places:     make(map[placeKey]*place),
	}
}

// Add adds a stack of a process, as [Symbolizer.Frames] takes it, with a value
// for each type. Labels may be nil; stacks with different labels are kept
// apart. A stack without addresses becomes one of an unknown function.
//
// The functions are named when a place is first seen. When the profile has more
// than some 100,000 different stacks, others are added to one with the name
// "(other)".
func (p *Profile) Add(
	ctx context.Context, pid int, stack []uint64, values []int64, labels map[string]string,
) {
	s := p.symbolizer
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.earn(pid)
	if len(stack) == 0 {
		stack = []uint64{0}
	}
	places := make([]*place, 0, len(stack))
	for i, address := range stack {
		places = append(places, p.place(ctx, pid, address, i > 0))
	}
	added := p.sample(places, labels, pid)
	for i := range min(len(values), len(p.types)) {
		added.values[i] += values[i]
	}
}

// sample returns the sample of a stack, new or as it is known.
func (p *Profile) sample(places []*place, labels map[string]string, pid int) *sample {
	key := p.key[:0]
	for _, at := range places {
		key = binary.NativeEndian.AppendUint32(key, uint32(at.number))
	}
	if p.ByProcess {
		key = fmt.Appendf(key, "/%d", pid)
	}
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		key = fmt.Appendf(key, "/%q=%q", name, labels[name])
	}
	p.key = key
	known := p.known[string(key)]
	if known != nil {
		return known
	}
	if len(p.samples) >= maxProfileStacks || p.frames+len(places) > maxProfileFrames {
		return p.other()
	}
	labels = maps.Clone(labels)
	if p.ByProcess {
		if labels == nil {
			labels = make(map[string]string)
		}
		labels["process"] = p.symbolizer.processName(pid)
	}
	known = &sample{places: places, labels: labels, values: make([]int64, len(p.types))}
	p.known[string(key)] = known
	p.samples = append(p.samples, known)
	p.frames += len(places)
	return known
}

// otherStacks names the sample of all stacks for which there is no room.
const otherStacks = "(other)"

// other returns that sample.
func (p *Profile) other() *sample {
	if p.rest == nil {
		at := p.newPlace()
		at.function = otherStacks
		p.rest = &sample{places: []*place{at}, values: make([]int64, len(p.types))}
		p.samples = append(p.samples, p.rest)
	}
	return p.rest
}

// Len returns how many different stacks there are.
func (p *Profile) Len() int { return len(p.samples) }

// processName is what people call the process.
func (s *Symbolizer) processName(pid int) string {
	if known := s.processes[pid]; known != nil {
		return fmt.Sprintf("%s (%d)", known.Command, pid)
	}
	return fmt.Sprint(pid)
}

// place returns the place of an address, new or as it is known.
func (p *Profile) place(ctx context.Context, pid int, address uint64, isReturn bool) *place {
	if isReturn && address > 0 {
		address-- // the call
	}
	s := p.symbolizer
	at := s.mapping(pid, address)
	key := placeKey{pid: pid, offset: address}
	if at != nil {
		key = placeKey{file: at.file, offset: address - at.Start + at.Offset}
	}
	known := p.places[key]
	if known == nil {
		known = p.newPlace()
		known.address = address
		if at != nil {
			known.at = &mapping{at.Mapping, at.file, at.path}
			known.file = at.file
			known.function = p.function(ctx, pid, key)
		}
		if len(p.places) < maxProfilePlaces {
			p.places[key] = known
		}
	}
	s.count(known.file != nil, known.function != "")
	return known
}

func (p *Profile) newPlace() *place {
	p.placed++
	return &place{number: p.placed}
}

// function returns the name of a function, "" if it has none or there is no
// room for more names.
func (p *Profile) function(ctx context.Context, pid int, at placeKey) string {
	s := p.symbolizer
	// The process is known: it has the mapping.
	name, _, _ := s.function(ctx, s.processes[pid], at.file, at.offset)
	if p.names += len(name); p.names > maxProfileNames {
		p.names -= len(name)
		return ""
	}
	return strings.Clone(name)
}

// valid returns a text as formats want it, in UTF-8: names of files and
// functions are arbitrary bytes.
func valid(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }
