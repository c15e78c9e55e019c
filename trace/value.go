// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"math"
	"strconv"
	"strings"
	"unsafe"

	"github.com/gousdt/gousdt/internal/terminal"
	"github.com/gousdt/gousdt/trace/internal/bpfgen"
	"github.com/gousdt/gousdt/trace/internal/expr"
)

// Kind says what a Value is.
type Kind uint8

const (
	// Unsigned is an integer without a sign. Pointers are unsigned.
	Unsigned Kind = iota
	// Signed is an integer with a sign.
	Signed
	// Float is a floating point number of 4 or 8 bytes.
	Float
	// Text is a text: a key of an aggregation, such as the name of a thread.
	// Arguments are never of this kind: a pointer is Unsigned, and Value.Data
	// returns what it points to.
	Text
	// Bytes is an argument that is no number, such as a structure that is
	// passed by value: Value.Data returns its bytes. If it is longer than 128
	// bytes the first ones are there, unless a [Capture] asks for more.
	Bytes
	// Unavailable is a value that cannot be fetched at this site. Site.Args
	// says why. A sum, minimum or maximum is Unavailable if there is none.
	Unavailable
	// Unreadable is a value in memory that was not there at this hit, for
	// example because it was paged out.
	Unreadable
)

type valueState uint8

const (
	valueUnavailable valueState = iota
	valueUnreadable
	valuePresent
)

// dataState says whether a Value has the bytes that a pointer leads to.
type dataState uint8

const (
	noData         dataState = iota // none were asked for
	dataUnreadable                  // the pointer leads to memory that was not there, or nowhere
	dataTruncated                   // there are more bytes than the capture's limit
	dataComplete
)

// A Value is an argument of a probe at a hit, or a key or a result of an
// aggregation.
type Value struct {
	// There are four fields in four words, so that the compiler keeps a Value
	// in registers. A larger one would be copied for each call of a method, and
	// a processor waits long to read whole what it has just written in parts.
	bits uint64
	data string // bytes, which are the caller's to change; see setData
	valueForm
	text bool // data is text
}

type valueForm struct {
	kind      Kind
	size      uint8
	state     valueState
	dataState dataState
}

// setData sets the bytes, which are not copied.
func (v *Value) setData(b []byte, state dataState) {
	v.data, v.dataState = unsafe.String(unsafe.SliceData(b), len(b)), state
}

// bytes returns the bytes, which may be empty, or nil if there are none.
func (v Value) bytes() []byte {
	switch {
	case v.dataState != dataComplete && v.dataState != dataTruncated:
		return nil
	case v.data == "":
		return []byte{}
	}
	return unsafe.Slice(unsafe.StringData(v.data), len(v.data))
}

// Kind returns the kind that the probe describes, or that there is no value.
func (v Value) Kind() Kind {
	switch v.state {
	case valueUnavailable:
		return Unavailable
	case valueUnreadable:
		return Unreadable
	default:
		return v.kind
	}
}

// IsPresent reports whether there is a value: whether its kind is neither
// [Unavailable] nor [Unreadable]. If there is none, Uint, Int and Float return
// 0, as they do for a [Text] and for [Bytes].
func (v Value) IsPresent() bool { return v.state == valuePresent }

// Uint returns the value, extended to 64 bits by its sign. For a [Float] it
// returns the bits.
func (v Value) Uint() uint64 { return v.bits }

// Int returns the value as a signed integer. An [Unsigned] value of 2^63 or
// more becomes negative.
func (v Value) Int() int64 { return int64(v.bits) }

// Float returns the value as a floating point number. Large integers are
// rounded.
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

// Data returns the bytes that a pointer leads to, without the zero that ends a
// text, and reports whether they are complete: [Capture.Max] limits them. Bytes
// that could not be read are nil and not complete. If there is no [Capture] for
// the argument, they are nil and complete. For a [Text] it returns the text,
// and whether that is complete: the limit of a key such as "str(arg0, 6)" may
// have cut it. The bytes are not copied, and copies of the Value have the same:
// do not change them.
func (v Value) Data() (data []byte, complete bool) {
	return v.bytes(), v.dataState == dataComplete || v.dataState == noData
}

