// SPDX-License-Identifier: BSD-2-Clause

package bpfgen

import (
	"github.com/cilium/ebpf/asm"

	"github.com/gousdt/gousdt/internal/argcode"
)

// onlyIf goes to otherwise unless a condition of a call holds. The number of
// the condition counts from 1; 0 is none.
func (b *builder) onlyIf(l *Latency, number int, otherwise argcode.Label) error {
	if number == 0 {
		return nil
	}
	c, err := b.site.resolve(b.plan.Kernel, l.If[number-1], false)
	if err == nil {
		b.together(c.arguments(nil), func() { b.condition(&c, otherwise) })
	}
	return err
}

// inside emits what counts a start inside the call at R7, and goes to counted.
// It goes on where there is no such call. One that has not ended was left by a
// long jump if the stack is less deep than it was there, or if the same site is
// passed at the same depth.
func (b *builder) inside(c *call, counted argcode.Label) {
	fresh, left, within := b.Label(), b.Label(), b.Label()
	b.Emit(asm.LoadMem(asm.R2, asm.R7, callsCount, asm.Word),
		asm.LoadMem(asm.R1, asm.R7, callsPushed, asm.Word), asm.Sub.Imm(asm.R1, 1))
	b.JumpIfImm(asm.JEq, asm.R2, 0, asm.R3, fresh)
	b.callAt(asm.R4, 0)
	b.is(1<<FlagFailed|1<<flagAttempt, fresh)
	if b.site.Pairs[c.Latency].Attempt {
		b.Jump(counted)
	} else if sp, _ := b.stackPointer(); b.knowsLevels(c.Latency) {
		b.Emit(asm.LoadMem(asm.R5, asm.R6, sp, asm.DWord),
			asm.LoadMem(asm.R0, asm.R4, callLevel, asm.DWord))
		b.JumpIf(asm.JGT, asm.R5, asm.R0, left)
		b.JumpIf(asm.JNE, asm.R5, asm.R0, within)
		b.siteID(asm.R1)
		b.Emit(asm.LoadMem(asm.R2, asm.R4, callWord, asm.DWord), asm.RSh.Imm(asm.R2, 32))
		b.JumpIf(asm.JEq, asm.R1, asm.R2, left)
		b.Emit(asm.StoreImm(asm.R7, callsLevel, levelShared, asm.Word))
		b.Later(func() {
			b.Place(left)
			b.count(CounterReplaced)
			b.Jump(fresh)
		})
	}
	b.Place(within)
	b.Emit(asm.LoadMem(asm.R1, asm.R7, callsInside, asm.Half), asm.Add.Imm(asm.R1, 1),
		asm.StoreMem(asm.R7, callsInside, asm.R1, asm.Half))
	b.Jump(counted)
	b.Place(fresh)
	b.Emit(asm.StoreImm(asm.R7, callsCount, 0, asm.Word))
	index := int64(b.site.Pairs[c.Latency].Index)
	b.Emit(asm.StoreImm(asm.R7, callsInside, 0, asm.Half),
		asm.StoreImm(asm.R7, callsIndex, index, asm.Half))
}

// popOutermost is pop where the outermost call counts. It goes to none if this
// is the end of something inside the call.
func (b *builder) popOutermost(c *call, none argcode.Label) {
	ends, within, failed := b.Label(), b.Label(), b.Label()
	b.innermost()
	b.Emit(asm.LoadMem(asm.R2, asm.R7, callsInside, asm.Half))
	b.is(1<<flagAttempt, none)
	if c.Fails {
		b.is(1<<FlagFailed, failed)
	}
	b.Emit(asm.LoadMem(asm.R3, asm.R7, callsIndex, asm.Half))
	b.JumpIfImm(asm.JNE, asm.R3, uint64(b.site.Pairs[c.Latency].Index), asm.R0, within)
	if sp, _ := b.stackPointer(); b.knowsLevels(c.Latency) {
		elsewhere := b.Label()
		b.Emit(asm.LoadMem(asm.R3, asm.R7, callsLevel, asm.Word),
			asm.LoadMem(asm.R5, asm.R6, sp, asm.DWord),
			asm.LoadMem(asm.R0, asm.R4, callLevel, asm.DWord))
		b.JumpIf(asm.JNE, asm.R0, asm.R5, elsewhere)
		b.JumpIfImm(asm.JEq, asm.R3, levelKnown, asm.R0, ends)
		b.JumpIfImm(asm.JNE, asm.R2, 0, asm.R0, within)
		b.JumpIfImm(asm.JNE, asm.R3, 0, asm.R0, ends)
		b.Emit(asm.StoreImm(asm.R7, callsLevel, levelKnown, asm.Word))
		b.Jump(ends)
		b.Place(elsewhere)
		b.JumpIfImm(asm.JEq, asm.R3, levelKnown, asm.R0, within)
	}
	b.JumpIfImm(asm.JNE, asm.R2, 0, asm.R0, within)
	b.Place(ends)
	b.Emit(asm.StoreMem(asm.R7, callsPushed, asm.R1, asm.Word),
		asm.StoreImm(asm.R7, callsCount, 0, asm.Word), asm.And.Imm(asm.R1, MaxCalls-1),
		toStack(c.key+16, asm.R1))
	b.Later(func() {
		b.Place(within)
		b.JumpIfImm(asm.JEq, asm.R2, 0, asm.R0, none)
		b.Emit(asm.Sub.Imm(asm.R2, 1), asm.StoreMem(asm.R7, callsInside, asm.R2, asm.Half))
		b.Jump(none)
		if c.Fails {
			b.Place(failed)
			b.JumpIfImm(asm.JNE, asm.R2, 0, asm.R0, within)
			b.Emit(asm.StoreMem(asm.R7, callsPushed, asm.R1, asm.Word),
				asm.StoreImm(asm.R7, callsCount, 0, asm.Word))
			b.Jump(none)
		}
	})
}
