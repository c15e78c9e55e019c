// SPDX-License-Identifier: BSD-2-Clause

package stack

import (
	"context"
	"debug/elf"
	"io"
	"os"
	"slices"

	"github.com/therootcompany/xz"

	"github.com/gousdt/gousdt/internal/deadline"
	"github.com/gousdt/gousdt/internal/elffile"
	"github.com/gousdt/gousdt/internal/procwatch"
	"github.com/gousdt/gousdt/internal/unwind"
)

// files are those that the remembered processes map.
type files struct {
	known map[procwatch.Version]*file
	open  []*file // in the order in which they were opened
	seen  uint64  // how many files there have been
	held  int     // bytes of the tables of all files
	lines *lineReader
	vdso  *file // nil before the vDSO has been read
}

// file is a file that some process maps, or mapped.
type file struct {
	id     procwatch.Version // zero if it is not known
	mapped openable          // as the first process has it
	number uint64            // unique: it is never used again
	users  int               // how many mappings it has
	owner  int               // the process that mapped it first

	machine  elf.Machine // EM_NONE if it could not be opened or is no ELF file
	segments []elffile.Segment
	buildID  string

	elf       *elffile.File      // nil if it is not open
	image     *elffile.File      // elf, kept after it is closed while DebugFile is not done
	functions *elffile.Functions // nil if they were not read
	frames    *unwind.Table      // nil if there are none, or they were not read
	lines     *lineFile          // nil if there are none, or they are not wanted
	hasRead   bool               // frames were read, or tried
	size      int                // of functions and frames in memory, in bytes
}

func (fs *files) isFull() bool { return len(fs.known) >= maxFiles }

// file returns a file that a process maps. It opens the file when it is first
// seen: later the file may be gone.
func (s *Symbolizer) file(p *process, mapped openable) *file {
	id, _ := ask(s, p.PID, func() procwatch.Version {
		id, _ := mapped.Version() // zero with an error
		return id
	}, nil)
	if known := s.files.known[id]; known != nil {
		return known
	}
	s.files.seen++
	f := &file{id: id, mapped: mapped, number: s.files.seen, owner: p.PID}
	if id == (procwatch.Version{}) || s.files.isFull() {
		return f
	}
	s.files.known[id] = f
	opened, _ := ask(s, p.PID, func() openedFile { return open(mapped) }, openedFile.close)
	if opened.elf == nil {
		return f
	}
	f.elf, f.buildID, f.machine = opened.elf, opened.buildID, opened.elf.Machine
	f.segments = slices.Clone(f.elf.Segments[:min(len(f.elf.Segments), maxSegments)])
	s.files.open = append(s.files.open, f)
	if len(s.files.open) > maxOpen {
		s.closeFirst(p)
	}
	return f
}

// openable is a file that some process maps: a [procwatch.MappedFile] or a
// [procwatch.RecordedFile].
type openable interface {
	Version() (procwatch.Version, error)
	Open() (*os.File, error)
}

// openedFile is a file with the data that are read when it is opened.
type openedFile struct {
	elf     *elffile.File // nil if it could not be opened or is no ELF file
	buildID string        // "" if there is none
}

func open(mapped openable) (f openedFile) {
	opened, err := mapped.Open()
	if err != nil {
		return f
	}
	if f.elf, err = elffile.New(opened); err != nil {
		opened.Close()
		return openedFile{}
	}
	f.buildID, _ = f.elf.BuildID()
	return f
}

func (f openedFile) close() {
	if f.elf != nil {
		_ = f.elf.OSFile().Close() // it was only read
	}
}

// closeFirst reads the tables of the file that was opened first, and closes it.
// The process that is being scanned pays for the reading, else, if its budget
// does not suffice, one that maps the file.
func (s *Symbolizer) closeFirst(scanned *process) {
	f := s.files.open[0]
	read := func(p *process) {
		s.readFunctions(context.Background(), p, f)
		s.readFrames(context.Background(), p, f)
	}
	read(scanned)
	for _, p := range s.processes {
		if slices.ContainsFunc(p.mapped, func(m mapping) bool { return m.file == f }) {
			read(p)
		}
	}
	s.files.closeFile(f)
}

