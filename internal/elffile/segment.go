// SPDX-License-Identifier: BSD-2-Clause

package elffile

import (
	"debug/elf"
	"fmt"
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

// InFile reports whether size bytes at address come from the file.
func (s *Segment) InFile(address, size uint64) bool {
	return address >= s.Address && size <= s.FileSize && address-s.Address <= s.FileSize-size
}

// InMemory reports whether size bytes at address are in the segment.
func (s *Segment) InMemory(address, size uint64) bool {
	return address >= s.Address && size <= s.MemorySize && address-s.Address <= s.MemorySize-size
}

// Offset returns the place in the file of the byte that is at a virtual address
// when the file runs. It fails with ErrNotMapped where no segment has the
// address in its part that comes from the file, and with ErrNoCode for a
// DebugFile or a Relocatable.
func (f *File) Offset(address uint64) (uint64, error) {
	if !f.HasCode() {
		return 0, fmt.Errorf("offset of address %#x: %w", address, ErrNoCode)
	}
	if s := f.Segment(address, 1, 0); s != nil {
		return address - s.Address + s.Offset, nil
	}
	return 0, fmt.Errorf("offset of address %#x: %w", address, ErrNotMapped)
}

// Segment returns the first segment with all of the given rights that has size
// bytes at address in its file part, or nil.
func (f *File) Segment(address, size uint64, rights elf.ProgFlag) *Segment {
	for i := range f.Segments {
		if s := &f.Segments[i]; s.Flags&rights == rights && s.InFile(address, size) {
			return s
		}
	}
	return nil
}

// programHeaders goes through the program headers and picks those that matter.
func (f *File) programHeaders(w *window, t table) error {
	f.Segments = make([]Segment, 0, 4) // a usual number
	for i := range t.count {
		b, err := w.record(t, i)
		if err != nil {
			return fmt.Errorf("program header %d: %w", i, err)
		}
		s := decodeSegment(f.Words, b)
		switch elf.ProgType(f.Words.Uint32(b)) {
		case elf.PT_LOAD:
			if s.Offset+s.FileSize < s.Offset {
				return fmt.Errorf("program header %d: offset %#x and size %#x: %w", i, s.Offset,
					s.FileSize, ErrMalformed)
			}
			if len(f.Segments) == maxSegments {
				return fmt.Errorf("more than %d segments: %w", maxSegments, ErrTooLarge)
			}
			f.Segments = append(f.Segments, s)
		case elf.PT_DYNAMIC:
			f.dynamic = s
		case elf.PT_INTERP:
			f.interpreter = s
		case elf.PT_GNU_EH_FRAME:
			f.FramesIndex = s
		case elf.PT_NOTE:
			if len(f.noteSegments) < maxSegments {
				// The alignment is the last word of the header.
				align := f.Words.Address(b[len(b)-f.Words.Size():])
				f.noteSegments = append(f.noteSegments, noteSegment{s.Offset, s.FileSize, align})
			}
		}
	}
	return nil
}

func decodeSegment(w Words, b []byte) Segment {
	if w.Wide {
		return Segment{
			Flags:      elf.ProgFlag(w.Uint32(b[4:])),
			Offset:     w.Uint64(b[8:]),
			Address:    w.Uint64(b[16:]),
			FileSize:   w.Uint64(b[32:]),
			MemorySize: w.Uint64(b[40:]),
		}
	}
	return Segment{
		Offset:     uint64(w.Uint32(b[4:])),
		Address:    uint64(w.Uint32(b[8:])),
		FileSize:   uint64(w.Uint32(b[16:])),
		MemorySize: uint64(w.Uint32(b[20:])),
		Flags:      elf.ProgFlag(w.Uint32(b[24:])),
	}
}
