// SPDX-License-Identifier: BSD-2-Clause

package bpfgen

import (
	"encoding/binary"
	"time"

	"github.com/cilium/ebpf/asm"

	"github.com/gousdt/gousdt/internal/argcode"
)

// MaxCalls is how many calls of a pair can be going on at once in a thread. Of
// more, the outermost are forgotten. It is a power of two.
const MaxCalls = 64

// A stack of calls begins with how many have been pushed and how many of them
// are there, 4 bytes each. It is a ring: what is pushed on a full stack takes
// the place of the outermost call. Then follows whether ends have been seen to
// have the same stack pointer as their starts.
const (
	callsPushed = 0
	callsCount  = 4
	callsLevel  = 8
	callsFirst  = 16

	// Of a call: when it began, the stack pointer at that moment, and the
	// start's conditions and site.
	callTime  = 0
	callLevel = 8
	callWord  = 16
	callSize  = 24
)

// CallsSize is the size of a stack of calls.
const CallsSize = callsFirst + MaxCalls*callSize

// Calls returns how many calls are on a stack: those that go on.
func (l *Latency) Calls(stack []byte) uint64 {
	order := binary.NativeEndian
	count, pushed := order.Uint32(stack[callsCount:]), order.Uint32(stack[callsPushed:])
	if count == 0 {
		return 0
	}
	innermost := callsFirst + int((pushed-1)%MaxCalls)*callSize
	if l.Fails && order.Uint64(stack[innermost+callWord:])&(1<<FlagFailed) != 0 {
		count--
	}
	return uint64(count)
}

// Caller returns whose calls a stack has, by its key: those of a thread, or of
// a process, with tid 0. They are of one pair.
func (l *Latency) Caller(key [2]uint64) (pid, tid int, pair uint32) {
	if l.byThread() {
		return int(key[0] >> 32), int(uint32(key[0])), uint32(key[1])
	}
	return int(key[1] >> 32), 0, uint32(key[1])
}

// maxAbandoned is how many calls are looked through that have been left without
// their end, as by an exception. There are no loops.
const maxAbandoned = 8

// maxYoung is the age up to which a call is certainly one of this thread: the
// numbers of threads come again only when all others have been used.
const maxYoung = 100 * time.Millisecond

// lookUpOrMake sets R7 to a value of a map, Starts or Saved, and makes one of
// zeros where there is none. It goes to full if there is no room.
func (b *builder) lookUpOrMake(c *call, m int, full argcode.Label) {
	missing, found := b.Label(), b.Label()
	look := func() {
		b.AddressOf(asm.R2, asm.R10, c.key)
		b.Emit(asm.LoadMapPtr(asm.R1, m))
		b.Call(asm.FnMapLookupElem)
	}
	look()
	b.JumpIfImm(asm.JEq, asm.R0, 0, asm.R1, missing)
	b.Place(found)
	b.Emit(asm.Mov.Reg(asm.R7, asm.R0))
	b.Later(func() {
		b.Place(missing)
		zero := c.key - 8
		b.Emit(asm.StoreImm(asm.R10, int16(zero), 0, asm.Word))
		b.AddressOf(asm.R2, asm.R10, zero)
		b.Emit(asm.LoadMapPtr(asm.R1, c.Zeros))
		b.Call(asm.FnMapLookupElem)
		b.JumpIfImm(asm.JEq, asm.R0, 0, asm.R1, full)
		b.Emit(asm.Mov.Reg(asm.R3, asm.R0))
		b.AddressOf(asm.R2, asm.R10, c.key)
		b.Emit(asm.LoadMapPtr(asm.R1, m), asm.Mov.Imm(asm.R4, updateNoExist))
		b.Call(asm.FnMapUpdateElem)
		look()
		b.JumpIfImm(asm.JNE, asm.R0, 0, asm.R1, found)
		b.Jump(full)
	})
}

