// SPDX-License-Identifier: BSD-2-Clause

package bpfgen

import (
	"github.com/cilium/ebpf/asm"

	"github.com/gousdt/gousdt/trace/internal/expr"
)

// start emits what remembers the time of a start.
func (b *builder) start(l *Latency) {
	done, unread := b.label(), b.label()
	if r := b.matches(&l.Start); r != concerned {
		if r == unreadable {
			b.count(CounterUnreadable)
		}
		return
	}
	full := b.label()
	b.loadTerm(&l.Start, unread)
	b.scratch(func() {
		key := b.matchKey(l, &l.Start)
		at := b.alloc(8)
		b.call(asm.FnKtimeGetNs)
		b.emit(asm.StoreMem(asm.R10, int16(at), asm.R0, asm.DWord))
		b.addressOf(asm.R2, asm.R10, key)
		b.addressOf(asm.R3, asm.R10, at)
		b.emit(asm.LoadMapPtr(asm.R1, l.Starts), asm.Mov.Imm(asm.R4, 0))
		b.call(asm.FnMapUpdateElem)
		b.jumpIfImm(asm.JNE, asm.R0, 0, asm.R1, full)
	})
	b.place(done)
	b.later(func() {
		b.place(full)
		b.count(CounterStarts)
		b.jump(done)
		b.place(unread)
		b.count(CounterUnreadable)
		b.jump(done)
	})
}

// done emits what finds the start of something that ends, and returns where on
// the stack it leaves the nanoseconds between. It goes to none where there was
// no start.
func (b *builder) done(l *Latency, none label) int {
	unread, unmatched := b.label(), b.label()
	at := b.alloc(8)
	b.loadTerm(&l.Done, unread)
	b.scratch(func() {
		key := b.matchKey(l, &l.Done)
		b.call(asm.FnKtimeGetNs)
		b.emit(asm.Mov.Reg(asm.R9, asm.R0))
		b.addressOf(asm.R2, asm.R10, key)
		b.emit(asm.LoadMapPtr(asm.R1, l.Starts))
		b.call(asm.FnMapLookupElem)
		b.jumpIfImm(asm.JEq, asm.R0, 0, asm.R1, unmatched)
		b.emit(asm.LoadMem(asm.R1, asm.R0, 0, asm.DWord), asm.Sub.Reg(asm.R9, asm.R1),
			asm.StoreMem(asm.R10, int16(at), asm.R9, asm.DWord))
		b.addressOf(asm.R2, asm.R10, key)
		b.emit(asm.LoadMapPtr(asm.R1, l.Starts))
		b.call(asm.FnMapDeleteElem)
	})
	b.later(func() {
		b.place(unmatched)
		b.count(CounterUnmatched)
		b.jump(none)
		b.place(unread)
		b.count(CounterUnreadable)
		b.jump(none)
	})
	return at
}

// matches reports whether the site has what starts and ends are matched by.
func (b *builder) matches(t *expr.Term) role {
	switch {
	case t.Source != expr.Argument:
		return concerned
	case t.Index >= len(b.args):
		return unconcerned
	case !b.readable(t.Index):
		return unreadable
	default:
		return concerned
	}
}

func (b *builder) loadTerm(t *expr.Term, unread label) {
	if t.Source == expr.Argument {
		b.load(unread, t.Index)
	}
}

// matchKey emits what starts and ends are matched by to the stack.
func (b *builder) matchKey(l *Latency, t *expr.Term) int {
	key := b.alloc(16)
	// These numbers are not reported, and processes of other PID namespaces
	// would all have the number 0.
	namespace := b.kernel.PIDs
	b.kernel.PIDs = nil
	b.term(asm.R9, t)
	b.kernel.PIDs = namespace
	b.emit(asm.StoreMem(asm.R10, int16(key), asm.R9, asm.DWord))
	if l.AnyProcess {
		b.setField(asm.R10, key+8, 0, asm.R1)
		return key
	}
	b.call(asm.FnGetCurrentPidTgid)
	b.emit(asm.RSh.Imm(asm.R0, 32), asm.StoreMem(asm.R10, int16(key+8), asm.R0, asm.DWord))
	return key
}
