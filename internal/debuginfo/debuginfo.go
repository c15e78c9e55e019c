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
	if s.Flags&elf.SHF_COMPRESSED == 0 {
		return f.ReadRange(s.Offset, s.Size)
	}
	packed, err := f.ReadRange(s.Offset, s.Size)
	if err != nil {
		return nil, err
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
