// SPDX-License-Identifier: BSD-2-Clause

package proc

import (
	"context"
	"fmt"
	"hash/maphash"
	"io"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/abandon"
)

// WatcherOptions say which processes a [Watcher] scans and to whom it reports.
// The zero value, and nil, are all processes of /proc, and nobody.
type WatcherOptions struct {
	// FS is the proc file system; nil is /proc.
	FS *FS
	// Cache may be shared with other watchers; nil makes one.
	Cache *Cache
	// Filter reports whether a process is wanted; nil wants all. It is asked
	// when a process is found, and again when the process runs another program
	// or changes its name. It is not asked about processes without memory, such
	// as the threads of the kernel. It must not call the watcher.
	//
	// It is called by one goroutine at a time, unless a call takes so long that
	// the process is set aside.
	Filter func(Process) bool
	// Handler receives what has appeared and disappeared. It is called by one
	// goroutine at a time, the one that scans: by Sync, SyncAll, Run or Close
	// before they return, or by a goroutine of the watcher when a process that
	// was set aside has been scanned after all. It may take its time, and call
	// ProcessFiles and Stats, but not the functions by which it is called.
	Handler func(*Changes)
	// BeforePass, if set, is called before each scan of all processes, by
	// SyncAll and Run, as Handler is: to try again what the Handler could not
	// do.
	BeforePass func()
}

// Watcher finds out which processes map files with certain probes, and reports
// when that changes. The package documentation says how, and how soon.
//
// Its methods may be called by several goroutines at once. They scan one after
// the other.
type Watcher struct {
	fs       *FS
	cache    *Cache
	filter   func(Process) bool
	handler  func(*Changes)
	before   func() // a pass
	wanted   wanted
	events   bool // to be asked of the kernel
	patience time.Duration

	// open ends when the watcher is closed, so that no further process is
	// scanned.
	open  context.Context
	close context.CancelFunc

	// due gets a value, if it has none, when a process is to be scanned that
	// could not be before.
	due chan struct{}

	buffers sync.Pool
	running atomic.Int32 // calls of Run
	noQuery atomic.Bool  // PROCMAP_QUERY is not available
	seed    maphash.Seed

	// scanning is held while processes are scanned and the handler runs.
	scanning sync.Mutex
	closed   bool
	// Of the file system: held, so that it can be listed without a free
	// descriptor.
	procDir  *os.File
	unused   []task // memory for the next scan
	reported map[FileID]bool
	aside    aside

	// mu guards what ProcessFiles and Stats read. The goroutine that scans
	// holds it, but not while it waits for processes, nor while the handler
	// runs.
	mu        sync.Mutex
	processes map[int]*watched
	files     map[*CachedFile]int // how many pairs each has
	stats     WatcherStats
	compared  int   // mappings of a process
	read      int   // mappings of a process, in full
	scan      *scan // what has been found so far
}

// watched is what a watcher knows about a process.
type watched struct {
	*known
	pairs []*ProcessFile
	pass  uint64

	// blocked is the scan that has not returned yet and was left behind, nil if
	// there is none.
	blocked *task
	// due is whether the process is to be scanned when that is possible: when
	// the scan has returned, or the allowance is not overdrawn any more.
	due       bool
	scans     int // how often its mappings have been read
	allowance allowance
	isPutOff  bool // has been reported
}

// NewWatcher returns a watcher for the probes that match any of the patterns,
// or for all probes if there is no pattern. It does nothing before the first
// call of Sync, SyncAll or Run. Call Close in the end.
func NewWatcher(options *WatcherOptions, patterns ...elfnote.Pattern) *Watcher {
	if options == nil {
		options = new(WatcherOptions)
	}
	w := &Watcher{
		fs:        options.FS,
		cache:     options.Cache,
		filter:    options.Filter,
		handler:   options.Handler,
		before:    options.BeforePass,
		events:    true,
		patience:  abandon.Patience(scanPatience),
		due:       make(chan struct{}, 1),
		buffers:   sync.Pool{New: newBuffers},
		seed:      maphash.MakeSeed(),
		reported:  make(map[FileID]bool),
		processes: make(map[int]*watched),
		files:     make(map[*CachedFile]int),
	}
	w.open, w.close = context.WithCancel(context.Background())
	if w.fs == nil {
		w.fs = NewFS("")
	}
	if w.cache == nil {
		w.cache = NewCache(nil)
	}
	w.wanted = w.cache.wanted(slices.Clone(patterns))
	w.stats.EventsError = errNotRunning
	return w
}

// ProcessFiles returns which files with wanted probes processes map, by PID and
// then by address. During a call of the handler it returns those that there are
// after the changes.
func (w *Watcher) ProcessFiles() []*ProcessFile {
	w.mu.Lock()
	defer w.mu.Unlock()
	var pairs []*ProcessFile
	for _, p := range w.processes {
		pairs = append(pairs, p.pairs...)
	}
	slices.SortStableFunc(pairs,
		func(a, b *ProcessFile) int { return a.Process.PID - b.Process.PID })
	return pairs
}

// Close has every [ProcessFile] disappear, so that the handler undoes what it
// did, and releases all files. A scan afterwards is os.ErrClosed; closing again
// does nothing. A Run that is going on returns at its next scan. Close does not
// wait for a process that is set aside.
func (w *Watcher) Close() error {
	w.close()
	w.scanning.Lock()
	defer w.scanning.Unlock()
	if w.closed {
		return nil
	}
	w.closed = true
	if w.procDir != nil {
		w.procDir.Close()
	}
	w.begin()
	w.mu.Lock()
	for pid := range w.processes {
		w.forget(pid)
	}
	w.mu.Unlock()
	w.deliver()
	return nil
}

// Sync scans one process, and reads its mappings whatever is known about it:
// call it when something is known to have happened. It is no error if the
// process does not exist. The error says what went wrong with the process or
// with files of it, even if the handler got it before. It is an [*Error], or
// several that are joined. It wraps [ErrBlocked] if the process is set aside.
func (w *Watcher) Sync(pid int) error {
	_, err := w.sync(context.Background(), []int{pid}, asked)
	return err
}

// SyncAll scans all processes, each as thoroughly as it needs. The error is
// that of listing the processes. What is wrong with single ones is for the
// handler.
func (w *Watcher) SyncAll() error { return w.syncAll(context.Background()) }

func (w *Watcher) syncAll(ctx context.Context) error {
	w.scanning.Lock()
	defer w.scanning.Unlock()
	if w.closed {
		return errClosed
	}
	if w.before != nil {
		w.before()
	}
	pids, err := w.pids()
	if err != nil {
		return err
	}
	w.begin()
	w.mu.Lock()
	w.stats.Passes++
	pass := w.stats.Passes
	w.mu.Unlock()
	complete := w.visit(ctx, pids, ifNeeded)
	w.mu.Lock()
	for pid, p := range w.processes {
		if complete && p.pass != pass {
			w.forget(pid)
		}
	}
	w.mu.Unlock()
	lack := w.scan.lack
	w.deliver()
	return lack
}

// pids lists the processes. The caller holds scanning.
func (w *Watcher) pids() (pids []int, err error) {
	if w.procDir == nil {
		if w.procDir, err = os.Open(w.fs.Root()); err != nil {
			return nil, fmt.Errorf("list processes: %w", err)
		}
	} else if _, err := w.procDir.Seek(0, io.SeekStart); err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	return w.fs.pids(w.procDir)
}
