// SPDX-License-Identifier: BSD-2-Clause

// Package argspec decodes where the arguments of a USDT probe are.
//
// A probe site carries, beside its address, a string that describes its
// arguments in the words of the machine's assembler, because the macros that
// make probes let the compiler choose any place for them:
//
//	-4@-20(%rbp) 8@%rax 1@$3 8f@(%rdi,%rcx,8)
//
// Each argument is [-]SIZE[f]@OPERAND. The size is in bytes, a minus marks a
// signed value and f the raw bits of a floating point one; the operand is a
// constant, a register or an address in memory. The same argument on arm64 may
// be "-4@[sp, 12]", on s390x "-4@164(%r15)", on ppc64 "-4@28(1)".
//
// [Parse] turns such a string into one [Arg] per argument, by the machine of
// the file and not of the host, so that the files of any machine can be listed
// on any other. [Encode] turns the result into the [Spec] that a BPF program
// reads at a hit, which names registers by their place in the kernel's struct
// pt_regs.
//
// # What cannot be read
//
// An operand may be beyond reach at a hit: a vector register is not in pt_regs,
// a structure of 24 bytes is not one value, the label .LC0 was known to the
// assembler alone. Such an argument is an [Arg] like others, of Kind
// [Unavailable] with an error that says why. It hides no other
// argument: neither listing nor attaching fails because of it. A string that
// nobody's assembler would take ends the same way; [Parse] itself never fails.
//
// # Symbols
//
// The operand "counter+8(%rip)" is memory at a symbol. It needs the file's
// symbol table ([Target].Symbol), but not the address at which the file was
// loaded: the instruction pointer at the hit is the site itself, so that the
// distance from there to the symbol is a plain displacement. Where a program is
// not position-independent ([Target].Absolute), symbols are addresses, and
// "counter" or "table(,%rax,8)" can be read as well.
//
// # Sizes
//
// The size before the @ governs, not the name of the register: "1@%eax" is the
// low byte of rax, and "8@%eax" all of it, as probes of some libraries name a
// register by 16 or 32 bits whatever they put in. In 32-bit programs, where a
// value of 8 bytes is in two registers, the string names that of the low half,
// and the compiler's order of registers says which the other is. Operands
// without a size, which hand-written assembly has, take that of the register,
// else the machine's word.
//
// testdata/vectors holds some 1,400 strings with their meaning, as plain data
// for any implementation; the tests of this package run from them.
package argspec
