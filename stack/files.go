// SPDX-License-Identifier: BSD-2-Clause

package stack

import (
	"cmp"
	"context"
	"debug/elf"
	"io"
	"os"
	"slices"
	"time"

	"github.com/therootcompany/xz"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/deadline"
	"github.com/gousdt/gousdt/internal/debuginfo"
	"github.com/gousdt/gousdt/internal/elffile"
	"github.com/gousdt/gousdt/internal/procfs"
	"github.com/gousdt/gousdt/internal/procwatch"
	"github.com/gousdt/gousdt/internal/unwind"
)

// files are those that the remembered processes map.
type files struct {
	known   map[procwatch.Version]*file
	open    []*file // in the order in which they were opened
	closing []*os.File
	seen    uint64 // how many files there have been
	vdso    *file  // nil before the vDSO has been read
}

// file is a file that some process maps, or mapped.
type file struct {
	id     procwatch.Version // zero if it is not known
	mapped openable          // as the first process has it
	number uint64            // unique: it is never used again
	users  int               // how many mappings it has
	owner  string            // of the process that mapped it first

	machine       elf.Machine // EM_NONE if it could not be opened or is no ELF file
	segments      []elffile.Segment
	buildID       string
	functionBytes int // see [debuginfo.File.FunctionBytes]

	elf       *debuginfo.File      // nil if it is not open
	image     *debuginfo.File      // elf, kept after it is closed while DebugFile is not done
	functions *debuginfo.Functions // nil if they were not read
	frames    *unwind.Table        // nil if there are none, or they were not read
	lines     *lineFile            // nil if there are none, or they are not wanted
	hasRead   bool                 // frames were read, or tried
	tables    holding              // functions and frames
	rows      holding              // what frames keeps of addresses

	reading   *reading // of its tables; nil if there is none
	isClosing bool     // it is closed when its tables have been read
}

func (fs *files) isFull() bool { return len(fs.known) >= maxFiles }

// found is a file that a process maps, as it was looked at without the lock.
type found struct {
	mapped openable
	id     procwatch.Version // zero if it is not known
	opened openedFile        // if the file was not known
}

// look looks at files that a process of an owner maps, and opens those that are
// not known: later they may be gone. It returns what it found, and the time of
// a processor that it took. The caller does not hold the lock.
func (s *Symbolizer) look(owner string, mapped []openable) ([]found, time.Duration) {
	all, took := make([]found, len(mapped)), make([]time.Duration, len(mapped))
	returned := s.unanswered.Ask(owner, deadline.Names, len(mapped),
		func(i int) {
			began := deadline.ProcessorTime()
			this := found{mapped: mapped[i]}
			if this.id, _ = mapped[i].Version(); !s.isKnown(this.id) {
				this.opened = open(mapped[i])
			}
			all[i], took[i] = this, deadline.ProcessorTime()-began
		}, func(i int) { all[i].opened.close() })
	answered, total := make([]found, len(mapped)), time.Duration(0)
	for i := range mapped {
		answered[i] = found{mapped: mapped[i]}
	}
	for _, i := range returned {
		answered[i] = all[i]
		total += took[i]
	}
	return answered, total
}

// isKnown reports whether a file needs not be opened. It takes the lock.
func (s *Symbolizer) isKnown(id procwatch.Version) bool {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return id == (procwatch.Version{}) || s.files.known[id] != nil || s.files.isFull()
}

func (s *Symbolizer) file(p *process, f found) *file {
	if known := s.files.known[f.id]; known != nil {
		s.files.close(f.opened)
		return known
	}
	s.files.seen++
	this := &file{id: f.id, mapped: f.mapped, number: s.files.seen, owner: p.owner}
	if f.id == (procwatch.Version{}) || s.files.isFull() {
		s.files.close(f.opened)
		return this
	}
	s.files.known[f.id] = this
	if f.opened.elf != nil {
		this.use(f.opened)
		s.files.open = append(s.files.open, this)
	}
	return this
}

func (f *file) use(opened openedFile) {
	f.elf, f.buildID, f.machine = opened.elf, opened.buildID, opened.elf.Machine
	f.functionBytes = opened.functionBytes
	f.segments = slices.Clone(f.elf.Segments[:min(len(f.elf.Segments), maxSegments)])
}

// mappedFile is a file that a process maps.
type mappedFile struct {
	*procfs.MappedFile
	mounts *procwatch.Mounts // of the process
}

func (f mappedFile) Version() (procwatch.Version, error) { return f.mounts.Version(f.MappedFile) }

