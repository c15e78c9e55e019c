// SPDX-License-Identifier: BSD-2-Clause

package elfnote

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"testing"

	"github.com/go-quicktest/qt"
)

type byteOrder interface {
	binary.ByteOrder
	binary.AppendByteOrder
}

// image is an ELF file in the making.
type image struct {
	class    elf.Class
	order    byteOrder
	fileType elf.Type
	machine  elf.Machine
	segments []imageSegment
	sections []imageSection // without the null section and the section names
	extended bool           // have the numbers in section 0
	page     int            // where the first segment is in the file, and the distance to the next
	edit     func(b []byte) // changes the finished file
}

type imageSegment struct {
	kind          elf.ProgType
	flags         elf.ProgFlag
	address       uint64
	data          []byte
	bss           uint64 // bytes in memory past the data
	align         uint64
	offset, space *uint64 // instead of the right offset and size in the file
}

type imageSection struct {
	name          string
	kind          elf.SectionType
	flags         elf.SectionFlag
	address       uint64
	align, record uint64
	link, info    uint32
	data          []byte
	offset, size  *uint64 // instead of the right ones
}

// Where the parts of the usual image are. Each segment has its own page of the
// file, so that offsets differ from addresses.
const (
	codeAddress, codeOffset, codeSize = 0x11000, 0x1000, 0x100
	dataAddress, dataOffset, dataSize = 0x35000, 0x2000, 0x40
	bssSize                           = 0x40
	baseAddress                       = 0x312345
)

// newImage makes a shared library with a code segment, and a data segment with
// a bss.
func newImage(class elf.Class, order byteOrder) *image {
	code := bytes.Repeat([]byte{0x90}, codeSize)
	code[0] = 0xc3
	return &image{
		class: class, order: order, fileType: elf.ET_DYN, machine: elf.EM_X86_64, page: codeOffset,
		segments: []imageSegment{
			{kind: elf.PT_LOAD, flags: elf.PF_R | elf.PF_X, address: codeAddress, data: code},
			{kind: elf.PT_LOAD, flags: elf.PF_R | elf.PF_W, address: dataAddress, data: make([]byte, dataSize), bss: bssSize},
		},
		sections: []imageSection{{
			name: ".text", kind: elf.SHT_PROGBITS, flags: elf.SHF_ALLOC | elf.SHF_EXECINSTR,
			address: codeAddress, offset: ptr[uint64](codeOffset), size: ptr[uint64](codeSize),
		}},
	}
}

func newImage64() *image { return newImage(elf.ELFCLASS64, binary.LittleEndian) }

// everyClass runs a test for both classes and byte orders.
func everyClass(t *testing.T, test func(t *testing.T, im *image)) {
	for _, class := range []elf.Class{elf.ELFCLASS32, elf.ELFCLASS64} {
		for _, order := range []byteOrder{binary.LittleEndian, binary.BigEndian} {
			t.Run(class.String()+order.String(), func(t *testing.T) { test(t, newImage(class, order)) })
		}
	}
}

func ptr[T any](v T) *T { return &v }

// addBase adds the section .stapsdt.base.
func (im *image) addBase() {
	im.sections = append(im.sections, imageSection{name: ".stapsdt.base", kind: elf.SHT_PROGBITS, flags: elf.SHF_ALLOC, address: baseAddress, data: []byte{0}})
}

// addNotes adds a note section with notes made by note and rawNote.
func (im *image) addNotes(notes ...[]byte) {
	im.sections = append(im.sections, imageSection{name: ".note.stapsdt", kind: elf.SHT_NOTE, align: 4, data: bytes.Join(notes, nil)})
}

// note makes the note of a site, from what a note has of it.
func (im *image) note(s Site) []byte {
	return im.rawNote(probeOwner, probeType, im.descriptor(s), 4)
}

func (im *image) descriptor(s Site) []byte {
	d := im.words(nil, s.Location, s.Base, s.Semaphore)
	return append(d, s.Provider+"\x00"+s.Name+"\x00"+s.Arguments+"\x00"...)
}

func (im *image) rawNote(owner string, kind uint32, descriptor []byte, align int) []byte {
	var b []byte
	for _, v := range []uint32{uint32(len(owner)), uint32(len(descriptor)), kind} {
		b = im.order.AppendUint32(b, v)
	}
	pad := func() {
		for len(b)%align != 0 {
			b = append(b, 0)
		}
	}
	b = append(b, owner...)
	pad()
	b = append(b, descriptor...)
	pad()
	return b
}

