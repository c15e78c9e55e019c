// SPDX-License-Identifier: BSD-2-Clause

// Package terminal makes untrusted text safe to print, and writes tables.
//
// Provider names, probe names, argument strings and file paths are arbitrary
// bytes, chosen by the author of a file. Written to a terminal unchanged, they
// could move the cursor, hide lines, set the window title or answer a query on
// the user's behalf. [Escape] writes every byte that is not plainly printable
// as a backslash escape, without losing information: the escaped text says
// exactly which bytes were there.
//
//	terminal.Escape("gc\x1b[2J")      // gc\x1b[2J    (a backslash, an x, 1, b, ...)
//	terminal.Escape("naïve")          // naïve        (printable text stays)
//	terminal.Escape("a\\b")           // a\\b         (so the escape is unambiguous)
//	terminal.Escape("\u202egnp.exe")  // \u202egnp.exe (text direction changes do not print)
//
// The escapes are those of a Go string literal.
package terminal

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// Escape returns s with everything that could drive a terminal written as a
// backslash escape: control characters (also the 8-bit ones, U+0080 to U+009F),
// bytes that are not valid UTF-8, characters that print nothing or change the
// direction of text, and the backslash itself. A string that needs no escape is
// returned as it is, without allocation.
func Escape(s string) string {
	if isPlain(s) {
		return s
	}
	parts := strings.Split(s, `"`) // quotation marks stay
	for i, part := range parts {
		quoted := strconv.Quote(part)
		parts[i] = quoted[1 : len(quoted)-1]
	}
	return strings.Join(parts, `"`)
}

// Clean is [Escape] for messages, such as errors, which may carry escapes
// already: it leaves backslashes alone.
func Clean(s string) string {
	parts := strings.Split(s, `\`)
	for i, part := range parts {
		parts[i] = Escape(part)
	}
	return strings.Join(parts, `\`)
}

// Columns returns how many columns of a table the text takes: its characters.
// Characters that a terminal draws two columns wide count as one, so a table
// with such names is unaligned but complete.
func Columns(s string) int {
	return utf8.RuneCountInString(s)
}

// Cut returns a text of at most this many columns: a longer one ends in "...".
// An escape of [Escape] is kept or cut as a whole.
func Cut(s string, columns int) string {
	if Columns(s) <= columns {
		return s
	}
	const dots = "..."
	cut := string([]rune(s)[:max(columns-len(dots), 0)])
	end := 0
	for length := 0; end+length <= len(cut); {
		end += length
		length = 1
		if escape := cut[end:]; strings.HasPrefix(escape, `\`) {
			length = 2
			if len(escape) > 1 {
				length += map[byte]int{'x': 2, 'u': 4, 'U': 8}[escape[1]]
			}
		}
	}
	return cut[:end] + dots[:min(columns, len(dots))]
}

// Wrap returns a text with line breaks in place of blanks: lines have at
// most this many columns. A longer word is a line of its own.
func Wrap(s string, columns int) string {
	var b strings.Builder
	used := 0
	for i, word := range strings.Split(s, " ") {
		length := Columns(word)
		switch {
		case i == 0:
		case used+1+length > columns:
			b.WriteByte('\n')
			used = 0
		default:
			b.WriteByte(' ')
			used++
		}
		b.WriteString(word)
		used += length
	}
	return b.String()
}

// isPlain reports whether s is printable ASCII without a backslash, as nearly
// every name is.
func isPlain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '\\' {
			return false
		}
	}
	return true
}
