// SPDX-License-Identifier: BSD-2-Clause

package elfnote

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"slices"

	"github.com/gousdt/gousdt/internal/elffile"
)

// The owner and the type of a probe's note, see [elffile.NoteHeaderSize].
const (
	probeOwner = "stapsdt\x00"
	probeType  = 3
)

// probeWalk walks over the notes of probes in the order of the file, and reads
// their descriptors. It reads notes through a buffer, so that memory does not
// depend on their number.
type probeWalk struct {
	file     *File
	words    elffile.Words
	sections []elffile.Section // those to come
	total    uint64            // bytes of the sections so far, with the current one
	size     uint64            // of all sections together in bytes, see noteSize
	errs     []error           // of sections that could not be read, or not to their end

	pooled *elffile.Buffer
	buffer []byte // pooled, or a larger one for a larger note
	data   []byte // a piece of the current section, in buffer
	offset uint64 // of data in the file
	start  uint64 // of the current section in the file
	end    uint64 // of the current section in the file
	pad    int    // the alignment of the current section less one
	next   int    // where in data the next note starts

	relocations map[uint64]elffile.Relocation // of the current section, by offset
	left        int                           // how many more may be read

	probeNote // the current one

	room []byte // shared by strings
	used int    // of room
}

// probeNote is a note in the data of a walk. Its descriptor is
// data[descriptor:descriptorEnd].
type probeNote struct {
	index                     int // from 0
	descriptor, descriptorEnd int
	base                      uint64 // as in the note
	location, semaphore       uint64 // adjusted if prelink moved the file

	// The indices in data at which the strings start, each one after the NUL of
	// the one before, and the index after the last one's NUL.
	provider, name, arguments, stringsEnd int
}

// noteSize returns the size of all note sections of probes in bytes, by the
// section headers: maxNoteBytes at most.
func (f *File) noteSize() int {
	total := uint64(0)
	for _, s := range f.read().ProbeNotes {
		total = min(total+min(s.Size, maxNoteBytes), maxNoteBytes)
	}
	return int(total)
}

func (f *File) walkProbes() probeWalk {
	b := elffile.NewBuffer()
	return probeWalk{file: f, words: f.read().Words, sections: f.read().ProbeNotes,
		size: uint64(f.noteSize()), pooled: b, buffer: b[:],
		probeNote: probeNote{index: -1}, left: maxRelocations}
}

// close must be called. It returns the errors of sections that could not be
// read.
func (w *probeWalk) close() error {
	w.pooled.Free()
	w.pooled, w.buffer, w.data = nil, nil, nil
	return errors.Join(w.errs...)
}

// step moves to the next note of a probe and reports whether there is one. An
// error means that this note is malformed. It is a fast path of stepOver, with
// a third of its time, for nearly all notes: of a probe, padded to four bytes,
// and not the last one in data.
func (w *probeWalk) step() (bool, error) {
	const start = elffile.NoteHeaderSize + len(probeOwner) // of the descriptor
	note := w.data[w.next:]
	if len(note) < start+3 || w.pad != 3 {
		return w.stepOver()
	}
	header := (*[start]byte)(note)
	size := uint64(w.words.Uint32(header[4:]))
	if w.words.Uint32(header[0:]) != uint32(len(probeOwner)) ||
		w.words.Uint32(header[8:]) != probeType ||
		string(header[elffile.NoteHeaderSize:]) != probeOwner || size > uint64(len(note)-start-3) {
		return w.stepOver()
	}
	w.index++
	w.descriptor = w.next + start
	w.descriptorEnd = w.descriptor + int(size)
	w.next += (start + int(size) + 3) &^ 3
	return true, w.readDescriptor(note[start:][:size])
}

