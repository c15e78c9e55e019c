// SPDX-License-Identifier: BSD-2-Clause

package proc

import (
	"errors"
	"sync/atomic"
	"time"
)

// known is what a scan has found out about a process. It does not change: the
// next scan makes another one.
type known struct {
	process    Process
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

// A task is to find out what is to be known of a process. It is done by a
// goroutine of its own, which may be left behind with it: it touches nothing of
// the watcher that changes.
type task struct {
	pid        int
	known      *known         // nil if nothing is
	pairs      []*ProcessFile // that the process has
	thoroughly bool           // whatever stat says
	onlyStat   bool           // to find out whether it is another process now
	asked      bool           // for this process
	again      bool           // its mappings have been read before
	inTurns    bool           // Run goes on with the rest of the files
	turn       uint64

	startTime atomic.Uint64 // as soon as it is known
	owner     string        // of a task that is left behind
	found     finding
}

// A finding is what a task has found out.
type finding struct {
	now       *known
	pairs     []*ProcessFile
	gone      bool          // there is no such process
	another   bool          // it is not the one that was known
	postponed bool          // not scanned, for others of its owner take too much
	wait      time.Duration // until it may be scanned, 0 if others have to return
	lack      error         // of descriptors or memory, because of which it was not scanned
	details   *details
}

// details are those of a finding for which the mappings have been compared.
type details struct {
	took       time.Duration
	read       bool
	partial    bool // not all files have been looked at
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
	if f.details != nil {
		for _, file := range f.details.acquired {
			file.Release()
		}
	}
}

// buffers are what a goroutine needs for its tasks.
type buffers struct {
	stat  []byte
	lines lineReader
}

func newBuffers() any { return &buffers{stat: make([]byte, maxStat)} }

// look does a task.
func (w *Watcher) look(t *task) {
	b := w.buffers.Get().(*buffers)
	defer w.buffers.Put(b)
	f, old := &t.found, t.known
	f.now, f.pairs = old, t.pairs
	if t.onlyStat && old.process.StartTime == 0 {
		return // to read that is what blocks
	}
	s, err := w.fs.readStat(t.pid, b.stat)
	reader, leaderless := t.pid, err == nil && s.isLeaderless()
	if leaderless {
		// The first thread has none of the memory that the others still have.
		started := s.startTime
		reader, s, err = w.fs.liveThread(t.pid, b.stat)
		s.startTime = started
	}
	if errors.Is(err, ErrGone) {
		f.gone = true
		return
	}
	if isLack(err) {
		f.lack = err
		return
	}
	if err != nil {
		if old == nil {
			old = &known{process: Process{ProcessID: ProcessID{PID: t.pid}, fs: w.fs}}
		}
		f.deny(old, err)
		return
	}
	t.startTime.Store(s.startTime)
	if old != nil && old.process.StartTime != s.startTime {
		f.another, old, f.pairs = true, nil, nil // another process has got the number
	}
	if t.onlyStat && !f.another {
		return
	}
	isNew := old == nil
	if isNew {
		old = &known{}
	}
	image := old.startCode != s.startCode || old.startStack != s.startStack
	renamed := isNew || image || old.process.Command != string(s.command)
	thoroughly := t.thoroughly || isNew || image || old.retry
	changed := old.size != s.size
	if old.wanted && s.size != 0 && !thoroughly && !changed && !renamed &&
		old.leaderless == leaderless && !t.isDue(old, &s) {
		return // as most processes are in most passes
	}

	now := new(known)
	*now = *old
	f.now = now
	now.leaderless = leaderless
	now.size, now.startCode, now.startStack = s.size, s.startCode, s.startStack
	if renamed {
		now.process = w.fs.process(t.pid, &s)
		now.wanted = s.size != 0 && (w.filter == nil || w.filter(now.process))
		thoroughly = thoroughly || !old.wanted
	}
	if !now.wanted || s.size == 0 {
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
			now.owner = w.fs.owner(t.pid)
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
	f.details.took = max(1, ended.Sub(began))
	if f.now.owner == "" && (t.again || f.details.took >= slowScan) {
		f.now.owner = w.fs.owner(t.pid)
	}
	if f.now.owner != "" {
		w.aside.take(f.now.owner, ended, f.details.took)
	}
}

// isDue reports whether it is the process's turn to have its mappings read
// although there is no sign of a change. PIDs spread the work over the passes.
func (t *task) isDue(p *known, s *stat) bool {
	if t.turn%busyPasses != 0 {
		return false
	}
	faulted := p.minorFaults != s.minorFaults || p.majorFaults != s.majorFaults
	return faulted || p.denied || len(p.failures) > 0 || t.turn%idlePasses == 0
}

// deny notes that a process cannot be scanned. Without access to it nothing is
// known of its pairs, so that it has none. Other errors are expected to pass.
func (f *finding) deny(old *known, err error) {
	now := new(known)
	*now = *old
	f.now = now
	if errors.Is(err, ErrAccess) {
		f.pairs = nil
	}
	now.denied = errors.Is(err, ErrAccess)
	now.retry = !now.denied
	now.failures = nil
	if f.details == nil {
		f.details = &details{}
	}
	f.fail(old.failures, "", err)
}

// fail notes an error of a process, or of a file in this process. It is to be
// reported unless it was at the last scan.
func (f *finding) fail(before map[string]string, path string, err error) {
	f.details.errors = append(f.details.errors, err)
	if f.now.failures == nil {
		f.now.failures = make(map[string]string)
	}
	said := err.Error()
	if errors.Is(err, errTooManyOpen) {
		said = errTooManyOpen.Error() // its numbers change all the time
	}
	f.now.failures[path] = said
	if before[path] != said {
		f.details.news = append(f.details.news, err)
	}
}

// failFile notes an error of a file that a process maps. What is wrong with the
// contents of the file is reported for the first process that maps it, instead
// of for the thousands.
func (f *finding) failFile(before map[string]string, m *MappedFile, err error) {
	var e *Error
	if !errors.As(err, &e) || e.Op != opReadProbes {
		f.fail(before, m.rawPath, err)
		return
	}
	f.details.errors = append(f.details.errors, err)
	f.details.ofContents = append(f.details.ofContents, fileError{m.found.FileID, err})
}
