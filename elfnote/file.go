// SPDX-License-Identifier: BSD-2-Clause

package elfnote

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"
	"os"

	"github.com/gousdt/gousdt/internal/elffile"
)

// File is an opened ELF file. [Open] and [NewFile] read and check its headers.
// Notes, symbols and everything else are read when they are asked for. Several
// goroutines may use a File at once.
type File struct {
	elf     elffile.File
	kind    Kind
	code    elffile.Segment // see usualCode; empty if nothing can be attached
	symbols symbols
}

// Kind says what can be done with the probes of a file.
type Kind uint8

const (
	// Executable is a program that runs at the addresses it was linked for
	// (ET_EXEC).
	Executable Kind = iota + 1
	// PositionIndependent is a shared library or a position-independent
	// executable, which runs at an address that is chosen when it is loaded
	// (ET_DYN).
	PositionIndependent
	// DebugFile is what strip or objcopy --only-keep-debug split off an
	// executable or library. It has the notes and all addresses, but not the
	// code: its probes can be listed, and nothing can be attached to it.
	DebugFile
	// Relocatable is an object file (ET_REL). It has no segments: locations and
	// semaphores count from the start of their sections. Its probes can be
	// listed, and nothing can be attached to it.
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

// Open opens the ELF file at path. The file stays open until Close. So it
// remains the same file, whatever happens to the path, for what is read from it
// later and for what is attached to its descriptor.
//
// The error wraps ErrNotELF, ErrMalformed or ErrTooLarge, or is that of the
// operating system.
func Open(path string) (*File, error) {
	f := new(File)
	if err := f.elf.ReadFile(path); err != nil {
		return nil, err
	}
	f.prepare()
	return f, nil
}

// NewFile reads an ELF file from r, which may be an *os.File: the offset of its
// descriptor does not matter and is not changed. Close does not close r. Errors
// are those of [Open].
func NewFile(r io.ReaderAt) (*File, error) {
	f := new(File)
	if err := f.elf.Read(r); err != nil {
		return nil, err
	}
	f.prepare()
	return f, nil
}

// prepare finds what the headers say about all probes.
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
	if f.elf.HasCode() {
		f.code = usualCode(f.elf.Segments)
	}
}

// Close closes the file if Open opened it, and its separate debug file. Sites
// and probes that have been read remain valid. Only the first call does
// something.
func (f *File) Close() error {
	f.symbols.close()
	return f.elf.Close()
}

// OSFile returns the open file that is read, or nil if NewFile was given
// another kind of reader.
func (f *File) OSFile() *os.File { return f.elf.OSFile() }

// Name returns the path given to Open, or the name of the *os.File given to
// NewFile, or "".
func (f *File) Name() string { return f.elf.Name() }

// ReadAt reads bytes of the file, as [io.ReaderAt] says.
func (f *File) ReadAt(p []byte, off int64) (int, error) { return f.elf.ReadAt(p, off) }

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

// IsProgram reports whether the file is a program and not a library: whether it
// is an ET_EXEC, or an ET_DYN that is marked as position-independent
// executable. The symbols of a library can be replaced by those of another file
// that is loaded with it.
func (f *File) IsProgram() bool { return f.elf.IsProgram() }

// Kind returns what can be done with the probes of the file.
func (f *File) Kind() Kind { return f.kind }

// BuildID returns the GNU build ID in lower-case hexadecimal, by which a file
// and its separate debug file know each other. It fails if the file has none,
// or if it cannot be read.
func (f *File) BuildID() (string, error) { return f.elf.BuildID() }
