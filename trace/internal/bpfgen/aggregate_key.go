// SPDX-License-Identifier: BSD-2-Clause

package bpfgen

import (
	"github.com/cilium/ebpf/asm"

	"github.com/gousdt/gousdt/internal/argcode"
	"github.com/gousdt/gousdt/trace/internal/expr"
)

// key emits a part of a key to the stack and returns its class.
func (b *builder) key(a *Aggregation, t *expr.Term, at, size int, unread argcode.Label) class {
	switch t.Source {
	case expr.Command:
		b.zero(at, size)
		b.command(asm.R10, at)
	case expr.String:
		b.zero(at, size)
		if t.HasLength {
			b.readSized(t, at, unread)
			break
		}
		whole := b.Label()
		b.readText(asm.R10, at, t.Max+2, func(dst asm.Register) { b.raw(dst, t.Index) })
		b.JumpIfImm(asm.JSLT, asm.R0, 0, asm.R1, unread)
		b.JumpIfImm(asm.JSLT, asm.R0, uint64(t.Max+2), asm.R1, whole)
		b.Emit(asm.StoreImm(asm.R10, int16(at+t.Max), 0, asm.Byte),
			asm.StoreImm(asm.R10, int16(at+t.Max+1), 1, asm.Byte))
		b.Place(whole)
	case expr.Stack:
		b.stackKey(a.Stacks, at, unread)
		b.numbers()
		b.Emit(asm.RSh.Imm(asm.R0, 32), asm.StoreMem(asm.R10, int16(at+8), asm.R0, asm.DWord))
	case expr.Provider:
		b.siteNumber(asm.R1, uint64(a.Names(b.site.Provider)))
		b.Emit(asm.StoreMem(asm.R10, int16(at), asm.R1, asm.DWord))
	case expr.Probe:
		b.siteNumber(asm.R1, uint64(a.Names(b.site.Provider+":"+b.site.Name)))
		b.Emit(asm.StoreMem(asm.R10, int16(at), asm.R1, asm.DWord))
	case expr.Site:
		b.siteID(asm.R1)
		b.Emit(asm.StoreMem(asm.R10, int16(at), asm.R1, asm.DWord))
	default:
		c := b.term(asm.R9, t)
		b.Emit(asm.StoreMem(asm.R10, int16(at), asm.R9, asm.DWord))
		return c
	}
	return unsigned
}

// stackKey emits the number of the user stack to a key, with that of the
// generation if it is not an error.
func (b *builder) stackKey(s *Stacks, at int, none argcode.Label) {
	odd, chosen, failed := b.Label(), b.Label(), b.Label()
	b.Emit(asm.StoreImm(asm.R10, int16(at), 0, asm.Word))
	b.lookUp(s.Present, at)
	b.JumpIfImm(asm.JEq, asm.R0, 0, asm.R1, none) // which cannot be
	b.Emit(asm.LoadMem(asm.R9, asm.R0, 0, asm.DWord))
	b.JumpIfImm(asm.JSet, asm.R9, 1, asm.R1, odd)
	b.Emit(asm.LoadMapPtr(asm.R2, s.Even))
	b.Jump(chosen)
	b.Place(odd)
	b.Emit(asm.LoadMapPtr(asm.R2, s.Odd))
	b.Place(chosen)
	b.Emit(asm.Mov.Reg(asm.R1, asm.R6), asm.Mov.Imm(asm.R3, userStack))
	b.Call(asm.FnGetStackid)
	b.JumpIfImm(asm.JSLT, asm.R0, 0, asm.R1, failed)
	b.Emit(asm.LSh.Imm(asm.R9, 32), asm.Or.Reg(asm.R0, asm.R9))
	b.Place(failed)
	b.Emit(asm.StoreMem(asm.R10, int16(at), asm.R0, asm.DWord))
}

// readSized brings a text whose length is in an argument to a key, and marks it
// if it is cut.
func (b *builder) readSized(t *expr.Term, at int, unread argcode.Label) {
	fits := b.Label()
	b.value(asm.R2, t.Length)
	b.JumpIfImm(asm.JSLT, asm.R2, 0, asm.R1, unread)
	b.JumpIfImm(asm.JLE, asm.R2, uint64(t.Max), asm.R1, fits)
	b.Emit(asm.Mov.Imm(asm.R2, int32(t.Max)), asm.StoreImm(asm.R10, int16(at+t.Max+1), 1, asm.Byte))
	b.Place(fits)
	b.readMemory(at, unread, func() { b.raw(asm.R3, t.Index) })
}

// zero clears a part of the stack: bytes behind the end of a text would tell
// equal texts apart.
func (b *builder) zero(at, size int) {
	b.Emit(asm.Mov.Imm(asm.R1, 0))
	for i := 0; i < size; i += 8 {
		b.Emit(asm.StoreMem(asm.R10, int16(at+i), asm.R1, asm.DWord))
	}
}

// term emits the value of a term that is a number, and returns its class. An
// argument in memory must be on the stack.
func (b *builder) term(dst asm.Register, t *expr.Term) class {
	o, _ := b.site.operand(b.plan.Kernel, *t)
	switch {
	case o.known && o.value.IsFloat:
		b.Set(dst, b.Args[t.Index].Constant)
	case o.known:
		b.Set(dst, o.value.Bits)
	default:
		b.operand(dst, &o)
	}
	return o.class
}
