// SPDX-License-Identifier: BSD-2-Clause

package usdtreceiver

import (
	"context"
	"errors"

	otelattribute "go.opentelemetry.io/otel/attribute"
	otelmetric "go.opentelemetry.io/otel/metric"

	"github.com/gousdt/gousdt/otelcol/usdtreceiver/internal/metadata"
)

// Names of the receiver's own metrics. metadata.yaml describes them.
const (
	sitesMetric    = "otelcol_receiver_usdt_sites"
	skippedMetric  = "otelcol_receiver_usdt_sites_skipped"
	processMetric  = "otelcol_receiver_usdt_processes"
	lostMetric     = "otelcol_receiver_usdt_hits_lost"
	seriesMetric   = "otelcol_receiver_usdt_series"
	overflowMetric = "otelcol_receiver_usdt_overflow_hits"
	timeMetric     = "otelcol_receiver_usdt_program_time"
)

// observe registers the receiver's own metrics, until it ends.
func (r *usdtReceiver) observe() error {
	meter := r.settings.MeterProvider.Meter(metadata.ScopeName)
	var failed error
	gauge := func(name, unit, description string) otelmetric.Int64ObservableGauge {
		g, err := meter.Int64ObservableGauge(name, otelmetric.WithUnit(unit), otelmetric.WithDescription(description))
		failed = errors.Join(failed, err)
		return g
	}
	counter := func(name, unit, description string) otelmetric.Int64ObservableCounter {
		c, err := meter.Int64ObservableCounter(name, otelmetric.WithUnit(unit), otelmetric.WithDescription(description))
		failed = errors.Join(failed, err)
		return c
	}
	o := &observed{receiver: r}
	o.sites = gauge(sitesMetric, "{site}", "Places in files that are attached now.")
	o.skipped = gauge(skippedMetric, "{site}", "Places of wanted probes that cannot be attached.")
	o.processes = gauge(processMetric, "{process}", "Processes that map a file with wanted probes.")
	o.lost = counter(lostMetric, "{hit}", "Hits that are missing in what the receiver has sent, by the reason.")
	o.series = gauge(seriesMetric, "{series}", "Series that are kept for a metric.")
	o.overflow = counter(overflowMetric, "{hit}", "Hits counted in the series with otel.metric.overflow, because of cardinality_limit.")
	time, err := meter.Float64ObservableCounter(timeMetric, otelmetric.WithUnit("s"),
		otelmetric.WithDescription("Time spent in eBPF programs of the receiver, if measure_cost is set."))
	o.time = time
	if failed = errors.Join(failed, err); failed != nil {
		return failed
	}
	r.observing, err = meter.RegisterCallback(o.observe, o.sites, o.skipped, o.processes, o.lost, o.series, o.overflow, o.time)
	return err
}

// observed are the receiver's own metrics.
type observed struct {
	receiver                          *usdtReceiver
	sites, skipped, processes, series otelmetric.Int64ObservableGauge
	lost, overflow                    otelmetric.Int64ObservableCounter
	time                              otelmetric.Float64ObservableCounter
}

func (o *observed) observe(_ context.Context, to otelmetric.Observer) error {
	to.ObserveInt64(o.processes, int64(o.receiver.processes.count()))
	var err error
	for _, s := range o.receiver.sources {
		err = errors.Join(err, o.observeSource(s, to))
	}
	m := o.receiver.metrics
	if m == nil {
		return err
	}
	for i := range m.metrics {
		name := otelmetric.WithAttributes(otelattribute.String("metric", m.metrics[i].config.Name))
		kept, overflow := m.tables[i].counts()
		to.ObserveInt64(o.series, int64(kept), name)
		to.ObserveInt64(o.overflow, int64(overflow), name)
	}
	return err
}

func (o *observed) observeSource(s *source, to otelmetric.Observer) error {
	source := otelattribute.String("source", s.name)
	sites, skipped := 0, 0
	for _, a := range s.session.Attachments() {
		sites += len(a.Sites())
		_, count := a.Skipped()
		skipped += count
	}
	to.ObserveInt64(o.sites, int64(sites), otelmetric.WithAttributes(source))
	to.ObserveInt64(o.skipped, int64(skipped), otelmetric.WithAttributes(source))
	losses, err := s.session.Losses()
	if err != nil {
		return err
	}
	for reason, n := range map[string]uint64{
		"buffer_full": losses.Events, "unreadable": losses.Unreadable, "no_room_for_start": losses.Starts,
		"start_without_end": losses.Replaced, "end_without_start": losses.Unmatched,
		"rate_limit": losses.NotSampled + s.limited.Load(), "refused": s.refused.Load(),
	} {
		to.ObserveInt64(o.lost, int64(n), otelmetric.WithAttributes(source, otelattribute.String("reason", reason)))
	}
	if !o.receiver.config.MeasureCost {
		return nil
	}
	to.ObserveFloat64(o.time, s.programTime().Seconds(), otelmetric.WithAttributes(source))
	return nil
}
