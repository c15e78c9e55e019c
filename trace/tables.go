// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/cilium/ebpf"

	"github.com/gousdt/gousdt/trace/internal/bpfgen"
	"github.com/gousdt/gousdt/trace/internal/expr"
)

func (s *Session) createAggregations() (err error) {
	room, signal := bpfgen.None, bpfgen.None
	// With keys, programs count the room that is left, and signal when it is
	// little.
	if slices.ContainsFunc(s.aggregations, func(a *aggregation) bool { return len(a.Keys) > 0 }) {
		var signals *ebpf.Map
		s.room, room = s.newMap("trace_room", ebpf.Array, 4, bpfgen.RoomStateSize,
			2*len(s.aggregations))
		signals, signal = s.newMap("trace_signal", ebpf.RingBuf, 0, 0, os.Getpagesize())
		if signals != nil {
			if s.signals, err = newRingReader(signals); err != nil {
				return explain("mapping the map trace_signal", err)
			}
		}
	}
	for i, a := range s.aggregations {
		a.create(s, i, room, signal)
	}
	if slices.ContainsFunc(s.aggregations, func(a *aggregation) bool { return a.Min || a.Max }) {
		if s.plan.Kernel.CompareExchange, err = supports(bpfgen.CompareExchangeProbe()); err != nil {
			return explain("asking for atomic compare and exchange", err)
		}
	}
	return nil
}

func (a *aggregation) create(s *Session, number, room, signal int) {
	newTally := func(spec *ebpf.MapSpec) (*tally, int) {
		m, fd := s.newMapOf(spec)
		return &tally{Map: m, before: make(map[string]sums)}, fd
	}
	spec := mapSpec(fmt.Sprintf("trace_rows%d", number), ebpf.PerCPUArray, 4, a.ValueSize(),
		a.Entries())
	if len(a.Keys) > 0 {
		a.overflow, a.Overflow = newTally(spec)
		_, size := a.KeyLayout()
		spec = mapSpec(spec.Name, ebpf.PerCPUHash, size, a.ValueSize(), a.room()+a.reserve())
		_, owners := s.newMap(fmt.Sprintf("trace_owners%d", number), ebpf.LRUHash, 8,
			bpfgen.OwnerKeysSize, maxKeyOwners+heldBack*s.cpus)
		a.Room = &bpfgen.Room{
			State: room, Index: uint32(number), Owners: owners,
			Filled: uint32(max(a.room()/2, 1)),
			Size:   uint32(a.room()),
			Share:  uint32(a.reserve() / keyShare),
			Signal: signal,
		}
	}
	a.tally, a.Map = newTally(spec)
	// A map with keys, minima or maxima is exchanged for another one when it is
	// read. From sums and counts, the last ones can be subtracted.
	if a.Exchanged = len(a.Keys) > 0 || a.Min || a.Max; a.Exchanged {
		a.spare, _ = newTally(spec)
		a.tally.emptied, a.spare.emptied = true, true
		// cilium/ebpf makes a third map, to tell the kernel the kind of the
		// others. The size of a hash table is no part of that (Linux 5.10,
		// 134fede4eecf), and to make room for all keys takes milliseconds.
		kind := spec.Copy()
		if kind.Type == ebpf.PerCPUHash {
			kind.MaxEntries = 1
		}
		current := mapSpec("trace_current", ebpf.ArrayOfMaps, 4, 4, 1)
		current.InnerMap = kind
		current.Contents = []ebpf.MapKV{{Key: uint32(0), Value: a.tally.Map}}
		a.current, a.Map = s.newMapOf(current)
	}
	if a.by(expr.Stack) {
		k := &a.stacks
		k.removed = make(map[uint32]map[uint32][]uint64)
		a.Stacks = &bpfgen.Stacks{}
		for i, fd := range []*int{&a.Stacks.Even, &a.Stacks.Odd} {
			k.maps[i], *fd = s.newMap("trace_stacks", ebpf.StackTrace, 4, 8*maxStackDepth, a.room())
		}
		k.present, a.Stacks.Present = s.newMap("trace_present", ebpf.Array, 4, 8, 1)
	}
}

