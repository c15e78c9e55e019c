// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"errors"
	"math"
	"slices"

	"github.com/cilium/ebpf"
)

// keyStacks are the stacks of an aggregation whose keys are stacks. The kernel
// has one place for all stacks with the same hash, and keeps what comes first
// until it is removed. So stacks are removed whenever keys are taken: each time
// begins a generation, whose stacks are in the other one of two maps. A key has
// the number of its generation beside that of its stack.
type keyStacks struct {
	maps    [2]*ebpf.Map // of even and of odd generations
	present *ebpf.Map    // an array, whose only element is the generation
	now     uint32       // the generation

	// removed are the stacks of the two generations before, by their numbers.
	// The last keys of a generation come with those of the next.
	removed map[uint32]map[uint32][]uint64
}

// create makes maps for so many different stacks in a generation.
func (s *keyStacks) create(room int) (err error) {
	for i := range s.maps {
		if s.maps[i], err = ebpf.NewMap(&ebpf.MapSpec{
			Name:       "trace_stacks",
			Type:       ebpf.StackTrace,
			KeySize:    4,
			ValueSize:  8 * maxStackDepth,
			MaxEntries: uint32(room),
		}); err != nil {
			return err
		}
	}
	s.present, err = ebpf.NewMap(&ebpf.MapSpec{
		Name: "trace_present", Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1,
	})
	s.removed = make(map[uint32]map[uint32][]uint64)
	return err
}

// following returns the generation after another. A key has 31 bits for it.
func following(generation uint32) uint32 { return (generation + 1) & math.MaxInt32 }

// begin has programs begin the next generation. Until they all have, there are
// keys of both.
func (s *keyStacks) begin() error { return s.present.Put(uint32(0), uint64(following(s.now))) }

// end ends the generation before the one that begin has begun. No program may
// be at work any more that has seen it.
func (s *keyStacks) end() error {
	ended := s.now
	s.now = following(ended)
	stacks, err := removeStacks(s.maps[ended&1])
	for generation := range s.removed {
		if following(generation) != ended {
			delete(s.removed, generation)
		}
	}
	s.removed[ended] = stacks
	return err
}

// removeStacks empties a map.
func removeStacks(from *ebpf.Map) (map[uint32][]uint64, error) {
	stacks := make(map[uint32][]uint64)
	var last any
	for {
		var id uint32
		if err := from.NextKey(last, &id); errors.Is(err, ebpf.ErrKeyNotExist) {
			break
		} else if err != nil {
			return stacks, err
		}
		var err error
		if stacks[id], err = lookUpStack(from, id); err != nil {
			return stacks, err
		}
		last = id
	}
	for id := range stacks {
		if err := ignoreMissing(from.Delete(id)); err != nil {
			return stacks, err
		}
	}
	return stacks, nil
}

// of returns the stack of a key.
func (s *keyStacks) of(key uint64) ([]uint64, error) {
	id, generation := uint32(key), uint32(key>>32)
	if stacks, ok := s.removed[generation]; ok {
		return stacks[id], nil
	}
	if generation != s.now && generation != following(s.now) {
		return nil, nil
	}
	return lookUpStack(s.maps[generation&1], id)
}

func lookUpStack(in *ebpf.Map, id uint32) ([]uint64, error) {
	var addresses [maxStackDepth]uint64
	if err := ignoreMissing(in.Lookup(id, &addresses)); err != nil {
		return nil, err
	}
	end := slices.Index(addresses[:], 0)
	if end < 0 {
		end = len(addresses)
	}
	return slices.Clone(addresses[:end]), nil
}
