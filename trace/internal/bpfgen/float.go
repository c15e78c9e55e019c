// SPDX-License-Identifier: BSD-2-Clause

package bpfgen

import (
	"github.com/cilium/ebpf/asm"

	"github.com/gousdt/gousdt/internal/argcode"
)

// A float of 64 bits has mantissaBits bits of mantissa. Its exponent is
// endlessDouble if it is infinite or NaN. Subnormal numbers, whose exponent is
// 0, count as 0.
const mantissaBits, endlessDouble = 52, 2047

// toDouble converts the float in R9 to 64 bits. It goes to otherwise if it is
// infinite or NaN.
func (b *builder) toDouble(c Class, otherwise argcode.Label) {
	b.Emit(mov(r1, r9))
	if c == ClassFloat64 {
		b.Emit(asm.LSh.Imm(r1, 1), asm.RSh.Imm(r1, mantissaBits+1))
		b.JumpIfImm(asm.JEq, r1, endlessDouble, r2, otherwise)
		return
	}
	const bits, endless, bias = 23, 255, 1023 - 127
	b.Emit(asm.LSh.Imm(r1, 33), asm.RSh.Imm(r1, 33+bits), // the exponent
		mov(r2, r9), asm.LSh.Imm(r2, 64-bits), asm.RSh.Imm(r2, 64-mantissaBits),
		asm.RSh.Imm(r9, 31), asm.LSh.Imm(r9, 63))
	b.JumpIfImm(asm.JEq, r1, endless, r3, otherwise)
	b.If(asm.JNE, r1, 0, r3, func() {
		b.Emit(asm.Add.Imm(r1, bias), asm.LSh.Imm(r1, mantissaBits), asm.Or.Reg(r9, r1),
			asm.Or.Reg(r9, r2))
	})
}

// addFloat adds the float in R9, which is finite, to a word of the accumulator.
// BPF has only integer instructions.
func (b *builder) addFloat(at int) {
	const tries = 2 // a hit that preempts this one can come in between
	done := b.Label()
	for try := range tries {
		b.Emit(load(r0, r7, at))
		b.sumOfFloats(done)
		if !b.plan.Kernel.CompareExchange || try == tries-1 {
			b.Emit(store(r7, at, r1))
			break
		}
		b.Emit(mov(r3, r0))
		b.CompareExchange(r7, at, r1)
		b.JumpIf(asm.JEq, r0, r3, done)
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
		b.Emit(mov(dst, of), asm.LSh.Imm(dst, 1), asm.RSh.Imm(dst, mantissaBits+1))
	}
	ordered, small, apart, less, round, finite, zero, result := b.Label(), b.Label(), b.Label(),
		b.Label(), b.Label(), b.Label(), b.Label(), b.Label()
	carry := func() { b.Emit(asm.RSh.Imm(r1, 1), asm.Add.Imm(r3, 1)) }
	b.Emit(mov(r1, r9))
	exponent(r4, r9)
	b.JumpIfImm(asm.JEq, r4, 0, r5, done)
	exponent(r3, r0)
	b.JumpIfImm(asm.JEq, r3, 0, r5, result)
	b.JumpIfImm(asm.JEq, r3, endlessDouble, r5, done)

	// R1 becomes the one that is further from 0, R2 the other one.
	b.Emit(mov(r1, r0), mov(r2, r9), mov(r3, r1), asm.LSh.Imm(r3, 1), mov(r4, r2),
		asm.LSh.Imm(r4, 1))
	b.JumpIf(asm.JGE, r3, r4, ordered)
	b.Emit(mov(r1, r9), mov(r2, r0))
	b.Place(ordered)
	exponent(r3, r1)
	exponent(r4, r2)
	b.Emit(mov(r5, r3), asm.Sub.Reg(r5, r4), mov(r4, r1), asm.RSh.Imm(r4, 63), asm.LSh.Imm(r4, 63),
		toStack(sign, r4), mov(r4, r1), asm.Xor.Reg(r4, r2), toStack(signs, r4))

	// Their mantissas, with the implicit first bit.
	b.Set(r4, 1<<mantissaBits)
	b.Emit(asm.Or.Reg(r1, r4), asm.Or.Reg(r2, r4))
	for _, mantissa := range []asm.Register{r1, r2} {
		b.Emit(asm.LSh.Imm(mantissa, 63-mantissaBits), asm.RSh.Imm(mantissa, 63-mantissaBits-guard))
	}
	b.JumpIfImm(asm.JLE, r5, 62, r4, small)
	b.Emit(set(r2, 0))
	b.Jump(apart)
	b.Place(small)
	b.Emit(asm.RSh.Reg(r2, r5))
	b.Place(apart)
	b.Emit(fromStack(r4, signs))
	b.JumpIfImm(asm.JSLT, r4, 0, r5, less)
	b.Emit(asm.Add.Reg(r1, r2))
	b.JumpIfImm(asm.JSGE, r1, 0, r5, round)
	carry()
	b.Jump(round)

	b.Place(less)
	b.Emit(asm.Sub.Reg(r1, r2))
	b.JumpIfImm(asm.JEq, r1, 0, r5, zero)
	for shift := 32; shift > 0; shift /= 2 { // up to where the first bit belongs
		b.If(asm.JLT, r1, 1<<(63-shift), r5, func() {
			b.Emit(asm.LSh.Imm(r1, int32(shift)), asm.Sub.Imm(r3, int32(shift)))
		})
	}

	b.Place(round)
	b.Emit(asm.Add.Imm(r1, 1<<(guard-1)))
	b.If(asm.JSLT, r1, 0, r5, carry)
	b.JumpIfImm(asm.JSLE, r3, 0, r5, zero)
	b.JumpIfImm(asm.JLT, r3, endlessDouble, r5, finite)
	b.Set(r1, uint64(endlessDouble)<<mantissaBits)
	b.Emit(fromStack(r4, sign), asm.Or.Reg(r1, r4))
	b.Jump(result)
	b.Place(finite)
	b.Emit(asm.LSh.Imm(r1, 63-mantissaBits-guard+1), asm.RSh.Imm(r1, 64-mantissaBits),
		asm.LSh.Imm(r3, mantissaBits), asm.Or.Reg(r1, r3), fromStack(r4, sign), asm.Or.Reg(r1, r4))
	b.Jump(result)
	b.Place(zero)
	b.Emit(set(r1, 0))
	b.Place(result)
}
