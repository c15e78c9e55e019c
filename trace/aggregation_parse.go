// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/trace/internal/bpfgen"
	"github.com/gousdt/gousdt/trace/internal/expr"
)

const (
	defaultMaxKeys = 16_384
	defaultKeyText = 64

	// defaultNormalizedText is more: texts that differ before the place where
	// they are cut are equal up to there when they are normalized, but one may
	// be cut later than the other.
	defaultNormalizedText = 128

	// maxEntries keeps a mistyped number from taking all memory: the kernel
	// allocates maps when they are created.
	maxEntries = 1 << 24

	// minRoom and maxRoom bound how many keys the kernel's maps have room for:
	// they must not fill before they are read, and take memory for each
	// processor.
	minRoom = 4096
	maxRoom = 1 << 16

	// maxKeySize leaves room on a program's stack for arguments and for an
	// accumulator.
	maxKeySize = 320

	// maxBuckets bounds a linear histogram, because people will read it.
	maxBuckets = 1 << 16
)

// parseAggregations parses all aggregations.
func (s *Session) parseAggregations() error {
	for i, a := range s.opts.Aggregators {
		if a == nil {
			return &OptionError{Field: "Aggregators", Index: i, Err: errors.New("there is none")}
		}
		parsed, err := s.parseAggregation(&a.definition)
		if err != nil {
			return &OptionError{Field: "Aggregators", Index: i, Err: err}
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
	if a.Value != "" && a.Latency == nil {
		value, err := parseNumber(a.Value, names)
		if err != nil {
			return nil, optionError("Value", err)
		}
		p.Value = &value
	}
	for i, by := range a.By {
		key, err := a.parseKey(by, opts)
		if err != nil {
			return nil, &OptionError{Field: "By", Index: i, Err: err}
		}
		p.Keys = append(p.Keys, key)
	}
	p.Sum, p.Min, p.Max = a.Sum, a.Min, a.Max
	if h := a.Histogram; h != nil {
		p.Histogram = &bpfgen.Histogram{Low: h.Low, High: h.High, Step: h.Step,
			Scale: bpfgen.DefaultScale}
		if h.PerDoubling > 0 {
			p.Histogram.Scale = bits.TrailingZeros(uint(h.PerDoubling))
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
			errors.New("is not given, nor is Latency: there is nothing to add up, compare or distribute"))
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
	if a.Histogram.Step != 0 && (a.Min || a.Max) {
		return optionError("Histogram",
			errors.New("not with Min or Max where there is a Step: make them an aggregation of their own"))
	}
	if err := checkHistogram(a.Histogram); err != nil {
		return optionError("Histogram", err)
	}
	return nil
}

func checkHistogram(h *Histogram) error {
	width := uint64(h.High) - uint64(h.Low)
	switch {
	case h.Step == 0 && (h.Low != 0 || h.High != 0):
		return errors.New("there are bounds but no Step")
	case h.Step != 0 && h.PerDoubling != 0:
		return errors.New("there are both a Step and PerDoubling")
	case h.PerDoubling < 0 || h.PerDoubling > 1<<bpfgen.MaxScale ||
		bits.OnesCount(uint(h.PerDoubling)) > 1:
		return errors.New("PerDoubling must be 1, 2, 4, 8 or 16")
	case h.Step == 0:
		return nil
	case h.High <= h.Low || h.Step > math.MaxInt64 || width%h.Step != 0:
		return errors.New("the distance from Low up to High must be a multiple of Step")
	case width/h.Step > maxBuckets:
		return fmt.Errorf("there are more than %d buckets: take a larger Step", maxBuckets)
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

// parseKey reads a term that can be a key. The name of a text is the text.
func (a *Aggregation) parseKey(source string, opts *SessionOptions) (expr.Term, error) {
	t, err := expr.ParseTerm(source, opts.names())
	if err != nil {
		return t, err
	}
	if isOfSpan(t) {
		return t, errTermOfSpan(source, t)
	}
	if t.Source == expr.Argument && t.Name != "" && !t.HasMask {
		patterns := a.Probes
		if a.Latency != nil {
			patterns = a.Latency.Pair.Patterns()
		}
		switch text, other := opts.defined(t.Name, patterns); {
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
			Message: "this is no key: argN, str(argN), pid, tid, uid, gid, cpu, cgroup, container, comm, " +
				"provider, probe, site, cookie and stack are"}
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
		Message: "duration and start.argN stand only in conditions: they are no value and no key"}
}
