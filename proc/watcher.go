// SPDX-License-Identifier: BSD-2-Clause

package proc

import (
	"hash/maphash"
	"slices"
	"sync"

	"github.com/gousdt/gousdt/elfnote"
)

// WatcherOptions say which processes a [Watcher] scans and whom it tells. The
// zero value, and nil, are all processes of /proc, and nobody.
type WatcherOptions struct {
	// FS is the proc file system; nil is /proc.
	FS *FS
	// Cache may be shared with other watchers; nil makes one.
	Cache *Cache
	// Filter reports whether a process is wanted; nil wants all. It is asked
	// when a process is found, and again when the process runs another program
	// or changes its name. It is not asked about processes without memory, such
	// as the threads of the kernel. It must not call the watcher.
	Filter func(Process) bool
	// Handler is told what has appeared and disappeared. It is called by one
	// goroutine at a time, the one that scans: by Sync, SyncAll, Run or Close
	// before they return. It may take its time, and call Pairs and Stats, but
	// not the functions by which it is called.
	Handler func(*Changes)
	// BeforePass, if set, is called before each scan of all processes, by
	// SyncAll and Run, as Handler is: to try again what the Handler could not
	// do.
	BeforePass func()
}

// Watcher finds out which processes map files with certain probes, and tells
// when that changes. The package documentation says how, and how soon.
//
// Its methods may be called by several goroutines at once. They scan one after
// the other.
type Watcher struct {
	fs      *FS
	cache   *Cache
	filter  func(Process) bool
	handler func(*Changes)
	before  func() // a pass
	wanted  wanted
	events  bool // to be asked of the kernel

	// scanning is held while processes are scanned and the handler runs.
	scanning sync.Mutex
	closed   bool
	seed     maphash.Seed
	statText []byte
	lines    lineReader
	noQuery  bool // PROCMAP_QUERY is not available
	reported map[FileID]bool

	// mu guards what Pairs and Stats read. The goroutine that scans holds it,
	// but not while the handler runs.
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
	process Process
	wanted  bool
	denied  bool
	retry   bool // something failed that may succeed next time
	pass    uint64

	leaderless bool // its first thread has ended, the others have not

	// As of the last comparison of the mappings: if none of these has changed,
	// the mappings have not either (but see package documentation).
	size, startCode, startStack uint64
	// As of the last time that they were read in full.
	minorFaults, majorFaults uint64
	fingerprint              uint64

	pairs    []*Pair
	failures map[string]string // by path, what was reported last
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
		seed:      maphash.MakeSeed(),
		statText:  make([]byte, maxStat),
		reported:  make(map[FileID]bool),
		processes: make(map[int]*watched),
		files:     make(map[*CachedFile]int),
	}
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

// Pairs returns the pairs there are, by PID and then by address. During a call
// of the handler it returns those that there are after the changes.
func (w *Watcher) Pairs() []*Pair {
	w.mu.Lock()
	defer w.mu.Unlock()
	var pairs []*Pair
	for _, p := range w.processes {
		pairs = append(pairs, p.pairs...)
	}
	slices.SortStableFunc(pairs, func(a, b *Pair) int { return a.Process.PID - b.Process.PID })
	return pairs
}

// Close has every pair disappear, so that the handler undoes what it did, and
// releases all files. A scan afterwards is os.ErrClosed; closing again does
// nothing. A Run that is going on returns at its next scan.
func (w *Watcher) Close() error {
	w.scanning.Lock()
	defer w.scanning.Unlock()
	if w.closed {
		return nil
	}
	w.closed = true
	w.begin()
	for pid := range w.processes {
		w.forget(pid)
	}
	w.deliver()
	return nil
}

// Sync scans one process, and reads its mappings whatever is known about it:
// call it when something is known to have happened. It is no error if the
// process does not exist. The error says what went wrong with the process or
// with files of it, even if the handler was told before. It is an [*Error], or
// several that are joined.
func (w *Watcher) Sync(pid int) error { return w.sync([]int{pid}) }

// SyncAll scans all processes, each as thoroughly as it needs. The error is
// that of listing the processes. What is wrong with single ones is told to the
// handler.
func (w *Watcher) SyncAll() error {
	w.scanning.Lock()
	defer w.scanning.Unlock()
	if w.closed {
		return errClosed
	}
	if w.before != nil {
		w.before()
	}
	pids, err := w.fs.PIDs()
	if err != nil {
		return err
	}
	w.begin()
	w.stats.Passes++
	for _, pid := range pids {
		w.visit(pid, false)
	}
	for pid, p := range w.processes {
		if p.pass != w.stats.Passes {
			w.forget(pid)
		}
	}
	w.deliver()
	return nil
}
