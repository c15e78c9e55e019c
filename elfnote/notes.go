// SPDX-License-Identifier: BSD-2-Clause

package elfnote

import (
	"debug/elf"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// A note is a header of three 32-bit words (size of the owner's name with its
// NUL, size of the descriptor, type), the owner's name and the descriptor, each
// of the two padded to the alignment of the section. A probe's note has the
// owner "stapsdt" and the type 3.
const (
	noteHeaderSize = 12
	probeOwner     = "stapsdt\x00"
	probeType      = 3
)

// notes is the content of a file's note sections.
type notes struct {
	sections []section // those named .note.stapsdt, in file order

	once  sync.Once
	data  []byte // of all sections, one after the other
	text  string // the same memory
	parts []notePart
	err   error // why the sections that are not in data are not
}

// notePart is one section's part of the data.
type notePart struct {
	end   int // in the data
	align int // 4 or 8
}

// loadNotes reads the note sections, once.
func (f *File) loadNotes() *notes {
	n := &f.notes
	n.once.Do(func() {
		var errs []error
		for i, s := range n.sections {
			data, err := f.noteSection(s, len(n.data))
			if err != nil {
				if len(errs) < maxSectionErrors {
					errs = append(errs, fmt.Errorf("section .note.stapsdt at offset %#x: %w", s.offset, err))
				}
				continue
			}
			if i == 0 {
				n.data = data
			} else {
				n.data = append(n.data, data...)
			}
			n.parts = append(n.parts, notePart{end: len(n.data), align: noteAlign(s.align)})
		}
		n.err = errors.Join(errs...)
		n.text = text(n.data)
	})
	return n
}

// noteSection reads one section, after others with a total of bytes.
func (f *File) noteSection(s section, total int) ([]byte, error) {
	if s.flags&elf.SHF_COMPRESSED != 0 {
		return nil, ErrCompressed
	}
	if s.size > maxNoteBytes-uint64(total) {
		return nil, fmt.Errorf("%d bytes of notes: %w", s.size, ErrTooLarge)
	}
	return f.readRange(s.offset, s.size)
}

// noteAlign returns the alignment of owner and descriptor: 4, also in ELF64,
// unless the section or segment says 8. Other values occur and mean 4.
func noteAlign(align uint64) int {
	if align == 8 {
		return 8
	}
	return 4
}

// noteWalk walks over notes in the order of the file.
type noteWalk struct {
	words words
	data  []byte
	parts []notePart // those to come
	next  int        // where the next note starts
	end   int        // of the current part
	pad   int        // the alignment of the current part less one
	index int        // of the current note, from 0

	// The current note: its owner is data[owner:ownerEnd], its descriptor
	// data[start:stop].
	kind            uint32
	owner, ownerEnd int
	start, stop     int
}

func (n *notes) walk(w words) noteWalk {
	return noteWalk{words: w, data: n.data, parts: n.parts, index: -1}
}

// step moves to the next note and tells whether there is one. With ErrNoteSize
// that note cannot be read, nor can the rest of its part: the next step goes to
// the next part.
func (w *noteWalk) step() (bool, error) {
	note := w.data[w.next:w.end]
	for len(note) < noteHeaderSize {
		w.next = w.end
		// A few zeroes are padding.
		if slices.ContainsFunc(note, func(b byte) bool { return b != 0 }) {
			w.index++
			return true, ErrNoteSize
		}
		if len(w.parts) == 0 {
			return false, nil
		}
		w.end, w.pad = w.parts[0].end, w.parts[0].align-1
		w.parts = w.parts[1:]
		note = w.data[w.next:w.end]
	}
	w.index++
	size, pad := uint64(len(note)), uint64(w.pad)
	ownerEnd := noteHeaderSize + uint64(w.words.uint32(note))
	start := (ownerEnd + pad) &^ pad
	stop := start + uint64(w.words.uint32(note[4:]))
	if stop > size {
		if stop > start || ownerEnd > size {
			w.next = w.end
			return true, ErrNoteSize
		}
		// The last note, without a descriptor, lacks the padding of its owner.
		start, stop = size, size
	}
	w.kind = w.words.uint32(note[8:])
	w.owner, w.ownerEnd = w.next+noteHeaderSize, w.next+int(ownerEnd)
	w.start, w.stop = w.next+int(start), w.next+int(stop)
	w.next = min(w.next+int((stop+pad)&^pad), w.end)
	return true, nil
}

// is tells whether the current note has an owner and a type.
func (w *noteWalk) is(owner string, kind uint32) bool {
	return w.kind == kind && string(w.data[w.owner:w.ownerEnd]) == owner
}
