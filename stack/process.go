// SPDX-License-Identifier: BSD-2-Clause

package stack

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"os"
	"slices"
	"sort"
	"time"

	"github.com/gousdt/gousdt/internal/elffile"
	"github.com/gousdt/gousdt/internal/procfs"
	"github.com/gousdt/gousdt/internal/procwatch"
	"github.com/gousdt/gousdt/proc"
)

// process is a remembered process. A new process with the same PID replaces it.
type process struct {
	proc.Process
	mapped []mapping // by address; they do not overlap
	asked  int64     // when it was last scanned, in nanoseconds since 1970
	scans  pace

	made  perfMap // the code that it has made at run time
	reads pace    // of made

	steps budget       // for its stacks
	bytes budget       // for its files
	lines *lineAccount // nil before lines of it are asked for
}

// mapping is a range of addresses at which a process has mapped a file to
// execute it.
type mapping struct {
	procfs.Mapping
	*file
	path string // as the process sees it
}

// mappedNow is the result of reading a process in a scan.
type mappedNow struct {
	files []*procwatch.MappedFile
	vdso  uint64 // see vdsoOf
}

// scan reads and remembers the mappings of a process. It returns the process,
// nil if nothing is known of it.
func (s *Symbolizer) scan(pid int) *process {
	known := s.processes[pid]
	began := time.Now()
	if known != nil {
		defer known.scans.done(began, freeScans)
	}
	now, err := proc.Find(s.fs, pid)
	if err != nil {
		return known
	}
	read := func() mappedNow {
		// Malformed lines are skipped. A process that has ended has none.
		files, _ := procwatch.Files(s.fs, pid)
		return mappedNow{files, vdsoOf(procfs.Path(s.fs.Root(), pid, "auxv"))}
	}
	mappedNow, _ := ask(s, pid, read, nil)
	if len(mappedNow.files) == 0 {
		return known
	}
	// A process that is only known by records has no start time.
	if known == nil || known.StartTime != 0 && known.StartTime != now.StartTime {
		s.forget(pid)
		known = s.add(pid)
		defer known.scans.done(began, freeScans)
	}
	known.Process, known.asked = now, began.UnixNano()
	mapped := merge(s.mapped(known, mappedNow.files), s.files.vdsoAt(mappedNow.vdso))
	s.setMapped(known, merge(mapped, known.mapped))
	return known
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
		fs.vdso = &file{number: fs.seen, elf: readVDSO()}
		if fs.vdso.elf != nil {
			fs.vdso.machine, fs.vdso.segments = fs.vdso.elf.Machine, fs.vdso.elf.Segments
			fs.vdso.buildID, _ = fs.vdso.elf.BuildID()
		}
	}
	if address == 0 || len(fs.vdso.segments) != 1 {
		return nil
	}
	size := fs.vdso.segments[0].Offset + fs.vdso.segments[0].FileSize
	return []mapping{{procfs.Mapping{Start: address, End: address + size}, fs.vdso, "[vdso]"}}
}

// readVDSO reads the vDSO of this process, nil if there is none.
func readVDSO() *elffile.File {
	memory, err := os.Open("/proc/self/mem")
	if err != nil {
		return nil
	}
	defer memory.Close()
	code := make([]byte, maxVDSO)
	// It fails past the end of the mapping, and at address 0.
	n, _ := memory.ReadAt(code, int64(vdsoOf("/proc/self/auxv")))
	read, _ := elffile.New(bytes.NewReader(code[:n])) // nil with an error
	return read
}

// add remembers a process that is not known, and makes room for it.
func (s *Symbolizer) add(pid int) *process {
	if s.isFull() {
		s.makeRoom()
	}
	p := &process{Process: proc.Process{PID: pid},
		steps: budget{processSteps}, bytes: budget{processBytes}}
	s.processes[pid] = p
	return p
}

// mapped returns the mappings of files.
func (s *Symbolizer) mapped(p *process, files []*procwatch.MappedFile) []mapping {
	var mapped []mapping
	for _, f := range files {
		if len(mapped) == maxMappings {
			break
		}
		file := s.file(p, f)
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
	s.files.release(p.mapped)
	s.mappings += len(mapped) - len(p.mapped)
	p.mapped = mapped
}

func (s *Symbolizer) isFull() bool {
	return len(s.processes) >= maxProcesses || s.mappings >= maxAllMappings || s.files.isFull()
}

// makeRoom forgets the processes that have ended. Then it forgets those with
// the most mappings, until an eighth of each limit is free.
func (s *Symbolizer) makeRoom() {
	var running []*process
	for pid, p := range s.processes {
		if runs, err := p.IsRunning(); err != nil || !runs {
			s.forget(pid)
		} else {
			running = append(running, p)
		}
	}
	slices.SortFunc(running,
		func(a, b *process) int { return cmp.Compare(len(b.mapped), len(a.mapped)) })
	for _, p := range running {
		if len(s.processes) <= maxProcesses*7/8 && s.mappings <= maxAllMappings*7/8 &&
			len(s.files.known) <= maxFiles*7/8 {
			return
		}
		s.forget(p.PID)
	}
}

func (s *Symbolizer) forget(pid int) {
	if p := s.processes[pid]; p != nil {
		delete(s.processes, pid)
		s.setMapped(p, nil)
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
