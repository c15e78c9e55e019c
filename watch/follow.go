// SPDX-License-Identifier: BSD-2-Clause

package watch

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"syscall"
	"time"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/deadline"
	"github.com/gousdt/gousdt/internal/elffile"
	"github.com/gousdt/gousdt/internal/procfs"
	"github.com/gousdt/gousdt/internal/procwatch"
	"github.com/gousdt/gousdt/internal/settle"
)

// file is a file that a process maps, or did until a moment ago.
type file struct {
	source *procwatch.CachedFile // as it was read last
	pairs  int                   // of processes that map it
	opened *opened               // nil if it is not open
	writes bool                  // it is being written to
	busy   time.Time             // since when others have had it open for writing
	linger *time.Timer           // detaches it; nil if a process maps it
	since  time.Time             // when it was attached to every process, all of it
}

// opened is a file that the driver has opened. It may have been written to
// before that is known here.
type opened struct {
	openFile
	isWritten bool
}

// A spot is the unit of attaching: a part of the file at a place.
type spot struct {
	location
	part int // or wholeFile
}

type attachment struct {
	target   // and what it needs
	attached attached
	turn     uint64 // later ones are greater
}

// newWatch returns a watch that attaches the parts of files by a driver.
func newWatch(driver driver, opts Options, parts int, patterns ...elfnote.Pattern) (*Watch, error) {
	fs := procfs.FS(opts.Proc)
	if opts.isPerProcess() && !procfs.HasOwnPIDs(fs.Root()) {
		return nil, fmt.Errorf("watch: attaching to single processes needs the PIDs of the caller's own PID namespace, "+
			"which are not those of the proc file system at %s: watch without PerProcess and After", fs.Root())
	}
	if opts.Linger == 0 {
		opts.Linger = time.Second
	}
	w := &Watch{
		opts: opts, driver: driver, parts: parts,
		patience:   deadline.File,
		unanswered: deadline.Unanswered{Most: maxBlocked},
		following:  deadline.NewInTurns(),
		files:      make(map[procfs.FileID]*file),
		refused:    make(map[procfs.FileID]*procwatch.CachedFile),
		attached:   make(map[spot]*attachment),
		failed:     make(map[spot]*failure),
		calls:      make(map[procfs.FileID]*call),
		budget:     newBudget(opts.Limits),
	}
	w.stats.Store(&Stats{})
	w.watcher = procwatch.NewWatcher(&procwatch.WatcherOptions{FS: fs, Filter: opts.Filter,
		Patient: opts.Patient, Handler: w.follow, BeforePass: func() {
			if opts.BeforePass != nil {
				opts.BeforePass()
			}
			w.tryAgain(later)
		}}, patterns...)
	return w, nil
}

// A round is the outcome of one set of changes of the processes. The first four
// fields are what [Changes] has.
type round struct {
	attached []attached
	detached []attached
	missed   []*procwatch.ProcessFile
	errors   []error
	// gone are changes whose disappeared files are still attached. It is nil
	// once they are detached.
	gone *procwatch.Changes
	// unwanted was attached by a call that returned too late.
	unwanted []attached
}

// A target is a spot to attach, and the pair by which it was found. If its part
// is wholeFile, all parts are to be attached.
type target struct {
	spot
	pair  *procwatch.ProcessFile
	owner string  // takes the share
	needs amounts // for a part
	// semaphores is the number of those of a part that is attached.
	semaphores int
	nth        int  // of its owner's, where these take turns
	isNew      bool // its file has been opened just now
}

func (w *Watch) target(at location, pair *procwatch.ProcessFile) target {
	return target{spot: spot{at, wholeFile}, pair: pair,
		owner: deadline.OwnerOf(w.watcher.FS.Root(), pair.Process.PID)}
}

// isOver reports whether the target is in a process that has ended. Its PID may
// be that of another one already.
func (t *target) isOver() bool {
	if t.isInEveryProcess() {
		return false
	}
	running, err := t.pair.Process.IsRunning()
	return err == nil && !running
}

