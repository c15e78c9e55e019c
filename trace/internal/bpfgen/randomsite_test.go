// SPDX-License-Identifier: BSD-2-Clause

package bpfgen

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/internal/argcode"
)

// testKernel is a machine to generate code for, with what its argument strings
// are made of.
type testKernel struct {
	name      string
	program   elf.Machine
	kernel    elf.Machine
	order     binary.ByteOrder
	registers []string // of the width of a word
	narrow    []string // of which a byte is read: parts, and registers that no address is made of
	constant  string
	symbols   bool // a constant may be the address of a symbol
	memory    string
	indices   []string // forms with an index, if the machine has any
	scales    []string
}

var testKernels = []testKernel{
	{
		name: "x86-64", program: elf.EM_X86_64, kernel: elf.EM_X86_64, order: binary.LittleEndian,
		symbols:   true,
		registers: strings.Fields("%rax %rbx %rcx %rdx %rsi %rdi %rbp %rsp %r8 %r15"),
		narrow:    strings.Fields("%ah %bh %ch %dh %al %r9d"),
		constant:  "$%d", memory: "DISP(BASE)", indices: []string{"DISP(BASE,INDEX,SCALE)",
			"DISP(,INDEX,SCALE)"}, scales: strings.Fields("1 2 4 8"),
	},
	{
		name: "i386 on x86-64", program: elf.EM_386, kernel: elf.EM_X86_64,
		order: binary.LittleEndian, symbols: true,
		registers: strings.Fields("%eax %ebx %ecx %edx %esi %edi %ebp"),
		narrow:    strings.Fields("%ah %dh"),
		constant:  "$%d", memory: "DISP(BASE)", indices: []string{"DISP(BASE,INDEX,SCALE)",
			"DISP(,INDEX,SCALE)"}, scales: strings.Fields("1 2 4 8"),
	},
	{
		name: "arm64", program: elf.EM_AARCH64, kernel: elf.EM_AARCH64, order: binary.LittleEndian,
		symbols:   true,
		registers: strings.Fields("x0 x1 x7 x19 x29 x30 sp"), narrow: strings.Fields("w3 w28"),
		constant: "%d", memory: "[BASE, DISP]", indices: []string{"[BASE, INDEX, lsl SCALE]",
			"[BASE, WIDE, uxtw SCALE]",
			"[BASE, WIDE, sxtw SCALE]"}, scales: strings.Fields("0 1 2 3"),
	},
	{
		name: "s390x", program: elf.EM_S390, kernel: elf.EM_S390, order: binary.BigEndian,
		symbols:   true,
		registers: strings.Fields("%r1 %r2 %r7 %r11 %r15"),
		constant:  "%d", memory: "DISP(BASE)", indices: []string{"DISP(INDEX,BASE)"},
		scales: []string{"1"},
	},
	{
		name: "riscv64", program: elf.EM_RISCV, kernel: elf.EM_RISCV, order: binary.LittleEndian,
		symbols:   true,
		registers: strings.Fields("a0 a7 s0 s11 t0 t6 sp ra"), constant: "%d", memory: "DISP(BASE)",
	},
	{
		name: "ppc64", program: elf.EM_PPC64, kernel: elf.EM_PPC64, order: binary.BigEndian,
		symbols:   true,
		registers: strings.Fields("r1 r3 r12 r31"), narrow: strings.Fields("lr ctr xer"),
		constant: "i%d",
		memory:   "DISP(BASE)",
		indices:  []string{"BASE,INDEX"},
		scales:   []string{"1"},
	},
	{
		name: "loongarch64", program: elf.EM_LOONGARCH, kernel: elf.EM_LOONGARCH,
		order: binary.LittleEndian, symbols: true,
		registers: strings.Fields("$a0 $t8 $s8 $fp $sp $ra"),
		constant:  "%d",
		memory:    "BASE,DISP",
		indices:   []string{"BASE,INDEX"},
		scales:    []string{"1"},
	},
	{
		name: "arm", program: elf.EM_ARM, kernel: elf.EM_ARM, order: binary.LittleEndian,
		symbols:   true,
		registers: strings.Fields("r0 r3 r7 r11 sp"), constant: "#%d", memory: "[BASE, #DISP]",
	},
}

// forPlan returns the kernel to generate code for. Some kernels of either byte
// order number processes as in a namespace.
func (k *testKernel) forPlan() Kernel {
	kernel := Kernel{Machine: k.kernel, Order: k.order, CompareExchange: k.name != "arm64"}
	if k.name == "s390x" || k.name == "riscv64" {
		kernel.PIDs = &testNamespace
	}
	return kernel
}

// Where the traced process of the tests has memory. Addresses of 32 bits, so
// that they suit every machine.
const (
	userMemory     = 0x4000_0000
	userMemorySize = 0x1000
)

// world is a hit: arguments and all that they are in.
type world struct {
	*bpfMachine
	args []argspec.Arg
}

