// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"math"
	"math/bits"

	"github.com/gousdt/gousdt/trace/internal/bpfgen"
)

// Sums of integers that need more than 64 bits are floats. Programs add modulo
// 2^64, for each bucket of a histogram by itself. How often that has gone round
// follows from the bounds of the bucket and from the count.

// bounds are those of values that have been added up, both inclusive.
type bounds struct {
	low, high                 uint64
	lowNegative, highNegative bool
}

// anyNumber are the bounds where none are known.
func anyNumber(c bpfgen.Class) bounds {
	if c == bpfgen.ClassSigned {
		return bounds{low: 1 << 63, high: math.MaxInt64, lowNegative: true}
	}
	return bounds{high: math.MaxUint64}
}

// sumOf returns the sum of so many numbers between bounds, of which it is given
// modulo 2^64. With bounds that are far apart and a large count it is only as
// exact as they are.
func (b *bounds) sumOf(sum, count uint64) Value {
	class := bpfgen.ClassUnsigned
	if b.lowNegative {
		class = bpfgen.ClassSigned
	}
	value := numberValue(class, sum)
	if b.fits(count) {
		return value
	}
	low, high := float(b.low, b.lowNegative)*float64(count),
		float(b.high, b.highNegative)*float64(count)
	if known := value.Float(); known >= low && known <= high {
		return value
	}
	rounds := math.Round((low/2 + high/2 - value.Float()) / 0x1p64)
	return floatValue(min(max(value.Float()+rounds*0x1p64, low), high))
}

// fits reports whether the sum of so many numbers has no more than 64 bits.
func (b *bounds) fits(count uint64) bool {
	greatest := b.high
	if b.lowNegative {
		greatest = -b.low
		if !b.highNegative {
			greatest = max(greatest, b.high)
		}
	}
	over, product := bits.Mul64(greatest, count)
	return over == 0 && (!b.lowNegative || product <= math.MaxInt64)
}

func float(number uint64, negative bool) float64 {
	if negative {
		return float64(int64(number))
	}
	return float64(number)
}

func floatValue(f float64) Value {
	return Value{bits: math.Float64bits(f),
		valueForm: valueForm{kind: Float, size: 8, state: valuePresent}}
}

// plus adds two sums. What has a sign keeps it.
func plus(a, b Value) Value {
	if a.state != valuePresent {
		return b
	}
	if a.kind == Float || b.kind == Float {
		return floatValue(a.Float() + b.Float())
	}
	// The numbers in 128 bits.
	low, carry := bits.Add64(a.bits, b.bits, 0)
	high, _ := bits.Add64(a.extension(), b.extension(), carry)
	kind := Unsigned
	if a.kind == Signed || b.kind == Signed {
		kind = Signed
	}
	switch {
	case high == 0 && (kind == Unsigned || low <= math.MaxInt64):
	case high == 0:
		kind = Unsigned // although one of them has a sign
	case high == math.MaxUint64 && low > math.MaxInt64:
		kind = Signed
	default:
		return floatValue(a.Float() + b.Float())
	}
	a.kind, a.bits = kind, low
	return a
}

// extension returns what stands above the 64 bits of an integer.
func (v Value) extension() uint64 {
	if v.kind == Signed {
		return uint64(int64(v.bits) >> 63)
	}
	return 0
}
