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
// its frame is below that of the start, or if the same site is passed in the
// same frame.
func (b *builder) inside(c *call, counted argcode.Label) {
	fresh, left, within := b.Label(), b.Label(), b.Label()
	index := int64(b.site.Pairs[c.Latency].Index)
	b.frame(c)
	if b.plan.Execs != 0 {
		same := b.Label()
		b.Emit(loadN(r2, r7, callsCount, asm.Word))
		b.JumpIfImm(asm.JEq, r2, 0, r1, same)
		b.innermost(c)
		b.unlessExec(c, same)
		b.Jump(fresh)
		b.Place(same)
	}
	b.Emit(loadN(r2, r7, callsCount, asm.Word))
	b.JumpIfImm(asm.JEq, r2, 0, r3, fresh)
	b.innermost(c)
	b.is(1<<FlagFailed|1<<flagAttempt, fresh)
	if b.site.Pairs[c.Latency].Attempt {
		b.Jump(counted)
	} else if c.ByThread() {
		b.Emit(load(r0, r4, callFrame), asm.And.Imm(r0, -callBits-1))
		b.JumpIf(asm.JGT, r9, r0, left)
		b.JumpIf(asm.JNE, r9, r0, within)
		b.siteID(r1)
		b.Emit(load(r2, r4, callWord), asm.RSh.Imm(r2, 32))
		b.JumpIf(asm.JEq, r1, r2, left)
		b.Emit(loadN(r1, r7, callsIndex, asm.Half))
		b.JumpIfImm(asm.JNE, r1, uint64(index), r2, within)
		b.Emit(loadN(r1, r7, callsShared, asm.Word), asm.Add.Imm(r1, 1),
			storeN(r7, callsShared, r1, asm.Word))
		b.Aside(left, fresh, func() { b.lost(CounterLeft, set(r1, 1)) })
	}
	b.Place(within)
	b.Emit(loadN(r1, r7, callsInside, asm.Half), asm.Add.Imm(r1, 1),
		storeN(r7, callsInside, r1, asm.Half))
	b.Jump(counted)
	b.Place(fresh)
	b.Emit(storeImm(r7, callsCount, 0, asm.Word), storeImm(r7, callsShared, 0, asm.Word),
		storeImm(r7, callsInside, 0, asm.Half), storeImm(r7, callsIndex, index, asm.Half))
}

// popOutermost is pop where the outermost call counts. It goes to none if this
// is the end of something inside the call.
func (b *builder) popOutermost(c *call, none argcode.Label) {
	ends, within, failed := b.Label(), b.Label(), b.Label()
	b.Emit(loadN(r2, r7, callsInside, asm.Half))
	b.is(1<<flagAttempt, none)
	if c.Fails {
		b.is(1<<FlagFailed, failed)
	}
	b.Emit(loadN(r3, r7, callsIndex, asm.Half))
	b.JumpIfImm(asm.JNE, r3, uint64(b.site.Pairs[c.Latency].Index), r0, within)
	if b.framed(c) {
		same, foreign := b.Label(), b.Label()
		b.Emit(load(r0, r4, callFrame))
		b.JumpIf(asm.JEq, r0, r9, same)
		b.Emit(asm.And.Imm(r0, callForeign))
		b.JumpIfImm(asm.JNE, r0, 0, r3, foreign)
		b.Jump(within)
		b.Place(same)
		b.Emit(loadN(r3, r7, callsShared, asm.Word))
		b.JumpIfImm(asm.JEq, r3, 0, r0, ends)
		b.Emit(asm.Sub.Imm(r3, 1), storeN(r7, callsShared, r3, asm.Word))
		b.Jump(within)
		b.Place(foreign)
	}
	b.JumpIfImm(asm.JNE, r2, 0, r0, within)
	b.Place(ends)
	remove := func() {
		b.Emit(storeImm(r7, callsCount, 0, asm.Word), storeN(r7, callsPushed, r1, asm.Word))
	}
	remove()
	b.storeSlot(c)
	b.Later(func() {
		b.Place(within)
		b.JumpIfImm(asm.JEq, r2, 0, r0, none)
		b.Emit(asm.Sub.Imm(r2, 1), storeN(r7, callsInside, r2, asm.Half))
		b.Jump(none)
		if c.Fails {
			b.Place(failed)
			b.JumpIfImm(asm.JNE, r2, 0, r0, within)
			remove()
			b.Jump(none)
		}
	})
}
