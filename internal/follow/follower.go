// SPDX-License-Identifier: BSD-2-Clause

// Package follow keeps something attached to the files of processes while the
// processes come and go. It is the engine of package watch.
//
// A procwatch.Watcher finds the processes. A [Follower] decides what to attach
// and to detach: in every process or in each one alone, how long a file stays
// attached after its last process, which owner makes room for another one, and
// what is tried again. A [Driver] does the attaching and detaching.
package follow

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/attaching"
	"github.com/gousdt/gousdt/internal/deadline"
	"github.com/gousdt/gousdt/internal/elffile"
	"github.com/gousdt/gousdt/internal/procfs"
	"github.com/gousdt/gousdt/internal/procwatch"
)

// Options say which processes a [Follower] follows.
type Options struct {
	// Proc says which processes there are and which of them are wanted. Its
	// Handler is called after everything has been attached, before Changed.
	Proc procwatch.WatcherOptions
	// Parts is the number of parts of a file. They are attached one after the
	// other: each of them to all files that were found together.
	Parts int
	// NeedsPIDs says that a file may be attached in one process. For that the
	// kernel must know the PIDs of Proc.FS.
	NeedsPIDs bool
	// Limits bound what is attached.
	Limits Limits
	// Linger is the time for which a file that is attached in every process
	// stays attached after its last process. 0 means a second, so that a file
	// is attached at most once a second and nothing is held for long. A
	// negative duration means that it does not stay.
	Linger time.Duration
	// After is the time after which a file is attached in a process, from when
	// it was found there.
	After time.Duration
}

// A Follower keeps a file attached as long as a process maps it. Its methods
// may be called by several goroutines at once.
type Follower[A any] struct {
	driver   Driver[A]
	opts     Options
	watcher  *procwatch.Watcher
	patience time.Duration // with a call of the driver
	running  atomic.Int32  // calls of Run
	stats    atomic.Pointer[Stats]
	closing  sync.WaitGroup
	// unanswered counts the calls that do not return.
	unanswered deadline.Unanswered

	// following is held while changes are followed. It guards what comes next.
	following deadline.InTurns
	files     map[procfs.FileID]*file[A]              // that processes map, or that linger
	refused   map[procfs.FileID]*procwatch.CachedFile // too large to be opened again
	attached  map[spot]*attachment[A]
	failed    map[spot]*failure // may succeed later
	calls     map[procfs.FileID]*call[A]
	attaching attaching.Files // those of them that attach
	abandoned int             // calls, since the lock was taken
	budget    *budget
	turn      uint64      // counts attachments and failures
	until     time.Time   // when this round of attaching ends
	waits     *time.Timer // tries again what waits for time
	ready     *time.Timer // tries again what is starting
}

// file is a file that a process maps, or did until a moment ago.
type file[A any] struct {
	source *procwatch.CachedFile // as it was read last
	pairs  int                   // of processes that map it
	opened *opened[A]            // nil if it is not open
	writes bool                  // it is being written to
	busy   time.Time             // since when others have had it open for writing
	linger *time.Timer           // detaches it; nil if a process maps it
}

// opened is a file that the driver has opened. It may have been written to
// before that is known here.
type opened[A any] struct {
	File[A]
	isWritten bool
}

// A spot is the unit of attaching: a part of the file at a place.
type spot struct {
	Place
	part int // or WholeFile
}

type attachment[A any] struct {
	target   // and what it needs
	attached A
	turn     uint64 // later ones are greater
}

