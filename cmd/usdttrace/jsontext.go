// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// jsonText builds JSON text piece by piece. It is here, and not encoding/json, because an event should cost no allocation
// and lose no byte that is not UTF-8.
type jsonText struct {
	b     []byte
	comma bool // the next value or key needs a comma before it
}

// begin starts an object '{' or an array '['.
func (j *jsonText) begin(bracket byte) {
	j.separate()
	j.b = append(j.b, bracket)
	j.comma = false
}

// end ends what begin started, with the bracket that belongs to it.
func (j *jsonText) end(bracket byte) {
	j.b = append(j.b, bracket)
	j.comma = true
}

func (j *jsonText) key(name string) {
	j.separate()
	j.b = append(append(append(j.b, '"'), name...), `":`...)
	j.comma = false
}

func (j *jsonText) separate() {
	if j.comma {
		j.b = append(j.b, ',')
		j.comma = false
	}
}

// text adds a member that holds any bytes: what is not UTF-8 is in a second
// member, named with "_hex".
func (j *jsonText) text(key, s string) {
	j.key(key)
	j.b = appendJSONString(j.b, s)
	j.comma = true
	if utf8.ValidString(s) {
		return
	}
	j.hex(key+"_hex", s)
}

// hex adds bytes in hexadecimal.
func (j *jsonText) hex(key, s string) {
	j.key(key)
	j.b = append(j.b, '"')
	for i := range len(s) {
		j.b = append(j.b, hexDigits[s[i]>>4], hexDigits[s[i]&0xf])
	}
	j.b = append(j.b, '"')
	j.comma = true
}

func (j *jsonText) unsigned(key string, n uint64) {
	j.key(key)
	j.b = strconv.AppendUint(j.b, n, 10)
	j.comma = true
}

func (j *jsonText) signed(key string, n int64) {
	j.key(key)
	j.number(n)
}

func (j *jsonText) number(n int64) {
	j.separate()
	j.b = strconv.AppendInt(j.b, n, 10)
	j.comma = true
}

func (j *jsonText) boolean(key string, value bool) {
	j.key(key)
	j.b = strconv.AppendBool(j.b, value)
	j.comma = true
}

const hexDigits = "0123456789abcdef"

// appendJSONString appends s as a JSON string. Whatever a terminal might obey
// is escaped; a byte that is not UTF-8 becomes U+FFFD.
func appendJSONString(b []byte, s string) []byte {
	b = append(b, '"')
	for i := 0; i < len(s); {
		if c := s[i]; c < utf8.RuneSelf {
			i++
			switch {
			case c == '"' || c == '\\':
				b = append(b, '\\', c)
			case c == '\n':
				b = append(b, `\n`...)
			case c == '\t':
				b = append(b, `\t`...)
			case c < ' ' || c == 0x7f:
				b = appendUnit(b, uint16(c))
			default:
				b = append(b, c)
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

// appendUnit appends the escape of one UTF-16 code unit.
func appendUnit(b []byte, u uint16) []byte {
	return append(b, '\\', 'u', hexDigits[u>>12], hexDigits[u>>8&0xf], hexDigits[u>>4&0xf], hexDigits[u&0xf])
}
