// SPDX-License-Identifier: BSD-2-Clause

package testprog

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Kind says what a tracer has to find in the place of an argument.
type Kind uint8

const (
	// Value: the number in [Arg.Value].
	Value Kind = iota
	// Text: a pointer to the text in [Arg.Text].
	Text
	// Location: the address of the site itself, in the traced process.
	Location
	// Fault: memory that is not mapped; reading it fails, the other arguments
	// are fine.
	Fault
	// Unavailable: nothing that could be fetched; the other arguments are fine.
	Unavailable
)

// Arg is one argument as a tracer has to report it.
type Arg struct {
	Kind   Kind
	Size   int  // bytes; for an Unavailable argument as the file gives it
	Signed bool // a negative size in the file
	Float  bool // an f after the size: Value is the number's bits
	// Value is sign-extended to 64 bits where Signed, else zero-extended.
	Value uint64
	Text  string
}

// Probe is what one probe of the traced programs passes.
type Probe struct {
	Provider, Name string
	// Group is the name that [Process.Fire] takes. Most probes are a group of
	// their own; firing a group fires all of its probes.
	Group string
	// Sites is the number of places in the code.
	Sites int
	// Semaphore says that every site has a semaphore, each its own.
	Semaphore bool
	// Hits are the arguments of each hit, in the order in which firing the
	// group once makes them.
	Hits [][]Arg
}

// The values of internal/testdata/values.h.
const (
	s8  int8   = -100
	u8  uint8  = 200
	s16 int16  = -30000
	u16 uint16 = 60000
	s32 int32  = -2000000000
	u32 uint32 = 4000000000
	s64 int64  = -9000000000000000001
	u64 uint64 = 18000000000000000001
	f32        = 1.5
	f64        = -2.25

	text = "hello, gousdt"
)

// table collects the probes of one machine.
type table struct {
	machine elf.Machine
	word    int // bytes of a register
	probes  []Probe
}

// Expected returns all probes that may be fired in the programs built for a
// machine, with what they pass.
//
// Not in it are two probes:
//   - gousdt_broken:no_nop, whose location is not a nop. Nobody may attach to
//     it.
//   - gousdt_test:cold, with one argument, a pointer to "\x7fELF" (and bytes up
//     to the next 0) in a page that is not in memory when the probe is passed:
//     only a sleepable program can read it.
func Expected(machine elf.Machine) []Probe {
	t := &table{machine: machine, word: 8}
	if machine == elf.EM_386 || machine == elf.EM_ARM {
		t.word = 4
	}
	t.header()
	t.places()
	t.sites()
	t.semaphores()
	t.registers()
	t.machineOnly()
	return t.probes
}

// ExpectedProbe returns the probe of that name. It panics if the programs of
// the machine have none: that is a mistake in the test.
func ExpectedProbe(machine elf.Machine, name string) Probe {
	for _, p := range Expected(machine) {
		if p.Name == name {
			return p
		}
	}
	panic(fmt.Sprintf("testprog: no probe %q for %v", name, machine))
}

func (t *table) add(p Probe) {
	if p.Provider == "" {
		p.Provider = "gousdt_test"
	}
	if p.Group == "" {
		p.Group = p.Name
	}
	if p.Sites == 0 {
		p.Sites = len(p.Hits)
	}
	t.probes = append(t.probes, p)
}

// one adds a probe with one site that is hit once.
func (t *table) one(name string, args ...Arg) {
	t.add(Probe{Name: name, Hits: [][]Arg{args}})
}

func signed[T int8 | int16 | int32 | int64](v T) Arg {
	return Arg{Size: binary.Size(v), Signed: true, Value: uint64(int64(v))}
}

func unsigned[T uint8 | uint16 | uint32 | uint64](v T) Arg {
	return Arg{Size: binary.Size(v), Value: uint64(v)}
}

func float32Arg(v float32) Arg {
	return Arg{Size: 4, Float: true, Value: uint64(math.Float32bits(v))}
}

func float64Arg(v float64) Arg {
	return Arg{Size: 8, Float: true, Value: math.Float64bits(v)}
}

// signedWord is a C long; a 32-bit machine keeps the low half.
func (t *table) signedWord(v int64) Arg {
	if t.word == 4 {
		return signed(int32(v))
	}
	return signed(v)
}

func (t *table) unsignedWord(v uint64) Arg {
	if t.word == 4 {
		return unsigned(uint32(v))
	}
	return unsigned(v)
}

func (t *table) text(s string) Arg {
	return Arg{Kind: Text, Size: t.word, Text: s}
}

// eightSizes are one of each size and sign, with 64 bits on every machine.
func eightSizes() []Arg {
	return []Arg{
		signed(s8), unsigned(u8), signed(s16), unsigned(u16),
		signed(s32), unsigned(u32), signed(s64), unsigned(u64),
	}
}