// New returns a follower of the processes that map a file with a probe that
// matches one of the patterns. It does nothing before the first call of Sync,
// SyncAll or Run.
func New[A any](driver Driver[A], opts Options, patterns ...elfnote.Pattern) (*Follower[A], error) {
	if opts.NeedsPIDs && !procfs.HasOwnPIDs(opts.Proc.FS.Root()) {
		return nil, fmt.Errorf("attaching to single processes needs the PIDs of the caller's own PID namespace, "+
			"which are not those of the proc file system at %s", opts.Proc.FS.Root())
	}
	if opts.Linger == 0 {
		opts.Linger = time.Second
	}
	f := &Follower[A]{
		driver: driver, opts: opts, patience: deadline.File,
		unanswered: deadline.Unanswered{Most: maxBlocked},
		following:  deadline.NewInTurns(),
		files:      make(map[procfs.FileID]*file[A]),
		refused:    make(map[procfs.FileID]*procwatch.CachedFile),
		attached:   make(map[spot]*attachment[A]),
		failed:     make(map[spot]*failure),
		calls:      make(map[procfs.FileID]*call[A]),
		budget:     newBudget(opts.Limits),
	}
	f.stats.Store(&Stats{})
	watch := opts.Proc
	watch.Handler, watch.BeforePass = f.follow, func() {
		if opts.Proc.BeforePass != nil {
			opts.Proc.BeforePass()
		}
		f.tryAgain(Later)
	}
	f.watcher = procwatch.NewWatcher(&watch, patterns...)
	return f, nil
}

// Run follows processes until the context or the follower ends. See
// [procwatch.Watcher.Run].
func (f *Follower[A]) Run(ctx context.Context, interval time.Duration) error {
	f.running.Add(1)
	defer f.running.Add(-1)
	return f.watcher.Run(ctx, interval)
}

// Sync follows what has changed in one process. See [procwatch.Watcher.Sync].
func (f *Follower[A]) Sync(ctx context.Context, pid int) error {
	return f.watcher.Sync(ctx, pid)
}

// SyncAll follows what has changed in all processes. See
// [procwatch.Watcher.SyncAll].
func (f *Follower[A]) SyncAll(ctx context.Context) error {
	return f.watcher.SyncAll(ctx)
}

// Stop ends Run, and nothing is attached any more. It does not wait. What is
// attached stays attached until Close.
func (f *Follower[A]) Stop() { f.watcher.Stop() }

func (f *Follower[A]) isStopped() bool { return f.watcher.IsStopped() }

// Close detaches everything together. It waits until that is done, and until no
// process is scanned any more. The error is that of Detach, or of
// [attaching.Files.Wait]. It is safe to call it again.
func (f *Follower[A]) Close() error {
	f.Stop()
	f.following.Lock()
	for _, timer := range []*time.Timer{f.waits, f.ready} {
		if timer != nil {
			timer.Stop()
		}
	}
	r := &round[A]{}
	for id := range f.files {
		f.leave(id, r)
	}
	for at := range f.attached {
		f.detach(at.Place, r)
	}
	f.tell(r)
	err := f.driver.Detach(r.Detached)
	f.following.Unlock()
	f.closing.Wait()
	return errors.Join(err, f.attaching.Wait(attaching.LinkPatience), f.watcher.Close())
}

// A round is the outcome of one set of changes of the processes.
type round[A any] struct {
	Changes[A]
	// gone are changes whose disappeared files are still attached. It is nil
	// once they are detached.
	gone *procwatch.Changes
	// unwanted was attached by a call that returned too late.
	unwanted []A
}

// A target is a spot to attach, and the pair by which it was found. If its part
// is WholeFile, all parts are to be attached.
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

