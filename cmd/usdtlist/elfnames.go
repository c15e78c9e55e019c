// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"debug/elf"
	"encoding/binary"

	"github.com/gousdt/gousdt/elfnote"
)

// machineName returns the name of the file's machine, in text and in JSON.
// Class and byte order make different machines of one ELF number.
func machineName(f *elfnote.File) string {
	wide := f.Header().Class == elf.ELFCLASS64
	pick := func(ifWide, ifNarrow string) string {
		if wide {
			return ifWide
		}
		return ifNarrow
	}
	switch f.Header().Machine {
	case elf.EM_X86_64:
		return pick("x86-64", "x32")
	case elf.EM_386:
		return "i386"
	case elf.EM_AARCH64:
		return "arm64"
	case elf.EM_ARM:
		return "arm"
	case elf.EM_S390:
		return pick("s390x", "s390")
	case elf.EM_PPC64:
		if f.Header().ByteOrder == binary.ByteOrder(binary.LittleEndian) {
			return "ppc64le"
		}
		return "ppc64"
	case elf.EM_RISCV:
		return pick("riscv64", "riscv32")
	case elf.EM_LOONGARCH:
		return pick("loongarch64", "loongarch32")
	}
	return f.Header().Machine.String()
}

func classBits(f *elfnote.File) uint64 {
	if f.Header().Class == elf.ELFCLASS32 {
		return 32
	}
	return 64
}

func byteOrderName(f *elfnote.File) string {
	if f.Header().ByteOrder == binary.ByteOrder(binary.BigEndian) {
		return "big"
	}
	return "little"
}

// kindName returns the kind as the JSON document has it.
func kindName(k elfnote.Kind) string {
	switch k {
	case elfnote.Executable:
		return "executable"
	case elfnote.PositionIndependent:
		return "position_independent"
	case elfnote.DebugFile:
		return "debug_file"
	default:
		return "relocatable"
	}
}

// attachable reports whether the file's probes can be attached to.
func attachable(f *elfnote.File) bool {
	return f.Kind() == elfnote.Executable || f.Kind() == elfnote.PositionIndependent
}
