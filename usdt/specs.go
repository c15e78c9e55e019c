// SPDX-License-Identifier: BSD-2-Clause

package usdt

import (
	"debug/elf"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"

	"github.com/cilium/ebpf"

	"github.com/gousdt/gousdt/internal/follow"
	"github.com/gousdt/gousdt/internal/procfs"
	"github.com/gousdt/gousdt/internal/procwatch"
	"github.com/gousdt/gousdt/internal/sys"
	"github.com/gousdt/gousdt/usdt/internal/sitespec"
)

// A specTable hands out the entries of the spec map. Equal specs share an
// entry, for as long as any link uses it.
type specTable struct {
	specs  *ebpf.Map
	layout sitespec.Layout

	mu     sync.Mutex
	used   map[string]*sharedSpec // by the spec
	free   []uint32               // IDs given back
	next   uint32                 // the lowest ID never handed out
	closed bool

	oneByOne bool // the kernel cannot write several specs by one call
}

type sharedSpec struct {
	spec string
	id   uint32
	refs int
}

// firstSpecID is not 0, because that is the cookie of a program that was
// attached without a Manager. The header knows that 0 is no spec.
const firstSpecID = 1

func newSpecTable(specs *ebpf.Map, layout sitespec.Layout) *specTable {
	return &specTable{specs: specs, layout: layout, used: make(map[string]*sharedSpec),
		next: firstSpecID}
}

// capacity is how many specs the map holds.
func (t *specTable) capacity() int { return int(t.specs.MaxEntries()) - firstSpecID }

// acquire returns each spec with its ID, after the map holds them all. specs
// holds one spec after the other. On an error nothing is held. Each acquired
// spec is to be released once.
func (t *specTable) acquire(specs []byte) ([]*sharedSpec, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, sys.ClosedError("manager")
	}

	size := t.layout.Size()
	acquired := make([]*sharedSpec, 0, len(specs)/size)
	var fresh []*sharedSpec
	for spec := range slices.Chunk(specs, size) {
		shared := t.used[string(spec)]
		if shared == nil {
			shared = &sharedSpec{spec: string(spec)}
			fresh = append(fresh, shared)
			t.used[shared.spec] = shared
		}
		shared.refs++
		acquired = append(acquired, shared)
	}
	if err := t.enter(fresh); err != nil {
		t.releaseLocked(acquired)
		return nil, err
	}
	return acquired, nil
}

// enter gives new specs their IDs and writes them into the map.
func (t *specTable) enter(fresh []*sharedSpec) error {
	if len(fresh) == 0 {
		return nil
	}
	if capacity := t.capacity(); len(t.used) > capacity {
		return &follow.LimitError{Limit: "specs", Option: "ManagerOptions.MaxSpecs",
			Capacity: capacity, InUse: len(t.used) - len(fresh), Needed: len(fresh)}
	}
	for _, shared := range fresh {
		shared.id = t.takeID()
	}
	return t.write(fresh)
}

// write writes specs into the map: several by one call where the kernel can
// (Linux 5.6, kernel commit c60f2d286177), for each call takes a microsecond.
func (t *specTable) write(specs []*sharedSpec) error {
	if !t.oneByOne && len(specs) > 1 {
		ids := make([]uint32, len(specs))
		// A slice of arrays of the size of a spec.
		array := reflect.ArrayOf(t.layout.Size(), reflect.TypeFor[byte]())
		values := reflect.MakeSlice(reflect.SliceOf(array), len(specs), len(specs))
		for i, shared := range specs {
			ids[i] = shared.id
			copy(values.Index(i).Bytes(), shared.spec)
		}
		_, err := t.specs.BatchUpdate(ids, values.Interface(), nil)
		if err == nil {
			return nil
		}
		if !errors.Is(err, ebpf.ErrNotSupported) {
			return follow.Explain("writing the spec map", err)
		}
		t.oneByOne = true
	}
	for _, shared := range specs {
		if err := t.specs.Put(shared.id, []byte(shared.spec)); err != nil {
			return follow.Explain("writing the spec map", err)
		}
	}
	return nil
}

