// SPDX-License-Identifier: BSD-2-Clause

package trace

// TextValue returns a text, as a key of a row is one.
func TextValue(text string) Value { return textValue([]byte(text), false) }

// SignedValue returns a number of 64 bits with a sign.
func SignedValue(n int64) Value {
	return Value{bits: uint64(n), valueForm: valueForm{kind: Signed, size: 8, state: Present}}
}

// UnsignedValue returns a number of 64 bits without a sign.
func UnsignedValue(n uint64) Value {
	return Value{bits: n, valueForm: valueForm{kind: Unsigned, size: 8, state: Present}}
}
