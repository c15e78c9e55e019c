// SPDX-License-Identifier: BSD-2-Clause

package bpf_test

import (
	"debug/elf"
	"encoding/binary"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/internal/testprog"
)

// registerSyntax is how a program's argument strings name registers, by the
// kernel that the program runs on.
var registerSyntax = []struct {
	machine         string // as in machines
	program, kernel elf.Machine
	sigil           string
}{
	{"x86", elf.EM_X86_64, elf.EM_X86_64, "%"},
	{"x86", elf.EM_386, elf.EM_X86_64, "%"},
	{"arm64", elf.EM_AARCH64, elf.EM_AARCH64, ""},
	{"arm64", elf.EM_ARM, elf.EM_AARCH64, ""},
	{"s390", elf.EM_S390, elf.EM_S390, "%"},
	{"riscv", elf.EM_RISCV, elf.EM_RISCV, ""},
	{"powerpc", elf.EM_PPC64, elf.EM_PPC64, ""},
	{"loongarch", elf.EM_LOONGARCH, elf.EM_LOONGARCH, "$"},
	{"arm", elf.EM_ARM, elf.EM_ARM, ""},
}

// namedSlots returns the slots of a kernel that a program's argument strings
// can name, each with one of its names. It tries every word of three letters
// and digits; longer names are second ones (rtoc, zero, r15d).
func namedSlots(program, kernel elf.Machine, sigil string) map[int]string {
	const characters = "abcdefghijklmnopqrstuvwxyz0123456789"
	slots := make(map[int]string)
	var try func(word string)
	try = func(word string) {
		for _, c := range characters {
			longer := word + string(c)
			arg := argspec.Parse(program, "1@"+sigil+longer)[0]
			if slot, ok := arg.Register.Slot(kernel); ok && arg.Kind == argspec.InRegister {
				slots[slot] = longer
			}
			if len(longer) < 3 {
				try(longer)
			}
		}
	}
	try("")
	return slots
}

// The header of any machine runs on this one, since it reads registers by their
// slots alone.
func TestEveryRegisterThatAnArgumentCanNameIsLoaded(t *testing.T) {
	testprog.RequireBPF(t)
	tested := make(map[string]bool)
	for _, syntax := range registerSyntax {
		tested[syntax.machine] = true
		t.Run(syntax.program.String()+" on "+syntax.machine, func(t *testing.T) {
			object := mustCompile(t, compilers(t)[0], syntax.machine, "testdata/slots.bpf.c",
				"-target", "bpf")
			collection := load(t, object, true, nil)
			registers := make([]byte, 512)
			for i := range len(registers) / 4 {
				value := uint32(0x1000 + i)
				if syntax.kernel != elf.EM_ARM {
					value = uint32(0x1000 + i/2)
				}
				binary.NativeEndian.PutUint32(registers[4*i:], value)
			}
			qt.Assert(t, qt.IsNil(collection.Variables["registers"].Set(registers)))

			slots := namedSlots(syntax.program, syntax.kernel, syntax.sigil)
			qt.Assert(t, qt.IsTrue(len(slots) >= 9), qt.Commentf("%v", slots))
			for slot, name := range slots {
				qt.Assert(t, qt.IsNil(collection.Variables["slot"].Set(uint64(slot))))
				_, err := collection.Programs["read_slot"].Run(&ebpf.RunOptions{Data: make([]byte,
					64)})
				qt.Assert(t, qt.IsNil(err))
				var word uint64
				qt.Assert(t, qt.IsNil(collection.Variables["word"].Get(&word)))
				qt.Check(t, qt.Equals(uint32(word), uint32(0x1000+slot)),
					qt.Commentf("%s, slot %d", name, slot))
			}
		})
	}
	for _, machine := range machines {
		qt.Check(t, qt.IsTrue(tested[machine]), qt.Commentf("%s", machine))
	}
}
