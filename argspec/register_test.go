// SPDX-License-Identifier: BSD-2-Clause

package argspec

import (
	"debug/elf"
	"testing"

	"github.com/go-quicktest/qt"
)

func TestSlotsDependOnTheKernel(t *testing.T) {
	const none = -1
	for _, test := range []struct {
		program elf.Machine
		text    string
		kernel  elf.Machine
		want    int
	}{
		{elf.EM_X86_64, "%rax", elf.EM_X86_64, 10},
		{elf.EM_X86_64, "%rsp", elf.EM_X86_64, 19},
		{elf.EM_X86_64, "%rax", elf.EM_386, none},
		{elf.EM_X86_64, "%rax", elf.EM_AARCH64, none},
		{elf.EM_386, "%esp", elf.EM_X86_64, 19},
		{elf.EM_386, "%eax", elf.EM_386, none},
		{elf.EM_AARCH64, "sp", elf.EM_AARCH64, 31},
		{elf.EM_AARCH64, "x0", elf.EM_ARM, none},
		{elf.EM_ARM, "r0", elf.EM_ARM, 0},
		{elf.EM_ARM, "pc", elf.EM_ARM, 15},
		{elf.EM_ARM, "lr", elf.EM_AARCH64, 14},
		{elf.EM_ARM, "pc", elf.EM_AARCH64, 32},
		{elf.EM_ARM, "r0", elf.EM_X86_64, none},
		{elf.EM_S390, "%r0", elf.EM_S390, 3},
		{elf.EM_PPC64, "0", elf.EM_PPC64, 0},
		{elf.EM_PPC64, "lr", elf.EM_PPC64, 36},
		{elf.EM_RISCV, "ra", elf.EM_RISCV, 1},
		{elf.EM_RISCV, "pc", elf.EM_RISCV, 0},
		{elf.EM_LOONGARCH, "$sp", elf.EM_LOONGARCH, 3},
		{elf.EM_LOONGARCH, "$sp", elf.EM_NONE, none},
	} {
		args := Parse(test.program, test.text)
		qt.Assert(t, qt.HasLen(args, 1))
		qt.Assert(t, qt.Equals(args[0].Kind, InRegister), qt.Commentf("%v", args[0]))
		slot, ok := args[0].Register.Slot(test.kernel)
		if !ok {
			slot = none
		}
		qt.Check(t, qt.Equals(slot, test.want), qt.Commentf("%+v", test))
	}
}

func TestOffsetsCountBytesOfTheKernel(t *testing.T) {
	for _, test := range []struct{ program, kernel elf.Machine }{
		{elf.EM_ARM, elf.EM_ARM}, {elf.EM_ARM, elf.EM_AARCH64},
	} {
		word := map[elf.Machine]int16{elf.EM_ARM: 4, elf.EM_AARCH64: 8}[test.kernel]
		args := Parse(test.program, "4@r1 4@[r2, r3]")
		e, err := args[0].Encode(test.kernel)
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.Equals(e, Encoding{Register: word, Index: -1}))
		e, err = args[1].Encode(test.kernel)
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.Equals(e, Encoding{Register: 2 * word, Index: 3 * word}))
	}
}

func TestAScaleThatShiftsCannotSayIsAnError(t *testing.T) {
	a := Parse(elf.EM_X86_64, "8@(%rax,%rcx,4)")[0]
	a.Scale = 3
	e, err := a.Encode(elf.EM_X86_64)
	qt.Check(t, qt.ErrorIs(err, errIndex))
	qt.Check(t, qt.Equals(e, Encoding{Register: -1, Index: -1}))
}

func TestTheZeroRegisterHasNoSlot(t *testing.T) {
	for _, kernel := range []elf.Machine{elf.EM_NONE, elf.EM_X86_64, elf.EM_ARM} {
		_, ok := Register{}.Slot(kernel)
		qt.Check(t, qt.IsFalse(ok))
	}
	qt.Check(t, qt.IsTrue(Register{}.isZero()))
	qt.Check(t, qt.IsFalse(Parse(elf.EM_X86_64, "%r15")[0].Register.isZero()))
}
