// SPDX-License-Identifier: BSD-2-Clause

package argspec

import "strings"

// scanner walks over the text of one operand. Every method either advances or
// leaves the position where it was, and none looks past the end.
type scanner struct {
	text string
	pos  int
}

// blanks are the bytes that isBlank knows.
const blanks = " \t\n\v\f\r"

// isBlank is true for what separates arguments. Compilers write spaces; text
// passed through assembler macros may hold tabs, and a line end does no harm.
func isBlank(c byte) bool { return c == ' ' || c-'\t' <= '\r'-'\t' }

func isDigit(c byte) bool { return c-'0' <= 9 }

func isLetter(c byte) bool { return c|0x20-'a' <= 'z'-'a' }

// isNameStart and isNamePart are GNU as's rule for symbols in ELF files: bytes
// of UTF-8 sequences are letters, $ is one except at the start.
func isNameStart(c byte) bool { return isLetter(c) || c == '_' || c == '.' || c >= 0x80 }

func isNamePart(c byte) bool { return isNameStart(c) || isDigit(c) || c == '$' }

// peek returns the next byte, 0 at the end.
func (s *scanner) peek() byte {
	if s.pos < len(s.text) {
		return s.text[s.pos]
	}
	return 0
}

// peekAt returns the byte n places on, 0 past the end.
func (s *scanner) peekAt(n int) byte {
	if n < len(s.text)-s.pos {
		return s.text[s.pos+n]
	}
	return 0
}

func (s *scanner) done() bool { return s.pos >= len(s.text) }

func (s *scanner) rest() string { return s.text[s.pos:] }

func (s *scanner) skipBlanks() {
	for s.pos < len(s.text) && isBlank(s.text[s.pos]) {
		s.pos++
	}
}

// accept skips blanks and then c, if it is next.
func (s *scanner) accept(c byte) bool {
	s.skipBlanks()
	if s.peek() != c || s.done() {
		return false
	}
	s.pos++
	return true
}

// word returns the letters and digits that come next, maybe none. Register
// names of all machines are made of them.
func (s *scanner) word() string {
	start := s.pos
	for s.pos < len(s.text) && (isLetter(s.text[s.pos]) || isDigit(s.text[s.pos])) {
		s.pos++
	}
	return s.text[start:s.pos]
}

// name returns the symbol name that comes next, without quotes where it is
// quoted, or "".
func (s *scanner) name() string {
	if s.peek() == '"' {
		end := strings.IndexByte(s.text[s.pos+1:], '"')
		if end < 0 {
			return ""
		}
		name := s.text[s.pos+1 : s.pos+1+end]
		s.pos += end + 2
		return name
	}
	if !isNameStart(s.peek()) {
		return ""
	}
	start := s.pos
	for s.pos < len(s.text) && isNamePart(s.text[s.pos]) {
		s.pos++
	}
	return s.text[start:s.pos]
}

// lower returns the word in lower case, the word itself where it is so already
// (as all compilers write it) or longer than any name we look for.
func lower(word string) string {
	for i := range len(word) {
		if word[i]-'A' <= 'Z'-'A' {
			if len(word) > 16 {
				return word
			}
			return strings.ToLower(word)
		}
	}
	return word
}

// numbered returns N for a word that is the prefix and then N, a decimal number
// from 0 to last without superfluous zeros.
func numbered(word, prefix string, last int) (int, bool) {
	digits, found := strings.CutPrefix(word, prefix)
	if !found || len(digits) == 0 || len(digits) > 2 || !isDigit(digits[0]) {
		return 0, false
	}
	n := int(digits[0] - '0')
	if len(digits) == 2 {
		if n == 0 || !isDigit(digits[1]) {
			return 0, false
		}
		n = n*10 + int(digits[1]-'0')
	}
	return n, n <= last
}
