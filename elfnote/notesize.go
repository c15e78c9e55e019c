// SPDX-License-Identifier: BSD-2-Clause

package elfnote

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
