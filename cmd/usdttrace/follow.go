// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/commandline"
	"github.com/gousdt/gousdt/internal/debuginfo"
	"github.com/gousdt/gousdt/internal/defs"
	"github.com/gousdt/gousdt/internal/elffile"
	"github.com/gousdt/gousdt/internal/procfs"
	"github.com/gousdt/gousdt/internal/procwatch"
	"github.com/gousdt/gousdt/internal/tracing"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
	"github.com/gousdt/gousdt/usdt/proc"
	"github.com/gousdt/gousdt/watch"
)

// interval is how often all processes are scanned. What the kernel reports is
// seen within 20 ms.
const interval = time.Second

// follower follows processes: it attaches to files as processes map them, and
// detaches when no process does any more.
type follower struct {
	scanner
	tracer *tracer
	watch  *watch.Watch // nil if files are named: those are attached already
	stats  func() error // why the kernel reports no events

	perProcess bool        // it is about one process, not about all or a family
	first      sync.Map    // PIDs for which files are being attached, by the files' paths
	begun      bool        // what was there at first is attached
	polls      atomic.Bool // warnPolling has to find out whether the kernel reports events

	running sync.WaitGroup
}

// scanner is a watch. If files are named it is a watcher, which only serves to
// name functions on stacks.
type scanner interface {
	Sync(ctx context.Context, pid int) error
	Run(ctx context.Context, interval time.Duration) error
	Close() error
}

// newFollower makes a follower of the processes that are wanted, of all if
// wanted is nil. One process is attached alone. Those of a family are attached
// together, and the session filters out others.
func newFollower(t *tracer, wanted func(proc.Process) bool) (*follower, error) {
	f := &follower{tracer: t, perProcess: wanted != nil && !t.options.followsFamily()}
	if len(t.options.files) > 0 {
		watcher := procwatch.NewWatcher(&procwatch.WatcherOptions{Filter: wanted,
			Handler: procwatch.Report(f.rememberStacks), BeforePass: f.warnPolling},
			t.options.patterns...)
		f.scanner, f.stats = watcher, func() error { return watcher.Stats().EventsError }
		return f, nil
	}
	var linger time.Duration // a second: programs that run again and again are not late
	if t.options.followsFamily() {
		linger = math.MaxInt64
	}
	part := t.session.Part(t.options.patterns...)
	part.OptionsFor = f.rememberFirst
	var err error
	f.watch, err = watch.New(&watch.Options{
		Filter:     wanted,
		Mapped:     f.rememberStacks,
		BeforePass: f.warnPolling,
		PerProcess: f.perProcess,
		Patient:    t.options.command != nil, // it waits to be executed
		DebugFiles: true,
		Linger:     linger,
		After:      t.options.after,
		NoLease:    t.options.noLease,
		Limits:     t.options.limits,
	}, f.changed, part)
	if err != nil {
		return nil, err
	}
	f.scanner, f.stats = f.watch, func() error { return f.watch.Stats().EventsError }
	return f, nil
}

// follow watches all processes until the tracing ends. It returns when those
// that are there have been scanned.
func (t *tracer) follow() error {
	if commandline.IsInContainer(procfs.FS("").Root()) {
		t.messages.Warn("processes outside of this PID namespace, such as that of a container, " +
			"are not seen (run it on the host, or in a container with the host's PIDs: --pid=host)")
	}
	return t.startFollower(nil, 0)
}

// followProcess watches one process, and ends the tracing with it.
func (t *tracer) followProcess() error {
	pid := t.options.pid
	if err := t.endWith(pid); err != nil {
		return err
	}
	family := newFamily(pid, t.options.follow)
	recorded := t.watchLatecomers(family, 0)
	t.warnTraps()
	scanned := pid
	if t.options.follow {
		scanned = 0
	}
	if err := t.startFollower(family.wants, scanned); err != nil {
		return err
	}
	if recorded != nil {
		t.messages.Warn("late attachments are not reported: %v", recorded)
	}
	sites, _ := t.targets.watched()
	switch _, filtered := t.targets.notAttached(); {
	case sites > 0:
		t.warnUnmatched(" yet")
		return nil
	case filtered == nil && !t.failed.Load():
		return nil // noteBegun says that what comes is watched
	}
	if err := t.verdict(); err != nil {
		return err
	}
	return errReported
}

