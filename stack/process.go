// SPDX-License-Identifier: BSD-2-Clause

package stack

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"os"
	"slices"
	"sort"
	"strconv"
	"time"

	"github.com/gousdt/gousdt/internal/deadline"
	"github.com/gousdt/gousdt/internal/procfs"
	"github.com/gousdt/gousdt/internal/procwatch"
	"github.com/gousdt/gousdt/usdt/proc"
)

// process is a remembered process. A new process with the same PID replaces it.
type process struct {
	proc.Process
	owner  string    // the container or user, "" if that is not known
	mapped []mapping // by address; they do not overlap
	asked  int64     // when it was last scanned, or began, in nanoseconds since 1970
	scans  pace

	// By the kernel's records, see Record. It has onlyRecorded until one of its
	// stacks is named.
	onlyRecorded bool

	since     int64 // when it was forked or executed its program, as asked; 0 if that is not known
	ancestors []int // the nearest first
	isWhole   bool  // records has all mappings: none was inherited unrecorded
	records   []*procwatch.Record
	used      int // how many of these mapped has

	recordBytes int  // the memory of records
	isOrdered   bool // see records.order

	made     perfMap  // the code that it has made at run time
	madeHeld holding  // the memory of made
	reads    pace     // of made
	reading  *reading // of made; nil if there is none

	steps    budget        // for its stacks
	bytes    budget        // for its files and their lines
	lineTime time.Duration // for its lines
}

// mapping is a range of addresses at which a process has mapped a file to
// execute it.
type mapping struct {
	procfs.Mapping
	*file
	path string // as the process sees it
}

// enter waits until nobody else scans a process, and then has the others wait
// until leave is called. It may release the lock.
func (s *Symbolizer) enter(pid int) (leave func()) {
	for s.busy[pid] != nil {
		left := s.busy[pid]
		s.unlock()
		<-left
		s.mutex.Lock()
	}
	left := make(chan struct{})
	s.busy[pid] = left
	return func() {
		delete(s.busy, pid)
		close(left)
	}
}

// scan reads and remembers the mappings of a process. It returns the process,
// nil if nothing is known of it. It releases the lock while it reads.
func (s *Symbolizer) scan(pid int) *process {
	leave := s.enter(pid)
	defer leave()
	began := time.Now()
	if known := s.processes[pid]; known != nil && left(s.scanned, known.owner, scanRate) <= 0 {
		return known
	}
	s.unlock()
	type running struct {
		proc.Process
		owner string
	}
	// Until its owner is known, it is one of its own.
	now := deadline.Answer(&s.unanswered, strconv.Itoa(pid), deadline.Names, func() *running {
		p, err := proc.Find(proc.FS(s.fs.Root()), pid)
		if err != nil {
			return nil
		}
		return &running{p, deadline.OwnerOf(s.fs.Root(), pid)}
	})
	s.mutex.Lock()
	known := s.processes[pid]
	if now == nil {
		if known != nil {
			known.scans.done(time.Since(began), freeScans)
		}
		return known
	}
	owner := now.owner
	if wait := -left(s.scanned, owner, scanRate); wait >= 0 {
		if known == nil {
			known = s.add(pid, owner)
			known.Process = now.Process
		}
		known.scans.next = began.Add(max(wait, time.Second))
		return known
	}
	s.unlock()
	all := s.mappedBy(pid, owner)
	found, more := s.look(owner, all.files)
	s.mutex.Lock()
	took := all.took + more
	s.scanned.Take(owner, scanRate, time.Now(), took)
	known = s.processes[pid]
	if len(found) == 0 || s.isClosed {
		for _, f := range found {
			s.files.close(f.opened)
		}
		if known != nil {
			known.scans.done(took, freeScans)
		}
		return known
	}
	// A process that is only known by records has no start time.
	if known == nil || known.StartTime != 0 && known.StartTime != now.StartTime {
		s.forget(pid)
		known = s.add(pid, owner)
	}
	known.Process, known.owner, known.asked = now.Process, owner, began.UnixNano()
	known.scans.done(took, freeScans)
	s.named(known)
	mapped := merge(s.mapped(known, found), s.files.vdsoAt(all.vdso))
	s.setMapped(known, merge(mapped, known.mapped))
	s.closeMany(known)
	return known
}

