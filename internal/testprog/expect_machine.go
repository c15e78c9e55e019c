// SPDX-License-Identifier: BSD-2-Clause

package testprog

import (
	"debug/elf"
	"fmt"
)

// registerValue is what register number i holds in machine_*_registers.S.
func registerValue(i int) uint64 { return 0xf1e2d3c4b5a69700 + uint64(i)*0x0101 }

// registers mirrors the machine_*_registers.S: all registers, in probes of
// twelve arguments each, by each width that the machine can name.
func (t *table) registers() {
	// How many registers have a name of 8, 4, 2 and 1 bytes.
	counts, ok := map[elf.Machine][4]int{
		elf.EM_X86_64:  {15, 15, 15, 15},
		elf.EM_386:     {0, 7, 7, 4},
		elf.EM_S390:    {15, 15, 15, 15},
		elf.EM_AARCH64: {31, 31, 31, 31},
		elf.EM_RISCV:   {30, 30, 30, 30},
	}[t.machine]
	if !ok {
		return
	}
	width := []struct {
		name string
		arg  func(v uint64) Arg
	}{
		{"64", func(v uint64) Arg { return unsigned(v) }},
		{"32", func(v uint64) Arg { return signed(int32(v)) }},
		{"16", func(v uint64) Arg { return signed(int16(v)) }},
		{"8", func(v uint64) Arg { return unsigned(uint8(v)) }},
	}
	for w, count := range counts {
		for first := 0; first < count; first += 12 {
			var args []Arg
			for i := first; i < min(first+12, count); i++ {
				args = append(args, width[w].arg(registerValue(i)))
			}
			t.add(Probe{
				Name:  fmt.Sprintf("registers_%s%c", width[w].name, 'a'+first/12),
				Group: "registers", Hits: [][]Arg{args},
			})
		}
	}
	if t.machine == elf.EM_X86_64 || t.machine == elf.EM_386 {
		second := func(i int) uint8 { return uint8(registerValue(i) >> 8) }
		t.add(Probe{Name: "registers_high", Group: "registers", Hits: [][]Arg{{
			unsigned(second(0)), signed(int8(second(1))),
			unsigned(second(2)), signed(int8(second(3))),
		}}})
	}
}

// machineOnly mirrors testdata/machine.c and machine_amd64_nop.S.
func (t *table) machineOnly() {
	number := func(v int32) Arg { return signed(v) }

	switch t.machine {
	case elf.EM_X86_64:
		// Patterns in the red zone stand above the number that is read there.
		pattern := uint32(0xa5a5a5a5)
		for _, name := range []string{"nop", "nop10", "nop5"} {
			t.one(name, signed(s32), number(-22), signed(int32(pattern)))
		}
		t.one("relative",
			number(11), number(-22), number(33), number(-22),
			Arg{Kind: Location, Size: 8},
			Arg{Kind: Unavailable, Size: 4}, Arg{Kind: Unavailable, Size: 4},
			Arg{Kind: Unavailable, Size: 4, Float: true}, Arg{Kind: Location, Size: 8},
			number(-44))
		t.one("index",
			number(300), number(-400), number(-200),
			signed(s64), signed(s8), signed(int8(4)),
			number(100), signed(int16(-200)), number(-200), number(100))
	case elf.EM_386:
		t.one("index", number(300), number(-400), number(-200), number(-200), number(100))
		t.add(Probe{Name: "pairs", Hits: [][]Arg{
			{signed(s64), unsigned(u64), number(17)},
			{signed(s64), unsigned(u64), number(18)},
		}})
	case elf.EM_S390:
		t.one("index", number(300), number(-400), number(-200), number(-200))
	case elf.EM_AARCH64:
		t.one("index",
			number(300), number(300), number(-400), number(-200),
			Arg{Kind: Unavailable, Size: 4, Signed: true}, number(100),
			number(300), number(-200))
	}
}
