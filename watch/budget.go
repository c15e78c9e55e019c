// SPDX-License-Identifier: BSD-2-Clause

package watch

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/gousdt/gousdt/internal/deadline"
	"github.com/gousdt/gousdt/internal/sys"
	"github.com/gousdt/gousdt/usdt"
)

// ofFile returns the limit on the sites of one file, 0 if there is none.
func (l Limits) ofFile() int { return orDefault(l.FileSites, defaultFileSites) }

// The defaults. libjvm, which has the most of real files, has 750 sites: these
// are for 66 containers of one owner that have one each, and for 266
// altogether. A site takes 350 bytes of the kernel, and 6 us to attach and
// detach.
const (
	defaultFileSites  = 10_000
	defaultOwnerSites = 50_000
	defaultSites      = 200_000
)

// Attachments may take half of this process's limit on descriptors, and those
// for one owner a quarter. A quarter is for the files themselves, and the rest
// for the program.
const (
	descriptorsPart      = 2
	ownerDescriptorsPart = 4
)

// orDefault returns a limit as it was set, or its default. 0 is no limit.
func orDefault(limit, usual int) int {
	if limit == 0 {
		return usual
	}
	return max(0, limit)
}

// A resource is something that has a limit.
type resource int

const (
	sites resource = iota
	descriptors
	resources // their number
)

var names = [resources]string{"sites", "descriptors"}

// limitsOption begins the names of the options that limit resources.
const limitsOption = "Limits."

// amounts has an amount of each resource.
type amounts [resources]int

// The time that attaching for one owner may take.
const (
	// attachTime is the time that it may take at once.
	attachTime = time.Second

	// sharedRefill is the share of the time that it may take in the long run
	// while there are attachments for others, too. aloneRefill is the same
	// without others. It matters only when others come.
	sharedRefill = 1. / 4
	aloneRefill  = 4

	// lately is the time for which an attachment for others counts.
	lately = 10 * time.Second
)

// budget shares out what can be attached.
type budget struct {
	ofOwner, ofAll amounts // 0 is no limit
	total          amounts
	owners         map[string]amounts // those that have something

	time      deadline.Owners
	leaks     deadline.Owners // a second for each
	atOnce    time.Duration   // attachTime
	lastOwner string          // for which something was attached
	shared    time.Time       // when that was another one than before
}

func newBudget(limits Limits) *budget {
	open := sys.MaxDescriptors()
	return &budget{
		ofOwner: amounts{
			sites:       orDefault(limits.OwnerSites, defaultOwnerSites),
			descriptors: orDefault(limits.OwnerDescriptors, open/ownerDescriptorsPart),
		},
		ofAll: amounts{
			sites:       orDefault(limits.Sites, defaultSites),
			descriptors: orDefault(limits.Descriptors, open/descriptorsPart),
		},
		owners: make(map[string]amounts), atOnce: attachTime,
	}
}

// check returns an error if an owner may not have this much more. ofAll is the
// resource if the limit is that of all owners together, else resources.
func (b *budget) check(owner string, more amounts) (full *usdt.LimitError, ofAll resource) {
	options := [resources]string{"Sites", "Descriptors"}
	for r := range resources {
		if limit, has := b.ofOwner[r], b.owners[owner][r]; limit > 0 && has+more[r] > limit {
			return &usdt.LimitError{Limit: names[r] + " of " + owner,
				Option: limitsOption + "Owner" + options[r], Capacity: limit, InUse: has,
				Needed: more[r]}, resources
		}
	}
	for r := range resources {
		if limit := b.ofAll[r]; limit > 0 && b.total[r]+more[r] > limit {
			return &usdt.LimitError{Limit: names[r], Option: limitsOption + options[r],
				Capacity: limit, InUse: b.total[r], Needed: more[r]}, r
		}
	}
	return nil, resources
}

// take notes that an owner has got something, or with times -1 that it has
// given it back.
func (b *budget) take(owner string, more amounts, times int) {
	has := b.owners[owner]
	for r := range resources {
		has[r] += times * more[r]
		b.total[r] += times * more[r]
	}
	b.owners[owner] = has
	if has == (amounts{}) {
		delete(b.owners, owner)
	}
}

// heaviest returns the owner that has the most of a resource. ok is false
// unless it has more than the other owner would have with this much more: only
// then is it fair that it gives some up.
func (b *budget) heaviest(r resource, other string, more int) (owner string, ok bool) {
	most := b.owners[other][r] + more
	for name, has := range b.owners {
		if name != other && has[r] > most {
			owner, most, ok = name, has[r], true
		}
	}
	return owner, ok
}

// spend notes that attaching for an owner took some time.
func (b *budget) spend(owner string, now time.Time, took time.Duration) {
	b.time.Take(owner, b.rate(now), now, took)
	if b.lastOwner != owner {
		if b.lastOwner != "" {
			b.shared = now
		}
		b.lastOwner = owner
	}
}

// rate returns how much of the time an owner may take.
func (b *budget) rate(now time.Time) deadline.Rate {
	rate := deadline.Rate{Full: b.atOnce, Refill: aloneRefill}
	if now.Sub(b.shared) < lately {
		rate.Refill = sharedRefill
	}
	return rate
}

