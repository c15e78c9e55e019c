// SPDX-License-Identifier: BSD-2-Clause

package ldso

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"runtime"
)

// target is what a library must be built for, and where such libraries are.
type target struct {
	machine   elf.Machine
	class     elf.Class
	goarch    string   // Go's name of the machine
	name      string   // in messages
	multiarch []string // Debian's names of the machine, in directories
	muslNames []string // musl's names of the machine, in /etc/ld-musl-*.path
	levels    []string // processor levels of glibc-hwcaps to prefer, best first
}

// The directory names are those of dpkg-architecture(1) and of musl's
// configure script.
var targets = [...]target{
	{machine: elf.EM_X86_64, class: elf.ELFCLASS64, goarch: "amd64", name: "x86-64",
		multiarch: []string{"x86_64-linux-gnu"}, muslNames: []string{"x86_64"}},
	{machine: elf.EM_386, class: elf.ELFCLASS32, goarch: "386", name: "i386",
		multiarch: []string{"i386-linux-gnu"}, muslNames: []string{"i386"}},
	{machine: elf.EM_AARCH64, class: elf.ELFCLASS64, goarch: "arm64", name: "arm64",
		multiarch: []string{"aarch64-linux-gnu"}, muslNames: []string{"aarch64"}},
	{machine: elf.EM_ARM, class: elf.ELFCLASS32, goarch: "arm", name: "arm",
		multiarch: []string{"arm-linux-gnueabihf", "arm-linux-gnueabi"},
		muslNames: []string{"armhf", "arm"}},
	{machine: elf.EM_S390, class: elf.ELFCLASS64, goarch: "s390x", name: "s390x",
		multiarch: []string{"s390x-linux-gnu"}, muslNames: []string{"s390x"}},
	{machine: elf.EM_PPC64, class: elf.ELFCLASS64, goarch: "ppc64le", name: "ppc64le",
		multiarch: []string{"powerpc64le-linux-gnu"}, muslNames: []string{"powerpc64le"}},
	{machine: elf.EM_RISCV, class: elf.ELFCLASS64, goarch: "riscv64", name: "riscv64",
		multiarch: []string{"riscv64-linux-gnu"}, muslNames: []string{"riscv64"}},
	{machine: elf.EM_LOONGARCH, class: elf.ELFCLASS64, goarch: "loong64", name: "loongarch64",
		multiarch: []string{"loongarch64-linux-gnu"}, muslNames: []string{"loongarch64"}},
}

// hostTarget returns the target of this process.
func hostTarget() target {
	for _, t := range targets {
		if t.goarch == runtime.GOARCH {
			return t.withLevels()
		}
	}
	return target{name: runtime.GOARCH}
}

// target returns what the libraries of a file are built for. A machine without
// a row is searched in the directories that are common to all.
func (h header) target() target {
	for _, t := range targets {
		if t.machine == h.machine && t.class == h.class {
			return t.withLevels()
		}
	}
	return target{machine: h.machine, class: h.class, name: h.machine.String()}
}

// withLevels adds the processor levels of this machine to its own target.
func (t target) withLevels() target {
	if t.goarch == runtime.GOARCH {
		t.levels = hostLevels()
	}
	return t
}

// directories returns the default directories: glibc's built-in list differs
// from one distribution to the next, so this is all of them.
func (t target) directories() []string {
	var dirs []string
	for _, multiarch := range t.multiarch {
		dirs = append(dirs, "/lib/"+multiarch, "/usr/lib/"+multiarch)
	}
	switch t.class {
	case elf.ELFCLASS64:
		dirs = append(dirs, "/lib64", "/usr/lib64")
	case elf.ELFCLASS32:
		dirs = append(dirs, "/lib32", "/usr/lib32")
	}
	return append(dirs, "/lib", "/usr/lib")
}

var (
	errNotELF       = errors.New("not an ELF file")
	errOtherMachine = errors.New("built for another machine")
)

// header is the part of an ELF header that says for whom the file is.
type header struct {
	machine elf.Machine
	class   elf.Class
}

// readHeader reads the header of a regular file.
func readHeader(path string) (header, error) {
	f, err := openRegular(path)
	if err != nil {
		return header{}, err
	}
	defer f.Close()
	var b [20]byte // e_ident, e_type, e_machine: the same in both classes
	if _, err := io.ReadFull(f, b[:]); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return header{}, errNotELF
		}
		return header{}, err
	}
	if string(b[:len(elf.ELFMAG)]) != elf.ELFMAG {
		return header{}, errNotELF
	}
	var order binary.ByteOrder = binary.LittleEndian
	if elf.Data(b[elf.EI_DATA]) == elf.ELFDATA2MSB {
		order = binary.BigEndian
	}
	return header{
		machine: elf.Machine(order.Uint16(b[18:])),
		class:   elf.Class(b[elf.EI_CLASS]),
	}, nil
}

// check returns nil for a library of the target.
func (t target) check(path string) error {
	h, err := readHeader(path)
	if err != nil {
		return err
	}
	if t.machine == elf.EM_NONE {
		return nil // a host that is not in the table
	}
	if h.machine != t.machine || h.class != t.class {
		return fmt.Errorf("%w (%v, %v)", errOtherMachine, h.machine, h.class)
	}
	return nil
}
