// SPDX-License-Identifier: BSD-2-Clause

package procwatch

import (
	"bufio"
	"cmp"
	"errors"
	"hash/maphash"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gousdt/gousdt/internal/deadline"
	"github.com/gousdt/gousdt/internal/procfs"
	"github.com/gousdt/gousdt/usdt/proc"
)

// known has the facts that a scan has found about a process. It does not
// change: the next scan makes another one.
type known struct {
	process    proc.Process
	command    string // of the thread that stat was read of
	wanted     bool
	access     access
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

// access says whether a process could be read.
type access int

const (
	granted access = iota
	denied
	failing // something failed that may succeed next time
)

// outcome is what a scan comes to. Each step of it has one, or continues.
type outcome int

const (
	continues outcome = iota
	gone              // there is no such process
	same              // it is the one that was known: no more was asked
	unchanged         // as it was: its files are those that it had
	unwanted          // so are none of its files
	unread            // for an error, which may say that access is denied
	lacking           // not scanned, for lack of descriptors or memory
	executing         // it executes a program, and is to be looked at again
	postponed         // its owner has taken too much: for some time, or until a scan returns
	begun             // the first of its files have been looked at, the others are next
	scanned           // all its files have been
)

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

	outcome
	now   *known
	pairs []*ProcessFile // that the process had, and then has
	wait  time.Duration  // if it is postponed; 0 until a scan returns
	lack  error

	// If the mappings have been compared, or could not be.
	took       time.Duration // 0 if they could not be
	mapped     []procfs.FileKey
	acquired   []*CachedFile
	settles    bool    // a file was written to just now
	mounts     Mounts  // of the process
	errors     []error // all, also those reported before
	news       []error // to be reported
	ofContents []fileError

	recalled
}

// recalled is what is found of a process that has ended.
type recalled struct {
	told    *told // what it did, if it has executed a program; else nil
	short   []*ProcessFile
	useless []mappedFile // files without wanted probes
}

type fileError struct {
	file procfs.FileID
	err  error
}

// isAnother reports whether the PID is another process's than that known.
func (t *task) isAnother() bool {
	started := t.startTime.Load()
	return t.known != nil && started != 0 && started != t.known.process.StartTime
}

// hasNothingWanted reports whether a process was scanned without fault, and has
// no wanted file, nor one that may not be whole.
func (t *task) hasNothingWanted() bool {
	return t.outcome == scanned && len(t.pairs) == 0 && t.now.access == granted && len(t.errors) == 0 &&
		!t.settles
}

type buffers struct {
	text  []byte // of stat
	lines *bufio.Reader
}

func newView() any {
	return &view{buffers: buffers{make([]byte, procfs.MaxStat), procfs.NewLines(nil)}}
}

// A view is what the steps of a scan hand on.
type view struct {
	buffers
	stat   procfs.Stat
	reader int    // the thread by which the mappings are read
	old    *known // of this process; empty if it is new

	isNew, image, renamed, resized bool // what has changed
	thoroughly                     bool
	ended                          bool // before its files were found
}

// steps are those of a scan, in their order.
var steps = [...]func(*Watcher, *task, *view) outcome{
	(*Watcher).identify, (*Watcher).notice, (*Watcher).choose, (*Watcher).takeTurn, (*Watcher).read,
}

func (w *Watcher) look(t *task) {
	v := w.views.Get().(*view)
	defer w.views.Put(v)
	*v = view{buffers: v.buffers}
	t.now = t.known
	for _, step := range steps {
		if t.outcome = step(w, t, v); t.outcome != continues {
			break
		}
	}
	if v.ended && t.told != nil {
		w.recall(t)
	}
}

