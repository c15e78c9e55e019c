// SPDX-License-Identifier: BSD-2-Clause

// Package unwind walks the stacks of programs that were built without frame
// pointers, from a copy of the stack and of the registers, by what compilers
// write into programs for exceptions: the call frame information in the section
// .eh_frame (DWARF 5, section 6.4; System V ABI for x86-64, section 3.7; Linux
// Standard Base, chapter 10.6).
//
// A [Table] is that of one file. [Table.Step] makes of the state in a function
// that in its caller.
//
// Files come from strangers: nothing here panics, loops, or allocates by a
// number that a file gives, whatever is in it. A damaged file makes wrong
// stacks at worst. The packages of debuggers that read the same were not made
// for that, nor for big-endian machines.
package unwind
