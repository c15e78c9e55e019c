// SPDX-License-Identifier: BSD-2-Clause

package profile

import (
	"slices"
	"sync"
	"time"

	"github.com/gousdt/gousdt/proc"
)

const (
	// lookShare is the part of the time that may be spent on looking at a
	// process again on its own account, while stacks of it come that lead where
	// nothing was mapped before: 1 in so many. A look takes some 100
	// microseconds.
	lookShare = 20

	// maxMappings bounds what is remembered of a process that maps and unmaps
	// code without end.
	maxMappings = 1 << 14

	// maxProcesses bounds the processes that are remembered. The dead go first.
	maxProcesses = 1 << 14
)

// Frame is a function on a stack.
type Frame struct {
	Address    uint64 // as the kernel told it
	Function   string // "" if it is not known; arbitrary bytes
	Offset     uint64 // of the address in the function
	File       string // the path as the process sees it, "" if the code is in no file; arbitrary bytes
	FileOffset uint64 // of the address in the file
}

// Processes remembers what processes have mapped to execute. Its methods are
// safe for concurrent use.
type Processes struct {
	fs *proc.FS

	mu    sync.Mutex
	known map[int]*process
	files files
}

// process is a process. Another one that gets its number takes its place.
type process struct {
	proc.Process
	mapped []mapping
	next   time.Time // when to look again, if there is a reason
}

// mapping is where a process executes, or executed, a file.
type mapping struct {
	proc.Mapping
	*file
}

// NewProcesses returns an empty memory, to be filled from a proc file system.
func NewProcesses(fs *proc.FS) *Processes {
	return &Processes{fs: fs, known: make(map[int]*process), files: files{known: make(map[proc.FileID]*file)}}
}

// Close closes all files.
func (p *Processes) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.files.close()
}

// Look remembers what a process has mapped now. What it had mapped before is
// not forgotten, unless something else has taken its place. A process that has
// ended is remembered as it was.
func (p *Processes) Look(pid int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.look(pid)
}

// Refresh looks at all processes again that still run: programs load libraries
// as they run.
func (p *Processes) Refresh() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for pid, known := range p.known {
		if known.isDue() {
			p.look(pid)
		}
	}
}

func (p *Processes) look(pid int) *process {
	known := p.known[pid]
	began := time.Now()
	if known != nil {
		defer known.lookLater(began)
	}
	now, err := p.fs.Process(pid)
	if err != nil {
		return known
	}
	// Lines that are not understood are left out, and what has ended has none.
	files, _ := p.fs.Files(pid)
	if len(files) == 0 {
		return known
	}
	if known == nil || known.ProcessID != now.ProcessID {
		if len(p.known) >= maxProcesses || p.files.isFull() {
			p.makeRoom()
		}
		p.forget(pid)
		known = &process{}
		defer known.lookLater(began)
		p.known[pid] = known
	}
	known.Process = now
	var mapped []mapping
	for _, f := range files {
		file := p.files.get(f)
		for _, at := range f.Mappings {
			mapped = append(mapped, mapping{at, file})
		}
	}
	for _, old := range known.mapped {
		if len(mapped) < maxMappings && !slices.ContainsFunc(mapped, old.overlaps) {
			mapped = append(mapped, old)
		}
	}
	for _, m := range mapped {
		m.users++
	}
	p.files.release(known.mapped)
	known.mapped = mapped
	return known
}

// lookLater says when to look again after a look that has begun then.
func (p *process) lookLater(began time.Time) {
	now := time.Now()
	p.next = now.Add(lookShare * now.Sub(began))
}

func (p *process) isDue() bool { return !time.Now().Before(p.next) }

func (m mapping) overlaps(other mapping) bool { return m.Start < other.End && other.Start < m.End }

// makeRoom forgets the processes that have ended, and others if that is not
// enough.
func (p *Processes) makeRoom() {
	for pid, known := range p.known {
		if running, err := known.IsRunning(); err != nil || !running || len(p.known) >= maxProcesses {
			p.forget(pid)
		}
	}
}

func (p *Processes) forget(pid int) {
	if known := p.known[pid]; known != nil {
		delete(p.known, pid)
		p.files.release(known.mapped)
	}
}

// Frames returns the functions of a stack, the innermost first as in the stack.
// All addresses but the first are taken to be return addresses: the call is
// before them, perhaps the last instruction of its function.
//
// It looks at a process that is not known yet, and again at one of which an
// address is not known.
func (p *Processes) Frames(pid int, stack []uint64) []Frame {
	p.mu.Lock()
	defer p.mu.Unlock()
	frames := make([]Frame, 0, len(stack))
	for i, address := range stack {
		at, frame := p.find(pid, address, i > 0)
		if at != nil {
			frame.File = at.path
		}
		frames = append(frames, frame)
	}
	return frames
}

// find returns where an address lies, nil if in no file that is known.
func (p *Processes) find(pid int, address uint64, isReturn bool) (*mapping, Frame) {
	frame := Frame{Address: address}
	lookup := address
	if isReturn && lookup > 0 {
		lookup--
	}
	at := p.mapping(pid, lookup)
	if at == nil {
		return nil, frame
	}
	offset := lookup - at.Start + at.Offset
	frame.FileOffset = address - at.Start + at.Offset
	if name, start, ok := at.function(offset); ok {
		frame.Function, frame.Offset = name, frame.FileOffset-start
	}
	return at, frame
}

// mapping returns where an address lies, nil if in no file that is known.
func (p *Processes) mapping(pid int, address uint64) *mapping {
	known := p.known[pid]
	at := known.find(address)
	if at == nil && (known == nil || known.isDue()) {
		at = p.look(pid).find(address)
	}
	return at
}

func (p *process) find(address uint64) *mapping {
	if p == nil {
		return nil
	}
	for i := range p.mapped {
		if at := &p.mapped[i]; at.Start <= address && address < at.End {
			return at
		}
	}
	return nil
}
