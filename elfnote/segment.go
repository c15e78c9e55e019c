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
	return address >= s.Address && size <= s.FileSize && address-s.Address <= s.FileSize-size
}

// inMemory tells whether size bytes at address are in the segment.
func (s *Segment) inMemory(address, size uint64) bool {
	return address >= s.Address && size <= s.MemorySize && address-s.Address <= s.MemorySize-size
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

// programHeaders goes through the program headers and picks those that matter.
func (f *File) programHeaders(w *window, t table) error {
	f.segments = make([]Segment, 0, 4) // a usual number
	for i := range t.count {
		b, err := w.record(t, i)
		if err != nil {
			return fmt.Errorf("program header %d: %w", i, err)
		}
		s := decodeSegment(f.words, b)
		switch elf.ProgType(f.words.uint32(b)) {
		case elf.PT_LOAD:
			if s.Offset+s.FileSize < s.Offset {
				return fmt.Errorf("program header %d: offset %#x and size %#x: %w", i, s.Offset, s.FileSize, ErrMalformed)
			}
			if len(f.segments) == maxSegments {
				return fmt.Errorf("more than %d segments: %w", maxSegments, ErrTooLarge)
			}
			f.segments = append(f.segments, s)
		case elf.PT_DYNAMIC:
			f.dynamic = s
		case elf.PT_NOTE:
			if len(f.noteSegments) < maxSegments {
				// The alignment is the last word of the header.
				align := f.words.address(b[len(b)-f.words.size():])
				f.noteSegments = append(f.noteSegments, noteSegment{s.Offset, s.FileSize, noteAlign(align)})
			}
		}
	}
	f.code = usualCode(f.segments)
	return nil
}

// usualCode returns the part of the first executable segment in which a site
// has a file offset that is not 0, or an empty segment. It does not wrap
// around.
func usualCode(segments []Segment) Segment {
	i := slices.IndexFunc(segments, func(s Segment) bool { return s.Flags&elf.PF_X != 0 })
	if i < 0 {
		return Segment{}
	}
	s := segments[i]
	if s.FileSize == 0 || s.Address+s.FileSize < s.Address {
		return Segment{}
	}
	if s.Offset == 0 {
		s.Address, s.Offset, s.FileSize = s.Address+1, 1, s.FileSize-1
	}
	return s
}

func decodeSegment(w words, b []byte) Segment {
	if w.wide {
		return Segment{
			Flags:      elf.ProgFlag(w.uint32(b[4:])),
			Offset:     w.uint64(b[8:]),
			Address:    w.uint64(b[16:]),
			FileSize:   w.uint64(b[32:]),
			MemorySize: w.uint64(b[40:]),
		}
	}
	return Segment{
		Offset:     uint64(w.uint32(b[4:])),
		Address:    uint64(w.uint32(b[8:])),
		FileSize:   uint64(w.uint32(b[16:])),
		MemorySize: uint64(w.uint32(b[20:])),
		Flags:      elf.ProgFlag(w.uint32(b[24:])),
	}
}
