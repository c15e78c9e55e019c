// SPDX-License-Identifier: BSD-2-Clause

package bpfgen

import (
	"math"
	"math/big"
	"math/bits"
	"slices"
	"sync"

	"github.com/cilium/ebpf/asm"
)

// Histogram says how values are distributed.
type Histogram struct {
	// Step is the width of a bucket, from Low on up to High: buckets 1 to
	// (High-Low)/Step. Bucket 0 has all values below Low, the last one those
	// from High on.
	Low, High int64
	Step      uint64

	// Limits, if there are any, are the ends of the buckets, in ascending
	// order. A bucket includes its limit. The last bucket has all values above
	// the last limit.
	Limits []int64

	// Without Step and Limits the histogram is exponential. Scale is its scale,
	// up to MaxScale. Values are divided by Unit; 0 is the same as 1.
	Scale int
	Unit  uint64
}

// IsExponential reports whether the buckets are exponential.
func (h *Histogram) IsExponential() bool { return h.Step == 0 && len(h.Limits) == 0 }

// The buckets of an exponential histogram are those of OpenTelemetry: a value
// above 0 has the index i if it is above base^i and not above base^(i+1), where
// base is 2^(2^-scale). The greatest value, 2^64-1, has the index 64*2^scale-1,
// and 1 has -1. Numbers below 0 have the index of their absolute value. The
// buckets' own numbers ascend with the values: negative numbers, 0, positive
// numbers.

// MaxScale is the greatest scale of an exponential histogram.
const MaxScale = 4

// DefaultScale is the scale with 8 buckets from a number to its double.
const DefaultScale = 3

// plainRoots are the roots of MaxScale without a unit.
var plainRoots = sync.OnceValue(func() []uint64 { return rootsOf(1, MaxScale) })

// root returns the i-th number from 1 to 2 where a bucket ends, multiplied by
// 2^63 and rounded down. Without a Unit that is 2^(i/2^scale). At most one of
// them is exact: the others are irrational.
func (h *Histogram) root(i int) uint64 {
	if h.Unit <= 1 {
		return plainRoots()[i<<(MaxScale-h.Scale)]
	}
	key := [2]uint64{h.Unit, uint64(h.Scale)}
	known, ok := unitRoots.Load(key)
	if !ok {
		known, _ = unitRoots.LoadOrStore(key, rootsOf(h.Unit, h.Scale))
	}
	return known.([]uint64)[i]
}

// rootsOf returns the roots for a unit, ascending: the mantissas of the unit
// times 2^(n/2^scale). The precision is far beyond the 63 bits that are kept.
func rootsOf(unit uint64, scale int) []uint64 {
	const precision = 256
	number := func() *big.Float { return new(big.Float).SetPrec(precision) }
	base := number().SetInt64(2)
	for range scale {
		base.Sqrt(base)
	}
	end := number().SetUint64(unit)
	all := make([]uint64, 1<<scale)
	for n := range all {
		all[n], _ = number().SetMantExp(end, 64-end.MantExp(nil)).Uint64()
		end.Mul(end, base)
	}
	slices.Sort(all)
	return all
}

// unitRoots has the roots by unit and scale.
var unitRoots sync.Map

// Shift returns how much greater the kernel's index of a value is than
// OpenTelemetry's: the kernel counts from 1, OpenTelemetry from the unit.
func (h *Histogram) Shift() int {
	if h.Unit <= 1 {
		return 0
	}
	exponent := bits.Len64(h.Unit) - 1
	shift, mantissa := exponent<<h.Scale, h.Unit<<(63-exponent)
	plain := Histogram{Scale: h.Scale}
	for i := 1; i < 1<<h.Scale && plain.root(i) < mantissa; i++ {
		shift++
	}
	return shift
}

// Zero returns the number of the bucket that has 0 alone, of an exponential
// histogram. The index i of values above 0 is the bucket Zero+2+i, that of
// values below 0 is Zero-2-i.
func (h *Histogram) Zero() int { return 64<<h.Scale + 1 }

// Buckets is the number of buckets.
func (h *Histogram) Buckets() int {
	switch {
	case h.IsExponential():
		return 2*h.Zero() + 1
	case h.Step == 0:
		return len(h.Limits) + 1
	}
	return int((uint64(h.High)-uint64(h.Low))/h.Step) + 2
}

// Bounds returns the least and the greatest integer of a bucket, negative ones
// as two's complements. Small buckets of an exponential histogram may have no
// integer: then low is high + 1.
func (h *Histogram) Bounds(bucket int) (low, high uint64, lowNegative, highNegative bool) {
	if h.IsExponential() {
		zero := h.Zero()
		switch {
		case bucket == zero:
			return 0, 0, false, false
		case bucket > zero:
			return h.above(bucket - zero - 2), h.power(bucket - zero - 1), false, false
		default:
			// With a unit, buckets end beyond what a number with a sign can be.
			const least = 1 << 63
			return -min(h.power(zero-bucket-1), least), -min(h.above(zero-bucket-2), least), true, true
		}
	}
	if h.Step == 0 {
		low, lowNegative = 1<<63, true
		if bucket > 0 {
			limit := h.Limits[bucket-1]
			low, lowNegative = uint64(limit+1), limit < -1
		}
		if bucket == len(h.Limits) {
			return low, math.MaxUint64, lowNegative, false
		}
		return low, uint64(h.Limits[bucket]), lowNegative, h.Limits[bucket] < 0
	}
	switch bucket {
	case 0:
		return 1 << 63, uint64(h.Low - 1), true, h.Low <= 0
	case h.Buckets() - 1:
		return uint64(h.High), math.MaxUint64, h.High < 0, false
	}
	from := h.Low + int64(uint64(bucket-1)*h.Step)
	to := from + int64(h.Step-1)
	return uint64(from), uint64(to), from < 0, to < 0
}

