// SPDX-License-Identifier: BSD-2-Clause

package stack

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"iter"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/pprof/profile"

	"github.com/gousdt/gousdt/internal/symbolname"
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
	named      map[string]*place // of AddFrames, by function
	placed     int               // how many places have a number
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
	sources  []source // with Lines, "inlined" functions first; the last one is that of function
	pid      int      // whose address it is
	unnamed  uint64   // how often it was counted without its name
}

// placeKey is equal for the same place. An address that is in no file means
// another place in another process.
type placeKey struct {
	file     *file
	pid      int
	offset   uint64
	isReturn bool // from the call that is there
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
		named:      make(map[string]*place),
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
	s.begin(pid)
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

// AddFrames adds a stack whose functions are known otherwise, such as those of
// an interpreter, the innermost first: each has a Function, or a File. Nothing
// else of a Frame counts. The Symbolizer of such a profile may be nil, unless
// ByProcess is set. See [Profile.Add] for the rest.
func (p *Profile) AddFrames(pid int, frames []Frame, values []int64, labels map[string]string) {
	places := make([]*place, 0, max(len(frames), 1))
	for _, f := range frames {
		if f.Function == "" {
			f.Function = "[unknown]"
			if f.File != "" {
				f.Function = "[" + filepath.Base(f.File) + "]"
			}
		}
		known := p.named[f.Function]
		if known == nil {
			known = p.newPlace()
			known.function = f.Function
			if len(p.named) < maxProfilePlaces {
				p.named[f.Function] = known
			}
		}
		places = append(places, known)
	}
	if len(places) == 0 {
		places = append(places, p.newPlace())
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

// Len returns how many lines WriteFolded writes.
func (p *Profile) Len() int { return len(p.lines()) }

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
		key = placeKey{file: at.file, offset: address - at.Start + at.Offset, isReturn: isReturn}
	}
	known := p.places[key]
	if known == nil {
		known = p.newPlace()
		known.address, known.pid = address, pid
		if at != nil {
			known.at = &mapping{at.Mapping, at.file, at.path}
			known.file = at.file
			known.sources, _ = s.lines(s.processes[pid], at.file, key.offset)
		}
		known.function = p.function(ctx, pid, key)
		if len(p.places) < maxProfilePlaces {
			p.places[key] = known
		}
	}
	if s.count(known.file != nil, known.function != ""); known.function == "" {
		known.unnamed++
	}
	return known
}

// complete names functions whose debug file came later, or that their process
// has named later, and adds the lines.
func (p *Profile) complete() {
	s := p.symbolizer
	if s == nil {
		return
	}
	p.completeNames()
	if !s.Lines {
		return
	}
	findLines := func() {
		s.mutex.Lock()
		defer s.mutex.Unlock()
		for key, known := range p.places {
			if known.file != nil && known.sources == nil {
				known.sources, _ = s.lines(s.processes[known.pid], known.file, key.offset)
			}
		}
	}
	findLines()
	ctx, cancel := context.WithTimeout(context.Background(), mostLineWait)
	defer cancel()
	s.files.lines.wait(ctx)
	findLines()
}

func (p *Profile) completeNames() {
	s := p.symbolizer
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for key, known := range p.places {
		if known.function != "" || s.processes[known.pid] == nil ||
			known.file != nil && s.DebugFile == nil {
			continue
		}
		if known.function = p.function(context.Background(), known.pid, key); known.function == "" {
			continue
		}
		if known.file == nil {
			s.counts.NoFile -= known.unnamed
		} else {
			s.counts.NoFunction -= known.unnamed
		}
		known.unnamed = 0
	}
}

func (p *Profile) newPlace() *place {
	p.placed++
	return &place{number: p.placed}
}

// function returns the name of a function, "" if it has none or there is no
// room for more names.
func (p *Profile) function(ctx context.Context, pid int, at placeKey) string {
	s, name := p.symbolizer, ""
	if at.file == nil {
		name, _, _ = s.made(pid, at.offset)
	} else {
		// The process is known: it has the mapping.
		name, _, _ = s.function(ctx, s.processes[pid], at.file, at.offset, at.isReturn)
	}
	if p.names += len(name); p.names > maxProfileNames {
		p.names -= len(name)
		return ""
	}
	return strings.Clone(name)
}

// valid returns a text as formats want it, in UTF-8: names of files and
// functions are arbitrary bytes.
func valid(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }

// WriteFolded writes the profile as tools for flame graphs read it: a line for
// each stack, with the functions from the outermost on, divided by ';', and the
// last of its values. Labels come first, as if they were functions. Names are
// as in the source of C++ and Rust, without parameters; a function without a
// name is its file in brackets, and one that is inlined has " (inlined)" after
// its name. Stacks of equal names are one line. Stacks with a value of 0 or
// less are left out.
func (p *Profile) WriteFolded(w io.Writer) error {
	out := bufio.NewWriter(w)
	lines := p.lines()
	for _, line := range slices.Sorted(maps.Keys(lines)) {
		fmt.Fprintf(out, "%s %d\n", line, lines[line])
	}
	return out.Flush()
}

// lines returns the stacks by the names on them, with their values.
func (p *Profile) lines() map[string]int64 {
	p.complete()
	lines := make(map[string]int64)
	for _, s := range p.samples {
		if value := s.last(); value > 0 {
			lines[strings.Join(s.names(), ";")] += value
		}
	}
	return lines
}

// last returns the value that is shown unless another one is asked for.
func (s *sample) last() int64 {
	if len(s.values) == 0 {
		return 0
	}
	return s.values[len(s.values)-1]
}

// names returns the labels and the names of the functions, the outermost first.
func (s *sample) names() []string {
	var names []string
	for name := range s.named() {
		names = append(names, name)
	}
	return names
}

// named returns them with the lines, "" where these are not known.
func (s *sample) named() iter.Seq2[string, string] {
	return func(yield func(name, line string) bool) {
		for _, key := range slices.Sorted(maps.Keys(s.labels)) {
			if !yield(folded(key+"="+s.labels[key]), "") {
				return
			}
		}
		for _, at := range slices.Backward(s.places) {
			sources := at.sources
			if len(sources) == 0 {
				sources = []source{{}}
			}
			for i, source := range slices.Backward(sources) {
				name := at.name()
				if i < len(sources)-1 {
					if source.function == "" {
						continue
					}
					name = symbolname.Readable(source.function) + " (inlined)"
				}
				if !yield(folded(name), valid(source.text())) {
					return
				}
			}
		}
	}
}

// name returns what a flame graph shows of a place.
func (at *place) name() string {
	switch {
	case at.function != "":
		return symbolname.Readable(at.function)
	case at.at != nil:
		return "[" + filepath.Base(at.at.path) + "]"
	}
	return "[unknown]"
}

// folded returns a name without what divides names and lines.
func folded(name string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ';':
			return ':'
		case r < ' ' || r == 0x7f:
			return '?'
		}
		return r
	}, valid(name))
}

// Write writes the profile for go tool pprof, compressed.
func (p *Profile) Write(w io.Writer) error {
	p.complete()
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
	file         *file
	name, source string
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
	sources := at.sources
	if len(sources) == 0 {
		sources = []source{{}}
	}
	for i, source := range sources {
		if i == len(sources)-1 {
			source.function = at.function
		}
		if source.function == "" {
			continue
		}
		l.Line = append(l.Line, profile.Line{Function: b.function(at.file, source), Line: int64(source.line)})
		if m := l.Mapping; m != nil {
			m.HasFunctions = true
			m.HasFilenames = m.HasFilenames || source.file != ""
			m.HasLineNumbers = m.HasLineNumbers || source.line > 0
			m.HasInlineFrames = m.HasInlineFrames || len(sources) > 1
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

func (b *pprofBuilder) function(of *file, at source) *profile.Function {
	key := functionKey{of, at.function, at.file}
	if known := b.functions[key]; known != nil {
		return known
	}
	name := valid(at.function)
	f := &profile.Function{ID: uint64(len(b.out.Function)) + 1, Name: name, SystemName: name,
		Filename: valid(at.file)}
	b.functions[key] = f
	b.out.Function = append(b.out.Function, f)
	return f
}
