// SPDX-License-Identifier: BSD-2-Clause

package procwatch

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"hash/maphash"
	"slices"
	"time"

	"github.com/gousdt/gousdt/internal/deadline"
	"github.com/gousdt/gousdt/internal/procfs"
)

// why says why a process is scanned, and so how thoroughly.
type why int

const (
	// ifNeeded is for passes: the mappings are read if there is a sign of a
	// change.
	ifNeeded why = iota
	// happened is for what the kernel reports: the mappings are read, unless
	// that has taken too much time of late.
	happened
	// asked is for a call of Sync: the mappings are read.
	asked
)

// scan gathers what is found between begin and deliver.
type scan struct {
	changes Changes
	errors  []error // all, also those reported before
	// before has, for each file that got or lost a pair, how many it had at the
	// beginning. touched has these files in order.
	before  map[*CachedFile]int
	touched []*CachedFile
	lack    error // of descriptors or memory, for all processes
	// spare are files that were acquired once too often.
	spare []*CachedFile
}

// begin starts a scan. The caller holds scanning.
func (w *Watcher) begin() { w.scan = &scan{before: make(map[*CachedFile]int)} }

// deliver ends a scan, tells the handler and releases what disappeared. It
// returns all errors of the scan.
func (w *Watcher) deliver() []error {
	s := w.scan
	w.scan = nil
	w.mu.Lock()
	for _, file := range s.touched {
		before, now := s.before[file], w.files[file]
		switch {
		case before == 0 && now > 0:
			s.changes.FilesAppeared = append(s.changes.FilesAppeared, file)
		case before > 0 && now == 0:
			s.changes.FilesDisappeared = append(s.changes.FilesDisappeared, file)
		}
		if now == 0 {
			delete(w.files, file)
		}
	}
	w.mu.Unlock()

	if c := &s.changes; w.handler != nil && len(c.Appeared)+len(c.Moved)+len(c.Disappeared)+
		len(c.Errors)+len(c.FilesAppeared)+len(c.FilesDisappeared) > 0 {
		w.handler(&s.changes)
	}
	for _, pair := range s.changes.Disappeared {
		pair.File.Release()
	}
	for _, file := range s.spare {
		file.Release()
	}
	if s.lack != nil {
		return append(s.errors, s.lack)
	}
	return s.errors
}

// sync scans some processes, and returns how long that took without what the
// handler did.
func (w *Watcher) sync(
	ctx context.Context, pids []int, reason why,
) (took time.Duration, err error) {
	if len(pids) == 0 {
		return 0, nil
	}
	w.scanning.Lock()
	defer w.scanning.Unlock()
	if w.closed {
		return 0, errClosed
	}
	began := time.Now()
	w.begin()
	w.visit(ctx, pids, reason)
	took = time.Since(began)
	return took, errors.Join(w.deliver()...)
}

// visit scans processes. It reports whether it came to all of them before the
// context ended or the watcher was closed.
func (w *Watcher) visit(ctx context.Context, pids []int, reason why) (complete bool) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(w.open, stop)()

	w.mu.Lock()
	tasks := w.tasks(pids, reason)
	w.mu.Unlock()
	left := make(map[int]bool)
	calls := deadline.Calls{
		N: len(tasks), Patience: w.patience,
		Call: func(i int) { w.look(&tasks[i]) },
		Left: func(i int) { left[i] = true; w.setAside(&tasks[i]) },
		Late: func(i int) { w.late(&tasks[i]) },
	}
	begun := calls.Make(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range tasks[:begun] {
		if !left[i] {
			w.apply(&tasks[i])
		}
	}
	if len(left) == 0 {
		clear(tasks)
		w.unused = tasks[:0]
	}
	return begun == len(tasks)
}

