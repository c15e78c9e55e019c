// SPDX-License-Identifier: BSD-2-Clause

package platform

import (
	"debug/elf"
	"fmt"
	"strings"
)

// Machine is one kind of computer that QEMU can be and that this module is
// tested on.
type Machine struct {
	// Name is Go's name of the machine (GOARCH). Debian's name of the
	// architecture is the same for all of them.
	Name string

	// Emulator is the program that emulates the machine, EmulatorPackage the
	// Debian package it comes in.
	Emulator, EmulatorPackage string
	// Arguments choose the board and the processor.
	Arguments []string
	// Console is the guest's name of the terminal that QEMU's first serial
	// port is connected to.
	Console string
	// Parameters are for the kernel's command line.
	Parameters []string

	// Flavour is the ending of Debian's kernel packages for the machine: the
	// smallest of them, the "cloud" one where there is one.
	Flavour string

	// Programs are the kinds of programs that the machine's kernel runs: its
	// own first, then 32-bit ones.
	Programs []Program
}

// Program is one kind of C program that a machine runs.
type Program struct {
	// Name is Go's name of what the program is for (GOARCH).
	Name string
	// Type and Class are what the program's ELF header says.
	Type  elf.Machine
	Class elf.Class

	// Libraries are the host's directories that may hold the shared libraries
	// of such programs: those of a host that runs them itself, and those of
	// the cross compiler. GuestLibraries is where the dynamic loader looks
	// for them.
	Libraries      []string
	GuestLibraries string
}

// Machines lists all machines, in the order in which results are printed.
func Machines() []Machine {
	return []Machine{
		{
			Name:     "amd64",
			Emulator: "qemu-system-x86_64", EmulatorPackage: "qemu-system-x86",
			Arguments: []string{"-machine", "q35"},
			Console:   "ttyS0",
			// The kernel counts ticks while it waits in a loop: on a busy host,
			// emulated time passes without enough of them, and it panics.
			Parameters: []string{"no_timer_check"},
			Flavour:    "cloud-amd64",
			Programs: []Program{
				program("amd64", elf.EM_X86_64, elf.ELFCLASS64, "x86_64-linux-gnu"),
				i386(),
			},
		},
		{
			Name:     "arm64",
			Emulator: "qemu-system-aarch64", EmulatorPackage: "qemu-system-arm",
			// The board's own processor is a 32-bit one. This one is the
			// oldest that all kernels boot on, and the cheapest to emulate.
			Arguments: []string{"-machine", "virt,gic-version=max", "-cpu", "cortex-a72"},
			Console:   "ttyAMA0",
			Flavour:   "cloud-arm64",
			Programs: []Program{
				program("arm64", elf.EM_AARCH64, elf.ELFCLASS64, "aarch64-linux-gnu"),
			},
		},
		{
			Name:     "s390x",
			Emulator: "qemu-system-s390x", EmulatorPackage: "qemu-system-s390x",
			Arguments: []string{"-machine", "s390-ccw-virtio"},
			Console:   "ttysclp0",
			Flavour:   "s390x",
			Programs: []Program{
				program("s390x", elf.EM_S390, elf.ELFCLASS64, "s390x-linux-gnu"),
			},
		},
		{
			Name:     "riscv64",
			Emulator: "qemu-system-riscv64", EmulatorPackage: "qemu-system-riscv",
			Arguments: []string{"-machine", "virt", "-cpu", "rv64"},
			Console:   "ttyS0",
			Flavour:   "riscv64",
			Programs: []Program{
				program("riscv64", elf.EM_RISCV, elf.ELFCLASS64, "riscv64-linux-gnu"),
			},
		},
	}
}

func program(name string, machine elf.Machine, class elf.Class, triple string) Program {
	return Program{
		Name: name, Type: machine, Class: class,
		Libraries:      []string{"/lib/" + triple, "/usr/lib/" + triple, "/usr/" + triple + "/lib"},
		GuestLibraries: "/lib/" + triple,
	}
}

// The compiler for 32-bit x86 is called i686, its libraries' directory i386.
// (gcc -m32 would do as well, but Debian's gcc-multilib cannot be installed
// beside the other machines' compilers.)
func i386() Program {
	p := program("386", elf.EM_386, elf.ELFCLASS32, "i686-linux-gnu")
	p.Libraries = append(p.Libraries, "/lib/i386-linux-gnu", "/usr/lib/i386-linux-gnu")
	p.GuestLibraries = "/lib/i386-linux-gnu"
	return p
}

// MachineByName returns the machine with that GOARCH name.
func MachineByName(name string) (Machine, error) {
	var known []string
	for _, m := range Machines() {
		if m.Name == name {
			return m, nil
		}
		known = append(known, m.Name)
	}
	return Machine{}, fmt.Errorf("machine %q is not one of %s", name, strings.Join(known, ", "))
}

// Runs reports whether f is a program, or a library, of this kind.
func (p Program) Runs(f *elf.File) bool {
	return p.Type == f.Machine && p.Class == f.Class
}
