// SPDX-License-Identifier: BSD-2-Clause

package debuginfo

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

const codeAddress = elfimage.CodeAddress

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

// open opens the image, which must be possible.
func (im *image) open(t testing.TB) *File {
	t.Helper()
	f, err := New(bytes.NewReader(im.Bytes()))
	qt.Assert(t, qt.IsNil(err))
	return f
}
