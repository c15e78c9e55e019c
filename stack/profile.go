// SPDX-License-Identifier: BSD-2-Clause

package stack

import (
	"bufio"
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"iter"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/pprof/profile"

	"github.com/gousdt/gousdt/internal/language/symbolname"
)

// Profile collects stacks with values. It is written for go tool pprof, for
// tools that make flame graphs, or as a flame graph. It is not safe for
// concurrent use.
type Profile struct {
	// Start and Duration are the time that the profile covers. Zero means
	// unknown.
	Start    time.Time
	Duration time.Duration
	// Period is the amount of PeriodType from one sample to the next, if the
	// stacks are sampled: 512 << 10 of {"space", "bytes"}.
	Period     int64
	PeriodType profile.ValueType

	// ByProcess keeps stacks of different processes apart, by the label
	// "process". Otherwise stacks of the same places in the same files are one,
	// whatever their process. It must be set before Add is called.
	ByProcess bool

	symbolizer *Symbolizer
	out        profile.Profile            // complete and Write fill in the rest
	samples    map[string]*profile.Sample // of out, by their places and labels
	places     map[placeKey]*place
	ordered    []*place
	mappings   map[mappingKey]*profile.Mapping // of out
	key        []byte
	frames     int // of all samples
	names      int // bytes of the names of functions
}

// place is an instruction in a file, an address that is in no file, or a
// function that is only known by its name. complete sets its Line.
type place struct {
	profile.Location
	placeKey
	process  int      // PID of the first process that had it
	function string   // "" if it is not known
	sources  []source // as debugInfo.at returns them; nil without Symbolizer.Lines
	unnamed  uint64   // how often it was counted without a name
}

// placeKey is the key of a place. The PID is 0 if the address is in a file,
// since an address in no file is another place in each process. A place of
// AddFrames only has a name.
type placeKey struct {
	spot
	name string
}

// mappingKey is the key of a mapped part of a file.
type mappingKey struct {
	file         *file
	offset, size uint64
}

// NewProfile returns an empty profile with one or more values for each stack.
// The type of a value is such as "alloc_space", and its unit "count",
// "nanoseconds" or "bytes". pprof shows the last one unless it is asked for
// another, and flame graphs are made of the last one. The Symbolizer names the
// functions.
func NewProfile(symbolizer *Symbolizer, types ...profile.ValueType) *Profile {
	p := &Profile{
		symbolizer: symbolizer,
		samples:    make(map[string]*profile.Sample),
		places:     make(map[placeKey]*place),
		mappings:   make(map[mappingKey]*profile.Mapping),
	}
	for _, t := range types {
		p.out.SampleType = append(p.out.SampleType, &t)
		p.out.DefaultSampleType = t.Type
	}
	return p
}

// Add adds a stack of a process, as [Symbolizer.Frames] takes it, with a value
// for each type. Labels may be nil; stacks with different labels are kept
// apart. A stack without addresses becomes one of an unknown function.
//
// The functions are named when a place is first seen. When the profile has some
// 100,000 different stacks, further ones are added to one stack with the name
// "(other)".
func (p *Profile) Add(
	ctx context.Context, pid int, stack []uint64, values []int64, labels map[string]string,
) {
	s := p.symbolizer
	if s == nil || s.processes == nil { // which names nothing
		var frames []Frame
		for _, address := range stack {
			frames = append(frames, Frame{Address: address})
		}
		p.AddFrames(pid, frames, values, labels)
		return
	}
	s.mutex.Lock()
	defer s.unlock()
	s.begin(pid)
	if len(stack) == 0 {
		stack = []uint64{0}
	}
	places := make([]*profile.Location, 0, len(stack))
	for i, address := range stack {
		places = append(places, p.place(ctx, pid, address, i > 0))
	}
	p.add(places, pid, values, labels)
}