// openable is a file that some process maps: a [mappedFile] or a
// [procwatch.RecordedFile].
type openable interface {
	Version() (procwatch.Version, error)
	Open() (*os.File, error)
}

// openedFile is a file with the data that are read when it is opened.
type openedFile struct {
	elf           *debuginfo.File // nil if it could not be opened or is no ELF file
	buildID       string          // "" if there is none
	functionBytes int             // see [debuginfo.File.FunctionBytes]
}

func open(mapped openable) (f openedFile) {
	opened, err := mapped.Open()
	if err != nil {
		return f
	}
	if f = readHeaders(opened); f.elf == nil {
		opened.Close()
	}
	return f
}

func readHeaders(from io.ReaderAt) (f openedFile) {
	if f.elf, _ = debuginfo.New(from); f.elf != nil { // nil with an error
		f.buildID, _ = f.elf.BuildID()
		f.functionBytes = f.elf.FunctionBytes()
	}
	return f
}

func (f openedFile) close() {
	if f.elf != nil {
		_ = elffile.OSFile(f.elf).Close() // it was only read
	}
}

// closeMany closes files as long as too many are open: the first of the owner
// with the most. It reads their tables before, at the expense of a process that
// maps them.
func (s *Symbolizer) closeMany(p *process) {
	counts, closing := make(map[string]int), 0
	for _, f := range s.files.open {
		if counts[f.owner]++; f.isClosing {
			counts[f.owner]--
			closing++
		}
	}
	var last *reading
	for len(s.files.open)-closing > maxOpen {
		most := ""
		for owner, n := range counts {
			if n > counts[most] {
				most = owner
			}
		}
		i := slices.IndexFunc(s.files.open,
			func(f *file) bool { return f.owner == most && !f.isClosing })
		f := s.files.open[i]
		counts[most]--
		if closing == maxClosing {
			s.files.closeFile(f)
		} else if s.closeWhenRead(p, f); f.isClosing {
			closing, last = closing+1, f.reading
		}
	}
	if last != nil {
		s.await(context.Background(), p.owner, last)
	}
}

// closeWhenRead closes a file after its tables have been read, or at once if
// they are not going to be.
func (s *Symbolizer) closeWhenRead(p *process, f *file) {
	s.read(p, f, true, true)
	if f.isClosing = f.reading != nil; !f.isClosing {
		s.files.closeFile(f)
	}
}

// function returns the name of the function at an offset in a file, and the
// offset where it begins. A process that maps the file pays for reading it.
//
// A signal handler returns to the first byte of a function that nothing has
// called: the byte before may be in no function.
func (s *Symbolizer) function(
	ctx context.Context, p *process, f *file, offset uint64, isReturn bool,
) (name string, start uint64, ok bool) {
	s.awaitTables(ctx, p, f, true, false)
	s.readFetched(ctx, p, f)
	segment := f.segment(offset)
	if f.functions == nil || segment == nil {
		return "", 0, false
	}
	address := segment.Address + (offset - segment.Offset)
	function, ok := f.functions.At(address)
	if !ok && isReturn {
		if function, ok = f.functions.At(address + 1); ok {
			s.awaitTables(ctx, p, f, false, true)
			ok = f.frames != nil && function.Address == address+1 && f.frames.IsSignal(address)
		}
	}
	return function.Name, function.Address - segment.Address + segment.Offset, ok
}

func (f *file) segment(offset uint64) *elffile.Segment {
	for i := range f.segments {
		if g := &f.segments[i]; g.Offset <= offset && offset-g.Offset < g.FileSize {
			return g
		}
	}
	return nil
}

// awaitTables reads tables of a file, once, and waits for them: the symbol
// tables of the file and of its separate debug file if that is installed, or
// the call frame information.
func (s *Symbolizer) awaitTables(ctx context.Context, p *process, f *file, functions, frames bool) {
	for n := 0; n < 2 && f.lacks(functions, frames) && ctx.Err() == nil; n++ {
		if s.read(p, f, functions, frames); p == nil || f.reading == nil {
			return
		}
		s.await(ctx, p.owner, f.reading)
	}
}

func (f *file) lacks(functions, frames bool) bool {
	return functions && f.functions == nil || frames && !f.hasRead
}

// tables are what a reading found. It has no lock.
type tables struct {
	functions *debuginfo.Functions
	frames    *unwind.Table
	lines     *lineFile
	hasDebug  bool // the separate debug file was found
	bytes     int  // that were read
	isLate    bool // a part was not read
}

