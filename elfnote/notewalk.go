// SPDX-License-Identifier: BSD-2-Clause

package elfnote

import (
	"debug/elf"
	"errors"
	"fmt"
	"slices"

	"github.com/gousdt/gousdt/internal/elffile"
)

// A probe's note has this owner and this type, see [elffile.NoteHeaderSize].
const (
	probeOwner = "stapsdt\x00"
	probeType  = 3
)

// noteWalk walks over notes in the order of the file. It reads them through a
// buffer: so their number does not matter, and nobody has to keep them.
type noteWalk struct {
	file     *File
	words    elffile.Words
	sections []elffile.Section // those to come
	total    uint64            // bytes of the sections so far
	errs     []error           // why sections could not be read, or not to their end

	pooled *elffile.Buffer
	buffer []byte // the same, or a larger one for a larger note
	data   []byte // what the buffer holds: a piece of the current section
	offset uint64 // of data in the file
	start  uint64 // of the current section in the file
	end    uint64 // of the current section in the file
	pad    int    // the alignment of the current section less one
	next   int    // where in data the next note starts
	index  int    // of the current note, from 0

	relocator *elffile.Relocator // of the current section, nil where nothing is to be relocated
	relocated int                // how many relocations have been read

	// The current note: its owner is data[owner:ownerEnd], its descriptor
	// data[descriptor:descriptorEnd].
	kind                      uint32
	owner, ownerEnd           int
	descriptor, descriptorEnd int
}

// NoteSize returns how many bytes the note sections of probes have together, by
// what the section headers say: 64 MiB at most, which is the limit for them. A
// caller that has read some sites can estimate from it how many there are.
func (f *File) NoteSize() int {
	total := uint64(0)
	for _, s := range f.elf.ProbeNotes {
		total = min(total+min(s.Size, maxNoteBytes), maxNoteBytes)
	}
	return int(total)
}

// walkNotes returns a walk over the notes of sections. It has to be closed.
func (f *File) walkNotes(sections []elffile.Section) noteWalk {
	b := elffile.NewBuffer()
	return noteWalk{file: f, words: f.elf.Words, sections: sections, pooled: b,
		buffer: b[:], index: -1}
}

// close gives the buffer back: nothing of it may be in use any more. It returns
// why sections could not be read.
func (w *noteWalk) close() error {
	w.endRelocations()
	w.pooled.Free()
	w.pooled, w.buffer, w.data = nil, nil, nil
	return errors.Join(w.errs...)
}

// step moves to the next note and reports whether there is one. With
// ErrNoteSize that note cannot be read, nor can the rest of its section: the
// next step goes to the next section.
func (w *noteWalk) step() (bool, error) {
	for {
		rest := w.rest()
		if rest < elffile.NoteHeaderSize {
			if !w.need(rest) {
				continue
			}
			padding := w.data[w.next:]
			w.skip()
			// A few zeroes are padding.
			if slices.ContainsFunc(padding, func(b byte) bool { return b != 0 }) {
				w.index++
				return true, errNoteSize
			}
			if !w.nextSection() {
				return false, nil
			}
			continue
		}
		if !w.need(elffile.NoteHeaderSize) {
			continue
		}
		w.index++
		header, pad := w.data[w.next:], uint64(w.pad)
		w.kind = w.words.Uint32(header[8:])
		ownerEnd := elffile.NoteHeaderSize + uint64(w.words.Uint32(header))
		start := (ownerEnd + pad) &^ pad
		stop := start + uint64(w.words.Uint32(header[4:]))
		if stop > rest {
			if stop > start || ownerEnd > rest {
				w.skip()
				return true, errNoteSize
			}
			// The last note, without a descriptor, lacks the padding of its
			// owner.
			start, stop = rest, rest
		}
		next := min((stop+pad)&^pad, rest)
		if !w.need(next) {
			continue
		}
		w.owner, w.ownerEnd = w.next+elffile.NoteHeaderSize, w.next+int(ownerEnd)
		w.descriptor, w.descriptorEnd = w.next+int(start), w.next+int(stop)
		w.next += int(next)
		return true, nil
	}
}

// is reports whether the current note has an owner and a type.
func (w *noteWalk) is(owner string, kind uint32) bool {
	return w.kind == kind && string(w.data[w.owner:w.ownerEnd]) == owner
}

// rest returns how many bytes of the current section are still to come.
func (w *noteWalk) rest() uint64 { return w.end - w.offset - uint64(w.next) }

// need brings the next bytes of the section into data, a number that it has,
// and more with them as the buffer has room. If they cannot be read, it keeps
// the error and ends the section.
func (w *noteWalk) need(size uint64) bool {
	if size <= uint64(len(w.data)-w.next) {
		return true
	}
	if size > uint64(len(w.buffer)) {
		w.buffer = make([]byte, size)
	}
	offset := w.offset + uint64(w.next)
	w.data = w.buffer[:min(uint64(len(w.buffer)), w.end-offset)]
	w.offset, w.next = offset, 0
	if err := w.file.elf.ReadFull(w.data, offset); err != nil {
		w.fail(err)
		return false
	}
	return true
}

// skip ends the current section.
func (w *noteWalk) skip() { w.data, w.next, w.end = nil, 0, w.offset }

// nextSection moves to the start of the next section that can be read, and
// reports whether there is one.
func (w *noteWalk) nextSection() bool {
	for len(w.sections) > 0 {
		s := w.sections[0]
		w.sections = w.sections[1:]
		w.data, w.next, w.pad = nil, 0, int(elffile.NoteAlign(s.Align))-1
		w.offset, w.start, w.end = s.Offset, s.Offset, s.Offset+s.Size
		w.endRelocations()
		if w.file.kind == Relocatable {
			w.relocator = w.file.elf.NewRelocator(s, maxRelocations-w.relocated)
		}
		if err := w.check(s); err != nil {
			w.fail(err)
		} else if w.need(min(s.Size, uint64(len(w.buffer)))) {
			w.total += s.Size
			return true
		}
	}
	return false
}

// endRelocations ends the relocations of the current section.
func (w *noteWalk) endRelocations() {
	if w.relocator != nil {
		w.relocated = maxRelocations - w.relocator.Close()
		w.relocator = nil
	}
}

// check returns why a section cannot be read, before anything of it is read.
func (w *noteWalk) check(s elffile.Section) error {
	if s.Flags&elf.SHF_COMPRESSED != 0 {
		return elffile.ErrCompressed
	}
	if s.Size > maxNoteBytes-w.total {
		return fmt.Errorf("%d bytes of notes: %w", s.Size, ErrTooLarge)
	}
	return w.file.elf.Reaches(s.Offset, s.Size)
}

// fail ends the current section, which cannot be read.
func (w *noteWalk) fail(err error) {
	if len(w.errs) < maxSectionErrors {
		w.errs = append(w.errs, fmt.Errorf("section .note.stapsdt at offset %#x: %w", w.start, err))
	}
	w.skip()
}