// inProcess returns the place of a pair's file in its process.
func inProcess(pair *procwatch.ProcessFile) location {
	id := procwatch.ID{PID: pair.Process.PID, StartTime: pair.Process.StartTime}
	return location{Process: id, File: pair.File.ID()}
}

// inEveryProcess returns the place of a pair's file in every process.
func inEveryProcess(pair *procwatch.ProcessFile) location { return location{File: pair.File.ID()} }

// follow attaches what has appeared and detaches what has disappeared.
func (w *Watch) follow(changes *procwatch.Changes) {
	w.lock()
	defer w.following.Unlock()
	gone := *changes
	gone.Disappeared = slices.DeleteFunc(slices.Clone(changes.Disappeared), isShort)
	r := &round{gone: &gone}
	if !w.isStopped() { // else Close detaches everything
		r.errors = slices.Clone(changes.Errors)
		r.missed = w.tooShort(changes.Appeared)
		w.attach(w.targets(changes), r)
		w.detachGone(r)
		for _, pair := range changes.Disappeared {
			if isShort(pair) {
				w.unmap(pair.File.ID(), r) // not before it is attached
			}
		}
		if slices.ContainsFunc(changes.Errors, procfs.IsLack) {
			w.makeRoom(r) // for the next scan
		}
	}
	if report := procwatch.Report(w.opts.Mapped); report != nil {
		report(changes)
	}
	w.finish(r)
}

// isShort reports whether a process had ended before it was looked at.
func isShort(pair *procwatch.ProcessFile) bool { return !pair.Began().IsZero() }

// tooShort returns the files of such processes that began before the files were
// attached.
func (w *Watch) tooShort(appeared []*procwatch.ProcessFile) (missed []*procwatch.ProcessFile) {
	for _, pair := range appeared {
		known := w.files[pair.File.ID()]
		if isShort(pair) && (known == nil || known.since.IsZero() || pair.Began().Before(known.since)) {
			missed = append(missed, pair)
		}
	}
	return missed
}

func (w *Watch) lock() {
	w.following.Lock()
	w.abandoned = 0
}

// targets returns the targets to attach. It first detaches files that were
// written to or are mapped elsewhere, to be attached anew: to the kernel both
// are the same file, and so no hit is seen by both.
func (w *Watch) targets(changes *procwatch.Changes) []target {
	var targets []target
	old := &round{}
	for _, pair := range changes.Appeared {
		id, perProcess := pair.File.ID(), w.driver.PerProcess(pair.File)
		known := w.files[id]
		if known == nil {
			known = &file{source: pair.File}
			w.files[id] = known
		}
		if known.linger != nil {
			known.linger.Stop()
			known.linger = nil
		}
		known.pairs++
		written := !known.source.HasSameSites(pair.File)
		if written {
			w.close(id)
			for at := range w.attached {
				if at.File == id {
					w.detachRunning(at.location, old)
				}
			}
		}
		switch {
		case perProcess && isShort(pair): // it has ended
		case perProcess:
			targets = append(targets, w.afterwards(inProcess(pair), pair))
		case known.pairs == 1 || known.source != pair.File:
			targets = append(targets, w.target(inEveryProcess(pair), pair))
		}
		known.source = pair.File
		if !written || !perProcess {
			continue
		}
		for _, other := range w.watcher.ProcessFiles() {
			if other.File != pair.File && other.File.ID() == id {
				// It has not been scanned since the file was written to.
				place, other := inProcess(other), *other
				other.File = pair.File
				targets = append(targets, w.target(place, &other))
			}
		}
	}
	for _, pair := range changes.Moved {
		place := inProcess(pair)
		all := slices.DeleteFunc(w.attachedAt(place), func(a *attachment) bool {
			// What has only mapped it, as usdttrace does for a command.
			return !slices.ContainsFunc(a.pair.Mappings, procwatch.TakesHits)
		})
		if pair.HasExecuted() && pair.File.IsMiscounted() && len(all) > 0 {
			old.errors = append(old.errors, w.driver.Explain(all[0].part, pair, errAgain))
		}
		if w.driver.PerProcess(pair.File) && w.opts.After > 0 && pair.HasExecuted() {
			w.detachRunning(place, old)
			targets = append(targets, w.afterwards(place, pair))
		}
	}
	if !w.detachNow(old) {
		w.tell(old)
	}
	return targets
}