// read starts to read tables of a file as far as they are not known, at the
// expense of a process that maps it, which may be nil.
func (s *Symbolizer) read(p *process, f *file, functions, frames bool) {
	functions, frames = functions && f.functions == nil, frames && !f.hasRead
	if p == nil || f.elf == nil || f.reading != nil || !functions && !frames {
		return
	}
	bytes := 0
	if functions {
		bytes += f.functionBytes
	}
	if frames {
		bytes += unwind.Bytes(f.elf.File)
	}
	allowed := s.readers.allowed(p.owner)
	if bytes > p.bytes.left || allowed < leastTableTime {
		return
	}
	whole := tableTime + time.Duration(bytes+f.elf.MiniDebugBytes())*tableTimePerByte
	limit, room, of, lines := min(whole, allowed), p.bytes.left-bytes, f.elf, f.lineFiles(s.Lines)
	f.reading = ask(s, p.owner, limit, func(late func() error) *tables {
		return readTables(of, late, functions, frames, room, lines)
	}, func(_ *reading, got *tables) {
		f.reading = nil
		switch {
		case got == nil: // its file system does not answer
			f.functions, f.hasRead = cmp.Or(f.functions, new(debuginfo.Functions)), true
			s.files.giveUp(f)
			return
		case got.isLate && limit < whole: // it may be read when its owner has time again
			functions, frames = false, false
		}
		p.bytes.take(bytes + got.bytes)
		s.adopt(f, got, functions, frames)
		if functions && !got.hasDebug && s.DebugFile != nil && f.buildID != "" {
			if path, done := s.DebugFile(p.owner, f.buildID); !done || path != "" {
				f.image = of
			}
		}
		if f.isClosing {
			s.files.closeFile(f)
		}
	})
}

func (s *Symbolizer) adopt(f *file, got *tables, functions, frames bool) {
	size := 0
	if functions && f.functions == nil {
		f.functions, f.lines = got.functions, got.lines
		size += f.functions.Size()
	}
	if frames && !f.hasRead {
		if f.frames, f.hasRead = got.frames, true; f.frames != nil {
			size += f.frames.Size()
		}
	}
	if s.files.known[f.id] == f || f == s.files.vdso { // it was not forgotten meanwhile
		s.holdTables(f, size)
	}
}

func (s *Symbolizer) holdTables(f *file, size int) {
	s.hold(&f.tables, f.owner, f.tables.bytes+size, func() { s.dropTables(f) })
}

// dropTables drops the tables of a file. They are not read again.
func (s *Symbolizer) dropTables(f *file) {
	s.drop(&f.rows)
	f.functions, f.frames, f.hasRead, f.image = new(debuginfo.Functions), nil, true, nil
}

// readTables reads tables of a file. room is for the bytes of other files.
func readTables(of *debuginfo.File, late func() error, functions, frames bool,
	room int, lines func(debug *debuginfo.File) *lineFile,
) *tables {
	t := &tables{functions: new(debuginfo.Functions)}
	file, err := debuginfo.New(of)
	if err != nil {
		return t // it has been closed
	}
	file.Late = late
	if functions {
		t.functions, _ = file.Functions() // a malformed table has none
		t.readDebug(of, file, late, room, lines)
	}
	if frames {
		t.frames, _ = unwind.Read(file.File) // nil also if they are malformed
	}
	t.isLate = late() != nil
	return t
}

// readDebug adds the functions of the separate debug file if that is installed,
// else those of the MiniDebugInfo in the file itself.
func (t *tables) readDebug(of, file *debuginfo.File, late func() error, room int,
	lines func(debug *debuginfo.File) *lineFile,
) {
	if debug, err := of.FindDebugFile(""); err == nil {
		defer debug.Close()
		t.hasDebug, t.lines = true, lines(debug)
		t.addDebug(debug, late, room)
		return
	}
	t.lines = lines(nil)
	if file.MiniDebugBytes() <= room {
		t.bytes += file.MiniDebugBytes()
		if mini, err := file.MiniFunctions(unpack); err == nil {
			t.functions.Append(mini)
		}
	}
}

func (t *tables) addDebug(debug *debuginfo.File, late func() error, room int) {
	debug.Late = late
	if bytes := debug.FunctionBytes(); bytes <= room {
		t.bytes += bytes
		functions, _ := debug.Functions()
		t.functions.Append(functions)
	}
}

func unpack(packed io.Reader, dictionary uint32) (io.Reader, error) {
	return xz.NewReader(packed, dictionary)
}

