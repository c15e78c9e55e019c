// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/cilium/ebpf"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/defs"
	"github.com/gousdt/gousdt/internal/tracing"
	"github.com/gousdt/gousdt/trace/internal/bpfgen"
	"github.com/gousdt/gousdt/trace/internal/expr"
	"github.com/gousdt/gousdt/usdt"
)

// Latency says which probes start and end a call whose time is measured.
//
// If start and end of a pair are in one function, they belong together exactly
// if the frame of that function on the stack is the same, on x86-64, arm64,
// riscv64 and s390x. The file's tables for exceptions (.eh_frame) say where it
// is. A start whose frame is below that of a later start or end was left
// without its end, as by an exception, and Losses.Left counts it. Calls in one
// frame, such as those of an interpreter, are taken to be inside each other. If
// start and end are in different functions, or the file has no such tables, an
// end belongs to the last start of the pair in the thread that has no end yet.
//
// Starts and ends of python:function belong together by the frames of the
// interpreter, up to Python 3.11, because its greenlets share a stack. Where
// these are not known, the calls of a thread are not measured from the first
// end on that is of another function than the last start, or as soon as a start
// shows that the stack has been changed (Losses.Overlapped). Those of
// hotspot:method are not from the moment on that the thread runs Java's virtual
// threads.
//
// So calls can be nested, up to 64 of a pair, 128 if "self" or "calls(...)" is
// wanted, or 512 of python:function; if there are more, the outermost are
// forgotten. [Losses] counts the starts and ends that are not measured. Each
// different Latency of a session takes 16 MB of kernel memory, and 230 kB for
// each processor; of python:function 28 or 44 MB.
//
// There is room for the calls of 8,192 threads (2,048 if "self" or "calls(...)"
// is wanted, or of python:function), or of other values of By, in all processes
// together. If there are more, those that have been idle for longest are
// forgotten, and the ends of their calls are counted in Losses.Unmatched. So an
// untrusted process can hide the calls of others, but it makes no time wrong.
type Latency struct {
	// Pair selects the pairs of probes, each of which is measured on its own.
	// It is one of
	//
	//	START..DONE    two patterns, see [elfnote.ParsePattern]
	//	BASE           a pattern of the names of a pair without their endings
	//
	// In START..DONE, the wildcards of both sides must match the same:
	// n:*__start..n:*__done pairs n:a__start with n:a__done, and with no other
	// probe. A provider that is only * (or not given) is that of the other
	// side. If the name of START has no wildcard, DONE may have some. Then all
	// probes that DONE matches, except START itself, end the calls that START
	// starts.
	//
	// A BASE selects the pairs whose names are BASE with a usual ending:
	// postgresql:query selects postgresql:query__start with
	// postgresql:query__done, and * selects all such pairs of a file. Usual
	// endings are __start and __done, __begin and __end, __entry and __return,
	// __enter and __exit, and mixtures of these; also __stop, __complete,
	// __finish, __leave, and __startup with __shutdown, __begin with __commit,
	// __acquire with __release, __submit with __complete, __request with
	// __response, and __alloc with __free. The separator may also be _ or -.
	// Without a separator the ending must be the whole name, which only *
	// selects.
	//
	// After either form, |FAILED is a pattern of further probes that end a
	// call: one that fails, as in postgresql:query|transaction__abort, see
	// [Event.Failed]. There can be several. A provider that is not given is
	// that of START. START, or BASE, must have no wildcards then.
	//
	// One attachment has to have both probes of a pair, unless Pair is
	// START..DONE, names both providers and has no wildcards.
	//
	// It can also be the name of a call that
	// SessionOptions.Definitions have, such as postgresql:statement, which
	// several probes, those of [Definitions.Patterns], start and end.
	// The arguments of the start are those of the call then.
	Pair string

	// By is a term that is a number, which an end shares with its start. If the
	// term at the end differs, it follows: "arg0=arg1". Empty stands for what
	// SessionOptions.Definitions say of the pair (match), or else "tid", the
	// same thread. An argument such as "arg0" is compared within the process. A
	// call without an end may then be taken for one of a later process with the
	// same PID.
	By string
}

