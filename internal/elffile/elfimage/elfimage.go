// SPDX-License-Identifier: BSD-2-Clause

// Package elfimage makes ELF files for tests, also such as no tool chain
// writes.
package elfimage

import (
	"bytes"
	"compress/zlib"
	"debug/elf"
	"encoding/binary"
)

// ByteOrder reads and appends.
type ByteOrder interface {
	binary.ByteOrder
	binary.AppendByteOrder
}

// Image is an ELF file in the making.
type Image struct {
	Class    elf.Class
	Order    ByteOrder
	Type     elf.Type
	Machine  elf.Machine
	Segments []Segment
	Sections []Section      // without the null section and the section names
	Extended bool           // have the numbers in section 0
	Page     int            // where the first segment is in the file, and the distance to the next
	Edit     func(b []byte) // changes the finished file
}

// Segment is a program header with what it is about.
type Segment struct {
	Kind         elf.ProgType
	Flags        elf.ProgFlag
	Address      uint64
	Data         []byte
	BSS          uint64 // bytes in memory past the data
	Align        uint64
	Offset, Size *uint64 // instead of the right offset and size in the file
}

// Section is a section header with what it is about.
type Section struct {
	Name          string
	Kind          elf.SectionType
	Flags         elf.SectionFlag
	Address       uint64
	Align, Record uint64
	Link, Info    uint32
	Data          []byte
	Offset, Size  *uint64 // instead of the right ones
}

// The sizes of the file header, of a program header and of a section header.
const (
	HeaderSize32, ProgramSize32, SectionSize32 = 52, 32, 40
	HeaderSize64, ProgramSize64, SectionSize64 = 64, 56, 64
)

// Where the parts of the usual image are. Each segment has its own page of the
// file, so that offsets differ from addresses.
const (
	CodeAddress, CodeOffset, CodeSize = 0x11000, 0x1000, 0x100
	DataAddress, DataOffset, DataSize = 0x35000, 0x2000, 0x40
	BSSSize                           = 0x40
	BaseAddress                       = 0x312345
)

// New makes a shared library with a code segment, and a data segment with a
// bss.
func New(class elf.Class, order ByteOrder) *Image {
	code := bytes.Repeat([]byte{0x90}, CodeSize)
	code[0] = 0xc3
	return &Image{
		Class: class, Order: order, Type: elf.ET_DYN, Machine: elf.EM_X86_64, Page: CodeOffset,
		Segments: []Segment{
			{Kind: elf.PT_LOAD, Flags: elf.PF_R | elf.PF_X, Address: CodeAddress, Data: code},
			{Kind: elf.PT_LOAD, Flags: elf.PF_R | elf.PF_W, Address: DataAddress,
				Data: make([]byte, DataSize), BSS: BSSSize},
		},
		Sections: []Section{{
			Name: ".text", Kind: elf.SHT_PROGBITS, Flags: elf.SHF_ALLOC | elf.SHF_EXECINSTR,
			Address: CodeAddress, Offset: Ptr[uint64](CodeOffset), Size: Ptr[uint64](CodeSize),
		}},
	}
}

// New64 makes one of 64 bits, with the least significant byte first.
func New64() *Image { return New(elf.ELFCLASS64, binary.LittleEndian) }

// Ptr returns a pointer to a value.
func Ptr[T any](v T) *T { return &v }

// AddBase adds the section .stapsdt.base.
func (im *Image) AddBase() {
	im.Sections = append(im.Sections, Section{Name: ".stapsdt.base", Kind: elf.SHT_PROGBITS,
		Flags: elf.SHF_ALLOC, Address: BaseAddress, Data: []byte{0}})
}

// AddNotes adds a note section with notes.
func (im *Image) AddNotes(notes ...[]byte) {
	im.Sections = append(im.Sections,
		Section{Name: ".note.stapsdt", Kind: elf.SHT_NOTE, Align: 4, Data: bytes.Join(notes, nil)})
}

