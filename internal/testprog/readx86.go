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
	// No number begins as one of base 8: tools differ in what that is.
	x86Constant = regexp.MustCompile(`^\$(-?(?:0x[0-9a-f]{1,16}|0|[1-9][0-9]{0,19}))$`)
	x86Memory   = regexp.MustCompile(
		`^(-?(?:0|[1-9][0-9]{0,8}))?\((%r[a-z0-9]+)?(?:,(%r[a-z0-9]+)(?:,([1248]))?)?\)$`)
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
		if v, err := strconv.ParseInt(c[1], 0, 64); err == nil {
			return size, low(uint64(v)), true, true
		}
		v, err := strconv.ParseUint(c[1], 0, 64)
		return size, low(v), true, err == nil
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
	if m == nil || m[2] == "" && m[3] == "" {
		return 0, 0, false, false
	}
	displacement, _ := strconv.ParseInt(m[1], 10, 64) // 0 without one
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

// x86Places has where the kernel saves each register, and how many bytes a name
// of it stands for.
var x86Places = func() map[string][2]int {
	places := map[string][2]int{"rsp": {8 * 19, 8}}
	for n, word := range strings.Fields("r15 r14 r13 r12 bp bx r11 r10 r9 r8 ax cx dx si di") {
		names := []string{"r" + word, "e" + word, word, word + "l"}
		switch {
		case word[0] == 'r':
			names = []string{word, word + "d", word + "w", word + "b"}
		case word[1] == 'x':
			names[3] = word[:1] + "l"
			places[word[:1]+"h"] = [2]int{8*n + 1, 1}
		}
		for i, name := range names {
			places[name] = [2]int{8 * n, 8 >> i}
		}
	}
	return places
}()

// x86Place returns that of a register.
func x86Place(name string) (at, width int, ok bool) {
	name, isRegister := strings.CutPrefix(name, "%")
	place, ok := x86Places[name]
	return place[0], place[1], ok && isRegister
}
