// SPDX-License-Identifier: BSD-2-Clause

package bpfgen

import (
	"maps"
	"math/bits"

	"github.com/cilium/ebpf/asm"

	"github.com/gousdt/gousdt/argspec"
)

// fetcher emits what brings the arguments of one site into registers.
type fetcher struct {
	*assembler
	kernel Kernel
	args   []argspec.Arg

	// stack tells where the bytes of an argument in memory lie on the stack,
	// once something has loaded them, and loaded tells of which this is certain
	// at this place of the code.
	stack  map[int]int
	loaded map[int]bool

	// merged tells what reads an argument together with others, while merging,
	// and restart where to go if that fails.
	merged  map[int]*placedGroup
	merging bool
	restart label
	alone   bool // nothing is to be merged but what is loaded at once

	// pageIn has memory that is not there read by a helper that may sleep until
	// it is.
	pageIn bool
}

func newFetcher(a *assembler, kernel Kernel, args []argspec.Arg) *fetcher {
	return &fetcher{assembler: a, kernel: kernel, args: args, stack: make(map[int]int), loaded: make(map[int]bool), merged: make(map[int]*placedGroup)}
}

// processorID emits the number of the processor in R0. It changes R1 to R5.
func (f *fetcher) processorID() {
	if f.kernel.Processors == 0 {
		f.call(asm.FnGetSmpProcessorId)
		return
	}
	unused := f.used
	key := f.alloc(4)
	f.used = unused
	none := f.label()
	f.emit(asm.StoreImm(asm.R10, int16(key), 0, asm.Word))
	f.addressOf(asm.R2, asm.R10, key)
	f.emit(asm.LoadMapPtr(asm.R1, f.kernel.Processors))
	f.call(asm.FnMapLookupElem)
	f.jumpIfImm(asm.JEq, asm.R0, 0, asm.R1, none)
	f.emit(asm.LoadMem(asm.R0, asm.R0, 0, asm.DWord))
	f.place(none)
}

// numbers emits the numbers of process and thread in R0, as
// bpf_get_current_pid_tgid gives them: process<<32 | thread. It changes R1 to
// R5.
func (f *fetcher) numbers() {
	if f.kernel.PIDs == nil {
		f.call(asm.FnGetCurrentPidTgid)
		return
	}
	unused := f.used
	at := f.alloc(8) // struct bpf_pidns_info: u32 thread, process
	f.used = unused
	f.set(asm.R1, f.kernel.PIDs.Device)
	f.set(asm.R2, f.kernel.PIDs.Inode)
	f.addressOf(asm.R3, asm.R10, at)
	f.emit(asm.Mov.Imm(asm.R4, 8))
	f.call(asm.FnGetNsCurrentPidTgid)
	// Where it fails, with EINVAL for a task of another namespace, it has
	// stored zeroes.
	f.emit(asm.LoadMem(asm.R0, asm.R10, int16(at), asm.DWord))
	if f.kernel.bigEndian() {
		f.emit(asm.Mov.Reg(asm.R1, asm.R0), asm.RSh.Imm(asm.R1, 32), asm.LSh.Imm(asm.R0, 32), asm.Or.Reg(asm.R0, asm.R1))
	}
}

// readable reports whether this kernel can fetch an argument of the site.
func (f *fetcher) readable(index int) bool {
	return index < len(f.args) && f.args[index].ReadableOn(f.kernel.Machine)
}

// inMemory reports whether an argument must be read by a helper, and so can
// fail.
func (f *fetcher) inMemory(index int) bool { return f.args[index].Kind == argspec.Memory }

// raw emits the value of an argument, extended by zeros. One in memory must be
// on the stack. It may change R0.
func (f *fetcher) raw(dst asm.Register, index int) {
	arg := &f.args[index]
	switch arg.Kind {
	case argspec.Constant:
		f.set(dst, truncate(arg.Constant, arg.Size))
	case argspec.InRegister:
		if arg.High.IsZero() {
			f.register(dst, arg.Register, arg.Size)
			break
		}
		f.register(dst, arg.High, 4)
		f.register(asm.R0, arg.Register, 4)
		f.emit(asm.LSh.Imm(dst, 32), asm.Or.Reg(dst, asm.R0))
	case argspec.Address:
		f.address(dst, newGroup(index, arg), arg.Displacement, asm.R0)
		f.truncate(dst, arg.Size)
	case argspec.Memory:
		f.emit(asm.LoadMem(dst, asm.R10, int16(f.stack[index]), sizeOf(arg.Size)))
	}
}