// newWorld makes up a hit with that many arguments.
func (k *testKernel) newWorld(random *rand.Rand, count int) *world {
	w := &world{bpfMachine: newBPFMachine(k.order)}
	for i := range w.context {
		w.context[i] = byte(random.Uint32())
	}
	memory := make([]byte, userMemorySize)
	for i := range memory {
		memory[i] = byte(random.Uint32())
	}
	w.memory[userMemory] = memory

	// Registers that memory is addressed by point into it, most of them far
	// enough from its ends.
	base, index := k.registers[random.IntN(len(k.registers))],
		k.registers[random.IntN(len(k.registers))]
	k.setRegister(w.bpfMachine, index, uint64(random.IntN(64)))
	if k.kernel == elf.EM_AARCH64 {
		// Half a register counts in some forms: the other half is anything, and
		// the half may be below zero.
		k.setRegister(w.bpfMachine, index, random.Uint64()<<32|uint64(uint32(random.IntN(64)-32)))
	}
	k.setRegister(w.bpfMachine, base, userMemory+uint64(random.IntN(userMemorySize)))
	var all []string
	for range count {
		all = append(all, k.argument(random, base, index))
	}
	symbol := random.Uint64() >> random.IntN(64)
	w.args = argspec.Decode(nil, &symbolFile{k, symbol}, 0, strings.Join(all, " "))
	return w
}

// symbolFile is a position-independent file with all symbols at one address.
type symbolFile struct {
	kernel *testKernel
	symbol uint64
}

func (f *symbolFile) Header() elf.FileHeader {
	return elf.FileHeader{Machine: f.kernel.program, ByteOrder: f.kernel.order, Type: elf.ET_DYN}
}

func (f *symbolFile) IsProgram() bool { return true }

func (f *symbolFile) Symbol(name string) (elf.Symbol, error) {
	return elf.Symbol{Name: name, Info: byte(elf.STT_FUNC), Section: 1, Value: f.symbol}, nil
}

func (k *testKernel) argument(random *rand.Rand, base, index string) string {
	sizes := []string{"1", "-1", "2", "-2", "4", "-4", "8", "-8", "4f", "8f"}
	size := sizes[random.IntN(len(sizes))]
	displacement := random.IntN(400) - 200
	if random.IntN(3) > 0 {
		displacement &^= 7 // as compilers do
	}
	switch choice := random.IntN(10); {
	case choice == 0 && k.symbols && random.IntN(2) == 0:
		return size + "@" + strings.Replace(k.constant, "%d", "symbol", 1)
	case choice == 0:
		return size + "@" + fmt.Sprintf(k.constant, random.IntN(1<<16)-1<<15)
	case choice == 1 && len(k.narrow) > 0:
		return size[:len(size)-len(strings.TrimLeft(size,
			"-"))] + "1@" + k.narrow[random.IntN(len(k.narrow))]
	case choice <= 3:
		return size + "@" + k.registers[random.IntN(len(k.registers))]
	case choice <= 5 && len(k.indices) > 0:
		return size + "@" + fillIn(k.indices[random.IntN(len(k.indices))], base, index,
			displacement, k.scales[random.IntN(len(k.scales))])
	default:
		return size + "@" + fillIn(k.memory, base, "", displacement, "")
	}
}

func fillIn(form, base, index string, displacement int, scale string) string {
	return strings.NewReplacer("BASE", base, "INDEX", index, "WIDE",
		strings.Replace(index, "x", "w", 1), "DISP", strconv.Itoa(displacement), "SCALE",
		scale).Replace(form)
}

// setRegister gives a register its value in the context.
func (k *testKernel) setRegister(m *bpfMachine, name string, value uint64) {
	arg := argspec.Parse(k.program, "4@"+name)[0]
	slot, _ := arg.Register.Slot(k.kernel)
	word := argcode.WordSize(k.kernel)
	m.store(m.context[slot*word:][:word], value)
}

// expect says what an argument is, straight from its description.
func (w *world) expect(kernel Kernel, index int) (value uint64, readable bool) {
	arg := &w.args[index]
	if !argcode.Readable(arg, kernel.Machine) {
		return 0, false
	}
	word := func(r argspec.Register) uint64 {
		slot, ok := r.Slot(kernel.Machine)
		if !ok {
			return 0
		}
		return w.load(w.context[slot*argcode.WordSize(kernel.Machine):][:argcode.WordSize(kernel.Machine)])
	}
	switch arg.Kind {
	case argspec.Constant:
		return arg.Constant, true
	case argspec.InRegister:
		value = word(arg.Register) >> arg.Register.Shift
		if arg.High.Name != "" {
			value = value&math.MaxUint32 | word(arg.High)<<32
		}
	case argspec.Memory, argspec.Address:
		index := word(arg.Index)
		switch arg.IndexSize {
		case 4:
			index = uint64(uint32(index))
		case -4:
			index = uint64(int64(int32(index)))
		}
		address := word(arg.Base) + index<<bits.TrailingZeros8(arg.Scale) + uint64(arg.Displacement)
		if arg.Address32 {
			address = uint64(uint32(address))
		}
		if value = address; arg.Kind == argspec.Address {
			break
		}
		b := make([]byte, arg.Size)
		if !w.user(b, address) {
			return 0, false
		}
		value = w.load(b)
	}
	unused := 64 - 8*arg.Size
	if arg.Signed {
		return uint64(int64(value<<unused) >> unused), true
	}
	return value << unused >> unused, true
}
