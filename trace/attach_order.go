// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"slices"
	"sync"

	"github.com/gousdt/gousdt/trace/internal/bpfgen"
	"github.com/gousdt/gousdt/usdt"
)

// The kernel attaches and detaches one site after the other, while calls go on.
// So the ends of calls are attached before the starts, and detached before
// them. In the other order a start whose end is not attached yet would stay
// behind, and at last an end whose start is not attached any more would be
// taken for that of the other one: a call as long as the session. A site that
// is an end and a start comes between the two.
const (
	rankEnd = iota // or neither of both
	rankBoth
	rankStart
	ranks
)

func (w *work) rank(site int) int {
	switch block := w.block[w.which[site]]; {
	case !block.Starts:
		return rankEnd
	case block.Ends:
		return rankBoth
	default:
		return rankStart
	}
}

// sitesOf returns the indices of the sites that a program is for, in the order
// in which they are to be attached.
func (w *work) sitesOf(p *bpfgen.Program) []int {
	var some []int
	for n, block := range w.which {
		if block >= p.First && block < p.First+p.Blocks {
			some = append(some, n)
		}
	}
	slices.SortStableFunc(some, func(a, b int) int { return w.rank(a) - w.rank(b) })
	return some
}

// A step is what one link is for: a program, and sites by their indices.
type step struct {
	program bpfgen.Program
	sites   []int
}

// steps returns in which order programs are attached to their sites. A link
// keeps the order of its sites if oneLink says so. Otherwise, and if there are
// several programs, each rank has links of its own.
func (w *work) steps(programs []bpfgen.Program, oneLink func(sites []int) bool) []step {
	var all, ranked []step
	for _, p := range programs {
		all = append(all, step{p, w.sitesOf(&p)})
	}
	if !w.ends || len(all) == 1 && oneLink(all[0].sites) {
		return all
	}
	for rank := range ranks {
		for _, s := range all {
			other := func(n int) bool { return w.rank(n) != rank }
			if sites := slices.DeleteFunc(slices.Clone(s.sites), other); len(sites) > 0 {
				ranked = append(ranked, step{s.program, sites})
			}
		}
	}
	return ranked
}

// rankedLink is a link with the least rank of its sites.
type rankedLink struct {
	*usdt.Link
	rank int
}

// closeInOrder closes links rank by rank. It waits for the kernel once for each
// rank that there is.
func closeInOrder(all []rankedLink) []error {
	var errs []error
	for rank := range ranks {
		var links []*usdt.Link
		for _, l := range all {
			if l.rank == rank {
				links = append(links, l.Link)
			}
		}
		errs = append(errs, usdt.CloseAll(links...))
	}
	return errs
}

// unmatched counts ends of calls that have no start because it is being
// attached: nothing is lost with these.
type unmatched struct {
	mu        sync.Mutex
	attaching int    // how many attachments are being made
	before    uint64 // as counted when the first of them began
	expected  uint64
	reported  uint64 // by lost
}

// attach calls a function that attaches ends of calls.
func (u *unmatched) attach(count func() (uint64, error), attach func() error) error {
	u.change(1, count)
	defer u.change(-1, count)
	return attach()
}

func (u *unmatched) change(by int, count func() (uint64, error)) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.attaching += by; u.attaching > 1 || u.attaching == 1 && by < 0 {
		return
	}
	n, err := count()
	switch {
	case err != nil: // of a session that is being closed
	case by > 0:
		u.before = n
	default:
		u.expected += n - u.before
	}
}

// lost returns how many of the ends without a start are not expected. It never
// returns less than before: who reads it from time to time takes differences.
func (u *unmatched) lost(counted uint64) uint64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.attaching > 0 {
		counted = min(counted, u.before) // of the others it is not known yet
	}
	u.reported = max(u.reported, counted-min(counted, u.expected))
	return u.reported
}
