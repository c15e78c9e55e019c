// SPDX-License-Identifier: BSD-2-Clause

// Package unwind walks the stacks of programs that were built without frame
// pointers, from a copy of the stack and of the registers. It uses the call
// frame information in the section .eh_frame, which compilers write for
// exceptions (DWARF 5, section 6.4; System V ABI for x86-64, section 3.7; Linux
// Standard Base, chapter 10.6).
//
// A [Table] has the call frame information of one file. [Table.Step] changes
// the state in a function into the state in its caller. An [Unwinder] caches
// results for the code of many files, and bounds the work.
//
// Files are untrusted. Whatever a file contains, this package does not panic,
// loop without end, or allocate memory by a number that the file gives. A
// malformed file makes wrong stacks at worst. The packages of debuggers for the
// same format were not made for untrusted files, nor for big-endian machines.
package unwind
