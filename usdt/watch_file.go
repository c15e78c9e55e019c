// SPDX-License-Identifier: BSD-2-Clause

package usdt

import (
	"github.com/gousdt/gousdt/elfnote"
)

// A watchedFile is a file whose sites have been checked, once for all its
// processes and all programs of a Watch.
type watchedFile struct {
	selection *Selection
	parts     []filePart // by program
}

// A filePart is the sites of a file for one program. Without a selection there
// are none.
type filePart struct {
	selection *Selection // shares the file's
	err       error      // the file has probes for the program, but none that can be attached
}

func newWatchedFile(sel *Selection, programs []WatchProgram) *watchedFile {
	if len(programs) == 1 {
		return &watchedFile{selection: sel, parts: []filePart{{selection: sel}}}
	}
	file := &watchedFile{selection: sel, parts: make([]filePart, len(programs))}
	for n := range programs {
		file.parts[n] = filePartOf(sel, programs[n].Patterns)
	}
	return file
}

// filePartOf returns what a program is for in a file.
func filePartOf(file *Selection, patterns []elfnote.Pattern) filePart {
	part := file.Matching(patterns...)
	switch skipped, _ := part.Skipped(); {
	case part.Len() > 0:
		return filePart{selection: part}
	case len(skipped) > 0:
		return filePart{err: skipped[0]}
	default:
		return filePart{}
	}
}
