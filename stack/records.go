// SPDX-License-Identifier: BSD-2-Clause

package stack

import (
	"debug/elf"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/gousdt/gousdt/internal/procwatch"
)

// records are what the kernel has told of processes, for the stacks of those
// that end before they can be asked. Nothing is opened before a stack is to be
// named: most processes have none.
type records struct {
	source *procwatch.Records // nil if nothing is recorded
	done   sync.WaitGroup

	of    map[int]*told
	order []*told // as they began
	bytes int
}

// told is what has been told of a process since it was forked, or has executed
// its program.
type told struct {
	pid       int
	since     int64 // when that was
	ancestors []int // the nearest first
	isWhole   bool  // mapped has all: no ancestor was there before
	mapped    []*procwatch.Record
	bytes     int

	used *process // what is known by the first records
	uses int      // how many these are
}

const (
	// maxToldMappings bounds what is kept of a process: more than that is found
	// by a scan of a process that runs.
	maxToldMappings = 512

	// maxTold and maxToldBytes bound what is kept of all processes. The first
	// go first: those that began long ago and still run can be scanned.
	maxTold      = 1 << 15
	maxToldBytes = 32 << 20

	// maxAncestors bounds the processes that are asked how a path was meant by
	// a descendant that has ended.
	maxAncestors = 3

	// recordPause bounds how often records are looked at that nobody needs.
	recordPause = 5 * time.Millisecond
)

// Record has the kernel record what processes map from now on, until Close:
// then functions have names also if their process ends at once. It records
// those that descend from a thread, from when that executes another program, or
// all if tid is 0, which needs CAP_PERFMON, or CAP_SYS_ADMIN before Linux 5.8.
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
	s.records.source = source
	s.mutex.Unlock()
	s.records.done.Go(func() {
		for source.Wait() {
			s.mutex.Lock()
			s.records.drain()
			s.mutex.Unlock()
			time.Sleep(recordPause)
		}
	})
	return nil
}

// stop ends the recording.
func (r *records) stop() {
	if r.source != nil {
		r.source.Stop()
		r.done.Wait()
		r.source.Close()
	}
}

// drain reads the records that there are.
func (r *records) drain() {
	if r.source == nil {
		return
	}
	for _, record := range r.source.Drain() {
		r.add(&record)
	}
}

// add notes what a record tells. Those of several processors may come in
// another order than things have happened.
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
			t.since = 0 // it was there before
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

// begin replaces what is known of a process by what has happened since.
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

// size is what a record takes in memory, roughly.
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

// recall uses what has been recorded of a process, before a stack of it is
// named.
func (s *Symbolizer) recall(pid int) {
	s.records.drain()
	t := s.records.of[pid]
	if t == nil {
		return
	}
	p := s.processes[pid]
	if p != nil && (p == t.used && len(t.mapped) == t.uses || !p.isDue()) {
		return
	}
	began := time.Now()
	var from []mapping
	if p == nil || p != t.used {
		t.uses = 0
		if !t.isWhole {
			from = s.ofAncestor(t)
		}
	}
	// If it was known before, that was another one, or another program.
	if before := p; p == nil || p.asked < t.since {
		s.forget(pid)
		p = s.add(pid)
		p.asked = began.UnixNano()
		if before != nil { // what it may take is not for each program
			p.steps, p.bytes, p.scanned = before.steps, before.bytes, before.scanned
		}
	}
	defer p.scanLater(began)
	var now []mapping
	for _, record := range t.mapped[t.uses:] {
		now = slices.DeleteFunc(now, func(m mapping) bool {
			return m.Start < record.Mapping.End && record.Mapping.Start < m.End
		})
		known := p.find(record.Mapping.Start)
		if known != nil && known.Mapping == record.Mapping && known.machine != elf.EM_NONE {
			continue
		}
		if file := s.recorded(p, t, record); file != nil {
			now = append(now, mapping{record.Mapping, file, record.Path})
		}
	}
	slices.SortFunc(now, byStart)
	t.used, t.uses = p, len(t.mapped)
	// A scan may have found it when it ended: its files could not be opened.
	opened := slices.DeleteFunc(slices.Clone(p.mapped), func(m mapping) bool {
		return m.machine == elf.EM_NONE && slices.ContainsFunc(from,
			func(f mapping) bool { return f.Mapping == m.Mapping && f.path == m.path })
	})
	s.setMapped(p, merge(merge(now, opened), from))
}

// ofAncestor returns what a process has had since it was forked from one that
// was there before.
func (s *Symbolizer) ofAncestor(t *told) []mapping {
	for _, pid := range t.ancestors {
		if a := s.records.of[pid]; a != nil && a.since > t.since {
			return nil // it has executed another program meanwhile
		}
		a := s.processes[pid]
		if a == nil || a.isDue() {
			a = s.scan(pid)
		}
		if a != nil {
			return a.mapped
		}
	}
	return nil
}

// recorded returns the file that a process has mapped, nil if it cannot be
// found any more. The path is one of the process's: what it leads to for others
// may be another file.
func (s *Symbolizer) recorded(p *process, t *told, record *procwatch.Record) *file {
	const host = 1 // the first process is in its mount namespace
	for _, pid := range slices.Concat([]int{t.pid}, t.ancestors, []int{os.Getpid(), host}) {
		file := s.file(p, record.In(s.fs, pid))
		if file.id != (procwatch.FileID{}) &&
			(record.BuildID == "" || record.BuildID == file.buildID) {
			return file
		}
		file.users++
		s.files.release([]mapping{{file: file}}) // unless others map it
	}
	return nil
}
