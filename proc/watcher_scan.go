// SPDX-License-Identifier: BSD-2-Clause

package proc

import (
	"errors"
)

// scan gathers what is found between begin and deliver.
type scan struct {
	changes Changes
	errors  []error // all, also those reported before
	// before is how many pairs a file had at the beginning, of those that got
	// or lost one; touched has these files in order.
	before  map[*CachedFile]int
	touched []*CachedFile
}

// begin starts a scan. The caller holds scanning.
func (w *Watcher) begin() {
	w.mu.Lock()
	w.scan = &scan{before: make(map[*CachedFile]int)}
}

// deliver ends a scan, tells the handler and releases what disappeared. It
// returns all errors of the scan.
func (w *Watcher) deliver() []error {
	s := w.scan
	w.scan = nil
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

	if w.handler != nil && !s.changes.isEmpty() {
		w.handler(&s.changes)
	}
	for _, pair := range s.changes.Disappeared {
		pair.File.Release()
	}
	return s.errors
}

// sync scans some processes.
func (w *Watcher) sync(pids []int) error {
	w.scanning.Lock()
	defer w.scanning.Unlock()
	if w.closed {
		return errClosed
	}
	w.begin()
	for _, pid := range pids {
		w.visit(pid, true)
	}
	return errors.Join(w.deliver()...)
}

// visit scans a process; thoroughly means that its mappings are read
// whatever its stat says.
func (w *Watcher) visit(pid int, thoroughly bool) {
	s, err := w.fs.readStat(pid, w.statText)
	reader, leaderless := pid, err == nil && s.isLeaderless()
	if leaderless {
		// The first thread has none of the memory that the others still have.
		started := s.startTime
		reader, s, err = w.fs.liveThread(pid, w.statText)
		s.startTime = started
	}
	if errors.Is(err, ErrGone) {
		w.forget(pid)
		return
	}
	p := w.processes[pid]
	if err != nil {
		if p == nil {
			p = &watched{process: Process{ProcessID: ProcessID{PID: pid}, fs: w.fs}}
			w.processes[pid] = p
		}
		p.pass = w.stats.Passes
		w.deny(p, err)
		return
	}
	if p != nil && p.process.StartTime != s.startTime {
		w.forget(pid) // another process has got the number
		p = nil
	}
	isNew := p == nil
	if isNew {
		p = &watched{}
		w.processes[pid] = p
	}
	p.pass, p.leaderless = w.stats.Passes, leaderless
	image := p.startCode != s.startCode || p.startStack != s.startStack
	thoroughly = thoroughly || isNew || image || p.retry
	if isNew || image || p.process.Command != string(s.command) {
		wasWanted := p.wanted
		p.process = w.fs.process(pid, &s)
		p.wanted = s.size != 0 && (w.filter == nil || w.filter(p.process))
		thoroughly = thoroughly || !wasWanted
	}
	changed := p.size != s.size
	p.size, p.startCode, p.startStack = s.size, s.startCode, s.startStack
	if !p.wanted || s.size == 0 {
		w.setPairs(p, nil)
		return
	}
	thoroughly = thoroughly || w.isDue(p, &s)
	if thoroughly || changed {
		w.compare(p, reader, &s, thoroughly)
	}
}

// isDue reports whether it is the process's turn to have its mappings read
// although there is no sign of a change. PIDs spread the work over the passes.
func (w *Watcher) isDue(p *watched, s *stat) bool {
	turn := w.stats.Passes + uint64(p.process.PID)
	if turn%busyPasses != 0 {
		return false
	}
	faulted := p.minorFaults != s.minorFaults || p.majorFaults != s.majorFaults
	return faulted || p.denied || len(p.failures) > 0 || turn%idlePasses == 0
}

// forget ends what is known about a process.
func (w *Watcher) forget(pid int) {
	if p := w.processes[pid]; p != nil {
		w.setPairs(p, nil)
		delete(w.processes, pid)
	}
}
