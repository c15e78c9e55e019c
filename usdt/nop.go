// SPDX-License-Identifier: BSD-2-Clause

package usdt

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"io"

	"golang.org/x/arch/x86/x86asm"

	"github.com/gousdt/gousdt/elfnote"
)

// codeAtSite is how many bytes decide whether and where a site can be attached:
// a nop and the longest one after it.
const codeAtSite = 16

// checkCode sees to it that each site holds a nop, and finds the instruction to
// attach to. It calls refuse with the index of a site that cannot be attached,
// and stops at the first error that refuse returns.
func checkCode(file *elfnote.File, sites []siteRow, refuse func(i int, err error) error) error {
	machine, order := file.Header().Machine, file.Header().ByteOrder
	// Only 64-bit programs have these nops replaced; others have no answer to
	// be asked for.
	nops := optimisedNops{asked: machine != elf.EM_X86_64}
	return readCode(file, sites, codeAtSite, func(i int, code []byte, err error) error {
		if len(code) == 0 && err != nil && err != io.EOF {
			return refuse(i, err)
		}
		if !isNop(machine, order, code) {
			return refuse(i, notNop(code))
		}
		if machine == elf.EM_X86_64 || machine == elf.EM_386 {
			skip, err := nops.skip(code, x86Mode(machine))
			if err != nil {
				return refuse(i, err)
			}
			sites[i].skip = skip
		}
		return nil
	})
}

// begins reports whether machine code begins with one of the nops above, of
// which nearly no code has the first two bytes.
func begins(code, nop []byte) bool {
	return len(code) >= len(nop) && code[0] == nop[0] && code[1] == nop[1] &&
		bytes.Equal(code[:len(nop)], nop)
}

// isNop reports whether machine code begins with an instruction that does
// nothing. Only instructions that a probe site may hold are known: those that
// compilers and sys/sdt.h write as a nop. Instructions are in the file's byte
// order on PowerPC, and in little-endian order on the machines that have no
// other.
func isNop(machine elf.Machine, order binary.ByteOrder, code []byte) bool {
	word := func(order binary.ByteOrder) uint32 {
		if len(code) < 4 {
			return 0
		}
		return order.Uint32(code)
	}

	switch machine {
	case elf.EM_X86_64, elf.EM_386:
		return isX86Nop(code, x86Mode(machine))
	case elf.EM_AARCH64:
		return word(binary.LittleEndian) == 0xd503201f // hint #0
	case elf.EM_S390:
		// A branch on no condition, to anywhere: bcr 0 (2 bytes), bc 0 (4
		// bytes).
		return len(code) >= 2 && code[0] == 0x07 && code[1]>>4 == 0 ||
			len(code) >= 4 && code[0] == 0x47 && code[1]>>4 == 0
	case elf.EM_PPC64:
		return word(order) == 0x60000000 // ori r0, r0, 0
	case elf.EM_RISCV:
		return len(code) >= 2 && binary.LittleEndian.Uint16(code) == 0x0001 || // c.nop
			word(binary.LittleEndian) == 0x00000013 // addi x0, x0, 0
	case elf.EM_LOONGARCH:
		return word(binary.LittleEndian) == 0x03400000 // andi r0, r0, 0
	default:
		return false
	}
}

// isX86Nop knows the one-byte nop with any number of operand-size prefixes and
// the long nop (0f 1f) of all lengths.
func isX86Nop(code []byte, mode int) bool {
	if len(code) > 0 && code[0] == 0x90 {
		return true // as nearly all are
	}
	inst, err := x86asm.Decode(code, mode)
	return err == nil && inst.Op == x86asm.NOP
}

// x86Mode is the width of a machine's instructions.
func x86Mode(machine elf.Machine) int {
	if machine == elf.EM_386 {
		return 32
	}
	return 64
}
