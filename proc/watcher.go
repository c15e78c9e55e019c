// SPDX-License-Identifier: BSD-2-Clause

package proc

import (
	"hash/maphash"
	"slices"
	"sync"

	"github.com/gousdt/gousdt/elfnote"
)

// WatcherOptions say what a [Watcher] looks at and whom it tells. The zero
// value, and nil, are all processes of /proc, and nobody.
type WatcherOptions struct {
	// FS is the proc file system; nil is /proc.
	FS *FS
	// Cache may be shared with other watchers; nil makes one.
	Cache *Cache
	// Filter tells which processes are wanted; nil wants all. It is asked when
	// a process is found, and again when it runs another program or changes its
	// name. Processes that have no memory, as the threads of the kernel, are
	// not asked about. It must not call the watcher.
	Filter func(Process) bool
	// Handler is told of what appears and disappears. It is called by one
	// goroutine at a time, the one that looks: by Sync, SyncAll, Run or Close
	// before they return. It may take its time, and call Pairs and Stats, but
	// not the functions by which it is called.
	Handler func(*Changes)
	// BeforePass, if set, is called before each look at all processes, by
	// SyncAll and Run: for those who try again now and then what the Handler
	// could not do. What is said of Handler is true of it, too.
	BeforePass func()
	// NoKernelEvents has Run poll only.
	NoKernelEvents bool
}

// Watcher finds out which processes map files with certain probes, and tells
// when that changes. See the package documentation for how, and how soon.
//
// Its methods may be called by several goroutines at once. They look one after
// the other.
type Watcher struct {
	fs       *FS
	cache    *Cache
	filter   func(Process) bool
	handler  func(*Changes)
	before   func() // a pass
	patterns []elfnote.Pattern
	events   bool

	// looking is held while processes are looked at and the handler runs.
	looking  sync.Mutex
	closed   bool
	seed     maphash.Seed
	statText []byte
	lines    lineReader
	noQuery  bool // PROCMAP_QUERY is not to be had
	reported map[FileID]bool

	// mu guards what Pairs and Stats read; the goroutine that looks holds it
	// while it looks, but not while the handler runs.
	mu        sync.Mutex
	processes map[int]*watched
	files     map[*CachedFile]*fileUse
	stats     Stats
	look      *look // what has been found so far
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

// fileUse is what a watcher knows about a file that a pair has.
type fileUse struct {
	pairs  int
	probes []elfnote.Probe // those that match
}

// NewWatcher returns a watcher for the probes that match any of the patterns;
// without patterns, for all probes. It has not looked yet: call Sync, SyncAll
// or Run, and Close in the end.
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
		patterns:  slices.Clone(patterns),
		events:    !options.NoKernelEvents,
		seed:      maphash.MakeSeed(),
		statText:  make([]byte, maxStat),
		reported:  make(map[FileID]bool),
		processes: make(map[int]*watched),
		files:     make(map[*CachedFile]*fileUse),
	}
	if w.fs == nil {
		w.fs = NewFS("")
	}
	if w.cache == nil {
		w.cache = NewCache(nil)
	}
	return w
}

// Pairs returns the pairs there are, by PID and then by address. During a call
// of the handler it is what will be when the handler has returned.
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
// releases all files. Looking afterwards is os.ErrClosed; closing again does
// nothing. A Run that is going on returns at its next look.
func (w *Watcher) Close() error {
	w.looking.Lock()
	defer w.looking.Unlock()
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

// Sync looks at one process, thoroughly whatever is known about it: call it
// when something is known to have happened. That the process does not exist is
// not an error. What went wrong with it, or with files of it, is returned, even
// if the handler was told of it before; errors are of type [*Error], joined if
// there are several.
func (w *Watcher) Sync(pid int) error { return w.sync([]int{pid}) }

// SyncAll looks at all processes, as thoroughly as each needs. The error is
// that of listing the processes; what is wrong with single ones is for the
// handler.
func (w *Watcher) SyncAll() error {
	w.looking.Lock()
	defer w.looking.Unlock()
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
