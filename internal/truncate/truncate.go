// SPDX-License-Identifier: BSD-2-Clause

// Package truncate shortens texts of untrusted files that are shown.
package truncate

import "unicode/utf8"

// Text returns a text of at most max bytes: a longer one ends in "...".
func Text(s string, max int) string {
	if len(s) <= max {
		return s
	}
	end := max - len(dots)
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + dots
}

// Whole returns a text without the beginning of a character at its end, where
// the text was cut. Text that is not UTF-8 stays as it is.
func Whole(text []byte) []byte {
	for i := 1; i <= min(len(text), utf8.UTFMax-1); i++ {
		if end := text[len(text)-i:]; utf8.RuneStart(end[0]) {
			if !utf8.FullRune(end) {
				return text[:len(text)-i]
			}
			break
		}
	}
	return text
}

const dots = "..."

// maxName is how many bytes are shown of a provider and of a probe's name:
// those of untrusted files may have megabytes.
const maxName = 128

// Name returns a provider or a probe's name as it is shown.
func Name(s string) string { return Text(s, maxName) }