const (
	// maxCallers is the number of threads, or of other values of By, with calls
	// of a pair going on. The kernel allocates 1.9 kB for each.
	maxCallers = 8192

	// maxNested is the same for calls whose own times or paths are wanted,
	// 5.5 kB each, or may be those of greenlets, up to 21 kB each. maxPaths is
	// the number of different paths.
	maxNested = 2048
	maxPaths  = 1 << 15

	// maxSaved is the number of calls whose starts are kept at once, unless
	// that would be more than maxSavedMemory.
	maxSaved       = 4096
	minSaved       = 1024
	maxSavedMemory = 16 << 20

	// heldBack is how many free entries of such a map each processor may keep
	// for itself (LOCAL_FREE_TARGET before Linux 6.16). Without room for these
	// a large machine forgets calls while most of the map is free.
	heldBack = 128

	// savedArguments is the room for the arguments of a start that is kept.
	// Each takes up to 9 bytes, and in memory the gaps between them.
	savedArguments = 1<<10 + maxStructures

	// savedStack is the room for a stack beside its addresses and its copy: a
	// length, and up to 33 registers with the length of the copy.
	savedStack = 8 + 34*8

	// savedTexts is the number of arguments of a start whose texts are kept for
	// a Capture of all texts. No known probe has more.
	savedTexts = 6

	// maxSavedCapture is the most that captures may add: an instruction's
	// offset has to reach all of it.
	maxSavedCapture = 28 << 10
)

// latency is a Latency with its expressions parsed, and its maps.
type latency struct {
	bpfgen.Latency
	pair         defs.PairPattern
	of           Latency
	call         *defs.Call          // named by the pattern; nil for pairs of probes
	calls, saved *ebpf.Map           // saved may be nil
	paths        *ebpf.Map           // nil unless a key is Calls
	stacks       map[int]defs.Stacks // by 1 more than the number of the condition in If
}

// latency returns the parsed form of a Latency, the same for equal ones.
// Patterns with equal texts match the same probes.
func (s *definition) latency(l *Latency) (*latency, error) {
	for _, known := range s.latencies {
		if known.of == *l {
			return known, nil
		}
	}
	if l.Pair == "" {
		return nil, optionError("Pair", errors.New("no pair of probes is given"))
	}
	pair, err := defs.ParsePairPattern(l.Pair)
	if err != nil {
		return nil, optionError("Pair", err)
	}
	p := &latency{pair: pair, of: *l}
	names := s.opts.names(nil, pair)
	p.Fails = strings.Contains(l.Pair, "|") // or a name does
	p.Deep = s.mayBeDeep(pair)
	if call, ok := s.opts.known().Call(pair); ok {
		if err := p.setCall(&call, names); err != nil {
			return nil, optionError("Pair", err)
		}
	}
	for _, stacks := range s.opts.known().Stacks() {
		if err := s.addStacks(p, stacks); err != nil {
			return nil, optionError("Definitions", err)
		}
	}
	if p.Match, err = s.matchOf(cmp.Or(l.By, s.opts.known().Match(pair), "tid"), names); err != nil {
		return nil, err
	}
	s.latencies = append(s.latencies, p)
	s.plan.Latencies = append(s.plan.Latencies, &p.Latency)
	return p, nil
}

// addStacks adds a condition to a Latency that may measure calls of its pair.
func (s *definition) addStacks(l *latency, stacks defs.Stacks) error {
	provider, _, _ := strings.Cut(stacks.Pair.String(), ":")
	if !strings.Contains(l.of.Pair, provider) && strings.Contains(l.of.Pair, ":") &&
		!strings.ContainsAny(l.of.Pair, "*?[") {
		return nil
	}
	pair, err := defs.ParsePairPattern(stacks.Pair.String())
	if err != nil {
		return err
	}
	node, err := expr.ParseCondition(stacks.If, s.opts.names(nil, pair), nil)
	if err != nil {
		return fmt.Errorf("the definition of the stacks of %s: %w", stacks.Pair, err)
	}
	if l.If = append(l.If, node); l.stacks == nil {
		l.stacks = make(map[int]defs.Stacks)
	}
	l.stacks[len(l.If)] = stacks
	return nil
}

// stacksOf returns the condition on stacks of a pair, and their kind.
func (l *latency) stacksOf(pair *defs.Pair) (condition int, kind string) {
	provider, name, _ := strings.Cut(pair.String(), ":")
	for number, stacks := range l.stacks {
		if number > condition && stacks.Pair.Match(provider, name) {
			condition, kind = number, stacks.Kind
		}
	}
	return condition, kind
}

