// SPDX-License-Identifier: BSD-2-Clause

package stack

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"time"

	"github.com/gousdt/gousdt/internal/deadline"
	"github.com/gousdt/gousdt/internal/procfs"
	"github.com/gousdt/gousdt/internal/procwatch"
	"github.com/gousdt/gousdt/internal/unwind"
	"github.com/gousdt/gousdt/proc"
)

// Symbolizer names the functions on the stacks of processes. It remembers what
// the processes have mapped, also when they have ended. Its methods may be
// called by several goroutines at once; they wait for each other.
type Symbolizer struct {
	// DebugFile, if set, is asked for the debug file of a build that has none
	// here, by its build ID. It must not wait: it says that it is not done as
	// long as the file is still being fetched, such as from a debuginfod
	// server. Functions have names as soon as it returns a path. It returns
	// none where there is no such file. It must not call the Symbolizer, and be
	// set before that is used.
	DebugFile func(buildID string) (path string, done bool)
	// Lines has Frames and profiles say which lines of which source files are
	// executed, and which functions are inlined, where files or their debug
	// files say that in DWARF. That takes a second and more for each large
	// file, in the background, and memory: up to 512 MB. It must be set before
	// the Symbolizer is used.
	Lines bool

	fs *procfs.FS

	mutex     sync.Mutex
	processes map[int]*process
	mappings  int // of all processes
	files     files
	unwinder  *unwind.Unwinder
	counts    Counts

	unanswered unanswered
	records    records
}

// Counts are what a [Symbolizer] has counted since it was made.
type Counts struct {
	// Frames is how many frames were to be named.
	Frames uint64
	// NoFile is how many of them have no name because their address is in no
	// file that is known: in code that was made at run time, as JIT compilers
	// do, and that is not in /tmp/perf-PID.map, or in a process that ended
	// before anything was known of it.
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
	Source     string // the source file and the line, as in "/src/throw.c:12"; "" if they are not known
	// Inlined says that the code of this function is a part of the next one's.
	// Its Address is the same, and it has no Offset.
	Inlined bool
}

// String returns the function and the file, as in "main+0x1b (/usr/bin/throw)".
// A frame without a name has its address, and its place in the file:
// "0x7f0c10 (/usr/bin/throw+0x10)". Where the line is known it follows:
// "main+0x1b (/usr/bin/throw) throw.c:12", and an inlined function is
// "check (inlined) throw.c:5". Names and paths are arbitrary bytes: escape them
// before they reach a terminal.
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

// NewSymbolizer returns a Symbolizer for the processes of a proc file system:
// of /proc if it is nil.
func NewSymbolizer(fs *procfs.FS) *Symbolizer {
	if fs == nil {
		fs = procfs.NewFS("")
	}
	s := &Symbolizer{
		fs:        fs,
		processes: make(map[int]*process),
		files:     files{known: make(map[procwatch.FileID]*file)},
		unwinder:  unwind.NewUnwinder(),
	}
	s.files.lines = &lineReader{unanswered: &s.unanswered}
	return s
}

// Close closes all files and forgets everything.
func (s *Symbolizer) Close() error {
	s.records.stop()
	s.mutex.Lock()
	defer s.mutex.Unlock()
	err := s.files.close()
	s.files.lines.close()
	s.records = records{}
	s.processes, s.files.known, s.mappings = make(map[int]*process), make(map[procwatch.FileID]*file), 0
	return err
}