// value emits the value of an argument, extended as its description says. One
// in memory must be on the stack.
func (f *fetcher) value(dst asm.Register, index int) {
	arg := &f.args[index]
	if arg.Kind == argspec.Constant {
		f.set(dst, arg.Constant)
		return
	}
	f.raw(dst, index)
	f.extend(dst, arg)
}

// extend emits what makes of a value extended by zeros one that is extended by
// its sign, if the argument has one.
func (f *fetcher) extend(dst asm.Register, arg *argspec.Arg) {
	if unused := int32(64 - 8*arg.Size); arg.Signed && unused > 0 {
		f.emit(asm.LSh.Imm(dst, unused), asm.ArSh.Imm(dst, unused))
	}
}

// register emits the low bytes of a saved register.
func (f *fetcher) register(dst asm.Register, r argspec.Register, size int) {
	slot, _ := r.Slot(f.kernel.Machine)
	word := f.kernel.word()
	size = min(size, word)
	at := int(r.Shift) / 8
	if f.kernel.bigEndian() {
		at = word - at - size
	}
	if at >= 0 && at%size == 0 {
		f.emit(asm.LoadMem(dst, asm.R6, int16(slot*word+at), sizeOf(size)))
		return
	}
	// The kernel allows aligned loads only.
	f.emit(asm.LoadMem(dst, asm.R6, int16(slot*word), sizeOf(word)), asm.RSh.Imm(dst, int32(r.Shift)))
	f.truncate(dst, size)
}

// truncate emits what keeps the low bytes of a value.
func (f *fetcher) truncate(dst asm.Register, size int) {
	if unused := int32(64 - 8*size); unused > 0 {
		f.emit(asm.LSh.Imm(dst, unused), asm.RSh.Imm(dst, unused))
	}
}

// address emits the address of memory that a group of arguments begins with.
func (f *fetcher) address(dst asm.Register, g *group, displacement int64, scratch asm.Register) {
	switch {
	case g.base.IsZero() && g.index.IsZero():
		value := uint64(displacement)
		if g.wraps {
			value = truncate(value, 4)
		}
		f.set(dst, value)
		return
	case g.index.IsZero():
		f.register(dst, g.base, f.kernel.word())
	default:
		f.index(dst, g)
		if !g.base.IsZero() {
			f.register(scratch, g.base, f.kernel.word())
			f.emit(asm.Add.Reg(dst, scratch))
		}
	}
	f.add(dst, uint64(displacement), scratch)
	if g.wraps {
		f.emit(asm.Mov.Reg32(dst, dst))
	}
}

// index emits the part of an address that is a scaled register.
func (f *fetcher) index(dst asm.Register, g *group) {
	size := f.kernel.word()
	if g.extension != argspec.NoExtension {
		size = 4
	}
	f.register(dst, g.index, size)
	if g.extension == argspec.SignExtend32 {
		f.emit(asm.LSh.Imm(dst, 32), asm.ArSh.Imm(dst, 32))
	}
	if shift := bits.TrailingZeros8(g.scale | 0x80); shift > 0 {
		f.emit(asm.LSh.Imm(dst, int32(shift)))
	}
}

// load brings arguments in memory to the stack, and goes to fail if one cannot
// be read. Others are left as they are. It returns what is loaded there.
func (f *fetcher) load(fail label, indices ...int) (atFail map[int]bool) {
	for _, i := range indices {
		if g := f.merged[i]; f.merging && f.usable(g) {
			f.readTogether(&g.group, asm.R10, g.at, f.restart)
			for _, member := range g.args {
				f.loaded[member] = true
			}
		}
	}
	atFail = maps.Clone(f.loaded)
	var wanted []int
	for _, i := range indices {
		at, placed := f.stack[i]
		switch {
		case !f.inMemory(i) || f.loaded[i]:
		case placed:
			// Another branch has loaded it. Where the branches meet it must be
			// at one place.
			f.loaded[i] = true
			for _, g := range f.groups([]int{i}) {
				f.read(&g, asm.R10, at, func(int) { f.jump(fail) })
			}
		default:
			f.loaded[i] = true
			wanted = append(wanted, i)
		}
	}
	for _, g := range f.groups(wanted) {
		lead := g.lead()
		block := f.alloc(lead + g.span())
		f.read(&g, asm.R10, block+lead, func(int) { f.jump(fail) })
		for _, i := range g.args {
			f.stack[i] = block + lead + g.distance(f.args, i)
		}
	}
	return atFail
}

