// SPDX-License-Identifier: BSD-2-Clause

package argspec

import (
	"debug/elf"
	"strconv"
	"strings"

	"github.com/gousdt/gousdt/internal/elffile"
)

// file is the ELF file that has the probes: an *elfnote.File is one.
type file interface{ Symbols() elffile.Symbols }

// open sets the file to decode for.
func (p *parser) open(f file) {
	p.symbols = f.Symbols()
	p.header = p.symbols.Header()
}

// Decode decodes the argument string of a probe's site and appends the
// arguments to args, which may be nil. The file is the *elfnote.File that has
// the probe. The location is the virtual address, as in the file's symbols, of
// the instruction that the uprobe is set on: that of the site, unless the probe
// was moved to a later instruction.
//
// Decode never fails: an argument that cannot be decoded, or whose value cannot
// be fetched, is in the result with Kind Unavailable and an Err. A blank string
// has no arguments. The result shares the memory of the string. Arguments
// decode the same at every site of their file, unless their Base is the
// instruction pointer: rip, eip or pc.
//
// Several goroutines may call Decode at once for the same file.
func Decode(args []Arg, f file, location uint64, arguments string) []Arg {
	p := parser{location: location}
	p.open(f)
	return p.decode(args, arguments)
}

// Parse decodes an argument string of which only the machine is known, as
// [Decode] does: arguments that name symbols are Unavailable.
func Parse(machine elf.Machine, arguments string) []Arg {
	p := parser{header: elf.FileHeader{Machine: machine}}
	return p.decode(nil, arguments)
}

func (p *parser) decode(args []Arg, arguments string) []Arg {
	if args == nil && arguments != "" {
		// Nearly every argument has one @. The slice grows for those without.
		const usual = 12
		args = make([]Arg, 0, min(strings.Count(arguments, "@"), usual))
	}
	p.setMachine()
	for listed := 0; ; listed++ {
		raw, rest := nextArgument(arguments)
		if raw == "" {
			return args
		}
		if listed == maxListed {
			rest = strings.Trim(arguments, blanks)
			return append(args,
				Arg{Raw: rest, Err: &unavailableError{raw: rest, reason: errTooMany}})
		}
		args = append(args, Arg{Raw: raw})
		p.argument(&args[len(args)-1])
		arguments = rest
	}
}

// Global returns what reads a global variable of the file at a probe's site, as
// Decode would for an argument of that name: an unsigned number of the
// variable's size, or of kind Unavailable with an Err. The file and the
// location are those of [Decode].
func Global(f file, location uint64, name string) Arg {
	a := Arg{Raw: name}
	p := parser{location: location, arg: &a}
	p.open(f)
	p.setMachine()
	symbol := p.lookup(name)
	v := p.valueOf(symbol, name)
	if p.err == nil {
		a.Size = int(min(symbol.Size, maxSize))
	}
	switch {
	case p.machine == unknown:
		p.fail(errMachine, p.header.Machine.String())
	case v.isFunction:
		p.fail(errFunction, "")
	case !isNumberSize(a.Size):
		p.fail(errSize, strconv.FormatUint(symbol.Size, 10))
	}
	p.symbolMemory(v)
	p.finish()
	return a
}

// reason is why an argument is Unavailable. An unavailableError has exactly
// one. The tests of this package tell them apart; to callers they are text.
type reason string

func (r reason) Error() string { return string(r) }

const (
	errMachine reason = "machine not supported"
	errSyntax  reason = "malformed operand"
	errNumber  reason = "number does not fit into 64 bits"
	errSize    reason = "size is not 1, 2, 4 or 8 bytes"
	// Such as the base of an address, or for a value of that size.
	errRegister reason = "register does not exist or cannot stand there"
	errNotSaved reason = "not in pt_regs"
	// Compilers do not use this register together with another.
	errRegisterPair reason = "value in two registers of which only one is known"
	// It is negated, or extended or scaled in a way that Arg cannot say.
	errIndex       reason = "index register is modified"
	errThreadLocal reason = "thread-local storage"
	// Which definition counts is known at run time.
	errReplaceable reason = "symbol of a library that another file may replace"
	errNotLinked   reason = "not linked yet: an object file has no addresses"
	// Half of an address computation whose other half is lost, as in x86's
	// @GOTPCREL or riscv's %pcrel_lo().
	errRelocation reason = "relocation that cannot be undone"
	// The assembler has dropped it (.L5, .LANCHOR0, 1f): no symbol table has
	// its address.
	errLocalLabel          reason = "assembler-local label"
	errNoSymbols           reason = "no file to find the symbol in"
	errSymbol              reason = "symbol lookup failed" // the error that is wrapped says more
	errPositionIndependent reason = "absolute address in a position-independent file"
	errUnclear             reason = "a symbol alone is its address or the memory there"
	errIndirect            reason = "indirect operand" // a second read through a pointer
	errFunction            reason = "function, not a variable"
	errTooMany             reason = "more than 256 arguments" // maxListed
)

// unavailableError is why an argument's value cannot be fetched: "register cr0:
// not in pt_regs (8@%cr0)". The argument and the detail can hold any bytes that
// are in the file.
type unavailableError struct {
	raw    string // the argument as the string has it
	detail string // the register or symbol that the reason names, or ""
	reason reason
	cause  error // why the symbol or DT_PLTGOT was not found, or nil
}

func (e *unavailableError) Error() string {
	switch {
	case e.cause != nil:
		return e.cause.Error() + " (" + e.raw + ")"
	case e.detail != "":
		return e.detail + ": " + string(e.reason) + " (" + e.raw + ")"
	}
	return string(e.reason) + " (" + e.raw + ")"
}

// Unwrap makes errors.Is find the reason and the cause.
func (e *unavailableError) Unwrap() []error { return []error{e.reason, e.cause} }

// MarshalText makes the reason a text in JSON, where an error without it is {}.
func (e *unavailableError) MarshalText() ([]byte, error) { return []byte(e.Error()), nil }
