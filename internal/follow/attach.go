// SPDX-License-Identifier: BSD-2-Clause

package follow

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/gousdt/gousdt/internal/deadline"
	"github.com/gousdt/gousdt/internal/elffile"
	"github.com/gousdt/gousdt/internal/procfs"
	"github.com/gousdt/gousdt/internal/procwatch"
	"github.com/gousdt/gousdt/proc"
	"github.com/gousdt/gousdt/usdt"
)

const (
	// maxRefused bounds the memory of files that are too large to be opened
	// again and again. No tool chain makes such a file.
	maxRefused = 4096

	// maxBlocked bounds the calls that do not return. Each takes a thread.
	maxBlocked = 256

	// sitePatience is added to the patience with a call for each site, up to
	// mostPatience times the patience: with perf events the kernel waits for
	// each.
	sitePatience = 10 * time.Millisecond
	mostPatience = 4

	// turn is the time that a call may take, waiting or not. Then others have
	// their turn while it goes on.
	turn = 100 * time.Millisecond

	// maxAttachRound bounds a round of attaching, and maxRetryRound one of
	// retries. The rest waits for the next round, so that processes are scanned
	// in between.
	maxAttachRound = time.Second / 2
	maxRetryRound  = 100 * time.Millisecond

	// detachPatience is the time that attaching waits for the detaching that
	// makes room for it. A uprobe_multi link takes some 50 ms.
	detachPatience = 300 * time.Millisecond

	// minimumWait is the least time before a target that waits for time is
	// tried again.
	minimumWait = 50 * time.Millisecond

	// fewSites is the most sites of a file that is attached while another call
	// goes on. libjvm, which has the most of real files, has 750.
	fewSites = 1000
)

// A process that is not ready is tried again after firstTry. Later each wait is
// an eighth of the time since the first try. After longestStart that is
// reported, once.
const (
	firstTry     = 2 * time.Millisecond
	triesPart    = 8
	longestStart = 10 * time.Second
)

// errEarly is noted for a process that is attached after a time.
var errEarly = errors.New("the process is attached later")

// errLeaks is reported for a file that waits until less may leak.
var errLeaks = fmt.Errorf("it is attached later: %d semaphores of its container or user were "+
	"detached from processes that went on, for each of which the kernel may keep a uprobe for good; "+
	"one more may be each %v", leaksAtOnce, leakEvery)

// errWaits is noted for a target that waits for time. It is not reported.
var errWaits = errors.New("attaching for its container or user takes too much of the time")

// attach attaches the targets that are not attached yet, one part after the
// other.
func (f *Follower[A]) attach(targets []target, r *round[A]) {
	now := time.Now()
	f.until = now.Add(maxAttachRound)
	targets = slices.DeleteFunc(f.budget.inTurn(targets, now), func(at target) bool {
		failed := f.failed[at.spot]
		return failed != nil && failed.next.After(now)
	})
	for part := range f.opts.Parts {
		targets = slices.DeleteFunc(targets, func(at target) bool {
			if at.part != WholeFile && at.part != part {
				return false
			}
			if part > 0 {
				at.part = part // the parts before are attached, or noted
			}
			known := f.files[at.File]
			wasOpen := known != nil && known.opened != nil
			if !f.open(at, r) {
				return true
			}
			at.isNew = at.isNew || !wasOpen
			f.attachPart(part, at, r)
			if f.attached[spot{at.Place, part}] == nil {
				f.closeUnused(at.File)
			}
			return false
		})
	}
}

// closeUnused closes a file unless something of it is attached or being
// attached: what has been read of it takes memory. It is opened again when
// there is room and time to attach it.
func (f *Follower[A]) closeUnused(id procfs.FileID) {
	known := f.files[id]
	if known == nil || known.opened == nil || f.calls[id] != nil {
		return
	}
	for at := range f.attached {
		if at.File == id {
			return
		}
	}
	f.close(id)
}

// open opens the file of a target, once for all its processes. It reports
// whether the file is open.
func (f *Follower[A]) open(at target, r *round[A]) bool {
	known := f.files[at.File]
	switch {
	case known == nil || f.isStopped():
		return false
	case known.opened != nil:
		return true
	case known.writes:
		f.note(at, errWritten, Later)
		return false
	case f.isRefused(at.File) || f.mustWait(at):
		return false
	}
	whole := at
	whole.part = WholeFile
	if failed := f.failed[at.spot]; failed != nil { // perhaps for want of a share
		whole.needs = failed.needs
		if err := f.share(at.owner, failed.needs, r); err != nil {
			f.fail(at, err, r)
			return false
		}
	}
	opened := new(opened[A])
	err := f.callWithRoom(&call[A]{target: whole,
		do: func() (err error) {
			opened.File, err = f.driver.Open(at.pair, func() { f.written(at.File, opened) })
			return err
		},
		late: func(r *round[A]) {
			if f.files[at.File] != known || known.opened != nil || !f.isWanted(at) {
				opened.Close()
				return
			}
			if f.setOpened(at, opened) {
				at.isNew = true
				f.attach([]target{at}, r)
			}
		}}, r)
	switch {
	case errors.Is(err, errWaits):
		f.fail(at, err, r)
	case err != nil:
		f.fail(whole, err, r)
	default:
		return f.setOpened(at, opened)
	}
	return false
}

