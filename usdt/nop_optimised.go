// SPDX-License-Identifier: BSD-2-Clause

package usdt

import (
	"runtime"
	"slices"

	"golang.org/x/arch/x86/x86asm"
	"golang.org/x/sys/unix"
)

// Kernels for x86-64 can replace a breakpoint on a long nop by a call, which is
// several times faster than the trap. How they do it decides what is safe:
//
//   - Linux 6.18 to 7.1 make a call of a five-byte nop, of whatever prefixes
//     and operands. The call pushes its return address below the stack pointer
//     without regard to the red zone, the 128 bytes there that a leaf function
//     may use: its data is destroyed. A one-byte nop is never touched, so the
//     one in front of a five-byte nop is a safe place.
//   - Linux 7.2 and later leave five-byte nops alone and use a ten-byte one,
//     which has room to step over the red zone. Sites are written as a one-byte
//     and a ten-byte nop, for tracers that know and for those that do not.
var (
	nopThenNop10 = []byte{0x90, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00}
	nop10        = nopThenNop10[1:]
)

// refusedPrefixes are those that no kernel takes in an instruction to attach to
// (is_prefix_bad in arch/x86/kernel/uprobes.c): the segments es, cs, ss and ds,
// and lock. The ten-byte nop alone may have one, where it is replaced.
var refusedPrefixes = []byte{0x26, 0x2e, 0x36, 0x3e, 0xf0}

// sysUprobe is the system call of the kernel's own trampolines (x86-64 only). A
// kernel answers a call from elsewhere, without doing anything, by an error
// that tells which of its kind it is.
const sysUprobe = 336

// optimisedNops asks the kernel, once, which nops it replaces.
type optimisedNops struct {
	asked bool
	errno unix.Errno
}

// errUnknown stands for the answer where the kernel cannot be asked.
const errUnknown = unix.EINVAL

func (o *optimisedNops) ask() unix.Errno {
	if !o.asked {
		o.asked = true
		o.errno = errUnknown
		// The number means another call in a program of another machine, 32-bit
		// x86 among them.
		if runtime.GOOS == "linux" && runtime.GOARCH == "amd64" {
			_, _, o.errno = unix.RawSyscall(sysUprobe, 0, 0, 0)
		}
	}
	return o.errno
}

// nop10 reports whether a breakpoint on a ten-byte nop becomes a call that is
// safe.
func (o *optimisedNops) nop10() bool { return o.ask() == unix.EPROTO }

// nop5 reports whether a breakpoint on a five-byte nop becomes a call that is
// not safe, or may do so for all that is known.
func (o *optimisedNops) nop5() bool { return o.ask() == unix.ENXIO || o.ask() == errUnknown }

// skip returns how many bytes after the beginning of a nop the breakpoint has
// to be, and an error where it may be nowhere.
func (o *optimisedNops) skip(nop []byte, mode int) (uint8, error) {
	if nop[0] == 0x90 { // as nearly all
		if begins(nop, nopThenNop10) && o.nop10() {
			return 1, nil
		}
		return 0, nil
	}
	inst, err := x86asm.Decode(nop, mode)
	switch {
	case err != nil:
		return 0, err
	case hasRefusedPrefix(nop) && !(begins(nop, nop10) && o.nop10()):
		return 0, errPrefixedNop
	case inst.Len == 5 && o.nop5():
		return 0, errUnsafeNop
	}
	return 0, nil
}

func hasRefusedPrefix(code []byte) bool {
	for _, b := range code {
		switch {
		case slices.Contains(refusedPrefixes, b):
			return true
		case b != 0x66 && b != 0x67 && b != 0x64 && b != 0x65 && b != 0xf2 && b != 0xf3:
			return false
		}
	}
	return false
}