// String returns the value as human-readable text, see [Value.AppendTo].
func (v Value) String() string { return string(v.AppendTo(nil)) }

// AppendTo appends the value as human-readable text, and allocates nothing if
// there is room. A number is decimal. A captured text is in double quotes, with
// escapes; captured bytes are hexadecimal; "..." follows if there are more. A
// value that is unavailable is "?", one that is unreadable "<unreadable>", and
// a captured null pointer "null"; "<no address>" follows one into the first
// page, as to a member behind a null pointer. A value of kind [Text] has
// escapes but no quotes around it, and "..." follows if it was cut.
func (v Value) AppendTo(b []byte) []byte {
	switch v.state {
	case valueUnavailable:
		return append(b, '?')
	case valueUnreadable:
		return append(b, "<unreadable>"...)
	}
	if v.dataState == dataComplete || v.dataState == dataTruncated {
		return v.appendData(b)
	}
	if v.dataState == dataUnreadable && v.bits == 0 {
		return append(b, "null"...) // it leads nowhere: there is nothing to be read
	}
	switch v.kind {
	case Float:
		b = strconv.AppendFloat(b, v.Float(), 'g', -1, 8*int(v.size))
	case Signed:
		b = strconv.AppendInt(b, int64(v.bits), 10)
	default:
		b = strconv.AppendUint(b, v.bits, 10)
	}
	switch {
	case v.dataState == dataUnreadable && v.bits < firstAddress:
		b = append(b, " <no address>"...)
	case v.dataState == dataUnreadable:
		b = append(b, " <unreadable>"...)
	}
	return b
}

// firstAddress is the end of the page where no program has memory: a pointer
// into it is that of a member behind a null pointer.
const firstAddress = 4096

func (v Value) appendData(b []byte) []byte {
	if v.text {
		if v.kind != Text { // it cannot drive a terminal, and can be read back
			b = strconv.AppendQuote(b, v.data)
		} else {
			b = append(b, terminal.Escape(v.data)...)
		}
	} else {
		for i, c := range v.bytes() {
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

// ValueOf returns a number of 64 bits, with or without a sign, or a text as a
// key of a row is one.
func ValueOf[T int64 | uint64 | string](value T) Value {
	switch v := any(value).(type) {
	case int64:
		return numberValue(bpfgen.ClassSigned, uint64(v))
	case uint64:
		return numberValue(bpfgen.ClassUnsigned, v)
	default:
		return textValue([]byte(v.(string)), false)
	}
}

func compareValues(a, b Value) int {
	if a.kind == Text && b.kind == Text {
		return strings.Compare(a.data, b.data)
	}
	return number(a).Compare(number(b))
}

func number(v Value) expr.Value {
	switch v.kind {
	case Float:
		return expr.Fraction(v.Float())
	case Signed:
		return expr.Int(v.Int())
	default:
		return expr.Uint(v.Uint())
	}
}

func textValue(text []byte, cut bool) Value {
	v := Value{valueForm: valueForm{kind: Text, state: valuePresent}, text: true}
	v.setData(text, dataComplete)
	if cut {
		v.dataState = dataTruncated
	}
	return v
}

func numberValue(c bpfgen.Class, bits uint64) Value {
	v := Value{bits: bits, valueForm: valueForm{size: 8, state: valuePresent}}
	switch c {
	case bpfgen.ClassSigned:
		v.kind = Signed
	case bpfgen.ClassFloat32:
		v.kind, v.size = Float, 4
	case bpfgen.ClassFloat64:
		v.kind = Float
	}
	return v
}

func floatValue(f float64) Value { return numberValue(bpfgen.ClassFloat64, math.Float64bits(f)) }
