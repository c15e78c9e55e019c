// SPDX-License-Identifier: BSD-2-Clause

package specialise

import (
	"testing"

	"github.com/cilium/ebpf/asm"
	"github.com/go-quicktest/qt"
)

func TestStackDepth(t *testing.T) {
	call := asm.FnProbeReadUser.Call()
	exit := asm.Return()
	// A loop in which a pointer goes down by eight bytes each time.
	down := asm.Instructions{
		asm.Mov.Reg(asm.R1, asm.R10),
		asm.Add.Imm(asm.R1, -8),
		{OpCode: asm.JGT.Op(asm.ImmSource), Dst: asm.R2, Offset: -2},
		exit,
	}
	for _, test := range []struct {
		name  string
		ins   asm.Instructions
		depth int // -1 for one that is not known
	}{
		{"none", asm.Instructions{asm.Mov.Imm(asm.R0, 0), exit}, 0},
		{"stores and loads", asm.Instructions{
			asm.StoreMem(asm.R10, -24, asm.R1, asm.DWord),
			asm.StoreImm(asm.R10, -32, 0, asm.Word),
			asm.LoadMem(asm.R2, asm.R10, -40, asm.DWord), exit}, 40},
		{"a pointer for a call", asm.Instructions{
			asm.Mov.Reg(asm.R3, asm.R10), asm.Add.Imm(asm.R3, -104), call, exit}, 104},
		{"two steps", asm.Instructions{asm.Mov.Reg(asm.R3, asm.R10), asm.Add.Imm(asm.R3, -104),
			asm.Mov.Reg(asm.R6, asm.R3), asm.Sub.Imm(asm.R6, 16), exit}, 120},
		{"below a pointer", asm.Instructions{asm.Mov.Reg(asm.R3, asm.R10), asm.Add.Imm(asm.R3, -8),
			asm.LoadMem(asm.R4, asm.R3, -16, asm.DWord), exit}, 24},
		{"a register that was a pointer", asm.Instructions{
			asm.Mov.Reg(asm.R3, asm.R10), asm.Add.Imm(asm.R3, -8), call,
			asm.Mov.Imm(asm.R3, 0), asm.Add.Imm(asm.R3, -100), exit}, 8},
		{"one that a call has changed", asm.Instructions{
			asm.Mov.Reg(asm.R3, asm.R10), asm.Add.Imm(asm.R3, -8), call,
			asm.Add.Imm(asm.R3, -100), exit}, 8},
		{"one that a call leaves alone", asm.Instructions{
			asm.Mov.Reg(asm.R6, asm.R10), asm.Add.Imm(asm.R6, -8), call,
			asm.Add.Imm(asm.R6, -100), exit}, 108},
		{"on one of two ways", asm.Instructions{
			asm.Mov.Reg(asm.R6, asm.R10),
			{OpCode: asm.JEq.Op(asm.ImmSource), Dst: asm.R1, Offset: 1},
			asm.Add.Imm(asm.R6, -64),
			asm.LoadMem(asm.R0, asm.R6, -8, asm.DWord), exit}, 72},
		{"what is jumped over", asm.Instructions{
			{OpCode: asm.Ja.Op(asm.ImmSource), Offset: 1},
			asm.StoreMem(asm.R10, -64, asm.R1, asm.DWord), exit}, 0},
		{"a pointer in the stack", asm.Instructions{
			asm.Mov.Reg(asm.R3, asm.R10), asm.Add.Imm(asm.R3, -64),
			asm.StoreMem(asm.R10, -8, asm.R3, asm.DWord),
			asm.LoadMem(asm.R4, asm.R10, -8, asm.DWord),
			asm.Add.Imm(asm.R4, -8), exit}, 72},
		{"a loop that goes down", down, -1},
		{"an index", asm.Instructions{asm.Mov.Reg(asm.R3, asm.R10),
			asm.Add.Reg(asm.R3, asm.R2), exit}, -1},
		{"a pointer that is aligned", asm.Instructions{asm.Mov.Reg(asm.R3, asm.R10),
			asm.And.Imm(asm.R3, -8), exit}, -1},
		{"a way out", asm.Instructions{{OpCode: asm.Ja.Op(asm.ImmSource), Offset: 5}, exit}, -1},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := function{name: "f", ins: test.ins}
			depth, ok := 0, f.findJumps()
			if ok {
				depth, ok = f.stackDepth()
			}
			qt.Assert(t, qt.Equals(ok, test.depth >= 0))
			if ok {
				qt.Check(t, qt.Equals(depth, test.depth))
			}
		})
	}
}
