// SPDX-License-Identifier: BSD-2-Clause

package procwatch

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gousdt/gousdt/internal/deadline"
	"github.com/gousdt/gousdt/internal/fairness"
	"github.com/gousdt/gousdt/internal/procfs"
	"github.com/gousdt/gousdt/internal/procmaps"
	"github.com/gousdt/gousdt/proc"
)

// known has the facts that a scan has found about a process. It does not
// change: the next scan makes another one.
type known struct {
	process    proc.Process
	command    string // of the thread that stat was read of
	wanted     bool
	denied     bool
	retry      bool // something failed that may succeed next time
	leaderless bool // its first thread has ended, the others have not
	executed   bool // a program since its files were found

	// As of the last comparison of the mappings: if none of these has changed,
	// the mappings have not either (but see the documentation of package proc).
	size, startCode, startStack uint64
	// As of the last time that they were read in full.
	minorFaults, majorFaults uint64
	fingerprint              uint64

	failures map[string]string // by path, what was reported last
	owner    string            // "" before the mappings were compared
}

// A task is the scan of one process, and its findings. Its goroutine may be
// abandoned: so it touches nothing of the watcher that changes, but its turns.
type task struct {
	pid        int
	known      *known // by the last scan, nil if there was none
	thoroughly bool   // read the mappings, whatever stat says
	onlyStat   bool   // only find out whether it is another process now
	asked      bool   // by a call of Sync
	again      bool   // its mappings have been read before
	inTurns    bool   // stop after scanTurn: Run goes on with the other files
	turn       uint64

	startTime atomic.Uint64 // as soon as it is known
	owner     string        // if the task is abandoned
	isOwn     atomic.Bool   // it is not abandoned, see WatcherOptions.Patient

	now       *known
	pairs     []*ProcessFile // that the process had, and then has
	gone      bool           // there is no such process
	another   bool           // it is not the one that was known
	executing bool           // it executes a program, and is to be looked at again
	postponed bool           // not scanned: its owner has taken too much
	wait      time.Duration  // until it may be scanned, 0 if a scan has to return before
	lack      error          // of descriptors or memory: it was not scanned

	// If the mappings have been compared, or could not be.
	took       time.Duration // 0 if they could not be
	partial    bool          // not all files have been looked at
	mapped     []procmaps.Key
	unwanted   bool // nothing is wanted of any of these
	acquired   []*CachedFile
	errors     []error // all, also those reported before
	news       []error // to be reported
	ofContents []fileError
}

type fileError struct {
	file procmaps.FileID
	err  error
}

type buffers struct {
	stat  []byte
	lines *bufio.Reader
}

func newBuffers() any { return &buffers{make([]byte, procfs.MaxStat), procmaps.NewLines(nil)} }

func (w *Watcher) look(t *task) {
	b := w.buffers.Get().(*buffers)
	defer w.buffers.Put(b)
	old := t.known
	t.now = old
	if t.onlyStat && old.process.StartTime == 0 {
		return // reading it is what blocks
	}
	s, reader, err := procfs.ReadLiveStat(w.FS.Root(), t.pid, b.stat)
	switch {
	case errors.Is(err, procfs.ErrGone):
		t.gone = true
		return
	case procfs.IsLack(err):
		t.lack = err
		return
	case err != nil:
		if old == nil {
			old = &known{process: proc.Process{PID: t.pid}}
		}
		t.deny(old, err)
		return
	}
	t.startTime.Store(s.StartTime)
	if old != nil && old.process.StartTime != s.StartTime {
		t.another, old, t.pairs = true, nil, nil // another process has got the number
	}
	if t.onlyStat && !t.another {
		return
	}
	isNew := old == nil
	if isNew {
		old = &known{}
	}
	if s.Size != 0 && s.StartCode == 0 && old.startCode != 0 {
		// It is being executed at this moment, and has not mapped the program.
		t.now = new(known)
		*t.now = *old
		t.now.retry, t.executing = true, !old.retry
		return
	}
	leaderless := reader != t.pid
	image := old.startCode != s.StartCode || old.startStack != s.StartStack
	renamed := isNew || image || old.command != string(s.Command) ||
		old.process == proc.Process{PID: old.process.PID, StartTime: old.process.StartTime} // only its number is known
	thoroughly := t.thoroughly || isNew || image || old.retry
	changed := old.size != s.Size
	if old.wanted && s.Size != 0 && !thoroughly && !changed && !renamed &&
		old.leaderless == leaderless && !t.isDue(old, &s) {
		return // as most processes are in most passes
	}

	now := new(known)
	*now = *old
	t.now = now
	now.leaderless = leaderless
	now.executed = old.executed || image && !isNew
	now.size, now.startCode, now.startStack = s.Size, s.StartCode, s.StartStack
	if renamed {
		// The thread that was read may have another name than the process.
		process, err := proc.Find(proc.FS(w.FS.Root()), t.pid)
		switch {
		case procfs.IsLack(err):
			t.now, t.lack = t.known, err
			return
		case errors.Is(err, procfs.ErrGone) || err == nil && process.StartTime != s.StartTime:
			t.gone = true
			return
		case err != nil:
			if isNew {
				old.process.PID, old.process.StartTime = t.pid, s.StartTime
			}
			t.deny(old, err)
			return
		}
		now.process, now.command = process, string(s.Command)
		now.wanted = s.Size != 0 && (w.Filter == nil || w.Filter(process))
		thoroughly = thoroughly || !old.wanted
	}
	if !now.wanted || s.Size == 0 {
		t.pairs = nil
		return
	}
	if w.Patient {
		t.isOwn.Store(true)
	}
	thoroughly = thoroughly || t.isDue(now, &s)
	if !thoroughly && !changed {
		return
	}
	if now.owner == "" || image { // runtimes move a process to its container before exec
		now.owner = fairness.OwnerOf(w.FS.Root(), t.pid)
	}
	w.mu.Lock()
	wait := w.turns.wait(now.owner, t.again && !image, time.Now())
	w.mu.Unlock()
	if wait > 0 && !t.asked {
		t.wait = wait
	}
	if t.postponed = (t.wait > 0 || w.unanswered.IsFull(now.owner)) && !t.isOwn.Load(); t.postponed {
		return
	}
	watch := deadline.StartStopwatch()
	w.compare(t, reader, &s, thoroughly, b)
	if t.lack == nil {
		t.took = max(1, watch.Took())
		w.mu.Lock()
		w.turns.take(now.owner, time.Now(), t.took, false)
		w.mu.Unlock()
	}
}

