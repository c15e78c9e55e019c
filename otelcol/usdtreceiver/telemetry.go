// SPDX-License-Identifier: BSD-2-Clause

package usdtreceiver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	otelattribute "go.opentelemetry.io/otel/attribute"
	otelmetric "go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/cilium/ebpf"

	"github.com/gousdt/gousdt/internal/pattern"
	"github.com/gousdt/gousdt/otelcol/usdtreceiver/internal/metadata"
	"github.com/gousdt/gousdt/trace"
)

// observe registers the receiver's own metrics, which metadata.yaml describes,
// until it ends.
func (r *usdtReceiver) observe() (err error) {
	if r.telemetry, err = metadata.NewTelemetryBuilder(r.settings.TelemetrySettings); err != nil {
		return err
	}
	t := r.telemetry
	eachItem := func(number func(*source, item) int) otelmetric.Int64Callback {
		return r.eachSource(func(s *source, put putNumber) {
			for _, i := range s.items {
				put(number(s, i), "item", i.name)
			}
		})
	}
	eachSource := func(number func(*source, trace.Losses) int) otelmetric.Int64Callback {
		return r.eachSource(func(s *source, put putNumber) {
			if losses, err := s.session.Losses(); err == nil { // observeLosses logs it
				put(number(s, losses), "source", s.name)
			}
		})
	}
	eachMetric := func(number func(*metric) int64) otelmetric.Int64Callback {
		return callback(func(put putNumber) error {
			for _, m := range r.aggregated {
				put(int(number(m)), "metric", m.config.Name)
			}
			return nil
		})
	}
	return errors.Join(
		t.RegisterReceiverUsdtProcessesCallback(callback(func(put putNumber) error {
			put(r.processes.count())
			return nil
		})),
		t.RegisterReceiverUsdtProcessesSkippedCallback(callback(func(put putNumber) error {
			stats := r.watch.Stats()
			put(stats.Denied, "state", "denied")
			put(stats.Blocked, "state", "blocked")
			put(stats.Postponed, "state", "postponed")
			return nil
		})),
		t.RegisterReceiverUsdtSitesCallback(eachItem((*source).itemSites)),
		t.RegisterReceiverUsdtHitsCallback(eachItem(
			func(_ *source, i item) int { return int(i.hits.Load()) })),
		t.RegisterReceiverUsdtSitesSkippedCallback(r.eachSource(func(s *source, put putNumber) {
			skipped := 0
			for _, a := range s.session.Attachments() {
				_, count := a.Skipped()
				skipped += count
			}
			put(skipped, "source", s.name)
		})),
		t.RegisterReceiverUsdtCapabilitiesMissingCallback(callback(observeCapabilities)),
		t.RegisterReceiverUsdtHitsLostCallback(r.eachSource((*source).observeLosses)),
		t.RegisterReceiverUsdtHitsNotSampledCallback(eachSource(
			func(s *source, l trace.Losses) int {
				if s.unsent {
					return 0
				}
				return int(l.NotSampled + s.limited.Load())
			})),
		t.RegisterReceiverUsdtCallsUnfinishedCallback(eachSource(
			func(_ *source, l trace.Losses) int { return int(l.Unfinished) })),
		t.RegisterReceiverUsdtSeriesCallback(eachMetric(
			func(m *metric) int64 { return m.kept.Load() })),
		t.RegisterReceiverUsdtOverflowHitsCallback(eachMetric(
			func(m *metric) int64 { return int64(m.overHits.Load()) })),
		t.RegisterReceiverUsdtProgramTimeCallback(r.observeProgramTime),
	)
}

// putNumber reports a number with attributes: names and values in turn.
type putNumber func(n int, attributes ...string)

// callback returns observe as OpenTelemetry calls it.
func callback(observe func(putNumber) error) otelmetric.Int64Callback {
	return func(_ context.Context, to otelmetric.Int64Observer) error {
		return observe(func(n int, attributes ...string) {
			var set []otelattribute.KeyValue
			for pair := range slices.Chunk(attributes, 2) {
				set = append(set, otelattribute.String(pair[0], pair[1]))
			}
			to.Observe(int64(n), otelmetric.WithAttributes(set...))
		})
	}
}

