// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/trace/internal/bpfgen"
	"github.com/gousdt/gousdt/trace/internal/expr"
	"github.com/gousdt/gousdt/usdt"
)

const (
	defaultMaxKeys   = 4096
	defaultMaxStacks = 4096
	defaultMaxStarts = 10_240
	defaultKeyText   = 64

	// maxEntries keeps a slip of the pen from taking all memory: the kernel
	// allocates maps at once.
	maxEntries = 1 << 24

	// maxKeySize leaves room on a program's stack for arguments and for an
	// accumulator.
	maxKeySize = 320

	// maxBuckets bounds a linear histogram, which is drawn or listed in the
	// end.
	maxBuckets = 1 << 16
)

// aggregation is an Aggregation with its expressions parsed, and its maps.
type aggregation struct {
	bpfgen.Aggregation
	functions          Functions
	maxKeys, maxStacks int
	accumulators       *ebpf.Map
	stacks             *ebpf.Map // nil unless a key is a stack
}

// latency is a Latency with its expressions parsed, and its map.
type latency struct {
	bpfgen.Latency
	maxStarts int
	starts    *ebpf.Map
}

// parseAggregations parses all aggregations. Latencies that are equal become
// one.
func (s *Session) parseAggregations() error {
	known := make(map[Latency]*latency)
	for i := range s.opts.Aggregations {
		a, err := s.opts.Aggregations[i].parse()
		if err != nil {
			return fmt.Errorf("options: aggregation %d: %w", i, err)
		}
		a.Names = s.names.number
		if l := s.opts.Aggregations[i].Latency; l != nil {
			if known[*l] == nil {
				parsed, err := l.parse()
				if err != nil {
					return fmt.Errorf("options: aggregation %d: latency: %w", i, err)
				}
				known[*l] = parsed
				s.latencies = append(s.latencies, parsed)
				s.plan.Latencies = append(s.plan.Latencies, &parsed.Latency)
			}
			a.Latency = &known[*l].Latency
		}
		s.keepSites = s.keepSites || a.by(expr.Site)
		s.aggregations = append(s.aggregations, a)
		s.plan.Aggregations = append(s.plan.Aggregations, &a.Aggregation)
	}
	return nil
}

func (a *Aggregation) parse() (*aggregation, error) {
	p := &aggregation{functions: a.Functions, maxKeys: a.MaxKeys, maxStacks: a.MaxStacks}
	if p.maxKeys == 0 {
		p.maxKeys = defaultMaxKeys
	}
	if p.maxStacks == 0 {
		p.maxStacks = defaultMaxStacks
	}
	var err error
	if p.Applies, err = sitePattern(a.Probes); err != nil {
		return nil, err
	}
	if a.Where != "" {
		if p.Where, err = expr.ParseCondition(a.Where); err != nil {
			return nil, fmt.Errorf("where: %w", err)
		}
	}
	if a.Value != "" && a.Latency == nil {
		value, err := parseNumber(a.Value)
		if err != nil {
			return nil, fmt.Errorf("value: %w", err)
		}
		p.Value = &value
	}
	for _, by := range a.By {
		key, err := parseKey(by)
		if err != nil {
			return nil, fmt.Errorf("by: %w", err)
		}
		p.Keys = append(p.Keys, key)
	}
	p.Sum, p.Min, p.Max = a.Functions&Sum != 0, a.Functions&Min != 0, a.Functions&Max != 0
	if a.Histogram != nil {
		p.Histogram = &bpfgen.Histogram{Low: a.Histogram.Low, High: a.Histogram.High, Step: a.Histogram.Step}
		p.Sum = true
	}
	return p, p.check(a)
}

func (p *aggregation) check(a *Aggregation) error {
	valued := a.Value != "" || a.Latency != nil
	switch {
	case a.Functions > Sum|Min|Max:
		return fmt.Errorf("unknown functions in %#x", a.Functions)
	case a.Functions != 0 && !valued:
		return errors.New("functions need a Value or a Latency")
	case a.MaxKeys < 0 || a.MaxKeys > maxEntries || a.MaxStacks < 0 || a.MaxStacks > maxEntries:
		return fmt.Errorf("MaxKeys and MaxStacks must be between 0 and %d", maxEntries)
	case len(p.Keys) > bpfgen.MaxKeys:
		return fmt.Errorf("%d keys are more than %d", len(p.Keys), bpfgen.MaxKeys)
	}
	if _, size := p.KeyLayout(); size > maxKeySize {
		return fmt.Errorf("the keys take %d bytes together, more than %d: give texts a smaller limit, as in str(arg0, 32)",
			size, maxKeySize)
	}
	h := p.Histogram
	if h == nil {
		return nil
	}
	width := uint64(h.High) - uint64(h.Low)
	switch {
	case a.Functions != 0:
		return errors.New("a histogram has no functions beside it: make it an aggregation of its own")
	case !valued:
		return errors.New("a histogram needs a Value or a Latency")
	case h.Step == 0 && (h.Low != 0 || h.High != 0):
		return errors.New("the histogram has bounds but no Step")
	case h.Step == 0:
		return nil
	case h.High <= h.Low || h.Step > math.MaxInt64 || width%h.Step != 0:
		return errors.New("the histogram's Step must divide the distance from Low up to High")
	case width/h.Step > maxBuckets:
		return fmt.Errorf("the histogram has more than %d buckets: take a larger Step", maxBuckets)
	}
	return nil
}

