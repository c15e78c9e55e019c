// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"cmp"
	"errors"
	"fmt"
	"math/bits"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/cilium/ebpf"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/defs"
	"github.com/gousdt/gousdt/internal/pattern"
	"github.com/gousdt/gousdt/internal/tracing"
	"github.com/gousdt/gousdt/trace/internal/bpfgen"
	"github.com/gousdt/gousdt/trace/internal/expr"
	"github.com/gousdt/gousdt/usdt"
	"github.com/gousdt/gousdt/usdt/proc"
)

// SessionOptions are the options of a session. With the zero value every hit
// becomes an event, with all that is cheap to collect.
type SessionOptions struct {
	// Mode is how programs are attached. ModeAuto takes the best that the
	// kernel supports. In ModeSingleIPMap each site gets a program of its own,
	// so libraries can be traced in every process, unlike with package usdt.
	Mode usdt.Mode

	// Filter is a condition on hits, in the language that the documentation of
	// the package describes. The kernel evaluates it. With EventOptions.Spans
	// and Aggregation.Latency it is about the hit that ends a call. It is an
	// error if it needs a call and there are events or an Aggregation of hits.
	// Empty means every hit.
	Filter string

	// Family, if set, is a process: only its hits and those of its descendants
	// count. The kernel follows forks, so a child is seen from its first
	// instruction on, if its file is attached: attach for all processes, or
	// Watch without PerProcess. Family needs the initial PID namespace, and a
	// kernel with BTF.
	Family int

	// Definitions say what the arguments of probes mean. Expressions and
	// captures can use the names that arguments have there, such as "query" for
	// "arg0", and [Site.Argument] returns them. They must not be changed
	// while the session is open. See [BuiltinDefinitions], which also say for a
	// session without Definitions which probes fire only while others are
	// attached: Attach attaches these, too, and their hits count for nothing.
	Definitions *Definitions

	// Containers gives the key "container" of aggregations its values,
	// [proc.Cgroups.Name], and sets Event.CgroupID. The condition
	// container == "4c01db" is about the control groups that
	// [proc.Cgroups.IDs] returns when the session is made. The caller
	// closes it after the session.
	Containers *proc.Cgroups

	// Events says which hits become events, and what an event contains. Nil
	// stands for the zero EventOptions if there are no Aggregations. Otherwise
	// it stands for no events: sites that no aggregation is about are not
	// attached then.
	Events *EventOptions

	// Aggregations are the aggregations that the session computes in the kernel
	// over many hits.
	Aggregations []*Aggregation
}

