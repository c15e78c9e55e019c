// SPDX-License-Identifier: BSD-2-Clause

package usdtreceiver

import (
	"context"
	"errors"
	"fmt"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pprofile"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/stack"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt/proc"
)

// maxStacks is the most stacks of an event in a profile. The hits at others are
// in one sample without a stack.
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
	return p, ofOption(aggregating(p.aggregation).Validate())
}

// startProfiles counts the stacks of all profiles in one session.
func (r *usdtReceiver) startProfiles() error {
	var profiles []*profile
	var items []item
	var all []trace.Aggregation
	for i := range r.config.Profiles {
		p, err := r.config.Profiles[i].parse()
		if err != nil {
			return err
		}
		profiles, all = append(profiles, p), append(all, p.aggregation)
		items = append(items, item{name: fmt.Sprintf("profiles[%d]", i),
			patterns: []elfnote.Pattern{p.event}})
	}
	r.processes.symbolizer = stack.NewSymbolizer(proc.FS(r.processes.fs.Root()))
	r.closers = append(r.closers, r.processes.symbolizer)
	opts := aggregating(all...)
	source, err := r.open("profiles", opts, items...)
	if err != nil {
		return err
	}
	collect := func(ctx context.Context) error {
		b := newProfilesBuilder(source)
		var errs []error
		snapshots, err := source.session.Take()
		errs = append(errs, err)
		for i, snapshot := range snapshots {
			before := b.hits
			b.add(ctx, profiles[i], snapshot)
			items[i].hits.Add(b.hits - before)
		}
		if samples := b.all.SampleCount(); samples > 0 {
			ctx = r.report.StartProfilesOp(ctx)
			err := r.next.profiles.ConsumeProfiles(ctx, b.all)
			r.report.EndProfilesOp(ctx, format, samples, err)
			if err != nil {
				source.refused.Add(b.hits)
				errs = append(errs, err)
			}
		}
		return errors.Join(errs...)
	}
	r.collectors = append(r.collectors, collector{"profiles", collect})
	return nil
}

const (
	attributeBuildID = "process.executable.build_id.gnu"
	attributeEvent   = "usdt.event"
)

// profilesBuilder collects the stacks of each resource. Profiles that are sent
// together share their tables.
type profilesBuilder struct {
	source   *source
	receiver *usdtReceiver
	all      pprofile.Profiles
	tables   pprofile.ProfilesDictionary
	scopes   map[*resource]pprofile.ScopeProfiles
	profiles map[profileID]pprofile.Profile
	hits     uint64
	numbers  map[any]int32 // of entries of all tables, by keys of their own types
}

type profileID struct {
	resource *resource
	profile  *profile
}

// Keys of entries of tables.
type (
	textID      string
	attributeID struct{ key, value string }
	mappingID   struct{ path, build string }
	functionID  string
	stackID     string
	locationID  struct {
		mapping, function int32
		address           uint64
	}
)

func newProfilesBuilder(s *source) *profilesBuilder {
	b := &profilesBuilder{
		source: s, receiver: s.receiver, all: pprofile.NewProfiles(),
		scopes:   make(map[*resource]pprofile.ScopeProfiles),
		profiles: make(map[profileID]pprofile.Profile),
		numbers:  make(map[any]int32),
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
	add := func() (pprofile.ResourceProfiles, pprofile.ScopeProfiles) {
		rp := b.all.ResourceProfiles().AppendEmpty()
		return rp, rp.ScopeProfiles().AppendEmpty()
	}
	profile := scopeOf(b.receiver, b.scopes, r, add).Profiles().AppendEmpty()
	b.profiles[id] = profile
	profile.SetProfileID(pprofile.ProfileID(newTraceID()))
	profile.SetTime(pcommon.NewTimestampFromTime(s.Start))
	profile.SetDurationNano(uint64(s.Time.Sub(s.Start)))
	profile.SampleType().SetTypeStrindex(b.text("hits"))
	profile.SampleType().SetUnitStrindex(b.text("count"))
	profile.AttributeIndices().Append(b.attribute(attributeEvent, p.config.Event))
	return profile
}

// number returns the index of an entry of a table. A new entry is added at the
// end.
func (b *profilesBuilder) number(key any, table interface{ Len() int }, add func()) int32 {
	n, ok := b.numbers[key]
	if !ok {
		n = int32(table.Len())
		add()
		b.numbers[key] = n
	}
	return n
}

func (b *profilesBuilder) text(s string) int32 {
	s = validText(s)
	table := b.tables.StringTable()
	return b.number(textID(s), table, func() { table.Append(s) })
}

func (b *profilesBuilder) attribute(key, value string) int32 {
	table := b.tables.AttributeTable()
	return b.number(attributeID{key, value}, table, func() {
		a := table.AppendEmpty()
		a.SetKeyStrindex(b.text(key))
		a.Value().SetStr(validText(value))
	})
}

// stack returns the index of a stack, whose frames are the innermost first.
func (b *profilesBuilder) stack(frames []stack.Frame) int32 {
	if len(frames) == 0 {
		return 0
	}
	indices := make([]int32, len(frames))
	for i, f := range frames {
		indices[i] = b.location(f, i > 0)
	}
	table := b.tables.StackTable()
	return b.number(stackID(fmt.Sprint(indices)), table,
		func() { table.AppendEmpty().LocationIndices().FromRaw(indices) })
}

// location returns the index of a place. Its address is the offset in the file,
// which is the same in all processes. A return address is reduced by one: the
// call is before it.
func (b *profilesBuilder) location(f stack.Frame, isReturn bool) int32 {
	id := locationID{address: f.FileOffset}
	if f.File != "" { // as if it were mapped from address 0 on
		table := b.tables.MappingTable()
		id.mapping = b.number(mappingID{f.File, f.BuildID}, table, func() {
			m := table.AppendEmpty()
			m.SetFilenameStrindex(b.text(f.File))
			if f.BuildID != "" {
				m.AttributeIndices().Append(b.attribute(attributeBuildID, f.BuildID))
			}
		})
	} else {
		id.address = f.Address
	}
	if f.Function != "" {
		table := b.tables.FunctionTable()
		id.function = b.number(functionID(f.Function), table, func() {
			name, function := b.text(f.Function), table.AppendEmpty()
			function.SetNameStrindex(name)
			function.SetSystemNameStrindex(name)
		})
	}
	if isReturn && id.address > 0 {
		id.address--
	}
	table := b.tables.LocationTable()
	return b.number(id, table, func() {
		l := table.AppendEmpty()
		l.SetAddress(id.address)
		l.SetMappingIndex(id.mapping)
		if id.function != 0 {
			l.Lines().AppendEmpty().SetFunctionIndex(id.function)
		}
	})
}
