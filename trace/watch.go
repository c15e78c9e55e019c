// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/closed"
	"github.com/gousdt/gousdt/internal/linger"
	"github.com/gousdt/gousdt/internal/retry"
	"github.com/gousdt/gousdt/proc"
	"github.com/gousdt/gousdt/usdt"
)

// WatchOptions say which processes a Watch is about, and how to attach. Nil, or
// the zero value, is all processes of the system.
type WatchOptions struct {
	// AttachOptions apply to each attachment.
	AttachOptions

	// OptionsFor, if set, is asked for the options of an attachment, in the
	// place of AttachOptions: a Cookie, or SiteCookie, for each file or process
	// tells them apart, also in filters and aggregations.
	//
	// The pair is the file and the process to be attached; where that is every
	// process, the first one found with the file. OptionsFor is called before
	// anything is attached, which may still fail, and again where a pair is
	// attached anew. It must not call the Watch. For AttachAhead the pair has
	// Process, Path and OpenedPath alone: there is no File.
	OptionsFor func(*proc.Pair) AttachOptions

	// Proc says which processes are looked at, and how: its Filter, its Cache
	// to share with other watches, its FS. The Handler in it is called too,
	// before what it is told of is attached, and so is BeforePass.
	Proc proc.WatcherOptions

	// PerProcess attaches to each process that the filter lets through by
	// itself, so that no other process is hit. Without it a file is attached
	// once, for every process that maps it now or later, whatever the filter
	// says of those: that is cheaper, and no process is missed for a moment.
	//
	// The kernel is told PIDs then, so Proc.FS has to be that of this process's
	// own PID namespace.
	PerProcess bool

	// Linger is how long a file stays attached, and open, after the last
	// process that maps it has gone, so that programs that are started again
	// and again are not attached each time, and are not missed at their start.
	// 0 means usdt.DefaultLinger; negative means not at all. What is attached
	// to one process does not linger.
	Linger time.Duration

	// Changed, if set, is told what was attached and detached, and what went
	// wrong. It is called by one goroutine at a time: the one that calls Sync,
	// SyncAll, Run, AttachAhead, Close or Session.Close, and by another one
	// when a file has lingered, or when there is room for what could not be
	// attached. It must not call these.
	Changed func(*WatchChanges)
}

// A WatchAttachment is probes of one file that a Watch has attached. The Watch
// closes it. The File of its sites is Path.
type WatchAttachment struct {
	*Attachment

	// Path is the file's path as the process sees it, without PerProcess the
	// first process found with it. After AttachAhead it is the name of the file
	// given there.
	Path string
	// File tells the file from others.
	File proc.FileID
	// Process is the process that is attached; the zero value where it is every
	// process.
	Process proc.Process
}

// String returns what is attached to, as in "/usr/bin/python3 in process 7
// (python3)" and "/usr/bin/python3 in every process". Paths and the names of
// processes are arbitrary bytes: escape them before they reach a terminal.
func (a *WatchAttachment) String() string {
	if a.Process.ProcessID == (proc.ProcessID{}) {
		return a.Path + " in every process"
	}
	return fmt.Sprintf("%s in process %s", a.Path, a.Process)
}

// WatchChanges are what a look at the processes has changed.
type WatchChanges struct {
	Attached []*WatchAttachment
	// Detached are closed together once Changed has returned, if the session
	// has not been detached as a whole. A Close of one waits until that is
	// done.
	Detached []*WatchAttachment
	// Missed are what processes had mapped that ended before it was attached,
	// with PerProcess.
	Missed []*proc.Pair
	// Errors are what could not be looked at (of type *proc.Error) or attached
	// (of type *WatchError). They hinder nothing else. What is tried again and
	// fails again is not among them, unless the text of the error is another
	// one.
	Errors []error
}

// A Watch feeds a session with the probes that match a pattern, in whatever
// processes come and go. Its methods are safe for concurrent use.
type Watch struct {
	session  *Session
	watcher  *proc.Watcher
	opts     WatchOptions
	patterns []elfnote.Pattern

	// stopped ends when nothing is to be attached any more.
	stopped context.Context
	stop    context.CancelFunc

	// following is held while changes are followed. It guards what comes next.
	following  sync.Mutex
	selections map[*proc.CachedFile]*usdt.Selection // checked once for all processes
	lingering  *linger.Files
	failed     retry.Attempts
	ahead      map[proc.ProcessID]proc.Process // that something was attached to ahead, until they end

	mu       sync.Mutex
	attached map[watchKey]*WatchAttachment
	closing  sync.WaitGroup
}

// errWatchClosed is what a watch returns that has ended.
var errWatchClosed error = closed.Error("watch")

// watchKey is a file in a process, or in all where the process is zero.
type watchKey struct {
	process proc.ProcessID
	file    proc.FileID
}

