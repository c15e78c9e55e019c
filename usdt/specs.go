// SPDX-License-Identifier: BSD-2-Clause

package usdt

import (
	"debug/elf"
	"fmt"
	"sync"

	"github.com/cilium/ebpf"

	"github.com/gousdt/gousdt/internal/procfs"
	"github.com/gousdt/gousdt/internal/procmaps"
	"github.com/gousdt/gousdt/internal/sys"
	"github.com/gousdt/gousdt/usdt/internal/sitespec"
)

// A table holds the entries of one of the maps that programs read. Each is in
// the map as long as a link uses it.
type table[K comparable] struct {
	entries  *ebpf.Map
	what     string // in texts: "specs"
	capacity int
	put      func(*entry[K]) error // into the map
	remove   func(*entry[K])       // from it

	mu     sync.Mutex
	used   map[K]*entry[K]
	closed bool
}

// An entry is a spec with its ID, or an address with the ID of its spec.
type entry[K comparable] struct {
	key  K
	id   uint32
	refs int
}

// acquire returns the entry of each key, once the map holds them all. ids has
// the ID of each key; if it is nil, put chooses the IDs. On an error nothing is
// held. The caller releases each entry once.
func (t *table[K]) acquire(keys []K, ids []uint32) ([]*entry[K], error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, sys.ClosedError("manager")
	}
	acquired := make([]*entry[K], 0, len(keys))
	var fresh []*entry[K]
	var err error
	for i, key := range keys {
		e := t.used[key]
		if e == nil {
			e = &entry[K]{key: key}
			if ids != nil {
				e.id = ids[i]
			}
			fresh = append(fresh, e)
			t.used[key] = e
		} else if ids != nil && e.id != ids[i] {
			err = fmt.Errorf("address %#x is %w", any(key), errAddressInUse)
			break
		}
		e.refs++
		acquired = append(acquired, e)
	}
	if err == nil && len(fresh) > 0 && len(t.used) > t.capacity {
		err = &LimitError{Limit: t.what, Option: "ManagerOptions.MaxSpecs",
			Capacity: t.capacity, InUse: len(t.used) - len(fresh), Needed: len(fresh)}
	}
	written := 0
	for err == nil && written < len(fresh) {
		if err = t.put(fresh[written]); err != nil {
			err = explain("writing the map of "+t.what, err)
		} else {
			written++
		}
	}
	if err == nil {
		return acquired, nil
	}
	for _, e := range fresh[written:] {
		e.refs = 0
		delete(t.used, e.key)
	}
	for _, e := range acquired {
		t.releaseLocked(e)
	}
	return nil, err
}

// release gives back what acquire returned. No program that looks it up may run
// any more.
func (t *table[K]) release(acquired []*entry[K]) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range acquired {
		t.releaseLocked(e)
	}
}

func (t *table[K]) releaseLocked(e *entry[K]) {
	if e.refs == 0 {
		return // it was not written
	}
	if e.refs--; e.refs == 0 {
		delete(t.used, e.key)
		t.remove(e)
	}
}

// close releases the map. Nothing can be acquired after that.
func (t *table[K]) close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	return t.entries.Close()
}

// A specTable is the map of specs by their IDs. Equal specs share an entry.
type specTable struct {
	table[string]
	id     ebpf.MapID
	layout *sitespec.Layout
	free   []uint32 // IDs given back
	next   uint32   // the lowest ID never handed out
}

// firstSpecID is not 0, because that is the cookie of a program that was
// attached without a Manager. The header knows that 0 is no spec.
const firstSpecID = 1

func newSpecTable(spec *ebpf.MapSpec, layout *sitespec.Layout) (*specTable, error) {
	specs, err := ebpf.NewMap(spec)
	if err != nil {
		return nil, explain("creating the map of specs", err)
	}
	info, err := specs.Info()
	if err != nil {
		specs.Close()
		return nil, explain("asking the kernel for the spec map", err)
	}
	t := &specTable{layout: layout, next: firstSpecID}
	t.id, _ = info.ID()
	t.table = table[string]{entries: specs, what: "specs",
		capacity: int(specs.MaxEntries()) - firstSpecID, used: make(map[string]*entry[string]),
		put: func(e *entry[string]) error {
			if n := len(t.free); n > 0 {
				e.id, t.free = t.free[n-1], t.free[:n-1]
			} else {
				e.id = t.next
				t.next++
			}
			err := specs.Put(e.id, []byte(e.key))
			if err != nil {
				t.free = append(t.free, e.id)
			}
			return err
		},
		remove: func(e *entry[string]) { t.free = append(t.free, e.id) },
	}
	return t, nil
}

// newAddressTable makes the map of spec IDs by instruction pointers. A program
// that has no BPF cookie looks its spec up there.
func newAddressTable(spec *ebpf.MapSpec) (*table[uint64], error) {
	addresses, err := ebpf.NewMap(spec)
	if err != nil {
		return nil, explain("creating the map of addresses", err)
	}
	t := &table[uint64]{entries: addresses, what: "addresses",
		capacity: int(addresses.MaxEntries()), used: make(map[uint64]*entry[uint64]),
		put: func(e *entry[uint64]) error { return addresses.Put(e.key, e.id) }}
	t.remove = func(e *entry[uint64]) {
		if !t.closed {
			_ = addresses.Delete(e.key) // it fails only where the entry has gone already
		}
	}
	return t, nil
}

// addresses returns the instruction pointers of hits, and the spec ID for each.
// specs has the spec ID of each site. A site of an ET_EXEC has the address for
// which it was linked. Other files need a PID; their sites have several
// addresses if the process has mapped them more than once.
func (s *Selection) addresses(specs []uint64) (addresses []uint64, ids []uint32, err error) {
	file := s.file()
	file.mu.RLock()
	defer file.mu.RUnlock()
	if file.closed {
		return nil, nil, sys.ClosedError("selection")
	}
	if s.opened.elf.Header().Type == elf.ET_EXEC {
		for i := range s.sites {
			addresses, ids = append(addresses, s.sites[i].Instruction), append(ids, uint32(specs[i]))
		}
		return addresses, ids, nil
	}
	if s.pid == 0 {
		return nil, nil, fmt.Errorf("%s: %w", s.opened.name, &sys.UnsupportedError{
			Feature: "BPF cookies on uprobes", Since: "5.15",
			Hint: "without them a library or PIE program can be attached for one PID only"})
	}

	files, err := procmaps.Files(procfs.NewFS(""), s.pid)
	if err != nil && len(files) == 0 {
		return nil, nil, explainProcess(s.pid, err)
	}
	want, err := procmaps.IdentifyFile(s.opened.elf.OSFile())
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", s.opened.name, err)
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
					addresses, ids = append(addresses, address), append(ids, uint32(specs[i]))
				}
			}
		}
	}
	if !mapped {
		if err := sys.CheckTracee(s.pid); err != nil { // it has ended meanwhile
			return nil, nil, err
		}
		return nil, nil, fmt.Errorf("process %d has not mapped %s", s.pid, s.opened.name)
	}
	return addresses, ids, nil
}
