// SPDX-License-Identifier: BSD-2-Clause

package elfnote

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/elffile"
)

func TestSitesHaveStringsOfAnyLength(t *testing.T) {
	lengths := []int{0, 1, 7, 8, 20, 60, 63, 64, 65, 500,
		elffile.ChunkSize - 100, elffile.ChunkSize, 3 * elffile.ChunkSize}
	everyClass(t, func(t *testing.T, im *image) {
		var want []Site
		var notes [][]byte
		for _, length := range lengths {
			for part := range 3 {
				s := at(len(want))
				*[]*string{&s.Provider, &s.Name, &s.Arguments}[part] = strings.Repeat("\x01\xff",
					length)[:length]
				want = append(want, s)
				notes = append(notes, im.note(s))
			}
		}
		im.AddNotes(notes...)
		sites, errs := collect(im.open(t))
		qt.Assert(t, qt.HasLen(errs, 0))
		qt.Assert(t, qt.HasLen(sites, len(want)))
		for i, s := range sites {
			s.Offset = 0
			qt.Assert(t, qt.IsTrue(s == want[i]), qt.Commentf("site %d", i))
		}
	})
}

// notesThrough returns what is found in each note of a probe when they are read
// through a buffer of a size.
func notesThrough(f *File, size int) (notes []string) {
	w := f.walkProbes()
	defer w.close()
	w.buffer = w.buffer[:size]
	for {
		ok, err := w.step()
		if !ok {
			return notes
		}
		note := fmt.Sprint(w.index, err)
		if err == nil {
			note += fmt.Sprintf(" %x: %q %q %q", w.location, w.data[w.provider:w.name],
				w.data[w.name:w.arguments], w.data[w.arguments:w.stringsEnd])
		}
		notes = append(notes, note)
	}
}

func TestSitesDoNotDependOnTheBuffer(t *testing.T) {
	everyClass(t, func(t *testing.T, im *image) {
		for _, align := range []int{4, 8} {
			im.AddNotes(
				im.RawNote(probeOwner, probeType, im.descriptor(at(1)), align),
				im.RawNote("A\x00", 1, []byte{1}, align),
				im.RawNote(probeOwner, probeType, im.descriptor(Site{Name: strings.Repeat("n", 100),
					Arguments: strings.Repeat("a", 50)}), align),
				im.RawNote(probeOwner, probeType, im.descriptor(at(2))[:20], align),
				im.RawNote(probeOwner, probeType, im.descriptor(at(3)), align),
			)
			im.Sections[len(im.Sections)-1].Align = uint64(align)
		}
		f := im.open(t)
		want := notesThrough(f, elffile.ChunkSize)
		qt.Assert(t, qt.HasLen(want, 8))
		for size := range 300 {
			qt.Assert(t, qt.DeepEquals(notesThrough(f, size), want), qt.Commentf("size %d", size))
		}
	})
}

func TestSitesKeepTheirStrings(t *testing.T) {
	open := func(name string) *File {
		im := newImage64()
		for i := range 3 * elffile.ChunkSize / 100 {
			im.AddNotes(im.note(Site{Location: codeAddress + uint64(i%codeSize),
				Provider: "provider", Name: fmt.Sprint(name, i)}))
		}
		im.AddNotes(im.note(Site{Provider: "broken", Name: name}))
		return im.open(t)
	}
	sites, errs := collect(open("one"))
	collect(open("two"))
	for i, s := range sites {
		qt.Assert(t, qt.Equals(s.Provider, "provider"))
		qt.Assert(t, qt.Equals(s.Name, fmt.Sprint("one", i)))
	}
	qt.Assert(t, qt.HasLen(errs, 1))
	qt.Assert(t, qt.Equals(errs[0].(*elffile.NoteError).Name, "one"))
}

func TestSitesMayBeNested(t *testing.T) {
	im := newImage64()
	im.AddNotes(im.note(at(1)), im.note(at(2)), im.note(at(3)))
	f := im.open(t)
	var got []int
	for outer := range f.Sites() {
		for inner := range f.Sites() {
			got = append(got, locations([]Site{outer, inner})...)
			if inner.Location == codeAddress+2 {
				break
			}
		}
	}
	qt.Assert(t, qt.DeepEquals(got, []int{1, 1, 1, 2, 2, 1, 2, 2, 3, 1, 3, 2}))
}

var errFailing = errors.New("input/output error")

// gapReader fails where it would read what is between two offsets.
type gapReader struct {
	data     []byte
	from, to int64
}

func (r gapReader) ReadAt(p []byte, off int64) (int, error) {
	if off < r.to && off+int64(len(p)) > r.from {
		return 0, errFailing
	}
	return bytes.NewReader(r.data).ReadAt(p, off)
}

func TestSitesEndASectionAtAReadError(t *testing.T) {
	im := newImage64()
	note := im.note(at(1))
	im.AddNotes(bytes.Repeat(note, 2*elffile.ChunkSize/len(note)))
	im.AddNotes(im.note(at(2)))
	b := im.Bytes()
	start := int64(bytes.Index(b, note))
	f, err := NewFile(gapReader{b, start + elffile.ChunkSize + 100, start + elffile.ChunkSize + 200})
	qt.Assert(t, qt.IsNil(err))
	sites, errs := collect(f)
	qt.Assert(t, qt.DeepEquals(locations(sites), []int{1, 2}))
	qt.Assert(t, qt.HasLen(errs, 1))
	qt.Assert(t, qt.ErrorIs(errs[0], errFailing))
	qt.Assert(t,
		qt.ErrorMatches(errs[0], "section .note.stapsdt at offset 0x[0-9a-f]+: input/output error"))
}

func TestZeroes(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	values := []byte{0, 0, 1, 2, 0x7f, 0x80, 0x81, 0xff}
	for range 10000 {
		var b [64]byte
		var want uint64
		for i := range b {
			b[i] = values[random.IntN(len(values))]
			if b[i] == 0 {
				want |= 1 << i
			}
		}
		qt.Assert(t, qt.Equals(zeroes(&b), want))
	}
}