// isDue reports whether the mappings are read in this pass, although there is
// no sign of a change. PIDs spread that over the passes.
func (t *task) isDue(p *known, s *procfs.Stat) bool {
	if t.turn%busyPasses != 0 {
		return false
	}
	faulted := p.minorFaults != s.MinorFaults || p.majorFaults != s.MajorFaults
	return faulted || p.denied || len(p.failures) > 0 || t.turn%idlePasses == 0
}

// compare reads the mappings of a process, and finds its pairs if they have
// changed, or thoroughly is set.
func (w *Watcher) compare(t *task, reader int, s *procfs.Stat, thoroughly bool, b *buffers) {
	now := t.now
	var hash maphash.Hash
	hash.SetSeed(w.seed)
	files, err := procmaps.Read(w.FS, t.pid, reader, b.lines, func(l *procmaps.Line) {
		maphash.WriteComparable(&hash,
			[...]uint64{l.Start, l.End, l.Offset, l.Inode, uint64(l.Major), uint64(l.Minor)})
		if n := len(t.mapped); n == 0 || t.mapped[n-1] != l.Key {
			t.mapped = append(t.mapped, l.Key)
		}
	})
	if err == nil && !thoroughly && hash.Sum64() == now.fingerprint {
		return
	}
	switch {
	case errors.Is(err, procfs.ErrGone):
		now.retry = true // another thread may run; else the next scan finds the end
		return
	case procfs.IsLack(err):
		t.now, t.lack = t.known, err
		return
	case err != nil && !errors.Is(err, procfs.ErrMalformed):
		t.deny(now, err)
		return
	}
	after, _, err2 := procfs.ReadLiveStat(w.FS.Root(), t.pid, b.stat)
	if err2 == nil && (after.StartCode != s.StartCode || after.StartStack != s.StartStack) {
		// It has executed a program meanwhile: the mappings may be of either.
		now.retry, t.executing = true, !now.retry
		return
	}
	now.denied, now.retry = false, false
	now.fingerprint = hash.Sum64()
	now.minorFaults, now.majorFaults = s.MinorFaults, s.MajorFaults

	failures := now.failures
	now.failures = nil
	if err != nil {
		t.fail(failures, "", err)
	}
	found := foundPairs{old: t.pairs, before: make(map[procmaps.FileID]*ProcessFile),
		at: make(map[procmaps.FileID]*ProcessFile)}
	for _, pair := range t.pairs {
		found.before[pair.Found().FileID] = pair
	}
	began := time.Now()
	for _, m := range files {
		t.partial = t.partial || t.inTurns && found.searched && time.Since(began) >= scanTurn
		var pair *ProcessFile
		var err error
		if t.partial {
			pair = found.unidentified(m)
		} else if pair, err = w.pair(t, m, &found); err != nil {
			now.retry = now.retry || passing(err)
			if pair = found.unidentified(m); pair == nil && !errors.Is(err, procfs.ErrGone) {
				t.failFile(failures, m, err)
			}
		}
		if pair == nil {
			continue
		}
		// Two mounts of overlayfs may have the same file.
		same := slices.IndexFunc(found.pairs,
			func(other *ProcessFile) bool { return other.File == pair.File })
		switch {
		case same >= 0:
			other := found.pairs[same]
			found.at[pair.Found().FileID] = other
			other.Mappings = append(other.Mappings, pair.Mappings...)
		case len(found.pairs) < maxPairs:
			found.at[pair.Found().FileID] = pair
			found.pairs = append(found.pairs, pair)
		case !t.partial:
			t.fail(failures, m.RawPath(), m.Wrap("watch", errTooManyFiles))
		}
	}
	for _, pair := range found.pairs {
		slices.SortFunc(pair.Mappings,
			func(a, b procfs.Mapping) int { return cmp.Compare(a.Start, b.Start) })
	}
	now.executed = now.executed && t.partial
	t.pairs = found.pairs
	t.unwanted = len(t.pairs) == 0 && !t.partial && !now.retry && len(t.errors) == 0
}

