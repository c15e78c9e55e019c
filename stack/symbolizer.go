// SPDX-License-Identifier: BSD-2-Clause

package stack

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/gousdt/gousdt/internal/unwind"
	"github.com/gousdt/gousdt/proc"
)

// Symbolizer names the functions on the stacks of processes. It remembers what
// the processes have mapped, also when they have ended. Its methods may be
// called by several goroutines at once; they wait for each other.
type Symbolizer struct {
	fs *proc.FS

	mutex     sync.Mutex
	processes map[int]*process
	mappings  int // of all processes
	files     files
	unwinder  *unwind.Unwinder
	counts    Counts

	unanswered unanswered
}

// Counts are what a [Symbolizer] has counted since it was made.
type Counts struct {
	// Frames is how many frames were to be named.
	Frames uint64
	// NoFile is how many of them have no name because their address is in no
	// file that is known: in code that was made at run time, as JIT compilers
	// do, or in a process that ended before anything was known of it.
	NoFile uint64
	// NoFunction is how many of them have no name although the file is known:
	// it was stripped, it is malformed, or its symbols exceed a limit.
	NoFunction uint64
	// CutStacks is how many stacks Unwind has cut at a limit: that of their
	// depth, or that of the work to unwind them.
	CutStacks uint64
}

// Frame is a function on a stack.
type Frame struct {
	Address    uint64 // as it was given
	Function   string // "" if it is not known; arbitrary bytes
	Offset     uint64 // of the address in the function
	File       string // the path as the process sees it, "" if the code is in no file; arbitrary bytes
	FileOffset uint64 // of the address in the file
	BuildID    string // of the file, in lower-case hexadecimal; "" if it has none, or could not be read
}

// String returns the function and the file, as in "main+0x1b (/usr/bin/throw)".
// A frame without a name has its address, and its place in the file:
// "0x7f0c10 (/usr/bin/throw+0x10)". Names and paths are arbitrary bytes: escape
// them before they reach a terminal.
func (f Frame) String() string {
	switch {
	case f.Function != "" && f.File != "":
		return fmt.Sprintf("%s+%#x (%s)", f.Function, f.Offset, f.File)
	case f.Function != "":
		return fmt.Sprintf("%s+%#x", f.Function, f.Offset)
	case f.File != "":
		return fmt.Sprintf("%#x (%s+%#x)", f.Address, f.File, f.FileOffset)
	default:
		return fmt.Sprintf("%#x", f.Address)
	}
}

// NewSymbolizer returns a Symbolizer for the processes of a proc file system:
// of /proc if it is nil.
func NewSymbolizer(fs *proc.FS) *Symbolizer {
	if fs == nil {
		fs = proc.NewFS("")
	}
	return &Symbolizer{
		fs:        fs,
		processes: make(map[int]*process),
		files:     files{known: make(map[proc.FileID]*file)},
		unwinder:  unwind.NewUnwinder(),

		unanswered: make(unanswered),
	}
}

// Close closes all files and forgets everything.
func (s *Symbolizer) Close() error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	err := s.files.close()
	s.processes, s.files.known, s.mappings = make(map[int]*process), make(map[proc.FileID]*file), 0
	return err
}

// Remember scans what a process has mapped now. Call it when the process is
// first seen: in the handler of a watch, for each proc.ProcessFile that has
// appeared. Earlier mappings of the process are kept until something else takes
// their place. A process that has ended is remembered as it was.
func (s *Symbolizer) Remember(pid int) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.scan(pid)
}

// Refresh scans all remembered processes again: programs load libraries as they
// run. Call it before many stacks are named at once, as those of a profile are.
func (s *Symbolizer) Refresh() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for pid, p := range s.processes {
		if p.isDue() {
			s.scan(pid)
		}
	}
}

// Counts returns how many frames were named, and how many were not.
func (s *Symbolizer) Counts() Counts {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.counts
}

// Frames returns the functions of a stack, in the order of the stack: the
// innermost first. All addresses but the first are taken to be return
// addresses, where the call is the instruction before. If the first is a return
// address, too, subtract 1 from it.
//
// Frames scans a process that is not known yet, and scans it again where an
// address is in no known file. When the context ends, Frames reads no more
// files: functions of files that have not been read yet have no name.
func (s *Symbolizer) Frames(ctx context.Context, pid int, stack []uint64) []Frame {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.earn(pid)
	frames := make([]Frame, 0, len(stack))
	for i, address := range stack {
		at, frame := s.find(ctx, pid, address, i > 0)
		if at != nil {
			frame.File = at.path
		}
		s.count(at != nil, frame.Function != "")
		frames = append(frames, frame)
	}
	return frames
}

// Key returns a text that is the same for stacks of the same places in the same
// files, in whatever processes they are. An address that is in no known file is
// another place in another process. Keys of different Symbolizers cannot be
// compared.
func (s *Symbolizer) Key(pid int, stack []uint64) string {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	key := make([]byte, 0, 16*len(stack))
	for i, address := range stack {
		executed := address
		if i > 0 && address > 0 {
			executed-- // the call
		}
		file, offset := uint64(0), executed
		if at := s.mapping(pid, executed); at != nil {
			file, offset = at.number, executed-at.Start+at.Offset
		} else {
			file = ^uint64(pid) // no file's number
		}
		key = binary.NativeEndian.AppendUint64(key, file)
		key = binary.NativeEndian.AppendUint64(key, offset)
	}
	return string(key)
}

// earn gives a process what a stack of it may take.
func (s *Symbolizer) earn(pid int) {
	if p := s.processes[pid]; p != nil {
		p.steps.earn(stepsPerStack, processSteps)
		p.bytes.earn(bytesPerStack, processBytes)
	}
}

// count counts a frame.
func (s *Symbolizer) count(inFile, named bool) {
	s.counts.Frames++
	switch {
	case !inFile:
		s.counts.NoFile++
	case !named:
		s.counts.NoFunction++
	}
}

// find returns where an address lies, nil if in no file that is known.
func (s *Symbolizer) find(
	ctx context.Context, pid int, address uint64, isReturn bool,
) (*mapping, Frame) {
	frame := Frame{Address: address}
	executed := address
	if isReturn && address > 0 {
		executed--
	}
	at := s.mapping(pid, executed)
	if at == nil {
		return nil, frame
	}
	frame.FileOffset = address - at.Start + at.Offset
	// The process is known: it has the mapping.
	name, start, ok := s.function(ctx, s.processes[pid], at.file, executed-at.Start+at.Offset)
	if ok {
		frame.Function, frame.Offset = name, frame.FileOffset-start
	}
	frame.BuildID = at.file.buildID
	return at, frame
}
