// SPDX-License-Identifier: BSD-2-Clause

package elffile

import (
	"debug/elf"
	"fmt"
)

// The sizes of the file header, of a program header and of a section header.
const (
	headerSize32, programSize32, sectionSize32 = 52, 32, 40
	headerSize64, programSize64, sectionSize64 = 64, 56, 64
)

// header is what the ELF file header says of the two tables of headers.
type header struct {
	programs, sections table
	sectionNames       uint32 // index of the section that holds the names
	extendedPrograms   bool   // the number of program headers is in section 0
	extendedSections   bool   // the number of section headers is in section 0
}

// readHeaders fills in everything that is known of a file after Open: from the
// file header, the program headers, the section headers and the section names.
func (f *File) readHeaders() error {
	w := newWindow(f)
	defer w.close()
	// The program headers nearly always follow the file header: one read brings
	// both. A file shorter than that is no error yet.
	if err := w.start(); err != nil {
		return err
	}
	h, err := f.fileHeader(w.data)
	if err != nil {
		return err
	}
	if err := f.extendedNumbering(w, &h); err != nil {
		return err
	}
	if err := f.programHeaders(w, h.programs); err != nil {
		return err
	}
	return f.sectionHeaders(w, &h)
}

// fileHeader reads the file header, which is at the start of b.
func (f *File) fileHeader(b []byte) (h header, err error) {
	if len(b) < len(elf.ELFMAG) || string(b[:len(elf.ELFMAG)]) != elf.ELFMAG {
		return h, ErrNotELF
	}
	if len(b) < elf.EI_NIDENT {
		return h, fmt.Errorf("file header: %w", ErrTruncated)
	}
	size := headerSize32
	switch class := elf.Class(b[elf.EI_CLASS]); class {
	case elf.ELFCLASS32:
	case elf.ELFCLASS64:
		size, f.Words.Wide = headerSize64, true
	default:
		return h, fmt.Errorf("file header: unknown class %d: %w", class, ErrMalformed)
	}
	switch data := elf.Data(b[elf.EI_DATA]); data {
	case elf.ELFDATA2LSB:
	case elf.ELFDATA2MSB:
		f.Words.Big = true
	default:
		return h, fmt.Errorf("file header: unknown byte order %d: %w", data, ErrMalformed)
	}
	if v := elf.Version(b[elf.EI_VERSION]); v != elf.EV_CURRENT {
		return h, fmt.Errorf("file header: unknown ELF version %d: %w", v, ErrMalformed)
	}
	if len(b) < size {
		return h, fmt.Errorf("file header: %w", ErrTruncated)
	}
	f.Type = elf.Type(f.Words.Uint16(b[16:]))
	f.Machine = elf.Machine(f.Words.Uint16(b[18:]))
	switch f.Type {
	case elf.ET_EXEC, elf.ET_DYN, elf.ET_REL:
	default:
		return h, fmt.Errorf("%v: %w", f.Type, ErrFileType)
	}

	// From the entry point on the words have the size of the class, until the
	// counters, which are sixteen-bit in both.
	word := f.Words.Size()
	programs := f.Words.Address(b[24+word:])
	sections := f.Words.Address(b[24+2*word:])
	counters := b[24+3*word+4+2:]
	h.programs = table{offset: programs, size: int(f.Words.Uint16(counters)),
		count: uint64(f.Words.Uint16(counters[2:]))}
	h.sections = table{offset: sections, size: int(f.Words.Uint16(counters[4:])),
		count: uint64(f.Words.Uint16(counters[6:]))}
	h.sectionNames = uint32(f.Words.Uint16(counters[8:]))

	h.extendedPrograms = h.programs.count == 0xffff // PN_XNUM
	h.extendedSections = h.sections.count == 0 && h.sections.offset != 0
	wantProgram, wantSection := programSize32, sectionSize32
	if f.Words.Wide {
		wantProgram, wantSection = programSize64, sectionSize64
	}
	if h.programs.count > 0 && h.programs.size != wantProgram {
		return h, fmt.Errorf("program headers of %d bytes: %w", h.programs.size, ErrMalformed)
	}
	if h.sections.offset == 0 || h.sections.count == 0 && h.sections.size == 0 {
		h.sections, h.extendedSections = table{}, false
	} else if h.sections.size != wantSection {
		return h, fmt.Errorf("section headers of %d bytes: %w", h.sections.size, ErrMalformed)
	}
	return h, nil
}

// extendedNumbering takes from section 0 what does not fit the sixteen-bit
// counters of the file header.
func (f *File) extendedNumbering(w *window, h *header) error {
	extendedNames := h.sectionNames == uint32(elf.SHN_XINDEX)
	if h.extendedPrograms || h.extendedSections || extendedNames {
		if h.sections.offset == 0 {
			return fmt.Errorf("numbers in a section header that does not exist: %w", ErrMalformed)
		}
		first := h.sections
		first.count = 1
		b, err := w.record(first, 0)
		if err != nil {
			return fmt.Errorf("section header 0: %w", err)
		}
		s := decodeSection(f.Words, b)
		if h.extendedPrograms && s.info > 0 {
			h.programs.count = uint64(s.info)
		}
		if h.extendedSections {
			h.sections.count = s.Size
		}
		if extendedNames {
			h.sectionNames = s.link
		}
	}
	if h.programs.count > maxProgramHeaders {
		return fmt.Errorf("%d program headers: %w", h.programs.count, ErrTooLarge)
	}
	if h.sections.count > maxSections {
		return fmt.Errorf("%d section headers: %w", h.sections.count, ErrTooLarge)
	}
	return nil
}
