// SPDX-License-Identifier: BSD-2-Clause

package usdt

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// Kernels for x86-64 can replace a breakpoint on a long nop by a call, which is several times faster than the trap. How
// they do it decides what is safe:
//
//   - Linux 6.18 to 7.1 make a call of a five-byte nop. The call pushes its return address below the stack pointer
//     without regard to the red zone, the 128 bytes there that a leaf function may use: its data is destroyed. A
//     one-byte nop is never touched, so the one in front of a five-byte nop is a safe place.
//   - Linux 7.2 and later leave five-byte nops alone and use a ten-byte one, which has room to step over the red
//     zone. Sites are written as a one-byte and a ten-byte nop, for tracers that know and for those that do not.
var (
	nop5         = []byte{0x0f, 0x1f, 0x44, 0x00, 0x00}
	nopThenNop10 = []byte{0x90, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00}
)

// sysUprobe is the system call of the kernel's own trampolines (x86-64 only). A kernel answers a call from elsewhere,
// without doing anything, by an error that tells which of its kind it is.
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
		// The number means another call in a program of another machine, 32-bit x86 among them.
		if runtime.GOOS == "linux" && runtime.GOARCH == "amd64" {
			_, _, o.errno = unix.RawSyscall(sysUprobe, 0, 0, 0)
		}
	}
	return o.errno
}

// nop10 tells whether a breakpoint on a ten-byte nop becomes a call that is safe.
func (o *optimisedNops) nop10() bool { return o.ask() == unix.EPROTO }

// nop5 tells whether a breakpoint on a five-byte nop becomes a call that is not safe, or may do so for all that is known.
func (o *optimisedNops) nop5() bool { return o.ask() == unix.ENXIO || o.ask() == errUnknown }