// push emits what pushes a call on the stack at R7, all but its time, and sets
// R7 to the call less callsFirst. It stores the place in the stack behind the
// key.
func (b *builder) push(c *call) {
	full, pushed := b.Label(), b.Label()
	b.Emit(asm.LoadMem(asm.R1, asm.R7, callsPushed, asm.Word),
		asm.LoadMem(asm.R2, asm.R7, callsCount, asm.Word))
	if c.Fails { // a call that has failed is over
		drop, dropped := b.Label(), b.Label()
		b.JumpIfImm(asm.JEq, asm.R2, 0, asm.R3, dropped)
		b.Emit(asm.Sub.Imm(asm.R1, 1))
		b.callAt(asm.R4, 0)
		b.hasFailed(drop)
		b.Emit(asm.Add.Imm(asm.R1, 1))
		b.Place(dropped)
		b.Later(func() {
			b.Place(drop)
			b.Emit(asm.Sub.Imm(asm.R2, 1))
			b.Jump(dropped)
		})
	}
	b.JumpIfImm(asm.JGE, asm.R2, MaxCalls, asm.R3, full)
	if !c.byThread() { // another thread may take it before it has its time
		b.callAt(asm.R5, 0)
		b.SetField(asm.R5, callTime, 0, asm.R3)
	}
	b.Emit(asm.Add.Imm(asm.R2, 1), asm.StoreMem(asm.R7, callsCount, asm.R2, asm.Word))
	b.Place(pushed)
	b.Emit(asm.Mov.Reg(asm.R2, asm.R1), asm.Add.Imm(asm.R2, 1),
		asm.StoreMem(asm.R7, callsPushed, asm.R2, asm.Word))
	b.Emit(asm.And.Imm(asm.R1, MaxCalls-1),
		asm.StoreMem(asm.R10, int16(c.key+16), asm.R1, asm.DWord))
	b.Emit(asm.Mul.Imm(asm.R1, callSize), asm.Add.Reg(asm.R7, asm.R1))
	if sp, ok := b.stackPointer(); ok {
		b.Emit(asm.LoadMem(asm.R1, asm.R6, sp, asm.DWord),
			asm.StoreMem(asm.R7, callsFirst+callLevel, asm.R1, asm.DWord))
	}
	b.Emit(asm.LoadMem(asm.R1, asm.R10, int16(c.word), asm.DWord),
		asm.StoreMem(asm.R7, callsFirst+callWord, asm.R1, asm.DWord))
	b.Later(func() {
		b.Place(full)
		b.Emit(asm.StoreMem(asm.R10, int16(c.slot), asm.R1, asm.DWord))
		b.count(CounterReplaced)
		b.Emit(asm.LoadMem(asm.R1, asm.R10, int16(c.slot), asm.DWord))
		b.Jump(pushed)
	})
}

// stackPointer returns where the context has the stack pointer.
func (b *builder) stackPointer() (at int16, ok bool) {
	saved, err := registersOf(b.kernel.Machine)
	return int16(8 * saved.sp), err == nil
}

// knowsLevels reports whether a call has the stack pointer of its start.
func (b *builder) knowsLevels(l *Latency) bool {
	_, known := b.stackPointer()
	return known && l.byThread()
}

