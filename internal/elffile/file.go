// SPDX-License-Identifier: BSD-2-Clause

package elffile

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"

	"github.com/gousdt/gousdt/internal/truncate"
)

// File is an opened ELF file. Its headers are read and checked when it is
// opened; everything else is read when it is asked for. Several goroutines may
// use a File at once. The exported fields are not to be changed.
type File struct {
	Words   Words    // byte order and word size
	Type    elf.Type // ET_EXEC, ET_DYN or ET_REL
	Machine elf.Machine

	// IsDebugFile says that the file is what strip or objcopy --only-keep-debug
	// split off an executable or library. Its program headers are those of the
	// original file, whose offsets mean nothing in this one.
	IsDebugFile bool

	Segments   []Segment // PT_LOAD, in the order of the file
	ProbeNotes []Section // named .note.stapsdt, in the order of the file

	ProbeBase    uint64 // the address of the section .stapsdt.base
	HasProbeBase bool   // there is such a section

	// Sections and segments have no size where there are none.
	Frames      Section // .eh_frame
	FramesIndex Segment // PT_GNU_EH_FRAME

	reader io.ReaderAt
	closer io.Closer // nil where the caller closes the reader
	close  sync.Once
	name   string
	path   string // that Open was given, "" with New

	noteSegments  []noteSegment
	dynamic       Segment // PT_DYNAMIC
	interpreter   Segment // PT_INTERP
	sections      table
	buildIDNotes  Section // .note.gnu.build-id
	debugLink     Section // .gnu_debuglink
	alternative   Section // .gnu_debugaltlink
	miniDebug     Section // .gnu_debugdata
	gotPLT        uint64  // address of .got.plt, 0 where there is none
	dwarfSections [len(dwarfSections)]Section

	// relocations of ProbeNotes, by the indices of those.
	relocations map[uint32]Section

	symbols symbols
	members members

	// What the dynamic section says is found once: a crafted file has a long
	// one and asks very often.
	got struct {
		once    sync.Once
		address uint64
		err     error
	}
	program struct {
		once sync.Once
		is   bool
	}
}

// Symbols is what package argspec asks of an elfnote.File: the header, and the
// rest when an argument names a symbol.
type Symbols interface {
	// Header returns the ELF header, of which four fields count. Machine
	// decides the syntax of the arguments. Class is ELFCLASS32 or ELFCLASS64,
	// and ELFCLASSNONE stands for the machine's usual class; ELFCLASS32 with
	// EM_X86_64 is an x32 program. ByteOrder decides which of two registers
	// holds the high half of a value on arm; nil stands for little-endian. Type
	// is ET_EXEC, ET_DYN or ET_REL: the addresses of an ET_EXEC are those at
	// which it runs, and those of an ET_REL are not known yet.
	Header() elf.FileHeader
	// IsProgram reports whether the file is a program and not a library: the
	// symbols of a library can be replaced by those of another file.
	IsProgram() bool
	// Symbol returns the symbol that is defined under a name. Its Value is an
	// address in the file; that of a thread-local variable (STT_TLS) the offset
	// in the memory of thread-local variables. It fails if there is no symbol
	// of that name, or more than one.
	Symbol(name string) (elf.Symbol, error)
	// PLTGOT returns the value of DT_PLTGOT, which i386's @GOTOFF counts from.
	PLTGOT() (uint64, error)
}

// Open opens the ELF file at path.
//
// The error wraps ErrNotELF, ErrFileType, ErrTruncated, ErrMalformed,
// ErrTooLarge or ErrCompressed, or is that of the operating system.
func Open(path string) (*File, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|openFlags, 0)
	if err != nil {
		return nil, err
	}
	f, err := New(file)
	if err != nil {
		file.Close()
		return nil, err
	}
	f.closer, f.path = file, path
	return f, nil
}

// New reads an ELF file from r. Close does not close r. Errors are those of
// Open.
func New(r io.ReaderAt) (*File, error) {
	f := &File{reader: r}
	if file, ok := r.(*os.File); ok {
		f.name = file.Name()
	}
	if err := f.readHeaders(); err != nil {
		if f.name != "" {
			err = fmt.Errorf("%s: %w", f.name, err)
		}
		return nil, err
	}
	return f, nil
}

// Close closes the file if Open opened it. Only the first call does something.
func (f *File) Close() (err error) {
	f.close.Do(func() {
		if f.closer != nil {
			err = f.closer.Close()
		}
	})
	return err
}

// OSFile returns the open file that is read, or nil where New was given another
// kind of reader.
func (f *File) OSFile() *os.File {
	file, _ := f.reader.(*os.File)
	return file
}

// Name returns the path given to Open, or the name of the *os.File given to
// New, or "".
func (f *File) Name() string { return f.name }

// ReadAt reads bytes of the file, as io.ReaderAt says.
func (f *File) ReadAt(p []byte, off int64) (int, error) { return f.reader.ReadAt(p, off) }

