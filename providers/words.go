// SPDX-License-Identifier: BSD-2-Clause

package providers

import (
	"errors"
	"strings"
)

// cut cuts a file into words: names, numbers and single signs. Comments go, and
// lines that begin with # are handed to directive.
func (p *parser) cut(source string) {
	line, begins := 1, true // whether nothing but blanks came before in the line
	for source != "" {
		skip := 1
		switch c := source[0]; {
		case c == '\n':
			line++
			begins = true
			source = source[1:]
			continue
		case c == ' ' || c == '\t' || c == '\r':
			source = source[1:]
			continue
		case c == '#' && begins:
			text, _, _ := strings.Cut(source, "\n")
			if err := p.directive(text); err != nil {
				p.err, p.line = err, line
				return
			}
			skip = len(text)
		case strings.HasPrefix(source, "//"):
			text, _, _ := strings.Cut(source, "\n")
			skip = len(text)
		case strings.HasPrefix(source, "/*"):
			end := strings.Index(source[2:], "*/")
			if end < 0 {
				p.err, p.line = errors.New("a comment has no end"), line
				return
			}
			skip = 2 + end + 2
			line += strings.Count(source[:skip], "\n")
		default:
			skip, begins = wordLength(source), false
			p.words = append(p.words, word{source[:skip], line})
		}
		source = source[skip:]
	}
	p.words = append(p.words, word{"", line})
}

// wordLength returns the length of the word that s begins with.
func wordLength(s string) int {
	n := 0
	for n < len(s) && isWordByte(s[n]) {
		n++
	}
	return max(n, 1)
}

func isWordByte(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// isName reports whether a word is a name.
func isName(s string) bool {
	return s != "" && isWordByte(s[0]) && (s[0] < '0' || s[0] > '9')
}
