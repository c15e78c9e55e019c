// SPDX-License-Identifier: BSD-2-Clause

package elfnote

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/gousdt/gousdt/internal/elffile"
)

// File is an opened ELF file. [Open] and [NewFile] read and check its headers.
// Notes, symbols and everything else are read when they are asked for. Several
// goroutines may use a File at once.
type File struct {
	elf      *elffile.File
	reader   io.ReaderAt     // of a file that its keeper has read, else nil
	code     elffile.Segment // see usualCode; empty if nothing can be attached
	searched sync.Once       // for the symbols that arguments name
}

// Open opens the ELF file at path. The file stays open until Close, so that
// later reading and attaching use the same file, whatever happens to the path.
//
// The error wraps [ErrNotELF] if the file is not an ELF file.
func Open(path string) (*File, error) {
	return newFile(elffile.Open(path))
}

// NewFile reads an ELF file from r. If that is an *os.File, its file offset is
// neither used nor changed. Close does not close r. Errors are those of [Open].
func NewFile(r io.ReaderAt) (*File, error) {
	if r == nil {
		return nil, errors.New("there is no file to read")
	}
	if kept, ok := r.(interface{ Opened(elffile.Internal) *File }); ok {
		return &File{elf: kept.Opened(elffile.Internal{}).read(), reader: r}, nil
	}
	return newFile(elffile.New(r))
}

func newFile(read *elffile.File, err error) (*File, error) {
	if err != nil {
		return nil, err
	}
	f := &File{elf: read}
	if read.HasCode() {
		f.code = usualCode(f.read().Segments)
	}
	return f, nil
}

// read is an empty file for nil or a zero File.
func (f *File) read() *elffile.File {
	if f == nil || f.elf == nil {
		return noFile()
	}
	return f.elf
}

// noFile must not be inlined: each use in walkProbes would reserve 2 KB of its
// stack for an elffile.File.
//
//go:noinline
func noFile() *elffile.File { return &elffile.File{} }

// Close closes the file if Open opened it. Sites and symbols that have been
// read remain valid; to read others is an error. Further calls do nothing.
func (f *File) Close() error { return f.read().Close() }

// Reader returns what the file is read from: the reader given to NewFile, or
// the *os.File that Open has opened.
func (f *File) Reader() io.ReaderAt {
	if f != nil && f.reader != nil {
		return f.reader
	}
	return f.read().Reader()
}

// Header returns the ELF header with these fields: Class (addresses of 4 or 8
// bytes), Data and ByteOrder, Type (ET_EXEC, ET_DYN or ET_REL), and the Machine
// of the code. The other fields are not set.
func (f *File) Header() elf.FileHeader {
	header := elf.FileHeader{
		Class: f.read().Class(), Data: elf.ELFDATA2LSB, ByteOrder: f.read().Words.Order(),
		Type: f.read().Type, Machine: f.read().Machine,
	}
	if header.ByteOrder == binary.ByteOrder(binary.BigEndian) {
		header.Data = elf.ELFDATA2MSB
	}
	return header
}

// IsDebugFile reports whether strip or objcopy --only-keep-debug split the file
// off an executable or library. Such a file has the notes and all addresses,
// but not the code: its probes can be listed, but not attached to. It is false
// for an object file (ET_REL), which cannot be attached to either, and whose
// locations and semaphores are relative to the start of their sections.
func (f *File) IsDebugFile() bool { return f.read().IsDebugFile && !f.isObject() }

func (f *File) isObject() bool { return f.read().Type == elf.ET_REL }

// BuildID returns the GNU build ID in lower-case hexadecimal, which a file and
// its separate debug file share. It fails if the file has none, or if it cannot
// be read.
func (f *File) BuildID() (string, error) { return f.read().BuildID() }

// ErrNotELF means that a file does not start with the ELF magic bytes. Other
// errors of opening and reading say which part is malformed or too large, or
// are those of the operating system, or of the reader given to [NewFile].
var ErrNotELF = elffile.ErrNotELF