// power returns the power of the base with an exponent from -1 on, rounded
// down, and the greatest number for 2^64.
func (h *Histogram) power(exponent int) uint64 {
	switch {
	case exponent < 0:
		return 0
	case exponent >= 64<<h.Scale:
		return math.MaxUint64
	}
	return h.root(exponent&(1<<h.Scale-1)) >> (63 - exponent>>h.Scale)
}

// above returns the least number above a power, or the greatest number.
func (h *Histogram) above(exponent int) uint64 {
	power := h.power(exponent)
	return power + min(1, math.MaxUint64-power)
}

func (b *builder) bucket(dst asm.Register, h *Histogram, c Class) {
	switch {
	case h.IsExponential():
		b.exponentialBucket(dst, h, c)
	case h.Step == 0:
		b.limitedBucket(dst, h, c)
	default:
		b.linearBucket(dst, h, c)
	}
	// This hides the number of the bucket from the verifier, which would follow
	// each as a case of its own.
	b.Emit(asm.Xor.Reg(dst, r9), asm.Xor.Reg(dst, r9))
}

func (b *builder) exponentialBucket(dst asm.Register, h *Histogram, c Class) {
	negate := func(register asm.Register) {
		if c == ClassSigned {
			b.If(asm.JSLT, r9, 0, r2, func() { b.Emit(asm.Neg.Imm(register, 0)) })
		}
	}
	b.Emit(mov(r1, r9))
	negate(r1)
	b.magnitude(dst, h)
	negate(dst)
	b.Emit(asm.Add.Imm(dst, int32(h.Zero())))
}

// magnitude sets dst to the index of R1 and 2, or to 0 for 0.
func (b *builder) magnitude(dst asm.Register, h *Histogram) {
	done := b.Label()
	b.Emit(set(dst, 0))
	b.JumpIfImm(asm.JEq, r1, 0, r2, done)
	// R1 becomes x * 2^63, with x from 1 up to, but not including, 2.
	b.Emit(set(dst, int32(63<<h.Scale+1)))
	for bits := 32; bits > 0; bits /= 2 {
		b.If(asm.JLT, r1, 1<<(64-bits), r2, func() {
			b.Emit(asm.LSh.Imm(r1, int32(bits)), asm.Sub.Imm(dst, int32(bits<<h.Scale)))
		})
	}
	// A number belongs to the bucket that it ends.
	b.JumpIfImm(asm.JLE, r1, h.root(0), r2, done)
	b.Emit(asm.Add.Imm(dst, 1))
	roots := make([]uint64, 1<<h.Scale)
	for i := range roots {
		roots[i] = h.root(i)
	}
	b.addLast(dst, asm.JGT, r1, roots, 0)
	b.Place(done)
}

// addLast adds to dst the number of the last of ascending limits that a value
// is above, as in Search. The first one's number is first.
func (b *builder) addLast(
	dst asm.Register, above asm.JumpOp, value asm.Register, limits []uint64, first int,
) {
	done := b.Label()
	b.Search(above, value, limits, r2, func(i int) {
		if first+i > 0 {
			b.Emit(asm.Add.Imm(dst, int32(first+i)))
		}
		b.Jump(done)
	})
	b.Place(done)
}

func (b *builder) limitedBucket(dst asm.Register, h *Histogram, c Class) {
	above, first := asm.JSGT, 0
	if c != ClassSigned {
		above = asm.JGT
		for first < len(h.Limits) && h.Limits[first] < 0 {
			first++
		}
	}
	limits := []uint64{0} // below the first one, nothing is looked at
	for _, limit := range h.Limits[first:] {
		limits = append(limits, uint64(limit))
	}
	b.Emit(set(dst, 0))
	b.addLast(dst, above, r9, limits, first)
}

func (b *builder) linearBucket(dst asm.Register, h *Histogram, c Class) {
	done := b.Label()
	less, atLeast, high := asm.JSLT, asm.JSGE, h.High
	if c != ClassSigned {
		less, atLeast, high = asm.JLT, asm.JGE, max(h.High, 0)
	}
	if c == ClassSigned || h.Low > 0 {
		b.Emit(set(dst, 0))
		b.JumpIfImm(less, r9, uint64(h.Low), r2, done)
	}
	b.Emit(set(dst, int32(h.Buckets()-1)))
	b.JumpIfImm(atLeast, r9, uint64(high), r2, done)
	b.Emit(mov(dst, r9))
	if h.Low != 0 {
		b.Compute(asm.Add, dst, -uint64(h.Low), r2)
	}
	b.Compute(asm.Div, dst, h.Step, r2)
	b.Emit(asm.Add.Imm(dst, 1))
	b.Place(done)
}
