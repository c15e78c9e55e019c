// SPDX-License-Identifier: BSD-2-Clause

package bpfgen

import (
	"maps"
	"slices"

	"github.com/cilium/ebpf/asm"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/internal/argcode"
)

// fetcher emits code that loads the arguments of one site.
type fetcher struct {
	*argcode.Fetcher
	kernel Kernel
	sent   int // how many of the arguments are sent with events

	// stack has the places on the stack of arguments in memory. loaded has the
	// arguments that are certainly there at this place of the code.
	stack  map[int]int
	loaded map[int]bool

	// merged has the groups that are read together while merging is set. If a
	// read fails, the code goes to restart.
	merged  map[int]*placedGroup
	merging bool
	restart argcode.Label
	alone   bool // each argument is read alone

	lookedUp bool // a Table says where arguments are

	members map[int]Member
	pointer int // the size of a pointer in the program

	// ending is the call whose end this is, nil if it is none.
	ending *call
}

// processorID emits the number of the processor in R0. It changes R1 to R5.
func (f *fetcher) processorID() {
	if f.kernel.Processors == 0 {
		f.Call(asm.FnGetSmpProcessorId)
		return
	}
	none := f.Label()
	f.LookUpIndex(f.kernel.Processors, f.Temporary(4), 0, none)
	f.Emit(load(r0, r0, 0))
	f.Place(none)
}

// numbers emits the numbers of process and thread in R0, as
// bpf_get_current_pid_tgid gives them: process<<32 | thread. It changes R1 to
// R5.
func (f *fetcher) numbers() {
	if f.kernel.PIDs == nil {
		f.Call(asm.FnGetCurrentPidTgid)
		return
	}
	at := f.Temporary(8) // struct bpf_pidns_info: u32 thread, process
	f.Call(asm.FnGetNsCurrentPidTgid, f.kernel.PIDs.Device, f.kernel.PIDs.Inode, onStack(at), 8)
	// Where it fails, with EINVAL for a task of another namespace, it has
	// stored zeroes.
	f.Emit(fromStack(r0, at))
	if f.kernel.bigEndian() {
		f.Emit(mov(r1, r0), asm.RSh.Imm(r1, 32), asm.LSh.Imm(r0, 32), asm.Or.Reg(r0, r1))
	}
}

// inMemory reports whether a helper must read an argument, which can fail.
func (f *fetcher) inMemory(index int) bool { return f.Args[index].Kind == argspec.Memory }

// isBytes reports whether an argument is bytes in memory that can be read.
func (f *fetcher) isBytes(index int) bool {
	return index < len(f.Args) && argcode.Addressable(&f.Args[index], f.Machine)
}

// addressOf emits where an argument in memory begins.
func (f *fetcher) addressOf(dst asm.Register, index int, scratch asm.Register) {
	if f.lookedUp {
		f.Scratch(func() {
			known, at := f.Label(), f.Alloc(8)
			f.SetField(r10, at, 0, r1)
			f.readLookedUp(index, r10, at, known)
			f.Place(known)
			f.Emit(fromStack(dst, at))
		})
		return
	}
	arg := &f.Args[index]
	f.Address(dst, arg, arg.Displacement, scratch)
}

// raw emits the value of an argument, extended by zeros. One in memory must be
// on the stack. It may change R0.
func (f *fetcher) raw(dst asm.Register, index int) {
	if f.inMemory(index) {
		f.Emit(loadN(dst, r10, f.stack[index], f.width(index)))
	} else {
		f.Raw(dst, index)
	}
}

// value emits the value of an argument, extended as its description says. One
// in memory must be on the stack.
func (f *fetcher) value(dst asm.Register, index int) {
	if f.inMemory(index) {
		f.raw(dst, index)
		f.Extend(dst, &f.Args[index])
	} else {
		f.Value(dst, index)
	}
}

// load brings arguments in memory to the stack, and goes to fail if one cannot
// be read. Others are left as they are. It returns the arguments that are
// loaded at fail.
func (f *fetcher) load(fail argcode.Label, indices ...int) (atFail map[int]bool) {
	for _, i := range indices {
		if g := f.merged[i]; f.merging && f.usable(g) {
			f.ReadTogether(&g.Group, r10, g.at, f.restart)
			for _, member := range g.Args {
				f.loaded[member] = true
			}
		}
	}
	atFail = maps.Clone(f.loaded)
	for _, i := range indices {
		if !f.inMemory(i) || f.loaded[i] {
			continue
		}
		// Another branch may have loaded it. Where the branches meet it must be
		// at one place.
		if _, placed := f.stack[i]; !placed {
			f.stack[i] = f.Alloc(f.width(i).Sizeof())
		}
		f.loaded[i] = true
		for _, g := range f.groups([]int{i}) {
			f.read(&g, r10, f.stack[i], func(int) { f.Jump(fail) })
		}
	}
	return atFail
}

