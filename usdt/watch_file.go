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
		file.parts[n].selection, file.parts[n].err = sel.part(programs[n].Patterns)
	}
	return file
}

// part returns what of a selection is of the probes that match, as if they
// alone had been selected; nil where there is nothing.
func (s *Selection) part(patterns []elfnote.Pattern) (*Selection, error) {
	var which []int
	for i, site := range s.Sites() {
		if elfnote.MatchAny(patterns, site.Provider, site.Name) {
			which = append(which, i)
		}
	}
	part := s.Subset(which)
	part.skipped, part.skippedCount = nil, 0
	for _, site := range s.skipped {
		if elfnote.MatchAny(patterns, site.Provider, site.Name) {
			part.skipped = append(part.skipped, site)
			part.skippedCount++
		}
	}
	switch {
	case len(which) > 0:
		return part, nil
	case len(part.skipped) > 0:
		return nil, part.skipped[0]
	default:
		return nil, nil
	}
}
