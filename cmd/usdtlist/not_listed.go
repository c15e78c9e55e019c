// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"slices"
	"strings"

	"github.com/gousdt/gousdt/elfnote"
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
	hasProbes := false
	var similar []string
	for site, err := range file.Sites() {
		if err != nil {
			continue
		}
		hasProbes = true
		name := site.Provider + ":" + site.Name
		if l.similar(site) && !slices.Contains(similar, name) {
			similar = append(similar, name)
		}
		if len(similar) == maxSimilar {
			break
		}
	}
	switch {
	case !hasProbes:
		l.warn("%s: no probes", path)
	case len(similar) > 0:
		l.warn("%s: no probe matches (nearest: %s)", path, strings.Join(similar, ", "))
	default:
		l.warn("%s: no probe matches (without a pattern, all are listed)", path)
	}
}

// maxSimilar is how many names are suggested.
const maxSimilar = 3

// similar tells whether a site would be picked if the patterns were not so
// exact: people write query-start, as DTrace does, for query__start.
func (l *lister) similar(site elfnote.Site) bool {
	for _, p := range l.options.patterns {
		loose, err := elfnote.ParsePattern(simplify(p.String()))
		if err == nil && loose.Match(simplify(site.Provider), simplify(site.Name)) {
			return true
		}
	}
	return false
}

func simplify(s string) string {
	return strings.ToLower(strings.NewReplacer("_", "", "-", "").Replace(s))
}
