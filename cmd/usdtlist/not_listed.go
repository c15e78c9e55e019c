// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"strings"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/nearest"
)

// warnUnmatched tells which patterns picked nothing, and where there was
// nothing at all to pick. Of a single file that has nothing to list, more has
// been told already.
func (l *lister) warnUnmatched(found int, where string) {
	if found == 0 && (!l.several() || where == "") {
		return
	}
	if found == 0 && len(l.options.patterns) == 0 {
		l.warn("no probes in %s", where)
	}
	for i, p := range l.options.patterns {
		if !l.matched[i] {
			l.warn("no probe matches %s", p)
		}
	}
}

// maxWarnings is how many broken notes of a file are told one by one. It is
// less than elfnote.MaxMalformed.
const maxWarnings = 10

func (l *lister) warnBroken(path string, all *elfnote.Listing) {
	for i, note := range all.Malformed {
		if i == maxWarnings && all.MalformedCount > maxWarnings+1 {
			l.warn("%s: %d more broken notes (--json lists them all)", path, all.MalformedCount-i)
			return
		}
		l.warn("%s: skipped %v", path, note)
	}
}

// warnNothing says why the only file asked for has nothing to list.
func (l *lister) warnNothing(path string, file *elfnote.File) {
	near := nearest.Probes(file, l.options.patterns...)
	switch {
	case !hasProbes(file):
		l.warn("%s: no probes", path)
	case len(near) > 0:
		l.warn("%s: no probe matches (nearest: %s)", path, strings.Join(near, ", "))
	default:
		l.warn("%s: no probe matches (without a pattern, all are listed)", path)
	}
}

func hasProbes(file *elfnote.File) bool {
	for _, err := range file.Sites() {
		if err == nil {
			return true
		}
	}
	return false
}
