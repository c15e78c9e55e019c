// SPDX-License-Identifier: BSD-2-Clause

package bpfgen

import (
	"github.com/cilium/ebpf/asm"

	"github.com/gousdt/gousdt/internal/argcode"
)

// Of a float of 64 bits: the bits of the mantissa, and the greatest exponent,
// which infinity and what is not a number have. Numbers so small that they have
// the exponent 0 count as 0.
const (
	mantissaBits  = 52
	endlessDouble = 2047
)

// toDouble makes the float in R9 one of 64 bits. It goes elsewhere if that is
// infinite or not a number.
func (b *builder) toDouble(c class, otherwise argcode.Label) {
	b.Emit(asm.Mov.Reg(asm.R1, asm.R9))
	if c == float64bits {
		b.Emit(asm.LSh.Imm(asm.R1, 1), asm.RSh.Imm(asm.R1, mantissaBits+1))
		b.JumpIfImm(asm.JEq, asm.R1, endlessDouble, asm.R2, otherwise)
		return
	}
	const bits, endless, bias = 23, 255, 1023 - 127
	done := b.Label()
	b.Emit(asm.LSh.Imm(asm.R1, 33), asm.RSh.Imm(asm.R1, 33+bits), // the exponent
		asm.Mov.Reg(asm.R2, asm.R9), asm.LSh.Imm(asm.R2, 64-bits), asm.RSh.Imm(asm.R2, 64-mantissaBits),
		asm.RSh.Imm(asm.R9, 31), asm.LSh.Imm(asm.R9, 63))
	b.JumpIfImm(asm.JEq, asm.R1, endless, asm.R3, otherwise)
	b.JumpIfImm(asm.JEq, asm.R1, 0, asm.R3, done)
	b.Emit(asm.Add.Imm(asm.R1, bias), asm.LSh.Imm(asm.R1, mantissaBits),
		asm.Or.Reg(asm.R9, asm.R1), asm.Or.Reg(asm.R9, asm.R2))
	b.Place(done)
}

// addFloat adds the float in R9, which is finite, to a word of the accumulator.
// A program has only integers to calculate with.
func (b *builder) addFloat(at int16) {
	const tries = 2 // a hit that preempts this one can come in between
	done := b.Label()
	for try := range tries {
		b.Emit(asm.LoadMem(asm.R0, asm.R7, at, asm.DWord))
		b.sumOfFloats(done)
		if !b.plan.Kernel.CompareExchange || try == tries-1 {
			b.Emit(asm.StoreMem(asm.R7, at, asm.R1, asm.DWord))
			break
		}
		b.Emit(asm.Mov.Reg(asm.R3, asm.R0))
		b.CompareExchange(asm.R7, at, asm.R1)
		b.JumpIf(asm.JEq, asm.R0, asm.R3, done)
	}
	b.Place(done)
}