// Class returns ELFCLASS32 or ELFCLASS64.
func (f *File) Class() elf.Class {
	if f.Words.Wide {
		return elf.ELFCLASS64
	}
	return elf.ELFCLASS32
}

// HasCode reports whether the file holds code that runs at the addresses or
// offsets that its segments give: a separate debug file and an object file do
// not.
func (f *File) HasCode() bool { return !f.IsDebugFile && f.Type != elf.ET_REL }

// Reasons for which a file, or a part of it, cannot be read. They are wrapped
// with the context in which they occurred: compare with errors.Is.
var (
	// ErrNotELF means that the file does not start with the ELF magic bytes.
	ErrNotELF = errors.New("not an ELF file")
	// ErrMalformed means that the file is ELF, but not of a form that can be
	// read: its headers contradict themselves, or it is ErrFileType,
	// ErrTruncated or ErrCompressed.
	ErrMalformed = errors.New("malformed ELF file")
	// ErrFileType means that the ELF file is of a type that holds no code, such
	// as a core dump. Executables, libraries and object files do.
	ErrFileType error = malformedError("not an executable, a library or an object file")
	// ErrTruncated means that the file ends before a range that its headers
	// give.
	ErrTruncated error = malformedError("file is truncated")
	// ErrTooLarge means that a part of the file is larger than this package is
	// willing to read, which is far above what tool chains produce.
	ErrTooLarge = errors.New("larger than any real file's")
	// ErrCompressed means that a section is compressed (SHF_COMPRESSED), which
	// loaders and tracers do not support for notes and symbols. llvm-objcopy
	// --compress-sections=SECTION=none makes a copy without compression;
	// --decompress-debug-sections, which GNU objcopy has, does not.
	ErrCompressed error = malformedError("section is compressed (llvm-objcopy --compress-sections=SECTION=none makes a copy without compression)")
	// ErrNotMapped means that no PT_LOAD segment has the address in its part
	// that comes from the file.
	ErrNotMapped = errors.New("address is not in the file part of a segment")
	// ErrNoCode means that the file is a separate debug file or an object file,
	// which has no code that runs: its addresses have no offsets.
	ErrNoCode = errors.New("file holds no code to run (use the executable or library itself)")
	// ErrSymbolNotFound means that neither symbol table defines the symbol.
	ErrSymbolNotFound = errors.New("not defined in the file")
	// ErrSymbolAmbiguous means that several symbols of the name have different
	// addresses, so that nobody can tell which one is meant.
	ErrSymbolAmbiguous = errors.New("defined at several addresses")
	// ErrNoPLTGOT means that the file has no global offset table.
	ErrNoPLTGOT = errors.New("no global offset table")
	// ErrNoBuildID means that the file was linked without --build-id.
	ErrNoBuildID = errors.New("no build ID")
	// ErrOtherBuildID means that a debug file was split off another build.
	ErrOtherBuildID = errors.New("the debug file belongs to another build")
	// ErrUnknownDistance means that a debug file has neither a section
	// .stapsdt.base nor a PT_LOAD segment in common with the file it belongs
	// to.
	ErrUnknownDistance = errors.New("cannot tell by how much prelink moved the file: " +
		"its debug file has neither .stapsdt.base nor a PT_LOAD segment to compare")
)

// TooLarge returns an error that is ErrTooLarge where a caller has set the
// limit. It says what err says: a real file's may well be larger.
func TooLarge(err error) error { return tooLargeError{err} }

type tooLargeError struct{ error }

func (tooLargeError) Is(target error) bool { return target == ErrTooLarge }
func (e tooLargeError) Unwrap() error      { return e.error }

// malformedError is a reason that is also ErrMalformed.
type malformedError string

func (e malformedError) Error() string        { return string(e) }
func (e malformedError) Is(target error) bool { return target == ErrMalformed }

// NoteError is a note of a probe that is malformed. It affects no other note.
type NoteError struct {
	// Index is the number of the note in the file, from 0, counting the notes
	// of every owner in all .note.stapsdt sections, in file order. It is the
	// order in which readelf -n prints them.
	Index int
	// Provider and Name are those of the probe, or "" where they cannot be
	// read.
	Provider, Name string
	// Err is the cause, a text.
	Err error
}

// Error says which note is malformed and why. Provider and name are quoted:
// they are arbitrary bytes.
func (e *NoteError) Error() string {
	if e.Provider == "" && e.Name == "" {
		return fmt.Sprintf("note %d: %v", e.Index, e.Err)
	}
	return fmt.Sprintf("note %d, probe %s: %v", e.Index,
		strconv.Quote(truncate.Name(e.Provider)+":"+truncate.Name(e.Name)), e.Err)
}

// Unwrap returns the cause.
func (e *NoteError) Unwrap() error { return e.Err }