// tasks returns the tasks for some processes. The caller holds mu.
func (w *Watcher) tasks(pids []int, reason why) []task {
	tasks := slices.Grow(w.unused, len(pids))[:len(pids)]
	w.unused = nil
	now := time.Now()
	w.aside.refresh(now)
	for i, pid := range pids {
		t := &tasks[i]
		t.pid, t.thoroughly, t.asked = pid, reason != ifNeeded, reason == asked
		t.inTurns = reason != asked && w.running.Load() > 0
		t.turn = w.stats.Passes + uint64(pid)
		if p := w.processes[pid]; p != nil {
			p.pass = w.stats.Passes
			t.known, t.pairs = p.known, p.pairs
			t.thoroughly = t.thoroughly || p.due
			t.again = p.scans > 0
			switch {
			case p.blocked != nil:
				t.onlyStat = true
			case reason != asked && p.allowance.Wait(processRate, now) > 0:
				t.onlyStat = true
				w.postpone(p, p.allowance.Wait(processRate, now))
			}
		}
	}
	return tasks
}

// apply takes over the finding of a task. The caller holds mu.
func (w *Watcher) apply(t *task) {
	f := &t.found
	p := w.processes[t.pid]
	if f.gone || f.another {
		w.forget(t.pid)
		p = nil
	}
	if f.gone {
		return
	}
	if f.lack != nil {
		// It says nothing about this process: one report stands for all.
		w.scan.lack = f.lack
		if p != nil {
			p.due = true
		}
		return
	}
	if p == nil {
		p = &watched{pass: w.stats.Passes}
		w.processes[t.pid] = p
	}
	p.known = f.now
	switch {
	case t.onlyStat && !f.another:
		// Of a process that is set aside, only that it is still the same.
		if p.blocked != nil {
			w.scan.errors = append(w.scan.errors, blockedError(t.pid))
		}
		return
	case f.postponed:
		w.postpone(p, f.wait)
		if t.asked {
			w.scan.errors = append(w.scan.errors,
				&procfs.Error{PID: t.pid, Op: "scan", Err: errOthersBlocked})
		}
		return
	}
	p.due = false
	if !f.compared {
		w.setPairs(p, f.pairs, nil)
		return
	}
	c := &w.scan.changes
	changes := func() int { return len(c.Appeared) + len(c.Moved) + len(c.Disappeared) }
	before := changes()
	w.setPairs(p, f.pairs, f.acquired)
	if f.unwanted {
		w.learn(t.pid, f.mapped)
	}
	w.charge(p, f)
	if t.again && !f.partial && changes() == before && p.known.owner != "" {
		w.aside.takeNoise(p.known.owner, time.Now(), f.took)
	}
	w.scan.errors = append(w.scan.errors, f.errors...)
	w.scan.changes.Errors = append(w.scan.changes.Errors, f.news...)
	for _, failed := range f.ofContents {
		w.report(failed)
	}
}

// report reports an error of the contents of a file, once.
func (w *Watcher) report(failed fileError) {
	if w.reported[failed.file] {
		return
	}
	if len(w.reported) >= maxReportedFiles {
		clear(w.reported)
	}
	w.reported[failed.file] = true
	w.scan.changes.Errors = append(w.scan.changes.Errors, failed.err)
}

// forget forgets a process, whose pairs disappear. The caller holds mu.
func (w *Watcher) forget(pid int) {
	if p := w.processes[pid]; p != nil {
		w.setPairs(p, nil, nil)
		delete(w.processes, pid)
	}
}

