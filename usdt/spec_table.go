// SPDX-License-Identifier: BSD-2-Clause

package usdt

import (
	"fmt"
	"sync"

	"github.com/cilium/ebpf"

	"github.com/gousdt/gousdt/argspec"
)

// A specTable hands out the entries of the spec map. Equal specs share an entry, for as long as any link uses it.
type specTable struct {
	specs *ebpf.Map

	mu     sync.Mutex
	used   map[argspec.Spec]*sharedSpec
	free   []uint32 // IDs given back
	next   uint32   // the lowest ID never handed out
	closed bool
}

type sharedSpec struct {
	id   uint32
	refs int
}

// firstSpecID leaves out 0, which a program finds as its cookie where it has been attached without a Manager: the header
// takes that for no spec at all.
const firstSpecID = 1

func newSpecTable(specs *ebpf.Map) *specTable {
	return &specTable{specs: specs, used: make(map[argspec.Spec]*sharedSpec), next: firstSpecID}
}

// capacity is how many specs the map holds.
func (t *specTable) capacity() int { return int(t.specs.MaxEntries()) - firstSpecID }

// acquire returns the ID of each spec, after the map holds them all. On an error nothing is held. Each acquired spec
// is to be released once.
func (t *specTable) acquire(specs []argspec.Spec) ([]uint32, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, fmt.Errorf("spec map: %w", ErrClosed)
	}

	needed := make(map[argspec.Spec]struct{})
	for _, spec := range specs {
		if t.used[spec] == nil {
			needed[spec] = struct{}{}
		}
	}
	if capacity := t.capacity(); len(t.used)+len(needed) > capacity {
		return nil, &SpecsFullError{Capacity: capacity, InUse: len(t.used), Needed: len(needed)}
	}

	ids := make([]uint32, 0, len(specs))
	for _, spec := range specs {
		shared := t.used[spec]
		if shared == nil {
			id := t.takeID()
			if err := t.specs.Put(id, spec[:]); err != nil {
				t.free = append(t.free, id)
				t.releaseLocked(specs[:len(ids)])
				return nil, explain("writing the spec map", err)
			}
			shared = &sharedSpec{id: id}
			t.used[spec] = shared
		}
		shared.refs++
		ids = append(ids, shared.id)
	}
	return ids, nil
}

// release gives back what acquire took. No program may run with these IDs any more.
func (t *specTable) release(specs []argspec.Spec) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.releaseLocked(specs)
}

func (t *specTable) releaseLocked(specs []argspec.Spec) {
	for _, spec := range specs {
		shared := t.used[spec]
		if shared.refs--; shared.refs == 0 {
			delete(t.used, spec)
			t.free = append(t.free, shared.id)
		}
	}
}

func (t *specTable) takeID() uint32 {
	if n := len(t.free); n > 0 {
		id := t.free[n-1]
		t.free = t.free[:n-1]
		return id
	}
	id := t.next
	t.next++
	return id
}

// close releases the map. Nothing can be acquired any more.
func (t *specTable) close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	return t.specs.Close()
}

// inUse returns the number of entries that links hold.
func (t *specTable) inUse() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.used)
}

// An addressTable keeps the map from instruction pointers to spec IDs, which a program uses that has no BPF cookie.
type addressTable struct {
	addresses *ebpf.Map

	mu     sync.Mutex
	used   map[uint64]*sharedSpec
	closed bool
}

func newAddressTable(addresses *ebpf.Map) *addressTable {
	return &addressTable{addresses: addresses, used: make(map[uint64]*sharedSpec)}
}

// A siteAddress says which spec a program is to find at an instruction pointer.
type siteAddress struct {
	address uint64
	spec    uint32
}

// acquire enters addresses into the map. On an error nothing is entered.
func (t *addressTable) acquire(wanted []siteAddress) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return fmt.Errorf("address map: %w", ErrClosed)
	}

	needed := make(map[uint64]uint32)
	for _, w := range wanted {
		id, taken := needed[w.address]
		if shared := t.used[w.address]; shared != nil {
			id, taken = shared.id, true
		}
		if taken && id != w.spec {
			return &AddressInUseError{Address: w.address}
		}
		if t.used[w.address] == nil {
			needed[w.address] = w.spec
		}
	}
	if capacity := int(t.addresses.MaxEntries()); len(t.used)+len(needed) > capacity {
		return &AddressesFullError{Capacity: capacity, InUse: len(t.used), Needed: len(needed)}
	}

	for i, w := range wanted {
		shared := t.used[w.address]
		if shared == nil {
			if err := t.addresses.Put(w.address, w.spec); err != nil {
				t.releaseLocked(wanted[:i])
				return explain(fmt.Sprintf("writing address %#x into the address map", w.address), err)
			}
			shared = &sharedSpec{id: w.spec}
			t.used[w.address] = shared
		}
		shared.refs++
	}
	return nil
}

func (t *addressTable) release(given []siteAddress) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.releaseLocked(given)
}

func (t *addressTable) releaseLocked(given []siteAddress) {
	for _, g := range given {
		shared := t.used[g.address]
		if shared.refs--; shared.refs == 0 {
			delete(t.used, g.address)
			if t.closed {
				continue
			}
			// It can only fail where the entry has gone already, and then there is nothing left to do.
			_ = t.addresses.Delete(g.address)
		}
	}
}

// close releases the map. Nothing can be acquired any more.
func (t *addressTable) close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	return t.addresses.Close()
}

// id returns the kernel's number of the map.
func (t *specTable) id() (ebpf.MapID, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return 0, fmt.Errorf("spec map: %w", ErrClosed)
	}
	info, err := t.specs.Info()
	if err != nil {
		return 0, explain("asking the kernel for the spec map", err)
	}
	id, _ := info.ID()
	return id, nil
}
