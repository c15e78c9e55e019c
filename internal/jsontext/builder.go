// SPDX-License-Identifier: BSD-2-Clause

// Package jsontext builds JSON text piece by piece, for the commands. Unlike
// encoding/json it needs no document of a million sites in memory and no
// allocation for an event, and it loses no byte that is not UTF-8: the strings
// come from untrusted files and processes. Characters that a terminal might
// obey are escaped.
package jsontext

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"time"
	"unicode/utf16"
	"unicode/utf8"
)

// Builder holds the text that has been built. It puts the commas; that brackets
// match and that members have keys is the caller's. The zero value is ready for
// use.
type Builder struct {
	text  []byte
	comma bool // the next value or key needs a comma before it

	second int64  // for which moment was built
	moment []byte // "2006-01-02T15:04:05
}

// Bytes returns the text since the last Take or Reset. It is valid until the
// next call.
func (b *Builder) Bytes() []byte { return b.text }

// Take returns the text like Bytes, and the builder goes on after it.
func (b *Builder) Take() []byte {
	text := b.text
	b.text = b.text[:0]
	return text
}

// Reset begins a new document.
func (b *Builder) Reset() { b.text, b.comma = b.text[:0], false }

// Begin starts an object '{' or an array '['.
func (b *Builder) Begin(bracket byte) {
	b.separate()
	b.text = append(b.text, bracket)
}

// End ends what Begin started, with the bracket that belongs to it.
func (b *Builder) End(bracket byte) {
	b.text = append(b.text, bracket)
	b.comma = true
}

// NewLine puts what follows on a line of its own, after some blanks.
func (b *Builder) NewLine(indent int) {
	b.separate()
	b.text = append(b.text, '\n')
	for range indent {
		b.text = append(b.text, ' ')
	}
}

// EndDocument ends the line after a whole document: what follows is another
// one.
func (b *Builder) EndDocument() {
	b.text = append(b.text, '\n')
	b.comma = false
}

// Key starts a member of an object. The name is taken as it is; its value has
// to follow.
func (b *Builder) Key(name string) {
	b.separate()
	b.text = append(append(append(b.text, '"'), name...), `":`...)
}

func (b *Builder) separate() {
	if b.comma {
		b.text = append(b.text, ',')
		b.comma = false
	}
}

// Text adds a member that holds any bytes: what is not UTF-8 is in a second
// member, named with "_hex".
func (b *Builder) Text(key, s string) {
	b.Key(key)
	b.String(s)
	if !utf8.ValidString(s) {
		b.Hex(key+"_hex", s)
	}
}

// Members adds members that another builder has built, which are at least one.
// They may end within an array or an object that has nothing in it so far.
func (b *Builder) Members(text []byte) {
	b.separate()
	b.text = append(b.text, text...)
	switch last := text[len(text)-1]; last {
	case '[', '{', ':':
	default:
		b.comma = true
	}
}

// Hex adds a member that holds bytes in hexadecimal.
func (b *Builder) Hex(key, s string) {
	b.Key(key)
	b.text = append(b.text, '"')
	for i := range len(s) {
		b.text = append(b.text, hexDigits[s[i]>>4], hexDigits[s[i]&0xf])
	}
	b.text = append(b.text, '"')
	b.comma = true
}

// Unsigned adds a member that is a number.
func (b *Builder) Unsigned(key string, n uint64) {
	b.Key(key)
	b.Uint(n)
}

// UnsignedOrNull adds a member that is null where the number means that there
// is none.
func (b *Builder) UnsignedOrNull(key string, n uint64, isNull bool) {
	if isNull {
		b.NullMember(key)
	} else {
		b.Unsigned(key, n)
	}
}

// Signed adds a member that is a number.
func (b *Builder) Signed(key string, n int64) {
	b.Key(key)
	b.Int(n)
}

// FloatMember adds a member that was computed, null where NaN says that there
// is none.
func (b *Builder) FloatMember(key string, x float64) {
	b.Key(key)
	if math.IsNaN(x) {
		b.Null()
		return
	}
	b.Float(x)
}

// Boolean adds a member that is true or false.
func (b *Builder) Boolean(key string, value bool) {
	b.Key(key)
	b.text = strconv.AppendBool(b.text, value)
	b.comma = true
}

// Object adds a member, or an element if there is no key.
func (b *Builder) Object(key string, members func()) { b.nested(key, '{', '}', members) }

// Array adds a member, or an element if there is no key.
func (b *Builder) Array(key string, elements func()) { b.nested(key, '[', ']', elements) }

func (b *Builder) nested(key string, begin, end byte, build func()) {
	if key != "" {
		b.Key(key)
	}
	b.Begin(begin)
	build()
	b.End(end)
}

// Fields adds members, each by its key and its value: a text as Text adds it, a
// number or a truth value.
func (b *Builder) Fields(pairs ...any) {
	for i := 0; i < len(pairs); i += 2 {
		key := pairs[i].(string)
		switch v := pairs[i+1].(type) {
		case string:
			b.Text(key, v)
		case bool:
			b.Boolean(key, v)
		case int:
			b.Signed(key, int64(v))
		case int64:
			b.Signed(key, v)
		case uint64:
			b.Unsigned(key, v)
		case float64:
			b.FloatMember(key, v)
		default:
			panic(fmt.Sprintf("jsontext: a %T", v))
		}
	}
}

// Time adds a member that is a moment, in UTC and the form of RFC 3339 with as
// many digits of the second as it takes.
func (b *Builder) Time(key string, t time.Time) {
	b.Key(key)
	if second := t.Unix(); b.moment == nil || second != b.second {
		b.second = second
		b.moment = t.UTC().AppendFormat(b.moment[:0], `"2006-01-02T15:04:05`)
	}
	b.text = append(b.text, b.moment...)
	if ns := uint32(t.Nanosecond()); ns > 0 {
		var digits [9]byte
		for i := range digits { // from the last one, because division by ten is fast
			digits[len(digits)-1-i] = byte('0' + ns%10)
			ns /= 10
		}
		b.text = append(append(b.text, '.'), bytes.TrimRight(digits[:], "0")...)
	}
	b.text = append(b.text, `Z"`...)
	b.comma = true
}

// NullMember adds a member that is null.
func (b *Builder) NullMember(key string) {
	b.Key(key)
	b.Null()
}

// Int adds a value: an element of an array, or what follows a key.
func (b *Builder) Int(n int64) {
	b.separate()
	b.text = strconv.AppendInt(b.text, n, 10)
	b.comma = true
}

// Uint adds a value as Int does.
func (b *Builder) Uint(n uint64) {
	b.separate()
	b.text = strconv.AppendUint(b.text, n, 10)
	b.comma = true
}

// Float adds a value as Int does, in as few digits as make it different from
// its neighbours. Those that JSON lacks are "NaN", "Infinity"
// and "-Infinity", as protocol buffers have them in JSON.
func (b *Builder) Float(x float64) {
	switch {
	case math.IsNaN(x):
		b.String("NaN")
		return
	case math.IsInf(x, 1):
		b.String("Infinity")
		return
	case math.IsInf(x, -1):
		b.String("-Infinity")
		return
	}
	b.separate()
	b.text = strconv.AppendFloat(b.text, x, 'g', -1, 64)
	b.comma = true
}

// Null adds a value as Int does.
func (b *Builder) Null() {
	b.separate()
	b.text = append(b.text, "null"...)
	b.comma = true
}

// String adds a value as Int does. A byte that is not UTF-8 becomes U+FFFD.
func (b *Builder) String(s string) {
	b.separate()
	b.text = appendString(b.text, s)
	b.comma = true
}

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
