// SPDX-License-Identifier: BSD-2-Clause

package usdtreceiver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pprofile"
	"go.uber.org/zap"

	"github.com/gousdt/gousdt/elfnote"
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
		return nil, inField("event", err)
	}
	p := &profile{config: c, event: event, aggregation: trace.Aggregation{
		Probes:  []elfnote.Pattern{event},
		Where:   c.Where,
		By:      []string{"cgroup", "stack"},
		MaxKeys: maxStacks,
	}}
	return p, ofOption(aggregating(p.aggregation).Validate(), nil)
}

// profilesSource counts the stacks of all profiles of a receiver, in one
// session.
type profilesSource struct {
	*source
	profiles    []*profile
	aggregators []*trace.Aggregator
}

func (r *usdtReceiver) startProfiles() error {
	p := &profilesSource{}
	var items []item
	var all []trace.Aggregation
	for i := range r.config.Profiles {
		parsed, err := r.config.Profiles[i].parse()
		if err != nil {
			return inField(fmt.Sprintf("profiles[%d]", i), err)
		}
		p.profiles, all = append(p.profiles, parsed), append(all, parsed.aggregation)
		items = append(items, item{name: fmt.Sprintf("profiles[%d]", i),
			patterns: []elfnote.Pattern{parsed.event}})
	}
	r.processes.symbolizer = stack.NewSymbolizer(r.processes.fs)
	opts := aggregating(all...)
	p.aggregators = opts.Aggregators
	var err error
	if p.source, err = r.open("profiles", opts, items...); err != nil {
		return err
	}
	r.profiles = p
	r.begin = append(r.begin, func(ctx context.Context) {
		r.running.Go(func() { r.each(ctx, "profiles", p.collect) })
	})
	return nil
}