// AddFrames adds a stack whose functions are already known, such as those of an
// interpreter, the innermost first. Each Frame is shown by its Function, or
// else by its File; the other fields do not matter. The Symbolizer of the
// profile may be nil, unless ByProcess is set. See [Profile.Add] for values and
// labels.
func (p *Profile) AddFrames(pid int, frames []Frame, values []int64, labels map[string]string) {
	if p.symbolizer != nil {
		p.symbolizer.mutex.Lock()
		defer p.symbolizer.unlock()
	}
	if len(frames) == 0 {
		frames = []Frame{{}}
	}
	places := make([]*profile.Location, 0, len(frames))
	for _, f := range frames {
		places = append(places, p.named(cmp.Or(f.Function, nameless(f.File))))
	}
	p.add(places, pid, values, labels)
}

// nameless stands for a function of a file without a name.
func nameless(file string) string {
	if file == "" {
		return "[unknown]"
	}
	return "[" + filepath.Base(file) + "]"
}

// add adds values to the sample of a stack. A place is nil if there was no room
// for it: then they are added to the sample of other stacks.
func (p *Profile) add(
	places []*profile.Location, pid int, values []int64, labels map[string]string,
) {
	key := p.key[:0]
	for _, at := range places {
		if at != nil {
			key = binary.NativeEndian.AppendUint32(key, uint32(at.ID))
		}
	}
	isFull := slices.Contains(places, nil)
	if p.ByProcess {
		key = fmt.Appendf(key, "/%d", pid)
	}
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		key = fmt.Appendf(key, "/%q=%q", name, labels[name])
	}
	p.key = key
	if p.samples == nil { // a zero value
		p.samples = make(map[string]*profile.Sample)
	}
	known := p.samples[string(key)]
	if isFull || known == nil && (len(p.samples) >= maxProfileStacks ||
		p.frames+len(places) > maxProfileFrames) {
		key, places = []byte(otherStacks), nil
		known = p.samples[otherStacks]
	}
	if known == nil {
		known = &profile.Sample{Location: places, Value: make([]int64, len(p.out.SampleType)),
			Label: make(map[string][]string)}
		if places == nil {
			known.Location = []*profile.Location{p.named(otherStacks)}
		} else {
			for name, value := range labels {
				known.Label[valid(name)] = []string{valid(value)}
			}
			if p.ByProcess {
				known.Label["process"] = []string{valid(p.symbolizer.processName(pid))}
			}
		}
		p.samples[string(key)] = known
		p.out.Sample = append(p.out.Sample, known)
		p.frames += len(places)
	}
	for i := range min(len(values), len(known.Value)) {
		known.Value[i] = addLimited(known.Value[i], values[i])
		if v := known.Value[i]; v == math.MaxInt64 || v == math.MinInt64 {
			p.out.Comments = []string{cutSums}
		}
	}
}

// cutSums marks a profile: go tool pprof -comments shows it.
const cutSums = "Sums that need more than 64 bits are the nearest number that has 64."

// addLimited adds two numbers. A sum that is out of range becomes the nearest
// number that is not.
func addLimited(a, b int64) int64 {
	switch sum := a + b; {
	case a > 0 && b > 0 && sum < 0:
		return math.MaxInt64
	case a < 0 && b < 0 && sum >= 0:
		return math.MinInt64
	default:
		return sum
	}
}

// otherStacks is the name of the sample for all stacks that had no room.
const otherStacks = "(other)"

// Len returns the number of stacks that WriteFolded and WriteFlameGraph show,
// and of those that they leave out because their value is less than 0. It waits
// for names as [Profile.Write] does.
func (p *Profile) Len(ctx context.Context) (shown, negative int) {
	for _, value := range p.lines(ctx) {
		switch {
		case value > 0:
			shown++
		case value < 0:
			negative++
		}
	}
	return shown, negative
}

// processName returns COMMAND (PID), or only the PID if the process is not
// known.
func (s *Symbolizer) processName(pid int) string {
	if s != nil {
		if known := s.processes[pid]; known != nil && !known.onlyRecorded {
			return fmt.Sprintf("%s (%d)", known.Command, pid)
		}
	}
	return fmt.Sprint(pid)
}

