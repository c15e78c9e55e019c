// SPDX-License-Identifier: BSD-2-Clause

package bpfgen

import (
	"github.com/cilium/ebpf/asm"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/internal/argcode"
)

// eventWithPages emits what sends an event from a program that may sleep. It
// never sleeps while it holds a record: records come out of the ring buffer in
// the order in which they were reserved, so one that waits for a page would
// keep back the events of all others.
//
// The record is filled without sleeping. If something is not in memory, the
// record is discarded, the pages are brought in, and another record is filled,
// in which what still is not there is unreadable.
func (b *builder) eventWithPages(
	e *Events, record *Record, groups []argcode.Group, full argcode.Label,
) {
	done := b.Label()
	b.reserve(e, record, full)
	b.header(record, None)
	b.retrying, b.missing, b.PageIn = true, b.Label(), false
	b.fill(e, record, groups)
	missing := b.missing
	b.retrying, b.PageIn = false, true
	b.Place(done)

	p := b.newPager(record)
	time := None // of the hit, not of when its pages had come
	if record.Time != None {
		time = b.Alloc(8)
	}
	b.Later(func() {
		b.PageIn = false
		b.Place(missing)
		if record.Time != None {
			b.Emit(asm.LoadMem(asm.R1, asm.R7, int16(record.Time), asm.DWord),
				asm.StoreMem(asm.R10, int16(time), asm.R1, asm.DWord))
		}
		b.discard(e)
		p.bringIn(groups)
		b.reserve(e, record, full)
		b.header(record, time)
		b.fill(e, record, groups)
		b.Jump(done)
	})
}

// readWithPages stores arguments and what is behind them to a record that is
// not in the ring buffer. What is not in memory is brought in.
func (b *builder) readWithPages(record *Record, groups []argcode.Group) {
	done := b.Label()
	b.retrying, b.missing, b.PageIn = true, b.Label(), false
	b.read(record, groups)
	missing := b.missing
	b.retrying, b.PageIn = false, true
	b.Place(done)
	p := b.newPager(record)
	b.Later(func() {
		b.PageIn = false
		b.Place(missing)
		p.bringIn(groups)
		b.read(record, groups)
		b.Jump(done)
	})
}

// discard gives the record back. The reader must go past it: a record is not
// reported to a reader that waits at an earlier one.
func (b *builder) discard(e *Events) {
	flags := int32(0)
	if e.Batch {
		flags = ringNoWakeup // it comes by itself
	}
	b.Emit(asm.Mov.Reg(asm.R1, asm.R7), asm.Mov.Imm(asm.R2, flags))
	b.Call(asm.FnRingbufDiscard)
}

// pager emits what brings pages in. It changes R9.
type pager struct {
	*builder
	record *Record
	value  int // eight bytes of the stack, for what is read
	last   int // eight bytes of the stack, for an address
}

func (b *builder) newPager(record *Record) *pager {
	return &pager{builder: b, record: record, value: b.Alloc(8), last: b.Alloc(8)}
}

// bringIn brings in the pages that the record is read from.
func (p *pager) bringIn(groups []argcode.Group) {
	for _, g := range groups {
		for _, i := range g.Args {
			p.argument(i)
		}
	}
	for i := range p.record.Captures {
		p.capture(&p.record.Captures[i])
	}
}

// argument brings an argument in memory to p.value, and leaves the helper's
// answer in R0.
func (p *pager) argument(index int) {
	p.addressOf(asm.R3, index, asm.R4)
	p.ReadUser(asm.FnCopyFromUser, asm.R10, p.value, p.Args[index].Size)
}

// fetch emits the value of an argument, extended by zeros, and goes to fail if
// it cannot be read.
func (p *pager) fetch(dst asm.Register, index int, fail argcode.Label) {
	if p.record.Args[index].Failed == None {
		p.raw(dst, index)
		return
	}
	p.argument(index)
	p.JumpIfImm(asm.JNE, asm.R0, 0, asm.R1, fail)
	p.Emit(asm.LoadMem(dst, asm.R10, int16(p.value), argcode.SizeOf(p.Args[index].Size)))
}

// capture brings in the pages that a capture may reach into, up to one that
// is not available. Of a text only the beginning is known: the pages behind its
// end may be brought in for nothing.
func (p *pager) capture(c *CapturePlace) {
	done := p.Label()
	size := c.Max
	if c.Terminated() {
		size += 2
	}
	p.Set(asm.R9, uint64(size))
	if c.Length != None {
		fits := p.Label()
		p.fetch(asm.R9, c.Length, done)
		if arg := &p.Args[c.Length]; arg.Kind == argspec.Constant {
			p.Set(asm.R9, arg.Constant)
		} else {
			p.Extend(asm.R9, arg)
		}
		p.JumpIfImm(asm.JSLE, asm.R9, 0, asm.R1, done)
		p.JumpIfImm(asm.JLE, asm.R9, uint64(size), asm.R1, fits)
		p.Set(asm.R9, uint64(size))
		p.Place(fits)
	}
	p.Emit(asm.StoreMem(asm.R10, int16(p.last), asm.R9, asm.DWord))
	if p.isBytes(c.Arg) {
		p.addressOf(asm.R9, c.Arg, asm.R4)
	} else {
		p.fetch(asm.R9, c.Arg, done)
	}
	p.Emit(
		asm.LoadMem(asm.R1, asm.R10, int16(p.last), asm.DWord),
		asm.Add.Reg(asm.R1, asm.R9), asm.Sub.Imm(asm.R1, 1),
		asm.StoreMem(asm.R10, int16(p.last), asm.R1, asm.DWord),
	)
	for page := 0; ; page++ {
		p.Emit(asm.Mov.Reg(asm.R3, asm.R9))
		p.ReadUser(asm.FnCopyFromUser, asm.R10, p.value, 1)
		p.JumpIfImm(asm.JNE, asm.R0, 0, asm.R1, done)
		if page*leastPage >= size-1 {
			break // no byte can be further away, wherever the first one is
		}
		p.Emit(
			asm.Or.Imm(asm.R9, leastPage-1), asm.Add.Imm(asm.R9, 1),
			asm.LoadMem(asm.R1, asm.R10, int16(p.last), asm.DWord),
		)
		p.JumpIf(asm.JGT, asm.R9, asm.R1, done)
	}
	p.Place(done)
}
