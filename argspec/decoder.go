// SPDX-License-Identifier: BSD-2-Clause

package argspec

import (
	"debug/elf"
	"errors"
	"strconv"
	"strings"

	"github.com/gousdt/gousdt/internal/elffile"
)

// file is the ELF file that has the probes: an *elfnote.File is one.
type file interface{ Symbols() elffile.Symbols }

// target describes the file.
type target struct {
	symbols   elffile.Symbols // nil: only the machine is known
	machine   elf.Machine
	class     elf.Class
	kind      elf.Type
	bigEndian bool
}

// bigEndianOne is 1 where the most significant byte comes first.
var bigEndianOne = [2]byte{0, 1}

func newTarget(f file) target {
	symbols := f.Symbols()
	header := symbols.Header()
	return target{
		symbols: symbols, machine: header.Machine, class: header.Class, kind: header.Type,
		bigEndian: header.ByteOrder != nil && header.ByteOrder.Uint16(bigEndianOne[:]) == 1,
	}
}

// Decode decodes the argument string of a probe's site and appends the
// arguments to args, which may be nil. The file is the *elfnote.File that has
// the probe. The location is the virtual address, as in the file's symbols, of
// the instruction that the uprobe is set on: that of the site, unless the probe
// was moved to a later instruction.
//
// Decode never fails: an argument that cannot be decoded, or whose value cannot
// be fetched, is in the result with Kind Unavailable and an Err. A string that
// is empty or blank has no arguments. The result shares the memory of the
// string. Arguments decode the same at every site of their file, unless their
// Base is the instruction pointer: rip, eip or pc.
//
// Several goroutines may call Decode at once for the same file.
func Decode(args []Arg, f file, location uint64, arguments string) []Arg {
	return newTarget(f).decode(args, location, arguments)
}

func (t target) decode(args []Arg, location uint64, arguments string) []Arg {
	if args == nil && arguments != "" {
		// Nearly every argument has one @. What is without one is appended.
		const usual = 12
		args = make([]Arg, 0, min(strings.Count(arguments, "@"), usual))
	}
	p := parser{target: t, location: location}
	p.setMachine()
	for listed := 0; ; listed++ {
		raw, rest := nextArgument(arguments)
		if raw == "" {
			return args
		}
		if listed == maxListed {
			rest = strings.TrimLeft(arguments, blanks)
			rest = strings.TrimRight(rest, blanks)
			return append(args,
				Arg{Raw: rest, Err: &unavailableError{raw: rest, reason: errTooMany}})
		}
		args = append(args, Arg{Raw: raw})
		p.argument(&args[len(args)-1])
		arguments = rest
	}
}

// Parse decodes an argument string of which only the machine is known, as
// [Decode] does: arguments that name symbols are Unavailable.
func Parse(machine elf.Machine, arguments string) []Arg {
	return target{machine: machine}.decode(nil, 0, arguments)
}

// Global returns what reads a global variable of the file at a probe's site, as
// Decode would for an argument of that name: an unsigned number of the
// variable's size, or of kind Unavailable with an Err. The file and the
// location are those of [Decode].
func Global(f file, location uint64, name string) Arg {
	a := Arg{Raw: name}
	p := parser{target: newTarget(f), location: location, arg: &a}
	p.setMachine()
	symbol := p.lookup(name)
	v := p.valueOf(symbol, name)
	if p.err == nil {
		a.Size = int(min(symbol.Size, maxSize))
	}
	switch {
	case v.isFunction:
		p.fail(errFunction, "")
	case !isNumberSize(a.Size):
		p.fail(errSize, strconv.FormatUint(symbol.Size, 10))
	}
	p.symbolMemory(v)
	p.finish()
	return a
}

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
	// errRelocation: the operand is half of an address computation, and the
	// other half is lost, as in x86's @GOTPCREL or riscv's %pcrel_lo().
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
	// errFunction: a variable is asked for, and the symbol is a function's.
	errFunction = errors.New("function, not a variable")
	// errTooMany: the string has more than maxListed arguments; this one is
	// all the rest of them.
	errTooMany = errors.New("more than " + strconv.Itoa(maxListed) + " arguments")
)

// unavailableError is why an argument's value cannot be fetched: "register cr0:
// not in pt_regs (8@%cr0)". The argument and the detail can hold any bytes that
// are in the file.
type unavailableError struct {
	raw    string // the argument as the string has it
	detail string // the register or symbol that the reason names, or ""
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
