// SPDX-License-Identifier: BSD-2-Clause

package elffile

import (
	"debug/elf"
	"fmt"
	"io"
	"os"
	"sync"
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

	// Segments are the PT_LOAD segments, in the order of the file.
	Segments []Segment

	// ProbeNotes are the sections named .note.stapsdt, in the order of the
	// file.
	ProbeNotes []Section

	// ProbeBase is the address of the section .stapsdt.base, if there is one.
	ProbeBase    uint64
	HasProbeBase bool

	// Frames is the section .eh_frame, FramesIndex the segment
	// PT_GNU_EH_FRAME: of no size where there is none.
	Frames      Section
	FramesIndex Segment

	reader io.ReaderAt
	closer io.Closer // nil where the caller closes the reader
	close  sync.Once
	name   string
	path   string // that Open was given, "" with New

	noteSegments []noteSegment
	dynamic      Segment // PT_DYNAMIC, of size 0 where there is none
	sections     table
	buildIDNotes Section // .note.gnu.build-id, of size 0 where there is none
	debugLink    Section // .gnu_debuglink, of size 0 where there is none
	gotPLT       uint64  // address of .got.plt, 0 where there is none

	interpreter Segment // PT_INTERP, of size 0 where there is none

	// relocations of ProbeNotes, by the indices of those.
	relocations map[uint32]Section

	symbols symbols

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

// Open opens the ELF file at path.
//
// The error wraps ErrNotELF, ErrFileType, ErrTruncated, ErrMalformed,
// ErrTooLarge or ErrCompressed, or is that of the operating system.
func Open(path string) (*File, error) {
	f := new(File)
	if err := f.ReadFile(path); err != nil {
		return nil, err
	}
	return f, nil
}

// New reads an ELF file from r. Close does not close r. Errors are those of
// Open.
func New(r io.ReaderAt) (*File, error) {
	f := new(File)
	if err := f.Read(r); err != nil {
		return nil, err
	}
	return f, nil
}

// ReadFile is [Open] for a File that is a part of something.
func (f *File) ReadFile(path string) error {
	file, err := os.OpenFile(path, os.O_RDONLY|openFlags, 0)
	if err != nil {
		return err
	}
	if err := f.Read(file); err != nil {
		file.Close()
		return err
	}
	f.closer, f.path = file, path
	return nil
}

// Read is [New] for a File that is a part of something.
func (f *File) Read(r io.ReaderAt) error {
	f.reader = r
	if file, ok := r.(*os.File); ok {
		f.name = file.Name()
	}
	if err := f.readHeaders(); err != nil {
		if f.name != "" {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		return err
	}
	return nil
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
