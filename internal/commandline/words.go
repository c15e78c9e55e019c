// SPDX-License-Identifier: BSD-2-Clause

package commandline

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// IsPlain reports whether a string is not empty, and has only ASCII letters,
// digits and the others.
func IsPlain(s, others string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	return s != "" && strings.Trim(s, letters+others) == ""
}

// ShellWord returns a text as one word of a shell. Bytes that a terminal might
// obey are Escaped, as bash, zsh, ksh and POSIX of 2024 have it.
func ShellWord(s string) string {
	switch {
	case IsPlain(s, "_-./+,@%:"):
		return s
	case utf8.ValidString(s) &&
		!strings.ContainsFunc(s, func(r rune) bool { return !strconv.IsPrint(r) }):
		return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
	}
	return "$'" + Escaped(s, '\'') + "'"
}

// Escaped returns a text as it stands in quotation marks in C and in shells.
// Octal escapes end after three digits, hexadecimal ones do not.
func Escaped(s string, mark byte) string {
	var b []byte
	for _, c := range []byte(s) {
		switch {
		case c == mark || c == '\\':
			b = append(b, '\\', c)
		case c < ' ' || c > '~':
			b = append(b, '\\', '0'+c>>6, '0'+c>>3&7, '0'+c&7)
		default:
			b = append(b, c)
		}
	}
	return string(b)
}