// room returns the number of keys that the kernel has room for, of all owners.
func (a *aggregation) room() int { return min(max(a.maxKeys/2, minRoom), maxRoom) }

const (
	// keyShare divides the reserve: an owner may have a ninth. Eight owners
	// that make up keys without end leave a ninth to others.
	keyShare = 9

	// maxKeyOwners is the number of owners whose part of the reserve is known.
	// If there are more, those that have made no key for longest are forgotten.
	maxKeyOwners = 1024
)

// reserve returns the number of further keys that there is room for, of owners
// that have made few.
func (a *aggregation) reserve() int { return max(a.room()/4, keyShare) }

func (a *aggregation) by(source expr.Source) bool {
	return slices.ContainsFunc(a.Keys, func(t expr.Term) bool { return t.Source == source })
}

// nameTable numbers the texts that are keys, for good: a map may have a number.
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

// takeKeys takes keys from the kernel whenever programs say that there is
// little room for more, until the session is closed.
func (s *Session) takeKeys() {
	if !s.signals.use() {
		return
	}
	defer s.signals.done()
	for {
		for s.signals.refill() {
			for record, ok := s.signals.next(); ok; record, ok = s.signals.next() {
				a := s.aggregations[binary.NativeEndian.Uint32(record)] // its number
				if err := s.use(a.takeIfFilled); err != nil && !errors.Is(err, os.ErrClosed) {
					a.fail(err)
				}
			}
		}
		if err := s.signals.wait(time.Time{}); errors.Is(err, os.ErrClosed) {
			return
		} else if err != nil {
			// Only snapshots take keys from now on. The next has the error.
			for _, a := range s.aggregations {
				a.fail(err)
			}
			return
		}
	}
}

// takeIfFilled takes keys unless they were taken since the signal was sent.
func (a *aggregation) takeIfFilled() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	made, err := a.keysMade()
	if err == nil && made-a.taken >= uint64(a.Room.Filled) {
		_, err = a.take()
	}
	return err
}

func (a *aggregation) fail(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.failed = err
}

// keysMade returns the number of keys that programs have made outside of the
// reserve.
func (a *aggregation) keysMade() (uint64, error) {
	var state bpfgen.RoomState
	err := a.session.room.Lookup(a.Room.Made(), &state)
	return state.Keys, err
}

// endAggregations ends all aggregations now. The kernel detaches one site after
// the other, and hits meanwhile would make the last sites look more frequent.
func (s *Session) endAggregations() {
	_ = s.use(func() error {
		var wait sync.WaitGroup
		for _, a := range s.aggregations {
			wait.Go(func() {
				a.mu.Lock()
				defer a.mu.Unlock()
				if now, err := a.take(); err == nil { // the next snapshot tries again
					a.ended = now
				}
			})
		}
		wait.Wait()
		return nil
	})
}

// takeSites is called between detaching sites and freeing their numbers. The
// rows of aggregations by site refer to the sites themselves then.
func (s *Session) takeSites() {
	_ = s.use(func() error {
		for _, a := range s.aggregations {
			if a.by(expr.Site) {
				a.mu.Lock()
				_, err := a.take()
				a.mu.Unlock()
				if err != nil {
					s.mu.Lock()
					s.keepSites = true
					s.mu.Unlock()
				}
			}
		}
		return nil
	})
}

