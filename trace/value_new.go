// SPDX-License-Identifier: BSD-2-Clause

package trace

// ValueOf returns a number of 64 bits, with or without a sign, or a text as a
// key of a row is one.
func ValueOf[T int64 | uint64 | string](value T) Value {
	switch v := any(value).(type) {
	case int64:
		return Value{bits: uint64(v),
			valueForm: valueForm{kind: Signed, size: 8, state: valuePresent}}
	case uint64:
		return Value{bits: v, valueForm: valueForm{kind: Unsigned, size: 8, state: valuePresent}}
	default:
		return textValue([]byte(any(value).(string)), false)
	}
}
