// SPDX-License-Identifier: BSD-2-Clause

package elfnote

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
	align        int
}

// BuildID returns the GNU build ID in lower-case hexadecimal, by which a file
// and its separate debug file know each other. It fails with ErrNoBuildID,
// ErrTruncated, ErrCompressed, or an error of the reader.
func (f *File) BuildID() (string, error) {
	if s := f.buildIDNotes; s.size > 0 && s.kind == elf.SHT_NOTE {
		if s.flags&elf.SHF_COMPRESSED != 0 {
			return "", fmt.Errorf("section .note.gnu.build-id: %w", ErrCompressed)
		}
		id, err := f.buildIDIn(s.offset, s.size, noteAlign(s.align))
		if id != "" || err != nil {
			return id, err
		}
	}
	if f.kind == DebugFile {
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

// buildIDIn looks for the build ID among the notes in a range of the file.
func (f *File) buildIDIn(offset, size uint64, align int) (string, error) {
	if size > maxBuildIDNotes {
		return "", nil
	}
	data, err := f.readRange(offset, size)
	if err != nil {
		return "", fmt.Errorf("build ID: %w", err)
	}
	for walk := walkBytes(f.words, data, align); ; {
		ok, err := walk.step()
		if !ok {
			return "", nil
		}
		if err != nil || !walk.is(buildIDOwner, buildIDType) {
			continue
		}
		if id := data[walk.descriptor:walk.descriptorEnd]; len(id) > 0 && len(id) <= maxBuildID {
			return hex.EncodeToString(id), nil
		}
	}
}
