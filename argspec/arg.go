// SPDX-License-Identifier: BSD-2-Clause

package argspec

import (
	"debug/elf"
	"strconv"
)

// Kind says where the value of an argument is, and which fields of [Arg] are
// set.
type Kind uint8

const (
	// Unavailable: the value cannot be fetched. Arg.Err says why.
	Unavailable Kind = iota
	// Constant: the argument string holds the value itself: Arg.Constant.
	Constant
	// InRegister: the value is in the register Arg.Register, or in the two
	// registers Arg.High and Arg.Register.
	InRegister
	// Memory: the value is in the traced process's memory, at the address
	// Arg.Base + Arg.Index*Arg.Scale + Arg.Displacement.
	Memory
	// Address: the value is that address itself. Nothing is read from memory.
	// It is the address of a symbol in a position-independent file, counted
	// from the instruction pointer.
	Address
	// Bytes: the argument is Arg.Size bytes of memory that are not a number of
	// 1, 2, 4 or 8 bytes, such as a structure passed by value. The address is
	// that of Memory. There is no single value to fetch: Arg.Err says so.
	Bytes
)

// String returns "unavailable", "constant", "register", "memory", "address" or
// "bytes".
func (k Kind) String() string {
	names := [...]string{"unavailable", "constant", "register", "memory", "address", "bytes"}
	if int(k) >= len(names) {
		k = Unavailable
	}
	return names[k]
}

// Arg is one argument of a probe site: its size, its sign, and where its value
// is when the site is hit.
type Arg struct {
	// Raw is the part of the argument string that describes this argument,
	// without the blanks around it.
	Raw string

	// Size is the size of the value in bytes: 1, 2, 4 or 8. For kinds Bytes and
	// Unavailable it is the size in the string, such as 12 for a structure of
	// 12 bytes, and 0 if the string has no size or one above 65,535.
	Size int

	// Signed reports whether the value is sign-extended from Size to 64 bits.
	// Otherwise it is zero-extended. Signed and Float are never both set.
	Signed bool

	// Float reports whether the value is a floating point number: the 4 or 8
	// bytes of IEEE 754's binary32 or binary64.
	Float bool

	// Kind says which of the fields below are set.
	Kind Kind

	// Constant is the value itself, cut to Size and then extended to 64 bits
	// by Signed. Kind Constant only.
	Constant uint64

	// Register holds the value in its low Size bytes, after a shift to the
	// right by Register.Shift. Size governs, not the size that the register's
	// name denotes. Kind InRegister only.
	Register Register

	// High holds the high 4 bytes of a value of 8 bytes in a 32-bit program,
	// and Register the low 4. It is the zero Register for all other values.
	// Kind InRegister only.
	High Register

	// Base and Index are added to get the address. A zero Register counts as
	// 0. All bits of a register count, whatever the size that its name
	// denotes, unless Address32 is set. Kinds Memory, Address and Bytes
	// only, as are all fields up to Address32.
	Base, Index Register

	// Displacement is added to the registers, modulo 2^64. It includes the
	// address of the operand's symbol, if any.
	Displacement int64

	// Scale is what Index is multiplied by: a power of two up to 128, and 1
	// without an Index.
	Scale uint8

	// IndexSize is the number of low bytes of Index that count, before it is
	// scaled: 4 as an unsigned number (uxtw of arm64), -4 as a signed one
	// (sxtw), 0 for all.
	IndexSize int8

	// Address32 reports whether the address is cut to its low 32 bits. It is in
	// 32-bit programs, and where an x86-64 program uses 32-bit registers in an
	// address.
	Address32 bool

	// Err says why there is no value to fetch, for kinds Unavailable and Bytes.
	// Its text ends with Raw in parentheses. It wraps the error of finding the
	// symbol where that is the cause. In JSON it is its text.
	Err error
}

// String describes the argument: "i32 @ [rbp-20]", "f64 @ [rsp+8]",
// "u64 @ [x2+sxtw(w9)*4]", "i32 @ 17", "u8 @ ah", "i64
// @ edx:eax", "12 bytes @ [rbp-60]", "u64 @ rip+11994" for an address
// that is the value, or "unavailable: reason (raw)".
func (a Arg) String() string {
	if a.Kind == Unavailable {
		return a.place()
	}
	return a.format() + " @ " + a.place()
}

