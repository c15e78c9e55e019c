// SPDX-License-Identifier: BSD-2-Clause

package bpfgen

import (
	"slices"

	"github.com/gousdt/gousdt/trace/internal/expr"
)

// bind returns the plan with the arguments of a site where expressions have
// their names. An argument that the site does not have stays unbound, as one
// whose number the site does not have.
func (p *Plan) bind(site *Site) *Plan {
	if len(site.Names) == 0 {
		return p
	}
	bound := *p
	bound.Filter = p.Filter.Bind(site.Argument)
	latencies := make(map[*Latency]*Latency, len(p.Latencies))
	bound.Latencies = make([]*Latency, len(p.Latencies))
	for i, l := range p.Latencies {
		here := *l
		here.Start, here.Done = l.Start.Bind(site.Argument), l.Done.Bind(site.Argument)
		bound.Latencies[i], latencies[l] = &here, &here
	}
	bound.Aggregations = make([]*Aggregation, len(p.Aggregations))
	for i, a := range p.Aggregations {
		here := *a
		here.Where = a.Where.Bind(site.Argument)
		here.Latency = latencies[a.Latency]
		here.Keys = make([]expr.Term, len(a.Keys))
		for j, key := range a.Keys {
			here.Keys[j] = key.Bind(site.Argument)
		}
		if a.Value != nil {
			value := a.Value.Bind(site.Argument)
			here.Value = &value
		}
		bound.Aggregations[i] = &here
	}
	return &bound
}

// Argument returns the number of the argument with a name.
func (s *Site) Argument(name string) (int, bool) {
	i := slices.Index(s.Names, name)
	return i, i >= 0
}