// collect takes what the kernel has counted, and sends it.
func (p *profilesSource) collect(ctx context.Context) error {
	b := newProfilesBuilder(p.source)
	var err error
	for i, aggregator := range p.aggregators {
		snapshot, failed := aggregator.Take()
		if failed != nil {
			err = errors.Join(err, inField(p.items[i].name, failed))
			continue
		}
		before := b.hits
		b.add(ctx, p.profiles[i], snapshot)
		p.items[i].hits.Add(b.hits - before)
	}
	samples := b.all.SampleCount()
	if samples == 0 {
		return err
	}
	ctx = p.receiver.report.StartProfilesOp(ctx)
	failed := p.receiver.next.profiles.ConsumeProfiles(ctx, b.all)
	p.receiver.report.EndProfilesOp(ctx, format, samples, failed)
	if failed != nil {
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

const (
	attributeBuildID = "process.executable.build_id.gnu"
	attributeEvent   = "usdt.event"
)

// profilesBuilder puts stacks under their resources. Profiles that are sent
// together share their tables.
type profilesBuilder struct {
	source   *source
	receiver *usdtReceiver
	all      pprofile.Profiles
	tables   pprofile.ProfilesDictionary
	scopes   map[*resource]pprofile.ScopeProfiles
	profiles map[profileID]pprofile.Profile
	hits     uint64

	strings   map[string]int32
	mappings  map[[2]string]int32 // by path and build ID
	functions map[string]int32    // by name
	locations map[locationID]int32
	stacks    map[string]int32
	builds    map[string]int32 // attributes, by build ID
	events    map[string]int32 // attributes, by event
}

type profileID struct {
	resource *resource
	profile  *profile
}

type locationID struct {
	mapping, function int32
	address           uint64
}

func newProfilesBuilder(s *source) *profilesBuilder {
	b := &profilesBuilder{
		source: s, receiver: s.receiver, all: pprofile.NewProfiles(),
		scopes:    make(map[*resource]pprofile.ScopeProfiles),
		profiles:  make(map[profileID]pprofile.Profile),
		strings:   make(map[string]int32),
		mappings:  make(map[[2]string]int32),
		functions: make(map[string]int32),
		locations: make(map[locationID]int32), stacks: make(map[string]int32),
		builds: make(map[string]int32), events: make(map[string]int32),
	}
	b.tables = b.all.Dictionary()
	// The first entry of each table stands for none.
	b.text("")
	b.tables.MappingTable().AppendEmpty()
	b.tables.FunctionTable().AppendEmpty()
	b.tables.LocationTable().AppendEmpty()
	b.tables.StackTable().AppendEmpty()
	b.tables.AttributeTable().AppendEmpty()
	b.tables.LinkTable().AppendEmpty()
	return b
}

// add adds what was counted of an event.
func (b *profilesBuilder) add(ctx context.Context, p *profile, s *trace.Snapshot) {
	for i := range s.Rows {
		row := &s.Rows[i]
		b.source.convert(func() {
			// The key of a stack is the process whose addresses they are.
			pid := int(row.Keys[1].Uint())
			r := b.receiver.processes.resourceOf(pid, row.Keys[0].Uint())
			frames := b.receiver.processes.symbolizer.Frames(ctx, pid, row.Stack)
			stack := b.stack(frames)
			b.sample(b.profile(r, p, s), stack, row.Count)
		})
	}
	if s.Other.Count > 0 {
		b.sample(b.profile(nil, p, s), 0, s.Other.Count)
	}
}

func (b *profilesBuilder) sample(to pprofile.Profile, stack int32, hits uint64) {
	sample := to.Samples().AppendEmpty()
	sample.SetStackIndex(stack)
	sample.Values().Append(int64(hits))
	b.hits += hits
}

func (b *profilesBuilder) profile(r *resource, p *profile, s *trace.Snapshot) pprofile.Profile {
	id := profileID{r, p}
	if known, ok := b.profiles[id]; ok {
		return known
	}
	scope := scopeOf(b.receiver, b.scopes, r, func() (pprofile.ResourceProfiles, pprofile.ScopeProfiles) {
		rp := b.all.ResourceProfiles().AppendEmpty()
		return rp, rp.ScopeProfiles().AppendEmpty()
	})
	profile := scope.Profiles().AppendEmpty()
	b.profiles[id] = profile
	profile.SetProfileID(pprofile.ProfileID(newTraceID()))
	profile.SetTime(pcommon.NewTimestampFromTime(s.Start))
	profile.SetDurationNano(uint64(s.Time.Sub(s.Start)))
	profile.SampleType().SetTypeStrindex(b.text("hits"))
	profile.SampleType().SetUnitStrindex(b.text("count"))
	profile.AttributeIndices().Append(b.attribute(b.events, attributeEvent, p.config.Event))
	return profile
}

// numbered returns the number that an entry of a table has by its key. An entry
// that is not known is added at the end.
func numbered[K comparable](
	known map[K]int32, key K, table interface{ Len() int }, add func(),
) int32 {
	n, ok := known[key]
	if !ok {
		n = int32(table.Len())
		add()
		known[key] = n
	}
	return n
}

func (b *profilesBuilder) text(s string) int32 {
	s = validText(s)
	table := b.tables.StringTable()
	return numbered(b.strings, s, table, func() { table.Append(s) })
}

func (b *profilesBuilder) attribute(known map[string]int32, key, value string) int32 {
	table := b.tables.AttributeTable()
	return numbered(known, value, table, func() {
		a := table.AppendEmpty()
		a.SetKeyStrindex(b.text(key))
		a.Value().SetStr(validText(value))
	})
}

// stack returns the number of a stack, whose frames are the innermost first.
func (b *profilesBuilder) stack(frames []stack.Frame) int32 {
	if len(frames) == 0 {
		return 0
	}
	indices := make([]int32, len(frames))
	for i, f := range frames {
		indices[i] = b.location(f, i > 0)
	}
	table := b.tables.StackTable()
	return numbered(b.stacks, fmt.Sprint(indices), table,
		func() { table.AppendEmpty().LocationIndices().FromRaw(indices) })
}

// location returns the number of a place. Its address is the offset in the
// file, as the mapping says, which is the same in all processes. The call is
// before the address where it returns to.
func (b *profilesBuilder) location(f stack.Frame, isReturn bool) int32 {
	id := locationID{address: f.FileOffset, mapping: b.mapping(f), function: b.function(f)}
	if id.mapping == 0 {
		id.address = f.Address
	}
	if isReturn && id.address > 0 {
		id.address--
	}
	table := b.tables.LocationTable()
	return numbered(b.locations, id, table, func() {
		l := table.AppendEmpty()
		l.SetAddress(id.address)
		l.SetMappingIndex(id.mapping)
		if id.function != 0 {
			l.Lines().AppendEmpty().SetFunctionIndex(id.function)
		}
	})
}

// mapping returns the number of a file, as if it were mapped from address 0 on.
func (b *profilesBuilder) mapping(f stack.Frame) int32 {
	if f.File == "" {
		return 0
	}
	table := b.tables.MappingTable()
	return numbered(b.mappings, [2]string{f.File, f.BuildID}, table, func() {
		m := table.AppendEmpty()
		m.SetFilenameStrindex(b.text(f.File))
		if f.BuildID != "" {
			m.AttributeIndices().Append(b.attribute(b.builds, attributeBuildID, f.BuildID))
		}
	})
}

func (b *profilesBuilder) function(f stack.Frame) int32 {
	if f.Function == "" {
		return 0
	}
	table := b.tables.FunctionTable()
	return numbered(b.functions, f.Function, table, func() {
		name, function := b.text(f.Function), table.AppendEmpty()
		function.SetNameStrindex(name)
		function.SetSystemNameStrindex(name)
	})
}