// pop emits what takes the innermost call, whose place it sets R4 to, from the
// stack at R7, of which R2 is the number of calls. It stores the place in the
// stack behind the key. It goes to younger if that call has begun after the
// end, as it can where calls are those of several threads: the end is that of
// another call.
func (b *builder) pop(c *call, younger argcode.Label) {
	b.Emit(asm.LoadMem(asm.R1, asm.R7, callsPushed, asm.Word), asm.Sub.Imm(asm.R1, 1))
	b.callAt(asm.R4, 0)
	if !c.byThread() {
		b.notYounger(c, younger)
	}
	if b.knowsLevels(c.Latency) {
		take, elsewhere := b.Label(), b.Label()
		b.SetField(asm.R10, c.slot, 0, asm.R3)
		sp, _ := b.stackPointer()
		b.Emit(asm.LoadMem(asm.R5, asm.R6, sp, asm.DWord),
			asm.LoadMem(asm.R0, asm.R4, callLevel, asm.DWord))
		b.JumpIf(asm.JNE, asm.R0, asm.R5, elsewhere)
		b.Emit(asm.StoreImm(asm.R7, callsLevel, 1, asm.Word))
		b.Place(take)
		b.Later(func() {
			b.Place(elsewhere)
			b.abandon(c, take)
		})
	}
	b.Emit(asm.StoreMem(asm.R7, callsPushed, asm.R1, asm.Word), asm.Sub.Imm(asm.R2, 1))
	b.Emit(asm.StoreMem(asm.R7, callsCount, asm.R2, asm.Word))
	b.Emit(asm.And.Imm(asm.R1, MaxCalls-1),
		asm.StoreMem(asm.R10, int16(c.key+16), asm.R1, asm.DWord))
}

// hasFailed goes to a label if the call at R4 has failed. It changes R0 and R3.
func (b *builder) hasFailed(failed argcode.Label) {
	b.Emit(asm.LoadMem(asm.R0, asm.R4, callWord, asm.DWord), asm.And.Imm(asm.R0, 1<<FlagFailed))
	b.JumpIfImm(asm.JNE, asm.R0, 0, asm.R3, failed)
}

// fail emits what marks the innermost call as failed, and sets R4 to it. It
// goes to none if it has failed before. The call stays on the stack, so that an
// end that comes all the same, as of a query that is a ROLLBACK, is not taken
// for that of another call.
func (b *builder) fail(c *call, none argcode.Label) {
	b.Emit(asm.LoadMem(asm.R1, asm.R7, callsPushed, asm.Word), asm.Sub.Imm(asm.R1, 1))
	b.callAt(asm.R4, 0)
	if !c.byThread() {
		b.notYounger(c, none)
	}
	b.hasFailed(none)
	b.Emit(asm.LoadMem(asm.R0, asm.R4, callWord, asm.DWord), asm.Or.Imm(asm.R0, 1<<FlagFailed),
		asm.StoreMem(asm.R4, callWord, asm.R0, asm.DWord))
	b.Emit(asm.And.Imm(asm.R1, MaxCalls-1),
		asm.StoreMem(asm.R10, int16(c.key+16), asm.R1, asm.DWord))
}

// dropFailed emits what removes the innermost of R2 calls if it has failed. It
// goes to none if this is its end, and to unmatched if there is no other call.
func (b *builder) dropFailed(c *call, none, unmatched argcode.Label) {
	drop, dropped := b.Label(), b.Label()
	b.Emit(asm.LoadMem(asm.R1, asm.R7, callsPushed, asm.Word), asm.Sub.Imm(asm.R1, 1))
	b.callAt(asm.R4, 0)
	b.hasFailed(drop)
	b.Place(dropped)
	b.Later(func() {
		b.Place(drop)
		b.Emit(asm.StoreMem(asm.R7, callsPushed, asm.R1, asm.Word), asm.Sub.Imm(asm.R2, 1),
			asm.StoreMem(asm.R7, callsCount, asm.R2, asm.Word))
		if sp, _ := b.stackPointer(); b.knowsLevels(c.Latency) {
			b.Emit(asm.LoadMem(asm.R0, asm.R7, callsLevel, asm.Word))
			b.JumpIfImm(asm.JEq, asm.R0, 0, asm.R3, none)
			b.Emit(asm.LoadMem(asm.R5, asm.R6, sp, asm.DWord),
				asm.LoadMem(asm.R0, asm.R4, callLevel, asm.DWord))
			b.JumpIf(asm.JEq, asm.R0, asm.R5, none)
			b.JumpIfImm(asm.JEq, asm.R2, 0, asm.R3, unmatched)
			b.Jump(dropped)
		} else {
			b.Jump(none)
		}
	})
}

