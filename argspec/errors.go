// SPDX-License-Identifier: BSD-2-Clause

package argspec

import (
	"errors"
	"strconv"
)

// The reasons for which an argument is Unavailable. An unavailableError has
// exactly one of them. They are variables for the tests of this package, which
// compare them; to callers they are text.
var (
	// errMachine: this package has no syntax for the file's machine.
	errMachine = errors.New("machine not supported")
	// errSyntax: the text is not an operand of the machine's assembler.
	errSyntax = errors.New("malformed operand")
	// errNumber: a number needs more than 64 bits.
	errNumber = errors.New("number does not fit into 64 bits")
	// errSize: values of 1, 2, 4 and 8 bytes can be read. Structures passed by
	// value have others.
	errSize = errors.New("size is not 1, 2, 4 or 8 bytes")
	// errRegister: the machine has no register of that name, or none that can
	// stand there, as the base of an address or for a value of that size.
	errRegister = errors.New("register does not exist or cannot stand there")
	// errNotSaved: the register exists, but the kernel does not save it where
	// a uprobe's program could read it.
	errNotSaved = errors.New("not in pt_regs")
	// errRegisterPair: the value fills two registers, the string names one, and
	// compilers do not use this one together with another.
	errRegisterPair = errors.New("value in two registers of which only one is known")
	// errIndex: the index register is negated, or extended or scaled in a way
	// that Arg cannot say.
	errIndex = errors.New("index register is modified")
	// errThreadLocal: the address is relative to the thread's own storage,
	// whose place is not in pt_regs.
	errThreadLocal = errors.New("thread-local storage")
	// errReplaceable: the symbol is one of a library that another file may
	// define, too: which definition counts is known at run time.
	errReplaceable = errors.New("symbol of a library that another file may replace")
	// errNotLinked: the addresses in an object file are not known yet.
	errNotLinked = errors.New("not linked yet: an object file has no addresses")
	// errRelocation: the operand is half of an address computation of which
	// the other half is lost, as in x86's @GOTPCREL or riscv's %pcrel_lo().
	errRelocation = errors.New("relocation that cannot be undone")
	// errLocalLabel: the assembler dropped the label (.L5, .LANCHOR0, 1f), so
	// that no symbol table has its address.
	errLocalLabel = errors.New("assembler-local label")
	// errNoSymbols: the operand names a symbol, and there is no file to look it
	// up in.
	errNoSymbols = errors.New("no file to find the symbol in")
	// errSymbol: the symbol could not be looked up. The error of File.Symbol or
	// File.PLTGOT, which is wrapped beside it, says more.
	errSymbol = errors.New("symbol lookup failed")
	// errPositionIndependent: the operand is an absolute address, but this
	// program is loaded at an address that the file does not know.
	errPositionIndependent = errors.New("absolute address in a position-independent file")
	// errUnclear: a symbol stands alone, and the compiler writes so both the
	// address of a symbol and the memory there.
	errUnclear = errors.New("a symbol alone is its address or the memory there")
	// errIndirect: the value would need a second read through a pointer.
	errIndirect = errors.New("indirect operand")
	// errTooMany: the string has more than maxListed arguments; this one is
	// all the rest of them.
	errTooMany = errors.New("more than " + strconv.Itoa(maxListed) + " arguments")
)

// unavailableError is why an argument's value cannot be fetched: "register cr0:
// not in pt_regs (8@%cr0)". The argument and the detail can hold any bytes that
// are in the file.
type unavailableError struct {
	raw    string // the argument as the string has it
	detail string // what in it the reason is about (a register, a symbol), or ""
	reason error  // one of the variables above
	cause  error  // what File.Symbol or File.PLTGOT answered, or nil
}

func (e *unavailableError) Error() string {
	text := e.reason.Error()
	if e.detail != "" {
		text = e.detail + ": " + text
	}
	if e.cause != nil {
		text = e.cause.Error()
	}
	return text + " (" + e.raw + ")"
}

// Unwrap makes errors.Is find the reason and what lies under it.
func (e *unavailableError) Unwrap() []error {
	if e.cause == nil {
		return []error{e.reason}
	}
	return []error{e.reason, e.cause}
}

// MarshalText makes the reason a text in JSON, where an error without it is {}.
func (e *unavailableError) MarshalText() ([]byte, error) { return []byte(e.Error()), nil }
