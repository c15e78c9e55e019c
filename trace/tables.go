// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
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
	if len(s.aggregations) > 0 {
		s.plan.Generations = s.createGenerations()
	}
	now := time.Now()
	for i, a := range s.aggregations {
		a.session, a.started = s, now
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
	array, descriptor := s.newMap(fmt.Sprintf("trace_rows%d", number), ebpf.PerCPUArray, 4,
		a.ValueSize(), 2*a.Entries())
	a.array, a.Map = array, descriptor
	if len(a.Keys) > 0 {
		a.Overflow = descriptor
		spec := mapSpec("trace_keys", ebpf.PerCPUHash, a.keySize, a.ValueSize(), a.room()+a.reserve())
		both := mapSpec("trace_both", ebpf.ArrayOfMaps, 4, 4, 2)
		for i := range a.rows {
			a.rows[i], _ = s.newMapOf(spec)
			both.Contents = append(both.Contents, ebpf.MapKV{Key: uint32(i), Value: a.rows[i]})
		}
		// cilium/ebpf makes a third map, to tell the kernel the kind of the
		// others. The size of a hash table is no part of that (Linux 5.10,
		// 134fede4eecf), and to make room for all keys takes milliseconds.
		both.InnerMap = spec.Copy()
		both.InnerMap.MaxEntries = 1
		_, a.Map = s.newMapOf(both)
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
	if a.by(expr.Stack) {
		for i := range a.stacks {
			a.stacks[i], a.Stacks[i] = s.newMap("trace_stacks", ebpf.StackTrace, 4, 8*maxStackDepth,
				a.room())
		}
	}
}

// generations tell programs to which maps of each aggregation they add, see
// bpfgen.Plan.
type generations struct {
	mu      sync.Mutex
	word    uint64
	words   [2]*ebpf.Map // arrays of a word
	used    int          // which of them programs read
	current *ebpf.Map    // has it
}

func (s *Session) createGenerations() (descriptor int) {
	g := &s.generations
	spec := mapSpec("trace_word", ebpf.Array, 4, 8, 1)
	for i := range g.words {
		g.words[i], _ = s.newMapOf(spec)
	}
	current := mapSpec("trace_current", ebpf.ArrayOfMaps, 4, 4, 1)
	current.InnerMap = spec
	current.Contents = []ebpf.MapKV{{Key: uint32(0), Value: g.words[0]}}
	g.current, descriptor = s.newMapOf(current)
	return descriptor
}

// flip turns bits of the word over, at one moment for all programs, which it
// returns, when none that began before is running any more.
func (g *generations) flip(bits uint64) (moment time.Time, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	next := 1 - g.used
	if err := g.words[next].Put(uint32(0), g.word^bits); err != nil {
		return time.Time{}, err
	}
	// Not after it: the kernel changes it first, and waits for long.
	moment = time.Now()
	// The kernel waits for the programs that run (kernel commit 1ae80cf31938,
	// Linux 5.0), except for those that may sleep.
	if err := g.current.Put(uint32(0), g.words[next]); err != nil {
		return time.Time{}, err
	}
	g.word, g.used = g.word^bits, next
	return moment, nil
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
		if err := s.signals.wait(time.Time{}, false); errors.Is(err, os.ErrClosed) {
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
	locked, unlock := a.session.lock(a)
	defer unlock()
	made, err := a.keysMade()
	if err == nil && made-a.taken >= uint64(a.Room.Filled) {
		err = a.session.take(locked)
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
		locked, unlock := s.lock(s.aggregations...)
		defer unlock()
		err := s.take(locked)
		for _, a := range locked {
			a.ended = err == nil // else the next snapshot tries again
		}
		return nil
	})
}

// takeSites is called between detaching sites and freeing their numbers. The
// rows of aggregations by site refer to the sites themselves then.
func (s *Session) takeSites() {
	_ = s.use(func() error {
		locked, unlock := s.lock(slices.DeleteFunc(slices.Clone(s.aggregations),
			func(a *aggregation) bool { return !a.by(expr.Site) })...)
		defer unlock()
		if s.take(locked) != nil {
			s.sites.keep()
		}
		return nil
	})
}

// lock locks aggregations in the order of their numbers, and those with the
// same bits.
func (s *Session) lock(some ...*aggregation) (locked []*aggregation, unlock func()) {
	bits := bitsOf(some)
	for _, a := range s.aggregations {
		if bits>>a.Bit&1 != 0 {
			a.mu.Lock()
			locked = append(locked, a)
		}
	}
	return locked, func() {
		for _, a := range locked {
			a.mu.Unlock()
		}
	}
}

func bitsOf(some []*aggregation) (bits uint64) {
	for _, a := range some {
		bits |= 1 << a.Bit
	}
	return bits
}

// take brings the totals of aggregations up to one moment, unless they have
// ended. They are those that lock returns.
func (s *Session) take(locked []*aggregation) error {
	locked = slices.DeleteFunc(slices.Clone(locked), func(a *aggregation) bool { return a.ended })
	if len(locked) == 0 {
		return nil
	}
	keys := make([]uint64, len(locked))
	for i, a := range locked {
		if a.left {
			if err := a.drain(); err != nil {
				return err
			}
		}
		if a.Room != nil {
			var err error
			if keys[i], err = a.keysMade(); err != nil {
				return err
			}
		}
	}
	now, err := s.generations.flip(bitsOf(locked))
	if err != nil {
		return err
	}
	var errs []error
	for i, a := range locked {
		a.used, a.left, a.moment = 1-a.used, true, now
		if a.Room != nil {
			// Keys that were made later still need room.
			a.taken = keys[i]
			a.round++
			errs = append(errs, s.room.Put(a.Room.Taken(),
				bpfgen.RoomState{Keys: a.taken, Round: a.round}))
		}
		errs = append(errs, a.drain())
	}
	return errors.Join(errs...)
}

// drain adds to the totals what is in the maps that no program uses, and
// empties them.
func (a *aggregation) drain() error {
	other := 1 - a.used
	if stacks := a.stacks[other]; stacks != nil {
		if err := a.removeStacks(stacks); err != nil {
			return err
		}
	}
	known := make(map[string]*total)
	if len(a.Keys) == 0 {
		err := a.readArray(other, a.totalOf(make([]byte, 4), known))
		a.left = err != nil
		return err
	}
	err := a.takeAll(a.rows[other], func(key []byte, added sums) {
		t := a.totalOf(key, known)
		a.totals.give(t, added.owner)
		a.addTo(t, index(key), added)
	})
	if before := a.totals.other.Count; err == nil {
		err = a.readArray(other, &a.totals.other)
		a.totals.overflow += a.totals.other.Count - before
	}
	if err == nil {
		a.left, a.removed = false, nil
	}
	return err
}

// removeStacks takes the stacks out of a map. Of stacks with the same hash the
// kernel keeps the first.
func (a *aggregation) removeStacks(from *ebpf.Map) error {
	if a.removed == nil {
		a.removed = make(map[uint32][]uint64)
	}
	var id uint32
	var addresses [maxStackDepth]uint64
	var ids []uint32
	all := from.Iterate()
	for all.Next(&id, &addresses) {
		stack, end := addresses[:], slices.Index(addresses[:], 0)
		if end >= 0 {
			stack = stack[:end]
		}
		a.removed[id] = slices.Clone(stack)
		ids = append(ids, id)
	}
	err := all.Err()
	for _, id := range ids {
		err = cmp.Or(err, ignoreMissing(from.Delete(id)))
	}
	return err
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

func (s *sums) add(a *aggregation, value []byte, floats bool) {
	word := func() uint64 {
		w := binary.NativeEndian.Uint64(value)
		value = value[8:]
		return w
	}
	s.count += word()
	switch {
	case floats:
		s.sum = math.Float64bits(math.Float64frombits(s.sum) + math.Float64frombits(word()))
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

func (a *aggregation) readArray(half int, t *total) error {
	zeros := make([][]byte, a.session.cpus)
	for i := range zeros {
		zeros[i] = make([]byte, a.ValueSize())
	}
	key := make([]byte, 4)
	for i := range a.Entries() {
		var processors [][]byte
		number := uint32(half*a.Entries() + i)
		if err := a.array.Lookup(number, &processors); err != nil {
			return err
		}
		var added sums
		binary.NativeEndian.PutUint32(key, uint32(i))
		for _, p := range processors {
			added.add(a, p, a.addsFloats(key))
		}
		if added.count == 0 {
			continue
		}
		if err := a.array.Put(number, zeros); err != nil {
			return err
		}
		a.addTo(t, i, added)
	}
	return nil
}

// batch is the number of keys that one call takes. The kernel takes those of a
// bucket of its hash table together, and there are rarely more than ten.
const batch = 1024

func (a *aggregation) takeAll(m *ebpf.Map, do func([]byte, sums)) error {
	size := int(m.ValueSize())
	processors := a.session.cpus
	keys := reflect.MakeSlice(reflect.SliceOf(reflect.ArrayOf(int(m.KeySize()),
		reflect.TypeFor[byte]())), batch, batch)
	values := make([]byte, batch*processors*size)
	var cursor ebpf.MapBatchCursor
	for {
		n, err := m.BatchLookupAndDelete(&cursor, keys.Interface(), values, nil)
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
