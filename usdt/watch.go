// SPDX-License-Identifier: BSD-2-Clause

package usdt

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cilium/ebpf"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/proc"
)

// WatchOptions say which processes a Watch is about, and how to attach. The zero value, and nil, are all processes of
// the system.
type WatchOptions struct {
	// Options apply to each attachment.
	Options

	// Proc says which processes are looked at, and how: its Filter, its Cache to share with other watches, its FS.
	// The Handler in it is called too, after programs have been attached.
	Proc proc.Options

	// PerProcess attaches to each process that the filter lets through by itself, so that no other process is hit.
	// Without it a file is attached once, for every process that maps it now or later, whatever the filter says of
	// those: that is cheaper, and no process is missed for a moment. In ModeSingleIPMap, libraries and
	// position-independent programs are always attached per process.
	//
	// The kernel is told PIDs then, so Proc.FS has to be that of this process's own PID namespace.
	PerProcess bool

	// Linger is how long a file stays attached, and open, after the last process that maps it has gone, so that
	// programs that are started again and again are not attached each time, and are not missed at their start.
	// 0 means DefaultLinger; negative means not at all. What is attached to one process does not linger.
	Linger time.Duration

	// Changed, if set, is told what was attached and detached, and what went wrong. It is called by one goroutine at
	// a time: the one that looks, so by Sync, SyncAll, Run and Close, and by another one when a file has lingered. It
	// must not call these.
	Changed func(*WatchChanges)
}

// An Attachment is a program attached to a file by a Watch.
type Attachment struct {
	// Link is the attachment itself. The Watch closes it.
	Link *Link
	// File is the file.
	File *proc.File
	// Path is the file's path as the process sees it, without PerProcess the first process found with it.
	Path string
	// Process is the process that is attached; the zero value where it is every process.
	Process proc.Process

	mappings []proc.Mapping // where the process had the file
}

// String returns what is attached to, as in "/usr/bin/python3 in process 7 (python3)" and "/usr/bin/python3 in every process".
// Paths and the names of processes are arbitrary bytes: escape them before they reach a terminal.
func (a *Attachment) String() string {
	if a.Process.ID == (proc.ID{}) {
		return a.Path + " in every process"
	}
	return fmt.Sprintf("%s in process %s", a.Path, a.Process)
}

// WatchChanges are what a look at the processes has changed.
type WatchChanges struct {
	Attached []*Attachment
	// Detached are closed at the moment, together. A Close of one's Link waits until that is done.
	Detached []*Attachment
	// Errors are what could not be looked at (of type *proc.Error) or attached (of the types that Attach returns). That
	// a process has exited meanwhile is not among them.
	Errors []error
}

// A Watch keeps a program attached to the probes that match a pattern, in whatever processes come and go.
type Watch struct {
	manager *Manager
	prog    *ebpf.Program
	watcher *proc.Watcher
	opts    WatchOptions

	// following is held while changes are followed. It guards what comes next.
	following  sync.Mutex
	selections map[*proc.File]*Selection
	lingering  map[*proc.File]*time.Timer // held files without a process; the timers end that
	ending     bool                       // nothing is to linger any more

	mu       sync.Mutex
	attached map[proc.PairKey]*Attachment // without a process where it is every process
	closing  sync.WaitGroup
}

// Watch attaches a program to the probes that match one of the patterns, wherever a process maps a file that has them.
// Sites that cannot be attached are left out, see Link.Unfit. It begins with the first Sync, SyncAll or Run, and ends with Close.
func (m *Manager) Watch(prog *ebpf.Program, patterns []elfnote.Pattern, opts *WatchOptions) (*Watch, error) {
	if opts == nil {
		opts = &WatchOptions{}
	}
	if _, err := m.checkProgram(prog); err != nil {
		return nil, err
	}
	if (opts.PerProcess || m.mode == ModeSingleIPMap) && !ownPIDs(opts.Proc.FS) {
		return nil, fmt.Errorf("a watch per process needs the PIDs of the tracer's own PID namespace, which are not those of "+
			"the proc file system at %s: watch without PerProcess, in a mode other than %s", procRoot(opts.Proc.FS), ModeSingleIPMap)
	}
	w := &Watch{
		manager: m, prog: prog, opts: *opts,
		selections: make(map[*proc.File]*Selection),
		lingering:  make(map[*proc.File]*time.Timer),
		attached:   make(map[proc.PairKey]*Attachment),
	}
	if opts.Linger == 0 {
		w.opts.Linger = DefaultLinger
	}
	options := opts.Proc
	options.Handler = func(changes *proc.Changes) {
		w.follow(changes)
		if opts.Proc.Handler != nil {
			opts.Proc.Handler(changes)
		}
	}
	w.watcher = proc.NewWatcher(patterns, &options)
	return w, nil
}

