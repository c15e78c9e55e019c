// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cilium/ebpf"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/defs"
	"github.com/gousdt/gousdt/internal/pattern"
	"github.com/gousdt/gousdt/internal/tracing"
	"github.com/gousdt/gousdt/trace/internal/bpfgen"
	"github.com/gousdt/gousdt/trace/internal/expr"
)

// Aggregation is computed in the kernel over many hits, so that a busy probe
// costs little more than a passed one. The zero Aggregation counts the hits of
// all probes. A session reads it when it is made.
type Aggregation struct {
	// Probes are the probes whose hits are aggregated; none stands for all
	// probes of the session. Probes that lack an argument of Value or By are
	// left out. Hits whose Value or By cannot be read are counted in
	// [Losses.Unreadable].
	Probes []elfnote.Pattern

	// Value is a term that is a number, such as "arg2" or "arg2 & 0xfff", for
	// Sum, Min, Max and Histogram.
	Value string

	// Latency, if set, aggregates calls between two probes, and Probes are
	// ignored. The value of a call is its duration in nanoseconds, unless Value
	// names another number, such as "start.arg1", an argument of the start, or
	// "self", the time without the calls of the pair inside it in its thread.
	// By and Where are about the hit that ends the call, except for
	// "start.arg1" and "str(start.arg0)". Calls whose values of the start were
	// forgotten are counted in [Losses.Unreadable]. Equal latencies share the
	// measurement.
	Latency *Latency

	// By are the keys. There is a row for each combination of their values;
	// equal integers are one, with a sign only if they are negative. A key is a
	// term such as "arg0", "str(arg0)" (at most 64 bytes if it gives no limit,
	// or 128 with Normalize if there is room), "calls(arg0)" (the texts at the
	// starts of the calls around a call and of its own: "main;sell;price"),
	// "comm", "pid", "tid", "uid", "gid", "cpu", "cgroup", "container" (see
	// SessionOptions.Containers), "probe", "provider", "site", "cookie" or
	// "stack" (the user stack, and the process that its addresses belong to).
	// There can be 16 keys, of 320 bytes together. The name of an argument that
	// is a text by SessionOptions.Definitions stands for the text. It is an
	// error if the name is a text of only some of the Probes.
	By []string

	// Where is a condition like SessionOptions.Filter, for this aggregation
	// alone.
	Where string

	// Normalize changes the texts of keys such as "str(arg0)". It gets the key,
	// as By has it, and a text. Texts that become equal share a row, as "id =
	// 17" and "id = 18" when both become "id = ?". Where a text is cut depends
	// on its numbers. So Normalize gets twice as many bytes as the key's limit,
	// 256 at most, or as many as there is room for. Its result is cut at the
	// limit. It is never called by two goroutines at the same time.
	Normalize func(key, text string) string

	// Sum, Min and Max keep the sum, the least and the greatest value of each
	// row. A sum that needs more than 64 bits is a [Float]. Floats are added up
	// as floats of 64 bits, up to infinity, and have no Histogram; subnormal
	// ones count as 0. Hits whose value is not a
	// number, or infinite where there is a Sum, are counted in
	// [Losses.Unreadable].
	Sum, Min, Max bool

	// Histogram, if set, distributes the values over buckets, with a count and
	// a sum for each bucket.
	Histogram *Histogram

	// MaxKeys is the greatest number of rows; 0 stands for 16,384. If there are
	// more keys, those with the fewest hits are added up in [Snapshot.Other]:
	// the total is always exact, and frequent keys have a row. [Row.Partial]
	// marks rows that may have had more hits. Rows are shared between
	// containers, and between users outside of containers: those with the most
	// rows lose some first.
	//
	// The kernel has room for half of these keys, but for 4096 at least and
	// 65,536 at most. The session takes the keys from there before the room is
	// full. When it is full, there is a reserve of a quarter; a container or
	// user can have a ninth of it. Each bucket of a histogram is a key of its
	// own there. A key takes 16 to 48 bytes for each processor, and its own
	// size twice; stacks take two kilobytes more. Of stacks with the same hash
	// the kernel keeps one; the others are [Unavailable].
	MaxKeys int
}

