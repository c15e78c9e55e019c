// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"strings"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/nearest"
)

// warnUnmatched names the patterns that match no probe, and says where there
// are no probes at all. For a single file, warnNothing has said more.
func (l *lister) warnUnmatched(found int, where string) {
	if found == 0 && (!l.several() || where == "") {
		return
	}
	if found == 0 && len(l.options.patterns) == 0 {
		l.Warn("no probes in %s", where)
	}
	for i, p := range l.options.patterns {
		if !l.matched[i] {
			l.Warn("no probe matches %s", p)
		}
	}
}

// warnMalformed names the notes of a file that cannot be used.
func (l *lister) warnMalformed(path string, all *elfnote.Listing) {
	const kind = "skipped notes"
	for _, note := range all.Malformed {
		l.WarnOf(kind, "%s: skipped %v", path, note)
	}
	l.More(kind, all.MalformedCount-len(all.Malformed))
}

// warnNothing says why the only file asked for has nothing to list.
func (l *lister) warnNothing(path string, file *elfnote.File) {
	near := nearest.Probes(file, l.options.patterns...)
	patterns := l.wanted()
	switch {
	case !hasProbes(file):
		l.Warn("%s: no probes", path)
	case len(near) > 0:
		l.Warn("%s: no probe matches %s (nearest: %s)", path, patterns, strings.Join(near, ", "))
	default:
		l.Warn("%s: no probe matches %s (without a pattern, all are listed)", path, patterns)
	}
}

// wanted returns the patterns.
func (l *lister) wanted() string {
	var wanted []string
	for _, p := range l.options.patterns {
		wanted = append(wanted, p.String())
	}
	return strings.Join(wanted, ", ")
}

func hasProbes(file *elfnote.File) bool {
	for _, err := range file.Sites() {
		if err == nil {
			return true
		}
	}
	return false
}
