// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/tracing"
	"github.com/gousdt/gousdt/providers"
	"github.com/gousdt/gousdt/trace/internal/bpfgen"
	"github.com/gousdt/gousdt/trace/internal/expr"
)

// Aggregation is computed in the kernel over many hits, so that a busy probe
// costs little more than a passed one. The zero Aggregation counts the hits of
// all probes. See [NewAggregator].
type Aggregation struct {
	// Probes are the probes whose hits are aggregated; none stands for all
	// probes of the session. Probes without an argument that Value or By name
	// are left out. Hits at which it cannot be read are counted in
	// [Losses.Unreadable].
	Probes []elfnote.Pattern

	// Value is a term that is a number, such as "arg2" or "arg2 & 0xfff", for
	// Sum, Min, Max and Histogram.
	Value string

	// Latency, if set, aggregates calls between two probes; Probes are not used
	// then. The value is their time in nanoseconds, also as "duration", unless
	// Value is another one, such as "start.arg1", an argument of the start. By
	// and Where are about the hit that ends the call, except for "start.arg1"
	// or "str(start.arg0)". Hits whose start was forgotten are counted in
	// [Losses.Unreadable]. Equal latencies share the measurement.
	Latency *Latency

	// By are the keys. There is a row for each combination of their values. A
	// key is a term such as "arg0", "str(arg0)" (at most 64 bytes if it gives
	// no limit, or 128 with Normalize), "comm", "pid", "tid", "uid", "gid",
	// "cpu", "cgroup", "container" (see SessionOptions.Containers), "probe",
	// "provider", "site", "cookie" or "stack" (the user stack, with the process
	// whose addresses it has). There can be 15 keys, of 320 bytes together. The
	// name of an argument that SessionOptions.Definitions say is a text stands
	// for the text; it is an error if they say so of only some of the Probes.
	By []string

	// Where is a condition like SessionOptions.Filter, for this aggregation
	// alone.
	Where string

	// Normalize changes the texts of keys such as "str(arg0)". Texts that
	// become equal share a row, as "id = 17" and "id = 18" when both become "id
	// = ?". It is never called by two goroutines at the same time.
	Normalize func(text string) string

	// Sum, Min and Max of the values are kept for each row beside the count. A
	// sum that needs more than 64 bits is a [Float] if there is a Histogram.
	// Without one, the values between two snapshots are added up modulo 2^64.
	// Floats are added up as floats of 64 bits, but hits whose value is
	// infinite or not a number are counted in [Losses.Unreadable]. Floats have
	// no Histogram.
	Sum, Min, Max bool

	// Histogram, if set, distributes the values over buckets, with a count and
	// a sum for each bucket.
	Histogram *Histogram

	// MaxKeys is the greatest number of rows; 0 stands for 16,384. If there are
	// more keys, those with the fewest hits are added up in [Snapshot.Other]:
	// the total is always exact, and frequent keys have a row. [Row.Partial]
	// marks rows that may have had more hits. Rows are shared out between
	// containers, or users where there are none: those with the most rows lose
	// some first.
	//
	// The kernel has room for half of these keys, but for 4096 at least and
	// 65,536 at most. The session takes them from there before the room is
	// filled. If it is filled all the same, there is a reserve of a quarter, of
	// which a container or user can have a ninth. Each bucket of a histogram is
	// a key of its own there. A key takes 24 to 40 bytes for each processor,
	// and its own size twice; stacks take two kilobytes more. Of stacks with
	// the same hash the kernel keeps one; the others are [Unavailable].
	MaxKeys int
}

// An Aggregator computes an [Aggregation] for the session whose
// [SessionOptions] have it. Its methods are safe for concurrent use.
type Aggregator struct {
	definition Aggregation
	bound      atomic.Pointer[aggregation] // nil before there is a session
}

// NewAggregator returns an Aggregator for [SessionOptions.Aggregators]. [New]
// returns an error if the definition is wrong.
func NewAggregator(definition Aggregation) *Aggregator {
	return &Aggregator{definition: definition}
}

// aggregation is a parsed Aggregation with its maps and totals.
type aggregation struct {
	bpfgen.Aggregation
	session   *Session
	names     []string // of the keys
	maxKeys   int
	normalize func(string) string // nil: texts stay as they are

	tally    *tally    // programs add to it now
	spare    *tally    // it takes its place at the next exchange; nil if there is none
	current  *ebpf.Map // programs find the tally in it; nil if that is always the same
	overflow *tally    // of hits without room; nil without keys
	round    uint32    // goes up when keys are taken
	taken    uint64    // keys that had been made then
	stacks   keyStacks // if a key is a stack

	mu      sync.Mutex // held while maps are read
	totals  totals
	failed  error // for the next snapshot
	started time.Time
	ended   time.Time // zero until the session is detached
}

