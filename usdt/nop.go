// SPDX-License-Identifier: BSD-2-Clause

package usdt

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
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
	readCode(file, sites, codeAtSite, func(i int, code []byte, err error) {
		skip := uint64(0)
		if len(code) > 0 || err == nil || err == io.EOF {
			skip, err = skipInNop(machine, order, code, replacedNops())
		}
		if err == nil && file.HasWritableCode(&sites[i].Site) {
			err = errWritableCode
		}
		if err != nil {
			refuse(i, err)
		}
		sites[i].Instruction += skip
	})
}

// skipInNop returns the offset of the breakpoint in the nop that machine code
// begins with. It is an error if that is not an instruction that compilers and
// sys/sdt.h write as a nop, or must not have a breakpoint. kernel is the answer
// of replacedNops.
func skipInNop(
	machine elf.Machine, order binary.ByteOrder, code []byte, kernel unix.Errno,
) (uint64, error) {
	switch machine {
	case elf.EM_X86_64:
		return skipInX86Nop(code, 64, kernel)
	case elf.EM_386: // kernels replace nops in 64-bit programs only
		return skipInX86Nop(code, 32, replacesNone)
	}
	for _, nop := range nops[machine] {
		if start := make([]byte, 4); copy(start, code) >= nop.size &&
			order.Uint32(start)&nop.mask == nop.bits {
			return 0, nil
		}
	}
	return 0, notNop(code)
}

// nops are the nops of other machines than x86. Shorter ones are the first
// bytes of a word.
var nops = map[elf.Machine][]struct {
	size       int
	mask, bits uint32
}{
	elf.EM_AARCH64: {{4, math.MaxUint32, 0xd503201f}}, // hint #0
	// A branch on no condition, to anywhere: bcr 0, bc 0.
	elf.EM_S390:      {{2, 0xfff0_0000, 0x0700_0000}, {4, 0xfff0_0000, 0x4700_0000}},
	elf.EM_PPC64:     {{4, math.MaxUint32, 0x60000000}},           // ori r0, r0, 0
	elf.EM_RISCV:     {{2, 0xffff, 1}, {4, math.MaxUint32, 0x13}}, // c.nop; addi x0, x0, 0
	elf.EM_LOONGARCH: {{4, math.MaxUint32, 0x03400000}},           // andi r0, r0, 0
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

// skipInX86Nop is skipInNop for x86: for 90 with any number of 66 prefixes, and
// 0f 1f of any length. mode is 32 or 64.
func skipInX86Nop(code []byte, mode int, kernel unix.Errno) (uint64, error) {
	if len(code) > 0 && code[0] == 0x90 { // as nearly all
		if kernel == replacesNop10 && bytes.HasPrefix(code, nopThenNop10) {
			return 1, nil
		}
		return 0, nil
	}
	inst, err := x86asm.Decode(code, mode)
	refused := slices.ContainsFunc(inst.Prefix[:], func(prefix x86asm.Prefix) bool {
		return slices.Contains(refusedPrefixes, byte(prefix))
	})
	switch {
	case err != nil || inst.Op != x86asm.NOP:
		return 0, notNop(code)
	case refused && !(kernel == replacesNop10 && bytes.HasPrefix(code, nop10)):
		return 0, errPrefixedNop
	case inst.Len == 5 && kernel != replacesNop10 && kernel != replacesNone:
		return 0, errUnsafeNop
	}
	return 0, nil
}

// Why a site is refused before the kernel is asked.
var (
	errUnsafeNop = errors.New("a five-byte nop, which Linux 6.18 to 7.1 replaces by a call that " +
		"overwrites the program's red zone: build the program with a one-byte nop, or use another kernel")
	errWritableCode = errors.New("its code is in a writable segment (RWX), where the kernel puts no " +
		"breakpoint: link the program without -N, so that code is not writable")
	errPrefixedNop = errors.New("a nop with a segment or lock prefix, at which the kernel refuses a " +
		"breakpoint: build the program with a one-byte nop")
)

// notNop returns the error for a site that does not hold a nop. A breakpoint
// there could land inside another instruction and kill the traced program.
func notNop(code []byte) error {
	if len(code) == 0 {
		return errors.New("the file has no machine code there")
	}
	return fmt.Errorf("no nop there but % x (is the file damaged, or another version than its notes?)",
		code[:min(len(code), 8)])
}
