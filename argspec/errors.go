// SPDX-License-Identifier: BSD-2-Clause

package argspec

import (
	"errors"
	"strconv"
)

// The reasons for which an argument is Unavailable. Arg.Err wraps exactly one
// of them, and says more in its text.
var (
	// ErrMachine: this package has no syntax for the file's machine.
	ErrMachine = errors.New("machine not supported")
	// ErrSyntax: the text is not an operand of the machine's assembler.
	ErrSyntax = errors.New("malformed operand")
	// ErrNumber: a number needs more than 64 bits.
	ErrNumber = errors.New("number does not fit into 64 bits")
	// ErrSize: values of 1, 2, 4 and 8 bytes can be read. Structures passed by
	// value have others.
	ErrSize = errors.New("size is not 1, 2, 4 or 8 bytes")
	// ErrRegister: the machine has no register of that name, or none that can
	// stand there, as the base of an address or for a value of that size.
	ErrRegister = errors.New("register does not exist or cannot stand there")
	// ErrNotSaved: the register exists, but the kernel does not save it where
	// a uprobe's program could read it.
	ErrNotSaved = errors.New("not in pt_regs")
	// ErrRegisterPair: the value fills two registers and the string names one.
	ErrRegisterPair = errors.New("value in two registers of which only one is named")
	// ErrIndex: the index register is negated, or extended or scaled in a way
	// that Arg cannot say.
	ErrIndex = errors.New("index register is modified")
	// ErrThreadLocal: the address is relative to the thread's own storage,
	// whose place is not in pt_regs.
	ErrThreadLocal = errors.New("thread-local storage")
	// ErrRelocation: the operand is half of an address computation of which
	// the other half is lost, as in x86's @GOTPCREL or riscv's %pcrel_lo().
	ErrRelocation = errors.New("relocation that cannot be undone")
	// ErrLocalLabel: the assembler dropped the label (.L5, .LANCHOR0, 1f), so
	// that no symbol table can tell its address.
	ErrLocalLabel = errors.New("assembler-local label")
	// ErrNoSymbols: the operand names a symbol, and the Target has no way to
	// look one up.
	ErrNoSymbols = errors.New("no symbols at hand")
	// ErrSymbol: the symbol could not be looked up. The error of
	// Target.Symbol or Target.PLTGOT is wrapped beside it.
	ErrSymbol = errors.New("symbol lookup failed")
	// ErrPositionIndependent: the operand is an absolute address, but this
	// program is loaded at an address that the file does not know.
	ErrPositionIndependent = errors.New("absolute address in a position-independent file")
	// ErrIndirect: the value would need a second read through a pointer.
	ErrIndirect = errors.New("indirect operand")
	// ErrTooMany: the string has more than MaxListed arguments; this one is
	// all the rest of them.
	ErrTooMany = errors.New("more than " + strconv.Itoa(MaxListed) + " arguments")
	// ErrKernel: the kernel's machine cannot run the program. Returned by
	// Arg.CheckKernel only.
	ErrKernel = errors.New("a kernel of this machine does not run such programs")
)

// UnavailableError says why an argument's value cannot be fetched.
type UnavailableError struct {
	// Raw is the argument as the string has it.
	Raw string
	// Detail is what in it the reason is about (a register, a symbol, a
	// number), or "".
	Detail string
	// Reason is one of the Err variables of this package.
	Reason error
	// Err is what Target.Symbol or Target.PLTGOT answered, or nil.
	Err error
}

// Error returns the explanation and the argument: "x: no symbols at hand
// (8@x(%rip))". Both can hold any bytes that are in the file.
func (e *UnavailableError) Error() string {
	return e.Explanation() + " (" + e.Raw + ")"
}

// Explanation is Error without the argument's text, for where that is shown
// already.
func (e *UnavailableError) Explanation() string {
	text := e.Reason.Error()
	if e.Detail != "" {
		text = e.Detail + ": " + text
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap makes errors.Is find the reason and what lies under it.
func (e *UnavailableError) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Reason}
	}
	return []error{e.Reason, e.Err}
}