// bindAggregators binds the aggregators to the session.
func (s *Session) bindAggregators() error {
	for i, a := range s.opts.Aggregators {
		before := a.bound.Load()
		if before != nil && before.session.use(func() error { return nil }) == nil ||
			!a.bound.CompareAndSwap(before, s.aggregations[i]) {
			return &tracing.OptionError{Field: "Aggregators", Index: i,
				Err: errors.New("another session has this aggregator")}
		}
	}
	return nil
}

const (
	defaultMaxKeys = 16_384
	defaultKeyText = 64

	// defaultNormalizedText is more: texts that differ only after they were cut
	// should be cut after what makes them equal.
	defaultNormalizedText = 128

	// maxEntries keeps a mistyped number from taking all memory: the kernel
	// allocates maps when they are created.
	maxEntries = 1 << 24

	// minRoom and maxRoom bound the number of keys in the kernel's maps, which
	// must not fill before they are read, and take memory for each processor.
	minRoom = 4096
	maxRoom = 1 << 16

	// maxKeySize leaves room on a program's stack for arguments and for an
	// accumulator.
	maxKeySize = 320

	// maxBuckets bounds a linear histogram, because people will read it.
	maxBuckets = 1 << 16

	// maxLimits bounds the comparisons of a program: OpenTelemetry recommends
	// 160 buckets at most.
	maxLimits = 160
)

func (s *Session) parseAggregations() error {
	for i, a := range s.opts.Aggregators {
		if a == nil {
			return &tracing.OptionError{Field: "Aggregators", Index: i,
				Err: errors.New("the aggregator is nil")}
		}
		parsed, err := s.parseAggregation(&a.definition)
		if err != nil {
			return &tracing.OptionError{Field: "Aggregators", Index: i, Err: err}
		}
		s.aggregations = append(s.aggregations, parsed)
		s.plan.Aggregations = append(s.plan.Aggregations, &parsed.Aggregation)
	}
	return nil
}

func (s *Session) parseAggregation(definition *Aggregation) (*aggregation, error) {
	a, err := definition.parse(&s.opts, s.containers)
	if err != nil {
		return nil, err
	}
	a.session, a.Names, a.started = s, s.names.number, time.Now()
	s.keepSites = s.keepSites || a.by(expr.Site)
	if a.by(expr.Container) && s.opts.Containers == nil {
		return nil, optionError("By",
			errors.New(`the key "container" needs SessionOptions.Containers`))
	}
	if definition.Latency == nil {
		return a, nil
	}
	l, err := s.latency(definition.Latency)
	if err != nil {
		return nil, optionError("Latency", err)
	}
	a.Latency = &l.Latency
	for i := range a.Keys {
		if a.Keys[i].Start {
			a.Keys[i].AtStart = l.Keep(a.Keys[i])
		}
	}
	if a.Value != nil && a.Value.Start {
		a.Value.AtStart = l.Keep(*a.Value)
	}
	return a, nil
}

func (a *Aggregation) parse(
	opts *SessionOptions, containers expr.Containers,
) (*aggregation, error) {
	names := opts.names()
	p := &aggregation{names: slices.Clone(a.By), maxKeys: a.MaxKeys, normalize: a.Normalize}
	if p.maxKeys == 0 {
		p.maxKeys = defaultMaxKeys
	}
	probes := slices.Clone(a.Probes)
	p.Applies = func(s *bpfgen.Site) bool { return elfnote.MatchAny(probes, s.Provider, s.Name) }
	var err error
	if a.Where != "" {
		if p.Where, err = expr.ParseCondition(a.Where, names, containers); err != nil {
			return nil, optionError("Where", err)
		}
	}
	if a.Value != "" {
		value, err := a.parseValue(opts)
		if err != nil {
			return nil, optionError("Value", err)
		}
		p.Value = &value
	}
	for i, by := range a.By {
		key, err := a.parseKey(by, opts)
		if err != nil {
			return nil, &tracing.OptionError{Field: "By", Index: i, Err: err}
		}
		p.Keys = append(p.Keys, key)
	}
	p.Sum, p.Min, p.Max = a.Sum, a.Min, a.Max
	if h := a.Histogram; h != nil {
		p.Histogram = &bpfgen.Histogram{Low: h.low, High: h.high, Step: h.step,
			Scale: bpfgen.DefaultScale, Unit: h.unit, Limits: slices.Clone(h.limits)}
		// A bucket has one minimum and one maximum, as numbers without a sign.
		if at, found := slices.BinarySearch(h.limits, -1); len(h.limits) > 0 && !found {
			p.Histogram.Limits = slices.Insert(p.Histogram.Limits, at, -1)
		}
		if h.perDoubling > 0 {
			p.Histogram.Scale = bits.TrailingZeros(uint(h.perDoubling))
		}
		p.Sum = true
	}
	return p, p.check(a)
}