// place returns the place of an address, which may be new, or nil if there is
// no room for it.
func (p *Profile) place(
	ctx context.Context, pid int, address uint64, isReturn bool,
) *profile.Location {
	s := p.symbolizer
	at, key := s.at(pid, address, isReturn)
	if at != nil {
		key.pid = 0
	}
	known := p.places[placeKey{spot: key}]
	if known == nil && len(p.places) < maxProfilePlaces {
		known = p.newPlace(placeKey{spot: key})
		known.Address, known.process = key.offset, pid
		if at != nil {
			known.Mapping = p.mapping(at)
			// Processes map the file at different addresses, a profile at one.
			known.Address += known.Mapping.Start - at.Offset
		}
		p.find(ctx, known)
	}
	if known == nil {
		s.count(at != nil, false)
		return nil
	}
	if s.count(at != nil, known.function != ""); known.function == "" {
		known.unnamed++
	}
	return &known.Location
}

// named returns the place of a function that is only known by its name, or nil
// if there is no room for it.
func (p *Profile) named(name string) *profile.Location {
	key := placeKey{name: name}
	known := p.places[key]
	if known == nil {
		if len(p.places) >= maxProfilePlaces && name != otherStacks {
			return nil
		}
		known = p.newPlace(key)
		known.function = name
	}
	return &known.Location
}

func (p *Profile) newPlace(key placeKey) *place {
	at := &place{placeKey: key}
	p.ordered = append(p.ordered, at)
	at.ID = uint64(len(p.ordered))
	p.out.Location = append(p.out.Location, &at.Location)
	if p.places == nil { // a zero value
		p.places = make(map[placeKey]*place)
	}
	p.places[key] = at
	return at
}

func (p *Profile) mapping(at *mapping) *profile.Mapping {
	key := mappingKey{at.file, at.Offset, at.End - at.Start}
	known := p.mappings[key]
	if known == nil {
		known = &profile.Mapping{ID: uint64(len(p.mappings)) + 1, Start: at.Start, Limit: at.End,
			Offset: at.Offset, File: valid(at.path), BuildID: at.buildID}
		p.mappings[key] = known
		p.out.Mapping = append(p.out.Mapping, known)
	}
	return known
}

// find sets the name and the sources of a place, as far as they are missing and
// known by now. The place's process must be known.
func (p *Profile) find(ctx context.Context, at *place) {
	s := p.symbolizer
	executed := at.spot
	executed.pid = at.process
	if at.sources == nil {
		at.sources, _ = s.linesAt(executed)
	}
	if at.function != "" {
		return
	}
	name, _, _ := s.name(ctx, executed)
	if name == "" || p.names+len(name) > maxProfileNames {
		return
	}
	p.names += len(name)
	at.function = strings.Clone(name)
	if at.file == nil {
		s.counts.NoFile -= at.unnamed
	} else {
		s.counts.NoFunction -= at.unnamed
	}
	at.unnamed = 0
}

// complete names functions whose debug file was fetched after Add, or that
// their process has named after it, and sets the lines of all places.
func (p *Profile) complete(ctx context.Context) {
	if s := p.symbolizer; s != nil && s.processes != nil {
		find := func() {
			s.mutex.Lock()
			defer s.unlock()
			for _, at := range p.ordered {
				// Another process with the PID has made other code.
				if of := s.processes[at.process]; of != nil && (!of.onlyRecorded || at.file != nil) {
					p.find(ctx, at)
				}
			}
		}
		ctx, cancel := context.WithTimeout(ctx, mostLineWait)
		defer cancel()
		find()
		if s.readers.wait(ctx) {
			find()
		}
		if s.Lines {
			s.awaitLines(ctx)
			find()
		}
	}
	// Functions of the same name in different files are different.
	type functionKey struct {
		file         *file
		name, source string
	}
	functions := make(map[functionKey]*profile.Function)
	p.out.Function = nil
	for _, at := range p.ordered {
		at.Line = nil
		if at.function == "" {
			continue
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
			key := functionKey{at.file, source.function, source.file}
			f := functions[key]
			if f == nil {
				name := valid(source.function)
				f = &profile.Function{ID: uint64(len(functions)) + 1, Name: name, SystemName: name,
					Filename: valid(source.file)}
				if hasBracketedName(name) {
					f.SystemName = "" // pprof removes what is in brackets if both names are equal
				}
				functions[key] = f
				p.out.Function = append(p.out.Function, f)
			}
			at.Line = append(at.Line, profile.Line{Function: f, Line: int64(source.line)})
			if m := at.Mapping; m != nil {
				m.HasFunctions = true
				m.HasFilenames = m.HasFilenames || source.file != ""
				m.HasLineNumbers = m.HasLineNumbers || source.line > 0
				m.HasInlineFrames = m.HasInlineFrames || len(sources) > 1
			}
		}
	}
}

