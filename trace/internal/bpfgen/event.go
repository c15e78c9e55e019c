// SPDX-License-Identifier: BSD-2-Clause

package bpfgen

import (
	"cmp"
	"debug/elf"
	"errors"
	"math"
	"math/bits"
	"unsafe"

	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/internal/argcode"
	"github.com/gousdt/gousdt/internal/unwind"
)

// Events says what to send for each hit.
type Events struct {
	Ring     int  // descriptor of the ring buffer
	RingSize int  // in bytes
	Cgroup   bool // with the ID of the control group
	Header   bool // with the time, the process, the thread, its name and the processor
	Frames   int  // of the user stack, 0 for none
	Copy     int  // bytes of the user stack, a multiple of CopyUnit, with the registers; 0 for none

	// StartStacks says that the stack of a call's start is kept, too.
	StartStacks bool

	// Exits has ExitProbe tell the reader of exits.
	Exits bool

	// Captures returns the memory to copy for the arguments of a site, at most
	// one for each.
	Captures func(*Site) []Capture

	Sampling *Sampling // nil: every hit
	Share    *Share    // nil: not shared out

	// Next is the descriptor of a program array, whose first program runs after
	// the event has been sent; 0 for none.
	Next int

	// Known is the descriptor of a map of known stacks, whose hits are counted
	// there and not sent; 0 for none. See unwind.KnownStacks.
	Known int

	// Batch says that the reader naps before it reads, and is woken when the
	// ring buffer fills meanwhile.
	Batch bool
}

// The flags of bpf_ringbuf_submit and bpf_ringbuf_query.
const (
	ringForceWakeup = 2
	ringAvailable   = 0 // BPF_RB_AVAIL_DATA

	// ringHeader is what a record takes beside its own size
	// (BPF_RINGBUF_HDR_SZ).
	ringHeader = 8
)

var errRecord = errors.New("an event would be larger than half of the ring buffer: capture less, or make the ring buffer larger")

func (b *builder) event(e *Events) *Record {
	full, done := b.Label(), b.Label()
	saved := None
	if b.ending != nil {
		saved = b.ending.SavedSize - 8
	}
	r, groups := b.recordOf(e, saved)
	if r.Size > e.RingSize/2 || r.Size > math.MaxInt16 && !r.isReachable() {
		b.Fail(errRecord)
	}
	if e.Sampling != nil {
		b.chosen = b.sample(e.Sampling, done)
	}
	b.known(e, done)
	b.share(e, r.Size, full)
	b.Call(asm.FnRingbufReserve, argcode.Map(e.Ring), r.Size, 0)
	b.JumpIfImm(asm.JEq, r0, 0, r1, full)
	b.Emit(mov(r7, r0))
	b.write(r, groups)
	if b.chosen != nil {
		b.take(e.Sampling, b.chosen, r.Weight)
	}
	b.submit(e, r.Size)
	b.Place(done)

	b.Aside(full, done, func() {
		b.count(CounterEvents)
		if e.Share != nil {
			b.owner(e.Share, done)
			b.Increment(r0, ownerLost)
		}
	})
	return r
}

