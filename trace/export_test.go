// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"slices"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/usdt"
	"github.com/gousdt/gousdt/watch"
)

// ProgramName names the program of some probes.
func ProgramName(probes ...[2]string) string {
	var sites []*Site
	for _, p := range probes {
		sites = append(sites,
			&Site{Site: usdt.Site{Site: elfnote.Site{Provider: p[0], Name: p[1]}}})
	}
	return programName(sites)
}

// NumberProcessors makes the programs of later attachments do as on a kernel
// that does not tell them their processor.
func NumberProcessors(s *Session) error { return s.numberProcessors() }

// ThreadBirth returns where the kernel says when a thread began.
func ThreadBirth() int { return threadBirth() }

// LinkCount returns how many links the attachment has.
func (a *Attachment) LinkCount() int { return len(a.links) }

// SiteNumbers returns how many numbers sites have had.
func SiteNumbers(s *Session) int { return int(s.sites.next) }

// Slots returns how many slots are in use, as the session counts and as the map
// has them.
func Slots(s *Session) (used, held int) {
	var key, value uint64
	for entries := s.slots.slots.Iterate(); entries.Next(&key, &value); {
		held++
	}
	return s.slots.used, held
}

// FillSlots leaves no room for slots.
func FillSlots(s *Session) { s.slots.used = maxSlots }

// FillExecs leaves no room for when processes run other programs.
func FillExecs(s *Session) {
	for pid := uint32(1 << 30); s.execs.Put(pid, uint64(0)) == nil; pid++ {
	}
}

// Groups returns the sites at some addresses in groups that share a cookie, by
// their indices.
func Groups(addresses ...uint64) [][]int {
	w := &work{}
	var all []int
	for n, address := range addresses {
		w.sites = append(w.sites, &Site{Site: usdt.Site{Instruction: address}})
		all = append(all, n)
	}
	return w.groups(all)
}

// KeptStacks returns how many stacks the kernel keeps for an aggregation.
func (s *Session) KeptStacks(a *Aggregation) (n int) {
	for _, m := range s.aggregations[slices.Index(s.opts.Aggregations, a)].stacks {
		var id uint32
		var last any
		for m.NextKey(last, &id) == nil {
			n++
			last = id
		}
	}
	return n
}

// Watch is watch.New for one session.
func (s *Session) Watch(
	opts *watch.Options, changed func(*watch.Changes[*Attachment]), patterns ...elfnote.Pattern,
) (*watch.Watch, error) {
	return watch.New(opts, changed, s.Part(patterns...))
}

// Mode returns how the session attaches programs.
func (s *Session) Mode() usdt.Mode { return s.mode }

// Size returns the size of the value in the traced program, in bytes, or 0 if
// it is not known.
func (v Value) Size() int { return int(v.size) }

var InTime = inTime

// HoldSwitch keeps programs from being told to which maps they add, until
// release. Others wait for it.
func HoldSwitch(s *Session) (isAwaited func() bool, release func()) {
	s.generations.mu.Lock()
	return func() bool {
		a := s.aggregations[0]
		if a.mu.TryLock() {
			a.mu.Unlock()
			return false
		}
		return true
	}, s.generations.mu.Unlock
}