// header mirrors internal/testdata/header.c.
func (t *table) header() {
	sizes := append(eightSizes()[:6], t.signedWord(s64), t.unsignedWord(u64))

	t.one("none")
	t.one("three", signed(s32), t.text(text), t.unsignedWord(u64))
	t.one("twelve", append(append([]Arg{}, sizes...),
		signed(int32(17)), t.text(text), unsigned(uint8(255)), signed(int16(-2)))...)
	t.one("sizes", sizes...)
	t.one("constants", eightSizes()...)
	t.one("memory", eightSizes()...)
	t.one("floats", float32Arg(f32), float64Arg(f64), float32Arg(0.5), float64Arg(9e299))
	t.one("strings", t.text(text), t.text(strings.Repeat("0123456789", 40)), t.text(""))
	t.one("globals", signed(s32), unsigned(u8), signed(s16), t.signedWord(s64))
	t.one("element", signed(s16), signed(int16(1234)))
	t.one("table_element", signed(s32))
}

// places mirrors internal/testdata/places.c.
func (t *table) places() {
	pattern := uint64(0xfedcba9896e5d4c3)
	narrow := []Arg{
		signed(int8(pattern)), unsigned(uint8(pattern)),
		signed(int16(pattern)), unsigned(uint16(pattern)),
		signed(int32(pattern)), unsigned(uint32(pattern)),
		signed(int64(pattern)), unsigned(pattern),
	}
	if t.word == 4 {
		narrow = narrow[:6]
	}
	seventeen := signed(int32(17))
	float := func(size int) Arg { return Arg{Kind: Unavailable, Size: size, Float: true} }

	t.one("narrow", narrow...)
	t.one("stack", append(eightSizes(), float32Arg(f32), float64Arg(f64))...)
	t.one("wrapping",
		unsigned(uint64(math.MaxUint64)), signed(int64(-1)),
		unsigned(uint64(1<<63)), signed(int64(math.MinInt64)),
		unsigned(uint32(math.MaxUint32)), signed(int32(-1)),
		signed(int8(-1)), unsigned(uint8(255)), signed(int16(-1)))
	t.one("sizeless", t.unsignedWord(u64), t.unsignedWord(5), t.unsignedWord(u64))
	t.one("structure", signed(s32),
		Arg{Kind: Unavailable, Size: 16}, Arg{Kind: Unavailable, Size: 24}, seventeen)
	t.one("vector", signed(s32), float(8), float(4), seventeen)

	var fourteen []Arg
	for i := range int32(14) {
		fourteen = append(fourteen, signed(101+i))
	}
	t.one("fourteen", fourteen...)

	t.add(Probe{Name: "page_end", Hits: [][]Arg{{unsigned(u32)}, {signed(s16)}, {unsigned(u8)}}})
	t.one("fault", signed(s32), Arg{Kind: Fault, Size: 8}, unsigned(uint32(17)))
	address := []Arg{t.text(text), {Kind: Location, Size: t.word}, seventeen}
	if t.machine == elf.EM_S390 {
		// The symbol of a variable alone may also be the memory there.
		address[0] = Arg{Kind: Unavailable, Size: t.word}
	}
	t.one("address", address...)
	t.add(Probe{Provider: "gousdt_zero_base", Name: "zero_base", Hits: [][]Arg{{seventeen}}})
	t.one("duplicate", seventeen)
	for i, name := range []string{"with::colons", `a "quoted" name`, "\x1b[31mred"} {
		t.add(Probe{Provider: "gousdt::names", Name: name, Group: "names",
			Hits: [][]Arg{{signed(int32(i + 1))}}})
	}
}

// sites mirrors internal/testdata/sites.c.
func (t *table) sites() {
	var inlined, specs [][]Arg
	for i := range 5 {
		inlined = append(inlined, []Arg{signed(int32(1 + i)), t.signedWord(int64(-101 - i))})
	}
	for i := range 300 {
		specs = append(specs, []Arg{signed(int32(i))})
	}
	t.add(Probe{Name: "inlined", Hits: inlined})
	t.add(Probe{Name: "many", Hits: slices.Repeat([][]Arg{{signed(int32(42))}}, 400)})
	t.add(Probe{Name: "specs", Hits: specs})
}

// semaphores mirrors internal/testdata/semaphores.c.
func (t *table) semaphores() {
	add := func(name string, hits ...[]Arg) {
		t.add(Probe{Name: name, Semaphore: true, Hits: hits})
	}
	add("counted", []Arg{signed(s32), t.unsignedWord(u64)})
	add("guarded", []Arg{signed(s32)})
	add("split", []Arg{signed(s32)}, []Arg{unsigned(u32)})
}

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
	for w, count := range counts {
		var all []Arg
		for i := range count {
			v := registerValue(i)
			all = append(all, [...]Arg{unsigned(v), signed(int32(v)), signed(int16(v)),
				unsigned(uint8(v))}[w])
		}
		letter := 'a'
		for args := range slices.Chunk(all, 12) {
			t.add(Probe{Name: fmt.Sprintf("registers_%d%c", 64>>w, letter), Group: "registers",
				Hits: [][]Arg{args}})
			letter++
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

// machineOnly mirrors internal/testdata/machine.c and machine_amd64_nop.S.
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
