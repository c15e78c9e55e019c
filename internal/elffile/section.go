// SPDX-License-Identifier: BSD-2-Clause

package elffile

import (
	"debug/elf"
	"fmt"
	"strings"
)

// Section is a decoded section header.
type Section struct {
	Kind         elf.SectionType // SHT_NULL if there is no such section
	Flags        elf.SectionFlag
	Address      uint64
	Offset, Size uint64 // in the file
	Align        uint64

	name, link, info uint32
	number           uint32 // its index
	record           uint64 // the size of a record
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

// longestName is the length of the longest name of a section that matters. A
// crafted file may have longer ones without end.
const longestName = len(".note.gnu.build-id")

// sectionHeaders goes through the section headers, picks those that matter, and
// finds by them whether the file has its code.
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
		if s.Flags&(elf.SHF_ALLOC|elf.SHF_EXECINSTR) == elf.SHF_ALLOC|elf.SHF_EXECINSTR &&
			s.Size > 0 {
			if s.Kind == elf.SHT_NOBITS {
				missingCode = true
			} else {
				code = true
			}
		}
		switch {
		case s.Kind == elf.SHT_SYMTAB && f.symbols.static.Kind == elf.SHT_NULL:
			f.symbols.static = s
		case s.Kind == elf.SHT_DYNSYM && f.symbols.dynamic.Kind == elf.SHT_NULL:
			f.symbols.dynamic = s
		}
		if uint64(s.name) >= uint64(len(names)) {
			continue
		}
		name := names[s.name:]
		name, _, ok := strings.Cut(name[:min(len(name), longestName+1)], "\x00")
		if !ok {
			continue
		}
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
		case ".note.gnu.build-id":
			f.buildIDNotes = s
		case ".gnu_debuglink":
			f.debugLink = s
		case ".eh_frame":
			if s.Kind != elf.SHT_NOBITS {
				f.Frames = s
			}
		case ".got.plt":
			f.gotPLT = s.Address
		}
	}
	f.IsDebugFile = missingCode && !code && f.Type != elf.ET_REL
	return nil
}

// sectionNames reads the table of section names. It is valid as long as the
// window is used for nothing but section headers.
func (f *File) sectionNames(w *window, h *header) (string, error) {
	// Linkers put the names right before the headers. Where both are in the
	// window, it need not move any more.
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