type aggregation struct {
	bpfgen.Aggregation
	session   *Session
	names     []string         // of the keys
	parts     []bpfgen.KeyPart // the places of the keys
	keySize   int              // see bpfgen.Aggregation.KeyLayout
	maxKeys   int
	normalize func(key, text string) string // nil: texts stay as they are
	shown     []int                         // how much of the text of each key, in bytes
	latency   *latency                      // nil for hits
	paths     map[uint64]string             // the names of calls, by their path

	// Programs add to one of two maps, and to one half of the array. The others
	// are empty, or are being read.
	rows    [2]*ebpf.Map        // with keys
	array   *ebpf.Map           // of all hits without keys, else of those without room
	stacks  [2]*ebpf.Map        // if a key is a stack
	used    int                 // which of them programs use
	left    bool                // the others are not empty, because reading them has failed
	round   uint32              // goes up when keys are taken
	taken   uint64              // keys that had been made when they were last taken
	removed map[uint32][]uint64 // stacks of the keys that are being read

	mu      sync.Mutex // held while maps are read; see Session.lock
	totals  totals
	failed  error // for the next snapshot
	started time.Time
	moment  time.Time // of the last hits in totals
	ended   bool      // the session is detached
}

const (
	defaultMaxKeys = 16_384
	defaultKeyText = 64

	maxKeyText = 256 // see package expr

	// defaultNormalizedText shows a statement's tables and conditions.
	defaultNormalizedText = 128

	// maxEntries keeps a mistyped number from taking all memory: the kernel
	// allocates maps when they are created.
	maxEntries = 1 << 24

	// minRoom and maxRoom bound the number of keys in the kernel's maps. A
	// small map fills before it is read; a large one takes memory for each
	// processor.
	minRoom = 4096
	maxRoom = 1 << 16

	// maxKeySize leaves room on a program's stack for arguments and for an
	// accumulator.
	maxKeySize = 320
)

func (s *definition) parseAggregations() error {
	for i, a := range s.opts.Aggregations {
		err := errors.New("the aggregation is nil")
		if a != nil {
			err = s.parseAggregation(a)
		}
		if err != nil {
			return &tracing.OptionError{Field: "Aggregations", Index: i, Err: err}
		}
	}
	return nil
}

func (s *definition) parseAggregation(a *Aggregation) (err error) {
	p := &aggregation{names: slices.Clone(a.By), maxKeys: cmp.Or(a.MaxKeys, defaultMaxKeys),
		normalize: a.Normalize}
	p.Bit = len(s.aggregations) % 64
	p.Names, p.Sum, p.Min, p.Max = s.names.number, a.Sum || a.Histogram != nil, a.Min, a.Max
	probes := slices.Clone(a.Probes)
	p.Applies = func(s *bpfgen.Site) bool { return pattern.MatchAny(probes, s.Provider, s.Name) }
	var l *latency
	var measured []*latency
	if a.Latency != nil {
		if l, err = s.latency(a.Latency); err != nil {
			return optionError("Latency", err)
		}
		p.latency, p.Latency, measured = l, &l.Latency, []*latency{l}
		p.paths = make(map[uint64]string)
	}
	names := s.opts.names(a.Probes)
	if l != nil {
		names = s.opts.names(nil, l.pair)
	}
	if a.Where != "" {
		if p.Where, err = expr.ParseCondition(a.Where, names, s.containers); err != nil {
			return optionError("Where", err)
		}
		if l == nil && p.Where.IsOfSpan() {
			return optionError("Where", errNoSpan)
		}
		ofCalls(p.Where, l)
		if err := s.checkCondition(p.Where, a.Where, a.Probes, measured...); err != nil {
			return optionError("Where", err)
		}
	}
	if a.Value != "" {
		value, err := s.parseValue(a.Value, names, l)
		if err == nil {
			err = s.checkName(&value, a.Value, a.Probes, measured...)
		}
		if err != nil {
			return optionError("Value", err)
		}
		p.Value = &value
	}
	for i, by := range a.By {
		key, err := s.parseKey(by, a, names, l)
		if err == nil {
			err = s.checkName(&key, by, a.Probes, measured...)
		}
		if err != nil {
			return &tracing.OptionError{Field: "By", Index: i, Err: err}
		}
		p.Keys = append(p.Keys, key)
	}
	if err := s.checkAggregation(p, a); err != nil {
		return err
	}
	for i := range p.Keys {
		if p.Keys[i].Start {
			p.Keys[i].AtStart = l.Keep(p.Keys[i])
		}
	}
	if p.Value != nil && p.Value.Start {
		p.Value.AtStart = l.Keep(*p.Value)
	}
	s.aggregations = append(s.aggregations, p)
	s.plan.Aggregations = append(s.plan.Aggregations, &p.Aggregation)
	return nil
}