func (im *image) wide() bool { return im.class == elf.ELFCLASS64 }

// words appends words of the class's size.
func (im *image) words(b []byte, values ...uint64) []byte {
	for _, v := range values {
		if im.wide() {
			b = im.order.AppendUint64(b, v)
		} else {
			b = im.order.AppendUint32(b, uint32(v))
		}
	}
	return b
}

// bytes makes the file.
func (im *image) bytes() []byte {
	order := im.order
	headerSize, programSize, sectionSize := headerSize32, programSize32, sectionSize32
	if im.wide() {
		headerSize, programSize, sectionSize = headerSize64, programSize64, sectionSize64
	}

	b := make([]byte, headerSize)
	for i, s := range im.segments {
		offset, size := uint64(im.page*(i+1)), uint64(len(s.data))
		memory := size + s.bss
		if s.offset != nil {
			offset = *s.offset
		}
		if s.space != nil {
			size = *s.space
		}
		b = order.AppendUint32(b, uint32(s.kind))
		if im.wide() {
			b = order.AppendUint32(b, uint32(s.flags))
			b = im.words(b, offset, s.address, s.address, size, memory, s.align)
		} else {
			b = im.words(b, offset, s.address, s.address, size, memory)
			b = order.AppendUint32(b, uint32(s.flags))
			b = im.words(b, s.align)
		}
	}
	for i, s := range im.segments {
		b = append(b, make([]byte, max(0, im.page*(i+1)-len(b)))...)
		b = append(b, s.data...)
	}

	sections := append([]imageSection{{}}, im.sections...)
	sections = append(sections, imageSection{name: ".shstrtab", kind: elf.SHT_STRTAB})
	names := []byte{0}
	var headers []byte
	for i, s := range sections {
		name := len(names)
		names = append(append(names, s.name...), 0)
		if i == 0 {
			name = 0
		}
		if i == len(sections)-1 {
			s.data = names
		}
		for len(b)%8 != 0 {
			b = append(b, 0)
		}
		offset, size := uint64(len(b)), uint64(len(s.data))
		if s.offset != nil {
			offset = *s.offset
		}
		if s.size != nil {
			size = *s.size
		}
		b = append(b, s.data...)
		if i == 0 && im.extended {
			size, s.link, s.info = uint64(len(sections)), uint32(len(sections)-1), uint32(len(im.segments))
		}
		headers = order.AppendUint32(headers, uint32(name))
		headers = order.AppendUint32(headers, uint32(s.kind))
		headers = im.words(headers, uint64(s.flags), s.address, offset, size)
		headers = order.AppendUint32(headers, s.link)
		headers = order.AppendUint32(headers, s.info)
		headers = im.words(headers, s.align, s.record)
	}
	for len(b)%8 != 0 {
		b = append(b, 0)
	}
	sectionOffset := len(b)
	b = append(b, headers...)

	h := append([]byte(elf.ELFMAG), byte(im.class), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT))
	if order.String() == binary.BigEndian.String() {
		h[elf.EI_DATA] = byte(elf.ELFDATA2MSB)
	}
	h = append(h, make([]byte, elf.EI_NIDENT-len(h))...)
	h = order.AppendUint16(h, uint16(im.fileType))
	h = order.AppendUint16(h, uint16(im.machine))
	h = order.AppendUint32(h, 1)
	h = im.words(h, 0, uint64(headerSize), uint64(sectionOffset))
	h = order.AppendUint32(h, 0)
	numbers := []int{headerSize, programSize, len(im.segments), sectionSize, len(sections), len(sections) - 1}
	if im.extended {
		numbers = []int{headerSize, programSize, 0xffff, sectionSize, 0, int(elf.SHN_XINDEX)}
	}
	for _, v := range numbers {
		h = order.AppendUint16(h, uint16(v))
	}
	copy(b, h)
	if im.edit != nil {
		im.edit(b)
	}
	return b
}

// open opens the image, which must be possible.
func (im *image) open(t testing.TB) *File {
	t.Helper()
	f, err := NewFile(bytes.NewReader(im.bytes()))
	qt.Assert(t, qt.IsNil(err))
	return f
}

// collect returns all that Sites yields.
func collect(f *File) (sites []Site, errs []error) {
	for site, err := range f.Sites() {
		if err != nil {
			errs = append(errs, err)
		} else {
			sites = append(sites, site)
		}
	}
	return sites, errs
}