// RawNote makes a note.
func (im *Image) RawNote(owner string, kind uint32, descriptor []byte, align int) []byte {
	b := im.append(nil, uint32(len(owner)), uint32(len(descriptor)), kind)
	b = pad(append(b, owner...), align)
	return pad(append(b, descriptor...), align)
}

func pad(b []byte, align int) []byte {
	return append(b, make([]byte, (align-len(b)%align)%align)...)
}

// or returns what stands instead of the right value, if there is anything.
func or(instead *uint64, right int) uint64 {
	if instead != nil {
		return *instead
	}
	return uint64(right)
}

// ProbeNote makes the note of a probe.
func (im *Image) ProbeNote(
	location, base, semaphore uint64, provider, name, arguments string,
) []byte {
	descriptor := im.Words(nil, location, base, semaphore)
	for _, text := range []string{provider, name, arguments} {
		descriptor = append(append(descriptor, text...), 0)
	}
	return im.RawNote("stapsdt\x00", 3, descriptor, 4)
}

// Wide reports whether the class is ELFCLASS64.
func (im *Image) Wide() bool { return im.Class == elf.ELFCLASS64 }

// Words appends words of the class's size.
func (im *Image) Words(b []byte, values ...uint64) []byte {
	for _, v := range values {
		b = im.append(b, v)
	}
	return b
}

// append appends numbers. An uint64 stands for a word of the class's size.
func (im *Image) append(b []byte, values ...any) []byte {
	for _, v := range values {
		if word, ok := v.(uint64); ok && !im.Wide() {
			v = uint32(word)
		}
		b, _ = binary.Append(b, im.Order, v) // all have a size
	}
	return b
}

// Bytes makes the file.
func (im *Image) Bytes() []byte {
	headerSize, programSize, sectionSize := HeaderSize32, ProgramSize32, SectionSize32
	if im.Wide() {
		headerSize, programSize, sectionSize = HeaderSize64, ProgramSize64, SectionSize64
	}

	b := make([]byte, headerSize)
	for i, s := range im.Segments {
		offset, size := or(s.Offset, im.Page*(i+1)), or(s.Size, len(s.Data))
		memory := uint64(len(s.Data)) + s.BSS
		if im.Wide() {
			b = im.append(b, uint32(s.Kind), s.Flags, offset, s.Address, s.Address, size, memory, s.Align)
		} else {
			b = im.append(b, uint32(s.Kind), offset, s.Address, s.Address, size, memory, s.Flags, s.Align)
		}
	}
	for i, s := range im.Segments {
		b = append(append(b, make([]byte, max(0, im.Page*(i+1)-len(b)))...), s.Data...)
	}

	sections := append([]Section{{}}, im.Sections...)
	sections = append(sections, Section{Name: ".shstrtab", Kind: elf.SHT_STRTAB})
	var names, headers []byte
	for i, s := range sections {
		name := len(names)
		names = append(append(names, s.Name...), 0)
		if i == len(sections)-1 {
			s.Data = names
		}
		b = pad(b, 8)
		offset, size := or(s.Offset, len(b)), or(s.Size, len(s.Data))
		b = append(b, s.Data...)
		if i == 0 && im.Extended {
			size, s.Link, s.Info = uint64(len(sections)), uint32(len(sections)-1),
				uint32(len(im.Segments))
		}
		headers = im.append(headers, uint32(name), s.Kind, uint64(s.Flags), s.Address, offset, size,
			s.Link, s.Info, s.Align, s.Record)
	}
	b = pad(b, 8)
	sectionOffset := len(b)
	b = append(b, headers...)

	h := append([]byte(elf.ELFMAG), byte(im.Class), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT))
	if im.Order.String() == binary.BigEndian.String() {
		h[elf.EI_DATA] = byte(elf.ELFDATA2MSB)
	}
	h = append(h, make([]byte, elf.EI_NIDENT-len(h))...)
	programs, all, last := uint16(len(im.Segments)), uint16(len(sections)), uint16(len(sections)-1)
	if im.Extended {
		programs, all, last = 0xffff, 0, uint16(elf.SHN_XINDEX)
	}
	h = im.append(h, im.Type, im.Machine, uint32(1), uint64(0), uint64(headerSize),
		uint64(sectionOffset), uint32(0), uint16(headerSize), uint16(programSize), programs,
		uint16(sectionSize), all, last)
	copy(b, h)
	if im.Edit != nil {
		im.Edit(b)
	}
	return b
}

