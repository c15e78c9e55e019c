// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/trace/internal/bpfgen"
	"github.com/gousdt/gousdt/trace/internal/expr"
)

// createAggregations makes the maps of all aggregations.
func (s *Session) createAggregations() error {
	if err := s.createRoom(); err != nil {
		return explain("creating the maps of an aggregation", err)
	}
	extremes := false
	for i, a := range s.aggregations {
		if err := a.create(i); err != nil {
			return explain("creating the maps of an aggregation", err)
		}
		extremes = extremes || a.Min || a.Max
	}
	if extremes {
		var err error
		if s.plan.Kernel.CompareExchange, err = hasCompareExchange(); err != nil {
			return explain("asking for atomic compare and exchange", err)
		}
	}
	return nil
}

// createRoom makes what programs need to know how much room there is for keys,
// and to say that there is little.
func (s *Session) createRoom() (err error) {
	if !slices.ContainsFunc(s.aggregations, func(a *aggregation) bool { return len(a.Keys) > 0 }) {
		return nil
	}
	if s.room, err = ebpf.NewMap(&ebpf.MapSpec{
		Name: "trace_room", Type: ebpf.Array, KeySize: 4, ValueSize: bpfgen.RoomStateSize,
		MaxEntries: uint32(2 * len(s.aggregations)),
	}); err != nil {
		return err
	}
	if s.signal, err = ebpf.NewMap(&ebpf.MapSpec{
		Name: "trace_signal", Type: ebpf.RingBuf, MaxEntries: uint32(os.Getpagesize()),
	}); err != nil {
		return err
	}
	s.signals, err = ringbuf.NewReader(s.signal)
	return err
}

func (a *aggregation) create(number int) (err error) {
	array := &ebpf.MapSpec{
		Name: fmt.Sprintf("trace_rows%d", number), Type: ebpf.PerCPUArray, KeySize: 4,
		ValueSize: uint32(a.ValueSize()), MaxEntries: uint32(a.Entries()),
	}
	spec := array
	if len(a.Keys) > 0 {
		if a.overflow, err = newTally(array); err != nil {
			return err
		}
		a.Overflow = a.overflow.FD()
		_, size := a.KeyLayout()
		spec = array.Copy()
		spec.Type, spec.KeySize, spec.MaxEntries = ebpf.PerCPUHash, uint32(size),
			uint32(a.room()+a.reserve())
	}
	// Sums and counts can be told apart from what they were before, minima and
	// maxima cannot.
	a.Exchanged = len(a.Keys) > 0 || a.Min || a.Max
	if a.tally, err = newTally(spec); err != nil {
		return err
	}
	a.Map = a.tally.FD()
	if a.Exchanged {
		if err := a.createExchange(spec); err != nil {
			return err
		}
	}
	if len(a.Keys) > 0 {
		if err := a.shareRoom(number); err != nil {
			return err
		}
	}
	if !a.by(expr.Stack) {
		return nil
	}
	if err := a.stacks.create(a.room()); err != nil {
		return err
	}
	a.Stacks = &bpfgen.Stacks{Present: a.stacks.present.FD(), Even: a.stacks.maps[0].FD(),
		Odd: a.stacks.maps[1].FD()}
	return nil
}

// shareRoom has programs share the room for keys out between owners.
func (a *aggregation) shareRoom(number int) (err error) {
	processors, err := ebpf.PossibleCPU()
	if err != nil {
		return err
	}
	if a.owners, err = ebpf.NewMap(&ebpf.MapSpec{
		Name:       fmt.Sprintf("trace_owners%d", number),
		Type:       ebpf.LRUHash,
		KeySize:    8,
		ValueSize:  bpfgen.OwnerKeysSize,
		MaxEntries: uint32(maxKeyOwners + heldBack*processors),
	}); err != nil {
		return err
	}
	a.Room = &bpfgen.Room{
		State: a.session.room.FD(), Index: uint32(number), Owners: a.owners.FD(),
		Filled: uint32(max(a.room()/2, 1)),
		Size:   uint32(a.room()),
		Share:  uint32(a.reserve() / keyShare),
		Signal: a.session.signal.FD(),
	}
	return nil
}