// layOut gives the texts without a limit one, and the keys their places. The
// kernel keeps twice of a text that is normalized, or what there is room for:
// texts that differ in what is normalized are cut at different places.
func (a *aggregation) layOut() {
	a.shown = make([]int, len(a.Keys))
	limits := slices.Clone(a.Keys)
	fits := func(shown, kept int) bool { // kept in percent of shown
		for i := range limits {
			if limits[i].Source == expr.String {
				a.shown[i] = cmp.Or(limits[i].Max, shown)
				a.Keys[i].Max = max(a.shown[i], min(a.shown[i]*kept/100, maxKeyText))
			}
		}
		a.parts, a.keySize = a.KeyLayout()
		return a.keySize <= maxKeySize
	}
	kept := 100
	if a.normalize != nil {
		if fits(defaultNormalizedText, 200) {
			return
		}
		kept = 300
	}
	for !fits(defaultKeyText, kept) && kept > 100 {
		kept--
	}
}

// checkAggregation checks what the parts of an aggregation are together, and
// sets its buckets.
func (s *definition) checkAggregation(p *aggregation, a *Aggregation) error {
	p.layOut()
	switch {
	case a.Latency == nil && a.Value == "" && (p.Sum || p.Min || p.Max):
		return optionError("Value",
			errors.New("a sum, minimum, maximum or histogram needs a Value or a Latency"))
	case a.MaxKeys < 0 || a.MaxKeys > maxEntries:
		return notBetween("MaxKeys", a.MaxKeys, 0, maxEntries)
	case len(p.Keys) > bpfgen.MaxKeys:
		return optionError("By", fmt.Errorf("%d keys are more than %d", len(p.Keys), bpfgen.MaxKeys))
	case p.keySize > maxKeySize:
		var sizes []string
		for i := range p.parts {
			sizes = append(sizes, fmt.Sprintf("%s %d", a.By[i], p.parts[i].Size))
		}
		return optionError("By",
			fmt.Errorf("the keys take %d bytes together (%s, and 8), more than %d: give strings a smaller limit, "+
				"as in str(arg0, 32)", p.keySize, strings.Join(sizes, ", "), maxKeySize))
	case p.by(expr.Container) && s.opts.Containers == nil:
		return optionError("By", errors.New(`the key "container" needs SessionOptions.Containers`))
	}
	if h := a.Histogram; h != nil {
		if p.Histogram = h.buckets; p.Histogram == nil {
			p.Histogram = &bpfgen.Histogram{Scale: bpfgen.DefaultScale}
		}
		err := h.err
		if err == nil && p.Histogram.Step > 0 && (a.Min || a.Max) {
			err = errors.New("a linear histogram has no Min and Max: make these another aggregation")
		}
		if err != nil {
			return optionError("Histogram", err)
		}
	}
	return nil
}

