// SPDX-License-Identifier: BSD-2-Clause

package usdt

import (
	"fmt"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/proc"
)

// A watchedFile is a file whose sites have been checked, once for all its
// processes and all programs of a Watch.
type watchedFile struct {
	selection *Selection
	parts     []filePart // by program
}

// A filePart is what one program is attached to in a file: nothing without a
// selection.
type filePart struct {
	selection *Selection // shares the file's
	err       error      // the file has probes for the program, but none that can be attached
}

// file returns the sites of a pair's file.
func (w *Watch) file(pair *proc.Pair) (*watchedFile, error) {
	if known := w.files[pair.File]; known != nil {
		return known, nil
	}
	sel, err := Select(Target{Pair: pair}, nil, w.patterns...)
	if err != nil {
		return nil, err
	}
	known := &watchedFile{selection: sel, parts: []filePart{{selection: sel}}}
	if len(w.programs) > 1 {
		known.parts = make([]filePart, len(w.programs))
		for n := range w.programs {
			known.parts[n].selection, known.parts[n].err = sel.part(w.programs[n].Patterns)
		}
	}
	w.files[pair.File] = known
	return known, nil
}

// part returns what of a selection is of the probes that match, as if they
// alone had been selected; nil where there is nothing.
func (s *Selection) part(patterns []elfnote.Pattern) (*Selection, error) {
	var which []int
	for i := range s.Len() {
		if site := s.Site(i); elfnote.MatchAny(patterns, site.Provider, site.Name) {
			which = append(which, i)
		}
	}
	part := s.Subset(which)
	part.unfit, part.unfitCount, part.broken = nil, 0, nil
	for _, unfit := range s.unfit {
		if elfnote.MatchAny(patterns, unfit.Provider, unfit.Name) {
			part.unfit = append(part.unfit, unfit)
			part.unfitCount++
		}
	}
	for _, broken := range s.broken {
		if elfnote.MatchAny(patterns, broken.Provider, broken.Name) {
			part.broken = append(part.broken, broken)
		}
	}
	switch {
	case len(which) > 0:
		return part, nil
	case len(part.unfit) > 0:
		return nil, part.unfit[0]
	case len(part.broken) > 0:
		return nil, fmt.Errorf("%s: %w", s.opened.name, part.broken[0])
	default:
		return nil, nil
	}
}