// scanned is what a process maps.
type scanned struct {
	files []openable    // none if it has ended or does not answer
	vdso  uint64        // the address of its vDSO
	took  time.Duration // of a processor
}

func (s *Symbolizer) mappedBy(pid int, owner string) scanned {
	return deadline.Answer(&s.unanswered, owner, deadline.Names, func() (got scanned) {
		began := deadline.ProcessorTime()
		all, _ := procfs.Files(s.fs, pid) // malformed lines are skipped
		mappings, mounts := 0, new(procwatch.Mounts)
		for _, f := range all {
			if mappings += len(f.Mappings); mappings-len(f.Mappings) < maxMappings {
				got.files = append(got.files, mappedFile{f, mounts})
			}
		}
		got.vdso = vdsoOf(procfs.Path(s.fs.Root(), pid, "auxv"))
		got.took = deadline.ProcessorTime() - began
		return got
	})
}

// maxVDSO bounds the vDSO, the code that the kernel maps into each process: it
// has one or two pages.
const maxVDSO = 64 << 10

// vdsoOf returns the address of the vDSO by the auxiliary vector at path, 0 if
// that is not known. It is not known for 32-bit processes on a 64-bit kernel:
// their vectors have smaller words, and their vDSO has other code.
func vdsoOf(path string) uint64 {
	b, _ := os.ReadFile(path) // some twenty pairs of words; none with an error
	const address = 33        // AT_SYSINFO_EHDR
	for ; len(b) >= 16; b = b[16:] {
		if binary.NativeEndian.Uint64(b) == address {
			return binary.NativeEndian.Uint64(b[8:])
		}
	}
	return 0
}

// vdsoAt returns the mapping of the vDSO at an address. All processes have the
// same vDSO as this one.
func (fs *files) vdsoAt(address uint64) []mapping {
	if fs.vdso == nil {
		fs.seen++
		fs.vdso = &file{number: fs.seen}
		if read := readVDSO(); read.elf != nil {
			fs.vdso.use(read)
		}
	}
	if address == 0 || len(fs.vdso.segments) != 1 {
		return nil
	}
	size := fs.vdso.segments[0].Offset + fs.vdso.segments[0].FileSize
	return []mapping{{procfs.Mapping{Start: address, End: address + size}, fs.vdso, "[vdso]"}}
}

// readVDSO reads the vDSO of this process.
func readVDSO() (none openedFile) {
	memory, err := os.Open("/proc/self/mem")
	if err != nil {
		return none
	}
	defer memory.Close()
	code := make([]byte, maxVDSO)
	// It fails past the end of the mapping, and at address 0.
	n, _ := memory.ReadAt(code, int64(vdsoOf("/proc/self/auxv")))
	return readHeaders(bytes.NewReader(code[:n]))
}

// add remembers a process that is not known, and makes room for it.
func (s *Symbolizer) add(pid int, owner string) *process {
	if s.isFull() {
		s.makeRoom()
	}
	p := newProcess(pid, owner)
	s.processes[pid] = p
	return p
}

func newProcess(pid int, owner string) *process {
	return &process{Process: proc.Process{PID: pid}, owner: owner,
		steps: budget{processSteps}, bytes: budget{processBytes}, lineTime: processLineTime}
}

