// SPDX-License-Identifier: BSD-2-Clause

package elffile

import (
	"debug/elf"
	"encoding/hex"
	"fmt"
)

const (
	buildIDOwner = "GNU\x00"
	buildIDType  = 3 // NT_GNU_BUILD_ID
)

// BuildID returns the GNU build ID in lower-case hexadecimal, which a file and
// its separate debug file share. It fails with ErrNoBuildID, ErrTruncated,
// ErrCompressed, or an error of the reader.
func (f *File) BuildID() (string, error) {
	var places []Section
	if s := f.Section(buildIDSection); s.Size > 0 && s.Kind == elf.SHT_NOTE {
		if s.Flags&elf.SHF_COMPRESSED != 0 {
			return "", fmt.Errorf("section .note.gnu.build-id: %w", ErrCompressed)
		}
		places = append(places, s)
	}
	if !f.IsDebugFile {
		// Files whose section headers were removed still have the segments.
		places = append(places, f.noteSegments...)
	}
	for _, place := range places {
		if id, err := f.buildIDIn(place); id != "" || err != nil {
			return id, err
		}
	}
	return "", ErrNoBuildID
}

// buildIDIn searches notes for the build ID. It returns "" if there is none.
func (f *File) buildIDIn(notes Section) (string, error) {
	if notes.Size > maxBuildIDNotes {
		return "", nil
	}
	data, err := f.ReadRange(notes.Offset, notes.Size)
	if err != nil {
		return "", fmt.Errorf("build ID: %w", err)
	}
	pad := NoteAlign(notes.Align) - 1
	for len(data) >= NoteHeaderSize {
		ownerSize, size := uint64(f.Words.Uint32(data)), uint64(f.Words.Uint32(data[4:]))
		kind := f.Words.Uint32(data[8:])
		start := (NoteHeaderSize + ownerSize + pad) &^ pad
		end := start + size
		if end > uint64(len(data)) {
			return "", nil
		}
		owner, id := data[NoteHeaderSize:][:ownerSize], data[start:end]
		if string(owner) == buildIDOwner && kind == buildIDType && len(id) > 0 &&
			len(id) <= maxBuildID {
			return hex.EncodeToString(id), nil
		}
		data = data[min((end+pad)&^pad, uint64(len(data))):]
	}
	return "", nil
}

// NoteHeaderSize is the size of the header of a note in bytes. The header has
// three 32-bit words: the size of the owner's name with its NUL, the size of
// the descriptor, and the type. The owner's name and the descriptor follow,
// each padded to the alignment of the section.
const NoteHeaderSize = 12

// NoteAlign returns to how many bytes the parts of a note are padded: 8 if
// align, that of the section or segment, is 8, else 4, in ELF64 too.
func NoteAlign(align uint64) uint64 {
	if align == 8 {
		return 8
	}
	return 4
}