// recall finds the files of a process that ended before it was looked at: so
// the next process that runs the program is seen, however short it is. What the
// kernel has recorded is found by its path in the parent's mount namespace, and
// must be the same file. The time that this takes is the parent's owner's.
func (w *Watcher) recall(t *task) {
	told := t.told
	ended := proc.Process{PID: t.pid, Parent: told.parent, Command: told.command}
	if told.parent == 0 || w.Filter != nil && !w.Filter(ended) {
		return
	}
	owner := deadline.OwnerOf(w.FS.Root(), told.parent)
	w.mu.Lock()
	wait := w.turns.wait(owner, false, time.Now())
	w.mu.Unlock()
	if wait > 0 || w.unanswered.IsFull(owner) {
		return
	}
	watch := deadline.StartStopwatch()
	var mounts Mounts
	for i, path := range told.paths {
		key := told.mapped[i].FileKey
		m := procfs.FileAt(w.FS, told.parent, path, key.Inode)
		if id, err := m.Identify(); err != nil || !mayHaveBeen(id, key, told.since) {
			continue
		}
		file, ok, err := w.cache.acquire(&request{MappedFile: m, mounts: &mounts, owner: owner})
		switch {
		case ok:
			t.short = append(t.short, &ProcessFile{Process: ended, File: file, MappedFile: m,
				began: time.Unix(0, told.since)})
		case err == nil:
			t.useless = append(t.useless, told.mapped[i])
		}
	}
	w.mu.Lock()
	w.turns.take(owner, time.Now(), watch.Took(), false)
	w.mu.Unlock()
}

// identify reads the stat of the process, and finds out whether it is the one
// that is known.
func (w *Watcher) identify(t *task, v *view) outcome {
	if t.onlyStat && t.known.process.StartTime == 0 {
		return same // reading it is what blocks
	}
	var err error
	v.stat, v.reader, err = procfs.ReadLiveStat(w.FS.Root(), t.pid, v.text)
	switch {
	case errors.Is(err, procfs.ErrGone):
		v.ended = true
		return gone
	case procfs.IsLack(err):
		return t.lacks(err)
	case err != nil && t.onlyStat:
		return same
	case err != nil && t.known == nil:
		return t.fails(&known{process: proc.Process{PID: t.pid}}, err)
	case err != nil:
		return t.fails(t.known, err)
	}
	t.startTime.Store(v.stat.StartTime)
	switch v.old = t.known; {
	case t.isAnother():
		v.old, t.pairs = nil, nil
	case t.onlyStat:
		return same
	}
	if v.isNew = v.old == nil; v.isNew {
		v.old = &known{}
	}
	return continues
}

// notice looks for signs of a change, without which there is nothing more to
// do.
func (w *Watcher) notice(t *task, v *view) outcome {
	s, old := &v.stat, v.old
	if s.Size != 0 && s.StartCode == 0 && old.startCode != 0 {
		return t.executes(old) // at this moment, and has not mapped the program
	}
	leaderless := v.reader != t.pid
	v.image = old.startCode != s.StartCode || old.startStack != s.StartStack
	v.renamed = v.isNew || v.image || old.command != string(s.Command) ||
		old.process == proc.Process{PID: old.process.PID, StartTime: old.process.StartTime} // only its number is known
	v.thoroughly = t.thoroughly || v.isNew || v.image || old.access == failing
	v.resized = old.size != s.Size
	if old.wanted && s.Size != 0 && !v.thoroughly && !v.resized && !v.renamed &&
		old.leaderless == leaderless && !t.isDue(old, s) {
		return unchanged // as most processes are in most passes
	}
	now := *old
	now.leaderless = leaderless
	now.executed = old.executed || v.image && !v.isNew
	now.size, now.startCode, now.startStack = s.Size, s.StartCode, s.StartStack
	t.now = &now
	return continues
}

// choose finds out whether the process is wanted, if it may have another name,
// and whether its mappings are to be read.
func (w *Watcher) choose(t *task, v *view) outcome {
	now, s := t.now, &v.stat
	if v.renamed {
		// The thread that was read may have another name than the process.
		process, err := proc.Find(proc.FS(w.FS.Root()), t.pid)
		switch {
		case procfs.IsLack(err):
			return t.lacks(err)
		case errors.Is(err, procfs.ErrGone) || err == nil && process.StartTime != s.StartTime:
			v.ended = true
			return gone
		case err != nil:
			if v.isNew {
				v.old.process.PID, v.old.process.StartTime = t.pid, s.StartTime
			}
			return t.fails(v.old, err)
		}
		now.process, now.command = process, string(s.Command)
		now.wanted = s.Size != 0 && (w.Filter == nil || w.Filter(process))
		v.thoroughly = v.thoroughly || !v.old.wanted
	}
	if !now.wanted || s.Size == 0 {
		t.pairs, v.ended = nil, s.Size == 0
		return unwanted
	}
	if w.Patient {
		t.isOwn.Store(true)
	}
	if v.thoroughly = v.thoroughly || t.isDue(now, s); !v.thoroughly && !v.resized {
		return unchanged
	}
	return continues
}