// ownPIDs tells whether the PIDs of a proc file system are those that system calls of this process take.
func ownPIDs(fs *proc.FS) bool {
	status, err := os.ReadFile(procRoot(fs) + "/self/status")
	if err != nil {
		return false // it knows nothing of this process
	}
	for line := range strings.Lines(string(status)) {
		// The PIDs of this process, from the namespace of the file system to its own.
		if pids, ok := strings.CutPrefix(line, "NSpid:"); ok {
			return strings.TrimSpace(pids) == strconv.Itoa(os.Getpid())
		}
	}
	return true // a kernel without PID namespaces
}

func procRoot(fs *proc.FS) string {
	if fs == nil {
		fs = proc.NewFS("")
	}
	return fs.Root()
}

// Run looks at all processes now and at each interval, and in between at those that the kernel reports to have started,
// executed or mapped something, until the context ends. See proc.Watcher.Run.
func (w *Watch) Run(ctx context.Context, interval time.Duration) error {
	return w.watcher.Run(ctx, interval)
}

// Sync looks at one process. See proc.Watcher.Sync.
func (w *Watch) Sync(pid int) error { return w.watcher.Sync(pid) }

// SyncAll looks at all processes. See proc.Watcher.SyncAll.
func (w *Watch) SyncAll() error { return w.watcher.SyncAll() }

// Watcher returns what finds the processes, for its Pairs and Stats.
func (w *Watch) Watcher() *proc.Watcher { return w.watcher }

// Attachments returns what is attached at the moment, in no order.
func (w *Watch) Attachments() []*Attachment {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Values(w.attached))
}

// Close detaches everything, all at a time, and waits until that is done. It is safe to call it again.
func (w *Watch) Close() error {
	w.following.Lock()
	w.ending = true
	w.following.Unlock()
	err := w.watcher.Close()

	w.following.Lock()
	result := &WatchChanges{}
	w.endAllLinger(result)
	w.finish(result)
	w.following.Unlock()
	w.closing.Wait()
	return err
}

// follow attaches to what has appeared and detaches from what has disappeared.
func (w *Watch) follow(changes *proc.Changes) {
	w.following.Lock()
	defer w.following.Unlock()
	result := &WatchChanges{Errors: slices.Clone(changes.Errors)}

	first := make(map[*proc.File]*proc.Pair)
	for _, pair := range changes.Appeared {
		if first[pair.File] == nil {
			first[pair.File] = pair
		}
		if w.perProcess(pair.File) {
			w.attach(pair, pair.Key(), result)
		}
	}
	for _, file := range changes.FilesAppeared {
		switch {
		case w.back(file): // it is attached still
		case !w.perProcess(file) && first[file] != nil:
			w.attach(first[file], proc.PairKey{File: file}, result)
		}
	}
	for _, pair := range changes.Moved {
		w.moved(pair, result)
	}
	for _, pair := range changes.Disappeared {
		w.detach(pair.Key(), result)
	}
	for _, file := range changes.FilesDisappeared {
		if !w.linger(file) {
			w.leave(file, result)
		}
	}
	w.finish(result)
}

// finish detaches, and tells what has changed.
func (w *Watch) finish(result *WatchChanges) {
	w.close(result.Detached)
	if w.opts.Changed != nil && len(result.Attached)+len(result.Detached)+len(result.Errors) > 0 {
		w.opts.Changed(result)
	}
}

