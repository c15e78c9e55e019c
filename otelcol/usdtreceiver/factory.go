// SPDX-License-Identifier: BSD-2-Clause

// Package usdtreceiver is a receiver for the OpenTelemetry Collector. It makes
// metrics, spans and log records of the USDT probes that the processes of this
// machine pass.
//
// README.md beside this file describes every setting.
package usdtreceiver

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/xconsumer"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/xreceiver"
	"go.uber.org/zap"

	"github.com/gousdt/gousdt/otelcol/usdtreceiver/internal/metadata"
)

// NewFactory returns the factory of the receiver.
func NewFactory() receiver.Factory { return newFactory(maxParked) }

// maxParked is how long a receiver that was shut down stays attached, for a
// Collector that reloads its configuration. The exporters of the pipelines may
// take some seconds to end.
const maxParked = 15 * time.Second

func newFactory(park time.Duration) receiver.Factory {
	all := &instances{park: park, byConfig: make(map[*Config]*instance),
		parked: make(map[component.ID]*parkedReceiver)}
	return xreceiver.NewFactory(
		metadata.Type,
		func() component.Config { return defaultConfig() },
		xreceiver.WithMetrics(all.newMetrics, metadata.MetricsStability),
		xreceiver.WithTraces(all.newTraces, metadata.TracesStability),
		xreceiver.WithLogs(all.newLogs, metadata.LogsStability),
		xreceiver.WithProfiles(all.newProfiles, metadata.ProfilesStability),
	)
}

// instances has all receivers. A Collector creates one for each kind of data;
// those of one configuration are the same.
type instances struct {
	park     time.Duration
	mu       sync.Mutex
	byConfig map[*Config]*instance
	parked   map[component.ID]*parkedReceiver
}

// parkedReceiver is a receiver that was shut down and is still attached. It
// goes on if a receiver like it starts soon.
type parkedReceiver struct {
	*usdtReceiver
	forget *time.Timer
}

// instance is a receiver of a configuration, which starts and ends once.
type instance struct {
	*usdtReceiver
	all *instances
	key *Config

	starting, ending sync.Once
	startErr, endErr error
	closing          sync.WaitGroup // of the receiver before
}

// get returns the receiver of a configuration, which must have items for a kind
// of data, and gives it a consumer.
func (all *instances) get(settings receiver.Settings, config component.Config,
	pipeline, setting string, items int, set func(*consumers),
) (*instance, error) {
	if items == 0 {
		return nil, fmt.Errorf("the receiver is in a pipeline of %s, but its configuration has "+
			"no %s", pipeline, setting)
	}
	c := config.(*Config)
	all.mu.Lock()
	defer all.mu.Unlock()
	i := all.byConfig[c]
	if i == nil {
		i = &instance{usdtReceiver: newReceiver(settings, c), all: all, key: c}
		all.byConfig[c] = i
	}
	set(&i.next)
	return i, nil
}

// Start starts the receiver, for all kinds of data. If a parked receiver does
// the same, that goes on instead. A parked receiver that differs ends once the
// new one has started.
func (i *instance) Start(ctx context.Context, host component.Host) error {
	i.starting.Do(func() {
		before := i.all.unpark(i.settings.ID, nil)
		if before != nil && before.isLike(i.usdtReceiver) {
			i.startErr = before.resume(i.usdtReceiver, host)
			i.usdtReceiver = before
			return
		}
		i.startErr = i.start(ctx, host)
		if before != nil {
			i.closing.Go(func() { before.end() })
		}
	})
	return i.startErr
}

// Shutdown ends the receiver, for all kinds of data.
func (i *instance) Shutdown(ctx context.Context) error {
	i.ending.Do(func() {
		i.all.mu.Lock()
		delete(i.all.byConfig, i.key)
		i.all.mu.Unlock()
		i.endErr = i.shutdown(ctx)
		i.closing.Wait()
		if i.watch == nil || i.all.park == 0 {
			i.endErr = errors.Join(i.endErr, i.close())
			return
		}
		i.all.mu.Lock()
		defer i.all.mu.Unlock()
		id, r := i.settings.ID, i.usdtReceiver
		i.all.parked[id] = &parkedReceiver{r, time.AfterFunc(i.all.park, func() {
			if r := i.all.unpark(id, r); r != nil {
				r.end()
			}
		})}
	})
	return i.endErr
}

// unpark returns the parked receiver, if it is the wanted one; nil wants any.
func (all *instances) unpark(id component.ID, wanted *usdtReceiver) *usdtReceiver {
	all.mu.Lock()
	defer all.mu.Unlock()
	p := all.parked[id]
	if p == nil || wanted != nil && p.usdtReceiver != wanted {
		return nil
	}
	p.forget.Stop()
	delete(all.parked, id)
	return p.usdtReceiver
}

// end closes a receiver that has been shut down.
func (r *usdtReceiver) end() {
	if err := r.close(); err != nil {
		r.logger.Warn("not everything could be detached", zap.Error(err))
	}
}

func (all *instances) newMetrics(
	_ context.Context, settings receiver.Settings, c component.Config, next consumer.Metrics,
) (receiver.Metrics, error) {
	return all.get(settings, c, "metrics", "metrics", len(c.(*Config).Metrics),
		func(to *consumers) { to.metrics = next })
}

func (all *instances) newTraces(
	_ context.Context, settings receiver.Settings, c component.Config, next consumer.Traces,
) (receiver.Traces, error) {
	return all.get(settings, c, "traces", "spans", len(c.(*Config).Spans),
		func(to *consumers) { to.traces = next })
}

func (all *instances) newLogs(
	_ context.Context, settings receiver.Settings, c component.Config, next consumer.Logs,
) (receiver.Logs, error) {
	return all.get(settings, c, "logs", "logs", len(c.(*Config).Logs),
		func(to *consumers) { to.logs = next })
}

func (all *instances) newProfiles(
	_ context.Context, settings receiver.Settings, c component.Config, next xconsumer.Profiles,
) (xreceiver.Profiles, error) {
	return all.get(settings, c, "profiles", "profiles", len(c.(*Config).Profiles),
		func(to *consumers) { to.profiles = next })
}