// foundPairs are the pairs of a process that have been found so far. They are
// new values, because those that were delivered must not change.
type foundPairs struct {
	old, pairs []*ProcessFile // old are those that it had before
	before, at map[procmaps.FileID]*ProcessFile
	searched   bool // some file's notes were read
}

// pair returns the pair of a file. It is nil if the file has no wanted probes,
// or is among the pairs found already: by another path, which is a hard link,
// or another mount of its file system.
func (w *Watcher) pair(t *task, m *procmaps.MappedFile, found *foundPairs) (*ProcessFile, error) {
	id, err := m.Identify()
	if err != nil {
		return nil, err
	}
	if other := found.at[id.FileID]; other != nil {
		other.Mappings = append(other.Mappings, m.Mappings...)
		return nil, nil
	}
	pair := &ProcessFile{Process: t.now.process, MappedFile: m, executed: t.now.executed}
	if old := found.before[id.FileID]; old != nil && old.File.isOnlyAndCurrent(id.Contents) {
		pair.File = old.File
		return pair, nil
	}
	wanted := request{MappedFile: m, owner: t.now.owner}
	file, ok, err := w.cache.acquire(&wanted)
	found.searched = found.searched || wanted.searched
	if err != nil || !ok {
		return nil, err
	}
	t.acquired = append(t.acquired, file)
	pair.File = file
	return pair, nil
}

// unidentified returns a copy of the old pair of a file that cannot be
// identified now, or nil. The file is taken for the same if it is mapped at the
// same addresses by the same path.
func (found *foundPairs) unidentified(m *procmaps.MappedFile) *ProcessFile {
	i := slices.IndexFunc(found.old, func(pair *ProcessFile) bool {
		return pair.Path == m.Path && slices.Equal(pair.Mappings, m.Mappings)
	})
	if i < 0 || found.at[found.old[i].Found().FileID] != nil {
		return nil
	}
	pair, file := *found.old[i], *found.old[i].MappedFile
	file.Mappings = slices.Clone(file.Mappings)
	pair.MappedFile = &file
	return &pair
}

// deny notes that a process cannot be scanned. Without access to the process it
// has no pairs. Other errors are expected to pass.
func (t *task) deny(old *known, err error) {
	now := new(known)
	*now = *old
	t.now = now
	now.denied = errors.Is(err, procfs.ErrAccess)
	now.retry = !now.denied
	if now.denied {
		t.pairs = nil
	}
	now.failures = nil
	t.fail(old.failures, "", err)
}

// fail notes an error of a process, or of a file in this process. It is
// reported unless the last scan had the same.
func (t *task) fail(before map[string]string, path string, err error) {
	t.errors = append(t.errors, err)
	if t.now.failures == nil {
		t.now.failures = make(map[string]string)
	}
	said := err.Error()
	if errors.Is(err, errTooManyOpen) {
		said = errTooManyOpen.Error() // its numbers change all the time
	}
	t.now.failures[path] = said
	if before[path] != said {
		t.news = append(t.news, err)
	}
}

// failFile notes an error of a file that a process maps. Errors of the contents
// of a file are reported for the first process that maps it, not for all.
func (t *task) failFile(before map[string]string, m *procmaps.MappedFile, err error) {
	var e *procfs.Error
	if !errors.As(err, &e) || e.Op != opReadProbes {
		t.fail(before, m.RawPath(), err)
		return
	}
	t.errors = append(t.errors, err)
	t.ofContents = append(t.ofContents, fileError{m.Found().FileID, err})
}

var (
	// errTooManyFiles means that a process maps more files with wanted probes
	// than any program but one that attacks the watcher. The first are watched.
	errTooManyFiles = fmt.Errorf("process maps more than %d files with wanted probes", maxPairs)
	// errOthersBlocked means that a process is not scanned because other
	// processes of its container or user do not answer.
	errOthersBlocked = fmt.Errorf("%w: processes of the same container or user", procfs.ErrBlocked)
)

// passing reports whether the operation may succeed at the next scan.
func passing(err error) bool {
	return errors.Is(err, procfs.ErrChanged) || errors.Is(err, procfs.ErrGone) ||
		procfs.IsLack(err) || errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EIO)
}
