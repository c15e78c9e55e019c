// SPDX-License-Identifier: BSD-2-Clause

package stack

import (
	"context"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/gousdt/gousdt/internal/deadline"
	"github.com/gousdt/gousdt/internal/procfs"
	"github.com/gousdt/gousdt/internal/procwatch"
	"github.com/gousdt/gousdt/internal/sys"
	"github.com/gousdt/gousdt/usdt/proc"
)

// Symbolizer names the functions on the stacks of processes. It remembers what
// the processes have mapped, also when they have ended. Its methods may be
// called by several goroutines at once; they wait for each other.
type Symbolizer struct {
	// DebugFile, if set, is called for a file whose debug file is not
	// installed, with the owner of a process that maps it, "" if that is not
	// known, and the file's build ID. The owner is a text that is the same for
	// all processes of a container, or else of a user. DebugFile must return at
	// once. It returns done false while the file is still being fetched, such
	// as from a debuginfod server, and then the path, or "" if there is no such
	// file. Functions have names from then on. DebugFile must not call the
	// Symbolizer, and must be set before that is used.
	DebugFile func(owner, buildID string) (path string, done bool)
	// Lines adds source files and lines, and inlined functions, to Frames and
	// profiles, if files or their debug files have DWARF. Reading that takes a
	// second or more for each large file, in the background. What has been read
	// takes up to 768 MB more memory, without the file being read. Lines must
	// be set before the Symbolizer is used.
	Lines bool

	fs      procfs.FS
	machine elf.Machine // of the kernel

	mutex     sync.Mutex // await, scan and recall release it
	isClosed  bool
	processes map[int]*process
	busy      map[int]chan struct{} // processes that are scanned, see enter
	mappings  int                   // of all processes
	unnamed   int                   // processes, see process.onlyRecorded
	files     files
	memory    memory // of the tables of files, their lines, and code made at run time
	counts    Counts

	scanned deadline.Owners // time of processors
	waited  deadline.Owners // time of callers
	waits   deadline.Allowance

	unanswered deadline.Unanswered
	readers    readers
	lines      lineReader
	records    records
}

// Counts are the counts of a [Symbolizer] since it was made.
type Counts struct {
	// Frames is the number of all frames, named or not.
	Frames uint64
	// NoFile is the number of frames without a name whose address is in no
	// known file. They are in code that a JIT compiler has made without naming
	// it in /tmp/perf-PID.map, or in a process that ended before it was
	// scanned.
	NoFile uint64
	// NoFunction is the number of frames without a name whose file is known:
	// the file is stripped or malformed, or its symbols exceed a limit.
	NoFunction uint64
	// CutStacks is the number of stacks that Unwind has cut at a limit: that of
	// the depth, or that of the work.
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
	Source     string // the source file and the line, as in "/src/throw.c:12"; "" if they are not known
	// Inlined means that the code of this function is a part of the next one's
	// code. Both have the same Address. This one has no Offset.
	Inlined bool
}

