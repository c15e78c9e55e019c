// SPDX-License-Identifier: BSD-2-Clause

package elfnote

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"sync"
)

// File is an opened ELF file. Its headers are read and checked when it is
// opened; notes, symbols and all else are read when they are asked for.
// Several goroutines may use a File at once.
type File struct {
	reader io.ReaderAt
	closer io.Closer // nil where the caller closes the reader
	close  sync.Once
	name   string

	words    words
	fileType elf.Type
	machine  elf.Machine
	kind     Kind

	segments     []Segment // PT_LOAD, in file order
	code         Segment   // see usualCode
	noteSegments []noteSegment
	dynamic      Segment // PT_DYNAMIC, of size 0 where there is none
	sections     table
	base         uint64 // address of .stapsdt.base
	hasBase      bool
	buildIDNotes section // .note.gnu.build-id, of size 0 where there is none
	gotPLT       uint64  // address of .got.plt, 0 where there is none

	noteSections []section // those named .note.stapsdt, in file order

	symbols symbols
}

// Kind tells what can be done with a file's probes.
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
	// Relocatable is an object file (ET_REL). It has no segments, and the
	// locations in its notes are what the assembler left for the linker to fill
	// in, zero on most machines. Its probes can be listed.
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
	file, err := os.OpenFile(path, os.O_RDONLY|openFlags, 0)
	if err != nil {
		return nil, err
	}
	f, err := NewFile(file)
	if err != nil {
		file.Close()
		return nil, err
	}
	f.closer = file
	return f, nil
}

// NewFile reads an ELF file from r, which may be an *os.File: the offset of its
// descriptor does not matter and is not changed. Close does not close r. Errors
// are those of Open.
func NewFile(r io.ReaderAt) (*File, error) {
	f := &File{reader: r}
	if file, ok := r.(*os.File); ok {
		f.name = file.Name()
	}
	if err := f.readHeaders(); err != nil {
		if f.name != "" {
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
		return nil, err
	}
	return f, nil
}

// Close closes the file if Open opened it. Sites and probes already read remain
// valid. Only the first call does something.
func (f *File) Close() (err error) {
	f.close.Do(func() {
		if f.closer != nil {
			err = f.closer.Close()
		}
	})
	return err
}

// OSFile returns the open file that is read, or nil where NewFile was given
// another kind of reader.
func (f *File) OSFile() *os.File {
	file, _ := f.reader.(*os.File)
	return file
}

// Name returns the path given to Open, or the name of the *os.File given to
// NewFile, or "".
func (f *File) Name() string { return f.name }

// ReadAt reads bytes of the file, as io.ReaderAt says.
func (f *File) ReadAt(p []byte, off int64) (int, error) { return f.reader.ReadAt(p, off) }

// Machine returns the machine the file's code is for.
func (f *File) Machine() elf.Machine { return f.machine }

// Class returns ELFCLASS32 or ELFCLASS64: whether addresses have 4 or 8 bytes.
func (f *File) Class() elf.Class {
	if f.words.wide {
		return elf.ELFCLASS64
	}
	return elf.ELFCLASS32
}

// ByteOrder returns binary.LittleEndian or binary.BigEndian.
func (f *File) ByteOrder() binary.ByteOrder { return f.words.order() }

// Type returns the type in the ELF header: ET_EXEC, ET_DYN or ET_REL.
func (f *File) Type() elf.Type { return f.fileType }

// Kind returns what the file is good for.
func (f *File) Kind() Kind { return f.kind }
