// SPDX-License-Identifier: BSD-2-Clause

package elfnote

import (
	"debug/elf"
	"fmt"
	"iter"
	"slices"
)

// Segment is a PT_LOAD program header: a piece of the file that is mapped into
// memory when the file runs.
type Segment struct {
	// Address is the virtual address of the first byte, as linked.
	Address uint64
	// Offset is the first byte's place in the file.
	Offset uint64
	// FileSize is the number of bytes that come from the file.
	FileSize uint64
	// MemorySize is the number of bytes in memory. Those past FileSize are
	// zeroed: the bss.
	MemorySize uint64
	// Flags are the rights: elf.PF_R, elf.PF_W and elf.PF_X.
	Flags elf.ProgFlag
}

// inFile tells whether size bytes at address come from the file.
func (s *Segment) inFile(address, size uint64) bool {
	return address >= s.Address && address-s.Address < s.FileSize && s.FileSize-(address-s.Address) >= size
}

// inMemory tells whether size bytes at address are in the segment.
func (s *Segment) inMemory(address, size uint64) bool {
	return address >= s.Address && address-s.Address < s.MemorySize && s.MemorySize-(address-s.Address) >= size
}

// Segments returns the PT_LOAD segments in the order of the file. Those of a
// DebugFile have the addresses of the original, but their offsets and file
// sizes mean nothing.
func (f *File) Segments() iter.Seq[Segment] { return slices.Values(f.segments) }

// Offset returns the place in the file of the byte that is at a virtual address
// when the file runs. It fails with ErrNotMapped where no segment has the
// address in its part that comes from the file, and with ErrNoCode for a
// DebugFile or a Relocatable.
func (f *File) Offset(address uint64) (uint64, error) {
	if f.kind == DebugFile || f.kind == Relocatable {
		return 0, fmt.Errorf("offset of address %#x: %w", address, ErrNoCode)
	}
	if s := f.segment(address, 1, 0); s != nil {
		return address - s.Address + s.Offset, nil
	}
	return 0, fmt.Errorf("offset of address %#x: %w", address, ErrNotMapped)
}

// segment returns the first segment with all of the given rights that has size
// bytes at address in its file part, or nil.
func (f *File) segment(address, size uint64, rights elf.ProgFlag) *Segment {
	for i := range f.segments {
		if s := &f.segments[i]; s.Flags&rights == rights && s.inFile(address, size) {
			return s
		}
	}
	return nil
}
