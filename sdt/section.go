// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"bytes"
	"cmp"
	"debug/elf"
	"encoding/binary"
	"errors"
	"slices"
)

// writer adds sections to a file, which are not loaded. What the file has stays
// where it is: what changes is written after its end.
type writer struct {
	*image
	header   elf.Header64
	sections []elf.Section64
	names    []byte
	out      []byte
}

func newWriter(f *image) (*writer, error) {
	w := &writer{image: f, out: slices.Clone(f.data), names: []byte{0}}
	w.sections = make([]elf.Section64, max(1, len(f.Sections))) // the first has no content
	_, err := binary.Decode(f.data, f.ByteOrder, &w.header)
	if len(f.Sections) > 0 && err == nil {
		if w.header.Shoff > uint64(len(f.data)) || int(w.header.Shstrndx) >= len(f.Sections) ||
			len(f.Sections)+3 >= int(elf.SHN_LORESERVE) {
			return nil, errors.New("its table of sections is malformed or too long")
		}
		_, err = binary.Decode(f.data[w.header.Shoff:], f.ByteOrder, w.sections)
		if err == nil {
			w.names, err = f.Sections[w.header.Shstrndx].Data()
		}
	}
	return w, err
}

// content returns what a section has, nil if there is none.
func (w *writer) content(name string) ([]byte, error) {
	section := w.Section(name)
	if section == nil {
		return nil, nil
	}
	return section.Data()
}

// base returns the address that notes are relative to, and adds its section,
// without which gdb knows no probes. That is one byte between two others, where
// file offsets and addresses differ by as much as in the code: perf makes the
// one of the other by it. If there is no such byte, the address is 0.
func (w *writer) base() uint64 {
	if section := w.Section(baseSection); section != nil {
		return section.Addr
	}
	code := slices.IndexFunc(w.Progs, func(p *elf.Prog) bool {
		return p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0
	})
	taken := [][2]uint64{{0, w.header.Phoff + uint64(w.header.Phnum)*uint64(w.header.Phentsize)}}
	for _, s := range w.Sections {
		if s.Flags&elf.SHF_ALLOC != 0 && s.Type != elf.SHT_NOBITS {
			taken = append(taken, [2]uint64{s.Offset, s.Offset + s.Size})
		}
	}
	slices.SortFunc(taken, func(a, b [2]uint64) int { return cmp.Compare(a[0], b[0]) })
	end := uint64(0)
	for i, t := range taken {
		end = max(end, t[1])
		if i+1 < len(taken) && end >= taken[i+1][0] {
			continue
		}
		for _, p := range w.Progs {
			if p.Type == elf.PT_LOAD && p.Flags&elf.PF_W == 0 && end >= p.Off && end-p.Off < p.Filesz &&
				code >= 0 && p.Vaddr-p.Off == w.Progs[code].Vaddr-w.Progs[code].Off {
				w.sections = append(w.sections, elf.Section64{Name: w.name(baseSection),
					Type: uint32(elf.SHT_PROGBITS), Flags: uint64(elf.SHF_ALLOC),
					Addr: end - p.Off + p.Vaddr, Off: end, Size: 1, Addralign: 1})
				return end - p.Off + p.Vaddr
			}
		}
	}
	return 0
}

// replace adds a section, or gives one another content.
func (w *writer) replace(name string, kind elf.SectionType, align int, content []byte) {
	i := slices.IndexFunc(w.Sections, func(s *elf.Section) bool { return s.Name == name })
	if i < 0 {
		i = len(w.sections)
		w.sections = append(w.sections, elf.Section64{Name: w.name(name)})
	}
	s := &w.sections[i]
	s.Type, s.Addralign, s.Flags, s.Addr = uint32(kind), uint64(align), 0, 0
	s.Off, s.Size = w.append(align, content), uint64(len(content))
}

// name returns where the names of sections have a name.
func (w *writer) name(name string) uint32 {
	w.names = append(slices.Clip(w.names), name+"\x00"...)
	return uint32(len(w.names) - len(name) - 1)
}

func (w *writer) append(align int, content []byte) uint64 {
	w.out = append(w.out, make([]byte, -len(w.out)&(align-1))...)
	w.out = append(w.out, content...)
	return uint64(len(w.out) - len(content))
}

// finish returns the file with its table of sections.
func (w *writer) finish() []byte {
	const names = ".shstrtab"
	i := int(w.header.Shstrndx)
	if i == 0 {
		i = len(w.sections)
		w.sections = append(w.sections, elf.Section64{Name: w.name(names),
			Type: uint32(elf.SHT_STRTAB), Addralign: 1})
	}
	w.sections[i].Off, w.sections[i].Size = w.append(1, w.names), uint64(len(w.names))
	var table bytes.Buffer
	if err := binary.Write(&table, w.ByteOrder, w.sections); err != nil {
		panic(err)
	}
	w.header.Shoff = w.append(8, table.Bytes())
	w.header.Shnum, w.header.Shstrndx = uint16(len(w.sections)), uint16(i)
	w.header.Shentsize = uint16(binary.Size(elf.Section64{}))
	if _, err := binary.Encode(w.out, w.ByteOrder, &w.header); err != nil {
		panic(err) // a header is shorter than the table
	}
	return w.out
}