// errAgain says what follows from elfnote.Site.SemaphoreMiscounted.
var errAgain = errors.New("the process has executed the program again while it was attached: the " +
	"kernel counts its semaphores in the wrong segment, and a probe that asks its own is not seen")

// afterwards returns the target of a file in a process, which waits for the
// time that has been set.
func (w *Watch) afterwards(place location, pair *procwatch.ProcessFile) target {
	at := w.target(place, pair)
	if w.opts.After > 0 {
		w.note(at, errEarly, whenReady)
		w.failed[at.spot].next = time.Now().Add(w.opts.After)
	}
	return at
}

func (w *Watch) attachedAt(place location) (all []*attachment) {
	for part := range w.parts {
		if a := w.attached[spot{place, part}]; a != nil {
			all = append(all, a)
		}
	}
	return all
}

// detachGone detaches the files that have disappeared, unless that has been
// done.
func (w *Watch) detachGone(r *round) {
	if r.gone == nil {
		return
	}
	again := make(map[location]bool) // of a file that was written to
	for _, pair := range r.gone.Appeared {
		again[inProcess(pair)] = true
	}
	for _, pair := range r.gone.Disappeared {
		place, id := inProcess(pair), pair.File.ID()
		if !again[place] {
			w.detach(place, r)
			w.miss(place, pair, r)
		}
		w.unmap(id, r)
	}
	r.gone = nil
}

