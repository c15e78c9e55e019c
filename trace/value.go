// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"math"
	"strconv"
	"unicode/utf8"
)

// Kind says how a Value is to be understood.
type Kind uint8

const (
	// Unsigned is an integer without a sign. Pointers are unsigned.
	Unsigned Kind = iota
	// Signed is an integer with a sign.
	Signed
	// Float is a floating point number of 4 or 8 bytes.
	Float
	// Text is a text: a key of an aggregation such as the name of a command.
	// Arguments are never of this kind: what is behind a pointer is in
	// Value.Data.
	Text
)

// State says whether a Value could be had.
type State uint8

const (
	// Unavailable: the value cannot be fetched at this site; Site.Args says
	// why.
	Unavailable State = iota
	// Unreadable: the value is in memory that was not there at this hit, for
	// example since it was paged out.
	Unreadable
	// Present: the value is what the program passed.
	Present
)

// dataState says how much of the bytes behind a pointer a Value has.
type dataState uint8

const (
	noData         dataState = iota // none were asked for
	dataUnreadable                  // the pointer leads to memory that was not there, or nowhere
	dataTruncated                   // there are more bytes than the capture's limit
	dataComplete
)

// Value is an argument of a probe at a hit, or a key of an aggregation.
type Value struct {
	bits      uint64
	data      []byte
	kind      Kind
	size      uint8
	state     State
	dataState dataState
	text      bool // data is text
}

// Kind returns how the value is to be understood, by the probe's own
// description.
func (v Value) Kind() Kind { return v.kind }

// Size returns the size of the value in bytes in the traced program, 0 where
// that is not known.
func (v Value) Size() int { return int(v.size) }

// State tells whether there is a value. If it is not Present, the numbers below
// are 0.
func (v Value) State() State { return v.state }

// Uint returns the value, extended to 64 bits by its sign. Of a Float it is the
// bits.
func (v Value) Uint() uint64 { return v.bits }

// Int returns the value as a signed integer. An Unsigned one from 2^63 on
// becomes negative.
func (v Value) Int() int64 { return int64(v.bits) }

// Float returns the value as a floating point number, rounded where 64 bits of
// integer do not fit.
func (v Value) Float() float64 {
	switch {
	case v.kind == Float && v.size == 4:
		return float64(math.Float32frombits(uint32(v.bits)))
	case v.kind == Float:
		return math.Float64frombits(v.bits)
	case v.kind == Signed:
		return float64(int64(v.bits))
	default:
		return float64(v.bits)
	}
}

// Data returns the bytes behind the pointer, without the zero that ends a text,
// and reports whether they are all: there may be more than the limit of the
// [Capture] allows. It returns nil if no bytes were asked for, or if they could
// not be read. Of a Text they are the text itself.
func (v Value) Data() (data []byte, complete bool) {
	return v.data, v.dataState == dataComplete
}

// String returns the value for people, see AppendTo.
func (v Value) String() string { return string(v.AppendTo(nil)) }

// AppendTo appends the value as people want to see it, and allocates nothing if
// there is room: a number in decimal; for a pointer with bytes behind it those,
// a text in double quotes with escapes and others in hexadecimal, with "..."
// behind where they are truncated; "?" for a value that is unavailable;
// "<unreadable>". A text of kind Text has no quotes, but escapes.
func (v Value) AppendTo(b []byte) []byte {
	switch v.state {
	case Unavailable:
		return append(b, '?')
	case Unreadable:
		return append(b, "<unreadable>"...)
	}
	if v.kind == Text {
		return appendEscaped(b, v.data)
	}
	switch v.dataState {
	case dataComplete, dataTruncated:
		return v.appendData(b)
	}
	b = v.appendNumber(b)
	if v.dataState == dataUnreadable {
		b = append(b, " <unreadable>"...)
	}
	return b
}

func (v Value) appendNumber(b []byte) []byte {
	switch {
	case v.kind == Float:
		return strconv.AppendFloat(b, v.Float(), 'g', -1, 8*int(v.size))
	case v.kind == Signed:
		return strconv.AppendInt(b, int64(v.bits), 10)
	default:
		return strconv.AppendUint(b, v.bits, 10)
	}
}

func (v Value) appendData(b []byte) []byte {
	if v.text {
		b = append(b, '"')
		b = appendEscaped(b, v.data)
		b = append(b, '"')
	} else {
		for i, c := range v.data {
			if i > 0 {
				b = append(b, ' ')
			}
			b = append(b, hexDigits[c>>4], hexDigits[c&15])
		}
	}
	if v.dataState == dataTruncated {
		b = append(b, "..."...)
	}
	return b
}

const hexDigits = "0123456789abcdef"

// appendEscaped appends text so that it cannot drive a terminal, and so that it
// can be read back: quotes, backslashes and all that is not printable UTF-8 is
// escaped as in Go.
func appendEscaped(b, text []byte) []byte {
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		switch {
		case r == utf8.RuneError && size == 1:
			b = append(b, '\\', 'x', hexDigits[text[0]>>4], hexDigits[text[0]&15])
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r == '\n':
			b = append(b, `\n`...)
		case r == '\t':
			b = append(b, `\t`...)
		case strconv.IsPrint(r):
			b = append(b, text[:size]...)
		default:
			b = strconv.AppendQuoteRune(b, r)
			// Without the single quotes that AppendQuoteRune puts around.
			n := len(b)
			start := n - 1
			for start--; b[start] != '\''; start-- {
			}
			copy(b[start:], b[start+1:n-1])
			b = b[:n-2]
		}
		text = text[size:]
	}
	return b
}