// startFollower scans a process, or all if pid is 0, and starts further scans
// until the tracing ends.
func (t *tracer) startFollower(wanted func(proc.Process) bool, pid int) error {
	f, err := newFollower(t, wanted)
	if err != nil {
		return err
	}
	t.follower = f
	if f.watch != nil {
		context.AfterFunc(t.ctx, f.watch.Stop)
	}
	done := t.messages.During("scanning processes and attaching")
	err = f.Sync(t.ctx, pid)
	done()
	var reported *procfs.Error // the user has seen it
	if err != nil && !errors.As(err, &reported) && !isEnd(err) {
		return err
	}
	f.begun = true
	f.polls.Store(true)
	f.running.Go(func() {
		if err := f.Run(t.ctx, interval); err != nil && !isEnd(err) {
			t.warnFailed(err)
			t.end()
		}
	})
	return nil
}

// isEnd reports whether an error only says that the tracing ends.
func isEnd(err error) bool {
	return errors.Is(err, os.ErrClosed) || errors.Is(err, context.Canceled)
}

// warnPolling says, once, if the kernel does not report what processes do.
func (f *follower) warnPolling() {
	if !f.polls.CompareAndSwap(true, false) {
		return // before startFollower has scanned, or again
	}
	if err := f.stats(); err != nil {
		f.tracer.messages.Warn("%v: processes are scanned once in %v, "+
			"and what lives shorter is missed", err, interval)
	}
}

// close waits until nothing is scanned any more, and detaches.
func (f *follower) close() {
	f.running.Wait()
	_ = f.Close() // the process ends anyway
}

// rememberStacks reads the mappings of processes while they run, to name the
// functions on their stacks.
func (f *follower) rememberStacks(appeared, _ []*proc.ProcessFile) {
	for _, pair := range appeared {
		f.tracer.texts.Touch(f.tracer.ctx, "", pair.Process.PID, pair.Path)
	}
	if f.tracer.stacks == nil {
		return
	}
	var pids []int
	for _, pair := range appeared {
		pids = append(pids, pair.Process.PID)
	}
	if len(pids) > 0 { // none are all
		f.tracer.stacks.Remember(pids...)
	}
}

// rememberFirst reads the mappings of a process before a file is attached: that
// takes time, after which the process may be gone.
func (f *follower) rememberFirst(pair *proc.ProcessFile) usdt.AttachOptions {
	f.first.Store(pair.Path, pair.Process.PID)
	f.rememberStacks([]*proc.ProcessFile{pair}, nil)
	return usdt.AttachOptions{}
}

func (f *follower) changed(changes *watch.Changes[*trace.Attachment]) {
	t := f.tracer
	for _, err := range changes.Errors {
		f.warn(err)
	}
	for _, pair := range changes.Missed {
		t.targets.setNotAttached(pair.Path, nil)
		if t.latecomers == nil {
			t.messages.WarnOf("processes that ended before they were attached",
				"not seen: process %s ended before %s was attached", pair.Process, pair.Path)
		}
	}
	for _, a := range changes.Attached {
		pid, _ := f.first.LoadAndDelete(a.Path())
		isNew := t.targets.attached(a)
		if t.latecomers != nil {
			pid := a.Process().PID
			if f.perProcess { // there is no other process
				pid = 0
			}
			t.latecomers.attachedNow(a.Path(), pid)
		}
		if !isNew {
			continue
		}
		t.warnSkipped(a, a.Path())
		t.warnShared(a)
		if pid, ok := pid.(int); ok {
			t.warnTwice(a, pid)
		}
		t.warnFramePointers(a)
		if f.begun {
			t.messages.NoteOf("files that are also watched", "also watching %s in %s",
				plural(len(a.Sites()), "site"), a.Path())
		}
	}
	if len(changes.Detached) > 0 && t.ctx.Err() == nil {
		t.costs.ask(t)
	}
}

