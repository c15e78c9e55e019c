// SPDX-License-Identifier: BSD-2-Clause

// Package elffile reads untrusted ELF files: headers, segments, symbols, the
// dynamic section and the build ID. Everything in this module that reads files
// of other programs uses it.
//
// Types and constants come from [debug/elf]. Its reader is not used: it is not
// hardened against adversarial input, and a file of one megabyte can make it
// allocate gigabytes. This package checks every length before it is used,
// bounds every size (see read.go), and does not panic. It allocates memory by
// a number in the file only after the file has shown that it is that long.
package elffile

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"unicode/utf8"
)

// File is an opened ELF file. Its headers are read and checked when it is
// opened; everything else is read when it is asked for. Several goroutines may
// use a File at once. The exported fields are not to be changed.
type File struct {
	Words   Words    // byte order and word size
	Type    elf.Type // ET_EXEC, ET_DYN or ET_REL
	Machine elf.Machine

	// IsDebugFile means that strip or objcopy --only-keep-debug split the file
	// off an executable or library. Its program headers are those of the
	// original file, whose offsets mean nothing in this one.
	IsDebugFile bool

	Segments   []Segment // PT_LOAD, in the order of the file
	ProbeNotes []Section // named .note.stapsdt, in the order of the file

	ProbeBase    uint64 // the address of the section .stapsdt.base
	HasProbeBase bool   // there is such a section

	// The size is 0 if the file has no such segment.
	Interpreter Segment // PT_INTERP: the path of the dynamic linker
	FramesIndex Segment // PT_GNU_EH_FRAME
	ReadOnly    Segment // PT_GNU_RELRO: read-only once a process has started

	// Late, if set, is called before each block that is read or unpacked, and
	// its error ends that. It must be set before the File is used.
	Late func() error

	Name string // the path given to Open, or that of the *os.File given to New

	// Moved is, for a debug file, by how much the addresses of the file it
	// belongs to are above its own. Those of its symbols are moved.
	Moved uint64

	SymbolTables [2]Section // .symtab and .dynsym, of type SHT_NULL if there is none

	reader io.ReaderAt
	closer io.Closer // nil if the caller closes the reader
	close  sync.Once

	noteSegments []Section // PT_NOTE
	dynamic      Segment   // PT_DYNAMIC
	sections     table
	named        [len(namedSections)]Section

	// relocations of ProbeNotes, by the indices of those.
	relocations map[uint32]Section

	symbols  symbols
	dynamics dynamics
}

// Open opens the ELF file at path.
//
// The error wraps ErrNotELF, ErrFileType, ErrTruncated, ErrMalformed,
// ErrTooLarge or ErrCompressed, or is that of the operating system.
func Open(path string) (*File, error) {
	flags := os.O_RDONLY
	if runtime.GOOS != "windows" {
		flags |= syscall.O_NONBLOCK // opening a FIFO does not wait for a writer
	}
	file, err := os.OpenFile(path, flags, 0)
	if err != nil {
		return nil, err
	}
	f, err := New(file)
	if err != nil {
		file.Close()
		return nil, err
	}
	f.closer = file
	return f, nil
}

// New reads an ELF file from r. Close does not close r. Errors are those of
// Open.
func New(r io.ReaderAt) (*File, error) {
	f := &File{reader: r}
	if file, ok := r.(*os.File); ok {
		f.Name = file.Name()
	}
	if err := f.readHeaders(); err != nil {
		if f.Name != "" {
			err = fmt.Errorf("%s: %w", f.Name, err)
		}
		return nil, err
	}
	return f, nil
}

// NewNotes returns a file of which only the section .note.stapsdt is known, the
// header, the address of .stapsdt.base if that is not 0, and the segments. A
// file without segments counts as a debug file.
func NewNotes(section []byte, words Words, header elf.FileHeader, base uint64, segments []Segment,
) *File {
	return &File{Words: words, Type: header.Type, Machine: header.Machine, Segments: segments,
		IsDebugFile: len(segments) == 0, ProbeBase: base, HasProbeBase: base != 0,
		ProbeNotes: []Section{{Kind: elf.SHT_NOTE, Size: uint64(len(section)), Align: 4}},
		reader:     bytes.NewReader(section)}
}

// Close closes the file if Open opened it, once.
func (f *File) Close() (err error) {
	f.close.Do(func() {
		if f.closer != nil {
			err = f.closer.Close()
		}
	})
	return err
}

// Reader returns what the file is read from.
func (f *File) Reader() io.ReaderAt { return f.reader }

// Internal is the parameter of methods by which the readers of this module are
// recognised: no caller's has one.
type Internal struct{}

// OSFile returns the open file that a File, or one of package elfnote, is read
// from, or nil if it is read from something else.
func OSFile(f interface{ Reader() io.ReaderAt }) *os.File {
	file, _ := f.Reader().(*os.File)
	return file
}