// sumOfFloats sets R1 to the sum of R0 and R9, floats of 64 bits, rounded. It
// goes to done if there is nothing to add.
func (b *builder) sumOfFloats(done argcode.Label) {
	const guard = 10 // bits below the mantissa, which decide how it is rounded
	scratch := b.Temporary(16)
	sign, signs := scratch, scratch+8
	exponent := func(dst, of asm.Register) {
		b.Emit(asm.Mov.Reg(dst, of), asm.LSh.Imm(dst, 1), asm.RSh.Imm(dst, mantissaBits+1))
	}
	ordered, small, apart, less, round, rounded, zero, result := b.Label(), b.Label(), b.Label(),
		b.Label(), b.Label(), b.Label(), b.Label(), b.Label()
	b.Emit(asm.Mov.Reg(asm.R1, asm.R9))
	exponent(asm.R4, asm.R9)
	b.JumpIfImm(asm.JEq, asm.R4, 0, asm.R5, done)
	exponent(asm.R3, asm.R0)
	b.JumpIfImm(asm.JEq, asm.R3, 0, asm.R5, result)
	b.JumpIfImm(asm.JEq, asm.R3, endlessDouble, asm.R5, done)

	// R1 becomes the one that is further from 0, R2 the other one.
	b.Emit(asm.Mov.Reg(asm.R1, asm.R0), asm.Mov.Reg(asm.R2, asm.R9),
		asm.Mov.Reg(asm.R3, asm.R1), asm.LSh.Imm(asm.R3, 1),
		asm.Mov.Reg(asm.R4, asm.R2), asm.LSh.Imm(asm.R4, 1))
	b.JumpIf(asm.JGE, asm.R3, asm.R4, ordered)
	b.Emit(asm.Mov.Reg(asm.R1, asm.R9), asm.Mov.Reg(asm.R2, asm.R0))
	b.Place(ordered)
	exponent(asm.R3, asm.R1)
	exponent(asm.R4, asm.R2)
	b.Emit(asm.Mov.Reg(asm.R5, asm.R3), asm.Sub.Reg(asm.R5, asm.R4), asm.Mov.Reg(asm.R4, asm.R1),
		asm.RSh.Imm(asm.R4, 63), asm.LSh.Imm(asm.R4, 63), toStack(sign, asm.R4),
		asm.Mov.Reg(asm.R4, asm.R1), asm.Xor.Reg(asm.R4, asm.R2), toStack(signs, asm.R4))

	// Their mantissas, with the first bit that is not written.
	b.Set(asm.R4, 1<<mantissaBits)
	b.Emit(asm.Or.Reg(asm.R1, asm.R4), asm.Or.Reg(asm.R2, asm.R4))
	for _, mantissa := range []asm.Register{asm.R1, asm.R2} {
		b.Emit(asm.LSh.Imm(mantissa, 63-mantissaBits), asm.RSh.Imm(mantissa, 63-mantissaBits-guard))
	}
	b.JumpIfImm(asm.JLE, asm.R5, 62, asm.R4, small)
	b.Emit(asm.Mov.Imm(asm.R2, 0))
	b.Jump(apart)
	b.Place(small)
	b.Emit(asm.RSh.Reg(asm.R2, asm.R5))
	b.Place(apart)
	b.Emit(fromStack(asm.R4, signs))
	b.JumpIfImm(asm.JSLT, asm.R4, 0, asm.R5, less)
	b.Emit(asm.Add.Reg(asm.R1, asm.R2))
	b.JumpIfImm(asm.JSGE, asm.R1, 0, asm.R5, round)
	b.Emit(asm.RSh.Imm(asm.R1, 1), asm.Add.Imm(asm.R3, 1))
	b.Jump(round)

	b.Place(less)
	b.Emit(asm.Sub.Reg(asm.R1, asm.R2))
	b.JumpIfImm(asm.JEq, asm.R1, 0, asm.R5, zero)
	for shift := 32; shift > 0; shift /= 2 { // up to where the first bit belongs
		enough := b.Label()
		b.JumpIfImm(asm.JGE, asm.R1, 1<<(63-shift), asm.R5, enough)
		b.Emit(asm.LSh.Imm(asm.R1, int32(shift)), asm.Sub.Imm(asm.R3, int32(shift)))
		b.Place(enough)
	}

	b.Place(round)
	b.Emit(asm.Add.Imm(asm.R1, 1<<(guard-1)))
	b.JumpIfImm(asm.JSGE, asm.R1, 0, asm.R5, rounded)
	b.Emit(asm.RSh.Imm(asm.R1, 1), asm.Add.Imm(asm.R3, 1))
	b.Place(rounded)
	b.JumpIfImm(asm.JSLE, asm.R3, 0, asm.R5, zero)
	b.JumpIfImm(asm.JGE, asm.R3, endlessDouble, asm.R5, done) // the greatest sum stays
	b.Emit(asm.LSh.Imm(asm.R1, 63-mantissaBits-guard+1), asm.RSh.Imm(asm.R1, 64-mantissaBits),
		asm.LSh.Imm(asm.R3, mantissaBits), asm.Or.Reg(asm.R1, asm.R3), fromStack(asm.R4, sign),
		asm.Or.Reg(asm.R1, asm.R4))
	b.Jump(result)
	b.Place(zero)
	b.Emit(asm.Mov.Imm(asm.R1, 0))
	b.Place(result)
}
