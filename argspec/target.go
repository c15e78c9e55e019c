// SPDX-License-Identifier: BSD-2-Clause

package argspec

import "debug/elf"

// Target is what the operands of a site refer to. Machine alone decides the
// syntax; the rest is needed for operands that name a symbol or an address.
type Target struct {
	// Machine and Class are those of the ELF file. ELFCLASS32 with EM_X86_64
	// is an x32 program. ELFCLASSNONE stands for the machine's usual class.
	Machine elf.Machine
	Class   elf.Class

	// Location is the virtual address, as the file's symbols have it, of the
	// instruction the uprobe is set on, which is what the saved instruction
	// pointer holds at a hit: the site's own location, unless the probe was
	// moved to a later instruction.
	Location uint64

	// Absolute tells that the program runs at the addresses its file has
	// (ET_EXEC), so that symbols are addresses. Otherwise they are only good
	// for distances from the instruction pointer.
	Absolute bool

	// Symbol returns the address of a symbol, and an error if there is none
	// of that name or more than one. nil: operands with symbols are
	// unavailable. It is asked only where a symbol matters.
	Symbol func(name string) (uint64, error)

	// PLTGOT returns the value of DT_PLTGOT, which i386's @GOTOFF counts from.
	// nil is allowed as for Symbol.
	PLTGOT func() (uint64, error)
}
