// SPDX-License-Identifier: BSD-2-Clause

package bpfgen

import (
	"debug/elf"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cilium/ebpf/asm"
	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/internal/argcode"
)

const testRing = 77 // a descriptor

// Whatever the arguments, an event has them, or says that they cannot be read.
func TestEventsHaveTheArgumentsOfEveryMachine(t *testing.T) {
	for _, k := range testKernels {
		t.Run(k.name, func(t *testing.T) {
			random := rand.New(rand.NewPCG(1, 2))
			unreadable := 0
			for range 800 {
				w := k.newWorld(random, 1+random.IntN(20))
				plan := &Plan{Kernel: k.forPlan(), Events: &Events{
					Ring: testRing, RingSize: 1 << 20, Header: true,
				}}
				site := &Site{Provider: "p", Name: "n", Args: w.args}
				block, err := plan.Block(site)
				qt.Assert(t, qt.IsNil(err))
				blocks := &Blocks{}
				blocks.Add(block)
				program := blocks.Fixed(0, 0xfedcba98<<32|7).Instructions
				qt.Assert(t, qt.IsFalse(slices.ContainsFunc(program, func(ins asm.Instruction) bool {
					return ins.IsBuiltinCall() && asm.BuiltinFunc(ins.Constant) == asm.FnGetAttachCookie
				})))
				qt.Assert(t, qt.IsNil(w.run(program)))
				qt.Assert(t, qt.HasLen(w.records, 1))

				r, raw := block.Record, w.records[0]
				qt.Assert(t, qt.Equals(w.load(raw[:4]), 0xfedcba98))
				qt.Assert(t, qt.Equals(w.load(raw[r.CPU:][:4]), 3))
				qt.Assert(t, qt.Equals(w.load(raw[r.Time:][:8]), 1000))
				qt.Assert(t, qt.Equals(w.load(raw[r.Process:][:8]), 100<<32|101))
				qt.Assert(t, qt.Equals(string(raw[r.Command:][:7]), "worker\x00"))
				for i := range w.args {
					arg, place := &w.args[i], r.Args[i]
					want, ok := w.expect(plan.Kernel, i)
					comment := qt.Commentf("%v of %v", arg, w.args)
					switch {
					case arg.Kind == argspec.Constant || !argcode.Readable(arg, k.kernel):
						qt.Assert(t, qt.Equals(place, Place{Value: None, Failed: None}), comment)
					case !ok:
						unreadable++
						qt.Assert(t, qt.Equals(raw[place.Failed], 1), comment)
					default:
						if place.Failed != None {
							qt.Assert(t, qt.Equals(raw[place.Failed], 0), comment)
						}
						got := w.load(raw[place.Value:][:arg.Size])
						qt.Assert(t, qt.Equals(got, argcode.Truncate(want, arg.Size)), comment)
					}
				}
			}
			qt.Assert(t, qt.IsTrue(unreadable > 40), qt.Commentf("%d", unreadable))
		})
	}
}

func TestNeighboursAreReadTogether(t *testing.T) {
	for _, test := range []struct {
		args  string
		reads int
	}{
		{"8@(%rsp) 8@8(%rsp) 8@16(%rsp) 8@24(%rsp) 8@32(%rsp) 8@40(%rsp) 8@48(%rsp) 8@56(%rsp) 8@64(%rsp) 8@72(%rsp) 8@80(%rsp) 8@88(%rsp)", 1},
		{"4@12(%rsp) 1@3(%rsp) 2@8(%rsp) 8@16(%rsp)", 1},
		{"4@-4(%rbp) 8@-16(%rbp) 4@-20(%rbp)", 1},
		{"8@(%rsp) 8@(%rsp)", 1},
		{"8@(%rsp) 8@8(%rbp)", 2},
		{"8@(%rsp) 8@56(%rsp)", 1},
		{"8@(%rsp) 8@57(%rsp)", 2},             // not aligned
		{"8@(%rsp) 8@64(%rsp)", 2},             // a gap of 56 bytes
		{"8@(%rsp) 8@48(%rsp) 8@96(%rsp)", 1},  // 104 bytes
		{"8@(%rsp) 8@56(%rsp) 8@112(%rsp)", 1}, // 120 bytes
		{"8@(%rsp) 8@56(%rsp) 8@112(%rsp) 8@128(%rsp)", 2},
		{"8@(%rsp,%rax,8) 8@8(%rsp,%rax,8)", 1},
		{"8@(%rsp,%rax,8) 8@8(%rsp,%rax,4)", 2},
		{"8@9223372036854775800(%rsp) 8@-9223372036854775808(%rsp)", 2},
	} {
		m := newBPFMachine(binary.LittleEndian)
		k := testKernels[0]
		for _, r := range []string{"%rsp", "%rbp"} {
			k.setRegister(m, r, userMemory+0x800)
		}
		k.setRegister(m, "%rax", 2)
		m.memory[userMemory] = make([]byte, userMemorySize)
		args := argspec.Parse(elf.EM_X86_64, test.args)
		plan := &Plan{Kernel: k.forPlan(), Events: &Events{Ring: testRing, RingSize: 1 << 20}}
		block, err := plan.Block(&Site{Args: args})
		qt.Assert(t, qt.IsNil(err))
		qt.Assert(t, qt.IsNil(m.run(append(asm.Instructions{asm.Mov.Reg(asm.R6, asm.R1)},
			block.Instructions...))))
		qt.Check(t, qt.Equals(m.reads, test.reads), qt.Commentf("%s", test.args))
	}
}