// function returns the name of the function at an offset in a file, and the
// offset where it begins. A process that maps the file pays for reading it.
//
// A signal handler returns to the first byte of a function that nothing has
// called: the byte before may be in no function.
func (s *Symbolizer) function(
	ctx context.Context, p *process, f *file, offset uint64, isReturn bool,
) (name string, start uint64, ok bool) {
	s.readFunctions(ctx, p, f)
	s.readFetched(ctx, p, f)
	segment := f.segment(offset)
	if f.functions == nil || segment == nil {
		return "", 0, false
	}
	address := segment.Address + (offset - segment.Offset)
	function, ok := f.functions.At(address)
	if !ok && isReturn {
		if function, ok = f.functions.At(address + 1); ok {
			s.readFrames(ctx, p, f)
			ok = f.frames != nil && function.Address == address+1 && f.frames.IsSignal(address)
		}
	}
	return function.Name, function.Address - segment.Address + segment.Offset, ok
}

// segment returns the segment that contains an offset in the file, or nil.
func (f *file) segment(offset uint64) *elffile.Segment {
	for i := range f.segments {
		if g := &f.segments[i]; g.Offset <= offset && offset-g.Offset < g.FileSize {
			return g
		}
	}
	return nil
}

// readFunctions reads the symbol tables of a file, and of its separate debug
// file if that is installed. It does so once.
func (s *Symbolizer) readFunctions(ctx context.Context, p *process, f *file) {
	if f.functions != nil || f.elf == nil || ctx.Err() != nil ||
		!p.bytes.take(f.elf.FunctionBytes()) {
		return
	}
	of := f.elf
	functions, ok := ask(s, p.PID, func() *elffile.Functions {
		functions, _ := of.Functions() // a malformed table has none
		return functions
	}, nil)
	if !ok {
		s.files.giveUp(f)
		return
	}
	f.functions = functions
	if s.Lines {
		f.lines = newLineFile(f, nil)
	}
	s.readDebugFunctions(p, f)
	s.files.hold(f, f.functions.Size())
}

// readDebugFunctions adds the functions of the separate debug file if that is
// installed, else those of the MiniDebugInfo in the file itself.
func (s *Symbolizer) readDebugFunctions(p *process, f *file) {
	of := f.elf
	debug, ok := ask(s, p.PID, func() *elffile.File {
		debug, _ := of.FindDebugFile("")
		return debug
	}, closeFound)
	switch {
	case !ok:
		s.files.giveUp(f)
		return
	case debug != nil:
		s.addFunctions(p, f, debug)
		return
	}
	if p.bytes.take(of.MiniDebugBytes()) {
		if mini, _ := ask(s, p.PID, func() *elffile.Functions {
			mini, _ := of.MiniFunctions(unpack)
			return mini
		}, nil); mini != nil {
			f.functions.Append(mini)
		}
	}
	if s.DebugFile != nil && f.buildID != "" {
		if path, done := s.DebugFile(p.Owner(), f.buildID); !done || path != "" {
			f.image = of
		}
	}
}

func unpack(packed io.Reader, dictionary uint32) (io.Reader, error) {
	return xz.NewReader(packed, dictionary)
}

// closeFound closes a debug file that may be nil.
func closeFound(debug *elffile.File) {
	if debug != nil {
		_ = debug.Close() // it was only read
	}
}

// addFunctions adds the functions of a debug file, and closes it.
func (s *Symbolizer) addFunctions(p *process, f *file, debug *elffile.File) {
	if s.Lines && f.lines == nil {
		f.lines = newLineFile(f, debug)
	}
	if !p.bytes.take(debug.FunctionBytes()) {
		closeFound(debug)
		return
	}
	read := func() *elffile.Functions {
		defer closeFound(debug)
		functions, _ := debug.Functions()
		return functions
	}
	if functions, ok := ask(s, p.PID, read, nil); ok {
		f.functions.Append(functions)
	}
}

