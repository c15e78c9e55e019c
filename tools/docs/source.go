// SPDX-License-Identifier: BSD-2-Clause

package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// source returns what a block of a document has to have by its mark. It reports
// false for a block whose text comes from no file.
func (d *Document) source(b *Block) (text string, ok bool, err error) {
	place, isFile := b.Mark["file"]
	body, isBody := b.Mark["body"]
	if !isFile && !isBody {
		return "", false, nil
	}
	name, start, _ := strings.Cut(place+body, " ")
	content, err := os.ReadFile(filepath.Join(filepath.Dir(d.Path), name))
	if err != nil {
		return "", true, err
	}
	text = withoutLicence(string(content))
	if start == "" && isFile {
		return text, true, nil
	}
	lines, ok := region(text, start)
	if !ok {
		return "", true, fmt.Errorf("%s has no line that begins with %q, or no end of it",
			name, start)
	}
	if isBody {
		lines = unindented(lines[1 : len(lines)-1])
	}
	return strings.Join(lines, ""), true, nil
}

// withoutLicence returns the text without the line about the licence.
func withoutLicence(text string) string {
	first, rest, _ := strings.Cut(text, "\n")
	if strings.Contains(first, "SPDX-License-Identifier") {
		return strings.TrimPrefix(rest, "\n")
	}
	return text
}

// region returns the lines from the one that begins with a text to the next one
// that ends a function or a structure.
func region(text, start string) (lines []string, ok bool) {
	for line := range strings.Lines(text) {
		if len(lines) > 0 || strings.HasPrefix(line, start) {
			lines = append(lines, line)
		}
		if len(lines) > 0 && strings.HasPrefix(line, "}") {
			return lines, true
		}
	}
	return nil, false
}

// unindented returns lines without the tabs that all have in front.
func unindented(lines []string) []string {
	all := make([]string, len(lines))
	for i, line := range lines {
		all[i] = strings.TrimPrefix(line, "\t")
	}
	return all
}
