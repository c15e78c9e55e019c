// SPDX-License-Identifier: BSD-2-Clause

package bpfgen

import (
	"github.com/cilium/ebpf/asm"

	"github.com/gousdt/gousdt/internal/argcode"
	"github.com/gousdt/gousdt/trace/internal/expr"
)

// start emits what remembers the time of a start.
func (b *builder) start(l *Latency) {
	done, unread := b.Label(), b.Label()
	if r := b.matches(&l.Start); r != concerned {
		if r == unreadable {
			b.count(CounterUnreadable)
		}
		return
	}
	full := b.Label()
	b.loadTerm(&l.Start, unread)
	b.Scratch(func() {
		key := b.matchKey(l, &l.Start)
		at := b.Alloc(8)
		b.Call(asm.FnKtimeGetNs)
		b.Emit(asm.StoreMem(asm.R10, int16(at), asm.R0, asm.DWord))
		b.AddressOf(asm.R2, asm.R10, key)
		b.AddressOf(asm.R3, asm.R10, at)
		b.Emit(asm.LoadMapPtr(asm.R1, l.Starts), asm.Mov.Imm(asm.R4, 0))
		b.Call(asm.FnMapUpdateElem)
		b.JumpIfImm(asm.JNE, asm.R0, 0, asm.R1, full)
	})
	b.Place(done)
	b.Later(func() {
		b.Place(full)
		b.count(CounterStarts)
		b.Jump(done)
		b.Place(unread)
		b.count(CounterUnreadable)
		b.Jump(done)
	})
}

// done emits what finds the start of something that ends, and returns where on
// the stack it leaves the nanoseconds between. It goes to none where there was
// no start.
func (b *builder) done(l *Latency, none argcode.Label) int {
	unread, unmatched := b.Label(), b.Label()
	at := b.Alloc(8)
	b.loadTerm(&l.Done, unread)
	b.Scratch(func() {
		key := b.matchKey(l, &l.Done)
		b.Call(asm.FnKtimeGetNs)
		b.Emit(asm.Mov.Reg(asm.R9, asm.R0))
		b.AddressOf(asm.R2, asm.R10, key)
		b.Emit(asm.LoadMapPtr(asm.R1, l.Starts))
		b.Call(asm.FnMapLookupElem)
		b.JumpIfImm(asm.JEq, asm.R0, 0, asm.R1, unmatched)
		b.Emit(asm.LoadMem(asm.R1, asm.R0, 0, asm.DWord), asm.Sub.Reg(asm.R9, asm.R1),
			asm.StoreMem(asm.R10, int16(at), asm.R9, asm.DWord))
		b.AddressOf(asm.R2, asm.R10, key)
		b.Emit(asm.LoadMapPtr(asm.R1, l.Starts))
		b.Call(asm.FnMapDeleteElem)
	})
	b.Later(func() {
		b.Place(unmatched)
		b.count(CounterUnmatched)
		b.Jump(none)
		b.Place(unread)
		b.count(CounterUnreadable)
		b.Jump(none)
	})
	return at
}

// matches reports whether the site has what starts and ends are matched by.
func (b *builder) matches(t *expr.Term) role {
	switch {
	case t.Source != expr.Argument:
		return concerned
	case t.Index >= len(b.Args):
		return unconcerned
	case !b.Readable(t.Index):
		return unreadable
	default:
		return concerned
	}
}

func (b *builder) loadTerm(t *expr.Term, unread argcode.Label) {
	if t.Source == expr.Argument {
		b.load(unread, t.Index)
	}
}

// matchKey emits what starts and ends are matched by to the stack.
func (b *builder) matchKey(l *Latency, t *expr.Term) int {
	key := b.Alloc(16)
	// These numbers are not reported, and processes of other PID namespaces
	// would all have the number 0.
	namespace := b.kernel.PIDs
	b.kernel.PIDs = nil
	b.term(asm.R9, t)
	b.kernel.PIDs = namespace
	b.Emit(asm.StoreMem(asm.R10, int16(key), asm.R9, asm.DWord))
	if l.AnyProcess {
		b.SetField(asm.R10, key+8, 0, asm.R1)
		return key
	}
	b.Call(asm.FnGetCurrentPidTgid)
	b.Emit(asm.RSh.Imm(asm.R0, 32), asm.StoreMem(asm.R10, int16(key+8), asm.R0, asm.DWord))
	return key
}
