// SPDX-License-Identifier: BSD-2-Clause

package bpfgen

import (
	"github.com/cilium/ebpf/asm"

	"github.com/gousdt/gousdt/internal/argcode"
)

// onlyIf goes to otherwise unless a condition of a call holds. The number of
// the condition counts from 1; 0 is none.
func (b *builder) onlyIf(l *Latency, number int, otherwise argcode.Label) {
	if number != 0 {
		c := b.resolve(l.If[number-1], false)
		b.unless(&c, otherwise)
	}
}

// inside emits code that counts a start inside the call at R7, and goes to
// counted. Without such a call it goes on. A call was left by a long jump if
// the stack is less deep now than at its start, or if the same site is passed
// at the same depth.
func (b *builder) inside(c *call, counted argcode.Label) {
	fresh, left, within := b.Label(), b.Label(), b.Label()
	if b.plan.Execs != 0 {
		same := b.Label()
		b.Emit(loadN(r2, r7, callsCount, asm.Word))
		b.JumpIfImm(asm.JEq, r2, 0, r1, same)
		b.innermost()
		b.Emit(load(r1, r4, callTime), toStack(c.began, r1))
		b.unlessExec(c, same)
		b.lost(CounterReplaced, set(r1, 1))
		b.Jump(fresh)
		b.Place(same)
	}
	b.Emit(loadN(r2, r7, callsCount, asm.Word), loadN(r1, r7, callsPushed, asm.Word),
		asm.Sub.Imm(r1, 1))
	b.JumpIfImm(asm.JEq, r2, 0, r3, fresh)
	b.callAt(r4)
	b.is(1<<FlagFailed|1<<flagAttempt, fresh)
	if b.site.Pairs[c.Latency].Attempt {
		b.Jump(counted)
	} else if sp, _ := b.stackPointer(); b.knowsLevels(c.Latency) {
		b.Emit(load(r5, r6, sp), load(r0, r4, callLevel))
		b.JumpIf(asm.JGT, r5, r0, left)
		b.JumpIf(asm.JNE, r5, r0, within)
		b.siteID(r1)
		b.Emit(load(r2, r4, callWord), asm.RSh.Imm(r2, 32))
		b.JumpIf(asm.JEq, r1, r2, left)
		b.Emit(storeImm(r7, callsLevel, levelShared, asm.Word))
		b.Aside(left, fresh, func() { b.lost(CounterReplaced, set(r1, 1)) })
	}
	b.Place(within)
	b.Emit(loadN(r1, r7, callsInside, asm.Half), asm.Add.Imm(r1, 1),
		storeN(r7, callsInside, r1, asm.Half))
	b.Jump(counted)
	b.Place(fresh)
	b.Emit(storeImm(r7, callsCount, 0, asm.Word))
	index := int64(b.site.Pairs[c.Latency].Index)
	b.Emit(storeImm(r7, callsInside, 0, asm.Half), storeImm(r7, callsIndex, index, asm.Half))
}

// popOutermost is pop where the outermost call counts. It goes to none if this
// is the end of something inside the call.
func (b *builder) popOutermost(c *call, none argcode.Label) {
	ends, within, failed := b.Label(), b.Label(), b.Label()
	b.innermost()
	b.Emit(loadN(r2, r7, callsInside, asm.Half))
	b.is(1<<flagAttempt, none)
	if c.Fails {
		b.is(1<<FlagFailed, failed)
	}
	b.Emit(loadN(r3, r7, callsIndex, asm.Half))
	b.JumpIfImm(asm.JNE, r3, uint64(b.site.Pairs[c.Latency].Index), r0, within)
	if sp, _ := b.stackPointer(); b.knowsLevels(c.Latency) {
		elsewhere := b.Label()
		b.Emit(loadN(r3, r7, callsLevel, asm.Word), load(r5, r6, sp), load(r0, r4, callLevel))
		b.JumpIf(asm.JNE, r0, r5, elsewhere)
		b.JumpIfImm(asm.JEq, r3, levelKnown, r0, ends)
		b.JumpIfImm(asm.JNE, r2, 0, r0, within)
		b.JumpIfImm(asm.JNE, r3, 0, r0, ends)
		b.Emit(storeImm(r7, callsLevel, levelKnown, asm.Word))
		b.Jump(ends)
		b.Place(elsewhere)
		b.JumpIfImm(asm.JEq, r3, levelKnown, r0, within)
	}
	b.JumpIfImm(asm.JNE, r2, 0, r0, within)
	b.Place(ends)
	b.Emit(storeN(r7, callsPushed, r1, asm.Word), storeImm(r7, callsCount, 0, asm.Word))
	b.storeSlot(c)
	b.Later(func() {
		b.Place(within)
		b.JumpIfImm(asm.JEq, r2, 0, r0, none)
		b.Emit(asm.Sub.Imm(r2, 1), storeN(r7, callsInside, r2, asm.Half))
		b.Jump(none)
		if c.Fails {
			b.Place(failed)
			b.JumpIfImm(asm.JNE, r2, 0, r0, within)
			b.Emit(storeN(r7, callsPushed, r1, asm.Word), storeImm(r7, callsCount, 0, asm.Word))
			b.Jump(none)
		}
	})
}
