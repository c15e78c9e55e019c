// SPDX-License-Identifier: BSD-2-Clause

package argspec

import (
	"debug/elf"
	"strings"
)

// File is the ELF file that has the probes. An *elfnote.File is one.
//
// NewDecoder calls Header; the other methods are called when an argument names
// a symbol.
type File interface {
	// Header returns the ELF header, of which four fields count. Machine
	// decides the syntax of the arguments. Class is ELFCLASS32 or ELFCLASS64,
	// and ELFCLASSNONE stands for the machine's usual class; ELFCLASS32 with
	// EM_X86_64 is an x32 program. ByteOrder decides which of two registers
	// holds the high half of a value on arm; nil stands for little-endian. Type
	// is ET_EXEC, ET_DYN or ET_REL: the addresses of an ET_EXEC are those at
	// which it runs, and those of an ET_REL are not known yet.
	Header() elf.FileHeader
	// IsProgram reports whether the file is a program and not a library: the
	// symbols of a library can be replaced by those of another file.
	IsProgram() bool
	// Symbol returns the symbol that is defined under a name. Its Value is an
	// address in the file; that of a thread-local variable (STT_TLS) the offset
	// in the memory of thread-local variables. It fails if there is no symbol
	// of that name, or more than one.
	Symbol(name string) (elf.Symbol, error)
	// PLTGOT returns the value of DT_PLTGOT, which i386's @GOTOFF counts from.
	PLTGOT() (uint64, error)
}

// Decoder decodes the argument strings of one file. Several goroutines may use
// it at once if they may use the file.
type Decoder struct {
	target target
}

// target is what the parser has to know of the file.
type target struct {
	file      File // nil: of which only the machine is known
	machine   elf.Machine
	class     elf.Class
	kind      elf.Type
	bigEndian bool
}

// bigEndianOne is 1 where the most significant byte comes first.
var bigEndianOne = [2]byte{0, 1}

// NewDecoder returns a Decoder for the argument strings of a file.
func NewDecoder(file File) *Decoder {
	header := file.Header()
	return &Decoder{target{
		file: file, machine: header.Machine, class: header.Class, kind: header.Type,
		bigEndian: header.ByteOrder != nil && header.ByteOrder.Uint16(bigEndianOne[:]) == 1,
	}}
}

// Decode decodes the argument string of a probe's site. The location is the
// virtual address, as in the file's symbols, of the instruction that the uprobe
// is set on: that of the site, unless the probe was moved to a later
// instruction.
//
// Decode never fails: an argument that cannot be decoded, or whose value cannot
// be fetched, is in the result with Kind Unavailable and an Err. A string that
// is empty or blank has no arguments. The result shares the memory of the
// string.
func (d *Decoder) Decode(location uint64, arguments string) []Arg {
	if arguments == "" {
		return nil
	}
	// Nearly every argument has one @. What is without one is appended.
	const usual = 12
	expected := min(strings.Count(arguments, "@"), usual)
	return d.AppendDecode(make([]Arg, 0, expected), location, arguments)
}

// AppendDecode is [Decoder.Decode] for callers with many strings: it appends to
// args, whose memory can be reused.
func (d *Decoder) AppendDecode(args []Arg, location uint64, arguments string) []Arg {
	p := parser{target: d.target, machine: machineOf(&d.target), location: location}
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
// [Decoder.Decode] does: arguments that name symbols are Unavailable.
func Parse(machine elf.Machine, arguments string) []Arg {
	d := Decoder{target{machine: machine}}
	return d.Decode(0, arguments)
}