// EventOptions say which hits become events, and what an event contains.
type EventOptions struct {
	// Captures say which arguments are pointers, and what to read there.
	Captures []Capture

	// Spans, if there are any, make the session send an event for each call
	// between two probes, at its end, in place of an event for each hit, with
	// [Event.Duration] and [Event.Start]. SessionOptions.Filter is a condition
	// on the call then, such as duration > 5ms. Captures are read at the start,
	// too. Stacks are those of the end.
	Spans []Latency

	// StartStacks adds the stacks of StackDepth and StackCopy to the starts of
	// Spans, too. Each start pays for that, whatever the Filter says of the
	// call. With StackCopy, the kernel keeps that much for up to 1024 calls.
	StartStacks bool

	// Exits adds events for the calls of Spans inside which a thread or process
	// has ended, as by a signal: see [Event.Ended]. A Filter that compares with
	// failed takes them for failed; comparisons with what only an end has are
	// true. Calls that began before Attach are not among them, nor those of a
	// kernel that does not let the session trace the end of threads: see
	// Losses.Replaced.
	Exits bool

	// StackDepth is the greatest number of addresses of the user stack in an
	// event, up to 127; 0 for no stack. The kernel walks the stack by frame
	// pointers (on s390x from Linux 6.7 on; stacks are empty before).
	StackDepth int

	// StackCopy is the greatest number of bytes of the user stack in an event,
	// from the stack pointer up, together with the registers, to unwind without
	// frame pointers: up to 65,536, rounded up to a multiple of 4096; 0 for
	// none. Each event takes that much room in the ring buffer, and 4096 bytes
	// more, however short the stack is: set RingSize, too. The copy ends at a
	// page that is not in memory. It takes about half a microsecond for every
	// 4096 bytes. Attach fails on machines other than x86-64, arm64, riscv64
	// and s390x.
	StackCopy int

	// SampleEvery makes about one hit in that many an event, up to 2^30. 0 and
	// 1 make every hit an event. The hits are chosen at random, after the
	// Filter, and [Event.Weight] is the number of hits that an event stands
	// for. Aggregations see all hits. Losses.NotSampled counts the hits that
	// became no event.
	SampleEvery int
	// SamplePerSecond, in the place of SampleEvery, makes at most that many
	// hits a second events on each processor, up to 2^30. An eighth of them can
	// come at once. 0 is no limit.
	SamplePerSecond int

	// ArgumentsOnly leaves Time, Monotonic, PID, TID, Command and CPU out of
	// events, which saves 60 to 80 ns at each hit.
	ArgumentsOnly bool

	// RingSize is the size of the ring buffer in bytes, rounded up to a power
	// of two; 0 stands for 8 MiB. It is kernel memory that cannot be paged out.
	RingSize int

	// ShareRing keeps the last quarter of the ring buffer for containers and
	// users that have put little into it lately, so that one that passes its
	// probes all the time leaves room for others. It costs some 5 ns at each
	// hit.
	ShareRing bool

	// Delay is the time that an event may wait until it is delivered, if the
	// events do not fill a quarter of the ring buffer. It saves waking the
	// reader for all but the first of them, which costs more than all else at
	// a hit. 0 delivers an event at once, or up to 0.2 ms later if many follow
	// each other faster than that.
	Delay time.Duration

	// ReuseEvents makes events take no new memory. An event, and all that it
	// refers to, is then valid until the next one comes, and must not be
	// changed.
	ReuseEvents bool

	// Next is a program that runs at each hit that has become an event, after
	// it was sent, with the same registers: a profiler's, which unwinds the
	// stack. It is the last thing at the hit, so there can be no more than one
	// of Spans. It must have been loaded as a kprobe, and not for uprobe_multi
	// links; ModeAuto then takes no such links.
	Next *ebpf.Program

	knownStacks int // see tracing.CountKnownStacks
}

func init() {
	tracing.CountKnownStacks = func(opts any, descriptor int) {
		opts.(*EventOptions).knownStacks = descriptor
	}
}

const (
	defaultRingSize = 8 << 20
	// maxRingSize is more than is of use, and fits the 32 bits that the kernel
	// has for the size.
	maxRingSize = 1 << 30
	// maxStackDepth is the kernel's own limit (sysctl
	// kernel.perf_event_max_stack) unless it was raised.
	maxStackDepth = 127
	// maxSampling keeps twice the number within the 32 bits of a random one.
	maxSampling = 1 << 30
	// maxStackCopy holds hundreds of functions. A larger one would be most of a
	// ring buffer of usual size.
	maxStackCopy = 64 << 10
)

// events returns the options of events, and whether there are any.
func (o *SessionOptions) events() (options EventOptions, sent bool) {
	if o.Events != nil {
		return *o.Events, true
	}
	return options, len(o.Aggregations) == 0
}

func (o *SessionOptions) known() *defs.Definitions { return (*defs.Definitions)(o.Definitions) }

// names returns the names that expressions can have at the probes of some
// patterns, or at any if there are none, and at the calls of some pairs. An
// argument there comes first, then what definitions have as a key.
func (o *SessionOptions) names(patterns []elfnote.Pattern, pairs ...defs.PairPattern) expr.Names {
	if o.Definitions == nil {
		return nil
	}
	for _, pair := range pairs {
		patterns = append(slices.Clip(patterns), o.known().Patterns(pair)...)
	}
	return func(name string) (meaning string, known bool) {
		if name == "" {
			return o.keys(patterns, pairs...), false
		}
		text, other := o.defined(name, patterns)
		for _, pair := range pairs {
			call, _ := o.known().Call(pair)
			other = other || slices.ContainsFunc(call.Arguments,
				func(a defs.Argument) bool { return a.Name == name })
		}
		if text || other {
			return "", true
		}
		if meaning = o.known().Key(name, patterns); meaning != "" {
			return meaning, true
		}
		text, other = o.defined(name, nil)
		return "", text || other
	}
}

