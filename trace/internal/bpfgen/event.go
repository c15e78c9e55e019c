// SPDX-License-Identifier: BSD-2-Clause

package bpfgen

import (
	"debug/elf"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/internal/argcode"
)

// Events says what to send for each hit.
type Events struct {
	Ring     int  // descriptor of the ring buffer
	RingSize int  // in bytes
	Cgroup   bool // with the ID of the control group
	Header   bool // with the time, the process, the thread, its name and the processor
	Frames   int  // of the user stack, 0 for none
	Copy     int  // bytes of the user stack, a multiple of CopyUnit, with the registers; 0 for none

	// StartStacks: the stack of a call's start is kept, too.
	StartStacks bool

	// Captures returns the memory to copy for the arguments of a site, at most
	// one for each.
	Captures func(*Site) []Capture

	Sampling *Sampling // nil: every hit
	Share    *Share    // nil: the first to come have the room

	// Next is the descriptor of a program array whose first program a hit goes
	// on with when it has been sent; 0 for none.
	Next int

	// Batch: the reader polls, and is woken only when the ring buffer fills.
	Batch bool
}

// The flags of bpf_ringbuf_submit and bpf_ringbuf_query.
const (
	ringNoWakeup    = 1
	ringForceWakeup = 2
	ringAvailable   = 0 // BPF_RB_AVAIL_DATA

	// ringHeader is what a record takes beside its own size
	// (BPF_RINGBUF_HDR_SZ).
	ringHeader = 8
)

var errRecord = errors.New("an event would be larger than half of the ring buffer: capture less, or make the ring buffer larger")

// event emits what sends an event, and returns how its record looks.
func (b *builder) event(e *Events) *Record {
	full, done := b.Label(), b.Label()
	saved := None
	if b.ending != nil {
		saved = b.ending.SavedSize - 8
	}
	record, groups := b.recordOf(e, saved)
	if record.Size > e.RingSize/2 || record.Size > math.MaxInt16 && !b.reachable(record) {
		b.Fail(errRecord)
	}

	if e.Sampling != nil {
		b.chosen = b.sample(e.Sampling, done)
	}
	b.reserve(e, record, full)
	b.header(record)
	b.fill(e, record, groups)
	b.Place(done)

	b.Aside(full, done, func() {
		b.count(CounterEvents)
		b.loseOf(e)
	})
	return record
}

// recordOf returns the layout of a record of this hit, and the arguments that
// are read to it. saved is the size of a call's saved start, or None.
func (b *builder) recordOf(e *Events, saved int) (*Record, []argcode.Group) {
	f := b.fetcher
	var unread []int
	for i := range f.sent {
		if f.Readable(i) && f.inMemory(i) && !f.loaded[i] {
			unread = append(unread, i)
		}
	}
	groups := f.groups(unread)
	record := f.layout(e, b.captures(e), groups, saved)
	if record.Span != nil {
		record.Span.call = b.ending
	}
	return record, groups
}

// captures returns what is captured at this site.
func (b *builder) captures(e *Events) []Capture {
	switch {
	case e.Captures == nil || b.ending != nil && b.site.NoneAtEnd:
		return nil
	case b.lookedUp:
		return b.site.captures
	}
	return b.site.capturesOf(e, false)
}

// capturesOf returns what can be captured at a site. In code that sites share,
// structures get room for larger ones.
func (s *Site) capturesOf(e *Events, shared bool) (captures []Capture) {
	for _, c := range e.Captures(s) {
		switch {
		case c.Arg < len(s.Args) && argcode.Addressable(&s.Args[c.Arg], s.machine):
			size := s.Args[c.Arg].Size
			if shared && size <= c.Max {
				size = 1 << bits.Len(uint(max(size, 1)-1))
			} else {
				size = min(size, c.Max)
			}
			captures = append(captures, Capture{Arg: c.Arg, Max: size, Length: None})
		case s.readable(c.Arg) && (c.Length == None || s.readable(c.Length)):
			captures = append(captures, c)
		}
	}
	return captures
}

