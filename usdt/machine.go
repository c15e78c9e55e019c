// SPDX-License-Identifier: BSD-2-Clause

package usdt

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"

	"github.com/gousdt/gousdt/elfnote"
	"golang.org/x/sys/unix"
)

// attachable returns an error if the running kernel could not run a file at
// all.
func attachable(file *elfnote.File) error {
	switch file.Kind() {
	case elfnote.DebugFile:
		return errors.New("this is a separate debug file, without the machine code: attach to the file it belongs to")
	case elfnote.Relocatable:
		return errors.New("this is an object file that is not linked yet: attach to the program or library made of it")
	}
	kernel, err := kernelMachine()
	if err != nil {
		return err
	}
	header := file.Header()
	isLittle, wantLittle := header.Data == elf.ELFDATA2LSB,
		binary.NativeEndian.Uint16([]byte{1, 0}) == 1
	if !attaches(kernel, header.Machine) || isLittle != wantLittle {
		return fmt.Errorf("the file is for %s (%s), this kernel attaches to programs for %s",
			header.Machine, header.ByteOrder, kernel)
	}
	return nil
}

// attaches reports whether a kernel of one machine takes uprobes in programs
// for another. That of arm64 runs 32-bit programs but does not
// (arch_uprobe_analyze_insn).
func attaches(kernel, program elf.Machine) bool {
	switch {
	case kernel == program:
		return true
	case kernel == elf.EM_X86_64:
		return program == elf.EM_386
	default:
		return false
	}
}

// kernelMachine returns the machine of the kernel, which lays out the
// registers.
func kernelMachine() (elf.Machine, error) {
	// A 64-bit program needs a kernel of its own machine. What uname says
	// depends on the personality of the process.
	switch runtime.GOARCH {
	case "amd64":
		return elf.EM_X86_64, nil
	case "arm64":
		return elf.EM_AARCH64, nil
	case "s390x":
		return elf.EM_S390, nil
	case "ppc64", "ppc64le":
		return elf.EM_PPC64, nil
	case "riscv64":
		return elf.EM_RISCV, nil
	case "loong64":
		return elf.EM_LOONGARCH, nil
	}

	// A 32-bit program may run on a kernel of either width.
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return elf.EM_NONE, fmt.Errorf("asking for the kernel's machine: %w", err)
	}
	switch machine := unix.ByteSliceToString(name.Machine[:]); machine {
	case "x86_64":
		return elf.EM_X86_64, nil
	case "aarch64", "armv8l":
		return elf.EM_AARCH64, nil
	default:
		return elf.EM_NONE, fmt.Errorf("attaching on a kernel for %q is not supported, only on 64-bit ones", machine)
	}
}
