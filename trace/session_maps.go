// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"

	"github.com/gousdt/gousdt/trace/internal/bpfgen"
)

func (s *Session) createMaps() error {
	var err error
	if s.counters, err = ebpf.NewMap(&ebpf.MapSpec{
		Name: "trace_counters", Type: ebpf.PerCPUArray, KeySize: 4, ValueSize: 8,
		MaxEntries: uint32(bpfgen.CounterCount),
	}); err != nil {
		return explain("creating the map of counters", err)
	}
	s.plan.Counters = s.counters.FD()
	s.plan.Kernel.PIDs = ownPIDs()
	if err := s.numberProcessors(); err != nil {
		return explain("asking for the processor in a program", err)
	}
	if err := s.slots.create(s.mode); err != nil {
		return err
	}
	if err := s.createAggregations(); err != nil {
		return err
	}
	if err := s.createLatencies(); err != nil {
		return err
	}
	if s.opts.Family != 0 {
		if s.family, err = newFamily(s.opts.Family); err != nil {
			return err
		}
		s.plan.Family = s.family.members.FD()
	}

	events := s.plan.Events
	if events == nil {
		return nil
	}
	if s.ring, err = ebpf.NewMap(&ebpf.MapSpec{
		Name: "trace_events", Type: ebpf.RingBuf, MaxEntries: uint32(events.RingSize),
	}); err != nil {
		return explain("creating the ring buffer", err)
	}
	events.Ring = s.ring.FD()
	if events.Sampling != nil {
		if s.sampling, err = ebpf.NewMap(&ebpf.MapSpec{
			Name: "trace_sampling", Type: ebpf.PerCPUArray, KeySize: 4,
			ValueSize: bpfgen.SamplingStateSize, MaxEntries: 1,
		}); err != nil {
			return explain("creating the map of what is sampled", err)
		}
		events.Sampling.State = s.sampling.FD()
	}
	if events.Share != nil {
		if s.owners, err = ebpf.NewMap(&ebpf.MapSpec{
			Name: "trace_owners", Type: ebpf.LRUHash, KeySize: 8, ValueSize: bpfgen.OwnerStateSize,
			MaxEntries: maxOwners,
		}); err != nil {
			return explain("creating the map of owners", err)
		}
		events.Share.Owners = s.owners.FD()
	}
	if s.reader, err = ringbuf.NewReader(s.ring); err != nil {
		return explain("reading the ring buffer", err)
	}
	s.memory, _ = newRingMemory(s.ring) // without it the reader reads all
	s.decoder = newDecoder(&s.sites, s.opts.ReuseEvents)
	return nil
}

// maps returns all maps that the session has made.
func (s *Session) maps() []*ebpf.Map {
	all := []*ebpf.Map{s.counters, s.slots.slots, s.processors, s.sampling, s.owners, s.ring,
		s.room, s.signal}
	for _, a := range s.aggregations {
		all = append(all, a.maps()...)
	}
	for _, l := range s.latencies {
		all = append(all, l.calls, l.zeros, l.saved)
	}
	return slices.DeleteFunc(all, func(m *ebpf.Map) bool { return m == nil })
}
