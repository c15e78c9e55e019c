// SPDX-License-Identifier: BSD-2-Clause

package watch

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
	"github.com/gousdt/gousdt/usdt"
	"github.com/gousdt/gousdt/usdt/proc"
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
func (w *Watch) attach(targets []target, r *round) {
	now := time.Now()
	w.until = now.Add(maxAttachRound)
	targets = slices.DeleteFunc(w.budget.inTurn(targets, now), func(at target) bool {
		failed := w.failed[at.spot]
		return failed != nil && failed.next.After(now)
	})
	for part := range w.parts {
		targets = slices.DeleteFunc(targets, func(at target) bool {
			if at.part != wholeFile && at.part != part {
				return false
			}
			if part > 0 {
				at.part = part // the parts before are attached, or noted
			}
			known := w.files[at.File]
			wasOpen := known != nil && known.opened != nil
			if !w.open(at, r) {
				return true
			}
			at.isNew = at.isNew || !wasOpen
			w.attachPart(part, at, r)
			if w.attached[spot{at.location, part}] == nil {
				w.closeUnused(at.File)
			}
			return false
		})
	}
}

// closeUnused closes a file unless something of it is attached or being
// attached: what has been read of it takes memory. It is opened again when
// there is room and time to attach it.
func (w *Watch) closeUnused(id procfs.FileID) {
	known := w.files[id]
	if known == nil || known.opened == nil || w.calls[id] != nil {
		return
	}
	for at := range w.attached {
		if at.File == id {
			return
		}
	}
	w.close(id)
}

// open opens the file of a target, once for all its processes. It reports
// whether the file is open.
func (w *Watch) open(at target, r *round) bool {
	known := w.files[at.File]
	switch {
	case known == nil || w.isStopped():
		return false
	case known.opened != nil:
		return true
	case known.writes:
		w.note(at, errWritten, later)
		return false
	case w.isRefused(at.File) || w.mustWait(at):
		return false
	}
	whole := at
	whole.part = wholeFile
	if failed := w.failed[at.spot]; failed != nil { // perhaps for want of a share
		whole.needs = failed.needs
		if err := w.share(at.owner, failed.needs, r); err != nil {
			w.fail(at, err, r)
			return false
		}
	}
	opened := new(opened)
	err := w.callWithRoom(&call{target: whole,
		do: func() (err error) {
			opened.openFile, err = w.driver.Open(at.pair, func() { w.written(at.File, opened) })
			return err
		},
		late: func(r *round) {
			if w.files[at.File] != known || known.opened != nil || !w.isWanted(at) {
				opened.Close()
				return
			}
			if w.setOpened(at, opened) {
				at.isNew = true
				w.attach([]target{at}, r)
			}
		}}, r)
	switch {
	case errors.Is(err, errWaits):
		w.fail(at, err, r)
	case err != nil:
		w.fail(whole, err, r)
	default:
		return w.setOpened(at, opened)
	}
	return false
}

// isRefused reports whether a file that a process maps is too large, as far as
// it has not been written to since.
func (w *Watch) isRefused(id procfs.FileID) bool {
	known, refused := w.files[id], w.refused[id]
	return known != nil && refused != nil && refused.HasSameSites(known.source)
}

