// SPDX-License-Identifier: BSD-2-Clause

package bpfgen

import (
	"maps"
	"slices"

	"github.com/cilium/ebpf/asm"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/internal/argcode"
)

// processorID emits the number of the processor in R0. It changes R1 to R5.
func (b *builder) processorID() {
	if b.kernel.Processors == 0 {
		b.Call(asm.FnGetSmpProcessorId)
		return
	}
	none := b.Label()
	b.LookUpIndex(b.kernel.Processors, b.Temporary(4), 0, none)
	b.Emit(load(r0, r0, 0))
	b.Place(none)
}

// numbers emits the numbers of process and thread in R0, as
// bpf_get_current_pid_tgid gives them: process<<32 | thread. It changes R1 to
// R5.
func (b *builder) numbers() {
	if b.kernel.PIDs == nil {
		b.Call(asm.FnGetCurrentPidTgid)
		return
	}
	at := b.Temporary(8) // struct bpf_pidns_info: u32 thread, process
	b.Call(asm.FnGetNsCurrentPidTgid, b.kernel.PIDs.Device, b.kernel.PIDs.Inode, onStack(at), 8)
	// Where it fails, with EINVAL for a task of another namespace, it has
	// stored zeroes.
	b.Emit(fromStack(r0, at))
	if b.kernel.bigEndian() {
		b.Emit(mov(r1, r0), asm.RSh.Imm(r1, 32), asm.LSh.Imm(r0, 32), asm.Or.Reg(r0, r1))
	}
}

// inMemory reports whether a helper must read an argument, which can fail.
func (b *builder) inMemory(index int) bool { return b.Args[index].Kind == argspec.Memory }

// isBytes reports whether an argument is bytes in memory that can be read.
func (b *builder) isBytes(index int) bool {
	return index < len(b.Args) && argcode.Addressable(&b.Args[index], b.Machine)
}

// addressOf emits where an argument in memory begins.
func (b *builder) addressOf(dst asm.Register, index int, scratch asm.Register) {
	if b.lookedUp() {
		b.Scratch(func() {
			known, at := b.Label(), b.Alloc(8)
			b.SetField(r10, at, 0, r1)
			b.readLookedUp(index, r10, at, known)
			b.Place(known)
			b.Emit(fromStack(dst, at))
		})
		return
	}
	arg := &b.Args[index]
	b.Address(dst, arg, arg.Displacement, scratch)
}

// raw emits the value of an argument, extended by zeros. One in memory must be
// on the stack. It may change R0.
func (b *builder) raw(dst asm.Register, index int) {
	if b.inMemory(index) {
		b.Emit(loadN(dst, r10, b.stack[index], b.width(index)))
	} else {
		b.Raw(dst, index)
	}
}

// value emits the value of an argument, extended as its description says. One
// in memory must be on the stack.
func (b *builder) value(dst asm.Register, index int) {
	if b.inMemory(index) {
		b.raw(dst, index)
		b.Extend(dst, &b.Args[index])
	} else {
		b.Value(dst, index)
	}
}

// load brings arguments in memory to the stack, and goes to fail if one cannot
// be read. Others are left as they are. It returns the arguments that are
// loaded at fail.
func (b *builder) load(fail argcode.Label, indices ...int) (atFail map[int]bool) {
	for _, i := range indices {
		if g := b.merged[i]; b.merging && b.usable(g) {
			b.ReadTogether(&g.Group, r10, g.at, b.restart)
			for _, member := range g.Args {
				b.loaded[member] = true
			}
		}
	}
	atFail = maps.Clone(b.loaded)
	for _, i := range indices {
		if !b.inMemory(i) || b.loaded[i] {
			continue
		}
		// Another branch may have loaded it. Where the branches meet it must be
		// at one place.
		if _, placed := b.stack[i]; !placed {
			b.stack[i] = b.Alloc(b.width(i).Sizeof())
		}
		b.loaded[i] = true
		for _, g := range b.groups([]int{i}) {
			b.read(&g, r10, b.stack[i], func(int) { b.Jump(fail) })
		}
	}
	return atFail
}

// apart emits code that may be left before it has loaded all that it loads. The
// code after it does not rely on that.
func (b *builder) apart(emit func()) {
	before := maps.Clone(b.loaded)
	emit()
	b.loaded = before
}