func (r *usdtReceiver) eachSource(observe func(*source, putNumber)) otelmetric.Int64Callback {
	return callback(func(put putNumber) error {
		for _, s := range r.sources {
			observe(s, put)
		}
		return nil
	})
}

func (r *usdtReceiver) observeProgramTime(_ context.Context, to otelmetric.Float64Observer) error {
	for _, s := range r.sources {
		if r.config.MeasureCost {
			to.Observe(s.programTime().Seconds(),
				otelmetric.WithAttributes(otelattribute.String("source", s.name)))
		}
	}
	return nil
}

// itemSites returns how many sites are attached for an item.
func (s *source) itemSites(i item) (sites int) {
	for _, a := range s.session.Attachments() {
		for _, site := range a.Sites() {
			if pattern.MatchAny(i.patterns, site.Provider, site.Name) {
				sites++
			}
		}
	}
	return sites
}

// neededCapabilities are those that otelcol/deploy/kubernetes gives.
var neededCapabilities = map[string]int{
	"CAP_DAC_READ_SEARCH": unix.CAP_DAC_READ_SEARCH,
	"CAP_SYS_PTRACE":      unix.CAP_SYS_PTRACE,
	"CAP_BPF":             unix.CAP_BPF,
	"CAP_PERFMON":         unix.CAP_PERFMON,
}

// missingCapabilities reports for each needed capability whether it is missing.
func missingCapabilities() (map[string]bool, error) {
	var sets [2]unix.CapUserData
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return nil, fmt.Errorf("capabilities of the Collector: %w", err)
	}
	has := func(number int) bool { return sets[number/32].Effective>>(number%32)&1 != 0 }
	missing := make(map[string]bool)
	for name, number := range neededCapabilities {
		// CAP_SYS_ADMIN includes the capabilities that were split off it in
		// Linux 5.8.
		missing[name] = !has(number) && !(number >= unix.CAP_PERFMON && has(unix.CAP_SYS_ADMIN))
	}
	return missing, nil
}

// observeCapabilities shows a loss of privileges. The number of denied
// processes does not: some cannot be read with any privilege.
func observeCapabilities(put putNumber) error {
	missing, err := missingCapabilities()
	for name, isMissing := range missing {
		n := 0
		if isMissing {
			n = 1
		}
		put(n, "capability", name)
	}
	return err
}

func (s *source) observeLosses(put putNumber) {
	losses, err := s.session.Losses()
	if err != nil {
		s.receiver.logger.Warn("what is lost is not known", zap.String("source", s.name),
			zap.Error(err))
		return
	}
	without := losses.Left + losses.Replaced + losses.Overlapped
	if !s.items[0].exits {
		without += losses.Killed + losses.Exited
	}
	for reason, n := range map[string]uint64{
		"buffer_full": losses.Events, "unreadable": losses.Unreadable + losses.SelfUnknown,
		"no_room_for_start": losses.Starts,
		"start_without_end": without,
		"end_without_start": losses.Unmatched,
		"refused":           s.refused.Load(), "not_converted": s.unconverted.Load(),
	} {
		put(int(n), "source", s.name, "reason", reason)
	}
}

// costs is how long the programs of a session have run, also those that are
// detached. The time of a program after it was last asked for is missing.
type costs struct {
	mu    sync.Mutex
	last  map[ebpf.ProgramID]time.Duration // of each program, when it was last asked
	total time.Duration
}

// programTime asks the kernel how long the programs have run.
func (s *source) programTime() time.Duration {
	c := &s.costs
	c.mu.Lock()
	defer c.mu.Unlock()
	if stats, err := s.session.Stats(); err == nil {
		now := make(map[ebpf.ProgramID]time.Duration)
		for info, p := range stats.Programs {
			id, _ := info.ID()
			now[id] = p.Runtime
			c.total += p.Runtime - c.last[id]
		}
		c.last = now
	}
	return c.total
}