// nest has own times of calls known, and their paths if name, the text that
// names a call, is not nil.
func (l *latency) nest(name *expr.Term) error {
	switch {
	case l == nil:
		return errors.New("only calls have this (Latency)")
	case !l.ByThread() || l.Outermost || l.Fails:
		return fmt.Errorf("calls of %s are not known to be inside each other: "+
			"they can fail, go on in another thread, or only the outermost count", l.pair)
	case name != nil && l.Path != nil && *l.Path != *name:
		return errors.New("calls have another name already")
	}
	l.Nested, l.Path = true, cmp.Or(l.Path, name)
	return nil
}

// pathText returns the names of a path, the outermost first. Names may be read
// from known, and are added there.
func (l *latency) pathText(path uint64, known map[uint64]string) string {
	switch text, ok := known[path]; {
	case ok:
		return text
	case path == bpfgen.PathUnknown:
		return unknownCalls
	}
	value := make([]byte, l.PathSize())
	if l.paths.Lookup(path, &value) != nil {
		return unknownCalls // never: no path is removed
	}
	name, _ := bpfgen.KeyText(value[8:], l.Path.Max)
	text := strings.ReplaceAll(cmp.Or(string(wholeText(name)), "?"), ";", ",")
	if around := binary.NativeEndian.Uint64(value); around != bpfgen.PathNone {
		text = l.pathText(around, known) + ";" + text
	}
	known[path] = text
	return text
}

// unknownCalls stands in a path for calls that are not known.
const unknownCalls = "(not known)"

func (s *definition) matchOf(by string, names expr.Names) (m bpfgen.Match, err error) {
	start, done, _ := strings.Cut(by, "=")
	if m.Start, err = parseNumber(start, names); err == nil {
		m.Done, err = parseNumber(cmp.Or(done, start), names)
	}
	if err != nil {
		return m, optionError("By", err)
	}
	return m, nil
}

// hasArgument reports whether l measures a call of several probes that has an
// argument of this name.
func (l *latency) hasArgument(name string) bool {
	return l != nil && l.call != nil && name != "" && slices.ContainsFunc(l.call.Arguments,
		func(a defs.Argument) bool { return a.Name == name })
}

func (l *latency) setCall(call *defs.Call, names expr.Names) error {
	l.call, l.Named, l.Outermost, l.Fails = call, true, call.Nesting == defs.Outermost,
		len(call.Failed) > 0
	for _, probe := range slices.Concat(call.Failed, call.Attempts, call.Over) {
		var node *expr.Node
		var err error
		if probe.If != "" {
			node, err = expr.ParseCondition(probe.If, names, nil)
		}
		if err == nil && node.IsOfSpan() {
			err = errors.New("whether a probe counts cannot depend on the call's start or duration")
		}
		if err != nil {
			return fmt.Errorf("the definition of the call %s:%s: %w", call.Provider, call.Name, err)
		}
		l.If = append(l.If, node)
	}
	return nil
}

func nameOf(p *defs.FileProbe) [2]string { return [2]string{p.Provider, p.Name} }

func (s *definition) parseSpans() error {
	for i := range s.events.Spans {
		l, err := s.latency(&s.events.Spans[i])
		if err != nil {
			return &tracing.OptionError{Field: "Spans", Index: i, Err: err}
		}
		l.Spans = true
		if l.SavedSize, err = s.savedSize(); err != nil {
			return err
		}
	}
	return nil
}

func (s *definition) savedSize() (int, error) {
	size := 0
	for i := range s.captures {
		switch c := &s.captures[i]; {
		case c.arg != nil:
			size += c.Max + captureHead
		case s.opts.Definitions != nil:
			size += savedTexts * (c.Max + captureHead)
		}
	}
	if size > maxSavedCapture {
		return 0, optionError("Captures",
			fmt.Errorf("the captures of each start take %d bytes, more than %d: capture less", size,
				maxSavedCapture))
	}
	if s.plan.Events.StartStacks {
		size += savedStack + 8*s.events.StackDepth
		if s.events.StackCopy > 0 {
			size += s.events.StackCopy + 2*bpfgen.CopyUnit // it is rounded up, and one more is needed
		}
	}
	return (size + savedArguments + 7) &^ 7, nil
}