// attachPart attaches a part of a file that is open.
func (w *Watch) attachPart(part int, at target, r *round) {
	at.part = part
	known := w.files[at.File]
	if w.isStopped() || known == nil || known.opened == nil || w.attached[at.spot] != nil {
		return
	}
	opened := known.opened
	// How many descriptors it takes is not known before it has been attached.
	at.needs = amounts{sites: opened.Sites(part), descriptors: 1}
	if failed := w.failed[at.spot]; failed != nil {
		at.needs[descriptors] = max(1, failed.needs[descriptors])
	}
	if w.mustWait(at) {
		return
	}
	at.semaphores = opened.Semaphores(part)
	if wait := w.budget.waitForLeaks(at.owner, time.Now()); wait > 0 && at.semaphores > 0 {
		w.report(at, errLeaks, later, r)
		return
	}
	if err := w.share(at.owner, at.needs, r); err != nil {
		w.fail(at, err, r)
		return
	}

	var attached attached
	var ok bool
	attach := &call{target: at,
		do: func() (err error) {
			attached, ok, err = opened.Attach(part, at.pair, at.Process.PID)
			return err
		},
		late: func(r *round) {
			now := w.files[at.File]
			switch {
			case !ok:
			case now == nil || now.opened != opened, w.attached[at.spot] != nil, !w.isWanted(at):
				// Of a file that was written to, the driver has detached it.
				r.unwanted = append(r.unwanted, attached)
			default:
				w.add(at, attached, r)
			}
		}}
	err := w.callWithRoom(attach, r)
	switch {
	case err != nil:
		w.fail(at, err, r)
	case ok:
		w.add(at, attached, r)
	}
}

func (w *Watch) add(at target, attached attached, r *round) {
	w.turn++
	at.needs[descriptors] = attached.Descriptors()
	w.attached[at.spot] = &attachment{target: at, attached: attached, turn: w.turn}
	w.budget.take(at.owner, at.needs, 1)
	if at.isInEveryProcess() {
		w.files[at.File].since = time.Now()
	}
	r.attached = append(r.attached, attached)
}

// isWanted reports whether a target is still wanted: its process is there, and
// the file has not been written to.
func (w *Watch) isWanted(at target) bool {
	known := w.files[at.File]
	return !w.isStopped() && known != nil && known.source.HasSameSites(at.pair.File) &&
		slices.ContainsFunc(w.watcher.ProcessFiles(), func(pair *procwatch.ProcessFile) bool {
			return inEveryProcess(pair) == at.location || inProcess(pair) == at.location
		})
}

// makeRoom detaches the files that have disappeared or linger. It reports
// whether there were any.
func (w *Watch) makeRoom(r *round) bool {
	room := &round{gone: r.gone}
	r.gone = nil
	w.detachGone(room)
	for id, known := range w.files {
		if known.linger != nil {
			w.leave(id, room)
		}
	}
	return w.detachNow(room)
}

// mustWait reports whether a target waits: because attaching for its owner has
// taken too much of the time, because this round has, or for a call that goes
// on. If so, it is noted to be tried again. A file that has been opened just
// now takes its time, or else it might be opened again and again.
func (w *Watch) mustWait(at target) bool {
	if w.running.Load() == 0 || w.opts.Patient {
		return false // the caller of Sync waits for all of it
	}
	now := time.Now()
	waits := !at.isNew && (w.budget.wait(at.owner, now) > 0 || now.After(w.until))
	// A call that goes on holds up targets of the same file or owner, and large
	// ones. How large a file is that is not open is known once it has waited.
	needs := at.needs
	if failed := w.failed[at.spot]; failed != nil && needs == (amounts{}) {
		needs = failed.needs
	}
	for _, c := range w.calls {
		waits = waits || !c.blocks && (c.File == at.File || c.owner == at.owner ||
			isLarge(needs) && (!at.isNew || isLarge(c.needs)))
	}
	if waits {
		w.note(at, errWaits, withTime)
	}
	return waits
}

func isLarge(needs amounts) bool { return needs[sites] > fewSites }

// A call is made to the driver for a target.
type call struct {
	target
	do func() error
	// late is called with the lock held if do succeeds after the caller has
	// gone on.
	late func(*round)

	failed error // by do, once that has returned
	blocks bool  // it has waited for longer than the patience
}

