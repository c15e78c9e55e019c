// SPDX-License-Identifier: BSD-2-Clause

package follow

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/gousdt/gousdt/internal/procwatch"
)

// Stats are the numbers of a watch: of the last scan and round.
type Stats struct {
	// Denied is how many processes could not be scanned for lack of privilege.
	Denied int
	// Blocked is how many processes are set aside because they, or files that
	// they map, do not answer. Postponed is how many are to be scanned later:
	// they change so often that it would take too much of the time, or others
	// of the same container or user do, or are blocked.
	Blocked, Postponed int
	// Passes counts the scans of all processes.
	Passes uint64
	// EventsError says why the kernel does not report what happens to
	// processes, so that scans of all of them do all the work: because Run has
	// not been called, for example. It is nil if the kernel does.
	EventsError error

	// Sites is how much of Limits.Sites is in use. A site with a semaphore
	// counts as eight, so fewer may be attached.
	Sites int
	// Descriptors is how much of Limits.Descriptors is in use.
	Descriptors int
	// OverLimit is how many files, and files in processes, are not attached
	// because of the Limits, or because the maps of the Manager have no room.
	OverLimit int
	// Waiting is how many are not attached yet because attaching for the same
	// owner has taken too much of the time.
	Waiting int
}

// Stats returns the numbers of the last scan and round.
func (f *Follower[F, A]) Stats() Stats {
	f.mu.Lock()
	stats := f.stats
	f.mu.Unlock()
	s := f.watcher.Stats()
	stats.Denied, stats.Blocked, stats.Postponed = s.Denied, s.Blocked, s.Postponed
	stats.Passes, stats.EventsError = s.Passes, s.EventsError
	return stats
}