// parseStartConditions finds what is decided at starts of the conditions by
// which their ends are filtered.
func (s *definition) parseStartConditions() error {
	if len(s.events.Spans) > 0 || !slices.ContainsFunc(s.aggregations,
		func(a *aggregation) bool { return a.Latency == nil }) {
		if s.plan.Filter != nil && len(s.latencies) > 0 {
			ofCalls(s.plan.Filter, s.latencies...)
			if err := s.checkCondition(s.plan.Filter, s.opts.Filter, nil, s.latencies...); err != nil {
				return optionError("Filter", err)
			}
		}
	}
	number := 0
	filter := s.plan.Filter
	if filter != nil {
		if filter.IsOfSpan() && len(s.latencies) == 0 {
			return optionError("Filter", errNoSpan)
		}
		number = filter.NumberAtStart(number)
		if err := s.checkHits(filter); err != nil {
			return err
		}
	}
	for _, a := range s.aggregations {
		if a.Where != nil {
			number = a.Where.NumberAtStart(number)
		}
	}
	spans := slices.DeleteFunc(slices.Clone(s.latencies), func(l *latency) bool { return !l.Spans })
	for i := range s.captures {
		if c := &s.captures[i]; c.arg != nil {
			if err := s.checkName(c.arg, s.events.Captures[i].Arg, c.probes, spans...); err != nil {
				return &tracing.OptionError{Field: "Captures", Index: i, Err: optionError("Arg", err)}
			}
		}
	}
	if number > bpfgen.MaxStartConditions {
		return optionError("Filter",
			fmt.Errorf("%d comparisons with values of the start are more than %d", number,
				bpfgen.MaxStartConditions))
	}
	if filter != nil {
		number = filter.HoldAtStart(number, bpfgen.MaxStartConditions)
	}
	for _, a := range s.aggregations {
		if a.Where != nil && a.Latency != nil {
			number = a.Where.HoldAtStart(number, bpfgen.MaxStartConditions)
		}
	}
	for _, l := range s.latencies {
		if filter != nil {
			l.Conditions = bpfgen.StartConditions(nil, filter, false)
		}
		for _, a := range s.aggregations {
			if a.Where != nil && a.Latency == &l.Latency {
				l.Conditions = bpfgen.StartConditions(l.Conditions, a.Where, false)
			}
		}
	}
	return nil
}

// checkHits returns an error if a filter about calls is to hold for hits: for
// none it would.
func (s *definition) checkHits(filter *expr.Node) error {
	errOfHits := errors.New("the filter asks for duration, failed or start.argN, " +
		"which only calls have (Latency), not hits")
	switch i := slices.IndexFunc(s.aggregations,
		func(a *aggregation) bool { return a.Latency == nil }); {
	case !filter.IsOfSpan():
	case i >= 0:
		return &tracing.OptionError{Field: "Aggregations", Index: i, Err: errOfHits}
	case s.plan.Events != nil && len(s.events.Spans) == 0:
		return optionError("Events", fmt.Errorf("there are no Spans: %w", errOfHits))
	}
	return nil
}

// checkName fails for the name of an argument that no probe of some calls has
// by its definition, or with "start." no probe that may start them. Without
// calls it is about the probes.
func (s *definition) checkName(
	t *expr.Term, source string, probes []elfnote.Pattern, latencies ...*latency,
) error {
	name := t.Name
	if argument, _, ok := expr.CutMember(name); ok {
		name = argument
	}
	if len(latencies)+len(probes) == 0 || s.opts.Definitions == nil || expr.IsVariable(name) {
		return nil
	}
	if _, known := s.opts.names(nil)(name); !known {
		return nil // not a name from definitions, or of any probe
	}
	has := func(probes []elfnote.Pattern) bool {
		text, other := s.opts.defined(name, probes)
		return text || other
	}
	var lacking string
	for _, l := range latencies {
		if l.hasArgument(name) ||
			!(t.Start && l.call != nil) && has(s.opts.known().Patterns(l.pair)) {
			return nil
		}
		lacking = l.pair.String()
	}
	if len(latencies) == 0 {
		if lacking = probes[0].String(); has(probes) {
			return nil
		}
	}
	message := fmt.Sprintf("%s has no %s", lacking, name)
	var pairs []defs.PairPattern
	for _, l := range latencies {
		probes = append(slices.Clip(probes), s.opts.known().Patterns(l.pair)...)
		pairs = append(pairs, l.pair)
	}
	if keys := s.opts.keys(probes, pairs...); keys != "" {
		message += "; its keys are " + keys
	}
	return &expr.SyntaxError{Expression: source, Offset: t.Offset, Message: message}
}

