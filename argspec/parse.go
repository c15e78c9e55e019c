// SPDX-License-Identifier: BSD-2-Clause

package argspec

// maxListed is how many arguments of one string are told apart. Real probes
// have up to 12, hand-written ones somewhat more; an Arg is many times larger
// than the two bytes that can make one, so a hostile string needs a limit. What
// follows after it is one Unavailable argument more.
const maxListed = 256

// maxSize is the largest size before an @ that is kept: enough for any
// structure passed by value, and no arithmetic on it can overflow.
const maxSize = 1<<16 - 1

// parser decodes one operand after the other.
type parser struct {
	scanner
	target   target
	machine  machine
	location uint64
	arg      *Arg
	// depth counts parentheses and unary operators around the scanner.
	depth int
	// immediates reports whether the operand calculates with several
	// immediates, see isCalculation.
	immediates bool
	// threadLocal reports whether symbols are thread-local variables.
	threadLocal bool
}

// argument decodes a.Raw into the other fields.
func (p *parser) argument(a *Arg) {
	prefix, length := parseSize(a.Raw)
	a.Size, a.Signed, a.Float = prefix.size, prefix.signed, prefix.float
	p.scanner = scanner{text: a.Raw[length:]}
	p.arg = a
	p.depth, p.immediates, p.threadLocal = 0, false, false
	err := p.operand(length > 0)
	if err == nil {
		return
	}
	if a.Kind != Bytes {
		*a = Arg{Raw: a.Raw, Size: a.Size, Signed: a.Signed, Float: a.Float}
	}
	a.Err = err
	err.(*unavailableError).raw = a.Raw
}

func (p *parser) operand(sized bool) error {
	if err := p.parseSyntax(); err != nil {
		return err
	}
	a := p.arg
	p.skipBlanks()
	if !p.done() || a.Kind == Unavailable {
		return p.malformed()
	}
	if !sized {
		a.Size = p.machine.word
		if a.Kind == InRegister {
			a.Size = int(a.Register.size)
		}
	}
	if a.Size != 1 && a.Size != 2 && a.Size != 4 && a.Size != 8 {
		if a.Kind == Memory && a.Size > 0 {
			a.Kind = Bytes
		}
		return unavailable(errSize, "")
	}
	switch a.Kind {
	case Constant:
		a.Constant = extend(a.Constant, a.Size, a.Signed)
	case InRegister:
		if a.Size > p.machine.register {
			if a.High = p.high(a.Register); a.High.IsZero() {
				return unavailable(errRegisterPair, a.Register.Name)
			}
			if p.target.bigEndian {
				a.Register, a.High = a.High, a.Register
			}
		}
		if a.Register.Shift != 0 && a.Size > int(a.Register.size) {
			// The second byte of a register is the end of its names: no wider
			// one begins there.
			return unavailable(errRegister, a.Register.Name)
		}
	}
	return nil
}

// extend cuts a value to size bytes and extends it to 64 bits again.
func extend(value uint64, size int, signed bool) uint64 {
	shift := 64 - 8*size
	if signed {
		return uint64(int64(value<<shift) >> shift)
	}
	return value << shift >> shift
}

// constant makes the argument a constant.
func (p *parser) constant(value uint64) {
	p.arg.Kind = Constant
	p.arg.Constant = value
}

// register makes the argument the value of a register. The zero Register stands
// for the ones that always read as 0.
func (p *parser) register(r Register) {
	if r.IsZero() {
		p.constant(0)
		return
	}
	p.arg.Kind = InRegister
	p.arg.Register = r
}

// memory makes the argument a value in memory. A zero base or index is none,
// and so is scale where there is no index.
func (p *parser) memory(base, index Register, scale uint8, displacement uint64) {
	a := p.arg
	a.Kind = Memory
	if index.IsZero() {
		scale, a.IndexExtension = 1, NoExtension
	} else if base.IsZero() && scale == 1 {
		base, index = index, base
	}
	a.Base, a.Index, a.Scale = base, index, scale
	a.Displacement = int64(displacement)
	a.Address32 = p.machine.address32 || base.size == 4 ||
		index.size == 4 && a.IndexExtension == NoExtension
	if a.Address32 {
		// The low half is all that counts: -4 and 0xfffffffc are one.
		a.Displacement = int64(int32(displacement))
	}
}

// malformed is the error of an operand whose syntax is not the machine's.
func (p *parser) malformed() error {
	if p.text == "" {
		return unavailable(errSyntax, "nothing after the size")
	}
	if p.done() {
		return unavailable(errSyntax, "unexpected end")
	}
	return unavailable(errSyntax, "unexpected "+quote(p.rest()))
}

// unavailable makes an error that lacks only the argument's text.
func unavailable(reason error, detail string) error {
	return &unavailableError{reason: reason, detail: detail}
}

// quote returns the start of a text for an error message.
func quote(text string) string {
	const enough = 24
	if len(text) > enough {
		text = text[:enough] + "..."
	}
	return `"` + text + `"`
}