// maxListed is how many arguments an error lists. Patterns may match hundreds.
const maxListed = 16

// keys returns the names that definitions give the arguments of calls, or of
// the probes of some patterns, and those that they add, for an error.
func (o *SessionOptions) keys(patterns []elfnote.Pattern, pairs ...defs.PairPattern) string {
	if len(patterns) == 0 {
		return ""
	}
	var names []string
	add := func(arguments []defs.Argument) {
		for i := range arguments {
			names = append(names, arguments[i].Name)
		}
	}
	for _, pair := range pairs {
		call, _ := o.known().Call(pair)
		add(call.Arguments)
	}
	for probe := range o.known().Probes() {
		if len(pairs) == 0 && pattern.MatchAny(patterns, probe.Provider, probe.Name) {
			add(probe.Arguments)
		}
	}
	slices.Sort(names) // probes have no order
	names = slices.DeleteFunc(slices.Compact(names), func(name string) bool { return name == "" })
	if len(names) > maxListed {
		names = append(names[:maxListed], "...")
	}
	return strings.Join(append(names, o.known().Keys(patterns)...), ", ")
}

func (o *SessionOptions) patterns() (patterns []elfnote.Pattern) {
	for _, a := range o.Aggregations {
		if a != nil && a.Latency == nil {
			patterns = append(patterns, a.Probes...)
		}
	}
	events, _ := o.events()
	for i := range events.Captures {
		patterns = append(patterns, events.Captures[i].Probes...)
	}
	return patterns
}

func (o *SessionOptions) pairs() (pairs []defs.PairPattern) {
	events, _ := o.events()
	latencies := slices.Clone(events.Spans)
	for _, a := range o.Aggregations {
		if a != nil && a.Latency != nil {
			latencies = append(latencies, *a.Latency)
		}
	}
	for i := range latencies {
		if pair, err := defs.ParsePairPattern(latencies[i].Pair); err == nil {
			pairs = append(pairs, pair) // else it is refused where it is parsed
		}
	}
	return pairs
}

// defined reports whether an argument of that name is a text of some probe that
// the patterns match, and whether it is another argument of some.
func (o *SessionOptions) defined(name string, patterns []elfnote.Pattern) (text, other bool) {
	add := func(a *defs.Argument) {
		if a.Name == name {
			text, other = text || a.IsText, other || !a.IsText
		}
	}
	for probe := range o.known().Probes() {
		if !pattern.MatchAny(patterns, probe.Provider, probe.Name) {
			continue
		}
		for i := range probe.Arguments {
			add(&probe.Arguments[i])
		}
	}
	for _, pair := range o.pairs() {
		call, ok := o.known().Call(pair)
		for i := range call.Arguments {
			if ok && patterns == nil {
				add(&call.Arguments[i])
			}
		}
	}
	return text, other
}