func (s *definition) checkCondition(
	n *expr.Node, source string, probes []elfnote.Pattern, latencies ...*latency,
) (err error) {
	n.Walk(func(t *expr.Term) {
		if e := s.checkName(t, source, probes, latencies...); err == nil {
			err = e
		}
	})
	return err
}

// ofCalls lets the names of arguments of calls that several probes start stand
// for those of the start, also without "start.".
func ofCalls(condition *expr.Node, latencies ...*latency) {
	for _, part := range condition.Nodes {
		ofCalls(part, latencies...)
	}
	if len(condition.Nodes) > 0 {
		return
	}
	isStart := func(t *expr.Term) bool {
		return t.Start || t.Name != "" && !slices.ContainsFunc(latencies,
			func(l *latency) bool { return !l.hasArgument(t.Name) })
	}
	left, right := &condition.Left, &condition.Right
	of, with := isStart(left), isStart(right)
	literal := func(t *expr.Term) bool { return t.Source == expr.Number || t.Source == expr.Text }
	if (of || literal(left)) && (with || literal(right)) {
		left.Start, right.Start = of, with
	}
}

var errNoSpan = errors.New("duration, failed and start.argN are known only at the end of a call: no calls are measured")

func (s *Session) createLatencies() {
	if len(s.latencies) == 0 {
		return
	}
	s.attachments.counts, s.plan.Lost = s.newMap("trace_lost", ebpf.Array, 4, bpfgen.LostSize, maxLostSites)
	s.followExecs()
	birth := threadBirth()
	for _, l := range s.latencies {
		l.Birth = birth
		size, callers := l.StackSize(), maxCallers
		if l.Nested || l.Deep {
			callers = maxNested
		}
		// The oldest make room for new ones: threads and objects end without a
		// probe.
		l.calls, l.Starts = s.newMap("trace_calls", ebpf.LRUHash, 16, size, callers+heldBack*s.cpus)
		if l.Path != nil {
			l.paths, l.Paths = s.newMap("trace_paths", ebpf.Hash, 8, l.PathSize(), maxPaths)
		}
		if l.Spans {
			size = max(size, l.SavedSize)
			l.saved, l.Saved = s.newMap("trace_starts", ebpf.LRUHash, 24, l.SavedSize,
				savedStarts(l.SavedSize, s.cpus))
		}
		if len(l.Values) > 0 {
			size = max(size, l.KeptSize())
			_, l.Kept = s.newMap("trace_kept", ebpf.LRUHash, 24, l.KeptSize(),
				savedStarts(l.KeptSize(), s.cpus))
		}
		_, l.Zeros = s.newMap("trace_zeros", ebpf.Array, 4, size, 1)
	}
}

func savedStarts(size, processors int) int {
	held := heldBack * processors
	memory := maxSavedMemory + min(held*size, maxSavedMemory)
	return min(maxSaved+held, max(minSaved, memory/size))
}

type filePairs struct {
	probes  map[[2]string]*pairedProbe // by provider and name
	whole   []uint32                   // numbers of the pairs that have both ends here
	names   map[uint32]defs.Pair       // by number, without sites
	missing error                      // why there is no pair, if one is wanted

	frames   map[frameKey]siteFrame // of sites of pairs
	unframed int                    // how many of these sites the file has no tables for

	activations int // 0 if no pair has frames of an interpreter

	merged      []*usdt.SiteError // at which a pair has both ends
	mergedCount int
}

// pairedProbe is a probe with its part in pairs.
type pairedProbe struct {
	ends  map[*bpfgen.Latency]*bpfgen.Ends
	done  *defs.FileProbe // the usual end of the calls that start here, if they may fail
	call  *latency        // a call of several probes that starts here
	other bool            // it is an end of a pair of probes
}

// of returns a probe, which has no part in any pair if it is not known.
func (f *filePairs) of(provider, name string) *pairedProbe {
	if p := f.probes[[2]string{provider, name}]; p != nil {
		return p
	}
	return &pairedProbe{}
}

// maxNames is the number of probes of a file that are looked at to say why
// there is no pair. The JVM has 500, and a file can have millions.
const maxNames = 4096