// apart emits code that may be left before it has loaded what it loads.
func (f *fetcher) apart(emit func()) {
	before := maps.Clone(f.loaded)
	emit()
	f.loaded = before
}

// read reads the arguments of a group to a place relative to a register, their
// bytes as they lie in the traced process. If that fails it reads them one by
// one, and emits what failed wants for each that still cannot be read.
func (f *fetcher) read(g *group, base asm.Register, offset int, failed func(index int)) {
	one, done := f.label(), f.label()
	f.readTogether(g, base, offset, one)
	f.place(done)
	f.later(func() {
		f.place(one)
		f.readApart(g, base, offset, failed)
		f.jump(done)
	})
}

// readTogether reads the arguments of a group by one call, and goes to fail if
// that fails.
func (f *fetcher) readTogether(g *group, base asm.Register, offset int, fail label) {
	f.address(asm.R3, g, g.low, asm.R4)
	if span := g.span(); len(g.args) > 1 && g.wraps {
		// The bytes of one read do not wrap, so it must not cross the end of
		// the 32-bit addresses.
		f.jumpIfImm(asm.JGT, asm.R3, 1<<32-uint64(span), asm.R4, fail)
	}
	f.readUser(asm.FnProbeReadUser, base, offset, g.span())
	f.jumpIfImm(asm.JNE, asm.R0, 0, asm.R1, fail)
}

func (f *fetcher) readApart(g *group, base asm.Register, offset int, failed func(index int)) {
	helper := asm.FnProbeReadUser
	if f.pageIn {
		helper = asm.FnCopyFromUser
	} else if len(g.args) == 1 {
		failed(g.args[0])
		return
	}
	for _, i := range g.args {
		next := f.label()
		f.address(asm.R3, g, f.args[i].Displacement, asm.R4)
		f.readUser(helper, base, offset+g.distance(f.args, i), f.args[i].Size)
		f.jumpIfImm(asm.JEq, asm.R0, 0, asm.R1, next)
		failed(i)
		f.place(next)
	}
}

// readUser reads from the address in R3 and leaves the helper's answer in R0.
func (f *fetcher) readUser(helper asm.BuiltinFunc, base asm.Register, offset, size int) {
	f.addressOf(asm.R1, base, offset)
	f.emit(asm.Mov.Imm(asm.R2, int32(size)))
	f.call(helper)
}

// readText reads a text, at most size bytes with the zero that ends it, from an
// address that pointer emits, and leaves the helper's answer in R0: the number
// of bytes with the zero, or a negative error.
func (f *fetcher) readText(base asm.Register, offset, size int, pointer func(dst asm.Register)) {
	read := func() {
		pointer(asm.R3)
		f.readUser(asm.FnProbeReadUserStr, base, offset, size)
	}
	read()
	if !f.pageIn {
		return
	}
	missing, done := f.label(), f.label()
	f.jumpIfImm(asm.JSLT, asm.R0, 0, asm.R1, missing)
	f.place(done)
	f.later(func() {
		f.place(missing)
		// There is no such helper that may sleep. Reading a byte brings its
		// page; the text may reach into the next.
		for _, nextPage := range []bool{false, true} {
			pointer(asm.R3)
			if nextPage {
				f.emit(asm.Or.Imm(asm.R3, leastPage-1), asm.Add.Imm(asm.R3, 1))
			}
			f.readUser(asm.FnCopyFromUser, base, offset, 1)
			f.jumpIfImm(asm.JSLT, asm.R0, 0, asm.R1, done)
			read()
			f.jumpIfImm(asm.JSGE, asm.R0, 0, asm.R1, done)
		}
		f.jump(done)
	})
}

// leastPage is the size of a page where pages are smallest.
const leastPage = 4096

// truncate keeps the low bytes of a value.
func truncate(value uint64, size int) uint64 {
	if size >= 8 {
		return value
	}
	return value & (1<<(8*size) - 1)
}
