// SPDX-License-Identifier: BSD-2-Clause

package elfnote

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"

	"github.com/gousdt/gousdt/internal/elffile"
)

// File is an opened ELF file. Its headers are read and checked when it is
// opened; notes, symbols and all else are read when they are asked for.
// Several goroutines may use a File at once.
type File struct {
	elf     elffile.File
	kind    Kind
	code    Segment // see usualCode
	symbols symbols
}

// Segment is a PT_LOAD program header: a piece of the file that is mapped into
// memory when the file runs.
type Segment = elffile.Segment

// Kind says what can be done with a file's probes.
type Kind uint8

const (
	// Executable is an ET_EXEC: it runs at the addresses it was linked for.
	Executable Kind = iota + 1
	// PositionIndependent is an ET_DYN: a shared library or a PIE, which runs
	// at an address chosen when it is loaded.
	PositionIndependent
	// DebugFile is what strip or objcopy --only-keep-debug split off an
	// executable or library: it has the notes and all addresses, but not the
	// code. Its program headers are those of the original file, whose offsets
	// mean nothing in this one. Its probes can be listed; nothing can be
	// attached.
	DebugFile
	// Relocatable is an object file (ET_REL). It has no segments: locations and
	// semaphores count from the start of their sections. Its probes can be
	// listed.
	Relocatable
)

// String returns the kind in words.
func (k Kind) String() string {
	switch k {
	case Executable:
		return "executable"
	case PositionIndependent:
		return "position-independent file"
	case DebugFile:
		return "separate debug file"
	case Relocatable:
		return "object file"
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// Open opens the ELF file at path. The file stays open until Close, so that
// what is read from it, and what is attached to it through its descriptor,
// remains the same file whatever happens to the path.
//
// The error wraps ErrNotELF, ErrFileType, ErrTruncated, ErrMalformed,
// ErrTooLarge or ErrCompressed, or is that of the operating system.
func Open(path string) (*File, error) {
	f := new(File)
	if err := f.elf.Open(path); err != nil {
		return nil, err
	}
	f.prepare()
	return f, nil
}

// NewFile reads an ELF file from r, which may be an *os.File: the offset of its
// descriptor does not matter and is not changed. Close does not close r. Errors
// are those of Open.
func NewFile(r io.ReaderAt) (*File, error) {
	f := new(File)
	if err := f.elf.Read(r); err != nil {
		return nil, err
	}
	f.prepare()
	return f, nil
}

// prepare finds what the headers say of all probes.
func (f *File) prepare() {
	switch {
	case f.elf.Type == elf.ET_REL:
		f.kind = Relocatable
	case f.elf.IsDebugFile:
		f.kind = DebugFile
	case f.elf.Type == elf.ET_EXEC:
		f.kind = Executable
	default:
		f.kind = PositionIndependent
	}
	f.code = usualCode(f.elf.Segments)
}

// Close closes the file if Open opened it, and its separate debug file. Sites
// and probes already read remain valid. Only the first call does something.
func (f *File) Close() error {
	f.symbols.close()
	return f.elf.Close()
}

// OSFile returns the open file that is read, or nil where NewFile was given
// another kind of reader.
func (f *File) OSFile() *os.File { return f.elf.OSFile() }

// Name returns the path given to Open, or the name of the *os.File given to
// NewFile, or "".
func (f *File) Name() string { return f.elf.Name() }

// ReadAt reads bytes of the file, as io.ReaderAt says.
func (f *File) ReadAt(p []byte, off int64) (int, error) { return f.elf.ReadAt(p, off) }

// Machine returns the machine the file's code is for.
func (f *File) Machine() elf.Machine { return f.elf.Machine }

// Class returns ELFCLASS32 or ELFCLASS64: whether addresses have 4 or 8 bytes.
func (f *File) Class() elf.Class { return f.elf.Class() }

// ByteOrder returns binary.LittleEndian or binary.BigEndian.
func (f *File) ByteOrder() binary.ByteOrder { return f.elf.Words.Order() }

// Type returns the type in the ELF header: ET_EXEC, ET_DYN or ET_REL.
func (f *File) Type() elf.Type { return f.elf.Type }

// IsProgram reports whether the file is a program and not a library: whether it
// is an ET_EXEC, or an ET_DYN that is marked as position-independent executable.
// The symbols of a library can be replaced by those of another file that is
// loaded with it.
func (f *File) IsProgram() bool { return f.elf.IsProgram() }

// Kind returns what the file is good for.
func (f *File) Kind() Kind { return f.kind }

// Segments returns the PT_LOAD segments in the order of the file. Those of a
// DebugFile have the addresses of the original, but their offsets and file
// sizes mean nothing.
func (f *File) Segments() iter.Seq[Segment] { return slices.Values(f.elf.Segments) }

// Offset returns the place in the file of the byte that is at a virtual address
// when the file runs. It fails with ErrNotMapped where no segment has the
// address in its part that comes from the file, and with ErrNoCode for a
// DebugFile or a Relocatable.
func (f *File) Offset(address uint64) (uint64, error) { return f.elf.Offset(address) }

// BuildID returns the GNU build ID in lower-case hexadecimal, by which a file
// and its separate debug file know each other. It fails with ErrNoBuildID,
// ErrTruncated, ErrCompressed, or an error of the reader.
func (f *File) BuildID() (string, error) { return f.elf.BuildID() }
