// SPDX-License-Identifier: BSD-2-Clause

package usdt

import (
	"sync"

	"github.com/cilium/ebpf"

	"github.com/gousdt/gousdt/internal/sys"
	"github.com/gousdt/gousdt/usdt/internal/sitespec"
)

// A specTable is the map of specs by their IDs. Each spec is in the map as long
// as a link uses it. Equal specs share an entry.
type specTable struct {
	entries  *ebpf.Map
	capacity int
	id       ebpf.MapID
	layout   *sitespec.Layout

	mu     sync.Mutex
	used   map[string]*entry
	free   []uint32 // IDs given back
	next   uint32   // the lowest ID never handed out
	closed bool
}

type entry struct {
	spec string
	id   uint32
	refs int
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
	t := &specTable{entries: specs, capacity: int(specs.MaxEntries()) - firstSpecID, layout: layout,
		used: make(map[string]*entry), next: firstSpecID}
	t.id, _ = info.ID()
	return t, nil
}

// acquire returns the entry of each spec, once the map holds them all. On an
// error nothing is held. The caller releases each entry once.
func (t *specTable) acquire(specs []string) ([]*entry, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, sys.ClosedError("manager")
	}
	acquired := make([]*entry, 0, len(specs))
	var fresh []*entry
	for _, spec := range specs {
		e := t.used[spec]
		if e == nil {
			e = &entry{spec: spec}
			fresh = append(fresh, e)
			t.used[spec] = e
		}
		e.refs++
		acquired = append(acquired, e)
	}
	var err error
	if len(fresh) > 0 && len(t.used) > t.capacity {
		err = &LimitError{Limit: "specs", Option: "ManagerOptions.MaxSpecs",
			Capacity: t.capacity, InUse: len(t.used) - len(fresh), Needed: len(fresh)}
	}
	for _, e := range fresh {
		if err == nil {
			err = t.put(e)
		}
	}
	if err == nil {
		return acquired, nil
	}
	for _, e := range acquired {
		t.releaseLocked(e)
	}
	return nil, err
}

func (t *specTable) put(e *entry) error {
	if n := len(t.free); n > 0 {
		e.id, t.free = t.free[n-1], t.free[:n-1]
	} else {
		e.id = t.next
		t.next++
	}
	if err := t.entries.Put(e.id, []byte(e.spec)); err != nil {
		return explain("writing the map of specs", err)
	}
	return nil
}

// release gives back what acquire returned. No program that looks it up may run
// any more.
func (t *specTable) release(acquired []*entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range acquired {
		t.releaseLocked(e)
	}
}

func (t *specTable) releaseLocked(e *entry) {
	if e.refs--; e.refs == 0 {
		delete(t.used, e.spec)
		if e.id != 0 { // it has been written
			t.free = append(t.free, e.id)
		}
	}
}

func (t *specTable) close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	return t.entries.Close()
}
