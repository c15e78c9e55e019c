// SPDX-License-Identifier: BSD-2-Clause

package elfnote

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/gousdt/gousdt/internal/elffile"
)

// File is an opened ELF file. [Open] and [NewFile] read and check its headers.
// Notes, symbols and everything else are read when they are asked for. Several
// goroutines may use a File at once.
type File struct {
	elf     *elffile.File
	code    elffile.Segment // see usualCode; empty if nothing can be attached
	symbols symbols
}

// Open opens the ELF file at path. The file stays open until Close. So it
// remains the same file, whatever happens to the path, for what is read from it
// later and for what is attached to its descriptor.
//
// The error wraps [ErrNotELF] if the file is none.
func Open(path string) (*File, error) {
	return newFile(elffile.Open(path))
}

// NewFile reads an ELF file from r, which may be an *os.File: the offset of its
// descriptor does not matter and is not changed. Close does not close r. Errors
// are those of [Open].
func NewFile(r io.ReaderAt) (*File, error) {
	return newFile(elffile.New(r))
}

func newFile(read *elffile.File, err error) (*File, error) {
	if err != nil {
		return nil, err
	}
	f := &File{elf: read}
	if read.HasCode() {
		f.code = usualCode(f.elf.Segments)
	}
	return f, nil
}

// Close closes the file if Open opened it, and its separate debug file. Sites
// and probes that have been read remain valid. Only the first call does
// something.
func (f *File) Close() error {
	f.symbols.close()
	return f.elf.Close()
}

// OSFile returns the open file that is read, which has the name that Open was
// given, or nil if NewFile was given another kind of reader.
func (f *File) OSFile() *os.File { return f.elf.OSFile() }

// Header returns what the ELF header says of the file as a whole: its Class
// (whether addresses have 4 or 8 bytes), Data and ByteOrder, its Type (ET_EXEC,
// ET_DYN or ET_REL), and the Machine that its code is for. The other fields are
// not set.
func (f *File) Header() elf.FileHeader {
	header := elf.FileHeader{
		Class: f.elf.Class(), Data: elf.ELFDATA2LSB, ByteOrder: f.elf.Words.Order(),
		Type: f.elf.Type, Machine: f.elf.Machine,
	}
	if header.ByteOrder == binary.ByteOrder(binary.BigEndian) {
		header.Data = elf.ELFDATA2MSB
	}
	return header
}

// IsDebugFile reports whether the file is what strip or objcopy
// --only-keep-debug split off an executable or library. It has the notes and
// all addresses, but not the code: its probes can be listed, and nothing can be
// attached to it. The same is true of an object file, whose type is ET_REL. Its
// locations and semaphores count from the start of their sections.
func (f *File) IsDebugFile() bool { return f.elf.IsDebugFile && !f.isObject() }

func (f *File) isObject() bool { return f.elf.Type == elf.ET_REL }

// BuildID returns the GNU build ID in lower-case hexadecimal, by which a file
// and its separate debug file know each other. It fails if the file has none,
// or if it cannot be read.
func (f *File) BuildID() (string, error) { return f.elf.BuildID() }

// ErrNotELF means that a file does not start with the ELF magic bytes. Other
// errors of opening and reading say what is malformed or too large, or are
// those of the operating system, or of the reader given to [NewFile].
var ErrNotELF = elffile.ErrNotELF

// errPattern means that a pattern cannot be understood.
var errPattern = errors.New("bad pattern")

// Causes of an [elffile.NoteError].
var (
	// errNoteSize: the sizes in the note's header reach past the end of the
	// section. Where the next note would start is unknown, so nothing after it
	// in that section can be read; it is reported once.
	errNoteSize = errors.New("note reaches past the end of its section")

	errNoteTooShort     = errors.New("descriptor is too short for three addresses and three strings")
	errNoteUnterminated = errors.New("string is not terminated within the descriptor")

	// errLocation: there can be no instruction.
	errLocation = errors.New("location is not in the file part of an executable segment")

	errSemaphore = errors.New("semaphore is not in a writable segment")

	// errSemaphoreInBSS: the kernel identifies a semaphore by its offset in the
	// file, and there is none.
	errSemaphoreInBSS = errors.New("semaphore is in the zeroed tail (bss) of its segment and has no file offset")

	// errSemaphoreUnaligned: uprobe_register in kernel/events/uprobes.c wants
	// it aligned for its two bytes.
	errSemaphoreUnaligned = errors.New("semaphore is at an odd file offset, which the kernel refuses")
)

// addressError is the cause of a NoteError that has to do with an address. It
// is a type of its own to be small: a crafted file has very many of them.
type addressError struct {
	address uint64
	err     error
}

func (e *addressError) Error() string { return fmt.Sprintf("%v: %#x", e.err, e.address) }
func (e *addressError) Unwrap() error { return e.err }

// What this package refuses to read of notes, which are untrusted as all of a
// file is. Each limit is far above anything a tool chain produces. Those of
// headers and symbols are in package elffile.
const (
	// maxNoteBytes bounds the note sections of one file together. 100,000 sites
	// take about 9 MB and the largest real file known to us, libjvm, 50 kB.
	// They are read through a buffer, but their strings are the caller's to
	// hold.
	maxNoteBytes = 64 << 20

	// maxRelocations bounds the relocations of an object file's probes that are
	// read, of which each note has three.
	maxRelocations = 1 << 18

	// maxSectionErrors bounds the errors kept of note sections that cannot be
	// read, of which a crafted file can have as many as sections.
	maxSectionErrors = 16

	// maxArgumentWords bounds the names in arguments that are looked up at
	// once, because they are held in memory: these take 40 MB. Of real files
	// libjvm has the most arguments, 2,000. Further names are looked up one by
	// one, for about a second.
	maxArgumentWords = 1 << 18

	// maxPattern bounds a pattern, because matching takes time in proportion to
	// the pattern's length times the name's.
	maxPattern = 1 << 12

	// maxTextSize bounds the memory that the strings of sites share, which is
	// held as long as one of them is. The strings of a hundred sites fit.
	maxTextSize = 8 << 10
)
