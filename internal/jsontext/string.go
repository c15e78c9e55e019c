// SPDX-License-Identifier: BSD-2-Clause

package jsontext

import (
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

const hexDigits = "0123456789abcdef"

// appendString appends s as a JSON string. Whatever a terminal might obey
// is escaped; a byte that is not UTF-8 becomes U+FFFD.
func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	for i := 0; i < len(s); {
		start := i
		for i < len(s) && isPlain(s[i]) {
			i++
		}
		b = append(b, s[start:i]...)
		if i == len(s) {
			break
		}
		if c := s[i]; c < utf8.RuneSelf {
			i++
			switch {
			case c == '"' || c == '\\':
				b = append(b, '\\', c)
			case c == '\n':
				b = append(b, `\n`...)
			case c == '\t':
				b = append(b, `\t`...)
			default:
				b = appendUnit(b, uint16(c))
			}
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		i += size
		switch high, low := utf16.EncodeRune(r); {
		case strconv.IsPrint(r):
			b = utf8.AppendRune(b, r)
		case high != utf8.RuneError: // outside the 16 bits of one escape
			b = appendUnit(appendUnit(b, uint16(high)), uint16(low))
		default:
			b = appendUnit(b, uint16(r))
		}
	}
	return append(b, '"')
}

// isPlain reports whether a byte stands for itself, as nearly all bytes do.
func isPlain(c byte) bool { return ' ' <= c && c < 0x7f && c != '"' && c != '\\' }

// appendUnit appends the escape of one UTF-16 code unit.
func appendUnit(b []byte, u uint16) []byte {
	return append(b, '\\', 'u', hexDigits[u>>12], hexDigits[u>>8&0xf], hexDigits[u>>4&0xf],
		hexDigits[u&0xf])
}
