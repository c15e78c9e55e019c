// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"errors"
	"slices"
	"sync"
	"time"

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

// closeInOrder closes the links of attachments rank by rank. It waits for the
// kernel once for each rank that there is.
func closeInOrder(attachments []*Attachment) error {
	var ranked [ranks][]*usdt.Link
	sessions := make(map[*Session]bool)
	for _, a := range attachments {
		for _, l := range a.links {
			ranked[l.rank] = append(ranked[l.rank], l.Link)
		}
		sessions[a.session] = true
	}
	closeAll := func() error {
		var errs []error
		for _, links := range ranked {
			errs = append(errs, usdt.CloseAll(links...))
		}
		return errors.Join(errs...)
	}
	for s := range sessions {
		if len(s.latencies) > 0 {
			closeLinks := closeAll
			closeAll = func() error {
				return s.replaced.during(s.countOf(bpfgen.CounterReplaced), closeLinks)
			}
		}
	}
	return closeAll()
}

// longestChange is how long losses are taken for expected ones: perf events of
// hundreds of sites are detached by then. A file system can have an attachment
// wait for as long as it likes, and is not to hide losses.
const longestChange = time.Minute

// expectedLosses are those of a counter while sites are attached, or detached,
// one after the other: of the calls that go on meanwhile only one end is seen.
// Nothing is lost with these.
type expectedLosses struct {
	mu       sync.Mutex
	changing int       // how many attachments are being made, or closed
	began    time.Time // the first of them
	before   uint64    // as counted then
	expected uint64
	reported uint64 // by lost
}

// during calls a function while which there are some.
func (l *expectedLosses) during(count func() (uint64, error), attachOrDetach func() error) error {
	l.change(1, count)
	defer l.change(-1, count)
	return attachOrDetach()
}

func (l *expectedLosses) change(by int, count func() (uint64, error)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.changing += by; l.changing > 1 || l.changing == 1 && by < 0 {
		return
	}
	n, err := count()
	switch {
	case err != nil: // of a session that is being closed
	case by > 0:
		l.began, l.before = time.Now(), n
	case time.Since(l.began) < longestChange:
		l.expected += n - l.before
	}
}

// lost returns how many of those that are counted are not expected. It never
// returns less than before: who reads it from time to time takes differences.
// It must not be called within [Session.use], for which change may wait.
func (l *expectedLosses) lost(counted uint64) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.changing > 0 && time.Since(l.began) < longestChange {
		counted = min(counted, l.before) // of the others it is not known yet
	}
	l.reported = max(l.reported, counted-min(counted, l.expected))
	return l.reported
}
