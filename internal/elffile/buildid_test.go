// SPDX-License-Identifier: BSD-2-Clause

package elffile

import (
	"debug/elf"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/elffile/elfimage"
)

func TestBuildID(t *testing.T) {
	id := []byte{0xab, 0xcd, 0xef, 0x01, 0x02}
	note := func(im *image) []byte { return im.RawNote(buildIDOwner, buildIDType, id, 4) }
	section := func(im *image, data []byte) {
		im.Sections = append(im.Sections, elfimage.Section{Name: ".note.gnu.build-id",
			Kind: elf.SHT_NOTE, Flags: elf.SHF_ALLOC, Align: 4, Data: data})
	}
	segment := func(im *image, align int, notes ...[]byte) {
		var data []byte
		for _, n := range notes {
			data = append(data, n...)
		}
		im.Segments = append(im.Segments, elfimage.Segment{Kind: elf.PT_NOTE, Align: uint64(align),
			Data: data})
	}
	for _, test := range []struct {
		name   string
		change func(im *image)
		want   string
		err    error
	}{
		{"in its section", func(im *image) { section(im, note(im)) }, "abcdef0102", nil},
		{"in a segment", func(im *image) {
			segment(im, 4, im.RawNote("Linux\x00", 1, []byte{1}, 4),
				im.RawNote(buildIDOwner, 1, id[:2], 4), note(im))
		}, "abcdef0102", nil},
		{"in the second of two segments", func(im *image) {
			segment(im, 8, im.RawNote(buildIDOwner, 5, []byte{1}, 8))
			segment(im, 4, note(im))
		}, "abcdef0102", nil},
		{"in a segment aligned to 8", func(im *image) {
			segment(im, 8, im.RawNote(buildIDOwner, 5, []byte{1}, 8),
				im.RawNote(buildIDOwner, buildIDType, id, 8))
		}, "abcdef0102", nil},
		{"section of another type, then in a segment", func(im *image) {
			section(im, note(im))
			im.Sections[1].Kind = elf.SHT_NOBITS
			segment(im, 4, note(im))
		}, "abcdef0102", nil},
		{"in the section of a debug file", func(im *image) {
			im.Sections[0].Kind = elf.SHT_NOBITS
			section(im, note(im))
		}, "abcdef0102", nil},
		{"segments of a debug file mean nothing", func(im *image) {
			im.Sections[0].Kind = elf.SHT_NOBITS
			segment(im, 4, note(im))
		}, "", ErrNoBuildID},
		{"none", func(im *image) {}, "", ErrNoBuildID},
		{"empty", func(im *image) { section(im, im.RawNote(buildIDOwner, buildIDType, nil, 4)) },
			"", ErrNoBuildID},
		{"too long", func(im *image) {
			section(im, im.RawNote(buildIDOwner, buildIDType, make([]byte, maxBuildID+1), 4))
		}, "", ErrNoBuildID},
		{"broken note", func(im *image) { section(im, note(im)[:20]) }, "", ErrNoBuildID},
		{"large segment", func(im *image) {
			segment(im, 4, note(im))
			im.Segments[2].Size = elfimage.Ptr[uint64](maxBuildIDNotes + 1)
		}, "", ErrNoBuildID},
		{"segment past the end", func(im *image) {
			segment(im, 4, note(im))
			im.Segments[2].Offset = elfimage.Ptr[uint64](1 << 30)
		}, "", ErrTruncated},
		{"compressed", func(im *image) {
			section(im, note(im))
			im.Sections[1].Flags |= elf.SHF_COMPRESSED
		}, "", ErrCompressed},
	} {
		t.Run(test.name, func(t *testing.T) {
			everyClass(t, func(t *testing.T, im *image) {
				test.change(im)
				got, err := im.open(t).BuildID()
				qt.Assert(t, qt.ErrorIs(err, test.err))
				qt.Assert(t, qt.Equals(got, test.want))
			})
		})
	}
}
