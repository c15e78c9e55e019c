// SPDX-License-Identifier: BSD-2-Clause

// Package follow keeps something attached to the files of processes while the
// processes come and go. It is the engine of usdt.Watch and trace.Watch.
//
// A procwatch.Watcher finds the processes. A [Follower] decides what to attach
// and to detach: in every process or in each one by itself, how long a file
// stays attached after its last process, what makes room for what, and what is
// tried again. A [Driver] does the attaching and detaching.
package follow

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/deadline"
	"github.com/gousdt/gousdt/internal/procfs"
	"github.com/gousdt/gousdt/internal/procwatch"
	"github.com/gousdt/gousdt/internal/sys"
)

// DefaultLinger is how long a file stays attached after its last process if
// [Options] do not say otherwise. Thus a file is attached at most once a
// second, and nothing that is not needed is held for long.
const DefaultLinger = time.Second

// Options say which processes a [Follower] follows.
type Options struct {
	// Proc says which processes there are and which of them are wanted. Its
	// Handler is called after everything has been attached, before Changed.
	Proc procwatch.WatcherOptions
	// Parts is how many parts a file has. They are attached one after the
	// other: each of them to all files that were found together.
	Parts int
	// NeedsPIDs is whether a file may be attached in one process, for which the
	// kernel must know the PIDs of Proc.FS.
	NeedsPIDs bool
	// FollowsMoves is whether what is attached in one process is to be attached
	// anew if the process maps the file elsewhere.
	FollowsMoves bool
	// Limits are what is attached at most.
	Limits Limits
	// Linger is how long a file that is attached in every process stays
	// attached after its last process. 0 means DefaultLinger, a negative
	// duration that it does not stay.
	Linger time.Duration
}

// errClosed is what is returned by a follower that has ended.
var errClosed error = sys.ClosedError("watch")

// A Follower keeps a file attached as long as a process maps it. Its methods
// may be called by several goroutines at once.
type Follower[F, A any] struct {
	driver  Driver[F, A]
	opts    Options
	watcher *procwatch.Watcher

	patience, turn time.Duration // with a call of the driver

	running atomic.Int32 // calls of Run

	// stopped ends when nothing is to be attached any more.
	stopped context.Context
	stop    context.CancelFunc

	// following is held while changes are followed. It guards what comes next.
	following inTurns
	blocked   blocked
	goesOn    map[procwatch.FileID]string // files for which a call goes on, by owner
	files     map[procwatch.FileID]F
	sources   map[procwatch.FileID]*procwatch.CachedFile // as which a file was read that is to be attached
	refused   map[procwatch.FileID]struct{}              // files that are too large to be opened again and again
	lingering *lingering
	failed    attempts
	budget    *budget
	gaveUp    []procwatch.FileID // what was detached for others, and may be closed
	until     time.Time          // what is attached later waits; the zero value if nothing does
	waits     *time.Timer        // tries again what waits for time

	// mu is held, beside following, to change what comes next: either is enough
	// to read it.
	mu       sync.Mutex
	attached map[Place][]*attachment[A] // by part; nil if the part is not attached
	stats    Stats                      // of attaching alone
	closing  sync.WaitGroup
}

// inTurns is a lock that goroutines get in the order in which they ask for it.
// It holds a value while it is locked.
type inTurns chan struct{}

func (l inTurns) Lock()   { l <- struct{}{} }
func (l inTurns) Unlock() { <-l }

// attachment is something that is attached.
type attachment[A any] struct {
	attached A
	mappings []procfs.Mapping // where the process had mapped the file

	pair  *procwatch.ProcessFile // by which it was found
	owner string
	sites int
}

// New returns a follower of the processes that map a file with a probe that
// matches one of the patterns. It does nothing before the first call of Sync,
// SyncAll or Run.
func New[F, A any](
	driver Driver[F, A], opts Options, patterns ...elfnote.Pattern,
) (*Follower[F, A], error) {
	if opts.NeedsPIDs && !procfs.HasOwnPIDs(opts.Proc.FS.Root()) {
		return nil, fmt.Errorf("attaching to single processes needs the PIDs of the caller's own PID namespace, "+
			"which are not those of the proc file system at %s", opts.Proc.FS.Root())
	}
	if opts.Linger == 0 {
		opts.Linger = DefaultLinger
	}
	f := &Follower[F, A]{
		driver: driver, opts: opts, patience: deadline.Patience(patience),
		turn: turn, following: make(inTurns, 1), goesOn: make(map[procwatch.FileID]string),
		files:    make(map[procwatch.FileID]F),
		sources:  make(map[procwatch.FileID]*procwatch.CachedFile),
		refused:  make(map[procwatch.FileID]struct{}),
		attached: make(map[Place][]*attachment[A]),
		budget:   newBudget(opts.Limits),
	}
	f.lingering = newLingering(f.following, f.endLinger)
	f.stopped, f.stop = context.WithCancel(context.Background())
	watch := opts.Proc
	watch.Handler, watch.BeforePass = f.follow, func() {
		if opts.Proc.BeforePass != nil {
			opts.Proc.BeforePass()
		}
		f.tryAgain(Later) // whatever has failed
	}
	f.watcher = procwatch.NewWatcher(&watch, patterns...)
	return f, nil
}

// Run follows processes until the context or the follower ends. See
// [procwatch.Watcher.Run].
func (f *Follower[F, A]) Run(ctx context.Context, interval time.Duration) error {
	f.running.Add(1)
	defer f.running.Add(-1)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(f.stopped, stop)()
	return f.watcher.Run(ctx, interval)
}

// Sync follows what has changed in one process. See [procwatch.Watcher.Sync].
func (f *Follower[F, A]) Sync(pid int) error {
	if f.isStopped() {
		return errClosed
	}
	return f.watcher.Sync(pid)
}

// SyncAll follows what has changed in all processes. See
// [procwatch.Watcher.SyncAll].
func (f *Follower[F, A]) SyncAll() error {
	if f.isStopped() {
		return errClosed
	}
	return f.watcher.SyncAll()
}

// Attachments returns what is attached, in no order.
func (f *Follower[F, A]) Attachments() []A {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []A
	for _, parts := range f.attached {
		all = appendAttached(all, parts)
	}
	return all
}

// Stop ends Run, and nothing is attached any more. It does not wait. What is
// attached stays attached until Close.
func (f *Follower[F, A]) Stop() { f.stop() }

func (f *Follower[F, A]) isStopped() bool { return f.stopped.Err() != nil }

// Close detaches everything, all at a time, and waits until that is done and
// until no process is scanned any more. The error is that of Detach. It is safe
// to call it again.
func (f *Follower[F, A]) Close() error {
	f.stop()
	f.following.Lock()
	err := f.detachAll()
	f.following.Unlock()
	f.closing.Wait()
	return errors.Join(err, f.watcher.Close())
}

// detachAll detaches everything and closes all files.
func (f *Follower[F, A]) detachAll() error {
	f.lingering.endAll(func(procwatch.FileID) {})
	if f.waits != nil {
		f.waits.Stop()
	}
	for id, file := range f.files {
		f.release(id, file)
		delete(f.files, id)
	}
	r := &round[A]{}
	for place := range f.attached {
		f.detach(place, r)
	}
	f.tell(r)
	return f.driver.Detach(r.Detached)
}