// String returns the function and the file, as in "main+0x1b (/usr/bin/throw)".
// A frame without a name has its address, and its place in the file:
// "0x7f0c10 (/usr/bin/throw+0x10)". The Source follows if it is known:
// "main+0x1b (/usr/bin/throw) /src/throw.c:12". An inlined function is
// "check (inlined) /src/throw.c:5". Names and paths are arbitrary bytes: escape
// them before they reach a terminal.
func (f Frame) String() string {
	if source := f.Source; source != "" {
		f.Source = ""
		return f.String() + " " + source
	}
	switch {
	case f.Inlined:
		return f.Function + " (inlined)"
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

// NewSymbolizer returns a Symbolizer for the processes of a proc file system.
func NewSymbolizer(fs proc.FS) *Symbolizer {
	machine, _ := sys.KernelMachine() // no other has events
	return &Symbolizer{
		fs:        procfs.FS(fs),
		machine:   machine,
		processes: make(map[int]*process),
		busy:      make(map[int]chan struct{}),
		files:     files{known: make(map[procwatch.Version]*file)},
	}
}

// Close closes all files and forgets everything.
func (s *Symbolizer) Close() error {
	if s.processes == nil { // a zero value
		return nil
	}
	s.mutex.Lock()
	s.isClosed = true
	s.readers.close()
	s.files.closeAll()
	s.processes, s.files.known = make(map[int]*process), make(map[procwatch.Version]*file)
	s.mappings, s.unnamed = 0, 0
	recordings := s.records.recordings
	s.memory, s.records = memory{}, records{}
	s.unlock()
	for _, r := range recordings {
		r.source.Stop()
		<-r.done
		r.source.Close()
	}
	return nil
}

// Remember scans the mappings of processes. Call it when a process is first
// seen: in the handler of a watch, for each proc.ProcessFile that has appeared.
// Earlier mappings of the process are kept until others take their place. A
// process that has ended is remembered as it was.
//
// Without a PID, Remember scans all remembered processes again, since programs
// load libraries as they run. Call it so before you name many stacks at once,
// as for a profile.
func (s *Symbolizer) Remember(pids ...int) {
	s.mutex.Lock()
	defer s.unlock()
	which := slices.Values(pids)
	if len(pids) == 0 {
		which = maps.Keys(s.processes)
	}
	for _, pid := range slices.Compact(slices.Sorted(which)) {
		if p := s.processes[pid]; len(pids) == 0 && (p == nil || p.onlyRecorded) {
			continue
		}
		s.recall(pid) // in case it ends while it is scanned
		if p := s.processes[pid]; p == nil || p.scans.isDue() {
			s.scan(pid)
		}
	}
}

// Counts returns the counts so far.
func (s *Symbolizer) Counts() Counts {
	s.mutex.Lock()
	defer s.unlock()
	return s.counts
}

// Frames returns the functions of a stack, in the order of the stack: the
// innermost first. All addresses but the first are taken for return addresses:
// the call is the instruction before. If the first is a return address, too,
// subtract 1 from it.
//
// Frames scans a process that is not known yet, and scans it again if an
// address is in no known file. When the context ends, Frames reads no more
// files: functions of files that have not been read yet have no name. With
// Lines, inlined functions have frames of their own, so that there can be more
// frames than addresses.
func (s *Symbolizer) Frames(ctx context.Context, pid int, stack []uint64) []Frame {
	s.mutex.Lock()
	defer s.unlock()
	s.begin(pid)
	frames := make([]Frame, 0, len(stack))
	var spots []spot
	for i, address := range stack {
		m, at := s.at(pid, address, i > 0)
		frame, end := Frame{Address: address}, at.offset
		if at.isReturn {
			end++
		}
		if m != nil {
			frame.File, frame.FileOffset, frame.BuildID = m.path, end, m.buildID
		}
		if name, start, ok := s.name(ctx, at); ok {
			frame.Function, frame.Offset = name, end-start
		}
		s.count(m != nil, frame.Function != "")
		frames = append(frames, frame)
		if s.Lines {
			spots = append(spots, at)
		}
	}
	if !s.Lines {
		return frames
	}
	isKnown := true
	for _, at := range spots {
		_, ok := s.linesAt(at)
		isKnown = isKnown && ok
	}
	if !isKnown {
		s.waitForLines(ctx, s.ownerBy(pid))
	}
	var all []Frame
	for i, frame := range frames {
		sources, _ := s.linesAt(spots[i])
		for n, source := range sources {
			if n == len(sources)-1 {
				frame.Source = source.text()
			} else if source.function != "" {
				inlined := frame
				inlined.Function, inlined.Offset = source.function, 0
				inlined.Source, inlined.Inlined = source.text(), true
				all = append(all, inlined)
			}
		}
		all = append(all, frame)
	}
	return all
}

// Want asks DebugFile for the debug files that Frames would read for a stack,
// and waits for the stack's lines, for up to a minute. A profile does the same
// for the stacks that are added to it.
func (s *Symbolizer) Want(ctx context.Context, pid int, stack []uint64) {
	if s.processes == nil { // a zero value
		return
	}
	s.mutex.Lock()
	s.recall(pid)
	for i, address := range stack {
		if m, at := s.at(pid, address, i > 0); m != nil {
			s.name(ctx, at)
			s.linesAt(at)
		}
	}
	owner := s.ownerBy(pid)
	s.unlock()
	ctx, cancel := context.WithTimeout(ctx, mostLineWait)
	defer cancel()
	s.awaitLines(ctx, owner)
}

// ownerBy returns the owner of a process, "" if that is not known.
func (s *Symbolizer) ownerBy(pid int) string {
	if p := s.processes[pid]; p != nil {
		return p.owner
	}
	return ""
}

// Key returns a text that is the same for stacks of the same places in the same
// files, whatever their process. An address that is in no known file is a
// different place in each process. Keys of different Symbolizers cannot be
// compared.
func (s *Symbolizer) Key(pid int, stack []uint64) string {
	s.mutex.Lock()
	defer s.unlock()
	s.recall(pid)
	key := make([]byte, 0, 16*len(stack))
	for i, address := range stack {
		m, at := s.at(pid, address, i > 0)
		file := ^uint64(pid) // no file's number
		if m != nil {
			file = m.number
		}
		key = binary.NativeEndian.AppendUint64(key, file)
		key = binary.NativeEndian.AppendUint64(key, at.offset)
	}
	return string(key)
}

// begin prepares for a stack of a process, and adds to the budgets of the
// process for it.
func (s *Symbolizer) begin(pid int) {
	s.recall(pid)
	if p := s.processes[pid]; p != nil {
		p.steps.earn(stepsPerStack, processSteps)
		p.bytes.earn(bytesPerStack, processBytes)
		p.lineTime = min(p.lineTime+lineTimePerStack, processLineTime)
	}
}

func (s *Symbolizer) count(inFile, named bool) {
	s.counts.Frames++
	switch {
	case named:
	case !inFile:
		s.counts.NoFile++
	default:
		s.counts.NoFunction++
	}
}

// spot is an instruction that a process executes.
type spot struct {
	pid      int
	file     *file  // nil if it is in no known file
	offset   uint64 // in the file; the address if there is no file
	isReturn bool   // the instruction is a call that is to return
}

// at returns the mapping, nil if there is none, and the instruction at an
// address of a process. For a return address it is the call before it.
func (s *Symbolizer) at(pid int, address uint64, isReturn bool) (*mapping, spot) {
	isReturn = isReturn && address > 0
	if isReturn {
		address--
	}
	m := s.mapping(pid, address)
	if m == nil {
		return nil, spot{pid, nil, address, isReturn}
	}
	return m, spot{pid, m.file, address - m.Start + m.Offset, isReturn}
}

// name returns the name of the function at a spot, and its start: an offset in
// the file, or an address if there is no file.
func (s *Symbolizer) name(ctx context.Context, at spot) (name string, start uint64, ok bool) {
	if at.file == nil {
		return s.made(ctx, at.pid, at.offset)
	}
	// The process is known, since it has the mapping.
	return s.function(ctx, s.processes[at.pid], at.file, at.offset, at.isReturn)
}

// Limits for the work and memory that a process can cause. Processes are
// untrusted: a process can map any file, and write any stack. Each limit is far
// above what usual programs reach.
const (
	// maxDepth bounds an unwound stack: a corrupt one may have no end.
	maxDepth = 512

	// maxStackSteps bounds the work to unwind a stack, in steps of some
	// nanoseconds, see [unwind.Table]. A hundred functions take some
	// 10,000 steps when they are first seen, and 500 afterwards.
	maxStackSteps = 1 << 18

	// processSteps bounds the work to unwind the stacks of a process: it
	// suffices for ten thousand functions. Each stack adds stepsPerStack, which
	// is more than most take.
	processSteps  = 1 << 20
	stepsPerStack = 1 << 12

	// processBytes bounds the bytes of symbol tables and unwinding tables that
	// are read for a process. A browser with all its symbols and libraries
	// takes some 200 MB. Each stack adds bytesPerStack, since a program may
	// load libraries for months.
	processBytes  = 512 << 20
	bytesPerStack = 64 << 10

	// maxHeldBytes bounds the tables of all files in memory, together with the
	// code that processes have made at run time, and maxHeldLines what is held
	// besides with Lines. The largest of the owner that holds most is dropped
	// first.
	maxHeldBytes = 448 << 20
	maxHeldLines = 768 << 20

	// maxOpen bounds the open files. When another one is opened, the tables of
	// the one that was opened first are read, which takes time and memory, and
	// may turn out useless.
	maxOpen = 32

	// maxClosing bounds the files that are open until their tables have been
	// read. Further ones are closed unread.
	maxClosing = 224

	// maxFiles bounds the known files. A large host has some hundreds.
	maxFiles = 4096

	// maxSegments bounds the known segments of a file. Compilers and linkers
	// make ten at most.
	maxSegments = 64

	// maxProcesses bounds the remembered processes. Those that have ended are
	// forgotten first.
	maxProcesses = 1 << 14

	// maxMappings bounds the remembered mappings of a process, which may map
	// and unmap code without end, and maxAllMappings those of all processes
	// together. A mapping takes some 50 bytes, and a process has some ten to a
	// few hundred.
	maxMappings    = 1 << 14
	maxAllMappings = 1 << 20

	// freeScans is what scans of a process whose stacks have addresses in no
	// known file may take, see pace. A scan takes some 100 microseconds. A
	// program that has just begun maps one library after the other, and may end
	// soon.
	freeScans = 25 * time.Millisecond

	// Limits of a profile: the names of functions in bytes, different stacks,
	// the functions on all of these, and different places. The largest programs
	// have some ten thousand stacks.
	maxProfileNames  = 64 << 20
	maxProfileStacks = 1 << 17
	maxProfileFrames = 1 << 23
	maxProfilePlaces = 1 << 20
)

// pace bounds the time that something takes: a free amount, and after that
// 1/paceShare of the time.
type pace struct {
	spent time.Duration
	next  time.Time // when it may be done again
}

const paceShare = 20

func (p *pace) isDue() bool { return !time.Now().Before(p.next) }

// done sets when it may be done again, after it took some time. free is the
// time that it may take altogether.
func (p *pace) done(took, free time.Duration) {
	if p.spent += took; p.spent > free {
		p.next = time.Now().Add(paceShare * took)
	}
}

// budget is the work, or the bytes, that a process may still cause.
type budget struct{ left int }

// earn adds to the budget, up to its limit.
func (b *budget) earn(amount, limit int) { b.left = min(b.left+amount, limit) }

// take takes from the budget, and reports whether there was enough.
func (b *budget) take(amount int) bool {
	if amount > b.left {
		return false
	}
	b.left -= amount
	return true
}