// hasBracketedName reports whether a part of a function's name is in angle
// brackets, as in Python's <module> and Java's <init>. The parameters of a
// template follow a name.
func hasBracketedName(name string) bool {
	after := byte(' ')
	for _, c := range []byte(name) {
		if c == '<' && strings.IndexByte(" .:/(", after) >= 0 {
			return true
		}
		after = c
	}
	return false
}

// valid returns a text in UTF-8, which the formats require. Names of files and
// functions are arbitrary bytes.
func valid(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }

// WriteFolded writes the profile as tools for flame graphs read it: a line for
// each stack, with the functions from the outermost on, divided by ';', and the
// last of its values. Labels come first, as if they were functions. Names of
// C++ and Rust functions are as in the source, without parameters. A function
// without a name is its file in brackets. The name of an inlined function ends
// in " (inlined)". Stacks of equal names are one line. Stacks with a value of 0
// or less are left out. See [Profile.Write] for the context.
func (p *Profile) WriteFolded(ctx context.Context, w io.Writer) error {
	out := bufio.NewWriter(w)
	lines := p.lines(ctx)
	for _, line := range slices.Sorted(maps.Keys(lines)) {
		if lines[line] > 0 {
			fmt.Fprintf(out, "%s %d\n", line, lines[line])
		}
	}
	return out.Flush()
}

// lines returns the stacks by the names on them, with their values.
func (p *Profile) lines(ctx context.Context) map[string]int64 {
	p.complete(ctx)
	lines := make(map[string]int64)
	for _, s := range p.out.Sample {
		line := lineOf(s)
		lines[line] = addLimited(lines[line], last(s))
	}
	return lines
}

func lineOf(s *profile.Sample) string {
	var names []string
	for name := range namesOn(s) {
		names = append(names, name)
	}
	return strings.Join(names, ";")
}

// last returns the last value of a sample, which is shown by default.
func last(s *profile.Sample) int64 {
	if len(s.Value) == 0 {
		return 0
	}
	return s.Value[len(s.Value)-1]
}

// namesOn yields the labels, and then the names of the functions with their
// lines, the outermost first. A line is "" if it is not known.
func namesOn(s *profile.Sample) iter.Seq2[string, string] {
	return func(yield func(name, line string) bool) {
		for _, label := range slices.Sorted(maps.Keys(s.Label)) {
			if !yield(folded(label+"="+s.Label[label][0]), "") {
				return
			}
		}
		for _, at := range slices.Backward(s.Location) {
			if len(at.Line) == 0 {
				file := ""
				if at.Mapping != nil {
					file = at.Mapping.File
				}
				if !yield(folded(nameless(file)), "") {
					return
				}
			}
			for i, line := range slices.Backward(at.Line) {
				name := symbolname.Readable(line.Function.Name)
				if i < len(at.Line)-1 {
					name += " (inlined)"
				}
				where := source{file: line.Function.Filename, line: int(line.Line)}
				if !yield(folded(name), where.text()) {
					return
				}
			}
		}
	}
}

// folded returns a name without semicolons and control characters, which divide
// names and lines.
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

// Write writes the profile for go tool pprof, compressed. Names and lines that
// are still being read are waited for, for up to a minute, or until the context
// ends: what is not known then has no name, and the profile is written.
func (p *Profile) Write(ctx context.Context, w io.Writer) error {
	p.complete(ctx)
	if !p.Start.IsZero() {
		p.out.TimeNanos = p.Start.UnixNano()
	}
	p.out.DurationNanos, p.out.Period = int64(p.Duration), p.Period
	if p.PeriodType != (profile.ValueType{}) {
		p.out.PeriodType = &p.PeriodType
	}
	if err := p.out.CheckValid(); err != nil {
		return err
	}
	return p.out.Write(w)
}
