// SPDX-License-Identifier: BSD-2-Clause

package elfnote

// SiteBound returns how many sites the file has at most: the number of notes
// that say they are a probe's, those that are broken or come twice among them.
// It takes a fraction of the time of Sites, and is for callers that make room
// for sites before they collect them. Where a note section cannot be read it
// counts the others.
func (f *File) SiteBound() int {
	walk := f.loadNotes().walk(f.words)
	bound := 0
	for {
		ok, err := walk.step()
		if !ok {
			return bound
		}
		if err != nil || walk.is(probeOwner, probeType) {
			bound++
		}
	}
}