// recordOf returns the layout of a record of this hit, and the arguments that
// are read to it. saved is as in layout.
func (b *builder) recordOf(e *Events, saved int) (*Record, []argcode.Group) {
	var unread []int
	for i := range b.sent {
		if b.Readable(i) && b.inMemory(i) && !b.loaded[i] {
			unread = append(unread, i)
		}
	}
	groups := b.groups(unread)
	var captures []Capture
	switch {
	case e.Captures == nil || b.ending != nil && b.site.NoneAtEnd:
	case b.lookedUp():
		captures = b.site.captures
	default:
		captures = b.site.capturesOf(e, false)
	}
	record := b.layout(e, captures, groups, saved)
	if record.Span != nil {
		record.Span.call = b.ending
	}
	return record, groups
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

// isReachable reports whether the 16-bit offsets of instructions reach all that
// single instructions store.
func (r *Record) isReachable() bool {
	farthest := r.Stack
	for _, p := range r.Args {
		if p.Failed == None {
			farthest = max(farthest, p.Value)
		}
	}
	for _, c := range r.Captures {
		farthest = max(farthest, c.Status)
	}
	return farthest <= math.MaxInt16
}

// write stores all parts of the record at R7 but its weight.
func (b *builder) write(r *Record, groups []argcode.Group) {
	b.siteID(r1)
	b.Emit(storeN(r7, 0, r1, asm.Word))
	part := func(at int, size asm.Size, emit func()) {
		if at != None {
			emit()
			b.Emit(storeN(r7, at, r0, size))
		}
	}
	part(r.CPU, asm.Word, b.processorID)
	part(r.Time, asm.DWord, func() { b.Call(asm.FnKtimeGetNs) })
	part(r.Cgroup, asm.DWord, func() { b.Call(asm.FnGetCurrentCgroupId) })
	part(r.Process, asm.DWord, b.numbers)
	if r.Command != None {
		b.command(r7, r.Command)
	}
	b.readArguments(r, groups)
	if r.Span != nil {
		b.spanTo(r.Span)
	}
	if r.Stack != None {
		b.Call(asm.FnGetStack, r6, placeAt(r7, r.Stack+StackData), 8*r.Frames, userStack)
		b.Emit(store(r7, r.Stack, r0))
	}
	if r.CopySize > 0 {
		b.stackCopy(r)
	}
}

func (b *builder) readArguments(r *Record, groups []argcode.Group) {
	first, last := r.Size, 0
	for i, p := range r.Args {
		switch {
		case p.Failed != None:
			first, last = min(first, p.Failed&^7), max(last, p.Failed)
		case p.Value != None:
			b.raw(r1, i)
			b.Emit(storeN(r7, p.Value, r1, argcode.SizeOf(b.Args[i].Size)))
		}
	}
	for at := first; at <= last; at += 8 {
		b.SetField(r7, at, 0, r1)
	}
	for _, g := range groups {
		b.read(&g, r7, r.Args[g.Args[0]].Value, func(index int) {
			b.Emit(storeImm(r7, r.Args[index].Failed, 1, asm.Byte))
		})
	}
	for i := range r.Captures {
		b.capture(r, &r.Captures[i])
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

// known emits code that follows the trails of known stacks. It goes to done if
// the hit has been counted.
func (b *builder) known(e *Events, done argcode.Label) {
	// Only in the initial namespace is the number of a process its own.
	saved := savedRegisters[b.kernel.Machine]
	if e.Known == 0 || b.kernel.PIDs != nil || saved.SP == None {
		return
	}
	again, frame, have, miss, counted := b.Label(), b.Label(), b.Label(), b.Label(), b.Label()
	var node unwind.KnownNode
	next, offset := int(unsafe.Offsetof(node.Next)), int(unsafe.Offsetof(node.Offset))
	b.Scratch(func() {
		key, keep := b.Alloc(16), b.Alloc(8)
		b.Call(asm.FnGetCurrentPidTgid)
		b.Emit(asm.RSh.Imm(r0, 32), toStack(key, r0), load(r1, r6, 8*saved.PC), toStack(key+8, r1),
			toStack(keep, r8), set(r8, unwind.MaxKnownWords+1), load(r9, r6, 8*saved.SP))
		b.Place(again)
		b.LookUp(e.Known, key, miss)
		b.Emit(load(r1, r0, next))
		b.JumpIfImm(asm.JEq, r1, 0, r2, counted)
		b.Emit(toStack(key, r1), load(r7, r0, int(unsafe.Offsetof(node.Mask))), load(r3, r0, offset))
		b.JumpIfImm(asm.JEq, r3, unwind.InFramePointer, r1, frame)
		b.Emit(asm.Add.Reg(r3, r9))
		b.CallOr(miss, asm.FnProbeReadUser, onStack(key+8), 8)
		b.Place(have)
		b.Emit(asm.And.Reg(r7, r9), fromStack(r1, key+8), asm.Sub.Reg(r1, r7), toStack(key+8, r1),
			asm.Sub.Imm(r8, 1))
		b.JumpIfImm(asm.JNE, r8, 0, r1, again)
		b.Place(miss)
		b.Emit(fromStack(r8, keep))
		b.Aside(frame, have, func() {
			_, pointer := unwind.Pointers(b.kernel.Machine)
			b.Emit(load(r1, r6, 8*saved.General[pointer]), toStack(key+8, r1))
		})
		b.Aside(counted, done, func() {
			b.Increment(r0, int(unsafe.Offsetof(node.Count)))
			b.Emit(fromStack(r8, keep))
		})
	})
}

// submit sends the record at R7. It wakes a reader that waits for it, and in a
// batch one that naps when this record fills another quarter of the ring
// buffer. If records of several processors pass that point at the same moment,
// none may wake it; its nap then ends a little later.
func (b *builder) submit(e *Events, size int) {
	b.Emit(set(r2, 0))
	if e.Batch {
		b.Call(asm.FnRingbufQuery, argcode.Map(e.Ring), ringAvailable)
		b.Emit(asm.And.Imm(r0, int32(e.RingSize/4-1)), set(r2, 0))
		b.If(asm.JLT, r0, uint64(size+ringHeader), r1, func() { b.Emit(set(r2, ringForceWakeup)) })
	}
	b.Call(asm.FnRingbufSubmit, r7)
	if e.Next != 0 {
		b.Call(asm.FnTailCall, r6, argcode.Map(e.Next), 0)
	}
}

func (b *builder) capture(r *Record, c *CapturePlace) {
	pointer := func(dst asm.Register) {
		if b.isBytes(c.Arg) {
			b.addressOf(dst, c.Arg, r4)
		} else {
			b.fromRecord(dst, r, c.Arg)
		}
	}
	if c.Terminated() {
		b.readText(c.Arg, r7, c.Data, c.Max+2, pointer)
		b.Emit(store(r7, c.Status, r0))
		return
	}
	failed, done := b.Label(), b.Label()
	b.captureLength(r, c, failed)
	pointer(r3)
	if c.Length == None && !(b.lookedUp() && b.isBytes(c.Arg)) {
		b.Emit(set(r2, int32(c.Max)))
	} else {
		b.Emit(mov(r2, r9))
		b.If(asm.JGT, r2, uint64(c.Max), r1, func() { b.Emit(set(r2, int32(c.Max))) })
	}
	b.CallOr(failed, asm.FnProbeReadUser, placeAt(r7, c.Data))
	b.Emit(store(r7, c.Status, r9))
	b.Place(done)
	b.Aside(failed, done, func() { b.SetField(r7, c.Status, ^uint64(unix.EFAULT-1), r1) })
}

// captureLength sets R9 to the number of bytes asked for.
func (b *builder) captureLength(r *Record, c *CapturePlace, failed argcode.Label) {
	switch {
	case b.isBytes(c.Arg):
		b.siteNumber(r9, uint64(cmp.Or(b.site.original, b.site).Args[c.Arg].Size))
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
	// A negative length means that there is none, and the status cannot hold a
	// length of 2^63 or more.
	b.JumpIfImm(asm.JSLT, r9, 0, r1, failed)
}

// BPF_F_USER_STACK of bpf_get_stack and bpf_get_stackid.
const userStack = 1 << 8

// CopyUnit is the unit of copies of stacks, in bytes. It divides the size of a
// page on every machine.
const CopyUnit = leastPage

// Registers says where registers are: in words of struct pt_regs, or in bytes
// of a record, which has 8 for each.
type Registers struct {
	PC, SP  int
	General []int // by the numbers that DWARF gives them; None for one that is always 0

	// words is how many words of struct pt_regs a program may look up: all with
	// registers that an argument can name, and perhaps some others.
	words int
}

// savedRegisters are the words of kernels. Package argspec has their names.
var savedRegisters = map[elf.Machine]Registers{
	elf.EM_X86_64: {PC: 16, SP: 19, words: 20,
		General: []int{10, 12, 11, 5, 13, 14, 4, 19, 9, 8, 7, 6, 3, 2, 1, 0}},
	elf.EM_AARCH64:   {PC: 32, SP: 31, words: 34, General: sequence(0, 32)},
	elf.EM_RISCV:     {PC: 0, SP: 2, words: 32, General: append([]int{None}, sequence(1, 31)...)},
	elf.EM_S390:      {PC: 2, SP: 18, words: 20, General: sequence(3, 16)},
	elf.EM_PPC64:     {PC: 32, SP: None, words: 40},
	elf.EM_LOONGARCH: {PC: 33, SP: None, words: 34},
	elf.EM_ARM:       {PC: None, SP: None, words: 16},
}

func sequence(from, count int) (numbers []int) {
	for i := range count {
		numbers = append(numbers, from+i)
	}
	return numbers
}

// stackCopy emits code that saves the registers and copies the stack unit by
// unit, up to the first that cannot be read.
func (b *builder) stackCopy(record *Record) {
	saved := savedRegisters[b.kernel.Machine] // layout has failed if it is not known
	b.Emit(load(r1, r6, 8*saved.PC), store(r7, record.Registers.PC, r1))
	for n, at := range record.Registers.General {
		if at != None {
			b.Emit(load(r1, r6, 8*saved.General[n]), store(r7, at, r1))
		}
	}
	keep := b.Temporary(8)
	b.Emit(toStack(keep, r8))

	// R9 is the beginning of the unit that the stack pointer is in, R8 the
	// number of bytes in it that are below the stack pointer. As many bytes are
	// copied at the end. So all sizes but the last are constant, and no read
	// crosses into a page that may be missing.
	done := b.Label()
	b.Emit(load(r9, r6, 8*saved.SP), mov(r8, r9), asm.And.Imm(r8, CopyUnit-1),
		asm.And.Imm(r9, -CopyUnit))
	last := record.CopySize - CopyUnit
	for copied := 0; copied <= last; copied += CopyUnit {
		size := set(r2, CopyUnit)
		if copied == last {
			size = mov(r2, r8)
		}
		b.SetField(r7, record.Copied, uint64(copied), r1)
		b.Emit(size)
		b.CallOr(done, asm.FnProbeReadUser, placeAt(r7, record.Copy+copied), nil, placeAt(r9, copied))
	}
	b.Emit(asm.Add.Imm(r8, int32(last)), store(r7, record.Copied, r8))
	b.Place(done)
	b.Emit(fromStack(r8, keep))
}
