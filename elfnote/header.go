// SPDX-License-Identifier: BSD-2-Clause

package elfnote

import (
	"debug/elf"
	"fmt"
	"strings"
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
		size, f.words.wide = headerSize64, true
	default:
		return h, fmt.Errorf("file header: unknown class %d: %w", class, ErrMalformed)
	}
	switch data := elf.Data(b[elf.EI_DATA]); data {
	case elf.ELFDATA2LSB:
	case elf.ELFDATA2MSB:
		f.words.big = true
	default:
		return h, fmt.Errorf("file header: unknown byte order %d: %w", data, ErrMalformed)
	}
	if v := elf.Version(b[elf.EI_VERSION]); v != elf.EV_CURRENT {
		return h, fmt.Errorf("file header: unknown ELF version %d: %w", v, ErrMalformed)
	}
	if len(b) < size {
		return h, fmt.Errorf("file header: %w", ErrTruncated)
	}
	f.fileType = elf.Type(f.words.uint16(b[16:]))
	f.machine = elf.Machine(f.words.uint16(b[18:]))
	switch f.fileType {
	case elf.ET_EXEC:
		f.kind = Executable
	case elf.ET_DYN:
		f.kind = PositionIndependent
	case elf.ET_REL:
		f.kind = Relocatable
	default:
		return h, fmt.Errorf("%v: %w", f.fileType, ErrFileType)
	}

	// From the entry point on the words have the size of the class, until the
	// counters, which are sixteen-bit in both.
	word := f.words.size()
	programs := f.words.address(b[24+word:])
	sections := f.words.address(b[24+2*word:])
	counters := b[24+3*word+4+2:]
	h.programs = table{offset: programs, size: int(f.words.uint16(counters)), count: uint64(f.words.uint16(counters[2:]))}
	h.sections = table{offset: sections, size: int(f.words.uint16(counters[4:])), count: uint64(f.words.uint16(counters[6:]))}
	h.sectionNames = uint32(f.words.uint16(counters[8:]))

	h.extendedPrograms = h.programs.count == 0xffff // PN_XNUM
	h.extendedSections = h.sections.count == 0 && h.sections.offset != 0
	wantProgram, wantSection := programSize32, sectionSize32
	if f.words.wide {
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
		s := decodeSection(f.words, b)
		if h.extendedPrograms && s.info > 0 {
			h.programs.count = uint64(s.info)
		}
		if h.extendedSections {
			h.sections.count = s.size
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

func (f *File) programHeaders(w *window, t table) error {
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
	return nil
}

func (f *File) sectionHeaders(w *window, h *header) error {
	f.sections = h.sections
	if h.sections.count == 0 || h.sectionNames == uint32(elf.SHN_UNDEF) {
		return nil
	}
	if uint64(h.sectionNames) >= h.sections.count {
		return fmt.Errorf("section names in section %d of %d: %w", h.sectionNames, h.sections.count, ErrMalformed)
	}
	names, err := f.sectionNames(w, h)
	if err != nil {
		return fmt.Errorf("section names: %w", err)
	}

	var code, missingCode bool
	for i := range h.sections.count {
		b, err := w.record(h.sections, i)
		if err != nil {
			return fmt.Errorf("section header %d: %w", i, err)
		}
		s := decodeSection(f.words, b)
		if s.flags&(elf.SHF_ALLOC|elf.SHF_EXECINSTR) == elf.SHF_ALLOC|elf.SHF_EXECINSTR && s.size > 0 {
			if s.kind == elf.SHT_NOBITS {
				missingCode = true
			} else {
				code = true
			}
		}
		switch {
		case s.kind == elf.SHT_SYMTAB && f.symbols.static.kind == elf.SHT_NULL:
			f.symbols.static = s
		case s.kind == elf.SHT_DYNSYM && f.symbols.dynamic.kind == elf.SHT_NULL:
			f.symbols.dynamic = s
		}
		if uint64(s.name) >= uint64(len(names)) {
			continue
		}
		switch name := names[s.name:]; {
		case strings.HasPrefix(name, ".note.stapsdt\x00"):
			if s.kind != elf.SHT_NOBITS && s.kind != elf.SHT_NULL {
				f.notes.sections = append(f.notes.sections, s)
			}
		case strings.HasPrefix(name, ".stapsdt.base\x00"):
			f.base, f.hasBase = s.address, true
		case strings.HasPrefix(name, ".note.gnu.build-id\x00"):
			f.buildIDNotes = s
		case strings.HasPrefix(name, ".got.plt\x00"):
			f.gotPLT = s.address
		}
	}
	if missingCode && !code && f.kind != Relocatable {
		f.kind = DebugFile
	}
	return nil
}

// sectionNames reads the table of section names.
func (f *File) sectionNames(w *window, h *header) (string, error) {
	// The first record brings the following ones into the window, the one of the
	// section names among them if there are not too many.
	if _, err := w.record(h.sections, 0); err != nil {
		return "", err
	}
	b, err := w.record(h.sections, uint64(h.sectionNames))
	if err != nil {
		return "", err
	}
	s := decodeSection(f.words, b)
	if s.kind == elf.SHT_NOBITS {
		return "", nil
	}
	if s.flags&elf.SHF_COMPRESSED != 0 {
		return "", ErrCompressed
	}
	if s.size > maxSectionNames {
		return "", fmt.Errorf("%d bytes: %w", s.size, ErrTooLarge)
	}
	b, err = f.readRange(s.offset, s.size)
	return text(b), err
}

// section is a decoded section header.
type section struct {
	name, link, info uint32
	kind             elf.SectionType
	flags            elf.SectionFlag
	address          uint64
	offset, size     uint64 // in the file
	align, record    uint64
}

func decodeSection(w words, b []byte) section {
	word := w.size()
	s := section{
		name:    w.uint32(b),
		kind:    elf.SectionType(w.uint32(b[4:])),
		flags:   elf.SectionFlag(w.address(b[8:])),
		address: w.address(b[8+word:]),
		offset:  w.address(b[8+2*word:]),
		size:    w.address(b[8+3*word:]),
	}
	b = b[8+4*word:]
	s.link = w.uint32(b)
	s.info = w.uint32(b[4:])
	s.align = w.address(b[8:])
	s.record = w.address(b[8+word:])
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
