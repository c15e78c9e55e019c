// SPDX-License-Identifier: BSD-2-Clause

// Package debuginfo reads what files of other programs say for debuggers:
// DWARF, functions, and the separate debug files and caches in which these are
// when they were stripped. Attaching to probes does not need it. It is built on
// package elffile, and hardened as that is.
package debuginfo

import (
	"bytes"
	"cmp"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"
	"time"

	"github.com/gousdt/gousdt/internal/elffile"
)

// File is an opened ELF file, as [elffile.File], of which more can be read.
type File struct {
	*elffile.File
	path string // as given to Open, "" with New
}

// Open opens the ELF file at path. Errors are those of [elffile.Open].
func Open(path string) (*File, error) {
	f, err := elffile.Open(path)
	if err != nil {
		return nil, err
	}
	return &File{f, path}, nil
}

// New reads an ELF file from r. Close does not close r. Errors are those of
// [elffile.Open].
func New(r io.ReaderAt) (*File, error) {
	f, err := elffile.New(r)
	if err != nil {
		return nil, err
	}
	return &File{File: f}, nil
}

func (f *File) late() error {
	if f.Late == nil {
		return nil
	}
	return f.Late()
}

// unhurried reads blocks from a reader unless the File is late.
type unhurried struct {
	io.Reader
	of *File
}

func (r unhurried) Read(p []byte) (int, error) {
	if err := r.of.late(); err != nil {
		return 0, err
	}
	return r.Reader.Read(p[:min(len(p), elffile.ChunkSize)])
}

// unpackedSize returns how many bytes Unpack returns at most.
func unpackedSize(s *elffile.Section) uint64 {
	if s.Flags&elf.SHF_COMPRESSED == 0 {
		return s.Size
	}
	return min(s.Size, maxUnpacked/maxUnpackedRatio) * maxUnpackedRatio
}

// Unpack returns the contents of a section, decompressed if it is compressed
// (SHF_COMPRESSED), with zlib or zstd. It fails with ErrTooLarge if the section
// is larger than compilers make it, with ErrTruncated or ErrMalformed, or with
// an error of the reader.
func (f *File) Unpack(s elffile.Section) ([]byte, error) {
	if s.Size > maxUnpacked {
		return nil, fmt.Errorf("section of %d bytes: %w", s.Size, elffile.ErrTooLarge)
	}
	packed, err := f.ReadRange(s.Offset, s.Size)
	if err != nil || s.Flags&elf.SHF_COMPRESSED == 0 {
		return packed, err
	}
	header := 3 * f.Words.Size()
	if len(packed) < header {
		return nil, fmt.Errorf("compressed section: %w", elffile.ErrTruncated)
	}
	kind, size := f.Words.Uint32(packed), f.Words.Address(packed[f.Words.Size():])
	if size > unpackedSize(&s) {
		return nil, fmt.Errorf("section of %d bytes from %d: %w", size, s.Size, elffile.ErrTooLarge)
	}
	// Package debug/elf only decompresses sections of files: make a file with
	// just this section.
	ident := [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB),
		byte(elf.EV_CURRENT)}
	const headerSize, sectionSize = 64, 64
	const start = headerSize + 2*sectionSize
	file := new(bytes.Buffer)
	for _, part := range []any{
		elf.Header64{Ident: ident, Type: uint16(elf.ET_REL), Version: 1, Shoff: headerSize,
			Ehsize: headerSize, Shentsize: sectionSize, Shnum: 2},
		elf.Section64{},
		elf.Section64{Type: uint32(elf.SHT_PROGBITS), Flags: uint64(elf.SHF_COMPRESSED),
			Off: start, Size: uint64(24 + len(packed) - header)},
		elf.Chdr64{Type: kind, Size: size, Addralign: 1},
		packed[header:],
	} {
		_ = binary.Write(file, binary.LittleEndian, part) // to memory
	}
	all, err := elf.NewFile(bytes.NewReader(file.Bytes()))
	if err != nil {
		return nil, fmt.Errorf("compressed section: %w: %w", elffile.ErrMalformed, err)
	}
	out := bytes.NewBuffer(make([]byte, 0, min(size, elffile.ChunkSize)))
	n, err := io.Copy(out, unhurried{io.LimitReader(all.Sections[1].Open(), int64(size)+1), f})
	if err != nil || n != int64(size) {
		return nil, fmt.Errorf("compressed section: %w: %d of %d bytes: %w", elffile.ErrMalformed, n, size,
			cmp.Or(err, io.ErrUnexpectedEOF))
	}
	return out.Bytes(), nil
}

// The limits of this package, as those of package elffile.
const (
	// maxSearches bounds how often a debug file is searched for one symbol
	// after another: those with one or two letters, or other bytes than names
	// have. The search for all others is one.
	maxSearches = 256

	// maxFunctions bounds the functions of a symbol table. A browser with all
	// its symbols has about a million.
	maxFunctions = 2 << 20

	// maxGoSteps bounds the steps to the line of an address in a Go function.
	maxGoSteps = 1 << 20

	// maxGiven bounds the returned names that are cached for a symbol table.
	maxGiven = 1 << 12

	// maxDebugLink bounds the section .gnu_debuglink, in bytes. It has a name
	// of up to 255 bytes, the longest that file systems have, and a checksum.
	maxDebugLink = 512

	// maxChecked bounds a debug file that is read as a whole for its checksum,
	// which takes some tenths of a second. Those of browsers are larger, and
	// have build IDs.
	maxChecked = 256 << 20

	// maxMiniDebug bounds the file in a section .gnu_debugdata, in bytes.
	// maxMiniRatio bounds the ratio of its size to that of the section. Symbol
	// tables shrink to a quarter at best, and those of the largest programs
	// have some 20 MB. maxDictionary is that of xz -9.
	maxMiniDebug  = 64 << 20
	maxMiniRatio  = 32
	maxDictionary = 64 << 20

	// maxUnpacked bounds a section that is held in memory as a whole, in bytes.
	// maxUnpackedRatio bounds the ratio of its size to its compressed size.
	maxUnpacked      = 256 << 20
	maxUnpackedRatio = 32

	// maxDWARF bounds the bytes of debugging information that are read. A large
	// Java virtual machine has 200 MB, in some thousand units. A browser has
	// gigabytes, and is refused. maxRanges bounds each section with ranges,
	// since an entry may have all of them. MaxReading bounds the time to find
	// one member.
	maxDWARF   = 384 << 20
	maxRanges  = 32 << 20
	MaxReading = 4 * time.Second

	// maxUnits bounds the compilation units, and maxAbbreviations the bytes of
	// all abbreviation tables that they name: these grow most in memory.
	maxUnits         = 1 << 17
	maxAbbreviations = 8 << 20

	// maxAttributes bounds the attributes of an entry: compilers write up to
	// thirty.
	maxAttributes = 128

	// MaxDebugString bounds a string of the debugging information, in bytes.
	// Names of templates reach some kilobytes.
	MaxDebugString = 16 << 10

	// maxTypeNames bounds the typedefs and qualifiers of a type. maxPointers
	// bounds the pointers on the way to a member: each one is read at every
	// hit.
	maxTypeNames = 64
	maxPointers  = 8

	// maxMemberOffset bounds the size of a structure: the stack of a thread
	// would not hold a larger one.
	maxMemberOffset = 1 << 24

	// MaxMembers bounds the members that are searched for in one file.
	MaxMembers = 256

	// maxAlternative bounds the section .gnu_debugaltlink: a path and a build
	// ID.
	maxAlternative = 5 << 10
)