// parsePlan sets the plan of the programs, without the descriptors of maps.
func (s *definition) parsePlan() (err error) {
	o, plan := &s.opts, &bpfgen.Plan{Counters: bpfgen.None}
	s.plan = plan
	if o.Mode > usdt.ModeSingleIPMap {
		return optionError("Mode", fmt.Errorf("there is no %s", o.Mode))
	}
	if o.Filter != "" {
		if plan.Filter, err = expr.ParseCondition(o.Filter, o.names(o.patterns(), o.pairs()...),
			s.containers); err != nil {
			return optionError("Filter", err)
		}
	}
	e, sent := o.events()
	size := cmp.Or(e.RingSize, defaultRingSize)
	for _, number := range []struct {
		field         string
		value, atMost int
	}{
		{"RingSize", size, maxRingSize}, {"StackDepth", e.StackDepth, maxStackDepth},
		{"StackCopy", e.StackCopy, maxStackCopy}, {"SampleEvery", e.SampleEvery, maxSampling},
		{"SamplePerSecond", e.SamplePerSecond, maxSampling},
	} {
		if number.value < 0 || number.value > number.atMost {
			return notBetween(number.field, number.value, 0, number.atMost)
		}
	}
	// The kernel wants a power of two, and whole pages.
	size = 1 << bits.Len(uint(max(size, os.Getpagesize())-1))
	switch {
	case o.Family < 0:
		return optionError("Family", fmt.Errorf("%d is no process", o.Family))
	case e.Next != nil && (len(e.Spans) > 1 || o.Mode == usdt.ModeMulti):
		return optionError("Next",
			errors.New("a program after each event needs another mode than ModeMulti, and at most one of Spans"))
	case e.SampleEvery > 1 && e.SamplePerSecond > 0:
		return optionError("SamplePerSecond", errors.New("there is SampleEvery, too"))
	case e.Delay < 0:
		return optionError("Delay", fmt.Errorf("%v is negative", e.Delay))
	case !sent:
		return nil
	}
	plan.Events = &bpfgen.Events{
		RingSize: size,
		Frames:   e.StackDepth,
		Copy:     (e.StackCopy + bpfgen.CopyUnit - 1) &^ (bpfgen.CopyUnit - 1),
		Captures: s.captures.of,
		Batch:    e.Delay > 0,
		Header:   !e.ArgumentsOnly,
		Cgroup:   o.Containers != nil,

		StartStacks: e.StartStacks && e.StackDepth+e.StackCopy > 0, Exits: e.Exits,
	}
	switch {
	case e.SampleEvery > 1:
		plan.Events.Sampling = &bpfgen.Sampling{Every: uint32(e.SampleEvery)}
	case e.SamplePerSecond > 0:
		plan.Events.Sampling = &bpfgen.Sampling{Rate: uint32(e.SamplePerSecond)}
	}
	if e.ShareRing {
		plan.Events.Share = &bpfgen.Share{}
	}
	return nil
}

// A Capture says that an argument is a pointer, and what to read there.
// [Value.Data] returns the bytes.
type Capture struct {
	// Probes are the probes whose argument is meant; none stands for all probes
	// that have the argument. Of several captures for the same argument of a
	// probe the first one counts.
	Probes []elfnote.Pattern

	// Arg is the argument, named as in expressions: "arg0", or "query" if
	// SessionOptions.Definitions call it so. It can be a variable of the
	// program, as "global.debug_query_string", or a member of a structure, as
	// "request->path", whose value events then have as one more argument. So it
	// can be a key of the definitions that is the text of one, such as
	// "application" of PostgreSQL.
	// Nothing is read where the argument does not have the size of a pointer,
	// or is a floating point number or a member that is no pointer.
	//
	// Empty stands for every argument that is a text by its definition and has
	// no other Capture. Bytes and Length must be empty then, too.
	Arg string

	// Bytes says that the argument points to bytes, not to a text. That matters
	// for Value.String, and if there is no Length.
	Bytes bool

	// Length is the argument with the number of bytes, such as "arg1". If it is
	// negative at a hit, nothing is read. Without Length a text ends before its
	// first zero byte, and there are Max bytes.
	Length string

	// Max is the greatest number of bytes that are read, from 1 to 32,768; 0
	// stands for 128. Each event takes that much room in the ring buffer,
	// however short the text is. For an argument of kind [Bytes] only Max is
	// used.
	Max int
}

const (
	defaultCapture = 128
	// maxStructures bounds the bytes of a record for arguments of kind Bytes
	// without a Capture.
	maxStructures = 768
	// captureHead is the room that a capture takes beside its bytes, at most: a
	// number, two bytes at its end, and up to seven to align it.
	captureHead = 17
	// maxCapture keeps an event within the offsets of instructions, and within
	// a ring buffer of usual size.
	maxCapture = 32 << 10
)

type captures []parsedCapture

type parsedCapture struct {
	probes []elfnote.Pattern
	bpfgen.Capture
	arg    *expr.Term // nil for every text
	length *expr.Term // nil for none
	shown  string     // the name that events have for arg, "" for its own
}