// compare finds the pairs of a process. It reads the mappings if their
// fingerprint has changed, or thoroughly is set.
func (w *Watcher) compare(t *task, reader int, s *procfs.Stat, thoroughly bool, b *buffers) {
	f := &t.found
	f.compared = true
	now := f.now
	if !thoroughly {
		fingerprint, err := w.fingerprint(reader, b)
		if err == nil && fingerprint == now.fingerprint {
			return
		}
		// An error will come again when the mappings are read.
	}
	hash := w.newHash()
	files, err := files(w.fs.Root(), t.pid, reader, &b.lines, func(l *mapLine) {
		hash.add(l)
		key := mapKey{l.major, l.minor, l.inode}
		if n := len(f.mapped); n == 0 || f.mapped[n-1] != key {
			f.mapped = append(f.mapped, key)
		}
	})
	switch {
	case errors.Is(err, procfs.ErrGone):
		f.pairs = nil
		return
	case procfs.IsLack(err):
		f.now, f.lack = t.known, err
		return
	case err != nil && !errors.Is(err, procfs.ErrMalformed):
		f.deny(now, err)
		return
	}
	now.denied, now.retry = false, false
	now.fingerprint = hash.Sum64()
	now.minorFaults, now.majorFaults = s.MinorFaults, s.MajorFaults

	failures := now.failures
	now.failures = nil
	if err != nil {
		f.fail(failures, "", err)
	}
	found := newFoundPairs(f.pairs)
	began, news := time.Now(), false
	for _, m := range files {
		if t.inTurns && news && time.Since(began) >= scanTurn {
			f.partial = true
			if pair := found.unidentified(m); pair != nil && len(found.pairs) < maxPairs {
				found.add(pair)
			}
			continue
		}
		pair, err := w.pair(f, m, found)
		news = news || m.searched
		if err != nil {
			now.retry = now.retry || passing(err)
			if pair = found.unidentified(m); pair == nil && !errors.Is(err, procfs.ErrGone) {
				f.failFile(failures, m, err)
			}
		}
		if pair == nil {
			continue
		}
		if len(found.pairs) == maxPairs {
			f.fail(failures, m.rawPath, m.wrap("watch", errTooManyFiles))
			continue
		}
		found.add(pair)
	}
	for i := range found.merged {
		slices.SortFunc(found.pairs[i].Mappings,
			func(a, b procfs.Mapping) int { return cmp.Compare(a.Start, b.Start) })
	}
	f.pairs = found.pairs
	f.unwanted = len(f.pairs) == 0 && !f.partial && !now.retry &&
		len(f.errors) == 0
}

// foundPairs are the pairs of a process that have been found so far.
type foundPairs struct {
	old    []*ProcessFile // that it had before
	before map[FileID]*ProcessFile
	pairs  []*ProcessFile
	at     map[FileID]int // where in pairs
	merged map[int]bool   // those of several paths
}

func newFoundPairs(old []*ProcessFile) *foundPairs {
	found := &foundPairs{
		old:    old,
		before: make(map[FileID]*ProcessFile),
		at:     make(map[FileID]int),
		merged: make(map[int]bool),
	}
	for _, pair := range old {
		found.before[pair.found.FileID] = pair
	}
	return found
}

func (found *foundPairs) add(pair *ProcessFile) {
	found.at[pair.found.FileID] = len(found.pairs)
	found.pairs = append(found.pairs, pair)
}

// pair returns the pair of a file. It is nil if the file has no wanted probes,
// or is among the pairs found already.
func (w *Watcher) pair(f *finding, m *MappedFile, found *foundPairs) (*ProcessFile, error) {
	id, err := m.identify()
	if err != nil {
		return nil, err
	}
	if i, ok := found.at[id.FileID]; ok {
		found.merge(i, m)
		return nil, nil
	}
	pair := &ProcessFile{Process: f.now.process, MappedFile: m}
	if old := found.before[id.FileID]; old != nil && old.File.isCurrent(id.contents) {
		pair.File = old.File
		return pair, nil
	}
	file, ok, err := w.cache.Acquire(m)
	if err != nil || !ok {
		return nil, err
	}
	// Two mounts of overlayfs may have the same file.
	if i := slices.IndexFunc(found.pairs,
		func(other *ProcessFile) bool { return other.File == file }); i >= 0 {
		file.Release()
		found.at[id.FileID] = i
		found.merge(i, m)
		return nil, nil
	}
	f.acquired = append(f.acquired, file)
	pair.File = file
	return pair, nil
}

// merge adds the mappings of one file by another path: a hard link, or another
// mount of its file system.
func (found *foundPairs) merge(i int, m *MappedFile) {
	if !found.merged[i] {
		found.merged[i] = true
		pair := *found.pairs[i]
		file := *pair.MappedFile
		file.Mappings = slices.Clone(file.Mappings)
		pair.MappedFile = &file
		found.pairs[i] = &pair
	}
	into := found.pairs[i].MappedFile
	into.Mappings = append(into.Mappings, m.Mappings...)
}