// AddDynamic adds a dynamic segment with entries of tag and value.
func (im *Image) AddDynamic(words ...uint64) {
	im.Segments = append(im.Segments,
		Segment{Kind: elf.PT_DYNAMIC, Address: DataAddress, Data: im.Words(nil, words...)})
}

// The sizes of a symbol.
const (
	SymbolSize32 = 16
	SymbolSize64 = 24
)

// Symbol is a symbol of an image. Its name is taken from the string table
// where that has it, so that names share the end of longer ones.
type Symbol struct {
	Name    string
	Address uint64
	Kind    elf.SymType
	In      elf.SectionIndex
	Bind    elf.SymBind
	Other   byte
}

// NewSymbol returns a symbol.
func NewSymbol(name string, address uint64, kind elf.SymType, in elf.SectionIndex) Symbol {
	return Symbol{Name: name, Address: address, Kind: kind, In: in}
}

// AddSymbols adds a symbol table with its strings, which start with more.
func (im *Image) AddSymbols(kind elf.SectionType, more string, symbols ...Symbol) {
	strings := []byte("\x00" + more)
	size := SymbolSize32
	if im.Wide() {
		size = SymbolSize64
	}
	data := make([]byte, size)
	for _, s := range symbols {
		name := bytes.Index(strings, []byte(s.Name+"\x00"))
		if name < 0 {
			name = len(strings)
			strings = append(strings, s.Name+"\x00"...)
		}
		info := elf.ST_INFO(s.Bind, s.Kind)
		if in := uint16(s.In); im.Wide() {
			data = im.append(data, uint32(name), info, s.Other, in, s.Address, uint64(8))
		} else {
			data = im.append(data, uint32(name), s.Address, uint64(8), info, s.Other, in)
		}
	}
	im.Sections = append(im.Sections,
		Section{Name: ".symbols", Kind: kind, Record: uint64(size), Data: data,
			Link: uint32(len(im.Sections) + 2)},
		Section{Name: ".strings", Kind: elf.SHT_STRTAB, Data: strings})
}

// EditSection changes a 64-bit word in a section header.
func (im *Image) EditSection(section, offset int, value uint64) {
	before := im.Edit
	im.Edit = func(b []byte) {
		if before != nil {
			before(b)
		}
		at := int(im.Order.Uint64(b[40:])) + section*SectionSize64 + offset
		im.Order.PutUint64(b[at:], value)
	}
}

// Compress compresses a section: with zlib, or with zstd in blocks that are
// stored as they are.
func (im *Image) Compress(s *Section, kind elf.CompressionType) {
	size := uint64(len(s.Data))
	b := im.append(nil, uint32(kind))
	if im.Wide() {
		b = im.append(b, uint32(0)) // reserved
	}
	b = im.Words(b, size, 1)
	if kind == elf.COMPRESS_ZLIB {
		packed := bytes.NewBuffer(b)
		w := zlib.NewWriter(packed)
		_, _ = w.Write(s.Data) // to memory
		_ = w.Close()
		b = packed.Bytes()
	} else {
		b = append(b, 0x28, 0xb5, 0x2f, 0xfd, 0xa0) // a frame, which says its size
		b = binary.LittleEndian.AppendUint32(b, uint32(size))
		for rest := s.Data; ; {
			n := min(len(rest), 64<<10)
			header := uint32(n) << 3
			if n == len(rest) {
				header |= 1
			}
			b = append(b, byte(header), byte(header>>8), byte(header>>16))
			b = append(b, rest[:n]...)
			if rest = rest[n:]; len(rest) == 0 {
				break
			}
		}
	}
	s.Flags |= elf.SHF_COMPRESSED
	s.Data = b
}