func (f *follower) warn(err error) {
	t := f.tracer
	var failed *watch.Error
	var filtered *tracing.FilteredError
	var unpaired *defs.PairError
	isFailed := errors.As(err, &failed)
	if isFailed {
		f.first.Delete(failed.Path)
	}
	switch {
	case errors.As(err, &unpaired):
		t.targets.setNotAttached("", &nothingError{unpaired})
	case errors.As(err, &filtered):
		t.targets.setNotAttached("", filtered)
	case isFailed:
		if running, e := failed.Process.IsRunning(); e == nil && !running {
			t.targets.setNotAttached(failed.Path, nil)
			return
		}
		err := failed.Err
		if !strings.HasPrefix(err.Error(), failed.Path+": ") {
			err = fmt.Errorf("%s: %w", failed.Path, err)
		}
		err = fmt.Errorf("process %s: %w", failed.Process, err)
		if errors.Is(err, proc.ErrBlocked) {
			t.messages.WarnOf("late: "+commandline.Cause(err), "%s", explain(err))
			return // it is attached as soon as it answers, and is not refused
		}
		t.warnFailed(err)
	case errors.Is(err, proc.ErrBlocked):
		t.messages.WarnOf("late: "+commandline.Cause(err), "left out: %v", err)
	case errors.Is(err, procwatch.ErrPostponed):
		t.messages.NoteOf("processes that are scanned later", "%v", err)
	default:
		var of *procfs.Error // with -f all processes are scanned, and one is asked for
		t.warnLeftOut(err, f.perProcess || errors.As(err, &of) && of.PID == t.options.pid)
	}
	if isFailed && t.latecomers != nil {
		t.latecomers.refused(failed.Path)
	}
}

// isAnswered reports whether all that was asked for could be read and attached,
// or has failed. What does not answer may do so later.
func (f *follower) isAnswered() bool {
	if f == nil || f.watch == nil || !f.perProcess {
		return true
	}
	stats := f.watch.Stats()
	return stats.Blocked == 0 && stats.Waiting == 0
}

// filterOf returns a filter for a process, and perhaps its descendants.
func filterOf(pid int, descendants bool) func(proc.Process) bool {
	return newFamily(pid, descendants).wants
}

// family is a process, and perhaps its descendants.
type family struct {
	descendants bool
	mu          sync.Mutex
	members     map[int]bool
}

func newFamily(pid int, descendants bool) *family {
	return &family{descendants: descendants, members: map[int]bool{pid: true}}
}

func (f *family) wants(p proc.Process) bool { return f.has(p.PID, p.Parent) }

// has reports whether a process is of the family. parent is 0 if it is not
// known.
func (f *family) has(pid, parent int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.descendants && f.members[parent] {
		f.members[pid] = true
	}
	return f.members[pid]
}

// beginCommand attaches to the files that the waiting command is known to map.
// Other files are attached when it or a descendant maps them.
func (t *tracer) beginCommand() error {
	if len(t.options.files) > 0 {
		if err := t.attachFiles(); err != nil {
			return err
		}
	}
	recorded := t.watchLatecomers(nil, t.command.tid)
	t.warnTraps()
	if len(t.options.files) > 0 && t.stacks == nil {
		return nil
	}
	if recorded != nil {
		t.messages.Warn("late attachments are not reported: %v", recorded)
	}
	pid := t.command.pid
	if err := t.startFollower(filterOf(pid, !t.alone), pid); err != nil {
		return err
	}
	if sites, _ := t.targets.watched(); sites == 0 {
		t.addNearest(t.targets, pid, t.options.patterns...)
	}
	return nil
}

// runCommand lets the command begin, and ends the tracing with it.
func (t *tracer) runCommand() error {
	c := t.command
	if t.latecomers != nil {
		t.latecomers.begin()
	}
	if err := c.release(); err != nil {
		return err
	}
	t.watch.Go(func() {
		select {
		case <-c.done:
			failure := c.failure()
			if t.endWithStatus(c.exitStatus(), "") && failure != "" {
				t.messages.Warn("%s", failure)
			}
		case <-t.ctx.Done():
		}
	})
	return nil
}

// latecomers are files that processes of a command, or of -p, have mapped
// before they were attached. What they will map is known in part: the first
// process that maps another file is late, and its hits until then are not seen.
// The kernel's records say when a file was mapped.
type latecomers struct {
	tracer  *tracer
	records procwatch.Recorder
	family  *family        // whose records count, nil for those of a command
	done    sync.WaitGroup // of the reading of records
	syncing sync.WaitGroup // of the scans that these cause

	mu       sync.Mutex // guards what follows
	attached map[procfs.FileID]bool
	known    map[string]bool      // paths of files that are attached or have no matching probe
	waiting  map[string]*lateFile // paths of files that have one, until they are attached
	late     []*lateFile          // those that were attached late
	lost     bool                 // records are missing
	began    time.Time            // nothing was late before
	code     executedCode
}

