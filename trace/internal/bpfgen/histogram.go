// SPDX-License-Identifier: BSD-2-Clause

package bpfgen

import (
	"math"

	"github.com/cilium/ebpf/asm"

	"github.com/gousdt/gousdt/internal/argcode"
)

// Histogram says how values are distributed.
type Histogram struct {
	// Step is the width of a bucket, from Low on up to High: buckets 1 to
	// (High-Low)/Step. Bucket 0 has what is less, the last one what is not less
	// than High.
	Low, High int64
	Step      uint64

	// With a Step of 0, the histogram is exponential and Scale is its scale, up
	// to MaxScale.
	Scale int
}

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

// roots has 2^(i/16), multiplied by 2^63 and rounded down.
var roots = [1 << MaxScale]uint64{
	0x8000000000000000,
	0x85aac367cc487b14,
	0x8b95c1e3ea8bd6e6,
	0x91c3d373ab11c336,
	0x9837f0518db8a96f,
	0x9ef5326091a111ad,
	0xa5fed6a9b15138ea,
	0xad583eea42a14ac6,
	0xb504f333f9de6484,
	0xbd08a39f580c36be,
	0xc5672a115506dadd,
	0xce248c151f8480e3,
	0xd744fccad69d6af4,
	0xe0ccdeec2a94e111,
	0xeac0c6e7dd24392e,
	0xf5257d152486cc2c,
}

// root returns 2^(i/2^scale), multiplied by 2^63 and rounded down. Only that of
// 0 is exact: the others are irrational.
func (h *Histogram) root(i int) uint64 { return roots[i<<(MaxScale-h.Scale)] }

// Zero returns the number of the bucket that has 0 alone, of an exponential
// histogram. The index i of values above 0 is the bucket Zero+2+i, that of
// values below 0 is Zero-2-i.
func (h *Histogram) Zero() int { return 64<<h.Scale + 1 }

// Buckets returns how many buckets there are.
func (h *Histogram) Buckets() int {
	if h.Step == 0 {
		return 2*h.Zero() + 1
	}
	return int((uint64(h.High)-uint64(h.Low))/h.Step) + 2
}

// Bounds returns the least and the greatest integer of a bucket, of which one
// below 0 is a two's complement. Of an exponential histogram, small buckets may
// have no integer: then low is high + 1.
func (h *Histogram) Bounds(bucket int) (low, high uint64, lowNegative, highNegative bool) {
	if h.Step == 0 {
		zero := h.Zero()
		switch {
		case bucket == zero:
			return 0, 0, false, false
		case bucket > zero:
			return h.power(bucket-zero-2) + 1, h.power(bucket - zero - 1), false, false
		default:
			return -h.power(zero - bucket - 1), -(h.power(zero-bucket-2) + 1), true, true
		}
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

// bucket emits the bucket of the value in R9.
func (b *builder) bucket(dst asm.Register, h *Histogram, c class) {
	if h.Step == 0 {
		b.exponentialBucket(dst, h, c)
	} else {
		b.linearBucket(dst, h, c)
	}
	// The verifier should not take each bucket for a case of its own.
	b.Emit(asm.Xor.Reg(dst, asm.R9), asm.Xor.Reg(dst, asm.R9))
}

func (b *builder) exponentialBucket(dst asm.Register, h *Histogram, c class) {
	positive, done := b.Label(), b.Label()
	b.Emit(asm.Mov.Reg(asm.R1, asm.R9))
	if c == signed {
		b.JumpIfImm(asm.JSGE, asm.R1, 0, asm.R2, positive)
		b.Emit(asm.Neg.Imm(asm.R1, 0))
	}
	b.Place(positive)
	b.magnitude(dst, h)
	if c == signed {
		b.JumpIfImm(asm.JSGE, asm.R9, 0, asm.R2, done)
		b.Emit(asm.Neg.Imm(dst, 0))
	}
	b.Place(done)
	b.Emit(asm.Add.Imm(dst, int32(h.Zero())))
}

// magnitude sets dst to the index of R1 and 2, or to 0 for 0.
func (b *builder) magnitude(dst asm.Register, h *Histogram) {
	done := b.Label()
	b.Emit(asm.Mov.Imm(dst, 0))
	b.JumpIfImm(asm.JEq, asm.R1, 0, asm.R2, done)
	// R1 becomes x * 2^63, with x from 1 up to, but not including, 2.
	b.Emit(asm.Mov.Imm(dst, int32(63<<h.Scale+1)))
	for bits := 32; bits > 0; bits /= 2 {
		high := b.Label()
		b.JumpIfImm(asm.JGE, asm.R1, 1<<(64-bits), asm.R2, high)
		b.Emit(asm.LSh.Imm(asm.R1, int32(bits)), asm.Sub.Imm(dst, int32(bits<<h.Scale)))
		b.Place(high)
	}
	// A power of two belongs to the bucket that it ends.
	b.JumpIfImm(asm.JEq, asm.R1, h.root(0), asm.R2, done)
	b.Emit(asm.Add.Imm(dst, 1))
	b.searchRoots(dst, h, 0, 1<<h.Scale-1, done)
	b.Place(done)
}

// searchRoots adds to dst the number of the greatest root that is less than R1:
// it is at least the first one and at most the last one. Then it goes to done.
func (b *builder) searchRoots(dst asm.Register, h *Histogram, first, last int, done argcode.Label) {
	if first == last {
		if first > 0 {
			b.Emit(asm.Add.Imm(dst, int32(first)))
		}
		b.Jump(done)
		return
	}
	less := b.Label()
	half := (first + last + 1) / 2
	b.JumpIfImm(asm.JLE, asm.R1, h.root(half), asm.R2, less)
	b.searchRoots(dst, h, half, last, done)
	b.Place(less)
	b.searchRoots(dst, h, first, half-1, done)
}

func (b *builder) linearBucket(dst asm.Register, h *Histogram, c class) {
	done := b.Label()
	if c == signed {
		b.Emit(asm.Mov.Imm(dst, 0))
		b.JumpIfImm(asm.JSLT, asm.R9, uint64(h.Low), asm.R2, done)
		b.Emit(asm.Mov.Imm(dst, int32(h.Buckets()-1)))
		b.JumpIfImm(asm.JSGE, asm.R9, uint64(h.High), asm.R2, done)
	} else {
		if h.Low > 0 {
			b.Emit(asm.Mov.Imm(dst, 0))
			b.JumpIfImm(asm.JLT, asm.R9, uint64(h.Low), asm.R2, done)
		}
		b.Emit(asm.Mov.Imm(dst, int32(h.Buckets()-1)))
		b.JumpIfImm(asm.JGE, asm.R9, uint64(max(h.High, 0)), asm.R2, done)
	}
	b.Emit(asm.Mov.Reg(dst, asm.R9))
	b.Add(dst, -uint64(h.Low), asm.R2)
	if argcode.Fits32(h.Step) {
		b.Emit(asm.Div.Imm(dst, int32(h.Step)))
	} else {
		b.Emit(asm.LoadImm(asm.R2, int64(h.Step), asm.DWord), asm.Div.Reg(dst, asm.R2))
	}
	b.Emit(asm.Add.Imm(dst, 1))
	b.Place(done)
}
