// SPDX-License-Identifier: BSD-2-Clause

package elfnote

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/elffile/elfimage"
)

// image is an ELF file in the making.
type image struct{ elfimage.Image }

const (
	codeAddress, codeOffset, codeSize = elfimage.CodeAddress, elfimage.CodeOffset, elfimage.CodeSize
	dataAddress, dataOffset, dataSize = elfimage.DataAddress, elfimage.DataOffset, elfimage.DataSize
	bssSize                           = elfimage.BSSSize
	baseAddress                       = elfimage.BaseAddress
)

func newImage(class elf.Class, order elfimage.ByteOrder) *image {
	return &image{*elfimage.New(class, order)}
}

func newImage64() *image { return newImage(elf.ELFCLASS64, binary.LittleEndian) }

// everyClass runs a test for both classes and byte orders.
func everyClass(t *testing.T, test func(t *testing.T, im *image)) {
	for _, class := range []elf.Class{elf.ELFCLASS32, elf.ELFCLASS64} {
		for _, order := range []elfimage.ByteOrder{binary.LittleEndian, binary.BigEndian} {
			t.Run(class.String()+order.String(),
				func(t *testing.T) { test(t, newImage(class, order)) })
		}
	}
}

// note makes the note of a site, from what a note has of it.
func (im *image) note(s Site) []byte {
	return im.RawNote(probeOwner, probeType, im.descriptor(s), 4)
}

func (im *image) descriptor(s Site) []byte {
	d := im.Words(nil, s.Location, s.Base, s.Semaphore)
	return append(d, s.Provider+"\x00"+s.Name+"\x00"+s.Arguments+"\x00"...)
}

// open opens the image, which must be possible.
func (im *image) open(t testing.TB) *File {
	t.Helper()
	f, err := NewFile(bytes.NewReader(im.Bytes()))
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