func (b *builder) reserve(e *Events, record *Record, full argcode.Label) {
	b.share(e, record.Size, full)
	b.Emit(asm.LoadMapPtr(r1, e.Ring), set(r2, int32(record.Size)), set(r3, 0))
	b.Call(asm.FnRingbufReserve)
	b.JumpIfImm(asm.JEq, r0, 0, r1, full)
	b.Emit(mov(r7, r0))
}

// fill stores and sends all of a record but its header.
func (b *builder) fill(e *Events, record *Record, groups []argcode.Group) {
	b.read(record, groups)
	if record.Span != nil {
		b.spanTo(record.Span)
	}
	if record.Stack != None {
		b.stackTo(record)
	}
	if record.CopySize > 0 {
		keep := None
		if record.Span != nil {
			keep = record.Span.call.slot // more may be done at this hit
		} else if b.lookedUp {
			keep = b.Alloc(8)
		}
		b.stackCopy(record, keep)
	}
	if b.chosen != nil {
		b.take(e.Sampling, b.chosen, record.Weight)
	}
	b.submit(e, record.Size)
}

// read stores the arguments to a record, and what they point to.
func (b *builder) read(record *Record, groups []argcode.Group) {
	b.arguments(record, groups)
	for i := range record.Captures {
		b.capture(record, &record.Captures[i])
	}
}

// reachable reports whether all that is stored by an instruction lies within
// the reach of its offset.
func (b *builder) reachable(r *Record) bool {
	for _, p := range r.Args {
		if p.Value > math.MaxInt16 && p.Failed == None {
			return false
		}
	}
	return r.Stack <= math.MaxInt16 && (len(r.Captures) == 0 ||
		r.Captures[len(r.Captures)-1].Status <= math.MaxInt16)
}

// header stores what a record begins with.
func (b *builder) header(r *Record) {
	b.siteID(r1)
	b.Emit(storeN(r7, 0, r1, asm.Word))
	if r.CPU != None {
		b.processorID()
		b.Emit(storeN(r7, r.CPU, r0, asm.Word))
	}
	if r.Time != None {
		b.Call(asm.FnKtimeGetNs)
		b.Emit(store(r7, r.Time, r0))
	}
	if r.Cgroup != None {
		b.Call(asm.FnGetCurrentCgroupId)
		b.Emit(store(r7, r.Cgroup, r0))
	}
	if r.Process != None {
		b.numbers()
		b.Emit(store(r7, r.Process, r0))
	}
	if r.Command != None {
		b.command(r7, r.Command)
	}
}

func (b *builder) arguments(r *Record, groups []argcode.Group) {
	first, last := r.Size, 0
	for i, p := range r.Args {
		if p.Failed != None {
			first, last = min(first, p.Failed&^7), max(last, p.Failed)
			continue
		}
		if p.Value != None {
			b.raw(r1, i)
			b.Emit(storeN(r7, p.Value, r1, argcode.SizeOf(b.Args[i].Size)))
		}
	}
	for at := first; at <= last; at += 8 {
		b.SetField(r7, at, 0, r1)
	}
	for _, g := range groups {
		b.fetcher.read(&g, r7, r.Args[g.Args[0]].Value, func(index int) {
			b.Emit(storeImm(r7, r.Args[index].Failed, 1, asm.Byte))
		})
	}
}

// fromRecord emits the value of an argument, extended by zeros, that is on the
// stack or has been read to the record. One that could not be read is 0.
func (b *builder) fromRecord(dst asm.Register, r *Record, index int) {
	p := r.Args[index]
	if p.Failed == None {
		b.raw(dst, index)
		return
	}
	base, offset := r7, p.Value
	if offset > math.MaxInt16 {
		b.AddressOf(dst, base, offset)
		base, offset = dst, 0
	}
	b.Emit(loadN(dst, base, offset, b.width(index)))
}