// executedCode is what processes of a command execute of the watched files.
type executedCode struct {
	tracer *tracer
	// By pattern, whether a process has mapped a site where hits are seen, or
	// where the kernel puts no breakpoint, and has put other code there.
	runs, unfit, moved map[int]bool
	sites              map[int][]siteAt // where processes have mapped sites
	mappers            map[int]bool     // these processes, also after their end
	copied             map[int]bool     // processes that are said to have loaded a file twice
	emulated           bool             // a process runs in an emulator

	program  string          // that the command's own process has executed last
	programs map[string]bool // which files are programs
}

// siteAt is where a process has mapped a site that matches a pattern.
type siteAt struct {
	codeSite
	path    string
	address uint64
}

// lateFile is a file that was mapped before it was attached.
type lateFile struct {
	path      string
	pid       int // the first process
	processes int // how many of them
	by        time.Duration
	attached  bool  // else the processes had ended before it could be
	alone     bool  // to each process alone, once that has started
	err       error // why it is not known whether the file has matching probes

	since map[int]time.Time // when processes have mapped it that still run it
}

// maxLateProcesses bounds the processes of a file that are measured: the first
// are the ones that are late by most.
const maxLateProcesses = 1000

// watchLatecomers begins to record what processes map: those of the command
// that begins with the thread tid, or all if that is 0.
func (t *tracer) watchLatecomers(of *family, tid int) error {
	records, err := procwatch.OpenRecords(tid, true)
	if err != nil {
		return err
	}
	l := &latecomers{tracer: t, records: records, family: of, attached: make(map[procfs.FileID]bool),
		known: make(map[string]bool), waiting: make(map[string]*lateFile),
		code: executedCode{tracer: t, runs: make(map[int]bool), unfit: make(map[int]bool),
			moved: make(map[int]bool), sites: make(map[int][]siteAt), mappers: make(map[int]bool),
			copied: make(map[int]bool), programs: make(map[string]bool)}}
	t.latecomers = l
	context.AfterFunc(t.ctx, records.Stop)
	return nil
}

// begin reads records as they come, until the tracing ends. The first one of a
// command comes when that begins.
func (l *latecomers) begin() {
	t := l.tracer
	l.mu.Lock()
	l.began = time.Now()
	l.mu.Unlock()
	l.done.Go(func() {
		for l.records.Wait() {
			for pid := range l.look() {
				// The handler reports errors.
				l.syncing.Go(func() { _ = t.follower.Sync(t.ctx, pid) })
			}
		}
	})
}

// look reads the pending records, and returns the processes that have mapped a
// file that is to be attached.
func (l *latecomers) look() map[int]bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	late := make(map[int]bool)
	for _, record := range procwatch.Drain(l.records) {
		if l.add(&record) {
			late[record.PID] = true
		}
	}
	return late
}

// add takes a record, and reports whether its process has mapped a file that is
// to be attached.
func (l *latecomers) add(record *procwatch.Record) (isLate bool) {
	at := time.Unix(0, record.Time)
	if l.family == nil {
		l.code.add(record)
	} else if record.Kind != procwatch.RecordsLost && !l.family.has(record.PID, record.Parent) {
		return false
	}
	switch record.Kind {
	case procwatch.FileMapped:
		// The kernel puts no breakpoint into a shared mapping, as of mapFile.
		return !record.Mapping.Shared && l.mapped(record, at)
	case procwatch.ProcessForked:
		// A child inherits the mappings of its parent.
		for _, file := range l.waiting {
			if _, late := file.since[record.Parent]; late {
				file.add(record.PID, at)
			}
		}
	case procwatch.ProcessEnded, procwatch.ProcessExecuted:
		for _, file := range l.waiting {
			// Each processor has its own buffer: an exec may be read late.
			if file.since[record.PID].Before(at) {
				l.ends(file, record.PID, at)
			}
		}
	case procwatch.RecordsLost:
		l.lost = true
	}
	return false
}

// add takes a record.
func (c *executedCode) add(record *procwatch.Record) {
	switch record.Kind {
	case procwatch.FileMapped:
		c.mapped(record)
		if record.PID == c.tracer.command.pid && c.isProgram(record.Path) {
			c.program = record.Path
		}
	case procwatch.MemoryMapped:
		for _, site := range c.sites[record.PID] {
			if site.address >= record.Mapping.Start && site.address < record.Mapping.End {
				c.moved[site.pattern] = true
			}
		}
	case procwatch.ProcessForked:
		if sites := c.sites[record.Parent]; len(c.sites) < maxLateProcesses && len(sites) > 0 {
			c.sites[record.PID] = slices.Clip(sites)
			c.mappers[record.PID] = len(c.mappers) < maxWatched
		}
	case procwatch.ProcessEnded, procwatch.ProcessExecuted:
		delete(c.sites, record.PID)
		delete(c.copied, record.PID)
	}
}