// callWithRoom makes a call. If it fails for want of room, room is made and the
// call repeated.
func (w *Watch) callWithRoom(c *call, r *round) error {
	for {
		err := w.call(c)
		if err == nil {
			return nil
		}
		when := w.driver.Retry(err)
		if (when == withRoom || when == withShare) && w.makeRoom(r) {
			continue
		}
		if when != withShare {
			return err
		}
		if _, ended := w.takeAway(sites, c.owner, c.needs[sites]); !ended {
			return err
		}
	}
}

// call makes a call to the driver. If that waits for longer than the patience,
// the error wraps proc.ErrBlocked. While Run runs, the error is errWaits if the
// call takes longer than its turn. In both cases the call goes on in the
// background. With Patient it is waited for.
func (w *Watch) call(c *call) error {
	if w.calls[c.File] != nil || w.unanswered.IsFull(c.owner) {
		return proc.ErrBlocked
	}
	if w.opts.Patient {
		return c.do()
	}
	patience := min(w.patience+time.Duration(c.needs[sites])*sitePatience, mostPatience*w.patience)
	going := w.unanswered.Begin(c.owner, deadline.Halved(patience, w.abandoned),
		func() { c.failed = c.do() })
	var turnOver <-chan time.Time
	if w.running.Load() > 0 { // else the caller of Sync waits for all of it
		timer := time.NewTimer(turn)
		defer timer.Stop()
		turnOver = timer.C
	}
	select {
	case <-going.Over:
		w.budget.spend(c.owner, time.Now(), going.Took)
		if going.IsReturned {
			return c.failed
		}
		w.abandoned++
		w.block(c, going)
		return proc.ErrBlocked
	case <-turnOver:
	}

	w.calls[c.File] = c
	w.budget.take(c.owner, c.needs, 1)
	w.budget.spend(c.owner, time.Now(), turn)
	w.closing.Go(func() {
		<-going.Over
		w.later(func(r *round) {
			delete(w.calls, c.File)
			w.budget.take(c.owner, c.needs, -1)
			w.budget.spend(c.owner, time.Now(), max(0, going.Took-turn))
			if going.IsReturned {
				w.end(c, r)
			} else {
				w.block(c, going)
				w.fail(c.target, proc.ErrBlocked, r)
			}
			w.closeUnused(c.File)
		})
		w.tryAgain(withTime)
	})
	return errWaits
}

// block notes that a call blocks, and waits for it in the background.
func (w *Watch) block(c *call, going *deadline.Pending) {
	c.blocks, w.calls[c.File] = true, c
	attached := func() {}
	if c.part != wholeFile {
		attached = w.attaching.Begin(c.pair.Path)
	}
	go func() {
		defer attached()
		<-going.Answered
		w.later(func(r *round) {
			delete(w.calls, c.File)
			w.end(c, r)
			w.closeUnused(c.File)
		})
		w.tryAgain(withAnswer)
	}()
}

// end takes the outcome of a call that its caller has not waited for.
func (w *Watch) end(c *call, r *round) {
	if c.failed != nil {
		w.fail(c.target, c.failed, r)
	} else {
		c.late(r)
	}
}

// later takes the outcome of a call that went on. Nothing is reported any more
// after Stop or Close.
func (w *Watch) later(take func(*round)) {
	r := &round{}
	w.lock()
	take(r)
	if !w.isStopped() {
		w.finish(r)
	}
	w.following.Unlock()
	_ = w.driver.Detach(r.unwanted) // the kernel detaches in spite of an error
}

