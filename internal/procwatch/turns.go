// SPDX-License-Identifier: BSD-2-Clause

package procwatch

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gousdt/gousdt/internal/fairness"
	"github.com/gousdt/gousdt/internal/procfs"
	"github.com/gousdt/gousdt/proc"
)

// aside counts the scans that do not return, and the time that owners have
// taken. It may be used by several goroutines at once.
type aside struct {
	// isInUse is whether an owner may have had too much. If not, nobody needs
	// to know the owner of a process.
	isInUse atomic.Bool

	mu      sync.Mutex
	blocked fairness.Blocked // scans that have not returned
	owners  fairness.Owners
	noise   fairness.Allowance // of all scans that find nothing new
	noisy   fairness.Owners    // the same by owner
}

// isBlocked reports whether no more processes of an owner are to be scanned
// until one returns.
func (a *aside) isBlocked(owner string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.blocked.IsFull(owner, maxBlocked)
}

// wait returns the time until processes of an owner may be scanned, 0 if they
// may be now.
func (a *aside) wait(owner string, now time.Time) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.owners.Wait(owner, ownerRate, now)
}

// noiseWait returns the time until processes of an owner may be scanned that
// have been scanned before.
func (a *aside) noiseWait(owner string, now time.Time) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.noise.Wait(noiseRate, now) == 0 {
		return 0
	}
	return a.noisy.Wait(owner, a.noiseShare(), now)
}

// noiseShare returns the share of each noisy owner.
func (a *aside) noiseShare() fairness.Rate {
	return fairness.Rate{Full: noiseOfOwner, Refill: noiseRate.Refill / float64(max(1, len(a.noisy)))}
}

// takeNoise notes the time of a scan for an owner that found nothing new.
func (a *aside) takeNoise(owner string, now time.Time, took time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.noise.Take(noiseRate, now, took)
	a.noisy.Take(owner, a.noiseShare(), now, took)
	if a.noise.Wait(noiseRate, now) > 0 {
		a.isInUse.Store(true)
	}
}

// take notes the time of a scan for an owner.
func (a *aside) take(owner string, now time.Time, took time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.owners.Take(owner, ownerRate, now, took)
	if a.owners.Wait(owner, ownerRate, now) > 0 {
		a.isInUse.Store(true)
	}
}

// block adds to the number of scans for an owner that have not returned.
func (a *aside) block(owner string, more int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.blocked.Add(owner, more)
	a.isInUse.Store(true)
}

