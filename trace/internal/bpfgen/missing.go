// SPDX-License-Identifier: BSD-2-Clause

package bpfgen

import (
	"fmt"

	"github.com/gousdt/gousdt/internal/cut"
	"github.com/gousdt/gousdt/trace/internal/expr"
)

// Missing returns why an argument that the plan's expressions name is not
// available at a site, nil if all are.
func (p *Plan) Missing(site *Site) error {
	p, site = p.bind(site)
	terms := terms(p.Filter, nil)
	for _, a := range p.Aggregations {
		pair, _ := site.Pairs[a.Latency].end()
		if a.Latency == nil && !a.Applies(site) || a.Latency != nil && pair == 0 {
			continue // it is not about the site
		}
		terms = append(terms, a.Keys...)
		if a.Value != nil {
			terms = append(terms, *a.Value)
		}
	}
	for _, t := range terms {
		if t.Start || t.Source != expr.Argument && t.Source != expr.String {
			continue
		}
		name := t.Name
		if name == "" {
			name = fmt.Sprintf("arg%d", t.Index)
		}
		switch {
		case t.Index >= len(site.Args):
			return fmt.Errorf("%s:%s has no %s", cut.Name(site.Provider), cut.Name(site.Name), name)
		case site.readable(p.Kernel, t.Index):
		case site.Args[t.Index].Err != nil:
			return fmt.Errorf("%s of %s:%s is not available: %w", name, cut.Name(site.Provider),
				cut.Name(site.Name), site.Args[t.Index].Err)
		default:
			return fmt.Errorf("%s of %s:%s is no number: %s", name, cut.Name(site.Provider),
				cut.Name(site.Name), &site.Args[t.Index])
		}
	}
	return nil
}

// terms appends the terms of a condition.
func terms(n *expr.Node, to []expr.Term) []expr.Term {
	if n == nil {
		return to
	}
	for _, child := range n.Nodes {
		to = terms(child, to)
	}
	if len(n.Nodes) == 0 {
		to = append(to, n.Left, n.Right)
	}
	return to
}
