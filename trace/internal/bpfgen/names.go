// SPDX-License-Identifier: BSD-2-Clause

package bpfgen

import (
	"slices"

	"github.com/gousdt/gousdt/trace/internal/expr"
)

// bind returns the plan with the arguments of a site where expressions have
// their names. An argument that the site does not have stays unbound, as one
// whose number the site does not have.
func (p *Plan) bind(site *Site) (*Plan, *Site) {
	if len(site.Names) == 0 {
		return p, site
	}
	bound := *p
	bound.Filter = site.bind(p.Filter)
	latencies := make(map[*Latency]*Latency, len(p.Latencies))
	bound.Latencies = make([]*Latency, len(p.Latencies))
	for i, l := range p.Latencies {
		here := *l
		here.Start, here.Done = l.Start.Bind(site.Argument), l.Done.Bind(site.Argument)
		here.Conditions = make([]StartCondition, len(l.Conditions))
		for j, c := range l.Conditions {
			here.Conditions[j] = StartCondition{site.bind(c.Node), c.Negated}
		}
		bound.Latencies[i], latencies[l] = &here, &here
	}
	ends := make(map[*Latency]Ends, len(site.Pairs))
	for l, e := range site.Pairs {
		ends[latencies[l]] = e
	}
	boundSite := *site
	boundSite.Pairs = ends
	bound.Aggregations = make([]*Aggregation, len(p.Aggregations))
	for i, a := range p.Aggregations {
		here := *a
		here.Where = site.bind(a.Where)
		here.Latency = latencies[a.Latency]
		here.Keys = make([]expr.Term, len(a.Keys))
		for j, key := range a.Keys {
			here.Keys[j] = site.bindTerm(key)
		}
		if a.Value != nil {
			value := a.Value.Bind(site.Argument)
			here.Value = &value
		}
		bound.Aggregations[i] = &here
	}
	return &bound, &boundSite
}

// bind returns a condition with the site's arguments in place of their names.
func (s *Site) bind(node *expr.Node) *expr.Node {
	bound := node.Bind(s.Argument)
	bound.Walk(func(t *expr.Term) { *t = s.bindTerm(*t) })
	return bound
}

// bindTerm is bind for a term. A text whose length is known to be in another
// argument has no zero byte at its end.
func (s *Site) bindTerm(t expr.Term) expr.Term {
	t = t.Bind(s.Argument)
	if t.Source == expr.String && !t.HasLength && t.Index < len(s.Lengths) &&
		s.Lengths[t.Index] >= 0 {
		t.HasLength, t.Length = true, s.Lengths[t.Index]
	}
	return t
}

// Argument returns the number of the argument with a name.
func (s *Site) Argument(name string) (int, bool) {
	i := slices.Index(s.Names, name)
	return i, i >= 0
}
