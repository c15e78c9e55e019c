// SPDX-License-Identifier: BSD-2-Clause

package argspec

import "strconv"

// Kind says where the value of an argument is.
type Kind uint8

const (
	// Unavailable: the value cannot be fetched; Arg.Err says why.
	Unavailable Kind = iota
	// Constant: the argument string holds the value itself: Arg.Constant.
	Constant
	// InRegister: the value is in the register Arg.Register. (The plain word
	// is taken: Register is the type of a register.)
	InRegister
	// Memory: the value is in the traced process's memory, at
	// Arg.Base + Arg.Index*Arg.Scale + Arg.Displacement.
	Memory
)

// String returns "unavailable", "constant", "register" or "memory".
func (k Kind) String() string {
	switch k {
	case Constant:
		return "constant"
	case InRegister:
		return "register"
	case Memory:
		return "memory"
	}
	return "unavailable"
}

// Extension says what is made of the low 32 bits of an index register.
type Extension uint8

const (
	// NoExtension: all bits of the register count.
	NoExtension Extension = iota
	// ZeroExtend32: the low 32 bits count, as an unsigned number (arm64's
	// uxtw).
	ZeroExtend32
	// SignExtend32: the low 32 bits count, as a signed number (arm64's sxtw).
	SignExtend32
)

// String returns "", "uxtw" or "sxtw".
func (e Extension) String() string {
	switch e {
	case ZeroExtend32:
		return "uxtw"
	case SignExtend32:
		return "sxtw"
	}
	return ""
}

// Arg is one argument of a probe site: how wide it is, how to extend it, and
// where its value is when the site is hit.
type Arg struct {
	// Raw is the piece of the argument string this was decoded from, without
	// the blanks around it.
	Raw string

	// Size is the width of the value in bytes. It is 1, 2, 4 or 8 in every
	// argument that is not Unavailable. In an Unavailable one it is what the
	// string says (16 for a struct of that size), or 0 where the string says
	// nothing or more than 65,535.
	Size int

	// Signed tells to sign-extend the value from Size, else it is
	// zero-extended. Never set together with Float.
	Signed bool

	// Float marks a floating point value whose raw IEEE 754 bits are at the
	// location: 4 or 8 bytes to be taken as they are.
	Float bool

	// Kind says which of the fields below hold.
	Kind Kind

	// Constant is the value itself, cut to Size and then extended to 64 bits
	// by Signed. Kind Constant only.
	Constant uint64

	// Register holds the value in its low Size bytes, after a shift to the
	// right by Register.Shift. The width its name denotes does not matter: the
	// size before the @ governs. Kind InRegister only.
	Register Register

	// Base and Index are added for the address of the value; a zero Register
	// is none and counts as 0. All bits of a register count, whatever the
	// width its name denotes, unless Address32 is set. Kind Memory only.
	Base, Index Register

	// Displacement is added to the registers, modulo 2^64. Where the operand
	// named a symbol, its address is in here already.
	Displacement int64

	// Scale is what Index is multiplied by: a power of two up to 128, and 1
	// where there is no Index.
	Scale uint8

	// IndexExtension is done to Index before it is scaled. NoExtension where
	// there is no Index.
	IndexExtension Extension

	// Address32 tells to cut the address to its low 32 bits: in 32-bit
	// programs, and where an x86-64 program addresses by 32-bit registers.
	Address32 bool

	// relative is behind Relative.
	relative bool

	// Err says why the argument is Unavailable, and ends with Raw in
	// parentheses; else it is nil. It wraps the error of Target.Symbol or
	// Target.PLTGOT where that is the cause.
	Err error
}

// Readable reports whether the argument has a value that can be fetched at the
// site, that is, whether its Kind is not Unavailable. A kernel of another
// machine than the file's may still not be able to: see CheckKernel.
func (a Arg) Readable() bool { return a.Kind != Unavailable }

// Relative reports whether Displacement was computed from Target.Location: the
// operand names a symbol relative to the instruction pointer. All other
// arguments decode the same at every site of their file, so that a caller with
// many sites needs to parse a string without Relative arguments only once.
func (a Arg) Relative() bool { return a.relative }

// String returns the argument for people: "4 signed @ [rbp-20]",
// "8 float @ [rsp+8]", "4 signed @ 17", "1 unsigned @ ah", or
// "unavailable: reason (raw)".
func (a Arg) String() string {
	if a.Kind == Unavailable {
		return a.Location()
	}
	return a.Type() + " @ " + a.Location()
}

// Type returns the size in bytes and how to take the value: "4 signed",
// "8 float", "1 unsigned".
func (a Arg) Type() string {
	size := strconv.Itoa(a.Size)
	switch {
	case a.Float:
		return size + " float"
	case a.Signed:
		return size + " signed"
	}
	return size + " unsigned"
}

// Location returns where the value is: a number ("17", "-1"), a register
// ("eax"), an address in brackets ("[rbp-20]", "[rax+rcx*8+16]",
// "[x2+sxtw(w9)*4]", "[0x404010]"), or "unavailable: reason (raw)".
func (a Arg) Location() string {
	switch a.Kind {
	case Constant:
		if a.Signed {
			return strconv.FormatInt(int64(a.Constant), 10)
		}
		return strconv.FormatUint(a.Constant, 10)
	case InRegister:
		return a.Register.Name
	case Memory:
		return string(a.appendAddress(make([]byte, 0, 48)))
	}
	text := "unavailable"
	if a.Err != nil {
		text += ": " + a.Err.Error()
	}
	return text
}

func (a Arg) appendAddress(b []byte) []byte {
	b = append(b, '[')
	if !a.Base.IsZero() {
		b = append(b, a.Base.Name...)
	}
	if !a.Index.IsZero() {
		if !a.Base.IsZero() {
			b = append(b, '+')
		}
		if a.IndexExtension == NoExtension {
			b = append(b, a.Index.Name...)
		} else {
			b = append(b, a.IndexExtension.String()...)
			b = append(b, '(')
			b = append(b, a.Index.Name...)
			b = append(b, ')')
		}
		if a.Scale != 1 {
			b = append(b, '*')
			b = strconv.AppendUint(b, uint64(a.Scale), 10)
		}
	}
	switch {
	case a.Base.IsZero() && a.Index.IsZero():
		address := uint64(a.Displacement)
		if a.Address32 {
			address = uint64(uint32(address))
		}
		b = append(b, "0x"...)
		b = strconv.AppendUint(b, address, 16)
	case a.Displacement > 0:
		b = append(b, '+')
		b = strconv.AppendInt(b, a.Displacement, 10)
	case a.Displacement < 0:
		b = strconv.AppendInt(b, a.Displacement, 10)
	}
	return append(b, ']')
}
