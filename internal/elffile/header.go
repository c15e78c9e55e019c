// SPDX-License-Identifier: BSD-2-Clause

package elffile

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// The sizes of the file header, of a program header and of a section header.
const (
	headerSize32, programSize32, sectionSize32 = 52, 32, 40
	headerSize64, programSize64, sectionSize64 = 64, 56, 64
)

// header is the ELF file header.
type header struct {
	programs, sections table
	sectionNames       uint32 // index of the section that holds the names
}

func (f *File) readHeaders() error {
	w := newWindow(f)
	defer w.close()
	// The program headers nearly always follow the file header, so that one
	// read suffices for both. A shorter file is no error yet.
	const usual = headerSize64 + 15*programSize64
	n, err := f.reader.ReadAt(w.buffer[:usual], 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	w.data = w.buffer[:n]
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

// fileHeader reads the file header at the start of b.
func (f *File) fileHeader(b []byte) (h header, err error) {
	if len(b) < len(elf.ELFMAG) || string(b[:len(elf.ELFMAG)]) != elf.ELFMAG {
		return h, ErrNotELF
	}
	if len(b) < elf.EI_NIDENT {
		return h, fmt.Errorf("file header: %w", ErrTruncated)
	}
	class, data := elf.Class(b[elf.EI_CLASS]), elf.Data(b[elf.EI_DATA])
	version := elf.Version(b[elf.EI_VERSION])
	f.Words = Words{Wide: class == elf.ELFCLASS64, Big: data == elf.ELFDATA2MSB}
	size, programSize, sectionSize := headerSize32, programSize32, sectionSize32
	if f.Words.Wide {
		size, programSize, sectionSize = headerSize64, programSize64, sectionSize64
	}
	switch {
	case class != elf.ELFCLASS32 && class != elf.ELFCLASS64:
		return h, fmt.Errorf("file header: unknown class %d: %w", class, ErrMalformed)
	case data != elf.ELFDATA2LSB && data != elf.ELFDATA2MSB:
		return h, fmt.Errorf("file header: unknown byte order %d: %w", data, ErrMalformed)
	case version != elf.EV_CURRENT:
		return h, fmt.Errorf("file header: unknown ELF version %d: %w", version, ErrMalformed)
	case len(b) < size:
		return h, fmt.Errorf("file header: %w", ErrTruncated)
	}
	f.Type, f.Machine = elf.Type(f.Words.Uint16(b[16:])), elf.Machine(f.Words.Uint16(b[18:]))
	if f.Type != elf.ET_EXEC && f.Type != elf.ET_DYN && f.Type != elf.ET_REL {
		return h, fmt.Errorf("%v: %w", f.Type, ErrFileType)
	}

	// From the entry point on, words have the size of the class. The counters
	// after them are sixteen-bit in both classes.
	word := f.Words.Size()
	counters := b[24+3*word+4+2:]
	h.programs = table{f.Words.Address(b[24+word:]), int(f.Words.Uint16(counters)),
		uint64(f.Words.Uint16(counters[2:]))}
	h.sections = table{f.Words.Address(b[24+2*word:]), int(f.Words.Uint16(counters[4:])),
		uint64(f.Words.Uint16(counters[6:]))}
	h.sectionNames = uint32(f.Words.Uint16(counters[8:]))

	if h.programs.count > 0 && h.programs.size != programSize {
		return h, fmt.Errorf("program headers of %d bytes: %w", h.programs.size, ErrMalformed)
	}
	if h.sections.offset == 0 || h.sections.count == 0 && h.sections.size == 0 {
		h.sections = table{}
	} else if h.sections.size != sectionSize {
		return h, fmt.Errorf("section headers of %d bytes: %w", h.sections.size, ErrMalformed)
	}
	return h, nil
}

// extendedNumbering takes the numbers that do not fit the sixteen-bit counters
// of the file header from section 0.
func (f *File) extendedNumbering(w *window, h *header) error {
	extendedPrograms := h.programs.count == 0xffff // PN_XNUM
	extendedSections := h.sections.count == 0 && h.sections.offset != 0
	extendedNames := h.sectionNames == uint32(elf.SHN_XINDEX)
	if extendedPrograms || extendedSections || extendedNames {
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
		if extendedPrograms && s.info > 0 {
			h.programs.count = uint64(s.info)
		}
		if extendedSections {
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

// Section is a decoded section header.
type Section struct {
	Kind         elf.SectionType // SHT_NULL if there is no such section
	Flags        elf.SectionFlag
	Address      uint64
	Offset, Size uint64 // in the file
	Align        uint64

	name, link, info uint32
	number           uint32 // its index
	record           uint64 // the size of a record in bytes
}

func decodeSection(w Words, b []byte) Section {
	word := w.Size()
	s := Section{
		name:    w.Uint32(b),
		Kind:    elf.SectionType(w.Uint32(b[4:])),
		Flags:   elf.SectionFlag(w.Address(b[8:])),
		Address: w.Address(b[8+word:]),
		Offset:  w.Address(b[8+2*word:]),
		Size:    w.Address(b[8+3*word:]),
	}
	b = b[8+4*word:]
	s.link = w.Uint32(b)
	s.info = w.Uint32(b[4:])
	s.Align = w.Address(b[8:])
	s.record = w.Address(b[8+word:])
	return s
}

// longestName is the length of the longest section name that matters. A crafted
// file may have names of any length.
const longestName = len(".data.rel.ro.gopclntab")

// sectionHeaders keeps the sections that matter, and sets IsDebugFile.
func (f *File) sectionHeaders(w *window, h *header) error {
	f.sections = h.sections
	if h.sections.count == 0 || h.sectionNames == uint32(elf.SHN_UNDEF) {
		return nil
	}
	if uint64(h.sectionNames) >= h.sections.count {
		return fmt.Errorf("section names in section %d of %d: %w", h.sectionNames, h.sections.count,
			ErrMalformed)
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
		s := decodeSection(f.Words, b)
		s.number = uint32(i)
		const executed = elf.SHF_ALLOC | elf.SHF_EXECINSTR
		if s.Flags&executed == executed && s.Size > 0 {
			missingCode = missingCode || s.Kind == elf.SHT_NOBITS
			code = code || s.Kind != elf.SHT_NOBITS
		}
		switch {
		case s.Kind == elf.SHT_SYMTAB && f.SymbolTables[0].Kind == elf.SHT_NULL:
			f.SymbolTables[0] = s
		case s.Kind == elf.SHT_DYNSYM && f.SymbolTables[1].Kind == elf.SHT_NULL:
			f.SymbolTables[1] = s
		}
		rest := names[min(uint64(s.name), uint64(len(names))):]
		name, _, ends := strings.Cut(rest[:min(len(rest), longestName+1)], "\x00")
		if ends {
			f.keep(name, s)
		}
	}
	f.IsDebugFile = missingCode && !code && f.Type != elf.ET_REL
	return nil
}

func (f *File) keep(name string, s Section) {
	switch name {
	case ".note.stapsdt":
		if s.Kind != elf.SHT_NOBITS && s.Kind != elf.SHT_NULL {
			f.ProbeNotes = append(f.ProbeNotes, s)
		}
	case ".rela.note.stapsdt", ".rel.note.stapsdt":
		if f.Type == elf.ET_REL && (s.Kind == elf.SHT_RELA || s.Kind == elf.SHT_REL) &&
			len(f.relocations) < maxRelocationSections {
			if f.relocations == nil {
				f.relocations = make(map[uint32]Section)
			}
			f.relocations[s.info] = s
		}
	case ".stapsdt.base":
		f.ProbeBase, f.HasProbeBase = s.Address, true
	default:
		if i := slices.Index(namedSections[:], name); i >= 0 {
			if s.Kind == elf.SHT_NOBITS {
				s.Size = 0
			}
			f.named[i] = s
		}
	}
}

// namedSections are further sections that are looked up by their names, most of
// them by package debuginfo.
var namedSections = [...]string{buildIDSection, gotSection, ".eh_frame",
	".debug_abbrev", ".debug_info", ".debug_str", ".debug_line_str",
	".debug_str_offsets", ".debug_addr", ".debug_line", ".debug_ranges", ".debug_rnglists",
	".gnu_debuglink", ".gnu_debugaltlink", ".gnu_debugdata",
	".rodata", ".gopclntab", ".data.rel.ro.gopclntab", ".data.rel.ro", ".go.buildinfo", ".go.module"}

const (
	buildIDSection = ".note.gnu.build-id"
	gotSection     = ".got.plt"
)

// Section returns one of these sections by its name. Its size is 0 if the file
// does not have it, or not its contents.
func (f *File) Section(name string) Section {
	if i := slices.Index(namedSections[:], name); i >= 0 {
		return f.named[i]
	}
	return Section{}
}

// sectionNames reads the table of section names. The result is valid as long as
// the window is only used for section headers.
func (f *File) sectionNames(w *window, h *header) (string, error) {
	// Linkers put the names right before the headers. If both fit the window,
	// it need not move any more.
	const usualNames = 1024
	all := w.cover(h.sections, usualNames)
	b, err := w.record(h.sections, uint64(h.sectionNames))
	if err != nil {
		return "", err
	}
	s := decodeSection(f.Words, b)
	if s.Kind == elf.SHT_NOBITS {
		return "", nil
	}
	if s.Flags&elf.SHF_COMPRESSED != 0 {
		return "", ErrCompressed
	}
	if s.Size > maxSectionNames {
		return "", fmt.Errorf("%d bytes: %w", s.Size, ErrTooLarge)
	}
	if b := w.at(s.Offset, s.Size); all && b != nil {
		return Text(b), nil
	}
	b, err = f.ReadRange(s.Offset, s.Size)
	return Text(b), err
}

// Segment is a program header.
type Segment struct {
	Address    uint64       // of the first byte, as linked
	Offset     uint64       // of the first byte in the file
	FileSize   uint64       // bytes that come from the file
	MemorySize uint64       // bytes in memory: those past FileSize are zeroed, the bss
	Flags      elf.ProgFlag // the rights: elf.PF_R, elf.PF_W and elf.PF_X
}

// InFile reports whether size bytes at an address come from the file.
func (s *Segment) InFile(address, size uint64) bool {
	return address >= s.Address && size <= s.FileSize && address-s.Address <= s.FileSize-size
}

// InMemory reports whether size bytes at address are in the segment.
func (s *Segment) InMemory(address, size uint64) bool {
	return address >= s.Address && size <= s.MemorySize && address-s.Address <= s.MemorySize-size
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

// programHeaders keeps the segments that matter.
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
			f.Interpreter = s
		case elf.PT_GNU_EH_FRAME:
			f.FramesIndex = s
		case elf.PT_GNU_RELRO:
			f.ReadOnly = s
		case elf.PT_NOTE:
			if len(f.noteSegments) < maxSegments {
				// The alignment is the last word of the header.
				align := f.Words.Address(b[len(b)-f.Words.Size():])
				f.noteSegments = append(f.noteSegments,
					Section{Offset: s.Offset, Size: s.FileSize, Align: align})
			}
		}
	}
	return nil
}

func decodeSegment(w Words, b []byte) Segment {
	word, flags := w.Size(), 24
	if w.Wide {
		flags = 4
	}
	return Segment{
		Flags:      elf.ProgFlag(w.Uint32(b[flags:])),
		Offset:     w.Address(b[word:]),
		Address:    w.Address(b[2*word:]),
		FileSize:   w.Address(b[4*word:]),
		MemorySize: w.Address(b[5*word:]),
	}
}

// MachineName returns the usual name of a machine. Class and byte order make
// different machines of one ELF number.
func MachineName(
	machine elf.Machine, class elf.Class, order interface{ Uint16([]byte) uint16 },
) string {
	names, known := machineNames[machine]
	second := class == elf.ELFCLASS32
	if machine == elf.EM_PPC64 {
		second = order.Uint16([]byte{0, 1}) == 1 // big endian
	}
	switch {
	case !known:
		return machine.String()
	case second:
		return names[1]
	}
	return names[0]
}

// machineNames has the names for 64 and for 32 bits; for PowerPC, those of
// little and big endian.
var machineNames = map[elf.Machine][2]string{
	elf.EM_X86_64:    {"x86-64", "x32"},
	elf.EM_386:       {"i386", "i386"},
	elf.EM_AARCH64:   {"arm64", "arm64"},
	elf.EM_ARM:       {"arm", "arm"},
	elf.EM_S390:      {"s390x", "s390"},
	elf.EM_PPC64:     {"ppc64le", "ppc64"},
	elf.EM_RISCV:     {"riscv64", "riscv32"},
	elf.EM_LOONGARCH: {"loongarch64", "loongarch32"},
}
