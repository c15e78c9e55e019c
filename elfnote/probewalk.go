// SPDX-License-Identifier: BSD-2-Clause

package elfnote

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/bits"

	"github.com/gousdt/gousdt/internal/elffile"
)

// probeWalk walks over the notes of probes and finds what is in their
// descriptors.
type probeWalk struct {
	noteWalk
	size uint64 // of all sections together, or as much as can be

	base                uint64 // as in the note
	location, semaphore uint64 // moved as prelink moved the file

	// Where in data the strings start, each one after the NUL of the one
	// before, and where the last one's NUL ends. Where shared has found them,
	// name and arguments are not set.
	provider, name, arguments, stringsEnd int

	room          []byte         // for strings, which share it
	used          int            // of room
	shared        *sharedStrings // nil where sharing strings does not pay
	sharesNothing bool           // it has been tried
}

// walkProbes returns a walk over the probes of the file. It has to be closed.
func (f *File) walkProbes() probeWalk {
	return probeWalk{noteWalk: f.walkNotes(f.elf.ProbeNotes), size: uint64(f.NoteSize())}
}

// step moves to the next note of a probe and reports whether there is one. With
// an error that note is malformed.
//
// It does itself, in a third of the time, what noteWalk.step does, where the
// next note is like nearly all: a probe's, padded to four bytes, and not the
// last one in data.
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

// stepOver does the same as step, over all notes that are not a probe's.
func (w *probeWalk) stepOver() (bool, error) {
	for {
		ok, err := w.noteWalk.step()
		if !ok || err != nil {
			return ok, err
		}
		if w.is(probeOwner, probeType) {
			return true, w.readDescriptor(w.data[w.descriptor:w.descriptorEnd])
		}
	}
}

// readDescriptor reads the descriptor of the current note, which is b.
func (w *probeWalk) readDescriptor(b []byte) error {
	size := len(b)
	addresses := 3 * w.words.Size()
	if size < addresses+3 {
		return errNoteTooShort
	}
	if w.words.Wide {
		b := (*[24]byte)(b)
		order := binary.LittleEndian
		w.location, w.base, w.semaphore = order.Uint64(b[0:]), order.Uint64(b[8:]),
			order.Uint64(b[16:])
		if w.words.Big {
			w.location, w.base, w.semaphore = bits.ReverseBytes64(w.location),
				bits.ReverseBytes64(w.base), bits.ReverseBytes64(w.semaphore)
		}
	} else {
		b := (*[12]byte)(b)
		w.location, w.base, w.semaphore = uint64(w.words.Uint32(b[0:])),
			uint64(w.words.Uint32(b[4:])), uint64(w.words.Uint32(b[8:]))
	}

	if w.relocator != nil {
		w.relocate()
	}
	if w.base != w.file.elf.ProbeBase && w.base != 0 && w.file.elf.HasProbeBase {
		w.move(w.file.elf.ProbeBase - w.base)
	}

	w.provider = w.descriptor + addresses
	if w.shared != nil && w.shared.find(b[addresses:]) {
		w.stringsEnd = w.descriptorEnd
		return nil // name and arguments are not needed then
	}

	// Most strings end within 64 bytes. Where one NUL is not found, the next is
	// not either.
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

// relocate takes the addresses of the current note from the relocations of the
// section, where these have them.
func (w *probeWalk) relocate() {
	at := w.offset + uint64(w.descriptor) - w.start
	for _, address := range []*uint64{&w.location, &w.base, &w.semaphore} {
		if value, ok := w.relocator.Value(at, *address); ok {
			*address = value
		}
		at += uint64(w.words.Size())
	}
}

// move moves location and semaphore by a distance.
func (w *probeWalk) move(distance uint64) {
	w.location = w.words.Moved(w.location, distance)
	if w.semaphore != 0 {
		w.semaphore = w.words.Moved(w.semaphore, distance)
	}
}

// after returns where in data the next NUL after a place ends, or that place if
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

// copyStrings returns a copy of the current note's strings. Provider and name
// are those of the note before.
//
// No pointer is written but for new room, which would need a write barrier.
func (w *probeWalk) copyStrings(provider, name string) string {
	strings := w.data[w.provider:w.stringsEnd]
	if len(w.room)-w.used < len(strings) {
		w.room, w.used = w.roomOrSharing(len(strings), provider, name), 0
	}
	room := w.room[w.used:]
	all := elffile.Text(room[:copy(room, strings)])
	w.used += len(all)
	return all
}

// makeRoom returns memory for at least a number of bytes, and for the strings
// of notes to come, which are about half of them.
func (w *probeWalk) makeRoom(size int) []byte {
	left := w.size - (w.total - w.rest())
	return make([]byte, max(size, int(min(left/8*5, maxTextSize))))
}

// roomOrSharing returns such memory too. It lets sites share strings from then
// on if there are many, or the current note is of the same probe as the one
// before, whose names are given. That is asked once in a hundred sites: files
// with few pay nothing for it.
func (w *probeWalk) roomOrSharing(size int, provider, name string) []byte {
	same := string(w.data[w.provider:w.name-1]) == provider &&
		string(w.data[w.name:w.arguments-1]) == name
	if (same || w.index >= manyNotes) && !w.sharesNothing {
		w.shared = &sharedStrings{start: w.index}
	}
	return w.makeRoom(size)
}

// malformed describes the current note, which is malformed.
func (w *probeWalk) malformed(err error) *NoteError {
	e := &NoteError{Index: w.index, Err: err}
	if errors.Is(err, errNoteSize) {
		return e // there is no descriptor
	}
	descriptor := w.data[w.descriptor:w.descriptorEnd]
	if addresses := 3 * w.words.Size(); len(descriptor) > addresses {
		if provider, rest, ok := bytes.Cut(descriptor[addresses:], []byte{0}); ok {
			e.Provider = string(provider)
			if name, _, ok := bytes.Cut(rest, []byte{0}); ok {
				e.Name = string(name)
			}
		}
	}
	return e
}