func parseNumber(source string, names expr.Names) (expr.Term, error) {
	t, err := expr.ParseTerm(source, names)
	if err != nil {
		return t, err
	}
	if isOfSpan(t) {
		return t, errTermOfSpan(source, t)
	}
	switch t.Source {
	case expr.Argument, expr.PID, expr.TID, expr.UID, expr.GID, expr.CPU, expr.Cgroup, expr.Cookie:
		return t, nil
	default:
		return t, &expr.SyntaxError{Expression: source,
			Message: "a number is expected: argN, pid, tid, uid, gid, cpu, cgroup or cookie"}
	}
}

// parseValue parses Aggregation.Value: a number of a call, or of a hit if l is
// nil.
func (s *definition) parseValue(source string, names expr.Names, l *latency) (expr.Term, error) {
	t, err := expr.ParseTerm(source, names)
	switch {
	case err == nil && l.hasArgument(t.Name) && !isOfSpan(t):
		t.Start = true
		return t, nil
	case err != nil || l == nil || !isOfSpan(t):
		return parseNumber(source, names)
	case t.Source == expr.Self:
		return t, l.nest(nil)
	case t.Source != expr.Argument && t.Source != expr.Duration:
		return t, &expr.SyntaxError{Expression: source, Offset: t.Offset,
			Message: "a number is expected: duration, self or start.argN"}
	}
	return t, nil
}

// parseKey parses a term that can be a key. The name of a text stands for the
// text, and the name of a call's argument for the argument of its start.
func (s *definition) parseKey(
	source string, a *Aggregation, names expr.Names, l *latency,
) (expr.Term, error) {
	t, err := expr.ParseTerm(source, names)
	if err != nil {
		return t, err
	}
	if isOfSpan(t) && (l == nil || t.IsOfEnd()) {
		return t, errTermOfSpan(source, t)
	}
	if t.Source == expr.Calls {
		return s.parseCalls(source, t, l)
	}
	t.Start = t.Start || l.hasArgument(t.Name)
	if t.Source == expr.Argument && t.Name != "" && !t.HasMask && s.opts.Definitions != nil {
		patterns := a.Probes
		if l != nil {
			patterns = s.opts.known().Patterns(l.pair)
		}
		text, other := s.opts.defined(t.Name, patterns)
		if t.Start && l.call != nil {
			text, other = slices.ContainsFunc(l.call.Arguments,
				func(a defs.Argument) bool { return a.Name == t.Name && a.IsText }), false
		}
		switch {
		case text && other:
			return t, &expr.SyntaxError{Expression: source,
				Message: "this is a string of some probes and a number of others: " +
					"write str(" + t.Name + "), or argN for the number"}
		case text:
			t.Source = expr.String
		}
	}
	if t.Source == expr.Number || t.Source == expr.Text {
		return t, &expr.SyntaxError{Expression: source,
			Message: "a key is expected: argN, str(argN), pid, tid, uid, gid, cpu, cgroup, container, comm, " +
				"provider, probe, site, cookie or stack"}
	}
	return t, nil
}

// parseCalls parses what calls(...) has, the text that names a call.
func (s *definition) parseCalls(source string, t expr.Term, l *latency) (expr.Term, error) {
	if l != nil && t.Name != "" && s.opts.Definitions != nil && !l.hasArgument(t.Name) {
		if text, other := s.opts.defined(t.Name, s.opts.known().Patterns(l.pair)); other && !text {
			return t, &expr.SyntaxError{Expression: source, Offset: t.Offset,
				Message: "a string is expected, by which calls are named"}
		}
	}
	name := t
	name.Source, name.Max, name.Offset, name.Start = expr.String, cmp.Or(t.Max, defaultKeyText), 0, false
	return expr.Term{Source: t.Source}, l.nest(&name)
}

func errTermOfSpan(source string, t expr.Term) error {
	return &expr.SyntaxError{Expression: source, Offset: t.Offset,
		Message: "only a call between two probes has this, and duration, self and failed cannot be keys " +
			"(probe, which ended the call, can)"}
}
