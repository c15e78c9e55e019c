// SPDX-License-Identifier: BSD-2-Clause

package bpfgen

import "github.com/cilium/ebpf/asm"

// slotBits is how many low bits of an address are the same wherever a file is
// mapped: no machine has pages of less than 4 kB.
const slotBits = 12

// Slots is how a program finds its site where sites share a cookie, or where
// there are no cookies: in a map, by the low bits of the instruction pointer.
// Sites that share a cookie are a group, in which no two have the same low
// bits.
type Slots struct {
	// Map is the descriptor of a hash map. The keys are those of Slot, and the
	// values what is the BPF cookie elsewhere, all of 8 bytes.
	Map int

	// Kernel is the kernel that runs the program.
	Kernel Kernel

	// Cookie: the number of the group is the BPF cookie. Otherwise the program
	// is for one group.
	Cookie bool
	Group  uint64
}

// Slot returns the key of the site at an address in a group.
func Slot(group, address uint64) uint64 { return group<<slotBits | LowBits(address) }

// LowBits returns what is known of an address wherever the file is mapped.
func LowBits(address uint64) uint64 { return address & (1<<slotBits - 1) }

// HasSlots reports whether programs can find their sites by slots.
func (k Kernel) HasSlots() bool {
	_, ok := k.instructionPointer()
	return ok
}

// slotKey is where the key lies on the stack, before the code of a site uses
// it.
const slotKey = -8

// find emits what loads into R8 what is the BPF cookie elsewhere. A hit that is
// of none of the sites, which cannot be, ends the program.
func (s *Slots) find() asm.Instructions {
	offset, _ := s.Kernel.instructionPointer()
	ins := asm.Instructions{asm.LoadImm(asm.R0, int64(s.Group), asm.DWord)}
	if s.Cookie {
		ins = asm.Instructions{asm.FnGetAttachCookie.Call()}
	}
	return append(ins,
		asm.LSh.Imm(asm.R0, slotBits),
		asm.LoadMem(asm.R1, asm.R6, offset, asm.DWord),
		asm.And.Imm(asm.R1, 1<<slotBits-1),
		asm.Or.Reg(asm.R0, asm.R1),
		asm.StoreMem(asm.R10, slotKey, asm.R0, asm.DWord),
		asm.Mov.Reg(asm.R2, asm.R10),
		asm.Add.Imm(asm.R2, slotKey),
		asm.LoadMapPtr(asm.R1, s.Map),
		asm.FnMapLookupElem.Call(),
		asm.Instruction{OpCode: asm.JNE.Op(asm.ImmSource), Dst: asm.R0, Offset: 1}, // over the exit
		asm.Return(),
		asm.LoadMem(asm.R8, asm.R0, 0, asm.DWord),
	)
}
