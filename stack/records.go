// SPDX-License-Identifier: BSD-2-Clause

package stack

import (
	"debug/elf"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/gousdt/gousdt/internal/procwatch"
	"github.com/gousdt/gousdt/internal/sys"
)

// records are the kernel's records of processes, for the stacks of processes
// that end before they can be scanned. A recorded file is only opened to name a
// stack: most processes have none.
type records struct {
	recordings []recording // one for each call of Record

	order []*process // that records are of; the one that began first comes first
	held  holding    // the memory of all
}

// recording is a source of records. done is closed when nobody waits for them
// any more.
type recording struct {
	source procwatch.Recorder
	done   chan struct{}
}

const (
	// maxRecords bounds the records that are kept of a process. A scan finds
	// further mappings as long as the process runs.
	maxRecords = 512

	// maxRecorded and maxRecordBytes bound the records of all processes. The
	// oldest are dropped first: a process that began long ago and still runs
	// can be scanned.
	maxRecorded    = 1 << 15
	maxRecordBytes = maxHeldBytes / 14

	// maxAncestors bounds the processes in whose mount namespaces a path of a
	// process that has ended is tried.
	maxAncestors = 3

	// recordPause is the time from one reading of records to the next while no
	// stack needs them.
	recordPause = 5 * time.Millisecond
)

