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
	isClosed   bool

	of    map[int]*told
	order []*told // the one that began first comes first
	bytes int     // in memory, of all
}

// recording is a source of records. done is closed when nobody waits for them
// any more.
type recording struct {
	source *procwatch.Records
	done   chan struct{}
}

// told has the records of a process since it was forked or executed its
// program.
type told struct {
	pid       int
	since     int64 // the time of that, in nanoseconds since 1970
	ancestors []int // the nearest first
	isWhole   bool  // mapped has all mappings: none was inherited unrecorded
	mapped    []*procwatch.Record
	bytes     int // in memory, of mapped

	used *process // has the mappings of the first records
	uses int      // the number of these records
}

const (
	// maxToldMappings bounds the records that are kept of a process. A scan
	// finds further mappings as long as the process runs.
	maxToldMappings = 512

	// maxTold and maxToldBytes bound the records of all processes. The oldest
	// are dropped first: a process that began long ago and still runs can be
	// scanned.
	maxTold      = 1 << 15
	maxToldBytes = 32 << 20

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
	open := procwatch.RecordAll
	if tid != 0 {
		open = func() (*procwatch.Records, error) { return procwatch.RecordFamily(tid) }
	}
	source, err := open()
	if err != nil {
		return fmt.Errorf("record mappings: %w", err)
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.records.isClosed {
		source.Close()
		return sys.ClosedError("symbolizer")
	}
	done := make(chan struct{})
	s.records.recordings = append(s.records.recordings, recording{source, done})
	go func() {
		defer close(done)
		for source.Wait() {
			s.mutex.Lock()
			s.records.drain()
			s.mutex.Unlock()
			time.Sleep(recordPause)
		}
	}()
	return nil
}

// stopRecords ends all recordings, and forgets the records.
func (s *Symbolizer) stopRecords() {
	s.mutex.Lock()
	recordings := s.records.recordings
	s.records = records{isClosed: true}
	s.unlock()
	for _, r := range recordings {
		r.source.Stop()
		<-r.done
		r.source.Close()
	}
}

// drain reads the records that there are.
func (r *records) drain() {
	for _, recording := range r.recordings {
		for _, record := range recording.source.Drain() {
			r.add(&record)
		}
	}
}

// add keeps a record. Records of several processors may come out of order.
func (r *records) add(record *procwatch.Record) {
	t := r.of[record.PID]
	switch record.Kind {
	case procwatch.ProcessForked:
		parent := r.of[record.Parent]
		t = r.begin(record, t)
		t.ancestors = []int{record.Parent}
		if parent != nil {
			t.ancestors = append(t.ancestors, parent.ancestors...)
			t.ancestors = t.ancestors[:min(len(t.ancestors), maxAncestors)]
		}
		if parent != nil && parent.since <= t.since {
			t.isWhole = parent.isWhole
			t.mapped = append(slices.Clip(parent.mapped), t.mapped...)
			r.hold(t, parent.bytes)
		}
	case procwatch.ProcessExecuted:
		var ancestors []int
		if t != nil {
			ancestors = t.ancestors
		}
		t = r.begin(record, t)
		t.ancestors, t.isWhole = ancestors, true
	case procwatch.FileMapped:
		if t == nil {
			t = r.begin(record, nil)
			t.since = 0 // it began before the recording
		}
		if record.Time >= t.since && len(t.mapped) < maxToldMappings {
			t.mapped = append(t.mapped, record)
			r.hold(t, size(record))
		}
	}
	for len(r.order) > maxTold || r.bytes > maxToldBytes {
		first := r.order[0]
		r.order[0] = nil
		r.order = r.order[1:]
		r.forget(first)
	}
}

// begin starts anew with a process that was forked or has executed a program.
// Mappings with a later time stay.
func (r *records) begin(record *procwatch.Record, before *told) *told {
	t := &told{pid: record.PID, since: record.Time}
	if before != nil {
		for _, m := range before.mapped {
			if m.Time > record.Time {
				t.mapped = append(t.mapped, m)
				r.hold(t, size(m))
			}
		}
		r.forget(before)
	}
	if r.of == nil {
		r.of = make(map[int]*told)
	}
	r.of[t.pid] = t
	r.order = append(r.order, t)
	return t
}

// size returns roughly how many bytes a record takes in memory.
func size(record *procwatch.Record) int { return 200 + len(record.Path) }

func (r *records) hold(t *told, bytes int) {
	t.bytes += bytes
	r.bytes += bytes
}

func (r *records) forget(t *told) {
	r.hold(t, -t.bytes)
	t.mapped = nil
	if r.of[t.pid] == t {
		delete(r.of, t.pid)
	}
}

// recall adds the recorded mappings of a process to the known ones. It is
// called before a stack of the process is named. It releases the lock while it
// looks for files.
func (s *Symbolizer) recall(pid int) {
	s.records.drain()
	for s.busy[pid] != nil { // it is being scanned
		s.enter(pid)()
	}
	t := s.records.of[pid]
	isNew := func() bool {
		p := s.processes[pid]
		return s.records.of[pid] == t && (p == nil || p.scans.isDue() &&
			(p != t.used || len(t.mapped) != t.uses))
	}
	if t == nil || !isNew() {
		return
	}
	var from []mapping
	if p := s.processes[pid]; (p == nil || p != t.used) && !t.isWhole {
		from = s.ofAncestor(t)
	}
	leave := s.enter(pid)
	defer leave()
	if !isNew() { // while the lock was released
		return
	}
	p := s.began(t)
	wanted := t.unused(p)
	files := s.recorded(p, t, wanted)
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

// began returns the process that records are of. One that was scanned before
// they begin was another one with the same PID, or ran another program.
func (s *Symbolizer) began(t *told) *process {
	p := s.processes[t.pid]
	if p == nil || p != t.used {
		t.uses = 0
	}
	if before := p; p == nil || p.asked < t.since {
		s.forget(t.pid)
		p = s.add(t.pid, s.ownerOf(t, before))
		p.asked = t.since
		if before != nil { // a new program does not refill the budgets
			p.steps, p.bytes, p.lineTime = before.steps, before.bytes, before.lineTime
			p.scans = before.scans
		}
	}
	return p
}

// unused returns the records that the mappings of a process do not have yet,
// without those whose place later ones take. They count as used from now on.
func (t *told) unused(p *process) (wanted []*procwatch.Record) {
	all := t.mapped
	for i, record := range all[t.uses:] {
		if slices.ContainsFunc(all[t.uses+i+1:], func(later *procwatch.Record) bool {
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
	t.used, t.uses = p, len(all)
	return wanted
}

// unused forgets a file that was found for a mapping, unless others map it.
func (s *Symbolizer) unused(f *file) {
	if f != nil {
		f.users++
		s.release([]mapping{{file: f}})
	}
}

// ownerOf returns the owner of a process by its records: the one that it had
// before, or that of an ancestor; "" if that is not known.
func (s *Symbolizer) ownerOf(t *told, before *process) string {
	if before != nil {
		return before.owner
	}
	for _, pid := range t.ancestors {
		if a := s.processes[pid]; a != nil {
			return a.owner
		}
	}
	return ""
}

// ofAncestor returns the mappings that a process inherited from an ancestor
// that began before the recording.
func (s *Symbolizer) ofAncestor(t *told) []mapping {
	for _, pid := range t.ancestors {
		if a := s.records.of[pid]; a != nil && a.since > t.since {
			return nil // it has executed another program since
		}
		a := s.processes[pid]
		if a == nil || a.scans.isDue() {
			a = s.scan(pid)
		}
		if a != nil {
			return a.mapped
		}
	}
	return nil
}

// recorded returns the files of records, each nil if it cannot be found any
// more. The paths count in the mount namespace of the process: elsewhere they
// may lead to other files. It releases the lock while it looks for them.
func (s *Symbolizer) recorded(p *process, t *told, records []*procwatch.Record) []*file {
	const host = 1 // PID of a process in the host's mount namespace
	files := make([]*file, len(records))
	took := time.Duration(0)
	for _, pid := range slices.Concat([]int{t.pid}, t.ancestors, []int{os.Getpid(), host}) {
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