func (l *Latency) parse() (*latency, error) {
	if l.Start == "" || l.Done == "" {
		return nil, errors.New("both Start and Done must be given")
	}
	p := &latency{maxStarts: l.MaxStarts}
	p.AnyProcess = l.AnyProcess
	if p.maxStarts == 0 {
		p.maxStarts = defaultMaxStarts
	}
	if p.maxStarts < 0 || p.maxStarts > maxEntries {
		return nil, fmt.Errorf("MaxStarts is %d, not between 0 and %d", l.MaxStarts, maxEntries)
	}
	var err error
	if p.IsStart, err = sitePattern(l.Start); err != nil {
		return nil, err
	}
	if p.IsDone, err = sitePattern(l.Done); err != nil {
		return nil, err
	}
	by, doneBy := l.By, l.DoneBy
	if by == "" {
		by = "tid"
	}
	if doneBy == "" {
		doneBy = by
	}
	if p.Start, err = parseNumber(by); err != nil {
		return nil, err
	}
	p.Done, err = parseNumber(doneBy)
	return p, err
}

// checkLatencies tells whether both ends of each latency are watched. What is
// not measured for that goes unnoticed: it looks as if nothing happened.
func (s *Session) checkLatencies(a *Attachment, target usdt.Target) error {
	for i := range s.opts.Aggregations {
		l := s.opts.Aggregations[i].Latency
		if l == nil {
			continue
		}
		for _, end := range []struct{ name, pattern string }{{"start", l.Start}, {"done", l.Done}} {
			if err := a.checkWatched(end.pattern, target); err != nil {
				return fmt.Errorf("options: aggregation %d: latency: %s: %w", i, end.name, err)
			}
		}
	}
	return nil
}

// checkWatched tells whether a pattern picks any of the sites that are watched.
func (a *Attachment) checkWatched(pattern string, target usdt.Target) error {
	p, err := elfnote.ParsePattern(pattern)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(a.sites, func(s *Site) bool { return p.Match(s.Provider, s.Name) }) {
		return nil
	}
	sel, err := usdt.Select(target, nil, p)
	if err != nil {
		return err
	}
	defer sel.Close()
	return fmt.Errorf("no site of %s is watched: the pattern to open must pick it, and it must have the arguments that are named",
		pattern)
}

func sitePattern(pattern string) (func(*bpfgen.Site) bool, error) {
	if pattern == "" {
		return func(*bpfgen.Site) bool { return true }, nil
	}
	p, err := elfnote.ParsePattern(pattern)
	return func(s *bpfgen.Site) bool { return p.Match(s.Provider, s.Name) }, err
}

// parseNumber reads a term that is a number at each hit.
func parseNumber(source string) (expr.Term, error) {
	t, err := expr.ParseTerm(source)
	if err != nil {
		return t, err
	}
	switch t.Source {
	case expr.Argument, expr.PID, expr.TID, expr.UID, expr.GID, expr.CPU, expr.Cookie:
		return t, nil
	default:
		return t, &SyntaxError{Expression: source, Message: "a number is wanted: argN, pid, tid, uid, gid, cpu or cookie"}
	}
}

// parseKey reads a term that can be a key.
func parseKey(source string) (expr.Term, error) {
	t, err := expr.ParseTerm(source)
	if err != nil {
		return t, err
	}
	switch t.Source {
	case expr.Number, expr.Text, expr.Latency:
		return t, &SyntaxError{Expression: source, Message: "this is no key: argN, str(argN), pid, tid, uid, gid, cpu, comm, " +
			"provider, probe, site, cookie and stack are"}
	case expr.String:
		if t.Max == 0 {
			t.Max = defaultKeyText
		}
	}
	return t, nil
}
