// SPDX-License-Identifier: BSD-2-Clause

package testprog

import (
	"encoding/binary"
	"regexp"
	"strconv"
	"strings"
)

var (
	x86Argument = regexp.MustCompile(`^-?([1248])f?@([^ \t]+)$`)
	x86Constant = regexp.MustCompile(`^\$(-?(?:0x[0-9a-f]{1,16}|[0-9]{1,20}))$`)
	x86Memory   = regexp.MustCompile(`^(-?[0-9]{1,9})?\((%r[a-z0-9]+)?(?:,(%r[a-z0-9]+)(?:,([1248]))?)?\)$`)
)

// ReadX86 reads an argument of x86-64 by its text alone, in the forms that
// compilers write, for tests that compare it with what programs read. The value
// is not extended from its size. known is false for other forms.
//
// The registers are those of struct pt_regs. memory reads all bytes at an
// address, or reports that it cannot.
func ReadX86(
	text string, registers []byte, memory func(to []byte, address uint64) bool,
) (size int, value uint64, readable, known bool) {
	parts := x86Argument.FindStringSubmatch(text)
	if parts == nil {
		return 0, 0, false, false
	}
	size = int(parts[1][0] - '0')
	if strings.Contains(parts[0], "f@") && size < 4 {
		return 0, 0, false, false // there are no such numbers
	}
	operand := parts[2]
	low := func(v uint64) uint64 { return v << (64 - 8*size) >> (64 - 8*size) }
	if c := x86Constant.FindStringSubmatch(operand); c != nil {
		if v, err := strconv.ParseInt(c[1], 0, 64); err == nil && !hasOctal(c[1]) {
			return size, low(uint64(v)), true, true
		}
		v, err := strconv.ParseUint(c[1], 0, 64)
		return size, low(v), true, err == nil && !hasOctal(c[1])
	}
	if at, width, ok := x86Place(operand); ok {
		if width < size {
			return 0, 0, false, false
		}
		var b [8]byte
		copy(b[:size], registers[at:])
		return size, binary.LittleEndian.Uint64(b[:]), true, true
	}
	m := x86Memory.FindStringSubmatch(operand)
	if m == nil || m[2] == "" && m[3] == "" || hasOctal(m[1]) {
		return 0, 0, false, false
	}
	displacement, _ := strconv.ParseInt("0"+strings.TrimPrefix(m[1], "-"), 10, 64)
	if strings.HasPrefix(m[1], "-") {
		displacement = -displacement
	}
	address := uint64(displacement)
	for i, name := range []string{m[2], m[3]} {
		if name == "" {
			continue
		}
		at, width, ok := x86Place(name)
		if !ok || width != 8 || i == 1 && name == "%rsp" {
			return 0, 0, false, false
		}
		register := binary.LittleEndian.Uint64(registers[at:])
		if i == 1 && m[4] != "" {
			scale, _ := strconv.ParseUint(m[4], 10, 64)
			register *= scale
		}
		address += register
	}
	var b [8]byte
	readable = memory(b[:size], address)
	return size, binary.LittleEndian.Uint64(b[:]), readable, true
}

// hasOctal reports whether a number begins as one of base 8, of which tools
// differ in what it is.
func hasOctal(number string) bool {
	number = strings.TrimPrefix(number, "-")
	return len(number) > 1 && number[0] == '0' && number[1] != 'x'
}

// x86Place returns where the kernel saves a register, and how many bytes it
// has.
func x86Place(name string) (at, width int, ok bool) {
	name, ok = strings.CutPrefix(name, "%")
	if !ok {
		return 0, 0, false
	}
	words := strings.Fields("r15 r14 r13 r12 bp bx r11 r10 r9 r8 ax cx dx si di")
	for n, word := range words {
		at := 8 * n
		if strings.HasPrefix(word, "r") {
			switch name {
			case word:
				return at, 8, true
			case word + "d":
				return at, 4, true
			case word + "w":
				return at, 2, true
			case word + "b":
				return at, 1, true
			}
			continue
		}
		byteName := word + "l"
		if strings.HasSuffix(word, "x") {
			byteName = word[:1] + "l"
			if name == word[:1]+"h" {
				return at + 1, 1, true
			}
		}
		switch name {
		case "r" + word:
			return at, 8, true
		case "e" + word:
			return at, 4, true
		case word:
			return at, 2, true
		case byteName:
			return at, 1, true
		}
	}
	const sp = 19
	if name == "rsp" {
		return 8 * sp, 8, true
	}
	return 0, 0, false
}