// pairsOf returns the pairs among the probes of a selection. It looks at the
// other probes of the file only if there is none.
func (s *Session) pairsOf(sel *usdt.Selection) *filePairs {
	found := &filePairs{probes: make(map[[2]string]*pairedProbe),
		names: make(map[uint32]defs.Pair), frames: make(map[frameKey]siteFrame)}
	if len(s.latencies) == 0 {
		return found
	}
	var listing defs.Listing // each probe with one of its sites
	known := make(map[[2]string]bool)
	add := func(site *elfnote.Site) {
		probe := defs.FileProbe{Provider: site.Provider, Name: site.Name}
		if !known[nameOf(&probe)] {
			known[nameOf(&probe)] = true
			probe.Sites = []elfnote.Site{*site}
			listing.Probes = append(listing.Probes, probe)
		}
	}
	args := make(map[[2]string][][]argspec.Arg) // of each probe, those that differ
	at := make(map[[2]string]map[uint64]uint64) // locations by the probe and the instruction
	for _, site := range sel.Sites() {
		add(&site.Site)
		of := nameOf(&defs.FileProbe{Provider: site.Provider, Name: site.Name})
		if at[of] == nil {
			at[of] = make(map[uint64]uint64)
		}
		at[of][site.Instruction] = site.Location
		if last := args[of]; len(last) == 0 || !sameArguments(last[len(last)-1], site.Args) {
			args[of] = append(last, site.Args)
		}
	}
	whole := make(map[string]uint32)
	selected := s.selectedPairs(&listing, known)
	for i, l := range s.latencies {
		part := func(probe [2]string) (*pairedProbe, *bpfgen.Ends) {
			p := found.probes[probe]
			if p == nil {
				p = &pairedProbe{ends: make(map[*bpfgen.Latency]*bpfgen.Ends)}
				found.probes[probe] = p
			}
			if p.ends[&l.Latency] == nil {
				p.ends[&l.Latency] = &bpfgen.Ends{}
			}
			return p, p.ends[&l.Latency]
		}
		for _, pair := range selected[i] {
			ends := [][2]string{{pair.Start.Name, pair.Done.Name}}
			if l.call != nil {
				ends = l.call.Pairs
			}
			if slices.ContainsFunc(ends, func(names [2]string) bool {
				return !found.apart(i, &pair, [2]string{pair.Start.Provider, names[0]},
					[2]string{pair.Done.Provider, names[1]}, at)
			}) {
				continue
			}
			number := s.pairNumbers.of(&pair, sel.PID() != 0, whole)
			if len(pair.Start.Sites) > 0 && len(pair.Done.Sites) > 0 {
				found.whole = append(found.whole, number)
			}
			start, done := pair.Start, pair.Done
			start.Sites, done.Sites = nil, nil
			found.names[number] = defs.Pair{Start: start, Done: done}
			if l.call != nil {
				if l.setParts(number, known, part); !l.Outermost && l.ByThread() {
					s.openCalls.compare(number, comparison{pair: pair.String()})
				}
				continue
			}
			alone, match := s.nesting(l, &pair)
			both := bothOf(s.opts.known(), args, &pair, cmp.Or(match, &l.Match))
			stacksIf, kind := l.stacksOf(&pair)
			both.stacks = kind
			if alone { // the values of starts are kept in the order of a stack
				both.match, both.start, both.done = "", 0, 0
			}
			s.openCalls.compare(number, both)
			activation := s.activationOf(l, sel, &pair)
			found.activations += activation.Depth
			p, e := part(nameOf(&start))
			var ofDone [2]int
			e.Activation, e.Lone, e.StacksIf = activation, len(at[nameOf(&start)]) == 1, stacksIf
			e.Names, ofDone = s.namesOf(l, args, &pair, &activation)
			e.Alone, e.StartBy, e.Compared, e.Width = alone, match, both.start, both.width
			if p.other, e.Start = true, number; len(pair.Failed) > 0 {
				p.done = &done
			}
			p, e = part(nameOf(&done))
			p.other, e.Done, e.Alone, e.DoneBy = true, number, alone, match
			e.Activation, e.Names, e.StacksIf = activation, ofDone, stacksIf
			e.Compared, e.Width = both.done, both.width
			for i := range pair.Failed {
				p, e = part(nameOf(&pair.Failed[i]))
				p.other, e.Failed, e.DoneBy, e.Width = true, number, match, both.width
			}
		}
	}
	if len(found.probes) > 0 {
		found.findFrames(s.latencies, sel)
		return found
	}
	for site, err := range sel.File().Sites() {
		if err == nil { // else it is a malformed note, or the last
			add(&site)
		}
		if len(listing.Probes) >= maxNames {
			break
		}
	}
	if !slices.ContainsFunc(s.latencies, func(l *latency) bool {
		return len(l.pairs(s.opts.known(), &listing, known)) > 0 // whose ends are not both selected
	}) {
		found.missing = s.opts.known().NewPairError(s.latencies[0].pair, &listing)
	}
	return found
}

