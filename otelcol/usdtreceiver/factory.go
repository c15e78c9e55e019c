// SPDX-License-Identifier: BSD-2-Clause

package usdtreceiver

import (
	"context"
	"errors"
	"sync"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/xconsumer"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/xreceiver"

	"github.com/gousdt/gousdt/otelcol/usdtreceiver/internal/metadata"
)

// NewFactory returns the factory of the receiver.
func NewFactory() receiver.Factory {
	all := &instances{byConfig: make(map[*Config]*instance)}
	return xreceiver.NewFactory(
		metadata.Type,
		func() component.Config { return defaultConfig() },
		xreceiver.WithMetrics(all.newMetrics, metadata.MetricsStability),
		xreceiver.WithTraces(all.newTraces, metadata.TracesStability),
		xreceiver.WithLogs(all.newLogs, metadata.LogsStability),
		xreceiver.WithProfiles(all.newProfiles, metadata.ProfilesStability),
	)
}

// instances are the receivers that there are. A Collector asks for one for each
// kind of data; those of one configuration are the same.
type instances struct {
	mu       sync.Mutex
	byConfig map[*Config]*instance
}

// instance is a receiver of a configuration, which starts and ends once.
type instance struct {
	*usdtReceiver
	all *instances

	starting, ending sync.Once
	startErr, endErr error
}

func (all *instances) get(settings receiver.Settings, config component.Config) *instance {
	c := config.(*Config)
	all.mu.Lock()
	defer all.mu.Unlock()
	i := all.byConfig[c]
	if i == nil {
		i = &instance{usdtReceiver: newReceiver(settings, c), all: all}
		all.byConfig[c] = i
	}
	return i
}

// Start starts the receiver, for all kinds of data.
func (i *instance) Start(ctx context.Context, host component.Host) error {
	i.starting.Do(func() { i.startErr = i.start(ctx, host) })
	return i.startErr
}

// Shutdown ends the receiver, for all kinds of data.
func (i *instance) Shutdown(ctx context.Context) error {
	i.ending.Do(func() {
		i.all.mu.Lock()
		delete(i.all.byConfig, i.config)
		i.all.mu.Unlock()
		i.endErr = i.shutdown(ctx)
	})
	return i.endErr
}

func (all *instances) newMetrics(
	_ context.Context, settings receiver.Settings, config component.Config, next consumer.Metrics,
) (receiver.Metrics, error) {
	i := all.get(settings, config)
	if len(i.config.Metrics) == 0 {
		return nil, errors.New("the receiver is in a pipeline of metrics, but its configuration has no metrics")
	}
	i.nextMetrics = next
	return i, nil
}

func (all *instances) newTraces(
	_ context.Context, settings receiver.Settings, config component.Config, next consumer.Traces,
) (receiver.Traces, error) {
	i := all.get(settings, config)
	if len(i.config.Spans) == 0 {
		return nil, errors.New("the receiver is in a pipeline of traces, but its configuration has no spans")
	}
	i.nextTraces = next
	return i, nil
}

func (all *instances) newLogs(
	_ context.Context, settings receiver.Settings, config component.Config, next consumer.Logs,
) (receiver.Logs, error) {
	i := all.get(settings, config)
	if len(i.config.Logs) == 0 {
		return nil, errors.New("the receiver is in a pipeline of logs, but its configuration has no logs")
	}
	i.nextLogs = next
	return i, nil
}

func (all *instances) newProfiles(
	_ context.Context, settings receiver.Settings, config component.Config, next xconsumer.Profiles,
) (xreceiver.Profiles, error) {
	i := all.get(settings, config)
	if len(i.config.Profiles) == 0 {
		return nil, errors.New("the receiver is in a pipeline of profiles, but its configuration has no profiles")
	}
	i.nextProfiles = next
	return i, nil
}