// stepOver is step for notes of all kinds. It skips those that are not a
// probe's. After errNoteSize, neither the note nor the rest of its section can
// be read: the next step moves to the next section.
func (w *probeWalk) stepOver() (bool, error) {
	for {
		rest := w.rest()
		if rest < elffile.NoteHeaderSize {
			if !w.need(rest) {
				continue
			}
			padding := w.data[w.next:]
			w.skip()
			// A few zero bytes are padding.
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
		kind := w.words.Uint32(header[8:])
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
		owner := w.data[w.next+elffile.NoteHeaderSize : w.next+int(ownerEnd)]
		w.descriptor, w.descriptorEnd = w.next+int(start), w.next+int(stop)
		w.next += int(next)
		switch {
		case string(owner) != probeOwner:
		case kind != probeType:
			return true, &addressError{uint64(kind), errNoteType}
		default:
			return true, w.readDescriptor(w.data[w.descriptor:w.descriptorEnd])
		}
	}
}

// rest returns how many bytes of the current section are still to come.
func (w *probeWalk) rest() uint64 { return w.end - w.offset - uint64(w.next) }

// need reads the next size bytes of the section into data, and as many more as
// the buffer has room for. The caller has checked that the section has size
// bytes. If they cannot be read, need keeps the error, ends the section, and
// reports false.
func (w *probeWalk) need(size uint64) bool {
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

func (w *probeWalk) skip() { w.data, w.next, w.end = nil, 0, w.offset }

// nextSection moves to the start of the next section that can be read, and
// reports whether there is one.
func (w *probeWalk) nextSection() bool {
	for len(w.sections) > 0 {
		s := w.sections[0]
		w.sections = w.sections[1:]
		w.data, w.next, w.pad = nil, 0, int(elffile.NoteAlign(s.Align))-1
		w.offset, w.start, w.end = s.Offset, s.Offset, s.Offset+s.Size
		if w.file.isObject() {
			w.relocations = w.file.elf.Relocations(s, &w.left)
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

// check returns an error if the headers show that a section cannot be read.
func (w *probeWalk) check(s elffile.Section) error {
	if s.Flags&elf.SHF_COMPRESSED != 0 {
		return elffile.ErrCompressed
	}
	if s.Size > maxNoteBytes-w.total {
		return fmt.Errorf("%d bytes of notes: %w", s.Size, elffile.ErrTooLarge)
	}
	return w.file.elf.Reaches(s.Offset, s.Size)
}

// fail ends the current section, which cannot be read.
func (w *probeWalk) fail(err error) {
	if len(w.errs) < maxSectionErrors {
		w.errs = append(w.errs, fmt.Errorf("section .note.stapsdt at offset %#x: %w", w.start, err))
	}
	w.skip()
}

func (w *probeWalk) readDescriptor(b []byte) error {
	size := len(b)
	addresses := 3 * w.words.Size()
	if size < addresses+3 {
		return errNoteTooShort
	}
	word := w.words.Size()
	w.location, w.base = w.words.Address(b), w.words.Address(b[word:])
	w.semaphore = w.words.Address(b[2*word:])
	if w.relocations != nil {
		w.relocate()
	}
	if w.base != w.file.elf.ProbeBase && w.base != 0 && w.file.elf.HasProbeBase {
		distance := w.file.elf.ProbeBase - w.base
		w.location = w.words.Moved(w.location, distance)
		if w.semaphore != 0 {
			w.semaphore = w.words.Moved(w.semaphore, distance)
		}
	}

	w.provider = w.descriptor + addresses
	// Most strings end within 64 bytes. Without one NUL, the next one is not
	// found either.
	strings := w.data[w.provider:]
	var nuls uint64
	if len(strings) >= 64 {
		nuls = zeroes((*[64]byte)(strings))
	}
	w.name = w.provider + bits.TrailingZeros64(nuls) + 1
	nuls &= nuls - 1
	w.arguments = w.provider + bits.TrailingZeros64(nuls) + 1
	if nuls == 0 {
		w.name = w.after(w.provider)
		w.arguments = w.after(w.name)
	}
	nuls &= nuls - 1
	w.stringsEnd = w.provider + bits.TrailingZeros64(nuls) + 1
	if nuls == 0 {
		w.stringsEnd = w.after(w.arguments)
	}
	if w.stringsEnd == w.arguments || w.stringsEnd > w.descriptorEnd {
		return errNoteUnterminated
	}
	return nil
}

// relocate sets the addresses of the current note that the section has
// relocations for.
func (w *probeWalk) relocate() {
	at := w.offset + uint64(w.descriptor) - w.start
	for _, address := range []*uint64{&w.location, &w.base, &w.semaphore} {
		if value, ok := w.relocations[at].Address(w.words, *address); ok {
			*address = value
		}
		at += uint64(w.words.Size())
	}
}

// after returns the index in data after the next NUL from start on, or start if
// the descriptor has none.
func (w *probeWalk) after(start int) int {
	if start >= w.descriptorEnd {
		return start
	}
	return start + bytes.IndexByte(w.data[start:w.descriptorEnd], 0) + 1
}

// zeroes returns a bit for each byte that is zero, the first byte's lowest.
func zeroes(b *[64]byte) uint64 {
	return ^(nonzero(b[0:]) | nonzero(b[8:])<<8 | nonzero(b[16:])<<16 | nonzero(b[24:])<<24 |
		nonzero(b[32:])<<32 | nonzero(b[40:])<<40 | nonzero(b[48:])<<48 | nonzero(b[56:])<<56)
}

// nonzero returns a bit for each of the first eight bytes that is not zero, the
// first byte's lowest. The sum carries into the high bit of each byte, and the
// product gathers the high bits in the highest byte.
func nonzero(b []byte) uint64 {
	const low = 0x7f7f7f7f7f7f7f7f
	v := binary.LittleEndian.Uint64(b)
	return ((v&low + low) | v) &^ low * 0x0002040810204081 >> 56
}

// copyStrings returns a copy of the current note's strings.
//
// It only writes a pointer for new room: each needs a write barrier.
func (w *probeWalk) copyStrings() string {
	strings := w.data[w.provider:w.stringsEnd]
	if len(w.room)-w.used < len(strings) {
		// Some five eighths of the rest of the notes are strings.
		left := w.size - (w.total - w.rest())
		w.room, w.used = make([]byte, max(len(strings), int(min(left/8*5, maxTextSize)))), 0
	}
	room := w.room[w.used:]
	all := elffile.Text(room[:copy(room, strings)])
	w.used += len(all)
	return all
}

func (w *probeWalk) malformed(err error) *elffile.NoteError {
	e := &elffile.NoteError{Index: w.index, Err: err}
	if errors.Is(err, errNoteSize) || errors.Is(err, errNoteType) {
		return e // there is no descriptor that can be read
	}
	descriptor := w.data[w.descriptor:w.descriptorEnd]
	descriptor = descriptor[min(3*w.words.Size(), len(descriptor)):]
	if parts := bytes.SplitN(descriptor, []byte{0}, 3); len(parts) > 1 {
		e.Provider = string(parts[0])
		if len(parts) > 2 {
			e.Name = string(parts[1])
		}
	}
	return e
}