// readFetched adds the functions of a debug file that DebugFile has fetched
// since.
func (s *Symbolizer) readFetched(ctx context.Context, p *process, f *file) {
	if f.image == nil || ctx.Err() != nil || f.functions == nil {
		return
	}
	path, done := s.DebugFile(p.Owner(), f.buildID)
	if !done {
		return
	}
	before := f.functions.Size()
	if path != "" {
		if debug, err := f.image.FindDebugFile(path); err == nil {
			// FindDebugFile compares no build IDs if the image is closed.
			if id, _ := debug.BuildID(); id == f.buildID {
				s.addFunctions(p, f, debug)
			} else {
				closeFound(debug)
			}
		}
	}
	f.image = nil
	s.files.hold(f, f.functions.Size()-before)
}

// readFrames reads the call frame information of a file, once.
func (s *Symbolizer) readFrames(ctx context.Context, p *process, f *file) {
	if f.hasRead || f.elf == nil || ctx.Err() != nil || !p.bytes.take(unwind.Bytes(f.elf)) {
		return
	}
	f.hasRead = true
	of := f.elf
	frames, ok := ask(s, p.PID, func() *unwind.Table {
		frames, _ := s.unwinder.Read(of) // nil also if they are malformed
		return frames
	}, nil)
	if !ok {
		s.files.giveUp(f)
		return
	}
	if f.frames = frames; frames != nil {
		s.files.hold(f, frames.Size())
	}
}

// hold adds size bytes to the memory of a file's tables. If all files hold too
// much, it drops the largest tables of the process that holds most.
func (fs *files) hold(f *file, size int) {
	f.size += size
	fs.held += size
	for fs.held > maxHeldBytes {
		owners := make(map[int]int)
		most := f.owner
		for _, f := range fs.known {
			if owners[f.owner] += f.size; owners[f.owner] > owners[most] {
				most = f.owner
			}
		}
		var largest *file
		for _, f := range fs.known {
			if f.owner == most && (largest == nil || f.size > largest.size) {
				largest = f
			}
		}
		if largest == nil || largest.size == 0 {
			return // the rest belongs to a file that is not known any more
		}
		fs.drop(largest)
	}
}

// drop drops the tables of a file. They are not read again.
func (fs *files) drop(f *file) {
	fs.held -= f.size
	f.size = 0
	f.functions, f.frames, f.hasRead = new(elffile.Functions), nil, true
	f.image = nil
	fs.lines.drop(f.lines)
	f.lines = nil
}

// release takes the given mappings from their files, and forgets the files that
// have none any more.
func (fs *files) release(mapped []mapping) {
	for _, m := range mapped {
		if m.users--; m.users > 0 || fs.known[m.id] != m.file {
			continue
		}
		delete(fs.known, m.id)
		fs.closeFile(m.file)
		fs.drop(m.file)
	}
}

func (fs *files) close() {
	for len(fs.open) > 0 {
		fs.closeFile(fs.open[0])
	}
	fs.held = 0
}

// closeFile closes a file if it is open. It waits for up to patience.
func (fs *files) closeFile(f *file) {
	if opened := fs.remove(f); opened != nil {
		deadline.One(context.Background(), patience, func() { _ = opened.Close() }, nil)
	}
}

// giveUp closes a file whose file system does not answer, without waiting.
func (fs *files) giveUp(f *file) {
	opened := fs.remove(f)
	go opened.Close()
}

// remove removes a file from the open ones, and returns what is to be closed:
// nil if the file is not open.
func (fs *files) remove(f *file) *os.File {
	if f.elf == nil {
		return nil
	}
	opened := f.elf.OSFile()
	f.elf = nil
	fs.open = slices.DeleteFunc(fs.open, func(other *file) bool { return other == f })
	return opened
}
