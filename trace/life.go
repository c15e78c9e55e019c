// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"maps"
	"sync"
	"time"

	"github.com/cilium/ebpf"

	"github.com/gousdt/gousdt/internal/attaching"
	"github.com/gousdt/gousdt/internal/sys"
	"github.com/gousdt/gousdt/watch"
)

// A phase of a session's life. A session only goes forward: docs/design.md has
// the picture, and the order of all locks.
type phase uint8

const (
	opened    phase = iota // probes can be attached
	detaching              // nothing more is attached, and what is attached goes
	detached               // no more hits come; what has come can be read
	closed                 // the maps are closed
	phases
)

// life is the phase of a session, which enter changes and nothing else.
type life struct {
	mu      sync.Mutex
	now     phase
	holders [phases]int // by the phase that they hold off
	left    sync.Cond   // some holders are 0
	watches map[*watch.Watch]struct{}
	going   attaching.Files // calls of Attach

	once     sync.Once // Close
	closeErr error
}

// before calls a function, and holds a phase off until it returns. If the
// session has entered the phase, it returns an error that wraps os.ErrClosed.
// It never waits, so the function can call before again.
func (l *life) before(off phase, do func() error) error {
	l.mu.Lock()
	if l.now >= off {
		l.mu.Unlock()
		return sys.ClosedError("session")
	}
	l.holders[off]++
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.holders[off]--; l.holders[off] == 0 {
			l.left.Broadcast()
		}
	}()
	return do()
}

// enter enters a phase unless the session is past it, and returns when nothing
// holds it off any more.
func (l *life) enter(next phase) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.now = max(l.now, next)
	l.left.L = &l.mu
	for l.holders[next] > 0 {
		l.left.Wait()
	}
}

func (l *life) has(entered phase) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now >= entered
}

// watched adds a watch that the session ends, or removes it.
func (l *life) watched(w *watch.Watch, is bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if is {
		l.watches[w] = struct{}{}
	} else {
		delete(l.watches, w)
	}
}

func (l *life) allWatches() map[*watch.Watch]struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.watches)
}

// An attachmentPhase of an Attachment, which ledgers.enter changes and nothing
// else.
type attachmentPhase uint8

const (
	arriving attachmentPhase = iota // its sites are attached one after the other
	there
	leaving // its sites are detached one after the other
	gone    // nothing is attached any more
)

// ledgers are the attachments of a session, with the calls that were lost at
// their sites. Those of an attachment that goes are added to gone, because the
// numbers of its sites get free.
type ledgers struct {
	counts *ebpf.Map // by the number of a site, see bpfgen.LostSize; nil if no calls are measured

	mu       sync.Mutex
	of       map[*Attachment]*ledger
	gone     lostCounts
	reported lostCounts
}

type lostCounts struct{ unmatched, replaced, left, overlapped uint64 }

// ledger is the phase of an attachment, and the calls that were lost because of
// it. While the sites are attached or detached one after the other, only one
// end of the calls that go on is seen. That is no loss: it is expected.
type ledger struct {
	phase    attachmentPhase
	began    time.Time  // of the phase
	before   lostCounts // as counted then
	expected lostCounts
}

// longestChange is the time for which losses count as expected: hundreds of
// perf events are detached by then. A file system can make an attachment wait
// without end, and must not hide losses.
const longestChange = time.Minute

// maxLostSites is the number of sites whose lost calls are counted apart. The
// others' count as losses although some may be expected.
const maxLostSites = 1 << 14

// enter enters a phase of an attachment's life, unless it is past that. It
// reports whether it is this call that has entered. Unless counts is set, the
// session is closed, and has no losses.
func (all *ledgers) enter(a *Attachment, next attachmentPhase, counts bool) (first bool) {
	all.mu.Lock()
	defer all.mu.Unlock()
	l := all.of[a]
	if next == arriving {
		l = &ledger{}
		all.of[a] = l
	} else if l == nil || l.phase >= next {
		return false
	}
	n := l.before
	if counts {
		if now, err := all.count(a, next == gone); err == nil {
			n = now
		}
	}
	l.enter(next, n)
	if next == gone {
		all.gone.add(l.lost(n))
		delete(all.of, a)
	}
	return true
}

func (l *ledger) enter(next attachmentPhase, n lostCounts) {
	if isShort := time.Since(l.began) < longestChange; isShort && l.phase == arriving {
		l.expected.unmatched += n.unmatched - l.before.unmatched
	} else if isShort && l.phase == leaving {
		l.expected.replaced += n.replaced - l.before.replaced
		l.expected.left += max(n.left, l.before.left) - l.before.left
	}
	l.phase, l.began, l.before = next, time.Now(), n
}

// lost returns those of the counted losses that are not expected.
func (l *ledger) lost(n lostCounts) lostCounts {
	if time.Since(l.began) < longestChange {
		switch l.phase { // it is not known yet whether what comes now is expected
		case arriving:
			n.unmatched = min(n.unmatched, l.before.unmatched)
		case leaving:
			n.replaced = min(n.replaced, l.before.replaced)
			n.left = min(n.left, l.before.left)
		}
	}
	n.unmatched -= min(n.unmatched, l.expected.unmatched)
	n.replaced -= min(n.replaced, l.expected.replaced)
	n.left -= min(n.left, l.expected.left)
	return n
}

func (n *lostCounts) add(more lostCounts) {
	n.unmatched += more.unmatched
	n.replaced += more.replaced
	n.left += more.left
	n.overlapped += more.overlapped
}

// count returns all lost calls at the sites of an attachment, and forgets them
// if reset is set.
func (all *ledgers) count(a *Attachment, reset bool) (n lostCounts, err error) {
	if all.counts == nil {
		return n, nil
	}
	for _, site := range a.sites {
		if site.id >= maxLostSites || !site.isStart && !site.isEnd {
			continue
		}
		var each [4]uint64
		if err := all.counts.Lookup(site.id, &each); err != nil {
			return n, explain("reading the lost calls of a site", err)
		}
		n.add(lostCounts{each[0], each[1], each[2], each[3]})
		if reset && each != [4]uint64{} {
			if err := all.counts.Put(site.id, [4]uint64{}); err != nil {
				return n, explain("forgetting the lost calls of a site", err)
			}
		}
	}
	return n, nil
}

// lost adds the lost calls that are not expected. They never become less,
// because their readers take differences. It must be called within Session.use.
func (all *ledgers) lost(to *Losses) error {
	all.mu.Lock()
	defer all.mu.Unlock()
	sum := all.gone
	for a, l := range all.of {
		n, err := all.count(a, false)
		if err != nil {
			return err
		}
		sum.add(l.lost(n))
	}
	all.reported.unmatched = max(all.reported.unmatched, sum.unmatched)
	all.reported.replaced = max(all.reported.replaced, sum.replaced)
	if int64(sum.left-all.reported.left) > 0 { // a call on another stack may end after all
		all.reported.left = sum.left
	}
	to.Overlapped += sum.overlapped
	to.Unmatched += all.reported.unmatched
	to.Replaced += all.reported.replaced
	to.Left += all.reported.left
	return nil
}