// isRefused reports whether a file that a process maps is too large, as far as
// it has not been written to since.
func (f *Follower[A]) isRefused(id procfs.FileID) bool {
	known, refused := f.files[id], f.refused[id]
	return known != nil && refused != nil && refused.HasSameSites(known.source)
}

// attachPart attaches a part of a file that is open.
func (f *Follower[A]) attachPart(part int, at target, r *round[A]) {
	at.part = part
	known := f.files[at.File]
	if f.isStopped() || known == nil || known.opened == nil || f.attached[at.spot] != nil {
		return
	}
	opened := known.opened
	// How many descriptors it takes is not known before it has been attached.
	at.needs = amounts{sites: opened.Sites(part), descriptors: 1}
	if failed := f.failed[at.spot]; failed != nil {
		at.needs[descriptors] = max(1, failed.needs[descriptors])
	}
	if f.mustWait(at) {
		return
	}
	at.semaphores = opened.Semaphores(part)
	if wait := f.budget.waitForLeaks(at.owner, time.Now()); wait > 0 && at.semaphores > 0 {
		f.report(at, errLeaks, Later, r)
		return
	}
	if err := f.share(at.owner, at.needs, r); err != nil {
		f.fail(at, err, r)
		return
	}

	var attached A
	var ok bool
	attach := &call[A]{target: at,
		do: func() (err error) {
			attached, ok, err = opened.Attach(part, at.pair, at.Process.PID)
			return err
		},
		late: func(r *round[A]) {
			now := f.files[at.File]
			switch {
			case !ok:
			case now == nil || now.opened != opened, f.attached[at.spot] != nil, !f.isWanted(at):
				// Of a file that was written to, the driver has detached it.
				r.unwanted = append(r.unwanted, attached)
			default:
				f.add(at, attached, r)
			}
		}}
	err := f.callWithRoom(attach, r)
	switch {
	case err != nil:
		f.fail(at, err, r)
	case ok:
		f.add(at, attached, r)
	}
}

func (f *Follower[A]) add(at target, attached A, r *round[A]) {
	f.turn++
	at.needs[descriptors] = f.driver.Descriptors(attached)
	f.attached[at.spot] = &attachment[A]{target: at, attached: attached, turn: f.turn}
	f.budget.take(at.owner, at.needs, 1)
	r.Attached = append(r.Attached, attached)
}

// isWanted reports whether a target is still wanted: its process is there, and
// the file has not been written to.
func (f *Follower[A]) isWanted(at target) bool {
	known := f.files[at.File]
	return !f.isStopped() && known != nil && known.source.HasSameSites(at.pair.File) &&
		slices.ContainsFunc(f.watcher.ProcessFiles(), func(pair *procwatch.ProcessFile) bool {
			return inEveryProcess(pair) == at.Place || inProcess(pair) == at.Place
		})
}

// makeRoom detaches the files that have disappeared or linger. It reports
// whether there were any.
func (f *Follower[A]) makeRoom(r *round[A]) bool {
	room := &round[A]{gone: r.gone}
	r.gone = nil
	f.detachGone(room)
	for id, known := range f.files {
		if known.linger != nil {
			f.leave(id, room)
		}
	}
	return f.detachNow(room)
}

// mustWait reports whether a target waits: because attaching for its owner has
// taken too much of the time, because this round has, or for a call that goes
// on. If so, it is noted to be tried again. A file that has been opened just
// now takes its time, or else it might be opened again and again.
func (f *Follower[A]) mustWait(at target) bool {
	if f.running.Load() == 0 || f.opts.Proc.Patient {
		return false // the caller of SyncAll waits for all of it
	}
	now := time.Now()
	waits := !at.isNew && (f.budget.wait(at.owner, now) > 0 || now.After(f.until))
	// A call that goes on holds up targets of the same file or owner, and large
	// ones. How large a file is that is not open is known once it has waited.
	needs := at.needs
	if failed := f.failed[at.spot]; failed != nil && needs == (amounts{}) {
		needs = failed.needs
	}
	for _, c := range f.calls {
		waits = waits || !c.blocks && (c.File == at.File || c.owner == at.owner ||
			isLarge(needs) && (!at.isNew || isLarge(c.needs)))
	}
	if waits {
		f.note(at, errWaits, WithTime)
	}
	return waits
}