// take brings the totals up to a moment, which it returns. a.mu must be held.
func (a *aggregation) take() (time.Time, error) {
	if !a.ended.IsZero() {
		return a.ended, nil
	}
	now := time.Now()
	filled := a.tally
	if a.Exchanged {
		var keys uint64
		if a.Room != nil {
			var err error
			if keys, err = a.keysMade(); err != nil {
				return now, err
			}
		}
		if a.Stacks != nil {
			if err := a.stacks.begin(); err != nil {
				return now, err
			}
		}
		// The kernel returns when no program uses the other map any more: it
		// waits for those that run (kernel commit 1ae80cf31938, Linux 5.0),
		// except for those that may sleep.
		if err := a.current.Put(uint32(0), a.spare.Map); err != nil {
			return now, err
		}
		a.tally, a.spare = a.spare, a.tally
		if a.Room != nil {
			// Keys that were made later still need room.
			a.taken = keys
			a.round++
			if err := a.session.room.Put(a.Room.Taken(),
				bpfgen.RoomState{Keys: keys, Round: a.round}); err != nil {
				return now, err
			}
		}
		if a.Stacks != nil {
			if err := a.stacks.end(); err != nil {
				return now, err
			}
		}
	}
	known := make(map[string]*total)
	var failed error
	err := filled.read(a, func(key []byte, added sums) {
		t, err := a.totalOf(key, known)
		failed = cmp.Or(err, failed)
		a.totals.give(t, added.owner)
		a.addTo(t, index(key), added)
	})
	if a.overflow != nil && err == nil {
		err = a.overflow.read(a, func(key []byte, added sums) {
			a.totals.overflow += added.count
			a.addTo(&a.totals.other, index(key), added)
		})
	}
	return now, errors.Join(err, failed)
}

// keyStacks are the stacks that are keys of an aggregation. Of stacks with the
// same hash the kernel keeps the first. So stacks are removed whenever keys are
// taken: then a generation begins, whose stacks are in the other one of two
// maps. A key has the number of its generation beside that of its stack.
type keyStacks struct {
	maps    [2]*ebpf.Map // of even and of odd generations
	present *ebpf.Map    // an array, whose only element is the generation
	now     uint32       // the generation

	// removed are the stacks of the two generations before, by their numbers.
	// The last keys of a generation come with those of the next.
	removed map[uint32]map[uint32][]uint64
}

// following returns the generation after another. A key has 31 bits for it.
func following(generation uint32) uint32 { return (generation + 1) & math.MaxInt32 }

// begin tells programs to begin the next generation. Until all have seen that,
// there are keys of both.
func (s *keyStacks) begin() error { return s.present.Put(uint32(0), uint64(following(s.now))) }

// end ends the generation before the one that begin has begun. No program that
// has seen it may run any more.
func (s *keyStacks) end() error {
	ended := s.now
	s.now = following(ended)
	stacks, err := removeStacks(s.maps[ended&1])
	maps.DeleteFunc(s.removed, func(generation uint32, _ map[uint32][]uint64) bool {
		return following(generation) != ended
	})
	s.removed[ended] = stacks
	return err
}

func removeStacks(from *ebpf.Map) (map[uint32][]uint64, error) {
	stacks := make(map[uint32][]uint64)
	var id uint32
	var addresses [maxStackDepth]uint64
	all := from.Iterate()
	for all.Next(&id, &addresses) {
		stacks[id] = cutStack(addresses[:])
	}
	err := all.Err()
	for id := range stacks {
		err = cmp.Or(err, ignoreMissing(from.Delete(id)))
	}
	return stacks, err
}

func (s *keyStacks) of(key uint64) ([]uint64, error) {
	id, generation := uint32(key), uint32(key>>32)
	if stacks, ok := s.removed[generation]; ok {
		return stacks[id], nil
	}
	if generation != s.now && generation != following(s.now) {
		return nil, nil
	}
	var addresses [maxStackDepth]uint64
	if err := ignoreMissing(s.maps[generation&1].Lookup(id, &addresses)); err != nil {
		return nil, err
	}
	return cutStack(addresses[:]), nil
}

// cutStack returns a copy of a stack that ends with zeros.
func cutStack(addresses []uint64) []uint64 {
	if end := slices.Index(addresses, 0); end >= 0 {
		addresses = addresses[:end]
	}
	return slices.Clone(addresses)
}