// Watch watches the probes that match any of the patterns, wherever a process
// maps a file that has them; without patterns, all probes. It begins with the
// first Sync, SyncAll or Run. It ends with Close, and with Detach or Close of
// the session.
//
// Sites that are not fit to be attached are left out: usdt.Link.Skipped of the
// links of an attachment names them.
//
// Where the system's limits on open files or memory leave no room, what no
// process has any more is detached first. What the system still refuses, though
// neither the file nor the session is to blame, is tried again before each look
// at all processes, by SyncAll and Run, and what lacked room also as soon as
// the Watch has detached something. That takes no more than about 100 ms at a
// time: of more, the rest has its turn next time.
//
// Errors: os.ErrClosed; that PerProcess cannot be had with the PIDs of Proc.FS.
func (s *Session) Watch(opts *WatchOptions, patterns ...elfnote.Pattern) (*Watch, error) {
	if opts == nil {
		opts = &WatchOptions{}
	}
	if opts.PerProcess && !opts.Proc.FS.IsOwn() {
		return nil, fmt.Errorf("watch: PerProcess needs the PIDs of the tracer's own PID namespace, which are not those of the "+
			"proc file system at %s: watch without PerProcess", opts.Proc.FS.Root())
	}
	w := &Watch{
		session: s, opts: *opts, patterns: slices.Clone(patterns),
		selections: make(map[*proc.CachedFile]*usdt.Selection),
		ahead:      make(map[proc.ProcessID]proc.Process),
		attached:   make(map[watchKey]*WatchAttachment),
	}
	w.lingering = linger.New(&w.following, w.endLinger)
	if opts.Linger == 0 {
		w.opts.Linger = usdt.DefaultLinger
	}
	w.stopped, w.stop = context.WithCancel(context.Background())
	options := opts.Proc
	options.Handler = func(changes *proc.Changes) {
		if opts.Proc.Handler != nil {
			opts.Proc.Handler(changes)
		}
		w.follow(changes)
	}
	options.BeforePass = w.beforePass
	w.watcher = proc.NewWatcher(&options, patterns...)
	if err := s.keepWatch(w); err != nil {
		return nil, err
	}
	return w, nil
}

// Run looks at all processes now and at each interval, and in between at those
// that the kernel reports to have started, executed or mapped something, until
// the context or the watch ends. It returns nil then. See proc.Watcher.Run,
// whose errors it returns.
func (w *Watch) Run(ctx context.Context, interval time.Duration) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(w.stopped, stop)()
	return w.watcher.Run(ctx, interval)
}

// Sync looks at one process. See proc.Watcher.Sync, whose errors it returns:
// os.ErrClosed when the watch has ended. Errors of attaching are for Changed.
func (w *Watch) Sync(pid int) error {
	if w.ended() {
		return errWatchClosed
	}
	return w.watcher.Sync(pid)
}

// SyncAll looks at all processes. See proc.Watcher.SyncAll, whose errors it
// returns: os.ErrClosed when the watch has ended. Errors of attaching are for
// Changed.
func (w *Watch) SyncAll() error {
	if w.ended() {
		return errWatchClosed
	}
	return w.watcher.SyncAll()
}

// AttachAhead attaches to a file that a process is about to execute or to map,
// so that its first probes are not missed either. It is for those who have the
// process wait meanwhile, and for a Watch with PerProcess. Once this has been
// called for a process, even in vain, what is attached to it stays so until it
// ends.
//
// A file that is attached to the process already is left as it is. The file may
// be closed afterwards.
//
// Errors: those of usdt.Select and usdt.Selection.AttachRaw; *NeverError;
// os.ErrClosed when the watch has ended.
func (w *Watch) AttachAhead(process proc.Process, file *os.File) error {
	if !w.opts.PerProcess {
		return fmt.Errorf("%s: attaching ahead needs WatchOptions.PerProcess: otherwise attach it to the session", file.Name())
	}
	id, err := proc.IdentifyFile(file)
	if err != nil {
		return err
	}
	w.following.Lock()
	defer w.following.Unlock()
	if w.ended() {
		return errWatchClosed
	}
	w.ahead[process.ProcessID] = process
	key := watchKey{process.ProcessID, id}
	if w.has(key) {
		return nil
	}
	sel, err := usdt.Select(usdt.Target{File: file, PID: process.PID}, nil, w.patterns...)
	if err != nil {
		return err
	}
	defer sel.Close()
	pair := &proc.Pair{Process: process, Path: file.Name(), OpenedPath: file.Name()}
	a, err := w.session.attachSelection(sel, file.Name(), w.options(pair))
	if errors.Is(err, os.ErrClosed) {
		return errWatchClosed
	}
	if err != nil {
		return err
	}
	l := &look{}
	w.add(key, &WatchAttachment{Attachment: a, Path: file.Name(), File: id, Process: process}, l)
	w.finish(l)
	return nil
}

// Watcher returns what finds the processes, for its Pairs and Stats.
func (w *Watch) Watcher() *proc.Watcher { return w.watcher }

// Attachments returns what is attached at the moment, in no order.
func (w *Watch) Attachments() []*WatchAttachment {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.DeleteFunc(slices.Collect(maps.Values(w.attached)), func(a *WatchAttachment) bool { return a.isClosed() })
}

// Stop has nothing more attached, and Run return. It does not wait for these.
// What is attached stays so until Close.
func (w *Watch) Stop() { w.stop() }

// Close detaches everything, all at a time, and waits until that is done, and
// until nobody looks any more. It is safe to call it again. Errors are those of
// Attachment.Close.
func (w *Watch) Close() error {
	w.stop()
	w.following.Lock()
	err := w.endAll()
	w.following.Unlock()
	w.closing.Wait()
	err = errors.Join(err, w.watcher.Close())
	w.session.forgetWatch(w)
	return err
}

// options returns what to attach a pair with.
func (w *Watch) options(pair *proc.Pair) *AttachOptions {
	options := w.opts.AttachOptions
	if w.opts.OptionsFor != nil {
		options = w.opts.OptionsFor(pair)
	}
	return &options
}

func (w *Watch) ended() bool { return w.stopped.Err() != nil }
