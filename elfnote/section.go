// SPDX-License-Identifier: BSD-2-Clause

package elfnote

import (
	"debug/elf"
	"fmt"
	"strings"
)

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

// sectionHeaders goes through the section headers, picks those that matter, and
// tells by them whether the file has its code.
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
				f.noteSections = append(f.noteSections, s)
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
	if b := w.at(s.offset, s.size); all && b != nil {
		return text(b), nil
	}
	b, err = f.readRange(s.offset, s.size)
	return text(b), err
}