// failure is the reason why a spot is not attached.
type failure struct {
	text  string
	when  retryTime
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
func (w *Watch) fail(at target, err error, r *round) {
	switch {
	case errors.Is(err, os.ErrClosed):
		return // the caller closes the watch soon, or has closed it
	case errors.Is(err, errWaits):
		w.note(at, err, withTime)
		return
	}
	if errors.Is(err, elffile.ErrTooLarge) {
		// Finding that out takes a second, and there may be many processes.
		if len(w.refused) >= maxRefused {
			clear(w.refused)
		}
		w.refused[at.File] = at.pair.File
	}
	if at.isOver() {
		if n := len(r.missed); n == 0 || r.missed[n-1] != at.pair {
			r.missed = append(r.missed, at.pair)
		}
		return
	}
	var full *usdt.LimitError
	when := w.driver.Retry(err)
	switch {
	case errors.Is(err, proc.ErrBlocked):
		when = withAnswer
	case errors.As(err, &full) && strings.HasPrefix(full.Option, limitsOption):
		when = withShare
	}
	if errors.Is(err, procfs.ErrChanged) {
		w.watcher.ScanAgain(at.pair.Process.PID) // else it would be tried with the old file
	}
	if when != whenReady {
		w.report(at, err, when, r)
		return
	}
	w.note(at, err, when)
	failed, now := w.failed[at.spot], time.Now()
	waited := now.Sub(failed.first)
	failed.next = now.Add(max(firstTry, waited/triesPart))
	if waited > longestStart && !failed.isTold {
		failed.isTold = true
		r.errors = append(r.errors, w.driver.Explain(at.part, at.pair, err))
	}
}

// report notes a failure, and reports it if that is news.
func (w *Watch) report(at target, err error, when retryTime, r *round) {
	if w.note(at, err, when) {
		r.errors = append(r.errors, w.driver.Explain(at.part, at.pair, err))
	}
}

// note notes a failure. It reports whether that is news: another error than the
// target's last.
func (w *Watch) note(at target, err error, when retryTime) (news bool) {
	if when == never {
		delete(w.failed, at.spot)
		return true
	}
	before := w.failed[at.spot]
	w.turn++
	now := &failure{text: err.Error(), when: when, turn: w.turn, owner: at.owner, needs: at.needs,
		first: time.Now()}
	if before != nil {
		now.first, now.isTold = before.first, before.isTold
		if now.needs == (amounts{}) {
			now.needs = before.needs
		}
	}
	switch {
	case when == withShare:
		now.text = "share" // the numbers of these errors change all the time
	case before != nil && when == withTime:
		now.text = before.text // it waits to be tried again
	}
	w.failed[at.spot] = now
	return before == nil || before.text != now.text
}

// tryAgain tries to attach the targets that have failed at this time or a
// later one. Those that failed first come first, and owners take turns. After
// maxRetryRound the rest is left for the next call.
func (w *Watch) tryAgain(when retryTime) {
	w.lock()
	defer w.following.Unlock()
	if when == withTime {
		w.waits = nil // what still has to wait sets it again
	}
	if w.isStopped() || len(w.failed) == 0 {
		return
	}
	pairs := w.watcher.ProcessFiles()
	current := make(map[location]*procwatch.ProcessFile, 2*len(pairs))
	for _, pair := range slices.Backward(pairs) {
		current[inProcess(pair)] = pair
		current[inEveryProcess(pair)] = pair
	}
	var targets []target
	now := time.Now()
	for at, failed := range w.failed {
		if pair := current[at.location]; pair == nil {
			delete(w.failed, at)
		} else if failed.when >= when && !failed.next.After(now) {
			targets = append(targets, target{spot: at, pair: pair, owner: failed.owner})
		}
	}
	slices.SortFunc(targets, func(x, y target) int {
		return cmp.Compare(w.failed[x.spot].turn, w.failed[y.spot].turn)
	})

	r := &round{}
	for _, at := range w.budget.inTurn(targets, now) {
		before := w.failed[at.spot]
		if before != nil && before.next.After(now) {
			continue // it has just failed, as a part of another target
		}
		if at.isOver() {
			w.miss(at.location, at.pair, r)
		} else {
			w.attach([]target{at}, r)
		}
		if w.failed[at.spot] == before {
			delete(w.failed, at.spot) // it has not failed again
		}
		if time.Since(now) >= maxRetryRound {
			break
		}
	}
	w.finish(r)
}
