// SPDX-License-Identifier: BSD-2-Clause

package elfnote

// NoteSize returns how many bytes the note sections of probes have together, by
// what the section headers say, which costs nothing to find out. With the sizes
// of some notes it tells how many sites there may be, for a caller that makes
// room for them. It is at most what this package reads of notes, 64 MiB.
func (f *File) NoteSize() int {
	total := uint64(0)
	for _, s := range f.elf.ProbeNotes {
		total = min(total+min(s.Size, maxNoteBytes), maxNoteBytes)
	}
	return int(total)
}