// format returns how to interpret the value: "i32", "u8", "f64", "12 bytes".
func (a Arg) format() string {
	kind := "u"
	switch {
	case a.Kind == Bytes:
		return strconv.Itoa(a.Size) + " bytes"
	case a.Float:
		kind = "f"
	case a.Signed:
		kind = "i"
	}
	return kind + strconv.Itoa(8*a.Size)
}

// place returns where the value is, as String has it after the @.
func (a Arg) place() string {
	switch a.Kind {
	case Constant:
		if a.Signed {
			return strconv.FormatInt(int64(a.Constant), 10)
		}
		return strconv.FormatUint(a.Constant, 10)
	case InRegister:
		if !a.High.isZero() {
			return a.High.Name + ":" + a.Register.Name
		}
		return a.Register.Name
	case Memory, Bytes:
		b := a.appendAddress(append(make([]byte, 0, 48), '['))
		return string(append(b, ']'))
	case Address:
		return string(a.appendAddress(make([]byte, 0, 48)))
	}
	text := "unavailable"
	if a.Err != nil {
		text += ": " + a.Err.Error()
	}
	return text
}

func (a Arg) appendAddress(b []byte) []byte {
	if !a.Base.isZero() {
		b = append(b, a.Base.Name...)
	}
	if !a.Index.isZero() {
		if !a.Base.isZero() {
			b = append(b, '+')
		}
		name := a.Index.Name
		switch a.IndexSize {
		case 4:
			name = "uxtw(" + name + ")"
		case -4:
			name = "sxtw(" + name + ")"
		}
		b = append(b, name...)
		if a.Scale != 1 {
			b = strconv.AppendUint(append(b, '*'), uint64(a.Scale), 10)
		}
	}
	switch {
	case a.Base.isZero() && a.Index.isZero():
		address := uint64(a.Displacement)
		if a.Address32 {
			address = uint64(uint32(address))
		}
		b = strconv.AppendUint(append(b, "0x"...), address, 16)
	case a.Displacement > 0:
		b = strconv.AppendInt(append(b, '+'), a.Displacement, 10)
	case a.Displacement < 0:
		b = strconv.AppendInt(b, a.Displacement, 10)
	}
	return b
}

// Register is a register of the traced program that the kernel saves in struct
// pt_regs. Registers can be compared by ==. The zero Register, which has no
// name, stands for no register.
type Register struct {
	// Name is the register's name in the string, without sigils and in lower
	// case: "eax", "r14", "x3". A bare number gets the machine's letter: "r9"
	// for 9 on ppc64.
	Name string
	// Shift is how many bits to shift the saved register to the right before
	// its low bytes are the value: 8 for ah, bh, ch and dh, else 0.
	Shift uint8

	// size is the size in bytes that the name denotes: 4 for eax, 1 for ah.
	size uint8
	// slot is the index in struct pt_regs of the machine's 64-bit kernel (for
	// arm, of the 32-bit one).
	slot    uint8
	machine elf.Machine
}

func (r Register) isZero() bool { return r.machine == elf.EM_NONE }

// Slot returns where a kernel of the given machine saves the register in the
// struct pt_regs that is the context of a uprobe's BPF program: the index of an
// 8-byte word, or of a 4-byte word if the kernel is 32-bit ARM (elf.EM_ARM).
// The machine of the kernel may be another one than that of the program: x86-64
// kernels run i386 programs and arm64 kernels run arm programs. ok is false if
// the kernel does not run such programs, and for the zero Register.
func (r Register) Slot(kernel elf.Machine) (slot int, ok bool) {
	switch {
	case r.machine == elf.EM_NONE:
		return 0, false
	case r.machine == elf.EM_386:
		// The tables hold x86-64's slots. A 32-bit x86 kernel is not served.
		return int(r.slot), kernel == elf.EM_X86_64
	case r.machine == kernel:
		return int(r.slot), true
	case r.machine == elf.EM_ARM && kernel == elf.EM_AARCH64:
		// The kernel's arch/arm64/include/asm/ptrace.h: a 32-bit program's
		// r0-r14 are the first words (compat_sp is regs[13], compat_lr
		// regs[14]); its pc is the pc.
		if r.slot == armPC {
			return arm64PC, true
		}
		return int(r.slot), true
	}
	return 0, false
}