func (c *executedCode) isProgram(path string) bool {
	is, known := c.programs[path]
	if info, err := os.Stat(path); !known && err == nil && info.Mode().IsRegular() {
		if file, err := elffile.Open(path); err == nil {
			is = file.IsProgram()
			file.Close()
		}
	}
	if !known && len(c.programs) < maxWatched {
		c.programs[path] = is
	}
	return is
}

// hasMapped reports whether a process of the command has mapped a site.
func (l *latecomers) hasMapped(pid int) bool {
	if l == nil {
		return false
	}
	l.look()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.code.mappers[pid]
}

// isOfFamily reports whether a process is one of those that are watched, as far
// as that is known.
func (l *latecomers) isOfFamily(pid int) bool {
	if l == nil {
		return true
	}
	l.look()
	return l.family.has(pid, 0)
}

// mapped notes which sites a process has mapped, and how.
func (c *executedCode) mapped(record *procwatch.Record) {
	c.emulated = c.emulated || isEmulator(record.Path)
	t := c.tracer.targets
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.code[record.Path]) > 0 {
		go c.tracer.texts.Touch(c.tracer.ctx, "", record.PID, record.Path)
	}
	for _, site := range t.code[record.Path] {
		address, there := record.Mapping.Address(site.offset)
		switch of := c.sites[record.PID]; {
		case !there:
		case !procwatch.TakesHits(record.Mapping):
			c.unfit[site.pattern] = true
		default:
			c.runs[site.pattern] = true
			isCopy := func(s siteAt) bool {
				return s.codeSite == site && s.path == record.Path && s.address != address
			}
			if site.counted && !c.copied[record.PID] && slices.ContainsFunc(of, isCopy) {
				c.copied[record.PID] = len(c.copied) < maxWatched
				c.tracer.messages.WarnOf("files loaded twice", "process %d has loaded %s more than once: "+
					"while there are several copies, hits of probes with semaphores come from one only",
					record.PID, record.Path)
			}
			if len(of) < maxLateProcesses && (len(of) > 0 || len(c.sites) < maxLateProcesses) {
				c.sites[record.PID] = append(of, siteAt{site, record.Path, address})
				c.mappers[record.PID] = true
			}
		}
	}
}

func (f *lateFile) add(pid int, at time.Time) {
	f.processes++
	if len(f.since) < maxLateProcesses {
		f.since[pid] = at
	}
}

// ends notes that a process is late no longer, if it was.
func (l *latecomers) ends(f *lateFile, pid int, at time.Time) {
	since, late := f.since[pid]
	delete(f.since, pid)
	if l.began.After(since) {
		since = l.began
	}
	if late && !l.began.IsZero() {
		f.by = max(f.by, at.Sub(since))
	}
}

// mapped takes the file of a record, and reports whether it is to be attached.
func (l *latecomers) mapped(record *procwatch.Record, at time.Time) (waits bool) {
	pid, path := record.PID, record.Path
	if len(l.tracer.options.files) > 0 || l.known[path] || !strings.HasPrefix(path, "/") {
		return false
	}
	file := l.waiting[path]
	if file == nil {
		isLate, err := l.isLate(record)
		if !isLate || len(l.waiting) == maxWatched {
			if len(l.known) == maxWatched {
				clear(l.known) // they are looked at again
			}
			l.known[path] = true
			return false
		}
		file = &lateFile{path: path, pid: pid, err: err, since: make(map[int]time.Time)}
		l.waiting[path] = file
	}
	if _, before := file.since[pid]; !before {
		file.add(pid, at)
	}
	return true
}

// isLate reports whether the file of a record has matching probes, or may have,
// and is not attached.
func (l *latecomers) isLate(record *procwatch.Record) (bool, error) {
	opened, err := openRecorded(record)
	switch {
	case errors.Is(err, procfs.ErrNotRegular):
		return false, nil // a device
	case err != nil:
		return true, err
	}
	defer opened.Close()
	if id, err := procfs.IdentifyFile(opened); err == nil && l.attached[id.FileID] {
		return false, nil
	}
	file, err := elfnote.NewFile(opened)
	if err != nil {
		return false, nil // nothing is attached, and so nothing is missed
	}
	// Some sites are only attached to single processes.
	target := usdt.Target{ELF: file, PID: os.Getpid(), Symbols: debuginfo.AddInstalled}
	sel, err := usdt.Select(target, l.tracer.options.patterns...)
	if err != nil {
		return false, nil
	}
	return true, sel.Close()
}