// Remember scans what processes have mapped now. Call it when a process is
// first seen: in the handler of a watch, for each proc.ProcessFile that has
// appeared. Earlier mappings of the process are kept until something else takes
// their place. A process that has ended is remembered as it was.
//
// Without a PID it scans all remembered processes again: programs load
// libraries as they run. Call it so before many stacks are named at once, as
// those of a profile are.
func (s *Symbolizer) Remember(pids ...int) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for _, pid := range pids {
		s.recall(pid) // it may end while it is scanned
		s.scan(pid)
	}
	if len(pids) > 0 {
		return
	}
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
// files: functions of files that have not been read yet have no name. With
// Lines there are more frames than addresses where functions are inlined.
func (s *Symbolizer) Frames(ctx context.Context, pid int, stack []uint64) []Frame {
	s.mutex.Lock()
	defer s.mutex.Unlock()
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
		_, ok := s.lines(at)
		isKnown = isKnown && ok
	}
	if !isKnown {
		s.files.lines.waitShortly(ctx)
	}
	var all []Frame
	for i, frame := range frames {
		sources, _ := s.lines(spots[i])
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
// and waits for its lines. A profile has done that for the stacks that were
// added to it.
func (s *Symbolizer) Want(ctx context.Context, pid int, stack []uint64) {
	s.mutex.Lock()
	s.recall(pid)
	for i, address := range stack {
		if m, at := s.at(pid, address, i > 0); m != nil {
			s.name(ctx, at)
			s.lines(at)
		}
	}
	s.mutex.Unlock()
	ctx, cancel := context.WithTimeout(ctx, mostLineWait)
	defer cancel()
	s.files.lines.wait(ctx)
}

// Key returns a text that is the same for stacks of the same places in the same
// files, in whatever processes they are. An address that is in no known file is
// another place in another process. Keys of different Symbolizers cannot be
// compared.
func (s *Symbolizer) Key(pid int, stack []uint64) string {
	s.mutex.Lock()
	defer s.mutex.Unlock()
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

// begin begins with a stack of a process: it has what that may take.
func (s *Symbolizer) begin(pid int) {
	s.recall(pid)
	if p := s.processes[pid]; p != nil {
		p.steps.earn(stepsPerStack, processSteps)
		p.bytes.earn(bytesPerStack, processBytes)
		s.files.lines.earn(p.lines)
	}
}

// count counts a frame.
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
	file     *file  // nil if it is in none that is known
	offset   uint64 // in the file, or the address if it is in none
	isReturn bool   // from the call that is there
}

// at returns what is at an address of a process. That of a return address is
// the call before.
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

// name returns the name of the function at a spot, and where it begins.
func (s *Symbolizer) name(ctx context.Context, at spot) (name string, start uint64, ok bool) {
	if at.file == nil {
		return s.made(at.pid, at.offset)
	}
	// The process is known: it has the mapping.
	return s.function(ctx, s.processes[at.pid], at.file, at.offset, at.isReturn)
}

const (
	// patience is how long a process, or a file that it maps, may have one wait
	// before stacks are named without it: half as long with each that does not
	// answer, since somebody may withhold the answers of many.
	patience     = 250 * time.Millisecond
	mostHalvings = 3

	// maxUnanswered is how many calls for the processes of one container or
	// user may be waited for. No more are made until one returns.
	maxUnanswered = 2
)

// unanswered are calls that have not returned, by the container or user.
type unanswered struct {
	mutex sync.Mutex
	calls map[string]int
}

// ask makes a call that may never return, about a process of an owner, and
// reports whether it has returned. late is called if it does so after all.
func (u *unanswered) ask(wait time.Duration, owner func() string, call, late func()) bool {
	owner = sync.OnceValue(owner)
	u.mutex.Lock()
	pending := len(u.calls)
	u.mutex.Unlock()
	if pending > 0 && u.add(owner(), 0) >= maxUnanswered {
		return false
	}
	wait >>= min(pending, mostHalvings)
	returned := deadline.One(context.Background(), wait, call, func() {
		late()
		u.add(owner(), -1)
	})
	if !returned {
		u.add(owner(), 1)
	}
	return returned
}

// add adds to the calls of an owner, and returns how many these are.
func (u *unanswered) add(owner string, n int) int {
	u.mutex.Lock()
	defer u.mutex.Unlock()
	n += u.calls[owner]
	if n == 0 { // also where the call has returned before it was counted
		delete(u.calls, owner)
		return 0
	}
	if u.calls == nil {
		u.calls = make(map[string]int)
	}
	u.calls[owner] = n
	return n
}

// ask makes a call about a process that may never return, and returns its
// result, and whether it has returned. late, if not nil, is called with the
// result if it returns after all.
func ask[T any](s *Symbolizer, pid int, call func() T, late func(T)) (result T, ok bool) {
	got := new(T)
	owner := func() string {
		process, _ := proc.Find(s.fs, pid)
		return ownerOf(process)
	}
	ok = s.unanswered.ask(patience, owner, func() { *got = call() }, func() {
		if late != nil {
			late(*got)
		}
	})
	if ok {
		result = *got
	}
	return result, ok
}

// ownerOf returns who is to answer for a process, "" if that has ended.
func ownerOf(process proc.Process) string {
	if process.PID == 0 {
		return ""
	}
	return process.Owner()
}

// What this package does for processes, which are untrusted: a process maps
// what it wants, and its stacks are what it has written there. Each limit is
// far above what programs come to that do not try to reach it.
const (
	// maxDepth bounds an unwound stack: a corrupt one may have no end.
	maxDepth = 512

	// maxStackSteps bounds the work to unwind a stack, in steps of some
	// nanoseconds, see [unwind.Unwinder.Work]. A hundred functions take some
	// 10,000 steps when they are seen first, and 500 afterwards.
	maxStackSteps = 1 << 18

	// The work to unwind the stacks of a process: at first there is as much as
	// for some thousand functions, and each stack adds what it usually takes.
	processSteps  = 1 << 20
	stepsPerStack = 1 << 12

	// How many bytes of symbol tables and unwinding tables are read because of
	// a process. A browser with all its symbols and libraries takes some 200
	// MB. Programs may load libraries for months, which each stack makes up
	// for.
	processBytes  = 512 << 20
	bytesPerStack = 64 << 10

	// maxHeldBytes bounds the tables that are held in memory, of all files
	// together. Those of the process that takes most go first.
	maxHeldBytes = 256 << 20

	// maxOpen bounds the files that are held open. When another one is opened,
	// the tables of the one that was opened first are read, which takes time
	// and memory, and may be for nothing.
	maxOpen = 32

	// maxFiles bounds the files that are known. A large host has some hundreds.
	maxFiles = 4096

	// maxSegments bounds the segments that are known of a file. Compilers and
	// linkers make ten at most.
	maxSegments = 64

	// maxProcesses bounds the processes that are remembered. Those that have
	// ended go first.
	maxProcesses = 1 << 14

	// maxMappings bounds what is remembered of a process that maps and unmaps
	// code without end, and maxAllMappings that of all processes together. One
	// takes some 50 bytes, and a process has some ten to a few hundred.
	maxMappings    = 1 << 14
	maxAllMappings = 1 << 20

	// scanShare is the part of the time that may be spent on scanning a process
	// again, while its stacks lead to where nothing was mapped before: 1 in so
	// many. A scan takes some 100 microseconds. What freeScans bounds comes
	// first: a program that has just begun maps one library after the other,
	// and may end soon.
	scanShare = 20
	freeScans = 25 * time.Millisecond

	// What a profile holds at most: the names of functions in bytes, different
	// stacks, the functions on all of these, and different places. Of the
	// largest programs there are some ten thousand stacks.
	maxProfileNames  = 64 << 20
	maxProfileStacks = 1 << 17
	maxProfileFrames = 1 << 23
	maxProfilePlaces = 1 << 20
)

// budget is what may still be done on somebody's account.
type budget struct{ left int }

// earn adds to the budget, up to its limit.
func (b *budget) earn(amount, limit int) { b.left = min(b.left+amount, limit) }

// take takes from the budget, if there is so much.
func (b *budget) take(amount int) bool {
	if amount > b.left {
		return false
	}
	b.left -= amount
	return true
}
