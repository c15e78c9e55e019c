// SPDX-License-Identifier: BSD-2-Clause

package bpfgen

import (
	"fmt"
	"slices"

	"github.com/cilium/ebpf/asm"

	"github.com/gousdt/gousdt/internal/argcode"
)

// savedRecord returns how the start's part of an event looks, the same for all
// spans that a site starts. What the ends know is not saved if all spans are
// matched by the thread.
func (b *builder) savedRecord(l *Latency) (*Record, []argcode.Group) {
	e := *b.plan.Events
	otherThread := slices.ContainsFunc(b.plan.Latencies,
		func(l *Latency) bool { return l.Spans && !l.byThread() })
	e.Header, e.Cgroup = e.Header && otherThread, e.Cgroup && otherThread
	if !e.StartStacks {
		e.Frames, e.Copy = 0, 0
	}
	record, groups, err := b.recordOf(&e, None)
	if err == nil && record.Size > l.SavedSize-8 {
		err = fmt.Errorf("what is to be kept of a start takes %d bytes, more than %d", record.Size,
			l.SavedSize-8)
	}
	if err != nil {
		b.Fail(err)
		return nil, nil
	}
	return record, groups
}

// save emits what saves the start's part of an event, and sets the time of the
// call that is at R7, less callsFirst.
func (b *builder) save(c *call, r *Record, groups []argcode.Group) {
	full, done := b.Label(), b.Label()
	b.Emit(asm.StoreMem(asm.R10, int16(c.slot), asm.R7, asm.DWord))
	setTime := func() {
		b.Call(asm.FnKtimeGetNs)
		b.Emit(asm.LoadMem(asm.R1, asm.R10, int16(c.slot), asm.DWord),
			asm.StoreMem(asm.R1, callsFirst+callTime, asm.R0, asm.DWord))
	}
	b.lookUpOrMake(c, c.Saved, full)
	b.header(r)
	b.read(r, groups)
	if r.Stack != None {
		b.stackTo(r)
	}
	if r.CopySize > 0 {
		b.stackCopy(r, c.duration) // which a start has not
	}
	setTime()
	// It says to which call this belongs: the map may forget and make anew.
	b.AddressOf(asm.R1, asm.R7, c.SavedSize-8)
	b.Emit(asm.StoreMem(asm.R1, 0, asm.R0, asm.DWord))
	b.Place(done)
	b.Later(func() {
		b.Place(full)
		b.count(CounterStarts)
		setTime()
		b.Jump(done)
	})
}

// spanTo emits what stores the call that ends here to the record at R7.
func (b *builder) spanTo(p *SpanPlace) {
	c := p.call
	done := b.Label()
	b.SetField(asm.R7, p.Found, 0, asm.R1)
	for _, word := range [][2]int{{p.Duration, c.duration}, {p.Began, c.began}, {p.Word, c.word}} {
		b.Emit(asm.LoadMem(asm.R1, asm.R10, int16(word[1]), asm.DWord),
			asm.StoreMem(asm.R7, int16(word[0]), asm.R1, asm.DWord))
	}
	b.Emit(asm.LoadMem(asm.R1, asm.R10, int16(c.word), asm.DWord))
	b.Set(asm.R2, 1<<flagSaved)
	b.Emit(asm.And.Reg(asm.R1, asm.R2))
	b.JumpIfImm(asm.JEq, asm.R1, 0, asm.R2, done)
	b.AddressOf(asm.R2, asm.R10, c.key)
	b.Emit(asm.LoadMapPtr(asm.R1, c.Saved))
	b.Call(asm.FnMapLookupElem)
	b.JumpIfImm(asm.JEq, asm.R0, 0, asm.R1, done)
	b.AddressOf(asm.R1, asm.R0, p.Size)
	b.Emit(asm.LoadMem(asm.R1, asm.R1, 0, asm.DWord),
		asm.LoadMem(asm.R2, asm.R10, int16(c.began), asm.DWord))
	b.JumpIf(asm.JNE, asm.R1, asm.R2, done)
	b.Emit(asm.Mov.Reg(asm.R3, asm.R0), asm.Mov.Imm(asm.R2, int32(p.Size)))
	b.AddressOf(asm.R1, asm.R7, p.Saved)
	b.Call(asm.FnProbeReadKernel)
	b.JumpIfImm(asm.JNE, asm.R0, 0, asm.R1, done)
	b.SetField(asm.R7, p.Found, 1, asm.R1)
	b.Place(done)
}