// Causes of a NoteError of package elffile.
var (
	// errNoteSize is reported once for a section: the start of the next note is
	// not known, so that the rest of the section cannot be read.
	errNoteSize = errors.New("note reaches past the end of its section")

	errNoteType         = errors.New("note of a probe has a type that is not known, 3 is")
	errNoteTooShort     = errors.New("descriptor is too short for three addresses and three strings")
	errNoteUnterminated = errors.New("string is not terminated within the descriptor")

	errObjectNotes = errors.New("the notes of an object file need its relocations: open the file")

	errLocation  = errors.New("location is not in the file part of an executable segment")
	errSemaphore = errors.New("semaphore is not in a writable segment")

	// The kernel identifies a semaphore by its file offset.
	errSemaphoreInBSS = errors.New("semaphore is in the zeroed tail (bss) of its segment and has no file offset")

	// mold -z norelro makes such a file.
	errSemaphoreUncounted = errors.New("the kernel counts the semaphore in another writable segment, " +
		"which comes before its own and has the same page of the file")

	// uprobe_register in kernel/events/uprobes.c requires two-byte alignment.
	errSemaphoreUnaligned = errors.New("semaphore is at an odd file offset, which the kernel refuses")
)

// addressError is the cause of a NoteError that is about an address. It is a
// type of its own to be small: a crafted file can cause very many.
type addressError struct {
	address uint64
	err     error
}

func (e *addressError) Error() string { return fmt.Sprintf("%v: %#x", e.err, e.address) }
func (e *addressError) Unwrap() error { return e.err }

// The limits for notes: those for headers and symbols are in package elffile.
const (
	// maxNoteBytes bounds the note sections of one file together. 100,000 sites
	// take about 9 MB. The largest real file known to us, libjvm, has 50 kB.
	// Notes are read through a buffer, but callers may hold their strings.
	maxNoteBytes = 64 << 20

	// maxRelocations bounds the relocations of an object file's probes that are
	// read. Each note has three.
	maxRelocations = 1 << 18

	// maxSectionErrors bounds the errors that are kept about unreadable note
	// sections: a crafted file can have very many.
	maxSectionErrors = 16

	// maxTextSize bounds the memory that the strings of sites share, in bytes.
	// It is held as long as one of the strings is. Those of a hundred sites
	// fit.
	maxTextSize = 8 << 10
)

// IsProgram reports whether the file is a program and not a library: false if
// its dynamic section cannot be read, and for debug files but of ET_EXEC. As
// Header and Symbol, it is a method that [argspec.Decode] wants of a file.
//
// [argspec.Decode]: https://pkg.go.dev/github.com/gousdt/gousdt/argspec#Decode
func (f *File) IsProgram() bool { return f.read().IsProgram() }

// Symbol returns the symbol that is defined under a name: in .symtab, else in
// .dynsym. No other file is read: one of package argspec's interface File may
// also search the separate debug file. The Value is a virtual address, as
// linked, or for a thread-local variable (STT_TLS) the offset in the memory of
// these. Symbol fails if the name is not defined, is defined at several
// addresses, the tables are malformed or too large, or all calls for the file
// have taken more than about a second together.
//
// The symbol _GLOBAL_OFFSET_TABLE_ has the value of DT_PLTGOT, if the file has
// that, also without a symbol table.
//
// The first call searches for all symbols that the arguments of the file's
// probes name: one search takes hardly longer for many names than for one. Each
// other name takes a search of its own.
func (f *File) Symbol(name string) (elf.Symbol, error) {
	if name == elffile.GOT {
		return f.read().GOTSymbol()
	}
	f.searched.Do(func() {
		f.read().FindSymbols(append(elffile.ArgumentWords(f.arguments), name))
	})
	return f.read().Symbol(name)
}

// arguments yields those of all sites.
func (f *File) arguments(yield func(arguments string) bool) {
	for site := range f.Sites() {
		if !yield(site.Arguments) {
			return
		}
	}
}