// readFetched adds the functions of a debug file that DebugFile has fetched
// since.
func (s *Symbolizer) readFetched(ctx context.Context, p *process, f *file) {
	if f.image == nil || ctx.Err() != nil || f.functions == nil {
		return
	}
	if f.reading == nil {
		if path, done := s.DebugFile(p.owner, f.buildID); done {
			s.readFetchedFile(p, f, path)
		}
	}
	if f.reading != nil {
		s.await(ctx, p.owner, f.reading)
	}
}

// readFetchedFile reads the debug file at a path, which is "" if there is none.
func (s *Symbolizer) readFetchedFile(p *process, f *file, path string) {
	limit := s.readers.allowed(p.owner)
	if path == "" {
		f.image = nil
	}
	if path == "" || limit < leastTableTime {
		return
	}
	room, image, buildID, lines := p.bytes.left, f.image, f.buildID, f.lineFiles(s.Lines)
	f.reading = ask(s, p.owner, limit, func(late func() error) *tables {
		got := &tables{functions: new(debuginfo.Functions)}
		debug, err := image.FindDebugFile(path)
		if err != nil {
			return got
		}
		defer debug.Close()
		// FindDebugFile compares no build IDs if the image is closed.
		if id, _ := debug.BuildID(); id == buildID {
			got.lines = lines(debug)
			got.addDebug(debug, late, room)
		}
		return got
	}, func(_ *reading, got *tables) {
		f.reading = nil
		isDropped := f.image == nil // meanwhile
		f.image = nil
		if got == nil || isDropped {
			return
		}
		p.bytes.take(got.bytes)
		if f.lines == nil {
			f.lines = got.lines
		}
		f.functions.Append(got.functions)
		s.holdTables(f, got.functions.Size())
	})
}

// release takes the given mappings from their files, and forgets the files that
// have none any more.
func (s *Symbolizer) release(mapped []mapping) {
	for _, m := range mapped {
		if m.users--; m.users > 0 || s.files.known[m.id] != m.file {
			continue
		}
		delete(s.files.known, m.id)
		s.files.closeFile(m.file)
		s.drop(&m.tables)
		s.dropTables(m.file)
		if l := m.lines; l != nil {
			l.isGone = true
			s.drop(&l.infoHeld)
			s.drop(&l.knownHeld)
			m.lines = nil
		}
	}
}

func (fs *files) closeAll() {
	for len(fs.open) > 0 {
		fs.closeFile(fs.open[0])
	}
}

// close closes what was opened and is not used.
func (fs *files) close(f openedFile) {
	if f.elf != nil {
		fs.closing = append(fs.closing, elffile.OSFile(f.elf))
	}
}

// closeFile closes a file, if it is open, when the lock is released.
func (fs *files) closeFile(f *file) {
	if opened := fs.remove(f); opened != nil {
		fs.closing = append(fs.closing, opened)
	}
}

// giveUp closes a file whose file system does not answer, without waiting.
func (fs *files) giveUp(f *file) {
	if opened := fs.remove(f); opened != nil {
		go opened.Close()
	}
}

// remove removes a file from the open ones, and returns what is to be closed:
// nil if the file is not open.
func (fs *files) remove(f *file) *os.File {
	if f.elf == nil || f == fs.vdso {
		return nil
	}
	opened := elffile.OSFile(f.elf)
	f.elf = nil
	fs.open = slices.DeleteFunc(fs.open, func(other *file) bool { return other == f })
	return opened
}

// DebugSymbols is for the Symbols of a [usdt.Target]: it returns what adds the
// symbols of a file's separate debug file to the file. That is the one at path,
// or if path is "" the installed one. Nothing is fetched. A debug file that
// belongs to another build counts as missing.
//
// If path is "", it searches by build ID below /usr/lib/debug and in the
// debuginfod caches of the user ($DEBUGINFOD_CACHE_PATH, $XDG_CACHE_HOME,
// $HOME/.cache), and by the name in .gnu_debuglink beside a file that was
// opened by a path. If the file's directory is not searched, the errors of
// symbols name the debug file.
//
// Prelink moves a file, but not its debug file: the symbols have the addresses
// of the file.
//
// [usdt.Target]: https://pkg.go.dev/github.com/gousdt/gousdt/usdt#Target
func DebugSymbols(path string) func(*elfnote.File) argspec.File {
	return func(file *elfnote.File) argspec.File { return debuginfo.AddDebugFile(file, path) }
}