// release gives back what acquire took. No program may run with these IDs any
// more.
func (t *specTable) release(acquired []*sharedSpec) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.releaseLocked(acquired)
}

func (t *specTable) releaseLocked(acquired []*sharedSpec) {
	for _, shared := range acquired {
		if shared.refs--; shared.refs == 0 {
			delete(t.used, shared.spec)
			if shared.id != 0 { // it may have got none
				t.free = append(t.free, shared.id)
			}
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

// An addressTable keeps the map from instruction pointers to spec IDs, which a
// program uses that has no BPF cookie.
type addressTable struct {
	addresses *ebpf.Map

	mu     sync.Mutex
	used   map[uint64]*sharedAddress
	closed bool
}

type sharedAddress struct {
	spec uint32
	refs int
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
		return sys.ClosedError("manager")
	}

	needed := make(map[uint64]uint32)
	for _, w := range wanted {
		id, taken := needed[w.address]
		if shared := t.used[w.address]; shared != nil {
			id, taken = shared.spec, true
		}
		if taken && id != w.spec {
			return fmt.Errorf("address %#x is %w", w.address, errAddressInUse)
		}
		if t.used[w.address] == nil {
			needed[w.address] = w.spec
		}
	}
	if capacity := int(t.addresses.MaxEntries()); len(t.used)+len(needed) > capacity {
		return &follow.LimitError{Limit: "addresses", Option: "ManagerOptions.MaxSpecs",
			Capacity: capacity, InUse: len(t.used), Needed: len(needed)}
	}

	for i, w := range wanted {
		shared := t.used[w.address]
		if shared == nil {
			if err := t.addresses.Put(w.address, w.spec); err != nil {
				t.releaseLocked(wanted[:i])
				return follow.Explain(fmt.Sprintf("writing address %#x into the address map", w.address),
					err)
			}
			shared = &sharedAddress{spec: w.spec}
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
			// It can only fail where the entry has gone already, and then there
			// is nothing left to do.
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
		return 0, sys.ClosedError("manager")
	}
	info, err := t.specs.Info()
	if err != nil {
		return 0, follow.Explain("asking the kernel for the spec map", err)
	}
	id, _ := info.ID()
	return id, nil
}

// addresses returns for each site the addresses at which the selection's
// process, or every process, passes it: what a program finds in the instruction
// pointer. There is one for an ET_EXEC, which runs where it was linked for. A
// library or position-independent program needs a PID; there may be several
// addresses where the process has mapped it more than once.
func (s *Selection) addresses() ([][]uint64, error) {
	s.opened.mu.RLock()
	defer s.opened.mu.RUnlock()
	if s.opened.closed {
		return nil, sys.ClosedError("selection")
	}
	all := make([][]uint64, s.Len())
	if s.opened.elf.Header().Type == elf.ET_EXEC {
		for i := range s.sites {
			all[i] = []uint64{s.sites[i].Instruction}
		}
		return all, nil
	}
	if s.pid == 0 {
		return nil, fmt.Errorf("%s: %w", s.opened.name, &sys.UnsupportedError{
			Feature: "BPF cookies on uprobes", Since: "5.15",
			Hint: "without them a library or position-independent program can be attached for one PID only"})
	}

	files, err := procwatch.Files(procfs.NewFS(""), s.pid)
	if err != nil && len(files) == 0 {
		return nil, explainProcess(s.pid, err)
	}
	want, err := procwatch.IdentifyFile(s.opened.elf.OSFile())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.opened.name, err)
	}
	mapped := false
	for _, file := range files {
		if got, err := file.ID(); err != nil || !got.MayBe(want) {
			continue
		}
		mapped = true
		for _, m := range file.Mappings {
			for i := range s.sites {
				if address, ok := m.Address(s.sites[i].uprobeOffset()); ok {
					all[i] = append(all[i], address)
				}
			}
		}
	}
	if !mapped {
		if err := sys.CheckTracee(s.pid); err != nil { // it has ended meanwhile
			return nil, err
		}
		return nil, fmt.Errorf("process %d has not mapped %s", s.pid, s.opened.name)
	}
	return all, nil
}