// selectedPairs returns the pairs of each Latency among some probes. Of several
// that select a pair for events alone, as its name and a wildcard do, one has
// it: one that names it before the others, and then the first.
func (s *Session) selectedPairs(listing *defs.Listing, known map[[2]string]bool) [][]defs.Pair {
	all := make([][]defs.Pair, len(s.latencies))
	taken := make(map[[2]string]bool)
	for _, named := range []bool{true, false} {
		for i, l := range s.latencies {
			if named == strings.ContainsAny(l.pair.String(), "*?[") {
				continue
			}
			all[i] = l.pairs(s.opts.known(), listing, known)
			if slices.ContainsFunc(s.aggregations, func(a *aggregation) bool { return a.latency == l }) {
				continue
			}
			all[i] = slices.DeleteFunc(all[i], func(p defs.Pair) bool {
				key := [2]string{p.String(), l.of.By}
				again := taken[key]
				taken[key] = true
				return again
			})
		}
	}
	return all
}

const maxMerged = 1024

// apart leaves out the sites at which a pair of a Latency has both ends: at has
// all sites by the probe and the instruction. It reports whether sites of both
// remain.
func (f *filePairs) apart(
	latency int, pair *defs.Pair, start, done [2]string, at map[[2]string]map[uint64]uint64,
) bool {
	const why = "the linker has made one of equal functions, so that a hit of one is a hit of each"
	if start == done {
		return true // from hit to hit
	}
	starts, ends := at[start], at[done]
	merged, where := 0, uint64(0)
	for instruction := range starts {
		if _, ok := ends[instruction]; !ok {
			continue
		}
		merged, where = merged+1, instruction
		for _, probe := range [][2]string{start, done} {
			key := frameKey{instruction, probe[0], probe[1]}
			frame := f.frames[key]
			frame.merged |= 1 << latency
			f.frames[key] = frame
			if f.mergedCount++; len(f.merged) < maxMerged {
				f.merged = append(f.merged, &usdt.SiteError{
					Site: elfnote.Site{Provider: probe[0], Name: probe[1], Location: at[probe][instruction]},
					Err:  fmt.Errorf("no call of %v is measured there: "+why, pair)})
			}
		}
	}
	if merged == 0 || merged < min(len(starts), len(ends)) && latency < maxFramed {
		return true
	}
	f.missing = fmt.Errorf("%v cannot be measured: its start and its end are at one instruction, %#x, "+
		"where "+why, pair, where)
	return false
}

// pairs returns the pairs among some probes. That of a call has names that no
// probe has.
func (l *latency) pairs(
	definitions *defs.Definitions, listing *defs.Listing, known map[[2]string]bool,
) []defs.Pair {
	call := l.call
	switch {
	case call == nil:
		return definitions.NamedPairs(listing, l.pair)
	case !slices.ContainsFunc(call.Pairs, func(p [2]string) bool {
		return known[[2]string{call.Provider, p[0]}] && known[[2]string{call.Provider, p[1]}]
	}):
		return nil
	}
	some := listing.Probes[0].Sites // any will do: a pair has both ends here
	return []defs.Pair{{
		Start: defs.FileProbe{Provider: call.Provider, Name: call.Name + "__start", Sites: some},
		Done:  defs.FileProbe{Provider: call.Provider, Name: call.Name + "__done", Sites: some}}}
}

// nesting reports whether calls of a pair that overlap cannot be told apart. So
// it is of requests and memory: they end in any order. by is how its definition
// matches them, if l, a pattern with wildcards, does not.
func (s *Session) nesting(l *latency, pair *defs.Pair) (alone bool, by *bpfgen.Match) {
	named, err := defs.ParsePairPattern(pair.String())
	if err != nil || l.of.By != "" {
		return false, nil
	}
	call, ok := s.opts.known().Call(named)
	match := s.opts.known().Match(named)
	if match != s.opts.known().Match(l.pair) {
		if m, err := s.matchOf(cmp.Or(match, "tid"), s.opts.names(nil, named)); err != nil {
			alone = true
		} else {
			by = &m
		}
	}
	return alone || ok && call.Nesting == defs.Alone ||
		match == "" && slices.ContainsFunc(tracing.AnyOrder, func(ends [2]string) bool {
			return strings.HasSuffix(pair.Start.Name, ends[0]) && strings.HasSuffix(pair.Done.Name, ends[1])
		}), by
}