// readText reads the text of an argument, at most size bytes with the zero that
// ends it, from an address that pointer emits, and leaves the answer of the
// helper in R0: the number of bytes with the zero, or a negative error.
func (b *builder) readText(
	index int, base asm.Register, offset, size int, pointer func(dst asm.Register),
) {
	if m := b.site.Members[index]; m.Room > 0 {
		size = min(size, m.Room+1) // a zero is added to the array
	}
	pointer(r3)
	b.Call(asm.FnProbeReadUserStr, placeAt(base, offset), size)
}

func (b *builder) isMember(index int) bool {
	_, ok := b.site.Members[index]
	return ok
}

// readMember reads a member of a structure, and goes to fail if one of the
// pointers on the way cannot be read, or leads nowhere.
func (b *builder) readMember(
	m *Member, size int, base asm.Register, offset int, fail argcode.Label,
) {
	at := b.Temporary(16)
	readTo := func(at, size int) {
		b.CallOr(fail, asm.FnProbeReadUser, onStack(at), size)
		b.Emit(loadN(r3, r10, at, argcode.SizeOf(size)))
	}
	readPointer := func() { readTo(at, b.site.Pointer) }
	structure := func() {
		if b.inMemory(m.Arg) {
			arg := &b.Args[m.Arg]
			b.Address(r3, arg, arg.Displacement, r4)
			readPointer()
		} else {
			b.Raw(r3, m.Arg)
		}
	}
	if m.Owner != "" {
		owner := &b.Args[m.OwnerArg]
		structure()
		b.Compute(asm.Add, r3, uint64(m.OwnedAt), r4)
		readTo(at+8, owner.Size)
		b.Address(r3, owner, owner.Displacement, r4)
		readTo(at, owner.Size)
		b.Emit(loadN(r4, r10, at+8, argcode.SizeOf(owner.Size)))
		b.JumpIf(asm.JNE, r3, r4, fail)
	}
	structure()
	for i, distance := range m.Offsets {
		if i > 0 {
			readPointer()
		}
		if distance != 0 {
			b.Compute(asm.Add, r3, uint64(distance), r4)
		}
		if b.site.Pointer == 4 {
			b.Emit(asm.Mov.Reg32(r3, r3))
		}
	}
	if m.Array {
		b.AddressOf(r1, base, offset)
		b.Emit(storeN(r1, 0, r3, argcode.SizeOf(size)))
		return
	}
	b.CallOr(fail, asm.FnProbeReadUser, placeAt(base, offset), size)
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
func (b *builder) together(indices []int, emit func()) {
	if !b.merge(indices) {
		emit()
		return
	}
	before := maps.Clone(b.loaded)
	done := b.Label()
	b.merging, b.restart = true, b.Label()
	emit()
	b.Jump(done)
	merged := b.loaded

	b.Place(b.restart)
	b.merging, b.loaded = false, before
	emit()
	b.Place(done)
	b.loaded = common(b.loaded, merged)
}

// merge finds groups among arguments, gives them a place, and reports whether
// there are any.
func (b *builder) merge(indices []int) bool {
	var wanted []int
	found := false
	for _, i := range indices {
		switch {
		case b.alone || b.isMember(i) || !b.inMemory(i) || b.loaded[i] || slices.Contains(wanted, i):
		case b.merged[i] != nil:
			found = found || b.usable(b.merged[i])
		default:
			wanted = append(wanted, i)
		}
	}
	for _, g := range b.Groups(wanted) {
		if len(g.Args) == 1 {
			continue
		}
		found = true
		lead := g.Lead()
		placed := &placedGroup{Group: g, at: b.Alloc(lead+g.Span()) + lead}
		for _, i := range g.Args {
			b.merged[i] = placed
			b.stack[i] = placed.at + g.Distance(b.Args, i)
		}
	}
	return found
}

// usable reports whether a group can be read: an argument that has been read
// already may have changed since.
func (b *builder) usable(g *placedGroup) bool {
	return g != nil && !slices.ContainsFunc(g.Args, func(i int) bool { return b.loaded[i] })
}

// common returns the arguments loaded on both of two paths.
func common(a, b map[int]bool) map[int]bool {
	both := maps.Clone(a)
	maps.DeleteFunc(both, func(index int, _ bool) bool { return !b[index] })
	return both
}