// Arguments take as many bytes of the ring buffer as they have in the program.
func TestRecordsHaveNoMoreRoomThanArgumentsNeed(t *testing.T) {
	for _, test := range []struct {
		args string
		size int // beside the site and what may be left out
	}{
		{"", 0},
		{"8@$1 -4@$2", 0},
		{"-4@%edi", 8},
		{"-4@%edi -4@%esi", 8},
		{"-1@%dil 8@%rsi -2@%dx -4@%ecx", 16},
		{"1@%dil 1@%sil 1@%dl 1@%cl 1@%al", 8},
		{"8@%rdi -4@%esi 8@%rdx", 24},
	} {
		args := argspec.Parse(elf.EM_X86_64, test.args)
		plan := &Plan{Kernel: testKernels[0].forPlan(),
			Events: &Events{Ring: testRing, RingSize: 1 << 20}}
		block, err := plan.Block(&Site{Args: args})
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.Equals(block.Record.Size, 8+test.size), qt.Commentf("%s", test.args))
	}
}

// Where a page ends between two neighbours, the one that is there is had.
func TestNeighboursAreReadApartWhereOneIsMissing(t *testing.T) {
	m := newBPFMachine(binary.LittleEndian)
	testKernels[0].setRegister(m, "%rsp", userMemory)
	m.memory[userMemory] = []byte{1, 2, 3, 4, 5, 6, 7, 8}
	args := argspec.Parse(elf.EM_X86_64, "8@8(%rsp) 4@4(%rsp) 2@(%rsp) 8@16(%rsp)")
	plan := &Plan{Kernel: testKernels[0].forPlan(),
		Events: &Events{Ring: testRing, RingSize: 1 << 20}}
	block, err := plan.Block(&Site{Args: args})
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(m.run(append(asm.Instructions{asm.Mov.Reg(asm.R6, asm.R1)},
		block.Instructions...))))
	raw := m.records[0]
	for i, want := range []uint64{0, 0x08070605, 0x0201, 0} {
		p := block.Record.Args[i]
		qt.Check(t, qt.Equals(raw[p.Failed] == 0, want != 0))
		if want != 0 {
			qt.Check(t, qt.Equals(m.load(raw[p.Value:][:args[i].Size]), want))
		}
	}
}

// A 32-bit program's address wraps at 4 GiB, and so do the addresses of
// neighbours on both sides of it.
func TestAddressesOf32BitProgramsWrap(t *testing.T) {
	m := newBPFMachine(binary.LittleEndian)
	k := testKernels[1]
	for _, r := range k.registers {
		k.setRegister(m, r, 0xdead_beef_ffff_fff8)
	}
	m.memory[0xffff_ffec] = []byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8}
	m.memory[0x1_0000_0000] = []byte{99, 99, 99, 99, 99, 99, 99, 99} // must not be read
	m.memory[0] = []byte{11, 12, 13, 14, 15, 16, 17, 18}
	args := argspec.Parse(elf.EM_386, "4@(%ebp) 4@4(%ebp) 4@8(%ebp) 4@12(%ebp) 4@16(%ebp,%eax,1)")
	plan := &Plan{Kernel: k.forPlan(), Events: &Events{Ring: testRing, RingSize: 1 << 20}}
	block, err := plan.Block(&Site{Args: args})
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(m.run(append(asm.Instructions{asm.Mov.Reg(asm.R6, asm.R1)},
		block.Instructions...))))
	for i, want := range []uint64{0x04030201, 0x08070605, 0x0e0d0c0b, 0x1211100f} {
		p := block.Record.Args[i]
		qt.Check(t, qt.Equals(m.records[0][p.Failed], 0))
		qt.Check(t, qt.Equals(m.load(m.records[0][p.Value:][:4]), want))
	}
}
