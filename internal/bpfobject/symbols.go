// SPDX-License-Identifier: BSD-2-Clause

package bpfobject

import (
	"cmp"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"slices"
)

// symbolSize is the size of a symbol in a file.
const symbolSize = 24

// symbolTable is the symbols of an object, to be changed.
type symbolTable struct {
	img     *image
	section int
	list    []elf.Sym64
	names   []byte
}

// readSymbols reads the symbol table of an object, which is empty without one.
func readSymbols(img *image) (*symbolTable, error) {
	section := slices.IndexFunc(img.sections, func(s elf.Section64) bool {
		return elf.SectionType(s.Type) == elf.SHT_SYMTAB
	})
	if section < 0 {
		return &symbolTable{img: img}, nil
	}
	t := &symbolTable{img: img, section: section}
	b, err := img.contents(section)
	if err != nil {
		return nil, err
	}
	if t.names, err = img.contents(int(img.sections[section].Link)); err != nil {
		return nil, err
	}
	t.list = make([]elf.Sym64, len(b)/symbolSize)
	_, err = binary.Decode(b, img.order, t.list)
	return t, err
}

// write puts the changed symbols into the object and returns that.
func (t *symbolTable) write() ([]byte, error) {
	if len(t.list) > 0 {
		b, err := binary.Append(nil, t.img.order, t.list)
		if err != nil {
			return nil, err
		}
		t.img.setContents(t.section, b)
	}
	return t.img.finish()
}

// change makes the symbols acceptable to cilium/ebpf. It adds the hidden
// functions to a set, and returns the symbols that lack a value but must have
// one.
//
// Weak symbols that have a value become global ones: in a complete object
// nothing is left that could override them. One without a value stays weak, as
// it need not have one. The variable that says whether there is a BPF cookie
// gets a value in a section of its own.
func (t *symbolTable) change(hidden map[string]bool) (undefined map[string]bool, err error) {
	var cookie uint16 // its section
	undefined = make(map[string]bool)
	for i := range t.list {
		symbol := &t.list[i]
		name, bind := stringAt(t.names, symbol.Name), elf.ST_BIND(symbol.Info)
		kind, visibility := elf.ST_TYPE(symbol.Info), elf.ST_VISIBILITY(symbol.Other)
		switch {
		case elf.SectionIndex(symbol.Shndx) != elf.SHN_UNDEF:
			if kind == elf.STT_FUNC &&
				(visibility == elf.STV_HIDDEN || visibility == elf.STV_INTERNAL) {
				hidden[name] = true
			}
			if bind == elf.STB_WEAK {
				symbol.Info = elf.ST_INFO(elf.STB_GLOBAL, kind)
			}
		case name == CookieVariable:
			if cookie == 0 {
				if cookie, err = t.img.addSection(cookieSection, []byte{0}, elf.Section64{
					Type: uint32(elf.SHT_PROGBITS), Flags: uint64(elf.SHF_ALLOC), Addralign: 1,
				}); err != nil {
					return nil, err
				}
			}
			*symbol = elf.Sym64{Name: symbol.Name, Shndx: cookie, Size: 1,
				Info: elf.ST_INFO(elf.STB_GLOBAL, elf.STT_OBJECT)}
		case bind == elf.STB_GLOBAL && name != "":
			undefined[name] = true
		}
	}
	return undefined, nil
}

// fillGaps gives a symbol to code that has none, and returns the names.
//
// A linker of objects keeps the code of a weak function that another one
// overrides, and its part of .BTF.ext, but no symbol. cilium/ebpf does not
// count code without a symbol. So it applies what .BTF.ext says of the code
// after it, such as CO-RE relocations, to the wrong instructions.
func (t *symbolTable) fillGaps() (names []string, err error) {
	functions := slices.DeleteFunc(slices.Clone(t.list), func(symbol elf.Sym64) bool {
		if elf.ST_TYPE(symbol.Info) != elf.STT_FUNC || int(symbol.Shndx) >= len(t.img.sections) {
			return true
		}
		s := &t.img.sections[symbol.Shndx]
		return elf.SectionType(s.Type) != elf.SHT_PROGBITS ||
			elf.SectionFlag(s.Flags)&elf.SHF_EXECINSTR == 0
	})
	slices.SortFunc(functions, func(a, b elf.Sym64) int {
		return cmp.Or(cmp.Compare(a.Shndx, b.Shndx), cmp.Compare(a.Value, b.Value))
	})
	var fillers []elf.Sym64
	section, end := uint16(0), uint64(0)
	for _, function := range functions {
		if function.Shndx != section {
			section, end = function.Shndx, 0
		}
		if function.Value > end {
			names = append(names, fmt.Sprintf("overridden.%d", len(names)))
			fillers = append(fillers, elf.Sym64{
				Info: elf.ST_INFO(elf.STB_LOCAL, elf.STT_FUNC), Shndx: section,
				Value: end, Size: function.Value - end,
			})
		}
		end = max(end, function.Value+function.Size)
	}
	if len(names) == 0 {
		return nil, nil
	}
	offsets, err := t.img.addStrings(int(t.img.sections[t.section].Link), names...)
	for i, offset := range offsets {
		fillers[i].Name = offset
	}
	t.list = append(t.list, fillers...)
	return names, err
}