// count makes the numbers anew, and has what waits for time tried again when
// the first of it may be.
func (f *Follower[F, A]) count() {
	c := Stats{Sites: f.budget.total[sites], Descriptors: f.budget.total[descriptors],
		OverLimit: len(f.refused)}
	wait, now := time.Duration(math.MaxInt64), time.Now()
	for _, failed := range f.failed.failed {
		switch failed.when {
		case WithShare:
			c.OverLimit++
		case WithTime:
			c.Waiting++
			wait = min(wait, f.budget.wait(failed.owner, now))
		}
	}
	if len(f.goesOn) > 0 {
		wait = max(wait, turn) // its end has the others tried again, too
	}
	if c.Waiting > 0 && f.waits == nil && !f.isStopped() {
		f.waits = time.AfterFunc(max(wait, minimumWait), func() { f.tryAgain(WithTime) })
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stats = c
}

// errWaits is noted for what waits for time. It is not told.
var errWaits = errors.New("attaching for its container or user takes too much of the time")

// maxAttachRound is after how long the rest of what was found together waits.
const maxAttachRound = time.Second / 2

// minimumWait is the least time until what waits is tried again.
const minimumWait = 50 * time.Millisecond

// inTurn has the owners of targets take turns, so that nobody's thousand files
// come before another one's single one. In each turn, owners that have taken
// the least time lately come first.
func (b *budget) inTurn(targets []target, now time.Time) []target {
	type turn struct {
		target
		nth   int           // of its owner's
		spent time.Duration // by its owner
	}
	turns, of := make([]turn, len(targets)), make(map[string]int)
	for i, at := range targets {
		turns[i] = turn{target: at, nth: of[at.owner]}
		if a := b.owners[at.owner]; a != nil {
			turns[i].spent = a.time.Taken(b.rate(now), now)
		}
		of[at.owner]++
	}
	slices.SortStableFunc(turns, func(x, y turn) int {
		return cmp.Or(cmp.Compare(x.nth, y.nth), cmp.Compare(x.spent, y.spent))
	})
	sorted := make([]target, len(targets))
	for i := range turns {
		sorted[i] = turns[i].target
	}
	return sorted
}

// mustWait reports whether a target waits, because attaching for its owner has
// taken too much of the time, or because the round has: other processes wait to
// be scanned. It is tried again when that is over.
func (f *Follower[F, A]) mustWait(part int, at target) bool {
	if f.running.Load() == 0 {
		return false // who calls SyncAll waits for all of it
	}
	now := time.Now()
	if f.budget.wait(at.owner, now) == 0 && (f.until.IsZero() || now.Before(f.until)) &&
		!f.isBeside(part, at) {
		return false
	}
	f.failed.fail(attempt{at.Place, part}, at.owner, errWaits, WithTime)
	return true
}

// share returns an error if a target would have more than its share. Owners
// that have more than that give some up for it.
func (f *Follower[F, A]) share(at target, needs amounts, r *round[A]) error {
	full := f.budget.check(at.owner, needs)
	if full != nil && f.makeRoom(r) {
		full = f.budget.check(at.owner, needs)
	}
	for full != nil {
		of := slices.IndexFunc(names[:], func(limit limitName) bool {
			return full.Option == limitsOption+limit.option // and not that on an owner
		})
		if of < 0 {
			return full
		}
		if _, ok := f.takeAway(resource(of), at.owner, full.Needed); !ok {
			return full
		}
		full = f.budget.check(at.owner, needs)
	}
	return nil
}

// closeGivenUp closes files that have been detached for others. It is called
// when nothing is being attached.
func (f *Follower[F, A]) closeGivenUp() {
	for _, file := range f.gaveUp {
		f.closeUnattached(file)
	}
	f.gaveUp = nil
}

// closeUnattached closes a file of which nothing is attached for want of a
// share: what has been read of it takes memory. It is opened again when there
// is room.
func (f *Follower[F, A]) closeUnattached(id procwatch.FileID) {
	file, ok := f.files[id]
	if !ok {
		return
	}
	needs := make(map[Place]amounts)
	for key, failed := range f.failed.failed {
		if key.File == id && key.part != WholeFile && failed.text == shareText {
			sum := needs[key.Place]
			sum.add(f.needs(attempt{key.Place, key.part}, file), 1)
			needs[key.Place] = sum
		}
	}
	if len(needs) == 0 {
		return
	}
	for place := range f.attached {
		if place.File == id {
			return
		}
	}
	for key, failed := range f.failed.failed {
		if key.File == id && key.part != WholeFile {
			delete(f.failed.failed, key)
			failed.needs = needs[key.Place]
			f.failed.failed[attempt{key.Place, WholeFile}] = failed
		}
	}
	f.release(id, file)
	delete(f.files, id)
}

// isOverShare reports whether there still is no room for a file that was closed
// for want of a share.
func (f *Follower[F, A]) isOverShare(at target, r *round[A]) bool {
	key := attempt{at.Place, WholeFile}
	failed := f.failed.failed[key]
	if failed == nil || failed.needs[sites] == 0 {
		return false
	}
	err := f.share(at, failed.needs, r)
	if err == nil {
		return false
	}
	f.fail(WholeFile, at, err, r)
	if again := f.failed.failed[key]; again != nil {
		again.needs = failed.needs
	}
	return true
}

// takeAway detaches half of what the owner has that has the most of a resource,
// if that is more than another one would have with so much more. It reports
// whether that is done, and whether there was such an owner.
func (f *Follower[F, A]) takeAway(of resource, other string, more int) (done, ok bool) {
	owner, ok := f.budget.heaviest(of, other, more)
	if !ok {
		return false, false
	}
	inUse := f.budget.account(owner).has[of]
	room := &round[A]{}
	places := f.budget.half(of, owner)
	if len(places) == 0 {
		return false, false // what it has is reserved for a call that goes on
	}
	for _, place := range places {
		for part, a := range f.attached[place] {
			if a == nil {
				continue
			}
			gave := &gaveWayError{inUse, of}
			if f.failed.fail(attempt{place, part}, owner, gave, WithShare) {
				room.Errors = append(room.Errors, f.explain(part, a.pair, gave))
			}
			f.failed.failed[attempt{place, part}].needs[descriptors] = f.driver.Descriptors(a.attached)
		}
		f.detach(place, room)
		f.gaveUp = append(f.gaveUp, place.File) // to be closed when nobody is about to use it
	}
	return f.detachFor(room), true
}

// A gaveWayError says that something was detached for others.
type gaveWayError struct {
	had int
	of  resource
}

func (e *gaveWayError) Error() string {
	return fmt.Sprintf("detached to make room for others that have less: its container or user had %d %s, the most of all",
		e.had, names[e.of].name)
}

// isShare reports whether an error is for want of a share. Its text has numbers
// that change all the time.
func isShare(err error) bool {
	var full *LimitError
	var gave *gaveWayError
	return errors.As(err, &full) && strings.HasPrefix(full.Option, limitsOption) || errors.As(err, &gave)
}
