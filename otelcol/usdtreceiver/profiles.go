// SPDX-License-Identifier: BSD-2-Clause

package usdtreceiver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/gousdt/gousdt/container"
	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/providers"
	"github.com/gousdt/gousdt/stack"
	"github.com/gousdt/gousdt/trace"
)

// maxStacks is how many different stacks of an event a profile has, at most.
// The hits at others are in one sample without a stack.
const maxStacks = 4096

// profile is a ProfileConfig that has been parsed.
type profile struct {
	config      *ProfileConfig
	event       elfnote.Pattern
	aggregation trace.Aggregation
}

func (c *ProfileConfig) parse() (*profile, error) {
	event, err := elfnote.ParsePattern(c.Event)
	if err != nil {
		return nil, fmt.Errorf("event: %w", err)
	}
	p := &profile{config: c, event: event, aggregation: trace.Aggregation{
		Probes:  []elfnote.Pattern{event},
		Where:   c.Where,
		By:      []string{"cgroup", "stack"},
		MaxKeys: maxStacks,
	}}
	return p, profileOptions(p).Validate()
}

func (c *ProfileConfig) validate() error {
	_, err := c.parse()
	return named(c.Event, err)
}

func profileOptions(profiles ...*profile) *trace.SessionOptions {
	opts := &trace.SessionOptions{NoEvents: true, Definitions: providers.Builtin(),
		Containers: new(container.Cgroups)} // see metricOptions
	for _, p := range profiles {
		opts.Aggregators = append(opts.Aggregators, trace.NewAggregator(p.aggregation))
	}
	return opts
}

// profilesSource counts the stacks of all profiles of a receiver, in one
// session.
type profilesSource struct {
	*source
	profiles    []*profile
	aggregators []*trace.Aggregator
}

func (r *usdtReceiver) startProfiles(ctx context.Context) error {
	p := &profilesSource{}
	var items []item
	for i := range r.config.Profiles {
		parsed, err := r.config.Profiles[i].parse()
		if err != nil {
			return fmt.Errorf("profiles[%d]: %w", i, err)
		}
		p.profiles = append(p.profiles, parsed)
		items = append(items, item{name: fmt.Sprintf("profiles[%d]", i),
			patterns: []elfnote.Pattern{parsed.event}})
	}
	r.processes.symbolizer = stack.NewSymbolizer(r.processes.fs)
	opts := profileOptions(p.profiles...)
	p.aggregators = opts.Aggregators
	var err error
	if p.source, err = r.open("profiles", opts, items...); err != nil {
		return err
	}
	r.profiles = p
	r.begin = append(r.begin,
		func() { r.running.Go(func() { r.each(ctx, "profiles", p.collect) }) })
	return nil
}

// collect takes what the kernel has counted, and sends it.
func (p *profilesSource) collect(ctx context.Context) error {
	b := newProfilesBuilder(p.source)
	var err error
	for i, aggregator := range p.aggregators {
		snapshot, failed := aggregator.Take()
		if failed != nil {
			err = errors.Join(err, named(p.profiles[i].config.Event, failed))
			continue
		}
		b.add(ctx, p.profiles[i], snapshot)
	}
	if b.all.SampleCount() == 0 {
		return err
	}
	if failed := p.receiver.nextProfiles.ConsumeProfiles(ctx, b.all); failed != nil {
		p.refused.Add(b.hits)
		err = errors.Join(err, failed)
	}
	return err
}

// each calls collect at each interval until the context ends.
func (r *usdtReceiver) each(ctx context.Context, what string, collect func(context.Context) error) {
	ticker := time.NewTicker(r.config.CollectionInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if err := collect(ctx); err != nil && ctx.Err() == nil {
				r.logger.Error(what+" were not sent", zap.Error(err))
			}
		}
	}
}
