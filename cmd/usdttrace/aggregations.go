// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"fmt"
	"slices"

	"github.com/gousdt/gousdt/trace"
)

// The kinds of aggregation, as JSON names them.
const (
	kindCount   = "count"
	kindSum     = "sum"
	kindHist    = "hist"
	kindLatency = "latency"
	kindProfile = "profile" // written into a file of its own
)

// aggregation is something that hits come to, computed in the kernel.
type aggregation struct {
	trace.Aggregation
	aggregator *trace.Aggregator // nil if the rows are made of events
	rows       *stackRows
	kind       string
	title      string
	earlier    *trace.Snapshot // as it was printed last, with --interval
	duration   bool            // the values are nanoseconds
}

// aggregations returns what is asked for, in the order in which it is printed.
func (o *options) aggregations() []*aggregation {
	var all []*aggregation
	histogram := &trace.Histogram{}
	if o.linear != nil {
		histogram = o.linear
	}
	if o.count {
		all = append(all, &aggregation{kind: kindCount, title: "count", Aggregation: trace.Aggregation{By: o.by}})
	}
	if o.sum != "" {
		extremes := o.interval == 0 // they are known of the whole time only
		all = append(all, &aggregation{kind: kindSum, title: "sum of " + o.sum, Aggregation: trace.Aggregation{
			By: o.by, Value: o.sum, Sum: true, Min: extremes, Max: extremes,
		}})
	}
	if o.hist != "" {
		all = append(all, &aggregation{kind: kindHist, title: "distribution of " + o.hist, Aggregation: trace.Aggregation{
			By: o.by, Value: o.hist, Histogram: histogram,
		}})
	}
	if o.latency != nil {
		all = append(all, &aggregation{
			kind: kindLatency, title: fmt.Sprintf("time from %s to %s", o.latency.Start, o.latency.Done), duration: true,
			Aggregation: trace.Aggregation{By: o.by, Latency: o.latency, Histogram: histogram},
		})
	}
	if o.profiles() && !o.fromEvents() {
		all = append(all, o.profile())
	}
	for _, a := range all {
		if !a.isOfEvents(o) {
			a.aggregator = trace.NewAggregator(a.Aggregation)
		}
	}
	return all
}

// isOfEvents reports whether events are aggregated here, rather than hits in
// the kernel.
func (a *aggregation) isOfEvents(o *options) bool {
	return o.byStack() && o.fromEvents() && a.printed()
}

// snapshot returns what hits have come to so far.
func (a *aggregation) snapshot() (*trace.Snapshot, error) {
	if a.rows != nil {
		return a.rows.snapshot(), nil
	}
	return a.aggregator.Snapshot()
}

// profile returns what a profile is made of.
func (o *options) profile() *aggregation {
	a := &aggregation{kind: kindProfile, Aggregation: trace.Aggregation{By: []string{"stack"}}}
	for _, by := range o.by {
		if !slices.Contains(a.By, by) {
			a.By = append(a.By, by)
		}
	}
	switch {
	case o.latency != nil:
		a.Latency, a.Sum, a.duration = o.latency, true, true
	case o.sum != "":
		a.Value, a.Sum = o.sum, true
	}
	return a
}

// printed reports whether the rows of an aggregation are printed.
func (a *aggregation) printed() bool { return a.kind != kindProfile }