func (p *aggregation) check(a *Aggregation) error {
	valued := a.Value != "" || a.Latency != nil
	switch {
	case !valued && (a.Sum || a.Min || a.Max || a.Histogram != nil):
		return optionError("Value",
			errors.New("a sum, minimum, maximum or histogram needs a Value or a Latency"))
	case a.MaxKeys < 0 || a.MaxKeys > maxEntries:
		return notBetween("MaxKeys", a.MaxKeys, 0, maxEntries)
	case len(p.Keys) > bpfgen.MaxKeys:
		return optionError("By",
			fmt.Errorf("%d keys are more than %d", len(p.Keys), bpfgen.MaxKeys))
	}
	if _, size := p.KeyLayout(); size > maxKeySize {
		return optionError("By",
			fmt.Errorf("the keys take %d bytes together, more than %d: give texts a smaller limit, "+
				"as in str(arg0, 32)", size, maxKeySize))
	}
	if p.Histogram == nil {
		return nil
	}
	if a.Histogram.linear && (a.Min || a.Max) {
		return optionError("Histogram",
			errors.New("a linear histogram has no Min and Max: make these an aggregation of their own"))
	}
	if err := checkHistogram(a.Histogram); err != nil {
		return optionError("Histogram", err)
	}
	return nil
}

// parseNumber reads a term that is a number at each hit.
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

// parseValue reads Value, which is a number of a call or of a hit.
func (a *Aggregation) parseValue(opts *SessionOptions) (expr.Term, error) {
	names := opts.names()
	t, err := expr.ParseTerm(a.Value, names)
	if err != nil || a.Latency == nil || !isOfSpan(t) {
		if call, ok := a.call(opts); err == nil && ok && hasArgument(&call, t.Name) {
			t.Start = true
			return t, nil
		}
		return parseNumber(a.Value, names)
	}
	if t.Source != expr.Argument && t.Source != expr.Duration {
		return t, &expr.SyntaxError{Expression: a.Value, Offset: t.Offset,
			Message: "a number is expected: duration or start.argN"}
	}
	return t, nil
}

// call returns the call of several probes that is aggregated.
func (a *Aggregation) call(opts *SessionOptions) (call tracing.Call[providers.Argument], ok bool) {
	if a.Latency != nil {
		call, ok = opts.Definitions.Call(a.Latency.Pair)
	}
	return call, ok
}

func hasArgument(call *tracing.Call[providers.Argument], name string) bool {
	return slices.ContainsFunc(call.Arguments,
		func(a providers.Argument) bool { return a.Name == name && name != "" })
}

// parseKey reads a term that can be a key. The name of a text is the text, and
// that of an argument of a call the argument of its start.
func (a *Aggregation) parseKey(source string, opts *SessionOptions) (expr.Term, error) {
	t, err := expr.ParseTerm(source, opts.names())
	if err != nil {
		return t, err
	}
	if isOfSpan(t) && (a.Latency == nil || t.IsOfEnd()) {
		return t, errTermOfSpan(source, t)
	}
	call, several := a.call(opts)
	if several && hasArgument(&call, t.Name) {
		t.Start = true
	}
	if t.Source == expr.Argument && t.Name != "" && !t.HasMask && opts.Definitions != nil {
		patterns := a.Probes
		if a.Latency != nil {
			patterns = opts.Definitions.Patterns(a.Latency.Pair)
		}
		text, other := opts.defined(t.Name, patterns)
		if several && t.Start {
			text, other = false, false
			for i := range call.Arguments {
				text = text || call.Arguments[i].Name == t.Name && call.Arguments[i].IsText
			}
		}
		switch {
		case text && other:
			return t, &expr.SyntaxError{Expression: source,
				Message: "this is a text of some probes and a number of others: " +
					"write str(" + t.Name + "), or argN for the number"}
		case text:
			t.Source = expr.String
		}
	}
	switch t.Source {
	case expr.Number, expr.Text:
		return t, &expr.SyntaxError{Expression: source,
			Message: "a key is expected: argN, str(argN), pid, tid, uid, gid, cpu, cgroup, container, comm, " +
				"provider, probe, site, cookie or stack"}
	case expr.String:
		switch {
		case t.Max > 0:
		case a.Normalize != nil:
			t.Max = defaultNormalizedText
		default:
			t.Max = defaultKeyText
		}
	}
	return t, nil
}

func errTermOfSpan(source string, t expr.Term) error {
	return &expr.SyntaxError{Expression: source, Offset: t.Offset,
		Message: "only calls between two probes have this, and neither duration nor failed is a key"}
}
