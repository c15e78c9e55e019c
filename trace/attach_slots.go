// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"fmt"
	"sync"

	"github.com/cilium/ebpf"

	"github.com/gousdt/gousdt/internal/elffile"
	"github.com/gousdt/gousdt/trace/internal/bpfgen"
	"github.com/gousdt/gousdt/usdt"
)

// maxSlots is how many sites of a session can be found by slots. The map takes
// 80 bytes of kernel memory for each, used or not. The sites that find no room
// are attached in the way that takes longer to detach.
const maxSlots = 8192

// slotTable is the map of slots, see [bpfgen.Slots]. It exists where attaching
// is by perf events: those of sites that share a cookie are one, and the kernel
// closes one after the other.
type slotTable struct {
	slots *ebpf.Map // nil where there is none

	mu    sync.Mutex
	used  int
	group uint64 // the last one
}

func (t *slotTable) create(mode usdt.Mode) (err error) {
	if mode == usdt.ModeMulti {
		return nil
	}
	t.slots, err = ebpf.NewMap(&ebpf.MapSpec{
		Name: "trace_slots", Type: ebpf.Hash, KeySize: 8, ValueSize: 8, MaxEntries: maxSlots,
	})
	if err != nil {
		return explain("creating the map of slots", err)
	}
	return nil
}

// reserve reports whether there is room for so many slots, and keeps it for the
// caller. Nobody takes more than half of what there is, so that the sites of
// one large file leave room for those of others.
func (t *slotTable) reserve(n int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.slots == nil || n > (maxSlots-t.used)/2 {
		return false
	}
	t.used += n
	return true
}

// newGroup returns the number of a new group.
func (t *slotTable) newGroup() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.group++
	return t.group
}

// release removes slots, and gives back the room for as many as were reserved.
func (t *slotTable) release(keys []uint64, reserved int) {
	for _, key := range keys {
		_ = t.slots.Delete(key) // it is there
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.used -= reserved
}

// attachGroups attaches groups of sites that share a cookie, for which room has
// been reserved. Package usdt attaches each group by one perf event, if it can.
// The programs tell the sites of a group apart by the low bits of the
// instruction pointer, which are the same in all processes.
func (a *Attachment) attachGroups(w *work) error {
	table := &a.session.slots
	slots := bpfgen.Slots{Map: table.slots.FD(), Kernel: w.plan.Kernel,
		Cookie: a.session.mode == usdt.ModeSingle}
	inOrder := func(sites []int) bool { return len(w.groups(sites)) == 1 }
	steps := w.steps(w.blocks.Programs(&slots), inOrder)
	if !slots.Cookie {
		events := 0
		for _, step := range steps {
			if step.program.Cookie {
				events += len(w.groups(step.sites))
			} else {
				events++
			}
		}
		if err := w.checkPerfEvents(events); err != nil {
			return err
		}
	}
	for _, step := range steps {
		p, some := &step.program, step.sites
		if !p.Cookie {
			if err := a.attachSome(w, p, some, nil); err != nil {
				return err
			}
			continue
		}
		numbers := make(map[int]uint64, len(some)) // the group of each site
		groups := w.groups(some)
		for _, group := range groups {
			number := table.newGroup()
			for _, n := range group {
				numbers[n] = number
				key := bpfgen.Slot(number, w.sites[n].Instruction)
				if err := table.slots.Put(key, w.cookie(p, n)); err != nil {
					return explain("adding to the map of slots", err)
				}
				a.slots = append(a.slots, key)
			}
		}
		if slots.Cookie {
			if err := a.attachSome(w, p, some,
				func(n int) uint64 { return numbers[n] }); err != nil {
				return err
			}
			continue
		}
		for _, group := range groups {
			own := slots
			own.Group = numbers[group[0]]
			program := w.blocks.Program(p.First, p.Blocks, &own)
			if err := a.attachSome(w, &program, group, nil); err != nil {
				return err
			}
		}
	}
	return nil
}

// perfEventSites is as how many sites a perf event counts, see [usdt.Limits].
const perfEventSites = 8

// checkPerfEvents returns an error if a file of a watch needs more programs and
// perf events than it may have. Package usdt knows only those of one program.
func (w *work) checkPerfEvents(events int) error {
	limit, needed := w.maxSites, perfEventSites*events
	if limit <= 0 || events == 1 || needed <= limit {
		return nil
	}
	return fmt.Errorf("%s: %w", w.file, elffile.TooLarge(&usdt.LimitError{
		Limit:    "sites (a perf event counts as 8)",
		Option:   "SelectOptions.MaxSites",
		Capacity: limit,
		Needed:   needed,
	}))
}

// groups returns sites in as few groups as there can be, in each of which no
// two have the same low bits of their address.
func (w *work) groups(some []int) [][]int {
	var groups [][]int
	taken := make(map[uint64]int) // by the low bits: how many groups have them
	for _, n := range some {
		bits := bpfgen.LowBits(w.sites[n].Instruction)
		group := taken[bits]
		taken[bits]++
		if group == len(groups) {
			groups = append(groups, nil)
		}
		groups[group] = append(groups[group], n)
	}
	return groups
}

// cookie returns what tells a program at which site it is: the ID of the site
// and the number of its block.
func (w *work) cookie(p *bpfgen.Program, n int) uint64 {
	return uint64(w.sites[n].id)<<32 | uint64(w.which[n]-p.First)
}