// refresh finds out whether owners still matter.
func (a *aside) refresh(now time.Time) {
	if !a.isInUse.Load() {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.noisy.Tidy(a.noiseShare(), now)
	inUse := a.blocked.Total > 0 || a.noise.Wait(noiseRate, now) > 0
	for owner := range a.owners {
		inUse = inUse || a.owners.Wait(owner, ownerRate, now) > 0
	}
	a.isInUse.Store(inUse)
}

// blockedError says that a process is set aside.
func blockedError(pid int) error { return &procfs.Error{PID: pid, Op: "scan", Err: procfs.ErrBlocked} }

// setAside notes that the scan of a process has been abandoned.
func (w *Watcher) setAside(t *task) {
	owner := procfs.OwnerOf(w.fs.Root(), t.pid)
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.processes[t.pid]
	if p == nil {
		p = &watched{pass: w.stats.Passes}
		w.processes[t.pid] = p
	}
	if p.known == nil {
		id := procfs.ID{PID: t.pid, StartTime: t.startTime.Load()}
		p.known = &known{process: proc.Process{PID: id.PID, StartTime: id.StartTime}}
	}
	p.blocked, p.due = t, true
	t.owner = owner
	w.aside.block(owner, 1)
	w.aside.take(owner, time.Now(), w.patience)
	err := blockedError(t.pid)
	w.scan.errors = append(w.scan.errors, err)
	w.scan.changes.Errors = append(w.scan.changes.Errors, err)
}

// late applies the finding of an abandoned scan that has returned after all,
// unless the process has ended meanwhile.
func (w *Watcher) late(t *task) {
	w.scanning.Lock()
	defer w.scanning.Unlock()
	w.aside.block(t.owner, -1)
	defer w.nudge() // at the end: it is for this process, too
	w.mu.Lock()
	p := w.processes[t.pid]
	if w.closed || p == nil || p.blocked != t {
		w.mu.Unlock()
		t.found.release()
		return
	}
	p.blocked = nil
	w.begin()
	w.apply(t)
	if p = w.processes[t.pid]; p != nil {
		p.due = true // there was time for changes
	}
	w.mu.Unlock()
	w.deliver()
}

// nudge wakes Run, which scans the processes that are due.
func (w *Watcher) nudge() {
	select {
	case w.due <- struct{}{}:
	default:
	}
}

// charge counts a comparison of a process's mappings. The caller holds mu.
func (w *Watcher) charge(p *watched, f *finding) {
	if f.took == 0 {
		return
	}
	p.scans++
	if f.partial { // the rest of its files is read when the others have had their turn
		p.due = true
		w.nudge()
		return
	}
	p.allowance.Take(processRate, time.Now(), f.took)
}

// postpone makes a process due after some time. If that is 0, it is due when
// the scan of another process of its owner has returned. The caller holds mu.
func (w *Watcher) postpone(p *watched, wait time.Duration) {
	if wait > 0 && !p.due {
		time.AfterFunc(wait, w.nudge)
	}
	p.due = true
	if p.isPutOff {
		return
	}
	p.isPutOff = true
	err := errOthersBlocked
	if wait > 0 {
		err = procfs.ErrPostponed
	}
	w.scan.changes.Errors = append(w.scan.changes.Errors,
		&procfs.Error{PID: p.process.PID, Op: "scan", Err: err})
}

// pidsDue returns the processes that are due and may be scanned.
func (w *Watcher) pidsDue() (pids []int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now, soonest := time.Now(), time.Duration(0)
	for pid, p := range w.processes {
		if !p.due || p.blocked != nil || p.allowance.Wait(processRate, now) > 0 {
			continue
		}
		var wait time.Duration
		if p.known.owner != "" {
			wait = max(w.aside.wait(p.known.owner, now), w.aside.noiseWait(p.known.owner, now))
		}
		if wait == 0 {
			p.due = false
			pids = append(pids, pid)
		} else if soonest == 0 || wait < soonest {
			soonest = wait
		}
	}
	if soonest > 0 {
		time.AfterFunc(soonest, w.nudge)
	}
	return pids
}

// known is what a scan has found out about a process. It does not change: the
// next scan makes another one.
type known struct {
	process    proc.Process
	command    string // of the thread that stat was read of
	wanted     bool
	denied     bool
	retry      bool // something failed that may succeed next time
	leaderless bool // its first thread has ended, the others have not

	// As of the last comparison of the mappings: if none of these has changed,
	// the mappings have not either (but see package documentation).
	size, startCode, startStack uint64
	// As of the last time that they were read in full.
	minorFaults, majorFaults uint64
	fingerprint              uint64

	failures map[string]string // by path, what was reported last
	owner    string            // "" until it was needed
}

// A task is the scan of one process. Its goroutine may be abandoned: so it
// touches nothing of the watcher that changes.
type task struct {
	pid        int
	known      *known         // by the last scan, nil if there was none
	pairs      []*ProcessFile // that the process has
	thoroughly bool           // read the mappings, whatever stat says
	onlyStat   bool           // only find out whether it is another process now
	asked      bool           // by a call of Sync
	again      bool           // its mappings have been read before
	inTurns    bool           // stop after scanTurn: Run goes on with the other files
	turn       uint64

	startTime atomic.Uint64 // as soon as it is known
	owner     string        // of a task that is abandoned
	found     finding
}

// A finding is the outcome of a task.
type finding struct {
	now       *known
	pairs     []*ProcessFile
	gone      bool          // there is no such process
	another   bool          // it is not the one that was known
	postponed bool          // not scanned: its owner has taken too much
	wait      time.Duration // until it may be scanned, 0 if a scan has to return before
	lack      error         // of descriptors or memory: it was not scanned

	// If the mappings have been compared, or could not be.
	compared   bool
	took       time.Duration // 0 if they could not be
	partial    bool          // not all files have been looked at
	mapped     []mapKey
	unwanted   bool // nothing is wanted of any of these
	acquired   []*CachedFile
	errors     []error // all, also those reported before
	news       []error // to be reported
	ofContents []fileError
}

// fileError is what is wrong with the contents of a file.
type fileError struct {
	file FileID
	err  error
}

// release gives back the files of a finding that is not wanted any more.
func (f *finding) release() {
	for _, file := range f.acquired {
		file.Release()
	}
}

// buffers are what a goroutine needs for its tasks.
type buffers struct {
	stat  []byte
	lines lineReader
}

func newBuffers() any { return &buffers{stat: make([]byte, procfs.MaxStat)} }

// look does a task.
func (w *Watcher) look(t *task) {
	b := w.buffers.Get().(*buffers)
	defer w.buffers.Put(b)
	f, old := &t.found, t.known
	f.now, f.pairs = old, t.pairs
	if t.onlyStat && old.process.StartTime == 0 {
		return // to read that is what blocks
	}
	s, err := procfs.ReadStat(w.fs.Root(), t.pid, b.stat)
	reader, leaderless := t.pid, err == nil && s.IsLeaderless()
	if leaderless {
		// The first thread has none of the memory that the others still have.
		started := s.StartTime
		reader, s, err = procfs.LiveThread(w.fs.Root(), t.pid, b.stat)
		s.StartTime = started
	}
	if errors.Is(err, procfs.ErrGone) {
		f.gone = true
		return
	}
	if procfs.IsLack(err) {
		f.lack = err
		return
	}
	if err != nil {
		if old == nil {
			old = &known{process: proc.Process{PID: t.pid}}
		}
		f.deny(old, err)
		return
	}
	t.startTime.Store(s.StartTime)
	if old != nil && old.process.StartTime != s.StartTime {
		f.another, old, f.pairs = true, nil, nil // another process has got the number
	}
	if t.onlyStat && !f.another {
		return
	}
	isNew := old == nil
	if isNew {
		old = &known{}
	}
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
	f.now = now
	now.leaderless = leaderless
	now.size, now.startCode, now.startStack = s.Size, s.StartCode, s.StartStack
	if renamed {
		// The thread that was read may have another name than the process.
		process, err := proc.Find(w.fs, t.pid)
		switch {
		case procfs.IsLack(err):
			f.now, f.lack = t.known, err
			return
		case errors.Is(err, procfs.ErrGone) || err == nil && process.StartTime != s.StartTime:
			f.gone = true
			return
		case err != nil:
			if isNew {
				old.process.PID, old.process.StartTime = t.pid, s.StartTime
			}
			f.deny(old, err)
			return
		}
		now.process, now.command = process, string(s.Command)
		now.wanted = s.Size != 0 && (w.filter == nil || w.filter(now.process))
		thoroughly = thoroughly || !old.wanted
	}
	if !now.wanted || s.Size == 0 {
		f.pairs = nil
		return
	}
	thoroughly = thoroughly || t.isDue(now, &s)
	if !thoroughly && !changed {
		return
	}
	began := time.Now()
	if w.aside.isInUse.Load() {
		if now.owner == "" {
			now.owner = procfs.OwnerOf(w.fs.Root(), t.pid)
		}
		if !t.asked {
			f.wait = w.aside.wait(now.owner, began)
			if t.again && !image {
				f.wait = max(f.wait, w.aside.noiseWait(now.owner, began))
			}
		}
		if f.wait > 0 || w.aside.isBlocked(now.owner) {
			f.postponed = true
			return
		}
	}
	w.compare(t, reader, &s, thoroughly, b)
	if f.lack != nil {
		return
	}
	ended := time.Now()
	f.took = max(1, ended.Sub(began))
	if f.now.owner == "" && (t.again || f.took >= slowScan) {
		f.now.owner = procfs.OwnerOf(w.fs.Root(), t.pid)
	}
	if f.now.owner != "" {
		w.aside.take(f.now.owner, ended, f.took)
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

// deny notes that a process cannot be scanned. Without access to the process it
// has no pairs. Other errors are expected to pass.
func (f *finding) deny(old *known, err error) {
	now := new(known)
	*now = *old
	f.now = now
	if errors.Is(err, procfs.ErrAccess) {
		f.pairs = nil
	}
	now.denied = errors.Is(err, procfs.ErrAccess)
	now.retry = !now.denied
	now.failures = nil
	f.compared = true
	f.fail(old.failures, "", err)
}

// fail notes an error of a process, or of a file in this process. It is
// reported unless the last scan had the same.
func (f *finding) fail(before map[string]string, path string, err error) {
	f.errors = append(f.errors, err)
	if f.now.failures == nil {
		f.now.failures = make(map[string]string)
	}
	said := err.Error()
	if errors.Is(err, errTooManyOpen) {
		said = errTooManyOpen.Error() // its numbers change all the time
	}
	f.now.failures[path] = said
	if before[path] != said {
		f.news = append(f.news, err)
	}
}

// failFile notes an error of a file that a process maps. Errors of the contents
// of a file are reported for the first process that maps it, not for all.
func (f *finding) failFile(before map[string]string, m *MappedFile, err error) {
	var e *procfs.Error
	if !errors.As(err, &e) || e.Op != opReadProbes {
		f.fail(before, m.rawPath, err)
		return
	}
	f.errors = append(f.errors, err)
	f.ofContents = append(f.ofContents, fileError{m.found.FileID, err})
}
