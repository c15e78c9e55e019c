// SPDX-License-Identifier: BSD-2-Clause

package elfnote

import "github.com/gousdt/gousdt/internal/elffile"

// What this package refuses to read of notes, which are untrusted as all of a
// file is. Each limit is far above anything a tool chain produces. Those of
// headers and symbols are in package elffile.
const (
	// maxNoteBytes bounds the note sections of one file together. 100,000 sites
	// take about 9 MB and the largest real file known to us, libjvm, 50 kB.
	// They are read through a buffer, but their strings are the caller's to
	// hold.
	maxNoteBytes = 64 << 20

	// maxRelocations bounds the relocations of an object file's probes that are
	// read, of which each note has three.
	maxRelocations = 1 << 18

	// maxSectionErrors bounds the errors kept of note sections that cannot be
	// read, of which a crafted file can have as many as sections.
	maxSectionErrors = 16

	// maxArgumentWords bounds the names in arguments that are looked up at
	// once, because they are held in memory: these take 40 MB. Of real files
	// libjvm has the most arguments, 2,000. Further names are looked up one by
	// one, for about a second.
	maxArgumentWords = 1 << 18

	// maxPattern bounds a pattern, because matching takes time in proportion to
	// the pattern's length times the name's.
	maxPattern = 1 << 12

	// maxTextSize bounds the memory that the strings of sites share, which is
	// held as long as one of them is. The strings of a hundred sites fit.
	maxTextSize = 8 << 10

	// chunkSize is how much of a large range is read at once, and the largest
	// size that is allocated before the file has shown that it has the bytes.
	// The notes of nearly all files fit.
	chunkSize = elffile.ChunkSize
)
