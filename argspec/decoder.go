// SPDX-License-Identifier: BSD-2-Clause

package argspec

import (
	"debug/elf"
	"errors"
	"slices"
	"strconv"
	"strings"
)

// A File is the ELF file that has a probe, as far as its arguments depend on
// it. An *elfnote.File is one. Programs with an ELF reader of their own
// implement it; [Parse] is for a machine of which no file is known.
type File interface {
	// Header returns the ELF header. Four fields matter. Machine decides the
	// syntax of the arguments. Class is ELFCLASS32 or ELFCLASS64, and
	// ELFCLASSNONE stands for the machine's usual class; ELFCLASS32 with
	// EM_X86_64 is an x32 program. ByteOrder decides which of two registers
	// holds the high half of a value on arm; nil stands for little-endian. Type
	// is ET_EXEC, ET_DYN or ET_REL: an ET_EXEC runs at its addresses, and the
	// addresses of an ET_REL are not known yet.
	Header() elf.FileHeader
	// IsProgram reports whether the file is a program and not a library. A
	// symbol of a library can be replaced by that of another file.
	IsProgram() bool
	// Symbol returns the symbol that is defined under a name. Its Value is an
	// address in the file. For a thread-local variable (STT_TLS) it is the
	// offset in the memory of thread-local variables. Symbol fails if the name
	// is not defined, or is defined at several addresses.
	//
	// The symbol _GLOBAL_OFFSET_TABLE_, to which i386's @GOTOFF is relative,
	// has the value of DT_PLTGOT if the file has that.
	Symbol(name string) (elf.Symbol, error)
}

// open sets the file to decode for. Nothing is known of a nil one.
func (p *parser) open(f File) {
	if f != nil {
		p.file, p.header = f, f.Header()
	}
}

// Decode decodes the argument string of a probe's site and appends the
// arguments to args, which may be nil. The file is the one that has the probe:
// nil makes every argument Unavailable. The location is the virtual address, as
// in the file's symbols, of the instruction that the uprobe is set on: that of
// the site, unless the probe was moved to a later instruction.
//
// Decode never fails: an argument that cannot be decoded, or whose value cannot
// be fetched, is in the result with Kind Unavailable and an Err. A blank string
// has no arguments. [Strict] is for callers that want all or none. The result
// shares the memory of the string.
//
// Arguments decode the same at every site of their file, unless their Base is
// the instruction pointer: rip, eip or pc. So a table of specs can have the
// string as its key, and for those the string and the location.
//
// Several goroutines may call Decode at once for the same file.
func Decode(args []Arg, f File, location uint64, arguments string) []Arg {
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
	p.all = arguments
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
func Global(f File, location uint64, name string) Arg {
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

// The errors of arguments, for [errors.Is]. Those that are none of these cannot
// be fetched for another reason, which the text says: a size that no number
// has, a label that only the assembler knew, a machine that is not supported.
var (
	// ErrNeedsSymbol means that the argument names a symbol that the file does
	// not define, or that no file is known. A debug file may define it.
	ErrNeedsSymbol = errors.New("symbol is needed")
	// ErrNotSaved means that the value is in a register that the kernel does
	// not save for eBPF programs, such as a vector register.
	ErrNotSaved = errors.New("register is not saved")
	// ErrMalformed means that the argument does not have the syntax of the
	// machine, names a register that the machine does not have, or has a number
	// above 64 bits.
	ErrMalformed = errors.New("argument is malformed")
)

// A reason is why an argument is Unavailable. Each unavailableError has one.
type reason struct {
	text string
	kind error // one of the exported errors, or nil
}

func (r *reason) Error() string { return r.text }

var (
	errMachine = &reason{"machine not supported", nil}
	errSyntax  = &reason{"malformed operand", ErrMalformed}
	errNumber  = &reason{"number does not fit into 64 bits", ErrMalformed}
	errSize    = &reason{"size is not 1, 2, 4 or 8 bytes, or a float's 4 or 8", nil}
	// Such as the base of an address, or for a value of that size.
	errRegister = &reason{"register does not exist or cannot stand there", ErrMalformed}
	errNotSaved = &reason{"not in pt_regs", ErrNotSaved}
	// Compilers do not use this register together with another.
	errRegisterPair = &reason{"value in two registers of which only one is known", nil}
	// It is negated, or extended or scaled in a way that Arg cannot say.
	errIndex       = &reason{"index register is modified", nil}
	errThreadLocal = &reason{"thread-local storage", nil}
	// Which definition counts is known at run time.
	errReplaceable = &reason{"symbol of a library that another file may replace", nil}
	errNotLinked   = &reason{"not linked yet: an object file has no addresses", nil}
	// Half of an address computation whose other half is lost, as in x86's
	// @GOTPCREL or riscv's %pcrel_lo().
	errRelocation = &reason{"relocation that cannot be undone", nil}
	// The assembler has dropped it (.L5, .LANCHOR0, 1f): no symbol table has
	// its address.
	errLocalLabel          = &reason{"assembler-local label", nil}
	errNoSymbols           = &reason{"no file to find the symbol in", ErrNeedsSymbol}
	errSymbol              = &reason{"symbol lookup failed", ErrNeedsSymbol} // the cause says more
	errPositionIndependent = &reason{"absolute address in a position-independent file", nil}
	errUnclear             = &reason{"may be the value or its address", nil}
	errIndirect            = &reason{"indirect operand", nil} // a second read through a pointer
	errFunction            = &reason{"function, not a variable", nil}
	errTooMany             = &reason{"more than 256 arguments", nil} // maxListed
)

// unavailableError is why an argument's value cannot be fetched: "register cr0:
// not in pt_regs (8@%cr0)". The argument and the detail can hold any bytes that
// are in the file.
type unavailableError struct {
	raw    string // the argument as the string has it
	detail string // the register or symbol that the reason names, or ""
	reason *reason
	cause  error // why the symbol was not found, or nil
}

func (e *unavailableError) Error() string {
	switch {
	case e.cause != nil:
		return e.cause.Error() + " (" + e.raw + ")"
	case e.detail != "":
		return e.detail + ": " + e.reason.text + " (" + e.raw + ")"
	}
	return e.reason.text + " (" + e.raw + ")"
}

// Unwrap makes errors.Is find the reason and its kind, and the cause.
func (e *unavailableError) Unwrap() []error {
	return slices.DeleteFunc([]error{e.reason, e.reason.kind, e.cause},
		func(err error) bool { return err == nil })
}

// MarshalText makes the reason a text in JSON, where an error without it is {}.
func (e *unavailableError) MarshalText() ([]byte, error) { return []byte(e.Error()), nil }
