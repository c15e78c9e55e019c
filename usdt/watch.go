// SPDX-License-Identifier: BSD-2-Clause

package usdt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/cilium/ebpf"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/linger"
	"github.com/gousdt/gousdt/internal/retry"
	"github.com/gousdt/gousdt/proc"
)

// A WatchProgram is a program that a Watch keeps attached, and the probes that
// it is for.
type WatchProgram struct {
	// Program belongs to the Manager's collection.
	Program *ebpf.Program

	// Patterns pick the probes: those that match one of them. None are all
	// probes.
	Patterns []elfnote.Pattern

	// AttachOptions apply to each attachment.
	AttachOptions

	// OptionsFor, if set, is asked for the options of an attachment, in the
	// place of Options: a Cookie, or SiteCookie, for each file or process lets
	// the program tell them apart. Each cookie takes specs of its own, see
	// ManagerOptions.MaxSpecs.
	//
	// The pair is the file and the process to be attached; where that is every
	// process, the first one found with the file. OptionsFor is called before
	// the program is attached, which may still fail, and again where a pair is
	// attached anew. It must not call the Watch.
	OptionsFor func(*proc.Pair) AttachOptions
}

func (p *WatchProgram) options(pair *proc.Pair) AttachOptions {
	if p.OptionsFor == nil {
		return p.AttachOptions
	}
	return p.OptionsFor(pair)
}

// WatchOptions say which processes a Watch is about. The zero value, and nil,
// are all processes of the system.
type WatchOptions struct {
	// Proc says which processes are looked at, and how: its Filter, its Cache
	// to share with other watches, its FS. The Handler in it is called too,
	// after programs have been attached and before Changed is, and so is
	// BeforePass.
	Proc proc.WatcherOptions

	// PerProcess attaches to each process that the filter lets through by
	// itself, so that no other process is hit. Without it a file is attached
	// once, for every process that maps it now or later, whatever the filter
	// says of those: that is cheaper, and no process is missed for a moment. In
	// ModeSingleIPMap, libraries and position-independent programs are always
	// attached per process.
	//
	// The kernel is told PIDs then, so Proc.FS has to be that of this process's
	// own PID namespace.
	PerProcess bool

	// Linger is how long a file stays attached, and open, after the last
	// process that maps it has gone, so that programs that are started again
	// and again are not attached each time, and are not missed at their start.
	// 0 means DefaultLinger; negative means not at all. What is attached to one
	// process does not linger.
	Linger time.Duration

	// Changed, if set, is told what was attached and detached, and what went
	// wrong. It is called by one goroutine at a time: the one that looks, so by
	// Sync, SyncAll, Run and Close, and by another one when a file has
	// lingered, or when there is room for what could not be attached. It must
	// not call these.
	Changed func(*WatchChanges)
}

// An WatchAttachment is a program attached to a file by a Watch.
type WatchAttachment struct {
	// Link is the attachment itself. The Watch closes it.
	Link *Link
	// Program is what is attached.
	Program *ebpf.Program
	// Options are what it was attached with.
	Options AttachOptions
	// File is the file.
	File *proc.CachedFile
	// Path is the file's path as the process sees it, without PerProcess the
	// first process found with it.
	Path string
	// Process is the process that is attached; the zero value where it is every
	// process.
	Process proc.Process

	mappings []proc.Mapping // where the process had the file
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
	// Detached are closed at the moment, together. A Close of one's Link waits
	// until that is done.
	Detached []*WatchAttachment
	// Errors are what could not be looked at (of type *proc.Error) or attached
	// (*WatchError). That a process has exited meanwhile is not among them, nor
	// that a file has no probes for some of the programs. What is tried again
	// and fails again is not, unless the text of the error is another one.
	Errors []error
}