// createExchange makes the map that programs find the other one in, and a
// second one of that.
func (a *aggregation) createExchange(spec *ebpf.MapSpec) (err error) {
	if a.spare, err = newTally(spec); err != nil {
		return err
	}
	a.tally.emptied, a.spare.emptied = true, true
	// cilium/ebpf makes a third one, from which the kernel takes what kind of
	// map the others are. A hash table's size is not of that (Linux 5.10,
	// 134fede4eecf), and to make room for all keys takes milliseconds.
	kind := spec.Copy()
	if kind.Type == ebpf.PerCPUHash {
		kind.MaxEntries = 1
	}
	if a.current, err = ebpf.NewMap(&ebpf.MapSpec{
		Name:       "trace_current",
		Type:       ebpf.ArrayOfMaps,
		KeySize:    4,
		ValueSize:  4,
		MaxEntries: 1,
		InnerMap:   kind,
		Contents:   []ebpf.MapKV{{Key: uint32(0), Value: a.tally.Map}},
	}); err != nil {
		return err
	}
	a.Map = a.current.FD()
	return nil
}

// room returns how many keys the kernel has room for, whosever they are.
func (a *aggregation) room() int {
	return min(max(a.maxKeys/2, minRoom), maxRoom)
}

const (
	// keyShare is which part of the reserve an owner may have: eight that make
	// up keys without end leave something to others.
	keyShare = 9

	// maxKeyOwners is of how many owners it is known at a time how much of the
	// reserve they have; then those that have made no key for longest are
	// forgotten.
	maxKeyOwners = 1024
)

// reserve returns for how many keys there is room beside that: for owners that
// have made few.
func (a *aggregation) reserve() int { return max(a.room()/4, keyShare) }

// maps returns all maps of the aggregation; some are nil.
func (a *aggregation) maps() []*ebpf.Map {
	all := []*ebpf.Map{a.current, a.owners, a.stacks.present, a.stacks.maps[0], a.stacks.maps[1]}
	for _, t := range []*tally{a.tally, a.spare, a.overflow} {
		if t != nil {
			all = append(all, t.Map)
		}
	}
	return all
}

// by reports whether a key comes from this source.
func (a *aggregation) by(source expr.Source) bool {
	return slices.ContainsFunc(a.Keys, func(t expr.Term) bool { return t.Source == source })
}

// hasCompareExchange reports whether the kernel supports BPF_CMPXCHG. It loads
// a program that uses it.
func hasCompareExchange() (bool, error) {
	prog, err := ebpf.NewProgramWithOptions(&ebpf.ProgramSpec{
		Name: "trace_cmpxchg", Type: ebpf.Kprobe, License: license,
		Instructions: bpfgen.CompareExchangeProbe(),
	}, ebpf.ProgramOptions{LogDisabled: true})
	if err != nil {
		// An older kernel answers EINVAL, and ENOTSUPP (524) if its
		// just-in-time compiler does not support the operation.
		if errors.Is(err, unix.EINVAL) || errors.Is(err, errNotSupported) {
			return false, nil
		}
		return false, err
	}
	return true, prog.Close()
}

// errNotSupported is the kernel's ENOTSUPP, which is no error of POSIX and has
// no name in user space.
const errNotSupported = unix.Errno(524)

// nameTable numbers the texts that are keys. A number is never used for another
// text, because a map may contain it.
type nameTable struct {
	mu      sync.Mutex
	numbers map[string]uint32
	names   []string
}

func (t *nameTable) number(name string) uint32 {
	t.mu.Lock()
	defer t.mu.Unlock()
	n, ok := t.numbers[name]
	if !ok {
		if t.numbers == nil {
			t.numbers = make(map[string]uint32)
		}
		n = uint32(len(t.names))
		t.numbers[name] = n
		t.names = append(t.names, name)
	}
	return n
}

func (t *nameTable) name(number uint64) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if number >= uint64(len(t.names)) {
		return ""
	}
	return t.names[number]
}
