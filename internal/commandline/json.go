// SPDX-License-Identifier: BSD-2-Clause

package commandline

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
	"time"
	"unicode/utf16"
	"unicode/utf8"
)

// JSON builds JSON text piece by piece. Unlike encoding/json it needs no
// document of a million sites in memory and no allocation for an event, and it
// loses no byte that is not UTF-8: the strings come from untrusted files and
// processes. Characters that a terminal might obey are escaped.
//
// It writes the commas; the caller matches brackets and gives each member a
// key. The zero value is ready for use.
type JSON struct {
	text  []byte
	comma bool // the next value or key needs a comma before it

	second int64  // that moment is of
	moment []byte // "2006-01-02T15:04:05
}

// Bytes returns the text since the last Take or Reset. It is valid until the
// next call.
func (b *JSON) Bytes() []byte { return b.text }

// Take returns the text like Bytes, and the builder goes on after it.
func (b *JSON) Take() []byte {
	text := b.text
	b.text = b.text[:0]
	return text
}

// Reset begins a new document.
func (b *JSON) Reset() { b.text, b.comma = b.text[:0], false }

// Begin starts an object '{' or an array '['.
func (b *JSON) Begin(bracket byte) {
	b.separate()
	b.text = append(b.text, bracket)
}

// End ends what Begin started, with the bracket that belongs to it.
func (b *JSON) End(bracket byte) {
	b.text = append(b.text, bracket)
	b.comma = true
}

// Object adds a member, or an element if there is no key.
func (b *JSON) Object(key string, members func()) { b.nested(key, '{', '}', members) }

// Array adds a member, or an element if there is no key.
func (b *JSON) Array(key string, elements func()) { b.nested(key, '[', ']', elements) }

// JSONObjects adds a member that is an array of objects, one for each of some
// values, with the members that a function adds. Above 0, indent puts each on a
// line of its own.
func JSONObjects[T any](b *JSON, key string, indent int, of []T, members func(*T)) {
	b.Array(key, func() {
		for i := range of {
			if indent > 0 {
				b.NewLine(indent)
			}
			b.Object("", func() { members(&of[i]) })
		}
	})
}

func (b *JSON) nested(key string, begin, end byte, build func()) {
	if key != "" {
		b.Key(key)
	}
	b.Begin(begin)
	build()
	b.End(end)
}

// NewLine puts what follows on a line of its own, after some blanks.
func (b *JSON) NewLine(indent int) {
	b.separate()
	b.text = append(b.text, '\n')
	for range indent {
		b.text = append(b.text, ' ')
	}
}

// EndDocument ends the line after a whole document: what follows is another
// one.
func (b *JSON) EndDocument() {
	b.text = append(b.text, '\n')
	b.comma = false
}

// Key starts a member of an object. The name is taken as it is; its value has
// to follow.
func (b *JSON) Key(name string) {
	b.separate()
	b.text = append(append(append(b.text, '"'), name...), `":`...)
}

func (b *JSON) separate() {
	if b.comma {
		b.text = append(b.text, ',')
		b.comma = false
	}
}

// Fields adds members, each by its key and its value as [JSON.Value] adds
// it. Where a string is not UTF-8, a second member with "_hex" after its key
// has all bytes.
func (b *JSON) Fields(pairs ...any) {
	for i := 0; i < len(pairs); i += 2 {
		key := pairs[i].(string)
		b.Key(key)
		b.Value(pairs[i+1])
		if s, ok := pairs[i+1].(string); ok && !utf8.ValidString(s) {
			b.Hex(key+"_hex", s)
		}
	}
}

// Hex adds a member that holds bytes in hexadecimal.
func (b *JSON) Hex(key, s string) {
	b.Key(key)
	b.text = append(hex.AppendEncode(append(b.text, '"'), []byte(s)), '"')
	b.comma = true
}

// Members adds one or more members that another builder has built. The last may
// be unfinished: a key alone, or an array or object with nothing in it so far.
func (b *JSON) Members(text []byte) {
	b.separate()
	b.text = append(b.text, text...)
	switch last := text[len(text)-1]; last {
	case '[', '{', ':':
	default:
		b.comma = true
	}
}

// Value adds an element of an array, or what follows a key: a number, a truth
// value, a moment, a string in which a byte that is not UTF-8 becomes U+FFFD,
// or null for nil.
func (b *JSON) Value(v any) {
	b.separate()
	switch v := v.(type) {
	case int:
		b.text = strconv.AppendInt(b.text, int64(v), 10)
	case int64:
		b.text = strconv.AppendInt(b.text, v, 10)
	case uint64:
		b.text = strconv.AppendUint(b.text, v, 10)
	case nil:
		b.text = append(b.text, "null"...)
	case bool:
		b.text = strconv.AppendBool(b.text, v)
	case string:
		b.text = appendString(b.text, v)
	case float64:
		b.text = appendFloat(b.text, v)
	case time.Time:
		b.appendTime(v)
	default:
		panic("jsontext: no value of JSON")
	}
	b.comma = true
}

// Int adds a value as Value does.
func (b *JSON) Int(n int64) {
	b.separate()
	b.text = strconv.AppendInt(b.text, n, 10)
	b.comma = true
}

// Uint adds a value as Value does.
func (b *JSON) Uint(n uint64) {
	b.separate()
	b.text = strconv.AppendUint(b.text, n, 10)
	b.comma = true
}

// appendFloat appends a number in as few digits as make it different from its
// neighbours. Those that JSON lacks are "NaN", "Infinity" and "-Infinity", as
// protocol buffers have them in JSON.
func appendFloat(b []byte, x float64) []byte {
	switch {
	case math.IsNaN(x):
		return append(b, `"NaN"`...)
	case math.IsInf(x, 1):
		return append(b, `"Infinity"`...)
	case math.IsInf(x, -1):
		return append(b, `"-Infinity"`...)
	}
	return strconv.AppendFloat(b, x, 'g', -1, 64)
}

// appendTime appends a moment in UTC, in the form of RFC 3339 with as many
// digits of the second as it takes.
func (b *JSON) appendTime(t time.Time) {
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
}

// appendString appends s as a JSON string. Whatever a terminal might obey
// is escaped; a byte that is not UTF-8 becomes U+FFFD.
func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	for {
		n := 0
		for n < len(s) && ' ' <= s[n] && s[n] < 0x7f && s[n] != '"' && s[n] != '\\' {
			n++
		}
		b = append(b, s[:n]...)
		if s = s[n:]; s == "" {
			return append(b, '"')
		}
		r, size := utf8.DecodeRuneInString(s)
		s = s[size:]
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r == '\n':
			b = append(b, `\n`...)
		case r == '\t':
			b = append(b, `\t`...)
		case strconv.IsPrint(r):
			b = utf8.AppendRune(b, r)
		default:
			for _, unit := range utf16.AppendRune(nil, r) {
				b = fmt.Appendf(b, `\u%04x`, unit)
			}
		}
	}
}
