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
	// than High. With a Step of 0 buckets are powers of two, see powerBuckets.
	Low, High int64
	Step      uint64
}

// A bucket of powers of two has the values from 2^k to 2^(k+1)-1: bucket 65+k,
// so that 64 has 0 alone. For the negative numbers -2^k to -(2^(k+1)-1) it is
// bucket 63-k.
const (
	powerZero    = 64
	powerBuckets = 2*64 + 1
)

// Buckets returns how many buckets there are.
func (h *Histogram) Buckets() int {
	if h.Step == 0 {
		return powerBuckets
	}
	return int((uint64(h.High)-uint64(h.Low))/h.Step) + 2
}

// Bounds returns the least and the greatest value of a bucket, of which a value
// below 0 is a two's complement.
func (h *Histogram) Bounds(bucket int) (low, high uint64, lowNegative, highNegative bool) {
	if h.Step == 0 {
		switch k := bucket - powerZero; {
		case k == 0:
			return 0, 0, false, false
		case k > 0:
			return 1 << (k - 1), 1<<(k-1) + (1<<(k-1) - 1), false, false
		default:
			least := uint64(1) << (-k - 1)
			return -(least + (least - 1)), -least, true, true
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

// bucket emits the bucket of the value in R9.
func (b *builder) bucket(dst asm.Register, h *Histogram, c class) {
	if h.Step == 0 {
		b.powerBucket(dst, c)
	} else {
		b.linearBucket(dst, h, c)
	}
	// The verifier should not take each bucket for a case of its own.
	b.Emit(asm.Xor.Reg(dst, asm.R9), asm.Xor.Reg(dst, asm.R9))
}

func (b *builder) powerBucket(dst asm.Register, c class) {
	positive, done := b.Label(), b.Label()
	b.Emit(asm.Mov.Reg(asm.R1, asm.R9))
	if c == signed {
		b.JumpIfImm(asm.JSGE, asm.R1, 0, asm.R2, positive)
		b.Emit(asm.Neg.Imm(asm.R1, 0))
		b.logarithm(dst)
		b.Emit(asm.Neg.Imm(dst, 0))
		b.Jump(done)
	}
	b.Place(positive)
	b.logarithm(dst)
	b.Place(done)
	b.Emit(asm.Add.Imm(dst, powerZero))
}

// logarithm sets dst to the number of bits of R1.
func (b *builder) logarithm(dst asm.Register) {
	zero := b.Label()
	b.Emit(asm.Mov.Imm(dst, 0))
	b.JumpIfImm(asm.JEq, asm.R1, 0, asm.R2, zero)
	for bits := 32; bits > 0; bits /= 2 {
		less := b.Label()
		b.JumpIfImm(asm.JLT, asm.R1, 1<<bits, asm.R2, less)
		b.Emit(asm.RSh.Imm(asm.R1, int32(bits)), asm.Add.Imm(dst, int32(bits)))
		b.Place(less)
	}
	b.Emit(asm.Add.Imm(dst, 1))
	b.Place(zero)
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