func (s *definition) parseCaptures() (err error) {
	for i := range s.events.Captures {
		c := &s.events.Captures[i]
		parsed := parsedCapture{probes: slices.Clone(c.Probes)}
		parsed.Text, parsed.Max, parsed.Length = !c.Bytes, cmp.Or(c.Max, defaultCapture), bpfgen.None
		if parsed.Max < 1 || parsed.Max > maxCapture {
			err = notBetween("Max", c.Max, 0, maxCapture)
		} else if c.Arg != "" || c.Bytes || c.Length != "" {
			names := s.opts.names(c.Probes)
			if len(s.events.Spans) > 0 && len(c.Probes) == 0 {
				names = s.opts.names(nil, s.opts.pairs()...)
			}
			if parsed.arg, err = parseArgument(c.Arg, names); err != nil {
				err = optionError("Arg", err)
			} else if expr.IsVariable(parsed.arg.Name) && !expr.IsVariable(c.Arg) {
				parsed.shown = c.Arg
			}
			if err == nil && c.Length != "" {
				if parsed.length, err = parseArgument(c.Length, names); err != nil {
					err = optionError("Length", err)
				}
			}
		}
		if err != nil {
			return &tracing.OptionError{Field: "Captures", Index: i, Err: err}
		}
		s.captures = append(s.captures, parsed)
	}
	return nil
}

func parseArgument(source string, names expr.Names) (*expr.Term, error) {
	t, err := expr.ParseTerm(source, names)
	if err == nil && t.Source == expr.String && expr.IsVariable(t.Name) && !strings.Contains(source, "(") {
		t.Source = expr.Argument // a key that the definitions have
	}
	if err == nil && (t.Source != expr.Argument || t.HasMask || t.Start) {
		err = &expr.SyntaxError{Expression: source, Offset: t.Offset,
			Message: "an argument is expected: arg0, arg1, ..."}
	}
	return &t, err
}

// globals returns the names in expressions of the variables and members that
// are captured at the sites of a probe.
func (cs captures) globals(provider, probe string) (names []string) {
	for i := range cs {
		c := &cs[i]
		if !pattern.MatchAny(c.probes, provider, probe) {
			continue
		}
		for _, t := range []*expr.Term{c.arg, c.length} {
			if t != nil && expr.IsVariable(t.Name) && !slices.Contains(names, t.Name) {
				names = append(names, t.Name)
			}
		}
	}
	return names
}

func (cs captures) of(site *bpfgen.Site) []bpfgen.Capture {
	var found []bpfgen.Capture
	taken := make(map[int]bool)
	add := func(c bpfgen.Capture) {
		if !taken[c.Arg] && isPointer(site, c.Arg) {
			taken[c.Arg] = true
			found = append(found, c)
		}
	}
	var texts []*parsedCapture
	for i := range cs {
		c := &cs[i]
		switch {
		case !pattern.MatchAny(c.probes, site.Provider, site.Name):
			continue
		case c.arg == nil:
			texts = append(texts, c)
			continue
		}
		here := c.Capture
		here.Arg = c.arg.Bind(site.Names).Index
		if c.arg.Name == "" && here.Arg >= len(site.Args)-site.Globals {
			continue
		}
		if c.length != nil {
			here.Length = c.length.Bind(site.Names).Index
		}
		add(here)
	}
	left := maxStructures
	for i := range site.Args {
		size := min(site.Args[i].Size, defaultCapture)
		if takes := captureHead + size; site.Args[i].Kind == argspec.Bytes && !taken[i] &&
			takes <= left {
			left -= takes
			add(bpfgen.Capture{Arg: i, Length: bpfgen.None, Max: size})
		}
	}
	for _, c := range texts {
		for i, isText := range site.Texts {
			if isText {
				add(bpfgen.Capture{Arg: i, Text: true, Length: site.Lengths[i], Max: c.Max})
			}
		}
	}
	return found
}

// isPointer reports whether an argument can be a pointer. At other probes the
// argument of the same number may be no pointer.
func isPointer(site *bpfgen.Site, arg int) bool {
	if m, ok := site.Members[arg]; ok && !m.Pointer {
		return false
	}
	if site.Pointer == 0 || arg < 0 || arg >= len(site.Args) ||
		site.Args[arg].Kind == argspec.Bytes {
		return true
	}
	return site.Args[arg].Size == site.Pointer && !site.Args[arg].Float
}

func optionError(field string, err error) error {
	return &tracing.OptionError{Field: field, Index: -1, Err: err}
}

func notBetween(field string, value, low, high int) error {
	return optionError(field, fmt.Errorf("%d is not between %d and %d", value, low, high))
}