func (b *builder) submit(e *Events, size int) {
	b.Emit(set(r2, 0))
	if e.Batch {
		b.wakeSeldom(e, size)
	}
	b.Emit(mov(r1, r7))
	b.Call(asm.FnRingbufSubmit)
	if e.Next != 0 {
		b.Emit(mov(r1, r6), asm.LoadMapPtr(r2, e.Next), set(r3, 0))
		b.Call(asm.FnTailCall)
	}
}

// wakeSeldom sets R2 so that the reader is woken only where this record fills
// another quarter of the ring buffer. Should records of several processors jump
// over that point at the same moment, the reader polls a little later.
func (b *builder) wakeSeldom(e *Events, size int) {
	quiet := b.Label()
	b.Emit(asm.LoadMapPtr(r1, e.Ring), set(r2, ringAvailable))
	b.Call(asm.FnRingbufQuery)
	b.Emit(asm.And.Imm(r0, int32(e.RingSize/4-1)), set(r2, ringNoWakeup))
	b.JumpIfImm(asm.JGE, r0, uint64(size+ringHeader), r1, quiet)
	b.Emit(set(r2, ringForceWakeup))
	b.Place(quiet)
}

// capture copies the bytes that a pointer leads to into the record.
func (b *builder) capture(r *Record, c *CapturePlace) {
	pointer := func(dst asm.Register) {
		if b.isBytes(c.Arg) {
			b.addressOf(dst, c.Arg, r4)
			return
		}
		b.fromRecord(dst, r, c.Arg)
	}
	if c.Terminated() {
		b.readText(c.Arg, r7, c.Data, c.Max+2, pointer)
		b.Emit(store(r7, c.Status, r0))
		return
	}
	failed, done := b.Label(), b.Label()
	b.captureLength(r, c, failed)
	pointer(r3)
	b.setCaptureSize(c)
	b.AddressOf(r1, r7, c.Data)
	b.Call(asm.FnProbeReadUser)
	b.JumpIfImm(asm.JNE, r0, 0, r1, failed)
	b.Emit(store(r7, c.Status, r9))
	b.Place(done)
	b.Aside(failed, done, func() { b.SetField(r7, c.Status, ^uint64(unix.EFAULT-1), r1) })
}

// captureLength sets R9 to the number of bytes asked for.
func (b *builder) captureLength(r *Record, c *CapturePlace, failed argcode.Label) {
	switch {
	case b.isBytes(c.Arg):
		site := b.site
		if b.lookedUp {
			site = site.original
		}
		b.siteNumber(r9, uint64(site.Args[c.Arg].Size))
		return
	case c.Length == None:
		b.Set(r9, uint64(c.Max))
		return
	}
	if p := r.Args[c.Length]; p.Failed != None {
		// A length that could not be read is not 0.
		b.Emit(loadN(r1, r7, p.Failed, asm.Byte))
		b.JumpIfImm(asm.JNE, r1, 0, r2, failed)
	}
	if arg := &b.Args[c.Length]; arg.Kind == argspec.Constant {
		b.Set(r9, arg.Constant)
	} else {
		b.fromRecord(r9, r, c.Length)
		b.Extend(r9, arg)
	}
	// The status has no room for lengths that a signed number has not, and a
	// negative length is none.
	b.JumpIfImm(asm.JSLT, r9, 0, r1, failed)
}

// setCaptureSize sets R2 to the bytes asked for, or to the room if that is
// less.
func (b *builder) setCaptureSize(c *CapturePlace) {
	if c.Length == None && !(b.lookedUp && b.isBytes(c.Arg)) {
		b.Emit(set(r2, int32(c.Max)))
		return
	}
	fits := b.Label()
	b.Emit(mov(r2, r9))
	b.JumpIfImm(asm.JLE, r2, uint64(c.Max), r1, fits)
	b.Emit(set(r2, int32(c.Max)))
	b.Place(fits)
}

// BPF_F_USER_STACK of bpf_get_stack and bpf_get_stackid.
const userStack = 1 << 8

// CopyUnit is what copies of stacks are multiples of. It divides the size of a
// page on every machine.
const CopyUnit = leastPage