func isLarge(needs amounts) bool { return needs[sites] > fewSites }

// A call is made to the driver for a target.
type call[A any] struct {
	target
	do func() error
	// late is called with the lock held if do succeeds after the caller has
	// gone on.
	late func(*round[A])

	failed error // by do, once that has returned
	blocks bool  // it has waited for longer than the patience
}

// callWithRoom makes a call. If it fails for want of room, room is made and the
// call repeated.
func (f *Follower[A]) callWithRoom(c *call[A], r *round[A]) error {
	err := f.call(c)
	if when := f.retry(err); (when == WithRoom || when == WithShare) && f.makeRoom(r) {
		err = f.call(c)
	}
	for f.retry(err) == WithShare {
		if _, ended := f.takeAway(sites, c.owner, c.needs[sites]); !ended {
			break
		}
		err = f.call(c)
	}
	return err
}

// retry says when a call that has returned this error is made again.
func (f *Follower[A]) retry(err error) When {
	if err == nil {
		return Never
	}
	return f.driver.Retry(err)
}

// call makes a call to the driver. If that waits for longer than the patience,
// the error wraps proc.ErrBlocked. While Run runs, the error is errWaits if the
// call takes longer than its turn. In both cases the call goes on in the
// background. With Patient it is waited for.
func (f *Follower[A]) call(c *call[A]) error {
	if f.calls[c.File] != nil || f.unanswered.IsFull(c.owner) {
		return proc.ErrBlocked
	}
	if f.opts.Proc.Patient {
		return c.do()
	}
	patience := min(f.patience+time.Duration(c.needs[sites])*sitePatience, mostPatience*f.patience)
	going := f.unanswered.Begin(c.owner, deadline.Halved(patience, f.abandoned),
		func() { c.failed = c.do() })
	var turnOver <-chan time.Time
	if f.running.Load() > 0 { // else the caller of SyncAll waits for all of it
		timer := time.NewTimer(turn)
		defer timer.Stop()
		turnOver = timer.C
	}
	select {
	case <-going.Over:
		f.budget.spend(c.owner, time.Now(), going.Took)
		if going.IsReturned {
			return c.failed
		}
		f.abandoned++
		f.block(c, going)
		return proc.ErrBlocked
	case <-turnOver:
	}

	f.calls[c.File] = c
	f.budget.take(c.owner, c.needs, 1)
	f.budget.spend(c.owner, time.Now(), turn)
	f.closing.Go(func() {
		<-going.Over
		f.later(func(r *round[A]) {
			delete(f.calls, c.File)
			f.budget.take(c.owner, c.needs, -1)
			f.budget.spend(c.owner, time.Now(), max(0, going.Took-turn))
			if going.IsReturned {
				f.end(c, r)
			} else {
				f.block(c, going)
				f.fail(c.target, proc.ErrBlocked, r)
			}
			f.closeUnused(c.File)
		})
		f.tryAgain(WithTime)
	})
	return errWaits
}

// block notes that a call blocks, and waits for it in the background.
func (f *Follower[A]) block(c *call[A], going *deadline.Pending) {
	c.blocks, f.calls[c.File] = true, c
	attached := func() {}
	if c.part != WholeFile {
		attached = f.attaching.Begin(c.pair.Path)
	}
	go func() {
		defer attached()
		<-going.Answered
		f.later(func(r *round[A]) {
			delete(f.calls, c.File)
			f.end(c, r)
			f.closeUnused(c.File)
		})
		f.tryAgain(WithAnswer)
	}()
}

// end takes the outcome of a call that its caller has not waited for.
func (f *Follower[A]) end(c *call[A], r *round[A]) {
	if c.failed != nil {
		f.fail(c.target, c.failed, r)
	} else {
		c.late(r)
	}
}

// later takes the outcome of a call that went on. Nothing is reported any more
// after Stop or Close.
func (f *Follower[A]) later(take func(*round[A])) {
	r := &round[A]{}
	f.lock()
	take(r)
	if !f.isStopped() {
		f.finish(r)
	}
	f.following.Unlock()
	_ = f.driver.Detach(r.unwanted) // the kernel detaches in spite of an error
}

// failure is the reason why a spot is not attached.
type failure struct {
	text  string
	when  When
	turn  uint64 // later ones are greater
	owner string
	needs amounts // for a part of a file

	first  time.Time // when it has failed first
	next   time.Time // it is not tried again before
	isTold bool      // that it is not ready
}

