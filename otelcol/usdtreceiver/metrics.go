// SPDX-License-Identifier: BSD-2-Clause

package usdtreceiver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.opentelemetry.io/collector/consumer/consumererror"

	"github.com/gousdt/gousdt/trace"
)

// metricsSource computes all metrics of a receiver, in one session.
type metricsSource struct {
	*source
	metrics     []*metric
	aggregators []*trace.Aggregator
	tables      []*table
}

// maxSynced is how many processes that the watch has not seen yet are scanned
// in a collection.
const maxSynced = 64

// format is what the own metrics of the Collector call this kind of data.
const format = "usdt"

func (r *usdtReceiver) startMetrics(ctx context.Context) error {
	m := &metricsSource{}
	var items []item
	for i := range r.config.Metrics {
		parsed, err := r.config.Metrics[i].parse(r.config.Resource, r.config.CardinalityLimit)
		if err != nil {
			return named(r.config.Metrics[i].Name, err)
		}
		m.metrics = append(m.metrics, parsed)
		m.tables = append(m.tables, newTable(r.config.CardinalityLimit))
		items = append(items, item{name: fmt.Sprintf("metrics[%d]", i), patterns: parsed.patterns})
	}
	opts := metricOptions(m.metrics...)
	m.aggregators = opts.Aggregators
	var err error
	if m.source, err = r.open("metrics", opts, items...); err != nil {
		return err
	}
	r.metrics = m
	r.begin = append(r.begin, func() { r.running.Go(func() { r.each(ctx, "metrics", m.collect) }) })
	return nil
}

// collect takes what the kernel has collected, and sends it.
func (m *metricsSource) collect(ctx context.Context) error {
	r := m.receiver
	var err error
	now := time.Now()
	// Each metric ends at a moment of its own, where its next points start.
	taken := make([]time.Time, len(m.metrics))
	for i := range m.metrics {
		var failed error
		if taken[i], failed = m.take(i); failed != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", r.config.Metrics[i].Name, failed))
			taken[i] = now
		}
	}
	b := newMetricsBuilder(r)
	since := now.Add(-r.config.EndAfter)
	for i, metric := range m.metrics {
		var ended []*series
		if r.config.Temporality == Cumulative {
			ended = m.tables[i].end(since, r.processes.hasGone)
		}
		b.add(metric, m.tables[i].all(), taken[i], false)
		b.add(metric, ended, taken[i], true)
	}
	r.processes.forget(now.Add(-max(r.config.EndAfter, keepGone) - r.config.CollectionInterval))
	points := b.all.DataPointCount()
	if points == 0 {
		return err
	}
	ctx = r.report.StartMetricsOp(ctx)
	failed := r.nextMetrics.ConsumeMetrics(ctx, b.all)
	r.report.EndMetricsOp(ctx, format, points, failed)
	// What was refused for now is in the next points, too: the tables have it.
	if r.config.Temporality == Delta && (failed == nil || consumererror.IsPermanent(failed)) {
		for _, t := range m.tables {
			t.sent()
		}
	}
	return errors.Join(err, failed)
}

// take adds what the kernel has collected of a metric to its series.
func (m *metricsSource) take(i int) (time.Time, error) {
	snapshot, err := m.aggregators[i].Take()
	if err != nil {
		return time.Time{}, err
	}
	keys := len(m.receiver.config.Resource.keys())
	m.sync(snapshot)
	for j := range snapshot.Rows {
		row := &snapshot.Rows[j]
		m.convert(func() {
			resource := m.receiver.processes.resourceOf(pidOf(row, keys), row.Keys[0].Uint())
			m.tables[i].add(row, keys, resource, snapshot.Start, snapshot.Time)
		})
	}
	m.tables[i].addOverflow(&snapshot.Other, snapshot.Start, snapshot.Time)
	return snapshot.Time, nil
}

// pidOf returns the PID among the keys, or 0.
func pidOf(row *trace.Row, keys int) int {
	if keys < 2 {
		return 0
	}
	return int(row.Keys[1].Uint())
}

// sync scans processes that have hits and that the watch has not seen yet, so
// that their first hits get the same resource as the later ones.
func (m *metricsSource) sync(snapshot *trace.Snapshot) {
	keys := len(m.receiver.config.Resource.keys())
	synced := make(map[int]bool)
	for i := range snapshot.Rows {
		pid := pidOf(&snapshot.Rows[i], keys)
		if pid == 0 || synced[pid] || len(synced) == maxSynced || m.receiver.processes.knows(pid) {
			continue
		}
		synced[pid] = true
		m.receiver.sync(pid)
	}
}

// all returns all series, in no order.
func (t *table) all() []*series {
	all := slices.Collect(maps.Values(t.known))
	if t.overflow != nil {
		all = append(all, t.overflow)
	}
	return all
}