// Registers says where registers are: in words of struct pt_regs, or in bytes
// of a record, which has 8 for each.
type Registers struct {
	Machine elf.Machine
	PC, SP  int
	General []int // by the numbers that DWARF gives them; None for one that is always 0
}

// registersOf returns the words of a kernel. Package argspec has the same.
func registersOf(machine elf.Machine) (Registers, error) {
	r := Registers{Machine: machine}
	sequence := func(from, count int) {
		for i := range count {
			r.General = append(r.General, from+i)
		}
	}
	switch machine {
	case elf.EM_X86_64:
		r.PC, r.SP = 16, 19
		r.General = []int{10, 12, 11, 5, 13, 14, 4, 19, 9, 8, 7, 6, 3, 2, 1, 0}
	case elf.EM_AARCH64:
		r.PC, r.SP = 32, 31
		sequence(0, 32)
	case elf.EM_RISCV:
		r.PC, r.SP = 0, 2
		sequence(0, 32)
		r.General[0] = None // the word is the pc's
	case elf.EM_S390:
		r.PC, r.SP = 2, 18
		sequence(3, 16)
	default:
		return r, fmt.Errorf("stacks cannot be copied: it is not known where a kernel for %v saves the registers", machine)
	}
	return r, nil
}

// inRecord places the registers in a record from an offset on, and returns how
// many bytes they take.
func (r Registers) inRecord(at int) (placed *Registers, size int) {
	placed = &Registers{Machine: r.Machine, PC: at, General: slices.Clone(r.General)}
	size = 8
	for n, word := range r.General {
		if word == None {
			continue
		}
		if word == r.SP {
			placed.SP = at + size
		}
		placed.General[n] = at + size
		size += 8
	}
	return placed, size
}

// stackTo has the kernel walk the user stack.
func (b *builder) stackTo(record *Record) {
	b.Emit(mov(r1, r6))
	b.AddressOf(r2, r7, record.Stack+StackData)
	b.Emit(set(r3, int32(8*record.Frames)), set(r4, userStack))
	b.Call(asm.FnGetStack)
	b.Emit(store(r7, record.Stack, r0))
}

// stackCopy emits what saves the registers, and copies the stack unit by unit,
// up to one that is not there. It changes R8 unless there is a place on the
// stack to keep it.
func (b *builder) stackCopy(record *Record, keep int) {
	saved, _ := registersOf(b.kernel.Machine) // layout has failed if it is not known
	word := func(dst asm.Register, n int) {
		b.Emit(load(dst, r6, 8*n))
	}
	word(r1, saved.PC)
	b.Emit(store(r7, record.Registers.PC, r1))
	for n, at := range record.Registers.General {
		if at != None {
			word(r1, saved.General[n])
			b.Emit(store(r7, at, r1))
		}
	}

	if keep != None {
		if b.site.Fixed {
			b.Emit(set(r8, 0)) // there is nothing in it
		}
		b.Emit(toStack(keep, r8))
	}

	// R9 is the beginning of the unit that the stack pointer is in, R8 how much
	// of it is below. As much is copied at the end, so that all sizes but the
	// last are constant and no read crosses into a page that may not be there.
	done := b.Label()
	word(r9, saved.SP)
	b.Emit(mov(r8, r9), asm.And.Imm(r8, CopyUnit-1), asm.And.Imm(r9, -CopyUnit))
	last := record.CopySize - CopyUnit
	for copied := 0; copied <= last; copied += CopyUnit {
		b.SetField(r7, record.Copied, uint64(copied), r1)
		b.AddressOf(r1, r7, record.Copy+copied)
		if copied < last {
			b.Emit(set(r2, CopyUnit))
		} else {
			b.Emit(mov(r2, r8))
		}
		b.AddressOf(r3, r9, copied)
		b.Call(asm.FnProbeReadUser)
		b.JumpIfImm(asm.JNE, r0, 0, r1, done)
	}
	b.Emit(asm.Add.Imm(r8, int32(last)), store(r7, record.Copied, r8))
	b.Place(done)
	if keep != None {
		b.Emit(fromStack(r8, keep))
	}
}
