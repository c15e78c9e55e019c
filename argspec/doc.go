// SPDX-License-Identifier: BSD-2-Clause

// Package argspec decodes where the arguments of a USDT probe are.
//
// A probe's site has an address and a string that describes the arguments. The
// compiler may keep an argument anywhere, so the string describes each one in
// the syntax of the machine's assembler:
//
//	-4@-20(%rbp) 8@%rax 1@$3 8f@(%rdi,%rcx,8)
//
// An argument is [-]SIZE[f]@OPERAND. The size is in bytes, a minus marks a
// signed value, and f marks a floating point value. The operand is a constant,
// a register or an address in memory. On arm64 the first argument may be
// "-4@[sp, 12]", on s390x "-4@164(%r15)", on ppc64 "-4@28(1)".
//
// [Decode] turns a string into an [Arg] for each argument:
//
//	file, err := elfnote.Open(path)
//	...
//	for site, err := range file.Sites() {
//		...
//		args := argspec.Decode(nil, file, site.Location, site.Arguments)
//	}
//
// The file decides the machine, not the host: files for x86-64, i386, arm64,
// arm, s390x, ppc64, riscv and loongarch64 can be decoded on any other. An Arg
// names registers, and [Register.Slot] says where the kernel saves them in
// struct pt_regs.
//
// # What cannot be read
//
// Some arguments have no value that can be fetched when the site is hit: vector
// registers are not in pt_regs, a structure of 24 bytes is not a number, and
// the label .LC0 was known to the assembler alone. Such an argument has an Err
// that says why, and does not affect the others. Decoding itself never fails: a
// malformed string gives such arguments.
//
// A constant is what the string says. GCC for 32-bit ARM writes floating point
// constants as decimal numbers and rounds them to 13 digits: what is read may
// differ from what the program passed by 1 in 10^13.
//
// Of a structure in memory only the address is known: its Kind is [Bytes].
//
// # Symbols
//
// The operand "counter+8(%rip)" is memory at a symbol. The symbol is found in
// the file, or in its separate debug file too, if the caller gives a [File]
// that searches that: DebugSymbols of package stack makes one. The address at
// which the file is loaded is not needed: the instruction pointer at the hit is
// the address of the site, and the distance from the site to the symbol is
// known. In the same way "$counter", the address of a symbol, is the
// instruction pointer plus a distance: its Kind is [Address]. In a program that
// is not position-independent symbols are constants, and operands such as
// "table(,%rax,8)" can be read.
//
// # Programs of your own
//
// [Arg.Encode] returns the numbers by which an eBPF program fetches an
// argument: offsets in struct pt_regs, shifts and a displacement. Package usdt
// writes them into its own tables and into those of libbpf.
//
// # Sizes
//
// The size before the @ governs, not the name of the register: "1@%eax" is the
// low byte of rax, and "8@%eax" all of it, because the probes of some libraries
// use the names of 16 or 32 bits for values of all sizes. In 32-bit programs a
// value of 8 bytes is in two registers. The string names the one with the low
// half, and the order in which the compiler uses registers decides the other:
// "8@%eax" is edx:eax. An operand without a size, as in hand-written assembly,
// has the size of its register, or else of the machine's word.
//
// # Conformance vectors
//
// The directory internal/testdata/vectors of this module has some 1,500 strings
// with their meaning, as plain data for any implementation. The tests of this
// package run from them.
package argspec