// unmap notes that a process does not map a file any more. After the last one
// it leaves the file. An attachment to every process lingers before that.
func (w *Watch) unmap(id procfs.FileID, r *round) {
	known := w.files[id]
	if known.pairs--; known.pairs > 0 {
		return
	}
	if w.opts.Linger < 0 || len(w.attachedAt(location{File: id})) == 0 ||
		known.opened == nil || known.opened.HoldsWriters() != nil {
		w.leave(id, r)
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(w.opts.Linger, func() {
		w.lock()
		defer w.following.Unlock()
		if known := w.files[id]; known != nil && known.linger == timer { // else it was stopped too late
			r := &round{}
			w.leave(id, r)
			w.finish(r)
		}
	})
	known.linger = timer
}

// miss notes that a process has ended, or unmapped a file, before it was ready
// to be attached.
func (w *Watch) miss(place location, pair *procwatch.ProcessFile, r *round) {
	for part := wholeFile; part < w.parts; part++ {
		at := spot{place, part}
		failed := w.failed[at]
		if failed == nil || failed.when != whenReady {
			continue
		}
		delete(w.failed, at)
		if n := len(r.missed); n == 0 || r.missed[n-1] != pair {
			r.missed = append(r.missed, pair)
		}
	}
}

// leave detaches and closes a file that no process maps any more.
func (w *Watch) leave(id procfs.FileID, r *round) {
	if timer := w.files[id].linger; timer != nil {
		timer.Stop()
	}
	w.detach(location{File: id}, r)
	w.close(id)
	delete(w.files, id)
}

// close closes a file if it is open. It does not wait for a call that uses it.
func (w *Watch) close(id procfs.FileID) {
	opened := w.files[id].opened
	w.files[id].opened = nil
	switch {
	case opened == nil:
	case w.calls[id] != nil:
		go opened.Close()
	default:
		opened.Close()
	}
}

// setOpened notes that a file is open, unless another process has it open for
// writing, as the next build of a program that has ended. What is attached to
// it then could not be detached in time.
func (w *Watch) setOpened(at target, opened *opened) bool {
	known := w.files[at.File]
	switch {
	case !errors.Is(opened.HoldsWriters(), syscall.EAGAIN):
		known.busy = time.Time{}
	case known.busy.IsZero():
		known.busy = time.Now()
		fallthrough
	case time.Since(known.busy) < longestWrite:
		opened.Close()
		w.note(at, errWritten, withTime)
		return false
	}
	known.opened = opened
	if opened.isWritten {
		go w.written(at.File, opened)
	}
	return true
}

// written takes note that the driver has detached a file because it is written
// to, and attaches it again once that is over.
func (w *Watch) written(id procfs.FileID, opened *opened) {
	w.lock()
	defer w.following.Unlock()
	opened.isWritten = true
	known := w.files[id]
	if w.isStopped() || known == nil || known.opened != opened {
		return
	}
	r := &round{}
	if known.pairs == 0 {
		w.leave(id, r)
		w.finish(r)
		return
	}
	for at, a := range maps.Clone(w.attached) {
		if at.File == id {
			w.detachRunning(at.location, r)
			w.report(a.target, errWritten, later, r) // each part is attached again
		}
	}
	w.close(id)
	var pair *procwatch.ProcessFile
	var scanned []int
	for _, of := range w.watcher.ProcessFiles() {
		// Those of overlayfs that map another file had the same data before.
		if of.File.ID() == id && (pair == nil || of.Found.FileID != id) {
			pair = of
			scanned = append(scanned, of.Process.PID)
		}
	}
	known.writes = pair != nil
	w.finish(r)
	if pair == nil {
		return // its processes are ending
	}
	pair.File.Hold() // the descriptor stays the file's
	go func() {
		file := elffile.OSFile(pair.File.ELF())
		for range longestWrite / writePause {
			if w.isStopped() || settle.File(file, writePause) {
				break
			}
		}
		pair.File.Release()
		w.lock()
		known.writes = false
		w.following.Unlock()
		for _, pid := range scanned {
			_ = w.Sync(context.Background(), pid) // reads it anew for all; its errors are reported
		}
		w.tryAgain(later)
	}()
}

var errWritten = errors.New("the file is being written to, and is attached again after that")

// A file that another process has open for writing for longer than longestWrite
// is attached all the same. It is detached when it is next written to.
const (
	longestWrite = 10 * time.Second
	writePause   = 100 * time.Millisecond
)

// detachRunning is detach where processes go on that map the file.
func (w *Watch) detachRunning(place location, r *round) {
	for _, a := range w.attachedAt(place) {
		w.budget.mayLeak(a.owner, a.semaphores, time.Now())
	}
	w.detach(place, r)
}

// detach notes that all parts of a place are to be detached.
func (w *Watch) detach(place location, r *round) {
	if known := w.files[place.File]; known != nil && place.isInEveryProcess() {
		known.since = time.Time{}
	}
	for _, a := range w.attachedAt(place) {
		delete(w.attached, a.spot)
		w.budget.take(a.owner, a.needs, -1)
		r.detached = append(r.detached, a.attached)
	}
}

// detachNow detaches, and returns when that is done. It reports whether there
// was anything to detach.
func (w *Watch) detachNow(r *round) bool {
	if len(r.detached) == 0 {
		return false
	}
	<-w.detaching(r)
	return true
}

// finish ends a round. It detaches in the background, because the kernel takes
// its time, and other processes are waiting to be attached.
func (w *Watch) finish(r *round) {
	w.count()
	w.detaching(r)
}

// detaching tells the driver what has changed, and begins to detach. The
// channel is closed when that is done. Then what lacked room is tried again.
func (w *Watch) detaching(r *round) (ended <-chan struct{}) {
	w.tell(r)
	done := make(chan struct{})
	if len(r.detached) == 0 {
		close(done)
		return done
	}
	w.closing.Go(func() {
		_ = w.driver.Detach(r.detached) // the kernel detaches in spite of an error
		close(done)
		w.tryAgain(withRoom)
	})
	return done
}

func (w *Watch) tell(r *round) {
	if len(r.attached)+len(r.detached)+len(r.missed)+len(r.errors) > 0 {
		w.driver.Changed(r)
	}
}
