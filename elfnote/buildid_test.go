// SPDX-License-Identifier: BSD-2-Clause

package elfnote

import (
	"debug/elf"
	"testing"

	"github.com/go-quicktest/qt"
)

func TestBuildID(t *testing.T) {
	id := []byte{0xab, 0xcd, 0xef, 0x01, 0x02}
	note := func(im *image) []byte { return im.rawNote(buildIDOwner, buildIDType, id, 4) }
	section := func(im *image, data []byte) {
		im.sections = append(im.sections, imageSection{name: ".note.gnu.build-id", kind: elf.SHT_NOTE, flags: elf.SHF_ALLOC, align: 4, data: data})
	}
	segment := func(im *image, align int, notes ...[]byte) {
		var data []byte
		for _, n := range notes {
			data = append(data, n...)
		}
		im.segments = append(im.segments, imageSegment{kind: elf.PT_NOTE, align: uint64(align), data: data})
	}
	for _, test := range []struct {
		name   string
		change func(im *image)
		want   string
		err    error
	}{
		{"in its section", func(im *image) { section(im, note(im)) }, "abcdef0102", nil},
		{"in a segment", func(im *image) {
			segment(im, 4, im.rawNote("Linux\x00", 1, []byte{1}, 4), im.rawNote(buildIDOwner, 1, id[:2], 4), note(im))
		}, "abcdef0102", nil},
		{"in the second of two segments", func(im *image) {
			segment(im, 8, im.rawNote(buildIDOwner, 5, []byte{1}, 8))
			segment(im, 4, note(im))
		}, "abcdef0102", nil},
		{"in a segment aligned to 8", func(im *image) {
			segment(im, 8, im.rawNote(buildIDOwner, 5, []byte{1}, 8), im.rawNote(buildIDOwner, buildIDType, id, 8))
		}, "abcdef0102", nil},
		{"section of another type, then in a segment", func(im *image) {
			section(im, note(im))
			im.sections[1].kind = elf.SHT_NOBITS
			segment(im, 4, note(im))
		}, "abcdef0102", nil},
		{"in the section of a debug file", func(im *image) {
			im.sections[0].kind = elf.SHT_NOBITS
			section(im, note(im))
		}, "abcdef0102", nil},
		{"segments of a debug file mean nothing", func(im *image) {
			im.sections[0].kind = elf.SHT_NOBITS
			segment(im, 4, note(im))
		}, "", ErrNoBuildID},
		{"none", func(im *image) {}, "", ErrNoBuildID},
		{"empty", func(im *image) { section(im, im.rawNote(buildIDOwner, buildIDType, nil, 4)) }, "", ErrNoBuildID},
		{"too long", func(im *image) {
			section(im, im.rawNote(buildIDOwner, buildIDType, make([]byte, maxBuildID+1), 4))
		}, "", ErrNoBuildID},
		{"broken note", func(im *image) { section(im, note(im)[:20]) }, "", ErrNoBuildID},
		{"large segment", func(im *image) {
			segment(im, 4, note(im))
			im.segments[2].space = ptr[uint64](maxBuildIDNotes + 1)
		}, "", ErrNoBuildID},
		{"segment past the end", func(im *image) {
			segment(im, 4, note(im))
			im.segments[2].offset = ptr[uint64](1 << 30)
		}, "", ErrTruncated},
		{"compressed", func(im *image) {
			section(im, note(im))
			im.sections[1].flags |= elf.SHF_COMPRESSED
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