// apart emits code that may be left before it has loaded all that it loads. The
// code after it does not rely on that.
func (f *fetcher) apart(emit func()) {
	before := maps.Clone(f.loaded)
	emit()
	f.loaded = before
}

// readText reads the text of an argument, at most size bytes with the zero that
// ends it, from an address that pointer emits, and leaves the answer of the
// helper in R0: the number of bytes with the zero, or a negative error.
func (f *fetcher) readText(
	index int, base asm.Register, offset, size int, pointer func(dst asm.Register),
) {
	if m := f.members[index]; m.Room > 0 {
		size = min(size, m.Room+1) // a zero is added to the array
	}
	pointer(r3)
	f.Call(asm.FnProbeReadUserStr, placeAt(base, offset), size)
}

func (f *fetcher) isMember(index int) bool {
	_, ok := f.members[index]
	return ok
}

// readMember reads a member of a structure, and goes to fail if one of the
// pointers on the way cannot be read, or leads nowhere.
func (f *fetcher) readMember(
	m *Member, size int, base asm.Register, offset int, fail argcode.Label,
) {
	at := f.Temporary(8)
	readPointer := func() {
		f.CallOr(fail, asm.FnProbeReadUser, onStack(at), f.pointer)
		f.Emit(loadN(r3, r10, at, argcode.SizeOf(f.pointer)))
	}
	if f.inMemory(m.Arg) {
		arg := &f.Args[m.Arg]
		f.Address(r3, arg, arg.Displacement, r4)
		readPointer()
	} else {
		f.Raw(r3, m.Arg)
	}
	for i, distance := range m.Offsets {
		if i > 0 {
			readPointer()
		}
		if distance != 0 {
			f.Compute(asm.Add, r3, uint64(distance), r4)
		}
		if f.pointer == 4 {
			f.Emit(asm.Mov.Reg32(r3, r3))
		}
	}
	if m.Array {
		f.AddressOf(r1, base, offset)
		f.Emit(storeN(r1, 0, r3, argcode.SizeOf(size)))
		return
	}
	f.CallOr(fail, asm.FnProbeReadUser, placeAt(base, offset), size)
}

// leastPage is the size in bytes of the smallest pages of any machine.
const leastPage = 4096

// placedGroup is a group that has a place on the stack.
type placedGroup struct {
	argcode.Group
	at int // of its first byte
}

// together emits code that reads arguments and has no other effects. In it,
// neighbours in memory are read by one call, where the first is needed. If that
// fails, the code starts again in a second version, which reads each argument
// alone: one that cannot be read matters only if it is needed.
func (f *fetcher) together(indices []int, emit func()) {
	if !f.merge(indices) {
		emit()
		return
	}
	before := maps.Clone(f.loaded)
	done := f.Label()
	f.merging, f.restart = true, f.Label()
	emit()
	f.Jump(done)
	merged := f.loaded

	f.Place(f.restart)
	f.merging, f.loaded = false, before
	emit()
	f.Place(done)
	f.loaded = common(f.loaded, merged)
}

// merge finds groups among arguments, gives them a place, and reports whether
// there are any.
func (f *fetcher) merge(indices []int) bool {
	var wanted []int
	found := false
	for _, i := range indices {
		switch {
		case f.alone || f.isMember(i) || !f.inMemory(i) || f.loaded[i] || slices.Contains(wanted, i):
		case f.merged[i] != nil:
			found = found || f.usable(f.merged[i])
		default:
			wanted = append(wanted, i)
		}
	}
	for _, g := range f.Groups(wanted) {
		if len(g.Args) == 1 {
			continue
		}
		found = true
		lead := g.Lead()
		placed := &placedGroup{Group: g, at: f.Alloc(lead+g.Span()) + lead}
		for _, i := range g.Args {
			f.merged[i] = placed
			f.stack[i] = placed.at + g.Distance(f.Args, i)
		}
	}
	return found
}

// usable reports whether a group can be read: an argument that has been read
// already may have changed since.
func (f *fetcher) usable(g *placedGroup) bool {
	return g != nil && !slices.ContainsFunc(g.Args, func(i int) bool { return f.loaded[i] })
}

// common returns the arguments loaded on both of two paths.
func common(a, b map[int]bool) map[int]bool {
	both := maps.Clone(a)
	maps.DeleteFunc(both, func(index int, _ bool) bool { return !b[index] })
	return both
}
