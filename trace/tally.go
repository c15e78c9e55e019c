// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"encoding/binary"
	"errors"
	"reflect"

	"github.com/cilium/ebpf"
)

// A tally is a map of the kernel in which programs add up hits, for each
// processor.
type tally struct {
	*ebpf.Map

	// emptied: reading it removes what is read. No program may add to it then.
	emptied bool

	// before is what has been read of each key, where it is not emptied.
	before map[string]sums
}

// sums are what programs have kept of some hits.
type sums struct {
	count, sum uint64
	// As programs keep them: the greater is the lesser minimum and the greater
	// maximum, 0 is none.
	min, max uint64
	owner    uint64 // of the hit that has made the key, 0 without keys
}

// empty reports whether there is nothing to be added. A sum may come later than
// its count.
func (s sums) empty() bool { return s.count == 0 && s.sum == 0 }

func newTally(spec *ebpf.MapSpec) (*tally, error) {
	m, err := ebpf.NewMap(spec)
	if err != nil {
		return nil, err
	}
	return &tally{Map: m, before: make(map[string]sums)}, nil
}

// read calls a function for each key with what has been added since the last
// call.
func (t *tally) read(a *aggregation, do func(key []byte, added sums)) error {
	switch {
	case !t.emptied:
		return t.readSince(a, do)
	case t.Type() == ebpf.PerCPUHash:
		return t.takeAll(a, do)
	default:
		return t.takeArray(a, do)
	}
}

// add adds what one processor has.
func (s *sums) add(a *aggregation, value []byte) {
	word := func() uint64 {
		w := binary.NativeEndian.Uint64(value)
		value = value[8:]
		return w
	}
	s.count += word()
	if a.Sum {
		s.sum += word()
	}
	if a.Min {
		s.min = max(s.min, word())
	}
	if a.Max {
		s.max = max(s.max, word())
	}
	if len(a.Keys) > 0 {
		s.owner = max(s.owner, word()) // it is 0 but on one processor
	}
}

// each calls a function for every key.
func (t *tally) each(a *aggregation, do func(key []byte, all sums) error) error {
	var key []byte
	var processors [][]byte
	iterator := t.Iterate()
	for iterator.Next(&key, &processors) {
		var s sums
		for _, p := range processors {
			s.add(a, p)
		}
		if err := do(key, s); err != nil {
			return err
		}
	}
	return iterator.Err()
}

// readSince reads a map to which programs add meanwhile. Keys that come
// meanwhile may make the iteration start again, so a key may come twice.
func (t *tally) readSince(a *aggregation, do func([]byte, sums)) error {
	return t.each(a, func(key []byte, all sums) error {
		added, before := all, t.before[string(key)]
		added.count -= before.count
		added.sum -= before.sum
		if added.empty() {
			return nil
		}
		t.before[string(key)] = all
		do(key, added)
		return nil
	})
}

func (t *tally) takeArray(a *aggregation, do func([]byte, sums)) error {
	zeros := make([][]byte, ebpf.MustPossibleCPU())
	for i := range zeros {
		zeros[i] = make([]byte, t.ValueSize())
	}
	return t.each(a, func(key []byte, all sums) error {
		if all.empty() {
			return nil
		}
		if err := t.Put(key, zeros); err != nil {
			return err
		}
		do(key, all)
		return nil
	})
}

// batch is how many keys are taken by one call. The kernel takes those of a
// bucket of its hash table together, and there are rarely more than ten.
const batch = 1024

// takeAll takes all keys of a hash map.
func (t *tally) takeAll(a *aggregation, do func([]byte, sums)) error {
	size := int(t.ValueSize())
	processors := ebpf.MustPossibleCPU()
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
			for p := range processors {
				s.add(a, values[(i*processors+p)*size:][:size])
			}
			do(keys.Index(i).Bytes(), s)
		}
		if err != nil {
			return nil // the last keys
		}
	}
}
