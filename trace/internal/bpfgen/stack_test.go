// SPDX-License-Identifier: BSD-2-Clause

package bpfgen

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/trace/internal/expr"
)

// generalRegisters are the names of registers in the order of DWARF's numbers;
// "-" is one that is always 0.
var generalRegisters = map[string]string{
	"x86-64": "%rax %rdx %rcx %rbx %rsi %rdi %rbp %rsp %r8 %r9 %r10 %r11 %r12 %r13 %r14 %r15",
	"arm64": "x0 x1 x2 x3 x4 x5 x6 x7 x8 x9 x10 x11 x12 x13 x14 x15 x16 x17 x18 x19 x20 x21 x22 x23 x24 x25 x26 x27 x28 x29 " +
		"x30 sp",
	"s390x": "%r0 %r1 %r2 %r3 %r4 %r5 %r6 %r7 %r8 %r9 %r10 %r11 %r12 %r13 %r14 %r15",
	"riscv64": "- ra sp gp tp t0 t1 t2 s0 s1 a0 a1 a2 a3 a4 a5 a6 a7 s2 s3 s4 s5 s6 s7 s8 s9 s10 s11 " +
		"t3 t4 t5 t6",
}

func TestRegistersAndStackAreCopied(t *testing.T) {
	const pages = 3 // that there are, from the one with the stack pointer on
	for _, k := range testKernels {
		names := strings.Fields(generalRegisters[k.name])
		if len(names) == 0 {
			continue
		}
		t.Run(k.name, func(t *testing.T) {
			for _, test := range []struct{ below, units, copied int }{
				{0, 1, 1}, {8, 1, 1}, {0x800, 2, 2}, {0xff8, 3, 3}, {0, 3, 3}, {0x10, 4, 3}, {0xff8,
					16, 3}, {0xfff, 9, 3},
			} {
				m := newBPFMachine(k.order)
				stack := bytes.Repeat([]byte("stacked!"), pages*CopyUnit/8)
				m.memory[userMemory] = stack
				sp := uint64(userMemory + test.below)
				want := make([]uint64, len(names))
				for n, name := range names {
					want[n] = uint64(n) << 32
					switch name {
					case "-":
						continue
					case "%rsp", "sp":
						want[n] = sp
					case "%r15":
						if k.name == "s390x" {
							want[n] = sp
						}
					}
					k.setRegister(m, name, want[n])
				}

				plan := &Plan{Kernel: k.forPlan(), Events: &Events{Ring: testRing,
					RingSize: 1 << 20, Copy: test.units * CopyUnit}}
				block, err := plan.Block(&Site{Provider: "p", Name: "n"})
				qt.Assert(t, qt.IsNil(err))
				blocks := &Blocks{}
				blocks.Add(block)
				qt.Assert(t, qt.IsNil(m.run(blocks.Programs(nil)[0].Instructions)))
				r, raw := block.Record, m.records[0]
				for n, at := range r.Registers.General {
					if at == None {
						qt.Check(t, qt.Equals(names[n], "-"))
						continue
					}
					qt.Check(t, qt.Equals(m.load(raw[at:][:8]), want[n]),
						qt.Commentf("%s", names[n]))
				}
				qt.Check(t, qt.HasLen(r.Registers.General, len(names)))
				qt.Check(t, qt.Equals(m.load(raw[r.Registers.SP:][:8]), sp))
				copied := int(m.load(raw[r.Copied:][:8]))
				length := test.copied * CopyUnit
				if test.units < pages { // there is as much as was asked for
					length += test.below
				}
				qt.Check(t, qt.Equals(copied, length))
				qt.Check(t, qt.DeepEquals(raw[r.Copy:][:copied], stack[:copied]))
			}
		})
	}
}

func TestStacksOfUnknownMachinesAreErrors(t *testing.T) {
	k := testKernels[len(testKernels)-1]
	qt.Assert(t, qt.Equals(k.name, "arm"))
	plan := &Plan{Kernel: k.forPlan(), Events: &Events{Ring: testRing, RingSize: 1 << 20,
		Copy: CopyUnit}}
	_, err := plan.Block(&Site{Provider: "p", Name: "n"})
	qt.Check(t,
		qt.ErrorMatches(err, "probe p:n: stacks cannot be copied: .* EM_ARM saves the registers"))
}

// A call of several probes that starts at a site remembers the site, also if
// the site's event has a copy of the stack.
func TestCopiedStackLeavesTheSiteOfACall(t *testing.T) {
	k := callKernels()[0]
	c := newCallWorld(t, k, rand.New(rand.NewPCG(1, 2)), "", expr.Term{Source: expr.TID})
	c.latency.Spans, c.latency.Named, c.latency.Outermost = false, true, true
	c.plan.Events.Copy = CopyUnit
	site := &Site{Provider: "p", Name: "n", Pairs: map[*Latency]Ends{c.latency: {Start: 1}}}
	block, err := c.plan.Block(site)
	qt.Assert(t, qt.IsNil(err))
	blocks := &Blocks{}
	blocks.Add(block)
	c.cookie = 5 << 32
	qt.Assert(t, qt.IsNil(c.run(blocks.Programs(nil)[0].Instructions)))
	qt.Assert(t, qt.HasLen(c.maps[testCalls].values, 1))
	for _, calls := range c.maps[testCalls].values {
		qt.Check(t, qt.Equals(c.load(calls[callsFirst+callWord:][:8])>>32, 5))
	}
}