func (s *Symbolizer) mapped(p *process, files []found) []mapping {
	var mapped []mapping
	for _, found := range files {
		f, file := found.mapped.(mappedFile), s.file(p, found)
		for _, at := range f.Mappings[:min(len(f.Mappings), maxMappings-len(mapped))] {
			m := mapping{at, file, f.Path}
			if before := p.find(at.Start); file.id == (procwatch.Version{}) && before != nil &&
				before.Mapping == at && before.path == f.Path {
				m = *before // the process is ending: its files cannot be found any more
			}
			mapped = append(mapped, m)
		}
	}
	return mapped
}

func byStart(a, b mapping) int { return cmp.Compare(a.Start, b.Start) }

// merge sorts the mappings of now, and adds earlier ones as far as none of now
// overlaps them and there is room. The result is by address.
func merge(now, before []mapping) []mapping {
	slices.SortFunc(now, byStart)
	merged := slices.Clip(now)
	for _, old := range before {
		if len(merged) == maxMappings {
			break
		}
		// The first one that ends after the old one's start may overlap it.
		i := sort.Search(len(now), func(i int) bool { return now[i].End > old.Start })
		if i == len(now) || now[i].Start >= old.End {
			merged = append(merged, old)
		}
	}
	slices.SortFunc(merged, byStart)
	return merged
}

// setMapped sets the mappings of a process, and forgets the files that no
// process maps any more.
func (s *Symbolizer) setMapped(p *process, mapped []mapping) {
	for _, m := range mapped {
		m.users++
	}
	s.release(p.mapped)
	s.mappings += len(mapped) - len(p.mapped)
	p.mapped = mapped
}

func (s *Symbolizer) isFull() bool {
	return len(s.processes)-s.unnamed >= maxProcesses || s.mappings >= maxAllMappings || s.files.isFull()
}

// makeRoom forgets the processes that have ended. Then it forgets those with
// the most mappings of the owners with the most, until an eighth of each limit
// is free.
func (s *Symbolizer) makeRoom() {
	running, of := make(map[string][]*process), make(map[string]int)
	for pid, p := range s.processes {
		if p.onlyRecorded { // its number is bounded by that of records
			continue
		}
		if runs, err := p.IsRunning(); err != nil || !runs {
			s.forget(pid)
		} else {
			running[p.owner] = append(running[p.owner], p)
			of[p.owner] += 1 + len(p.mapped)
		}
	}
	for _, all := range running {
		slices.SortFunc(all,
			func(a, b *process) int { return cmp.Compare(len(a.mapped), len(b.mapped)) })
	}
	for len(running) > 0 && (len(s.processes)-s.unnamed > maxProcesses*7/8 ||
		s.mappings > maxAllMappings*7/8 || len(s.files.known) > maxFiles*7/8) {
		most, mappings := "", 0
		for owner := range running {
			if of[owner] > mappings {
				most, mappings = owner, of[owner]
			}
		}
		p := running[most][len(running[most])-1]
		of[most] -= 1 + len(p.mapped)
		s.forget(p.PID)
		if running[most] = running[most][:len(running[most])-1]; len(running[most]) == 0 {
			delete(running, most)
		}
	}
}

func (s *Symbolizer) forget(pid int) {
	if p := s.processes[pid]; p != nil {
		delete(s.processes, pid)
		s.setMapped(p, nil)
		s.drop(&p.madeHeld)
		s.keepRecords(p, nil, 0)
		if p.onlyRecorded {
			s.unnamed--
		}
	}
}

// mapping returns the mapping that has an address, nil if none is known. It may
// scan the process.
func (s *Symbolizer) mapping(pid int, address uint64) *mapping {
	known := s.processes[pid]
	at := known.find(address)
	if at == nil && (known == nil || known.scans.isDue()) {
		at = s.scan(pid).find(address)
	}
	return at
}

func (p *process) find(address uint64) *mapping {
	if p == nil {
		return nil
	}
	i := sort.Search(len(p.mapped), func(i int) bool { return p.mapped[i].End > address })
	if i == len(p.mapped) || address < p.mapped[i].Start {
		return nil
	}
	return &p.mapped[i]
}