// takeTurn postpones the scan if its owner has had its turn.
func (w *Watcher) takeTurn(t *task, v *view) outcome {
	if t.now.owner == "" || v.image { // runtimes move a process to its container before exec
		t.now.owner = deadline.OwnerOf(w.FS.Root(), t.pid)
	}
	if !t.asked {
		w.mu.Lock()
		t.wait = w.turns.wait(t.now.owner, t.again && !v.image, time.Now())
		w.mu.Unlock()
	}
	if (t.wait > 0 || w.unanswered.IsFull(t.now.owner)) && !t.isOwn.Load() {
		return postponed
	}
	return continues
}

// read compares the mappings. The time that this takes is the owner's.
func (w *Watcher) read(t *task, v *view) outcome {
	watch := deadline.StartStopwatch()
	came := w.compare(t, v)
	if came != lacking {
		t.took = max(1, watch.Took())
		w.mu.Lock()
		w.turns.take(t.now.owner, time.Now(), t.took, false)
		w.mu.Unlock()
	}
	return came
}

// isDue reports whether the mappings are read in this pass, although there is
// no sign of a change. PIDs spread that over the passes.
func (t *task) isDue(p *known, s *procfs.Stat) bool {
	if t.turn%busyPasses != 0 {
		return false
	}
	faulted := p.minorFaults != s.MinorFaults || p.majorFaults != s.MajorFaults
	return faulted || p.access == denied || len(p.failures) > 0 || t.turn%idlePasses == 0
}

// compare reads the mappings of a process, and finds its pairs if they have
// changed, or the scan is thorough.
func (w *Watcher) compare(t *task, v *view) outcome {
	now, s := t.now, &v.stat
	var hash maphash.Hash
	hash.SetSeed(w.seed)
	files, err := procfs.ReadFiles(w.FS.Root(), t.pid, v.reader, v.lines, false, func(l *procfs.MapLine) {
		maphash.WriteComparable(&hash,
			[...]uint64{l.Start, l.End, l.Offset, l.Inode, uint64(l.Major), uint64(l.Minor)})
		if n := len(t.mapped); n == 0 || t.mapped[n-1] != l.FileKey {
			t.mapped = append(t.mapped, l.FileKey)
		}
	})
	switch {
	case err == nil && !v.thoroughly && hash.Sum64() == now.fingerprint:
		return unchanged
	case errors.Is(err, procfs.ErrGone):
		now.access, v.ended = failing, true // another thread may run; else the next scan finds the end
		return unchanged
	case procfs.IsLack(err):
		return t.lacks(err)
	case err != nil && !errors.Is(err, procfs.ErrMalformed):
		return t.fails(now, err)
	}
	after, _, err2 := procfs.ReadLiveStat(w.FS.Root(), t.pid, v.text)
	if err2 == nil && (after.StartCode != s.StartCode || after.StartStack != s.StartStack) {
		return t.executes(now) // meanwhile: the mappings may be of either program
	}
	v.ended = len(t.mapped) == 0 && (err2 != nil || after.Size == 0)
	now.access = granted
	now.fingerprint = hash.Sum64()
	now.minorFaults, now.majorFaults = s.MinorFaults, s.MajorFaults
	return w.findPairs(t, files, err)
}

// findPairs finds the pairs of a process among the files that it maps.
// malformed is the error of lines that were left out.
func (w *Watcher) findPairs(t *task, files []*procfs.MappedFile, malformed error) outcome {
	now, came := t.now, scanned
	failures := now.failures
	now.failures = nil
	if malformed != nil {
		t.fail(failures, "", malformed)
	}
	found := foundPairs{old: t.pairs, before: make(map[procfs.FileID]*ProcessFile),
		at: make(map[procfs.FileID]*ProcessFile)}
	for _, pair := range t.pairs {
		found.before[pair.Found.FileID] = pair
	}
	began := time.Now()
	for _, m := range files {
		if t.inTurns && found.searched && time.Since(began) >= scanTurn {
			came = begun
		}
		var pair *ProcessFile
		var err error
		if came == begun {
			pair = found.unidentified(m)
		} else if pair, err = w.pair(t, m, &found); err != nil {
			if passing(err) {
				now.access = failing
			}
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
			found.at[pair.Found.FileID] = other
			other.Mappings = append(other.Mappings, pair.Mappings...)
		case len(found.pairs) < maxPairs:
			found.at[pair.Found.FileID] = pair
			found.pairs = append(found.pairs, pair)
		case came == scanned:
			t.fail(failures, m.RawPath, m.Wrap("watch", errTooManyFiles))
		}
	}
	for _, pair := range found.pairs {
		slices.SortFunc(pair.Mappings,
			func(a, b procfs.Mapping) int { return cmp.Compare(a.Start, b.Start) })
	}
	now.executed = now.executed && came == begun
	t.pairs = found.pairs
	return came
}