// notYounger goes to a label if the call at R4 has begun after the end.
func (b *builder) notYounger(c *call, younger argcode.Label) {
	b.Emit(asm.LoadMem(asm.R5, asm.R4, callTime, asm.DWord),
		asm.LoadMem(asm.R0, asm.R10, int16(c.duration), asm.DWord))
	b.JumpIfImm(asm.JEq, asm.R5, 0, asm.R3, younger)
	b.JumpIf(asm.JGT, asm.R5, asm.R0, younger)
}

// callAt sets a register to the call that is n further out than the innermost
// one, whose number is in R1. It changes R3.
func (b *builder) callAt(dst asm.Register, n int) {
	b.Emit(asm.Mov.Reg(asm.R3, asm.R1))
	if n > 0 {
		b.Emit(asm.Sub.Imm(asm.R3, int32(n)))
	}
	b.Emit(asm.And.Imm(asm.R3, MaxCalls-1), asm.Mul.Imm(asm.R3, callSize))
	b.Emit(asm.Mov.Reg(dst, asm.R7), asm.Add.Reg(dst, asm.R3), asm.Add.Imm(dst, callsFirst))
}

// abandon emits what is done if the stack pointer, in R5, is not that of the
// innermost call, in R0 and R4. If ends usually have that of their starts, and
// a call further out has it, then those further in have been left by an
// exception or a long jump: their functions lay below.
func (b *builder) abandon(c *call, take argcode.Label) {
	b.JumpIf(asm.JGT, asm.R0, asm.R5, take)
	b.Emit(asm.LoadMem(asm.R0, asm.R7, callsLevel, asm.Word))
	b.JumpIfImm(asm.JEq, asm.R0, 0, asm.R3, take)
	for n := 1; n <= maxAbandoned; n++ {
		next := b.Label()
		b.JumpIfImm(asm.JLE, asm.R2, uint64(n), asm.R3, take)
		b.callAt(asm.R0, n)
		b.Emit(asm.LoadMem(asm.R3, asm.R0, callLevel, asm.DWord))
		b.JumpIf(asm.JGT, asm.R3, asm.R5, take)
		b.JumpIf(asm.JNE, asm.R3, asm.R5, next)
		b.Emit(asm.Mov.Reg(asm.R4, asm.R0), asm.Sub.Imm(asm.R1, int32(n)),
			asm.Sub.Imm(asm.R2, int32(n)))
		b.SetField(asm.R10, c.slot, uint64(n), asm.R3)
		b.Jump(take)
		b.Place(next)
	}
	b.Jump(take)
}

// bornBefore goes to a label if this thread is older than a call. Otherwise the
// call was another thread's with the same number, and so were all that are on
// the stack at R7, which it empties.
func (b *builder) bornBefore(c *call, checked argcode.Label) {
	b.Scratch(func() {
		birth := b.Alloc(8)
		b.Call(asm.FnGetCurrentTask)
		b.Emit(asm.Mov.Reg(asm.R3, asm.R0), asm.Add.Imm(asm.R3, int32(c.Birth)))
		b.AddressOf(asm.R1, asm.R10, birth)
		b.Emit(asm.Mov.Imm(asm.R2, 8))
		b.Call(asm.FnProbeReadKernel)
		b.JumpIfImm(asm.JNE, asm.R0, 0, asm.R1, checked)
		b.Emit(asm.LoadMem(asm.R1, asm.R10, int16(birth), asm.DWord),
			asm.LoadMem(asm.R2, asm.R10, int16(c.began), asm.DWord))
		b.JumpIf(asm.JLE, asm.R1, asm.R2, checked)
		b.Emit(asm.StoreImm(asm.R7, callsCount, 0, asm.Word))
	})
}