// unidentified returns the old pair of a file that cannot be identified now, or
// nil. Files are the same if they are mapped at the same addresses by the same
// path.
func (found *foundPairs) unidentified(m *MappedFile) *ProcessFile {
	i := slices.IndexFunc(found.old, func(pair *ProcessFile) bool {
		return pair.Path == m.Path && slices.Equal(pair.Mappings, m.Mappings)
	})
	if i < 0 {
		return nil
	}
	if _, ok := found.at[found.old[i].found.FileID]; ok {
		return nil
	}
	return found.old[i]
}

// count adds to the number of pairs of a file.
func (w *Watcher) count(file *CachedFile, more int) {
	if _, ok := w.scan.before[file]; !ok {
		w.scan.before[file] = w.files[file]
		w.scan.touched = append(w.scan.touched, file)
	}
	w.files[file] += more
}

// setPairs sets the pairs of a process and notes what changed. A pair of a file
// that the process had before differs in where the file is mapped only. A new
// pair keeps one of the files that were acquired for it: the others are spare.
func (w *Watcher) setPairs(p *watched, pairs []*ProcessFile, acquired []*CachedFile) {
	same := len(pairs) == len(p.pairs) && (len(pairs) == 0 || &pairs[0] == &p.pairs[0])
	if same && len(acquired) == 0 {
		return // as for most processes
	}
	c := &w.scan.changes
	pairs = slices.Clone(pairs)
	before := make(map[*CachedFile]*ProcessFile, len(p.pairs))
	for _, old := range p.pairs {
		before[old.File] = old
	}
	now := make(map[*CachedFile]bool, len(pairs))
	for i, pair := range pairs {
		now[pair.File] = true
		old := before[pair.File]
		switch {
		case old == nil:
			w.count(pair.File, +1)
			c.Appeared = append(c.Appeared, pair)
		case old.File == pair.File && old.MappedFile.equals(pair.MappedFile):
			pairs[i] = old
		default:
			c.Moved = append(c.Moved, pair)
		}
	}
	for _, old := range p.pairs {
		if !now[old.File] {
			w.count(old.File, -1)
			c.Disappeared = append(c.Disappeared, old)
		}
	}
	for _, file := range acquired {
		if before[file] != nil || !now[file] {
			w.scan.spare = append(w.scan.spare, file)
		}
	}
	p.pairs = pairs
}

// newHash starts a fingerprint of mappings.
func (w *Watcher) newHash() *mapHash {
	h := new(mapHash)
	h.SetSeed(w.seed)
	return h
}

// mapHash is a fingerprint of the executable mappings of a process.
type mapHash struct{ maphash.Hash }

func (h *mapHash) add(l *mapLine) {
	var b [40]byte
	binary.NativeEndian.PutUint64(b[0:], l.start)
	binary.NativeEndian.PutUint64(b[8:], l.end)
	binary.NativeEndian.PutUint64(b[16:], l.offset)
	binary.NativeEndian.PutUint64(b[24:], l.inode)
	binary.NativeEndian.PutUint32(b[32:], l.major)
	binary.NativeEndian.PutUint32(b[36:], l.minor)
	h.Write(b[:])
}

// fingerprint returns the fingerprint of the mappings of a process.
func (w *Watcher) fingerprint(reader int, b *buffers) (uint64, error) {
	if !w.noQuery.Load() {
		hash := w.newHash()
		err := queryMaps(w.fs.Root(), reader, hash.add)
		if err == nil {
			return hash.Sum64(), nil
		}
		if !errors.Is(err, errNoQuery) {
			return 0, err
		}
		w.noQuery.Store(true)
	}
	hash := w.newHash()
	err := readMaps(w.fs.Root(), reader, &b.lines, hash.add)
	return hash.Sum64(), err
}