// foundPairs are the pairs of a process that have been found so far. They are
// new values, because those that were delivered must not change.
type foundPairs struct {
	old, pairs []*ProcessFile // old are those that it had before
	before, at map[procfs.FileID]*ProcessFile
	searched   bool // some file's notes were read
}

// pair returns the pair of a file. It is nil if the file has no wanted probes,
// or is among the pairs found already: by another path, which is a hard link,
// or another mount of its file system.
func (w *Watcher) pair(t *task, m *procfs.MappedFile, found *foundPairs) (*ProcessFile, error) {
	id, err := m.Identify()
	if err != nil {
		return nil, err
	}
	// A file that is truncated has its old time for a moment.
	t.settles = t.settles || id.Size == 0 || time.Since(time.Unix(0, id.Modified)).Abs() < settling
	if other := found.at[id.FileID]; other != nil {
		other.Mappings = append(other.Mappings, m.Mappings...)
		return nil, nil
	}
	pair := &ProcessFile{Process: t.now.process, MappedFile: m, executed: t.now.executed}
	if old := found.before[id.FileID]; old != nil && old.File.isOnlyAndCurrent(id.Contents) {
		pair.File = old.File
		return pair, nil
	}
	wanted := request{MappedFile: m, mounts: &t.mounts, owner: t.now.owner}
	file, ok, err := w.cache.acquire(&wanted)
	found.searched = found.searched || wanted.searched
	t.settles = t.settles || wanted.written
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
func (found *foundPairs) unidentified(m *procfs.MappedFile) *ProcessFile {
	i := slices.IndexFunc(found.old, func(pair *ProcessFile) bool {
		return pair.Path == m.Path && slices.Equal(pair.Mappings, m.Mappings)
	})
	if i < 0 || found.at[found.old[i].Found.FileID] != nil {
		return nil
	}
	pair, file := *found.old[i], *found.old[i].MappedFile
	file.Mappings = slices.Clone(file.Mappings)
	pair.MappedFile = &file
	return &pair
}

// lacks notes that a process was not scanned for lack of something, which says
// nothing about it.
func (t *task) lacks(err error) outcome {
	t.now, t.lack = t.known, err
	return lacking
}

// executes notes that a process executes a program. It is looked at again soon,
// once.
func (t *task) executes(old *known) outcome {
	now := *old
	now.access = failing
	t.now = &now
	if old.access == failing {
		return unchanged
	}
	return executing
}

// fails notes that a process cannot be scanned. Without access to the process
// it has no pairs. Other errors are expected to pass.
func (t *task) fails(old *known, err error) outcome {
	now := *old
	t.now, now.access = &now, failing
	if errors.Is(err, procfs.ErrAccess) {
		now.access, t.pairs = denied, nil
	}
	now.failures = nil
	t.fail(old.failures, "", err)
	return unread
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
func (t *task) failFile(before map[string]string, m *procfs.MappedFile, err error) {
	var e *procfs.Error
	if !errors.As(err, &e) || e.Op != opReadProbes {
		t.fail(before, m.RawPath, err)
		return
	}
	t.errors = append(t.errors, err)
	t.ofContents = append(t.ofContents, fileError{m.Found.FileID, err})
}

var (
	// errTooManyFiles means that a process maps more files with wanted probes
	// than any program but one that attacks the watcher. The first are watched.
	errTooManyFiles = errors.New("process maps more than " + strconv.Itoa(maxPairs) +
		" files with wanted probes")
	// errOthersBlocked means that a process is not scanned because other
	// processes of its container or user do not answer.
	errOthersBlocked = wrap(procfs.ErrBlocked, "processes of the same container or user")
)

// passing reports whether the operation may succeed at the next scan.
func passing(err error) bool {
	return errors.Is(err, procfs.ErrChanged) || errors.Is(err, procfs.ErrGone) ||
		procfs.IsLack(err) || errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EIO)
}