// leave detaches from a file that no process has any more.
func (w *Watch) leave(file *proc.File, result *WatchChanges) {
	w.detach(proc.PairKey{File: file}, result)
	if sel := w.selections[file]; sel != nil {
		sel.Close()
		delete(w.selections, file)
	}
}

// moved attaches a pair anew whose addresses have changed, where the program knows its site by these.
func (w *Watch) moved(pair *proc.Pair, result *WatchChanges) {
	w.mu.Lock()
	a := w.attached[pair.Key()]
	w.mu.Unlock()
	if w.manager.mode != ModeSingleIPMap || !w.perProcess(pair.File) || a != nil && slices.Equal(a.mappings, pair.Mappings) {
		return
	}
	before := len(result.Detached)
	w.detach(pair.Key(), result)
	for _, old := range result.Detached[before:] {
		_ = old.Link.Close() // first, so that no hit is seen by both
	}
	w.attach(pair, pair.Key(), result)
}

func (w *Watch) perProcess(file *proc.File) bool {
	return w.opts.PerProcess || w.manager.mode == ModeSingleIPMap && file.ELF().Kind() != elfnote.Executable
}

func (w *Watch) attach(pair *proc.Pair, key proc.PairKey, result *WatchChanges) {
	sel, err := w.selection(pair)
	if err == nil {
		var lnk *Link
		lnk, err = w.attachSelection(sel.ForPID(key.Process.PID), result)
		if err == nil {
			a := &Attachment{Link: lnk, File: pair.File, Path: pair.Path}
			if key.Process != (proc.ID{}) {
				a.Process, a.mappings = pair.Process, pair.Mappings
			}
			w.mu.Lock()
			w.attached[key] = a
			w.mu.Unlock()
			result.Attached = append(result.Attached, a)
			return
		}
	}
	if gone := new(ProcessError); errors.As(err, &gone) && key.Process != (proc.ID{}) {
		if running, err := pair.Process.IsRunning(); err == nil && !running {
			return
		}
	}
	result.Errors = append(result.Errors, fmt.Errorf("attaching to %s in process %s: %w", pair.Path, pair.Process, err))
}

// selection returns the sites of a file, checked once for all its processes.
func (w *Watch) selection(pair *proc.Pair) (*Selection, error) {
	if sel := w.selections[pair.File]; sel != nil {
		return sel, nil
	}
	if err := pair.File.Refused(); err != nil {
		return nil, err
	}
	target := Target{ELF: pair.File.ELF()}
	var own *os.File
	if target.ELF.OSFile() == nil {
		// The caller reads files by other means, but the kernel wants a file.
		var err error
		if own, err = openSame(pair); err != nil {
			return nil, err
		}
		target = Target{File: own}
	}
	sel, err := SelectMatching(target, w.watcher.Match)
	if err != nil {
		own.Close()
		if errors.Is(err, elfnote.ErrTooLarge) {
			pair.File.Refuse(err) // to find that out takes a second, and there may be many processes
		}
		return nil, err
	}
	if own != nil {
		sel.opened.closers = append(sel.opened.closers, own.Close)
	}
	w.selections[pair.File] = sel
	return sel, nil
}

// openSame opens a pair's file by its path, if that still leads there.
func openSame(pair *proc.Pair) (*os.File, error) {
	file, err := os.Open(pair.OpenedPath)
	if err != nil {
		return nil, err
	}
	if id, err := proc.IdentifyFile(file); err != nil || id != pair.File.Identity() {
		file.Close()
		return nil, fmt.Errorf("%s: %w", pair.Path, errors.Join(proc.ErrChanged, err))
	}
	return file, nil
}

func (w *Watch) detach(key proc.PairKey, result *WatchChanges) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if a := w.attached[key]; a != nil {
		delete(w.attached, key)
		result.Detached = append(result.Detached, a)
	}
}

// close detaches in the background: the kernel takes its time, and other processes are waiting to be attached.
func (w *Watch) close(attachments []*Attachment) {
	if len(attachments) == 0 {
		return
	}
	links := make([]*Link, 0, len(attachments))
	for _, a := range attachments {
		links = append(links, a.Link)
	}
	w.closing.Go(func() {
		// What closing a link may fail with has no consequence: the kernel detaches it all the same.
		_ = CloseAll(links...)
	})
}