// A tally is a map of the kernel in which programs add up hits, for each
// processor.
type tally struct {
	*ebpf.Map

	// emptied reports whether reading the map empties it. No program may add to
	// it meanwhile.
	emptied bool

	// before has the last sums of each key of a map that is not emptied.
	before map[string]sums
}

type sums struct {
	count, sum, upper uint64 // see bpfgen.Aggregation
	// As programs keep them: the greater of two numbers is the lesser minimum,
	// or the greater maximum; 0 is none.
	min, max uint64
	owner    uint64 // of the hit that has made the key, 0 without keys
}

func (a *aggregation) addsFloats(key []byte) bool {
	return a.Sum && a.Histogram == nil &&
		bpfgen.Class(binary.NativeEndian.Uint32(key[len(key)-4:])) >= bpfgen.ClassFloat32
}

// plusFloat returns the bits of the sum of two floats, given by their bits.
func plusFloat(a, b uint64) uint64 {
	return math.Float64bits(math.Float64frombits(a) + math.Float64frombits(b))
}

// add adds the value of one processor.
func (s *sums) add(a *aggregation, value []byte, floats bool) {
	word := func() uint64 {
		w := binary.NativeEndian.Uint64(value)
		value = value[8:]
		return w
	}
	s.count += word()
	switch {
	case floats:
		s.sum = plusFloat(s.sum, word())
		word()
	case a.Sum:
		s.sum += word()
		s.upper += word()
	}
	if a.Min {
		s.min = max(s.min, word())
	}
	if a.Max {
		s.max = max(s.max, word())
	}
	if len(a.Keys) > 0 {
		s.owner = max(s.owner, word()) // it is 0 on all processors but one
	}
}

// read calls a function for each key with the sums since the last call.
// Programs may add to a map meanwhile that is not emptied. Its keys may come
// twice, if others make the iteration start again.
func (t *tally) read(a *aggregation, do func(key []byte, added sums)) error {
	if t.emptied && t.Type() == ebpf.PerCPUHash {
		return t.takeAll(a, do)
	}
	zeros := make([][]byte, a.session.cpus)
	for i := range zeros {
		zeros[i] = make([]byte, t.ValueSize())
	}
	var key []byte
	var processors [][]byte
	iterator := t.Iterate()
	for iterator.Next(&key, &processors) {
		var all sums
		floats := a.addsFloats(key)
		for _, p := range processors {
			all.add(a, p, floats)
		}
		added, before := all, t.before[string(key)]
		added.count -= before.count
		switch {
		case !floats:
			added.sum -= before.sum
			added.upper -= before.upper
		case !math.IsInf(math.Float64frombits(all.sum), 0): // else all remains so
			added.sum = plusFloat(all.sum, before.sum^1<<63)
		}
		if added.count == 0 && added.sum == 0 { // a sum may come later than its count
			continue
		}
		if !t.emptied {
			t.before[string(key)] = all
		} else if err := t.Put(key, zeros); err != nil {
			return err
		}
		do(key, added)
	}
	return iterator.Err()
}

// batch is the number of keys that one call takes. The kernel takes those of a
// bucket of its hash table together, and there are rarely more than ten.
const batch = 1024

func (t *tally) takeAll(a *aggregation, do func([]byte, sums)) error {
	size := int(t.ValueSize())
	processors := a.session.cpus
	keys := reflect.MakeSlice(reflect.SliceOf(reflect.ArrayOf(int(t.KeySize()),
		reflect.TypeFor[byte]())), batch, batch)
	values := make([]byte, batch*processors*size)
	var cursor ebpf.MapBatchCursor
	for {
		n, err := t.BatchLookupAndDelete(&cursor, keys.Interface(), values, nil)
		if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return err
		}
		for i := range n {
			var s sums
			key := keys.Index(i).Bytes()
			for p := range processors {
				s.add(a, values[(i*processors+p)*size:][:size], a.addsFloats(key))
			}
			do(key, s)
		}
		if err != nil {
			return nil // the last keys
		}
	}
}