// fail notes that a target could not be opened or attached. It is tried again
// if it may succeed. It is reported unless the process has ended, or it has
// been reported before.
func (f *Follower[A]) fail(at target, err error, r *round[A]) {
	switch {
	case errors.Is(err, os.ErrClosed):
		return // the caller closes the follower soon, or has closed it
	case errors.Is(err, errWaits):
		f.note(at, err, WithTime)
		return
	}
	if errors.Is(err, elffile.ErrTooLarge) {
		// Finding that out takes a second, and there may be many processes.
		if len(f.refused) >= maxRefused {
			clear(f.refused)
		}
		f.refused[at.File] = at.pair.File
	}
	if at.isOver() {
		if n := len(r.Missed); n == 0 || r.Missed[n-1] != at.pair {
			r.Missed = append(r.Missed, at.pair)
		}
		return
	}
	var full *usdt.LimitError
	when := f.driver.Retry(err)
	switch {
	case errors.Is(err, proc.ErrBlocked):
		when = WithAnswer
	case errors.As(err, &full) && strings.HasPrefix(full.Option, limitsOption):
		when = WithShare
	}
	if errors.Is(err, procfs.ErrChanged) {
		f.watcher.ScanAgain(at.pair.Process.PID) // else it would be tried with the old file
	}
	if when != WhenReady {
		f.report(at, err, when, r)
		return
	}
	f.note(at, err, when)
	failed, now := f.failed[at.spot], time.Now()
	waited := now.Sub(failed.first)
	failed.next = now.Add(max(firstTry, waited/triesPart))
	if waited > longestStart && !failed.isTold {
		failed.isTold = true
		r.Errors = append(r.Errors, f.driver.Explain(at.part, at.pair, err))
	}
}

// report notes a failure, and reports it if that is news.
func (f *Follower[A]) report(at target, err error, when When, r *round[A]) {
	if f.note(at, err, when) {
		r.Errors = append(r.Errors, f.driver.Explain(at.part, at.pair, err))
	}
}

// note notes a failure. It reports whether that is news: another error than the
// target's last.
func (f *Follower[A]) note(at target, err error, when When) (news bool) {
	if when == Never {
		delete(f.failed, at.spot)
		return true
	}
	before := f.failed[at.spot]
	f.turn++
	now := &failure{text: err.Error(), when: when, turn: f.turn, owner: at.owner, needs: at.needs,
		first: time.Now()}
	if before != nil {
		now.first, now.isTold = before.first, before.isTold
		if now.needs == (amounts{}) {
			now.needs = before.needs
		}
	}
	switch {
	case when == WithShare:
		now.text = "share" // the numbers of these errors change all the time
	case before != nil && when == WithTime:
		now.text = before.text // it waits to be tried again
	}
	f.failed[at.spot] = now
	return before == nil || before.text != now.text
}

// tryAgain tries to attach the targets that have failed with this When or a
// later one. Those that failed first come first, and owners take turns. After
// maxRetryRound the rest is left for the next call.
func (f *Follower[A]) tryAgain(when When) {
	f.lock()
	defer f.following.Unlock()
	if when == WithTime {
		f.waits = nil // what still has to wait sets it again
	}
	if f.isStopped() || len(f.failed) == 0 {
		return
	}
	pairs := f.watcher.ProcessFiles()
	current := make(map[Place]*procwatch.ProcessFile, 2*len(pairs))
	for _, pair := range slices.Backward(pairs) {
		current[inProcess(pair)] = pair
		current[inEveryProcess(pair)] = pair
	}
	var targets []target
	now := time.Now()
	for at, failed := range f.failed {
		if pair := current[at.Place]; pair == nil {
			delete(f.failed, at)
		} else if failed.when >= when && !failed.next.After(now) {
			targets = append(targets, target{spot: at, pair: pair, owner: failed.owner})
		}
	}
	slices.SortFunc(targets, func(x, y target) int {
		return cmp.Compare(f.failed[x.spot].turn, f.failed[y.spot].turn)
	})

	r := &round[A]{}
	for _, at := range f.budget.inTurn(targets, now) {
		before := f.failed[at.spot]
		if before != nil && before.next.After(now) {
			continue // it has just failed, as a part of another target
		}
		if at.isOver() {
			f.miss(at.Place, at.pair, r)
		} else {
			f.attach([]target{at}, r)
		}
		if f.failed[at.spot] == before {
			delete(f.failed, at.spot) // it has not failed again
		}
		if time.Since(now) >= maxRetryRound {
			break
		}
	}
	f.finish(r)
}