// wait returns how long it is until something may be attached for an owner.
func (b *budget) wait(owner string, now time.Time) time.Duration {
	return b.time[owner].Wait(b.rate(now), now)
}

// What the kernel may keep for good of a process: a uprobe for each semaphore
// that is detached while the process goes on, if it has set that to 0. An owner
// may have this many at once, and one more in leakEvery.
const (
	leaksAtOnce = 1000
	leakEvery   = 10 * time.Second
)

var leakRate = deadline.Rate{Full: leaksAtOnce * time.Second,
	Refill: float64(time.Second) / float64(leakEvery)}

// mayLeak notes that semaphores of an owner are detached from processes that go
// on.
func (b *budget) mayLeak(owner string, semaphores int, now time.Time) {
	b.leaks.Take(owner, leakRate, now, time.Duration(semaphores)*time.Second)
}

// waitForLeaks returns how long it is until semaphores may be attached for an
// owner.
func (b *budget) waitForLeaks(owner string, now time.Time) time.Duration {
	return b.leaks[owner].Wait(leakRate, now)
}

// inTurn sorts targets so that owners take turns: the single file of one does
// not wait for the thousand of another. In each turn, owners that have taken
// the least time lately come first.
func (b *budget) inTurn(targets []target, now time.Time) []target {
	of, rate := make(map[string]int), b.rate(now)
	for i := range targets {
		at := &targets[i]
		at.nth = of[at.owner]
		of[at.owner]++
	}
	slices.SortStableFunc(targets, func(x, y target) int {
		return cmp.Or(cmp.Compare(x.nth, y.nth), cmp.Compare(b.time[x.owner].Taken(rate, now),
			b.time[y.owner].Taken(rate, now)))
	})
	return targets
}

// share returns an error if an owner would have more than its share. Owners
// that have more than that give some up for it.
func (w *Watch) share(owner string, needs amounts, r *round) error {
	for {
		full, of := w.budget.check(owner, needs)
		switch {
		case full == nil:
			return nil
		case w.makeRoom(r):
			continue
		case of == resources:
			return full
		}
		if gives, _ := w.takeAway(of, owner, full.Needed); !gives {
			return full
		}
	}
}

// takeAway makes room for an owner that needs more of a resource. The heaviest
// other owner gives up half of it. Its last attachment goes first. began
// reports whether there was anything to detach, and ended whether that is done.
func (w *Watch) takeAway(of resource, owner string, more int) (began, ended bool) {
	heaviest, ok := w.budget.heaviest(of, owner, more)
	if !ok {
		return false, false
	}
	var all []*attachment
	for _, a := range w.attached {
		if a.owner == heaviest {
			all = append(all, a)
		}
	}
	slices.SortFunc(all, func(x, y *attachment) int { return cmp.Compare(y.turn, x.turn) })
	had := w.budget.owners[heaviest][of]
	err := fmt.Errorf("detached to make room for others that have less: its container or user had %d %s, the most of all",
		had, names[of])
	room := &round{}
	for _, last := range all {
		if 2*w.budget.owners[heaviest][of] <= had {
			break
		}
		for _, a := range w.attachedAt(last.location) {
			w.report(a.target, err, withShare, room)
		}
		w.detachRunning(last.location, room)
	}
	if len(room.detached) == 0 {
		return false, false // it is reserved for a call that goes on
	}
	done := w.detaching(room)
	if w.running.Load() == 0 {
		<-done // the caller of Sync waits for all of it
		return true, true
	}
	select {
	case <-done:
		return true, true
	case <-time.After(detachPatience):
		return true, false
	}
}

// count updates the numbers, and schedules the next retry of the targets that
// wait for time.
func (w *Watch) count() {
	c := &Stats{Sites: w.budget.total[sites], Descriptors: w.budget.total[descriptors]}
	for id := range w.refused {
		if w.isRefused(id) {
			c.OverLimit++
		}
	}
	const forever = time.Duration(math.MaxInt64)
	wait, ready, now := forever, forever, time.Now()
	for _, failed := range w.failed {
		switch failed.when {
		case withShare:
			c.OverLimit++
		case withTime:
			c.Waiting++
			wait = min(wait, w.budget.wait(failed.owner, now))
		case withAnswer:
			c.Waiting++
		case whenReady:
			c.Waiting++
			ready = min(ready, failed.next.Sub(now))
		}
	}
	for _, c := range w.calls {
		if !c.blocks && wait < forever {
			wait = max(wait, turn) // when it ends, the others are tried again, too
		}
	}
	if wait < forever && w.waits == nil && !w.isStopped() {
		w.waits = time.AfterFunc(max(wait, minimumWait), func() { w.tryAgain(withTime) })
	}
	if ready < forever && !w.isStopped() {
		if w.ready != nil {
			w.ready.Stop()
		}
		w.ready = time.AfterFunc(max(ready, 0), func() { w.tryAgain(whenReady) })
	}
	w.stats.Store(c)
}