// A Watch keeps programs attached to the probes that match their patterns, in
// whatever processes come and go.
type Watch struct {
	manager  *Manager
	programs []WatchProgram
	patterns []elfnote.Pattern // of all programs
	watcher  *proc.Watcher
	opts     WatchOptions

	// following is held while changes are followed. It guards what comes next.
	following sync.Mutex
	files     map[*proc.CachedFile]*watchedFile
	lingering *linger.Files
	failed    retry.Attempts
	ending    bool // nothing is to linger any more, nor to be tried again

	// mu is held, beside following, to change what comes next: either is enough
	// to read it.
	mu       sync.Mutex
	attached map[proc.PairKey][]*WatchAttachment // without a process where it is every process; by program, nil where it is not attached
	closing  sync.WaitGroup
}

// Watch attaches programs to the probes that match their patterns, wherever a
// process maps a file that has them. The processes are looked at once for all
// programs, and files read once. Sites that cannot be attached are left out,
// see Link.Skipped. It begins with the first Sync, SyncAll or Run, and ends
// with Close.
//
// What a look finds to attach is attached program by program, in their order,
// so that a program can count on those before it; what it finds to detach is
// detached together. A program that cannot be attached somewhere does not keep
// the others from it.
//
// Where the maps of the Manager, or the system's limits on open files or
// memory, leave no room, what no process has any more is detached first. What
// could still not be attached, though neither the file nor the program is to
// blame, is tried again before each look at all processes, by SyncAll and Run,
// and what lacked room also as soon as the Watch has detached something. That
// takes no more than about 100 ms at a time: of more, the rest has its turn
// next time.
//
// The error says that there is no program, or one that was not loaded for this
// Manager, or that processes of this proc file system cannot be attached to.
func (m *Manager) Watch(opts *WatchOptions, programs ...WatchProgram) (*Watch, error) {
	if opts == nil {
		opts = &WatchOptions{}
	}
	if len(programs) == 0 {
		return nil, errors.New("there is no program to watch with: give one WatchProgram or more")
	}
	patterns, all := []elfnote.Pattern(nil), false
	for _, program := range programs {
		if _, err := m.checkProgram(program.Program); err != nil {
			return nil, err
		}
		patterns = append(patterns, program.Patterns...)
		all = all || len(program.Patterns) == 0
	}
	if all {
		patterns = nil
	}
	if (opts.PerProcess || m.mode == ModeSingleIPMap) && !opts.Proc.FS.IsOwn() {
		return nil, fmt.Errorf("a watch per process needs the PIDs of the tracer's own PID namespace, which are not those of "+
			"the proc file system at %s: watch without PerProcess, in a mode other than %s", opts.Proc.FS.Root(), ModeSingleIPMap)
	}
	w := &Watch{
		manager: m, programs: slices.Clone(programs), patterns: patterns, opts: *opts,
		files:    make(map[*proc.CachedFile]*watchedFile),
		attached: make(map[proc.PairKey][]*WatchAttachment),
	}
	w.lingering = linger.New(&w.following, w.endLinger)
	if opts.Linger == 0 {
		w.opts.Linger = DefaultLinger
	}
	options := opts.Proc
	options.Handler, options.BeforePass = w.follow, w.beforePass
	w.watcher = proc.NewWatcher(&options, patterns...)
	return w, nil
}

// Run looks at all processes now and at each interval, and in between at those
// that the kernel reports to have started, executed or mapped something, until
// the context ends. See proc.Watcher.Run.
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
func (w *Watch) Attachments() []*WatchAttachment {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []*WatchAttachment
	for _, attachments := range w.attached {
		all = appendAttached(all, attachments)
	}
	return all
}

// Close detaches everything, all at a time, and waits until that is done. It is
// safe to call it again.
func (w *Watch) Close() error {
	w.following.Lock()
	w.ending = true
	w.following.Unlock()
	err := w.watcher.Close()

	w.following.Lock()
	l := &look{}
	w.endAllLinger(l)
	w.close(l.Detached)
	w.tell(l)
	w.following.Unlock()
	w.closing.Wait()
	return err
}
