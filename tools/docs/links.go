// SPDX-License-Identifier: BSD-2-Clause

package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)|<img [^>]*src="([^"]+)"`)
	code    = regexp.MustCompile("`[^`\n]*`")
	heading = regexp.MustCompile(`^#+ (.*)\n?$`)
)

// linkProblems finds links to files and headings that are not there.
func (d *Document) linkProblems() (found problems) {
	for _, l := range d.lines {
		for _, m := range link.FindAllStringSubmatch(code.ReplaceAllString(l.text, ""), -1) {
			to := m[1] + m[2]
			name, part, _ := strings.Cut(to, "#")
			path := d.Path
			if name != "" {
				path = filepath.Join(filepath.Dir(d.Path), name)
			}
			if strings.Contains(to, "://") || strings.HasPrefix(to, "mailto:") {
				continue
			} else if _, err := os.Stat(path); err != nil {
				found.add(d.Path, l.number, "links to %s, which is not there", name)
			} else if part == "" || filepath.Ext(path) != ".md" {
				continue
			} else if target, err := Read(path); err != nil {
				found.add(d.Path, l.number, "%v", err)
			} else if !target.hasPart(part) {
				found.add(d.Path, l.number, "links to %s, which has no heading #%s",
					filepath.Base(path), part)
			}
		}
	}
	return found
}

// hasPart reports whether a link to a part of the document finds it.
func (d *Document) hasPart(name string) bool {
	return slices.ContainsFunc(d.lines, func(l line) bool {
		m := heading.FindStringSubmatch(l.text)
		return m != nil && slug(m[1]) == name || strings.Contains(l.text, `<a id="`+name+`">`)
	})
}

// slug returns the name that GitHub gives a heading.
func slug(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			return unicode.ToLower(r)
		}
		return -1
	}, heading)
}

// unlisted finds the pages that no index of a folder links to.
func unlisted(root string, all []*Document) (found problems) {
	linked := map[string]bool{filepath.Join(root, "README.md"): true}
	for _, d := range all {
		if filepath.Base(d.Path) != "README.md" {
			continue
		}
		for _, m := range link.FindAllStringSubmatch(d.String(), -1) {
			name, _, _ := strings.Cut(m[1], "#")
			linked[filepath.Join(filepath.Dir(d.Path), name)] = true
		}
	}
	for _, d := range all {
		if !linked[d.Path] {
			found.add(d.Path, 1, "no README.md links to this page")
		}
	}
	return found
}