// ReadAt implements io.ReaderAt.
func (f *File) ReadAt(p []byte, off int64) (int, error) {
	if f.Late != nil {
		if err := f.Late(); err != nil {
			return 0, err
		}
	}
	return f.reader.ReadAt(p, off)
}

// Over returns a file of the same byte order and word size, whose contents are
// data: a part of f that was unpacked. Its symbols are moved as those of f.
func (f *File) Over(data []byte) *File {
	return &File{Words: f.Words, Late: f.Late, Moved: f.Moved, reader: bytes.NewReader(data)}
}

func (f *File) Class() elf.Class {
	if f.Words.Wide {
		return elf.ELFCLASS64
	}
	return elf.ELFCLASS32
}

// HasCode reports whether the file holds code that runs at the addresses and
// offsets of its segments. A separate debug file and an object file do not.
func (f *File) HasCode() bool { return !f.IsDebugFile && f.Type != elf.ET_REL }

// Reasons why a file, or a part of it, cannot be read. Errors wrap them with
// the context: compare with errors.Is.
var (
	// ErrNotELF means that the file does not start with the ELF magic bytes.
	ErrNotELF = errors.New("not an ELF file")
	// ErrMalformed means that the file is ELF, but not of a form that can be
	// read. ErrFileType, ErrTruncated and ErrCompressed are ErrMalformed, too.
	ErrMalformed = errors.New("malformed ELF file")
	// ErrFileType means that the ELF file is not an executable, a library or an
	// object file but, for example, a core dump.
	ErrFileType error = malformedError("not an executable, a library or an object file")
	// ErrTruncated means that the file ends before the end of a range that its
	// headers give.
	ErrTruncated error = malformedError("file is truncated")
	// ErrTooLarge means that a part of the file is larger than this package is
	// willing to read, which is far above what tool chains produce.
	ErrTooLarge = errors.New("larger than any real file's")
	// ErrCompressed means that a section is compressed (SHF_COMPRESSED), which
	// loaders and tracers do not support for notes and symbols. llvm-objcopy
	// --compress-sections=SECTION=none makes a copy without compression;
	// --decompress-debug-sections, which GNU objcopy has, does not.
	ErrCompressed error = malformedError("section is compressed (llvm-objcopy --compress-sections=SECTION=none makes a copy without compression)")
	// ErrSymbolNotFound means that neither symbol table defines the symbol.
	ErrSymbolNotFound = errors.New("not defined in the file")
	// ErrSymbolAmbiguous means that several symbols of the name have different
	// addresses.
	ErrSymbolAmbiguous = errors.New("defined at several addresses")
	// ErrNoPLTGOT means that the file has no global offset table.
	ErrNoPLTGOT = errors.New("no global offset table")
	// ErrNoBuildID means that the file was linked without --build-id.
	ErrNoBuildID = errors.New("no build ID")
)

// TooLarge returns an error that is ErrTooLarge and has the text of err, for
// limits that real files may exceed.
func TooLarge(err error) error { return tooLargeError{err} }

type tooLargeError struct{ error }

func (tooLargeError) Is(target error) bool { return target == ErrTooLarge }
func (e tooLargeError) Unwrap() error      { return e.error }

// malformedError is also ErrMalformed.
type malformedError string

func (e malformedError) Error() string        { return string(e) }
func (e malformedError) Is(target error) bool { return target == ErrMalformed }

// NoteError is a note of a probe that is malformed. It affects no other note.
type NoteError struct {
	// Index is the number of the note in the file, from 0. It counts the notes
	// of every owner in all .note.stapsdt sections, in the order of the file,
	// in which readelf -n prints them.
	Index int
	// Provider and Name are those of the probe, or "" if they cannot be read.
	Provider, Name string
	Err            error // the cause
}

// Error quotes provider and name, which are arbitrary bytes.
func (e *NoteError) Error() string {
	if e.Provider == "" && e.Name == "" {
		return fmt.Sprintf("note %d: %v", e.Index, e.Err)
	}
	return fmt.Sprintf("note %d, probe %s: %v", e.Index,
		strconv.Quote(ShortName(e.Provider)+":"+ShortName(e.Name)), e.Err)
}

func (e *NoteError) Unwrap() error { return e.Err }

// maxShownName is how many bytes are shown of a provider, and of a probe's
// name: those of untrusted files may have megabytes.
const maxShownName = 128

// ShortName returns a provider or a probe's name as it is shown.
func ShortName(s string) string { return Shorten(s, maxShownName) }

// Shorten returns a text of at most max bytes: a longer one ends in "...".
func Shorten(s string, max int) string {
	const dots = "..."
	if len(s) <= max {
		return s
	}
	end := max - len(dots)
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + dots
}