// Record makes the kernel record the files that processes map, from now on
// until Close, so that functions have names even if their process ends at once.
// It records the descendants of the thread tid, from the time at which that
// executes another program. If tid is 0, it records all processes, which needs
// CAP_PERFMON, or CAP_SYS_ADMIN before Linux 5.8. Each call adds to what is
// recorded, and takes a descriptor for each processor. The error wraps
// [os.ErrClosed] after Close.
func (s *Symbolizer) Record(tid int) error {
	source, err := procwatch.OpenRecords(tid, tid != 0)
	if err != nil {
		return fmt.Errorf("record mappings: %w", err)
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.isClosed || s.processes == nil {
		source.Close()
		return sys.ClosedError("symbolizer")
	}
	done := make(chan struct{})
	s.records.recordings = append(s.records.recordings, recording{source, done})
	go func() {
		defer close(done)
		for source.Wait() {
			s.mutex.Lock()
			s.drain()
			s.mutex.Unlock()
			time.Sleep(recordPause)
		}
	}()
	return nil
}

func (s *Symbolizer) drain() {
	for _, recording := range s.records.recordings {
		for _, record := range procwatch.Drain(recording.source) {
			s.note(&record)
		}
	}
}

// note keeps a record. Records of several processors may come out of order.
func (s *Symbolizer) note(record *procwatch.Record) {
	before := s.processes[record.PID]
	switch record.Kind {
	case procwatch.ProcessForked:
		p := s.renew(record.PID, record.Time, s.ownerBy(record.Parent))
		p.ancestors = []int{record.Parent}
		if parent := s.processes[record.Parent]; parent != nil {
			p.ancestors = append(p.ancestors, parent.ancestors...)
			p.ancestors = p.ancestors[:min(len(p.ancestors), maxAncestors)]
			if parent.since <= p.since {
				p.isWhole = parent.isWhole
				s.keepRecords(p, append(slices.Clip(parent.records), p.records...),
					parent.recordBytes+p.recordBytes)
			}
		}
	case procwatch.ProcessExecuted:
		p := s.renew(record.PID, record.Time, s.ownerBy(record.PID))
		p.isWhole = true
		if before != nil && before != p { // a new program does not refill the budgets
			if !before.onlyRecorded {
				s.named(p)
			}
			p.ancestors, p.scans = before.ancestors, before.scans
			p.steps, p.bytes, p.lineTime = before.steps, before.bytes, before.lineTime
		}
	case procwatch.FileMapped:
		p := before
		if p == nil {
			p = s.renew(record.PID, 0, "") // it began before the recording
		}
		if s.putInOrder(p); record.Time >= p.since && len(p.records) < maxRecords {
			s.keepRecords(p, append(p.records, record), p.recordBytes+size(record))
		}
	}
	for r := &s.records; len(r.order) > maxRecorded || r.held.bytes > maxRecordBytes; {
		first := r.order[0]
		r.order[0] = nil
		r.order, first.isOrdered = r.order[1:], false
		if s.keepRecords(first, nil, 0); first.onlyRecorded && s.processes[first.PID] == first {
			s.forget(first.PID)
		}
	}
}

// renew starts anew with a process that was forked or has executed a program.
// What was scanned or recorded later stays.
func (s *Symbolizer) renew(pid int, since int64, owner string) *process {
	p := s.processes[pid]
	var later []*procwatch.Record
	bytes := 0
	if p != nil {
		for _, record := range p.records {
			if record.Time > since {
				later, bytes = append(later, record), bytes+size(record)
			}
		}
	}
	if p == nil || p.asked < since {
		s.forget(pid)
		p = newProcess(pid, owner)
		p.asked, p.onlyRecorded = since, true
		s.processes[pid] = p
		s.unnamed++
	}
	p.since, p.used = since, 0
	s.putInOrder(p)
	s.keepRecords(p, later, bytes)
	return p
}

// size returns roughly how many bytes a record takes in memory.
func size(record *procwatch.Record) int { return 200 + len(record.Path) }

func (s *Symbolizer) putInOrder(p *process) {
	if !p.isOrdered {
		p.isOrdered = true
		s.records.order = append(s.records.order, p)
	}
}

// keepRecords sets the records of a process, which take some bytes.
func (s *Symbolizer) keepRecords(p *process, records []*procwatch.Record, bytes int) {
	r, more := &s.records, bytes-p.recordBytes
	p.records, p.recordBytes, p.used = records, bytes, min(p.used, len(records))
	if more == 0 {
		return
	}
	s.hold(&r.held, "", r.held.bytes+more, func() {
		for _, p := range r.order {
			p.records, p.recordBytes, p.used = nil, 0, 0
		}
	})
}

// recall adds the recorded mappings of a process to the known ones. It is
// called before a stack of the process is named. It releases the lock while it
// looks for files.
func (s *Symbolizer) recall(pid int) {
	s.drain()
	for s.busy[pid] != nil { // it is being scanned
		s.enter(pid)()
	}
	p := s.processes[pid]
	isFirst := p != nil && p.onlyRecorded
	isNew := func() bool {
		return p != nil && s.processes[pid] == p && p.scans.isDue() &&
			(isFirst || len(p.records) != p.used)
	}
	if !isNew() {
		return
	}
	s.named(p)
	var from []mapping
	if isFirst && !p.isWhole {
		from = s.ofAncestor(p)
	}
	leave := s.enter(pid)
	defer leave()
	if !isNew() { // while the lock was released
		return
	}
	wanted := p.unused()
	files := s.recorded(p, wanted)
	if s.processes[pid] != p { // it was forgotten while the lock was released
		for _, f := range files {
			s.unused(f)
		}
		return
	}
	var now, earlier []mapping
	for i, record := range wanted {
		if files[i] == nil {
			continue
		} else if m := (mapping{record.Mapping, files[i], record.Path}); record.Time < p.asked {
			earlier = append(earlier, m)
		} else {
			now = append(now, m)
		}
	}
	from = merge(earlier, from)
	// A scan of a process that was ending could not open its files: then what
	// was recorded before, or is of an ancestor, is the better mapping.
	opened := slices.DeleteFunc(slices.Clone(p.mapped), func(m mapping) bool {
		return m.machine == elf.EM_NONE && slices.ContainsFunc(from,
			func(f mapping) bool { return f.Mapping == m.Mapping && f.path == m.path })
	})
	s.setMapped(p, merge(merge(now, opened), from))
	s.closeMany(p)
}

func (s *Symbolizer) named(p *process) {
	if p.onlyRecorded {
		p.onlyRecorded = false
		s.unnamed--
	}
}

// unused returns the records that the mappings of a process do not have yet,
// without those whose place later ones take. They count as used from now on.
func (p *process) unused() (wanted []*procwatch.Record) {
	for i, record := range p.records[p.used:] {
		if slices.ContainsFunc(p.records[p.used+i+1:], func(later *procwatch.Record) bool {
			return later.Mapping.Start < record.Mapping.End &&
				record.Mapping.Start < later.Mapping.End
		}) {
			continue
		}
		known := p.find(record.Mapping.Start)
		if known == nil || known.Mapping != record.Mapping || known.machine == elf.EM_NONE {
			wanted = append(wanted, record)
		}
	}
	p.used = len(p.records)
	return wanted
}

// unused forgets a file that was found for a mapping, unless others map it.
func (s *Symbolizer) unused(f *file) {
	if f != nil {
		f.users++
		s.release([]mapping{{file: f}})
	}
}

// ofAncestor returns the mappings that a process inherited from an ancestor
// that began before the recording.
func (s *Symbolizer) ofAncestor(p *process) []mapping {
	for _, pid := range p.ancestors {
		a := s.processes[pid]
		if a != nil && a.since > p.since {
			return nil // it has executed another program since
		}
		if a == nil || a.scans.isDue() {
			a = s.scan(pid)
		}
		if a != nil && len(a.mapped) > 0 {
			return a.mapped
		}
	}
	return nil
}

// recorded returns the files of records, each nil if it cannot be found any
// more. The paths count in the mount namespace of the process: elsewhere they
// may lead to other files. It releases the lock while it looks for them.
func (s *Symbolizer) recorded(p *process, records []*procwatch.Record) []*file {
	const host = 1 // PID of a process in the host's mount namespace
	files := make([]*file, len(records))
	took := time.Duration(0)
	for _, pid := range slices.Concat([]int{p.PID}, p.ancestors, []int{os.Getpid(), host}) {
		var missing []int
		var wanted []openable
		for i, record := range records {
			if files[i] == nil {
				missing = append(missing, i)
				wanted = append(wanted, procwatch.RecordedFile{FS: s.fs, PID: pid, Record: record})
			}
		}
		if len(wanted) == 0 {
			break
		}
		s.unlock()
		all, more := s.look(p.owner, wanted)
		s.mutex.Lock()
		took += more
		for n, found := range all {
			record := records[missing[n]]
			if s.isClosed || found.id == (procwatch.Version{}) {
				s.files.close(found.opened)
				continue
			}
			f := s.file(p, found)
			if record.BuildID == "" || record.BuildID == f.buildID {
				files[missing[n]] = f
				continue
			}
			s.unused(f)
		}
	}
	s.scanned.Take(p.owner, scanRate, time.Now(), took)
	p.scans.done(took, freeScans)
	return files
}
