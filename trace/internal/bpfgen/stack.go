// SPDX-License-Identifier: BSD-2-Clause

package bpfgen

import (
	"debug/elf"
	"fmt"

	"github.com/cilium/ebpf/asm"
)

// BPF_F_USER_STACK of bpf_get_stack and bpf_get_stackid.
const userStack = 1 << 8

// CopyUnit is what copies of stacks are multiples of. It divides the size of a
// page on every machine.
const CopyUnit = leastPage

// savedRegisters tells where the context has the registers: words of struct
// pt_regs.
type savedRegisters struct {
	pc, sp  int
	general []int // by the numbers that DWARF gives them; None for one that is always 0
}

// registersOf returns the places for a kernel. Package argspec has the same
// words.
func registersOf(machine elf.Machine) (savedRegisters, error) {
	sequence := func(from, count int) (words []int) {
		for i := range count {
			words = append(words, from+i)
		}
		return words
	}
	switch machine {
	case elf.EM_X86_64:
		return savedRegisters{pc: 16, sp: 19, general: []int{10, 12, 11, 5, 13, 14, 4, 19, 9, 8, 7,
			6, 3, 2, 1, 0}}, nil
	case elf.EM_AARCH64:
		return savedRegisters{pc: 32, sp: 31, general: sequence(0, 32)}, nil
	case elf.EM_RISCV:
		words := sequence(0, 32)
		words[0] = None // the word is the pc's
		return savedRegisters{pc: 0, sp: 2, general: words}, nil
	case elf.EM_S390:
		return savedRegisters{pc: 2, sp: 18, general: sequence(3, 16)}, nil
	}
	return savedRegisters{}, fmt.Errorf("stacks cannot be copied: it is not known where a kernel for %v saves the registers", machine)
}

// Registers are the offsets of registers in a record, each a u64.
type Registers struct {
	Machine elf.Machine
	PC, SP  int
	General []int // by the numbers that DWARF gives them; None for one that is always 0
}

// registersAt places the registers in a record from an offset on, and returns
// how many bytes they take.
func registersAt(machine elf.Machine, at int) (*Registers, int, error) {
	saved, err := registersOf(machine)
	if err != nil {
		return nil, 0, err
	}
	r := &Registers{Machine: machine, PC: at, General: make([]int, len(saved.general))}
	size := 8
	for n, word := range saved.general {
		if word == None {
			r.General[n] = None
			continue
		}
		if word == saved.sp {
			r.SP = at + size
		}
		r.General[n] = at + size
		size += 8
	}
	return r, size, nil
}

// stackTo emits what has the kernel walk the user stack.
func (b *builder) stackTo(record *Record) {
	b.Emit(asm.Mov.Reg(asm.R1, asm.R6))
	b.AddressOf(asm.R2, asm.R7, record.Stack+StackData)
	b.Emit(asm.Mov.Imm(asm.R3, int32(8*record.Frames)), asm.Mov.Imm(asm.R4, userStack))
	b.Call(asm.FnGetStack)
	b.Emit(asm.StoreMem(asm.R7, int16(record.Stack), asm.R0, asm.DWord))
}

// stackCopy emits what saves the registers, and copies the stack unit by unit,
// up to one that is not there. It changes R8 unless there is a place on the
// stack to keep it.
func (b *builder) stackCopy(record *Record, keep int) {
	saved, err := registersOf(b.kernel.Machine)
	if err != nil {
		b.Fail(err)
		return
	}
	word := func(dst asm.Register, n int) {
		b.Emit(asm.LoadMem(dst, asm.R6, int16(8*n), asm.DWord))
	}
	word(asm.R1, saved.pc)
	b.Emit(asm.StoreMem(asm.R7, int16(record.Registers.PC), asm.R1, asm.DWord))
	for n, at := range record.Registers.General {
		if at != None {
			word(asm.R1, saved.general[n])
			b.Emit(asm.StoreMem(asm.R7, int16(at), asm.R1, asm.DWord))
		}
	}

	if keep != None {
		if b.site.Fixed {
			b.Emit(asm.Mov.Imm(asm.R8, 0)) // there is nothing in it
		}
		b.Emit(asm.StoreMem(asm.R10, int16(keep), asm.R8, asm.DWord))
	}

	// R9 is the beginning of the unit that the stack pointer is in, R8 how much
	// of it is below. As much is copied at the end, so that all sizes but the
	// last are constant and no read crosses into a page that may not be there.
	done := b.Label()
	word(asm.R9, saved.sp)
	b.Emit(asm.Mov.Reg(asm.R8, asm.R9), asm.And.Imm(asm.R8, CopyUnit-1),
		asm.And.Imm(asm.R9, -CopyUnit))
	last := record.CopySize - CopyUnit
	for copied := 0; copied <= last; copied += CopyUnit {
		b.SetField(asm.R7, record.Copied, uint64(copied), asm.R1)
		b.AddressOf(asm.R1, asm.R7, record.Copy+copied)
		if copied < last {
			b.Emit(asm.Mov.Imm(asm.R2, CopyUnit))
		} else {
			b.Emit(asm.Mov.Reg(asm.R2, asm.R8))
		}
		b.AddressOf(asm.R3, asm.R9, copied)
		b.Call(asm.FnProbeReadUser)
		b.JumpIfImm(asm.JNE, asm.R0, 0, asm.R1, done)
	}
	b.Emit(asm.Add.Imm(asm.R8, int32(last)), asm.StoreMem(asm.R7, int16(record.Copied), asm.R8,
		asm.DWord))
	b.Place(done)
	if keep != None {
		b.Emit(asm.LoadMem(asm.R8, asm.R10, int16(keep), asm.DWord))
	}
}
