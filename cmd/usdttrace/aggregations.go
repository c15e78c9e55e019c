// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

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

// defaultMaxKeys is that of package trace, which messages name.
const defaultMaxKeys = 16_384

// aggregation is something that hits come to, computed in the kernel.
type aggregation struct {
	trace.Aggregation
	aggregator *trace.Aggregator // nil if the rows are made of events
	rows       *stackRows
	kind       string
	title      string
	duration   bool // the values are nanoseconds
	drawn      bool // each row is a histogram

	// What has been read so far: all hits, those of keys that have no row, and
	// those of them that found no room in the kernel.
	hits, others, overflow uint64
}

// aggregations returns what is asked for, in the order in which it is printed.
func (o *options) aggregations() []*aggregation {
	var all []*aggregation
	values := trace.Aggregation{
		Probes:    o.patterns,
		By:        o.by,
		Histogram: &trace.Histogram{},
		Sum:       true,
		Min:       true,
		Max:       true,
		MaxKeys:   o.maxKeys,
		Normalize: o.normalize,
	}
	drawn := values
	if o.linear != nil {
		drawn.Histogram, drawn.Min, drawn.Max = o.linear, false, false
	}
	if o.count {
		a := &aggregation{kind: kindCount, title: "count", Aggregation: trace.Aggregation{
			Probes: o.patterns, By: o.by, MaxKeys: o.maxKeys, Normalize: o.normalize,
		}}
		if len(a.By) == 0 {
			a.By = []string{"probe"}
		}
		all = append(all, a)
	}
	if o.sum != "" {
		a := &aggregation{kind: kindSum, title: "sum of " + o.sum, Aggregation: values}
		a.Value = o.sum
		all = append(all, a)
	}
	if o.hist != "" {
		a := &aggregation{kind: kindHist, title: "distribution of " + o.hist, Aggregation: drawn,
			drawn: true}
		a.Value = o.hist
		all = append(all, a)
	}
	if o.latency != nil && o.chromeTrace == "" {
		a := &aggregation{
			kind: kindLatency, title: o.latencyTitle(), duration: true,
			Aggregation: drawn, drawn: len(o.by) == 0 || o.linear != nil,
		}
		a.Latency = o.latency
		all = append(all, a)
	}
	if o.profiles() && !o.fromEvents() {
		all = append(all, o.profile())
	}
	for _, a := range all {
		a.MaxKeys = cmp.Or(a.MaxKeys, defaultMaxKeys)
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

// maxKeys returns how many rows there can be.
func (a *aggregation) maxKeys() int {
	if a.rows != nil {
		return maxStackRows
	}
	return a.MaxKeys
}

// latencyTitle says what time is measured.
func (o *options) latencyTitle() string {
	if start, done, named := strings.Cut(o.latency.Pair.String(), ".."); named {
		return fmt.Sprintf("time from %s to %s", start, done)
	}
	return "time of " + o.latency.Pair.String()
}

// profile returns what a profile is made of.
func (o *options) profile() *aggregation {
	a := &aggregation{kind: kindProfile,
		Aggregation: trace.Aggregation{Probes: o.patterns, By: []string{"stack"}}}
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
