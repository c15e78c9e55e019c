// SPDX-License-Identifier: BSD-2-Clause

package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"unicode"
)

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)|<img [^>]*src="([^"]+)"`)
	code    = regexp.MustCompile("`[^`\n]*`")
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	anchor  = regexp.MustCompile(`<a id="([^"]+)">`)
)

// linkProblems finds links to files and headings that are not there.
func (d *Document) linkProblems() (problems []string) {
	for _, p := range d.Pieces {
		for i, line := range strings.Split(code.ReplaceAllString(p.Text, ""), "\n") {
			for _, m := range link.FindAllStringSubmatch(line, -1) {
				if problem := d.linkProblem(m[1] + m[2]); problem != "" {
					problems = append(problems, fmt.Sprintf("%s:%d: %s", d.Path, p.Line+i, problem))
				}
			}
		}
	}
	return problems
}

func (d *Document) linkProblem(to string) string {
	if strings.Contains(to, "://") || strings.HasPrefix(to, "mailto:") {
		return ""
	}
	name, part, _ := strings.Cut(to, "#")
	path := d.Path
	if name != "" {
		path = filepath.Join(filepath.Dir(d.Path), name)
	}
	if _, err := os.Stat(path); err != nil {
		return fmt.Sprintf("links to %s, which is not there", name)
	}
	if part == "" || filepath.Ext(path) != ".md" {
		return ""
	}
	target, err := Read(path)
	if err != nil {
		return err.Error()
	}
	if !target.anchors()[part] {
		return fmt.Sprintf("links to %s, which has no heading #%s", filepath.Base(path), part)
	}
	return ""
}

// anchors returns what links to parts of a document can name.
func (d *Document) anchors() map[string]bool {
	all := make(map[string]bool)
	for _, p := range d.Pieces {
		for _, m := range heading.FindAllStringSubmatch(p.Text, -1) {
			all[slug(m[1])] = true
		}
		for _, m := range anchor.FindAllStringSubmatch(p.Text, -1) {
			all[m[1]] = true
		}
	}
	return all
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
func unlisted(root string, all []*Document) (problems []string) {
	linked := make(map[string]bool)
	for _, d := range all {
		if filepath.Base(d.Path) != "README.md" {
			continue
		}
		for _, m := range link.FindAllStringSubmatch(d.String(), -1) {
			name, _, _ := strings.Cut(m[1], "#")
			linked[filepath.Join(filepath.Dir(d.Path), name)] = true
		}
	}
	top := filepath.Join(root, "README.md")
	for _, d := range all {
		if d.Path != top && !linked[d.Path] {
			problems = append(problems, d.Path+": no README.md links to this page")
		}
	}
	return problems
}