// setParts sets the parts of the known probes in a call. It leaves out pairs
// that lack a probe.
func (l *latency) setParts(
	number uint32, known map[[2]string]bool,
	part func(probe [2]string) (*pairedProbe, *bpfgen.Ends),
) {
	call, alone := l.call, l.call.Nesting == defs.Alone
	for i, pair := range call.Pairs {
		start, done := [2]string{call.Provider, pair[0]}, [2]string{call.Provider, pair[1]}
		if known[start] && known[done] {
			p, e := part(start)
			p.call, e.Start, e.Index, e.Alone = cmp.Or(p.call, l), number, uint16(i), alone
			_, e = part(done)
			e.Done, e.Index, e.Alone = number, uint16(i), alone
		}
	}
	for i, probe := range slices.Concat(call.Failed, call.Attempts, call.Over) {
		name, condition := [2]string{call.Provider, probe.Name}, 0
		if !known[name] {
			continue
		}
		if probe.If != "" {
			condition = i + 1
		}
		switch p, e := part(name); {
		case e.Start != 0 || e.Done != 0:
		case i < len(call.Failed):
			e.Failed, e.FailedIf = number, condition
		case i >= len(call.Failed)+len(call.Attempts):
			e.Failed, e.FailedIf, e.Over = number, condition, true
		default:
			p.call, e.Start = cmp.Or(p.call, l), number
			e.StartIf, e.Attempt = condition, true
		}
	}
}

// pairNumbers gives pairs of probes numbers from 1 on, to tell their calls
// apart. Calls that are going on when an attachment is closed may end unseen:
// later attachments take other numbers.
type pairNumbers struct {
	mu     sync.Mutex
	last   uint32
	across map[string]uint32 // pairs whose ends are in several files
	inside map[string]uint32 // of files that are attached to single processes, with the same code
}

// of returns the number of a pair. If both ends are in a file that is attached
// to all processes, the number belongs to this attachment alone, whose pairs
// are in ofFile.
func (n *pairNumbers) of(pair *defs.Pair, process bool, ofFile map[string]uint32) uint32 {
	n.mu.Lock()
	defer n.mu.Unlock()
	known := &n.across
	switch {
	case len(pair.Start.Sites) == 0 || len(pair.Done.Sites) == 0:
	case process:
		known = &n.inside
	default:
		known = &ofFile
	}
	if *known == nil {
		*known = make(map[string]uint32)
	}
	name := fmt.Sprintf("%q", []string{pair.Start.Provider, pair.Start.Name})
	number, ok := (*known)[name]
	if !ok {
		n.last++
		number = n.last
		(*known)[name] = number
	}
	return number
}

// endPairs forgets the calls that a closed attachment has seen start or would
// have seen end: other sites can get the numbers of its own.
func (s *Session) endPairs(a *Attachment) {
	pid := a.process.PID
	starts := slices.ContainsFunc(a.sites, func(s *Site) bool { return s.starts != nil })
	if len(a.pairs) == 0 && !starts || pid != 0 && hasEnded(pid, 0) {
		return
	}
	if pid != 0 {
		s.pairNumbers.mu.Lock()
		s.pairNumbers.inside = nil
		s.pairNumbers.mu.Unlock()
	}
	_ = s.use(func() error {
		startsHere := func(c bpfgen.OpenCall) bool {
			return slices.Contains(a.sites, s.sites.get(c.Site))
		}
		_, _, err := s.openCalls.look(s, func(l *latency, key [2]uint64, calls []bpfgen.OpenCall) bool {
			process, _, pair := bpfgen.Caller(key)
			return (pid == 0 || pid == process) && (slices.Contains(a.pairs, pair) ||
				l.Spans && slices.ContainsFunc(calls, startsHere))
		})
		return err // then Losses counts too many
	})
}

// isOfSpan reports whether a term makes sense only between two probes.
func isOfSpan(t expr.Term) bool { return t.Start || t.IsOfEnd() }
