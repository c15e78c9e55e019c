// SPDX-License-Identifier: BSD-2-Clause

package usdtreceiver

import (
	"context"
	"errors"

	otelattribute "go.opentelemetry.io/otel/attribute"
	otelmetric "go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"

	"github.com/gousdt/gousdt/otelcol/usdtreceiver/internal/metadata"
)

// observe registers the receiver's own metrics, which metadata.yaml describes,
// until it ends.
func (r *usdtReceiver) observe() (err error) {
	if r.telemetry, err = metadata.NewTelemetryBuilder(r.settings.TelemetrySettings); err != nil {
		return err
	}
	t := r.telemetry
	return errors.Join(
		t.RegisterReceiverUsdtProcessesCallback(func(_ context.Context, to otelmetric.Int64Observer) error {
			to.Observe(int64(r.processes.count()))
			return nil
		}),
		t.RegisterReceiverUsdtProcessesSkippedCallback(r.observeSkippedProcesses),
		t.RegisterReceiverUsdtSitesCallback(r.eachSource(observeSites)),
		t.RegisterReceiverUsdtSitesSkippedCallback(r.eachSource(observeSkippedSites)),
		t.RegisterReceiverUsdtHitsLostCallback(r.eachSource((*source).observeLosses)),
		t.RegisterReceiverUsdtSeriesCallback(r.eachMetric(func(t *table) int64 {
			kept, _ := t.counts()
			return kept
		})),
		t.RegisterReceiverUsdtOverflowHitsCallback(r.eachMetric(func(t *table) int64 {
			_, over := t.counts()
			return int64(over)
		})),
		t.RegisterReceiverUsdtProgramTimeCallback(r.observeProgramTime),
	)
}

func (r *usdtReceiver) observeSkippedProcesses(
	_ context.Context, to otelmetric.Int64Observer,
) error {
	stats := r.watch.Stats()
	for state, n := range map[string]int{
		"denied": stats.Denied, "blocked": stats.Blocked, "postponed": stats.Postponed,
	} {
		to.Observe(int64(n), otelmetric.WithAttributes(otelattribute.String("state", state)))
	}
	return nil
}

func observeSites(s *source, to otelmetric.Int64Observer, name otelattribute.KeyValue) {
	sites, _ := s.sites()
	to.Observe(int64(sites), otelmetric.WithAttributes(name))
}

func observeSkippedSites(s *source, to otelmetric.Int64Observer, name otelattribute.KeyValue) {
	_, skipped := s.sites()
	to.Observe(int64(skipped), otelmetric.WithAttributes(name))
}

func (r *usdtReceiver) observeProgramTime(
	_ context.Context, to otelmetric.Float64Observer,
) error {
	for _, s := range r.sources {
		if r.config.MeasureCost {
			to.Observe(s.programTime().Seconds(), otelmetric.WithAttributes(s.attribute()))
		}
	}
	return nil
}

// eachSource returns a callback that observes something of each source.
func (r *usdtReceiver) eachSource(
	observe func(*source, otelmetric.Int64Observer, otelattribute.KeyValue),
) otelmetric.Int64Callback {
	return func(_ context.Context, to otelmetric.Int64Observer) error {
		for _, s := range r.sources {
			observe(s, to, s.attribute())
		}
		return nil
	}
}

// eachMetric returns a callback that observes a number of each metric.
func (r *usdtReceiver) eachMetric(number func(*table) int64) otelmetric.Int64Callback {
	return func(_ context.Context, to otelmetric.Int64Observer) error {
		if r.metrics == nil {
			return nil
		}
		for i, m := range r.metrics.metrics {
			to.Observe(number(r.metrics.tables[i]),
				otelmetric.WithAttributes(otelattribute.String("metric", m.config.Name)))
		}
		return nil
	}
}

func (s *source) attribute() otelattribute.KeyValue {
	return otelattribute.String("source", s.name)
}

// sites returns how many sites are attached, and how many of the wanted probes
// cannot be.
func (s *source) sites() (attached, skipped int) {
	for _, a := range s.session.Attachments() {
		_, count := a.Skipped()
		attached, skipped = attached+len(a.Sites()), skipped+count
	}
	return attached, skipped
}

func (s *source) observeLosses(to otelmetric.Int64Observer, name otelattribute.KeyValue) {
	losses, err := s.session.Losses()
	if err != nil {
		s.receiver.logger.Warn("what is lost is not known", zap.String("source", s.name),
			zap.Error(err))
		return
	}
	for reason, n := range map[string]uint64{
		"buffer_full": losses.Events, "unreadable": losses.Unreadable,
		"no_room_for_start": losses.Starts,
		"start_without_end": losses.Replaced, "end_without_start": losses.Unmatched,
		"rate_limit": losses.NotSampled + s.limited.Load(), "refused": s.refused.Load(),
	} {
		to.Observe(int64(n),
			otelmetric.WithAttributes(name, otelattribute.String("reason", reason)))
	}
}
