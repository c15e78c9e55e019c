// SPDX-License-Identifier: BSD-2-Clause

package argspec

import "strings"

// Words of struct pt_regs in arch/x86/include/uapi/asm/ptrace.h, the variant of
// 64-bit kernels: r15 is the first member, ss the last. A 32-bit program's
// registers are saved there too, eax as the low half of rax.
const (
	x86R15 = iota
	x86R14
	x86R13
	x86R12
	x86BP
	x86BX
	x86R11
	x86R10
	x86R9
	x86R8
	x86AX
	x86CX
	x86DX
	x86SI
	x86DI
	_ // orig_rax
	x86IP
	_ // cs
	_ // eflags
	x86SP
)

// x86Lookup returns slot, size and shift of the general register of a name in
// lower case. The size is 0 if there is none.
func x86Lookup(name string) (slot, size, shift uint8) {
	switch name {
	case "rax":
		return x86AX, 8, 0
	case "eax":
		return x86AX, 4, 0
	case "ax":
		return x86AX, 2, 0
	case "al":
		return x86AX, 1, 0
	case "ah":
		return x86AX, 1, 8
	case "rbx":
		return x86BX, 8, 0
	case "ebx":
		return x86BX, 4, 0
	case "bx":
		return x86BX, 2, 0
	case "bl":
		return x86BX, 1, 0
	case "bh":
		return x86BX, 1, 8
	case "rcx":
		return x86CX, 8, 0
	case "ecx":
		return x86CX, 4, 0
	case "cx":
		return x86CX, 2, 0
	case "cl":
		return x86CX, 1, 0
	case "ch":
		return x86CX, 1, 8
	case "rdx":
		return x86DX, 8, 0
	case "edx":
		return x86DX, 4, 0
	case "dx":
		return x86DX, 2, 0
	case "dl":
		return x86DX, 1, 0
	case "dh":
		return x86DX, 1, 8
	case "rsi":
		return x86SI, 8, 0
	case "esi":
		return x86SI, 4, 0
	case "si":
		return x86SI, 2, 0
	case "sil":
		return x86SI, 1, 0
	case "rdi":
		return x86DI, 8, 0
	case "edi":
		return x86DI, 4, 0
	case "di":
		return x86DI, 2, 0
	case "dil":
		return x86DI, 1, 0
	case "rbp":
		return x86BP, 8, 0
	case "ebp":
		return x86BP, 4, 0
	case "bp":
		return x86BP, 2, 0
	case "bpl":
		return x86BP, 1, 0
	case "rsp":
		return x86SP, 8, 0
	case "esp":
		return x86SP, 4, 0
	case "sp":
		return x86SP, 2, 0
	case "spl":
		return x86SP, 1, 0
	case "rip":
		return x86IP, 8, 0
	case "eip":
		return x86IP, 4, 0
	}
	slot, size = x86Numbered(name)
	return slot, size, 0
}

// x86Numbered is x86Lookup for r8 to r15 and their parts.
func x86Numbered(name string) (slot, size uint8) {
	size = 8
	if last := len(name) - 1; last > 1 {
		switch name[last] {
		case 'd':
			size = 4
		case 'w':
			size = 2
		case 'b', 'l':
			size = 1
		}
		if size != 8 {
			name = name[:last]
		}
	}
	n, ok := numbered(name, "r", 15)
	if !ok || n < 8 {
		return 0, 0
	}
	slots := [8]uint8{x86R8, x86R9, x86R10, x86R11, x86R12, x86R13, x86R14, x86R15}
	return slots[n-8], size
}

// i386Pairs are the registers of i386 in the order of the compilers: a value in
// two registers is in neighbours, with its low half in the first.
var i386Pairs = [...]struct {
	name string
	slot uint8
}{
	{"eax", x86AX}, {"edx", x86DX}, {"ecx", x86CX}, {"ebx", x86BX},
	{"esi", x86SI}, {"edi", x86DI}, {"ebp", x86BP},
}

// i386High returns the register after r.
func (p *parser) i386High(r Register) Register {
	for i, next := range i386Pairs[1:] {
		if i386Pairs[i].slot == r.slot {
			return p.general(next.name, 4, int(next.slot))
		}
	}
	return Register{}
}

// isI386 reports whether 32-bit code can name the register.
func isI386(slot, size uint8) bool {
	switch slot {
	case x86AX, x86BX, x86CX, x86DX, x86IP:
		return size < 8
	case x86SI, x86DI, x86BP, x86SP:
		return size == 4 || size == 2
	}
	return false
}

func isX86General(name string) bool {
	_, size, _ := x86Lookup(name)
	return size != 0
}

// isX86Vector recognises registers of the vector and floating point units.
func isX86Vector(name string) bool {
	for _, prefix := range [...]string{"xmm", "ymm", "zmm", "tmm", "mm", "k"} {
		if _, ok := numbered(name, prefix, 31); ok {
			return true
		}
	}
	return name == "st"
}

// isX86Special recognises the other registers that are not in pt_regs, or whose
// value no probe hands out: segments, control, debug, and APX's r16 to r31.
func isX86Special(name string) bool {
	switch name {
	case "cs", "ds", "es", "fs", "gs", "ss":
		return true
	}
	for _, prefix := range [...]string{"cr", "db", "dr", "bnd", "tr"} {
		if _, ok := numbered(name, prefix, 15); ok {
			return true
		}
	}
	n, ok := numbered(strings.TrimRight(name, "dwb"), "r", 31)
	return ok && n > 15
}
