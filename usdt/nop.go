// SPDX-License-Identifier: BSD-2-Clause

package usdt

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"io"
	"runtime"
	"slices"
	"sync"

	"golang.org/x/arch/x86/x86asm"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/elfnote"
)

// codeAtSite is the number of bytes that decide whether and where a site can be
// attached: a nop and the longest one after it.
const codeAtSite = 16

// checkCode checks that each site holds a nop, and finds the instruction to
// attach to. It calls refuse with the index of a site that cannot be attached.
func checkCode(file *elfnote.File, sites []Site, refuse func(i int, err error)) {
	machine, order := file.Header().Machine, file.Header().ByteOrder
	var kernel unix.Errno
	if machine == elf.EM_X86_64 { // it replaces nops in 64-bit programs only
		kernel = replacedNops()
	}
	readCode(file, sites, codeAtSite, func(i int, code []byte, err error) {
		switch {
		case len(code) == 0 && err != nil && err != io.EOF:
			refuse(i, err)
		case !isNop(machine, order, code):
			refuse(i, notNop(code))
		case machine == elf.EM_X86_64 || machine == elf.EM_386:
			skip, err := skipInNop(code, x86Mode(machine), kernel)
			if err != nil {
				refuse(i, err)
			}
			sites[i].Instruction += skip
		}
	})
}

// isNop reports whether machine code begins with an instruction that compilers
// and sys/sdt.h write as a nop. Instructions are in the file's byte order on
// PowerPC, and in little-endian order on the machines that have no other.
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

// isX86Nop reports whether code begins with the one-byte nop, with any number
// of operand-size prefixes, or the long nop (0f 1f) of any length.
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

// Kernels for x86-64 can replace a breakpoint on a long nop by a call, which is
// several times faster than the trap. How they do it decides what is safe:
//
//   - Linux 6.18 to 7.1 make a call of a five-byte nop, with any prefixes and
//     operands. The call pushes its return address below the stack pointer
//     without regard to the red zone, the 128 bytes there that a leaf function
//     may use: its data is destroyed. A one-byte nop is never touched, so the
//     one in front of a five-byte nop is a safe place.
//   - Linux 7.2 and later leave five-byte nops alone and use a ten-byte one,
//     which has room to step over the red zone. Newer sites are a one-byte nop
//     followed by a ten-byte one: a tracer that does not know of the
//     replacement takes the first.
var (
	nopThenNop10 = []byte{0x90, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00}
	nop10        = nopThenNop10[1:]
)

// refusedPrefixes are the prefixes that no kernel takes in an instruction to
// attach to (is_prefix_bad in arch/x86/kernel/uprobes.c): the segments es, cs,
// ss and ds, and lock. Only the ten-byte nop may have one, on kernels that
// replace it.
var refusedPrefixes = []byte{0x26, 0x2e, 0x36, 0x3e, 0xf0}

// sysUprobe is the system call of the kernel's trampolines (x86-64). Called
// from elsewhere it fails, with an error that differs between the kernels
// above.
const sysUprobe = 336

// Answers of sysUprobe.
const (
	replacesNop5  = unix.ENXIO
	replacesNop10 = unix.EPROTO
	replacesNone  = unix.ENOSYS // or a seccomp filter answers as an old kernel
	unknown       = unix.EINVAL // where the kernel cannot be asked
)

// replacedNops asks the kernel which nops it replaces.
var replacedNops = sync.OnceValue(func() unix.Errno {
	// The number means another call in a program of another machine, 32-bit x86
	// among them.
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		return unknown
	}
	_, _, errno := unix.RawSyscall(sysUprobe, 0, 0, 0)
	return errno
})

// skipInNop returns the offset of the breakpoint in a nop, or an error if the
// nop must not have one. kernel is the answer of replacedNops.
func skipInNop(nop []byte, mode int, kernel unix.Errno) (uint64, error) {
	if nop[0] == 0x90 { // as nearly all
		if kernel == replacesNop10 && bytes.HasPrefix(nop, nopThenNop10) {
			return 1, nil
		}
		return 0, nil
	}
	inst, err := x86asm.Decode(nop, mode)
	switch {
	case err != nil:
		return 0, err
	case hasRefusedPrefix(nop) && !(kernel == replacesNop10 && bytes.HasPrefix(nop, nop10)):
		return 0, errPrefixedNop
	case inst.Len == 5 && kernel != replacesNop10 && kernel != replacesNone:
		return 0, errUnsafeNop
	}
	return 0, nil
}

func hasRefusedPrefix(code []byte) bool {
	for _, b := range code {
		if !slices.Contains([]byte{0x66, 0x67, 0x64, 0x65, 0xf2, 0xf3}, b) { // other prefixes
			return slices.Contains(refusedPrefixes, b)
		}
	}
	return false
}
