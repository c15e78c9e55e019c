// SPDX-License-Identifier: BSD-2-Clause

package libbpf

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/gousdt/gousdt/internal/elffile"
)

// maxSize is the size in bytes of the largest object that is read. Real ones
// have some hundred kilobytes, and some megabytes with debugging information.
const maxSize = 256 << 20

// headerSize is the size of the header of an ELF file of 64 bits, and that of
// the header of a section.
const headerSize = 64

var (
	errTruncated = errors.New("the file is truncated")
	errSections  = errors.New("the table of sections is malformed")
)

// image is an ELF file of 64 bits in memory. What is changed is added at its
// end; what was there before stays, and nothing refers to it any more.
type image struct {
	data     []byte
	order    binary.ByteOrder
	header   elf.Header64
	sections []elf.Section64
}

// readImage reads a file and checks what it claims.
func readImage(r io.ReaderAt) (data []byte, img *image, err error) {
	if r == nil {
		return nil, nil, errors.New("there is no reader")
	}
	data, err = io.ReadAll(io.NewSectionReader(r, 0, maxSize+1))
	if err != nil {
		return nil, nil, err
	}
	if len(data) > maxSize {
		return nil, nil, fmt.Errorf("it is larger than %d MB", maxSize>>20)
	}
	if len(data) < elf.EI_NIDENT || !bytes.HasPrefix(data, []byte(elf.ELFMAG)) {
		return nil, nil, elffile.ErrNotELF
	}
	if elf.Class(data[elf.EI_CLASS]) != elf.ELFCLASS64 {
		return nil, nil, errors.New("it is not an ELF file of 64 bits")
	}
	img = &image{data: data, order: binary.LittleEndian}
	if elf.Data(data[elf.EI_DATA]) == elf.ELFDATA2MSB {
		img.order = binary.BigEndian
	}
	b, err := img.slice(0, headerSize)
	if err != nil {
		return nil, nil, err
	}
	header := &img.header
	if _, err := binary.Decode(b, img.order, header); err != nil {
		return nil, nil, err
	}
	if header.Shnum > 0 || header.Shoff > 0 {
		// Shnum 0 stands for more sections than the header can count. No object
		// has that many.
		if header.Shentsize != headerSize || header.Shnum == 0 {
			return nil, nil, errSections
		}
		if b, err = img.slice(header.Shoff, uint64(header.Shnum)*headerSize); err != nil {
			return nil, nil, err
		}
		img.sections = make([]elf.Section64, header.Shnum)
		if _, err := binary.Decode(b, img.order, img.sections); err != nil {
			return nil, nil, err
		}
	}
	return data, img, img.check()
}

// slice returns a range of the file.
func (img *image) slice(offset, size uint64) ([]byte, error) {
	if offset > uint64(len(img.data)) || size > uint64(len(img.data))-offset {
		return nil, errTruncated
	}
	return img.data[offset : offset+size : offset+size], nil
}

// contents returns the bytes of a section, none for one that has none in the
// file.
func (img *image) contents(index int) ([]byte, error) {
	if index >= len(img.sections) {
		return nil, errSections
	}
	section := &img.sections[index]
	if elf.SectionType(section.Type) == elf.SHT_NOBITS {
		return nil, nil
	}
	return img.slice(section.Off, section.Size)
}

// setContents replaces the bytes of a section.
func (img *image) setContents(index int, b []byte) {
	img.sections[index].Off = img.append(b)
	img.sections[index].Size = uint64(len(b))
}

func (img *image) addSection(name string, contents []byte, section elf.Section64) (uint16, error) {
	if len(img.sections)+1 >= int(elf.SHN_LORESERVE) {
		return 0, errSections
	}
	names, err := img.addStrings(int(img.header.Shstrndx), name)
	if err != nil {
		return 0, err
	}
	section.Name = names[0]
	img.sections = append(img.sections, section)
	img.setContents(len(img.sections)-1, contents)
	return uint16(len(img.sections) - 1), nil
}

// addStrings adds strings to a string table and returns where they are in it.
func (img *image) addStrings(index int, strings ...string) ([]uint32, error) {
	table, err := img.contents(index)
	if err != nil {
		return nil, err
	}
	table = slices.Clone(table)
	offsets := make([]uint32, len(strings))
	for i, s := range strings {
		offsets[i] = uint32(len(table))
		table = append(table, s+"\x00"...)
	}
	img.setContents(index, table)
	return offsets, nil
}

// append adds bytes at the file's end, aligned, and returns their offset.
func (img *image) append(b []byte) uint64 {
	const alignment = 8
	img.data = append(img.data, make([]byte, -len(img.data)&(alignment-1))...)
	offset := uint64(len(img.data))
	img.data = append(img.data, b...)
	return offset
}

// finish writes the table of sections and returns the file.
func (img *image) finish() ([]byte, error) {
	table, err := binary.Append(nil, img.order, img.sections)
	if err != nil {
		return nil, err
	}
	img.header.Shoff = img.append(table)
	img.header.Shnum = uint16(len(img.sections))
	_, err = binary.Encode(img.data[:headerSize], img.order, &img.header)
	return img.data, err
}

func stringAt(table []byte, offset uint32) string {
	if uint64(offset) >= uint64(len(table)) {
		return ""
	}
	b, _, _ := bytes.Cut(table[offset:], []byte{0})
	return string(b)
}