// openRecorded opens the file that a process has mapped. Once that has ended,
// or has another root, the same file may be at the path as this process sees
// it.
func openRecorded(record *procwatch.Record) (*os.File, error) {
	fs := procfs.FS("")
	file, err := procfs.OpenIn(fs, record.PID, record.Path)
	if err == nil || errors.Is(err, procfs.ErrNotRegular) {
		return file, err
	}
	file, err = procwatch.RecordedFile{FS: fs, PID: os.Getpid(), Record: record}.Open()
	if err != nil || record.BuildID == "" {
		return file, err
	}
	if read, err := elfnote.NewFile(file); err == nil {
		if id, _ := read.BuildID(); id == record.BuildID {
			return file, nil
		}
	}
	file.Close()
	return nil, procfs.ErrChanged
}

// seenBy returns the path of a file by which this process can open what another
// one sees there, whose root may be another. Once that has ended, the path
// itself is the best guess.
func seenBy(pid int, path string) string {
	root := procfs.Path("/proc", pid, "root")
	if _, err := os.Stat(root + "/"); pid == 0 || err != nil {
		return path
	}
	return root + path
}

// attachedNow notes that a file is attached, in one process if pid is not 0.
func (l *latecomers) attachedNow(path string, pid int) {
	now := time.Now()
	l.look() // what was mapped before
	l.mu.Lock()
	defer l.mu.Unlock()
	file := l.waiting[path]
	switch {
	case file != nil && pid != 0:
		file.attached, file.alone = true, true
		l.ends(file, pid, now)
	case file != nil:
		file.attached = true
		l.end(file, now)
	}
	if pid != 0 {
		return
	}
	l.known[path] = true
	delete(l.waiting, path)
	if opened, err := procfs.OpenIn("", os.Getpid(), path); err == nil {
		if id, err := procfs.IdentifyFile(opened); err == nil {
			l.attached[id.FileID] = true
		}
		opened.Close()
	}
}

// refused notes that a file cannot be attached: that has been reported, and the
// file is not late.
func (l *latecomers) refused(path string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.known[path] = true
	delete(l.waiting, path)
}

func (l *latecomers) end(file *lateFile, now time.Time) {
	for pid := range file.since {
		l.ends(file, pid, now)
	}
	if file.by > 0 {
		l.late = append(l.late, file)
	}
}

// finish returns the files that were late, the latest first.
func (l *latecomers) finish() (late []*lateFile, complete bool) {
	l.done.Wait()
	l.syncing.Wait()
	l.look()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.records.Close()
	for path, file := range l.waiting {
		l.end(file, time.Now())
		delete(l.waiting, path)
	}
	slices.SortFunc(l.late, func(a, b *lateFile) int {
		return cmp.Or(cmp.Compare(b.by, a.by), strings.Compare(a.path, b.path))
	})
	return l.late, !l.lost
}

// String names the missed hits, and the remedy.
func (f *lateFile) String() string {
	by := fmt.Sprintf("process %d", f.pid)
	if others := f.processes - 1; others > 0 {
		by += " (and " + plural(others, "other") + ")"
	}
	hint := " (name the FILE to miss none)"
	if f.alone {
		hint = ""
	}
	switch took := formatDuration(float64(f.by)); {
	case f.err != nil:
		return fmt.Sprintf("perhaps not seen: hits in %s, which %s ran for %s: "+
			"it could not be read any more", f.path, by, took)
	case f.attached:
		return fmt.Sprintf("not seen: hits in %s for up to %s, because it was attached that long "+
			"after %s had mapped it%s", f.path, took, by, hint)
	default:
		return fmt.Sprintf("not seen: hits in %s, which %s had mapped for up to %s, and ended "+
			"before it was attached%s", f.path, by, took, hint)
	}
}

// maxLate is how many late files are named.
const maxLate = 8

func lateText(files []*lateFile) (text string) {
	for _, file := range files[:min(len(files), maxLate)] {
		text += file.String() + "\n"
	}
	if more := len(files) - maxLate; more > 0 {
		text += fmt.Sprintf("not seen: hits in %s more\n", plural(more, "file"))
	}
	return text
}
