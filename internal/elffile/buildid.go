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

// noteSegment is a PT_NOTE program header.
type noteSegment struct {
	offset, size uint64 // in the file
	align        uint64
}

// BuildID returns the GNU build ID in lower-case hexadecimal, by which a file
// and its separate debug file know each other. It fails with ErrNoBuildID,
// ErrTruncated, ErrCompressed, or an error of the reader.
func (f *File) BuildID() (string, error) {
	if s := f.buildIDNotes; s.Size > 0 && s.Kind == elf.SHT_NOTE {
		if s.Flags&elf.SHF_COMPRESSED != 0 {
			return "", fmt.Errorf("section .note.gnu.build-id: %w", ErrCompressed)
		}
		id, err := f.buildIDIn(s.Offset, s.Size, s.Align)
		if id != "" || err != nil {
			return id, err
		}
	}
	if f.IsDebugFile {
		return "", ErrNoBuildID
	}
	// Files whose section headers were removed still have the segments.
	for _, s := range f.noteSegments {
		id, err := f.buildIDIn(s.offset, s.size, s.align)
		if id != "" || err != nil {
			return id, err
		}
	}
	return "", ErrNoBuildID
}

// buildIDIn searches for the build ID among the notes in a range of the file.
func (f *File) buildIDIn(offset, size, align uint64) (string, error) {
	if size > maxBuildIDNotes {
		return "", nil
	}
	data, err := f.ReadRange(offset, size)
	if err != nil {
		return "", fmt.Errorf("build ID: %w", err)
	}
	pad := NoteAlign(align) - 1
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

// NoteHeaderSize is the size of the header of a note, which are three 32-bit
// words: the size of the owner's name with its NUL, the size of the descriptor,
// and the type. The owner's name and the descriptor follow, each of the two
// padded to the alignment of the section.
const NoteHeaderSize = 12

// NoteAlign returns the alignment of the parts of notes: 4, also in ELF64,
// unless the section or segment says 8. Other values occur and mean 4.
func NoteAlign(align uint64) uint64 {
	if align == 8 {
		return 8
	}
	return 4
}