func (f *Follower[A]) target(at Place, pair *procwatch.ProcessFile) target {
	return target{spot: spot{at, WholeFile}, pair: pair,
		owner: deadline.OwnerOf(f.watcher.FS.Root(), pair.Process.PID)}
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
func inProcess(pair *procwatch.ProcessFile) Place {
	id := procwatch.ID{PID: pair.Process.PID, StartTime: pair.Process.StartTime}
	return Place{Process: id, File: pair.File.ID()}
}

// inEveryProcess returns the place of a pair's file in every process.
func inEveryProcess(pair *procwatch.ProcessFile) Place { return Place{File: pair.File.ID()} }

// follow attaches what has appeared and detaches what has disappeared.
func (f *Follower[A]) follow(changes *procwatch.Changes) {
	f.lock()
	defer f.following.Unlock()
	r := &round[A]{gone: changes}
	if !f.isStopped() { // else Close detaches everything
		r.Errors = slices.Clone(changes.Errors)
		f.attach(f.targets(changes), r)
		f.detachGone(r)
		if slices.ContainsFunc(changes.Errors, procfs.IsLack) {
			f.makeRoom(r) // for the next scan
		}
	}
	if f.opts.Proc.Handler != nil {
		f.opts.Proc.Handler(changes)
	}
	f.finish(r)
}

func (f *Follower[A]) lock() {
	f.following.Lock()
	f.abandoned = 0
}

// targets returns the targets to attach. It first detaches files that were
// written to or are mapped elsewhere, to be attached anew: to the kernel both
// are the same file, and so no hit is seen by both.
func (f *Follower[A]) targets(changes *procwatch.Changes) []target {
	var targets []target
	old := &round[A]{}
	for _, pair := range changes.Appeared {
		id, perProcess := pair.File.ID(), f.driver.PerProcess(pair.File)
		known := f.files[id]
		if known == nil {
			known = &file[A]{source: pair.File}
			f.files[id] = known
		}
		if known.linger != nil {
			known.linger.Stop()
			known.linger = nil
		}
		known.pairs++
		written := !known.source.HasSameSites(pair.File)
		if written {
			f.close(id)
			for at := range f.attached {
				if at.File == id {
					f.detachRunning(at.Place, old)
				}
			}
		}
		switch {
		case perProcess:
			targets = append(targets, f.afterwards(inProcess(pair), pair))
		case known.pairs == 1 || known.source != pair.File:
			targets = append(targets, f.target(inEveryProcess(pair), pair))
		}
		known.source = pair.File
		if !written || !perProcess {
			continue
		}
		for _, other := range f.watcher.ProcessFiles() {
			if other.File != pair.File && other.File.ID() == id {
				// It has not been scanned since the file was written to.
				place, other := inProcess(other), *other
				other.File = pair.File
				targets = append(targets, f.target(place, &other))
			}
		}
	}
	for _, pair := range changes.Moved {
		place := inProcess(pair)
		all := slices.DeleteFunc(f.attachedAt(place), func(a *attachment[A]) bool {
			// What has only mapped it, as usdttrace does for a command.
			return !slices.ContainsFunc(a.pair.Mappings, procwatch.TakesHits)
		})
		if pair.HasExecuted() && pair.File.IsMiscounted() && len(all) > 0 {
			old.Errors = append(old.Errors, f.driver.Explain(all[0].part, pair, errAgain))
		}
		if f.driver.PerProcess(pair.File) && f.opts.After > 0 && pair.HasExecuted() {
			f.detachRunning(place, old)
			targets = append(targets, f.afterwards(place, pair))
		}
	}
	if !f.detachNow(old) {
		f.tell(old)
	}
	return targets
}

// errAgain says what follows from elfnote.Site.SemaphoreMiscounted.
var errAgain = errors.New("the process has executed the program again while it was attached: the " +
	"kernel counts its semaphores in the wrong segment, and a probe that asks its own is not seen")

// afterwards returns the target of a file in a process, which waits for the
// time that has been set.
func (f *Follower[A]) afterwards(place Place, pair *procwatch.ProcessFile) target {
	at := f.target(place, pair)
	if f.opts.After > 0 {
		f.note(at, errEarly, WhenReady)
		f.failed[at.spot].next = time.Now().Add(f.opts.After)
	}
	return at
}

func (f *Follower[A]) attachedAt(place Place) (all []*attachment[A]) {
	for part := range f.opts.Parts {
		if a := f.attached[spot{place, part}]; a != nil {
			all = append(all, a)
		}
	}
	return all
}

// detachGone detaches the files that have disappeared, unless that has been
// done.
func (f *Follower[A]) detachGone(r *round[A]) {
	if r.gone == nil {
		return
	}
	again := make(map[Place]bool) // of a file that was written to
	for _, pair := range r.gone.Appeared {
		again[inProcess(pair)] = true
	}
	for _, pair := range r.gone.Disappeared {
		place, id := inProcess(pair), pair.File.ID()
		if !again[place] {
			f.detach(place, r)
			f.miss(place, pair, r)
		}
		known := f.files[id]
		if known.pairs--; known.pairs > 0 {
			continue
		}
		// An attachment to every process lingers.
		if f.opts.Linger < 0 || len(f.attachedAt(Place{File: id})) == 0 ||
			known.opened == nil || known.opened.HoldsWriters() != nil {
			f.leave(id, r)
			continue
		}
		var timer *time.Timer
		timer = time.AfterFunc(f.opts.Linger, func() {
			f.lock()
			defer f.following.Unlock()
			if known := f.files[id]; known != nil && known.linger == timer { // else it was stopped too late
				r := &round[A]{}
				f.leave(id, r)
				f.finish(r)
			}
		})
		known.linger = timer
	}
	r.gone = nil
}

// miss notes that a process has ended, or unmapped a file, before it was ready
// to be attached.
func (f *Follower[A]) miss(place Place, pair *procwatch.ProcessFile, r *round[A]) {
	for part := WholeFile; part < f.opts.Parts; part++ {
		at := spot{place, part}
		failed := f.failed[at]
		if failed == nil || failed.when != WhenReady {
			continue
		}
		delete(f.failed, at)
		if n := len(r.Missed); n == 0 || r.Missed[n-1] != pair {
			r.Missed = append(r.Missed, pair)
		}
	}
}

// leave detaches and closes a file that no process maps any more.
func (f *Follower[A]) leave(id procfs.FileID, r *round[A]) {
	if timer := f.files[id].linger; timer != nil {
		timer.Stop()
	}
	f.detach(Place{File: id}, r)
	f.close(id)
	delete(f.files, id)
}

// close closes a file if it is open. It does not wait for a call that uses it.
func (f *Follower[A]) close(id procfs.FileID) {
	opened := f.files[id].opened
	f.files[id].opened = nil
	switch {
	case opened == nil:
	case f.calls[id] != nil:
		go opened.Close()
	default:
		opened.Close()
	}
}

// setOpened notes that a file is open, unless another process has it open for
// writing, as the next build of a program that has ended. What is attached to
// it then could not be detached in time.
func (f *Follower[A]) setOpened(at target, opened *opened[A]) bool {
	known := f.files[at.File]
	switch {
	case !errors.Is(opened.HoldsWriters(), syscall.EAGAIN):
		known.busy = time.Time{}
	case known.busy.IsZero():
		known.busy = time.Now()
		fallthrough
	case time.Since(known.busy) < longestWrite:
		opened.Close()
		f.note(at, errWritten, WithTime)
		return false
	}
	known.opened = opened
	if opened.isWritten {
		go f.written(at.File, opened)
	}
	return true
}

// written takes note that the driver has detached a file because it is written
// to, and attaches it again once that is over.
func (f *Follower[A]) written(id procfs.FileID, opened *opened[A]) {
	f.lock()
	defer f.following.Unlock()
	opened.isWritten = true
	known := f.files[id]
	if f.isStopped() || known == nil || known.opened != opened {
		return
	}
	r := &round[A]{}
	if known.pairs == 0 {
		f.leave(id, r)
		f.finish(r)
		return
	}
	for at, a := range maps.Clone(f.attached) {
		if at.File == id {
			f.detachRunning(at.Place, r)
			f.report(a.target, errWritten, Later, r) // each part is attached again
		}
	}
	f.close(id)
	var pair *procwatch.ProcessFile
	var scanned []int
	for _, of := range f.watcher.ProcessFiles() {
		// Those of overlayfs that map another file had the same data before.
		if of.File.ID() == id && (pair == nil || of.Found.FileID != id) {
			pair = of
			scanned = append(scanned, of.Process.PID)
		}
	}
	known.writes = pair != nil
	f.finish(r)
	if pair == nil {
		return // its processes are ending
	}
	pair.File.Hold() // the descriptor stays the file's
	go func() {
		file := elffile.OSFile(pair.File.ELF())
		for range longestWrite / writePause {
			if f.isStopped() || Settled(file, writePause) {
				break
			}
		}
		pair.File.Release()
		f.lock()
		known.writes = false
		f.following.Unlock()
		for _, pid := range scanned {
			_ = f.Sync(context.Background(), pid) // reads it anew for all; its errors are reported
		}
		f.tryAgain(Later)
	}()
}

var errWritten = errors.New("the file is being written to, and is attached again after that")

// A file that another process has open for writing for longer than longestWrite
// is attached all the same. It is detached when it is next written to.
const (
	longestWrite = 10 * time.Second
	writePause   = 100 * time.Millisecond

	// mostPause is the longest time between two looks at a file that is being
	// written to.
	mostPause = 50 * time.Millisecond
)

// Settled waits until no process has a file open for writing, and reports
// whether that came within the patience. On file systems without leases it
// waits until the file has stopped changing. The file is as for
// [attaching.Take].
func Settled(file *os.File, patience time.Duration) bool {
	var last os.FileInfo
	for pause, until := time.Millisecond, time.Now().Add(patience); ; pause = min(2*pause, mostPause) {
		l := attaching.Take(int(file.Fd()), true, func() {})
		reason := l.Reason()
		l.Return()
		if reason == nil {
			return true
		}
		if now, err := file.Stat(); err == nil && !errors.Is(reason, syscall.EAGAIN) {
			if last != nil && pause == mostPause && now.Size() == last.Size() &&
				now.ModTime().Equal(last.ModTime()) {
				return true
			}
			last = now
		}
		if time.Now().After(until) {
			return false
		}
		time.Sleep(pause)
	}
}

// detachRunning is detach where processes go on that map the file.
func (f *Follower[A]) detachRunning(place Place, r *round[A]) {
	for _, a := range f.attachedAt(place) {
		f.budget.mayLeak(a.owner, a.semaphores, time.Now())
	}
	f.detach(place, r)
}

// detach notes that all parts of a place are to be detached.
func (f *Follower[A]) detach(place Place, r *round[A]) {
	for _, a := range f.attachedAt(place) {
		delete(f.attached, a.spot)
		f.budget.take(a.owner, a.needs, -1)
		r.Detached = append(r.Detached, a.attached)
	}
}

// detachNow detaches, and returns when that is done. It reports whether there
// was anything to detach.
func (f *Follower[A]) detachNow(r *round[A]) bool {
	if len(r.Detached) == 0 {
		return false
	}
	<-f.detaching(r)
	return true
}

// finish ends a round. It detaches in the background, because the kernel takes
// its time, and other processes are waiting to be attached.
func (f *Follower[A]) finish(r *round[A]) {
	f.count()
	f.detaching(r)
}

// detaching tells the driver what has changed, and begins to detach. The
// channel is closed when that is done. Then what lacked room is tried again.
func (f *Follower[A]) detaching(r *round[A]) (ended <-chan struct{}) {
	f.tell(r)
	done := make(chan struct{})
	if len(r.Detached) == 0 {
		close(done)
		return done
	}
	f.closing.Go(func() {
		_ = f.driver.Detach(r.Detached) // the kernel detaches in spite of an error
		close(done)
		f.tryAgain(WithRoom)
	})
	return done
}

func (f *Follower[A]) tell(r *round[A]) {
	if len(r.Attached)+len(r.Detached)+len(r.Missed)+len(r.Errors) > 0 {
		f.driver.Changed(&r.Changes)
	}
}
