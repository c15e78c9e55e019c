// SPDX-License-Identifier: BSD-2-Clause

package bpfgen

import (
	"math"

	"github.com/cilium/ebpf/asm"

	"github.com/gousdt/gousdt/internal/argcode"
)

// The own time of a call is its duration without the calls inside it. Its path
// has the names of the calls around it, and its own.
//
// A path is a number, made of the path around it and of the call's name. The
// map Latency.Paths has for each path that number, and the name. PathNone is
// around a call that no known call is around. Calls around PathUnknown are not
// known: they were forgotten, or the map had no room.
const (
	PathNone    = 0
	PathUnknown = 1
)

// nestedDepth is MaxCalls where paths or own times are known: functions of
// Python or PHP call each other deeper than others. It is a power of two.
const nestedDepth = 128

// deepDepth is the same where a thread may run many greenlets, each with calls
// of its own.
const deepDepth = 512

// After all else of a stack of calls follow the time when calls were last found
// not to be inside each other, how many calls around the others were forgotten,
// and for each place in the stack the time of the calls inside that have ended.
// After these follows the path of each.
const (
	nestedTorn      = CallsSize
	nestedForgotten = nestedTorn + 8
	nestedInner     = nestedForgotten + 8
)

// depth is how many open calls are kept on a stack.
func (l *Latency) depth() int {
	switch {
	case l.Deep:
		return deepDepth
	case l.Nested:
		return nestedDepth
	}
	return MaxCalls
}

// lastPlace is a mask, too.
func (l *Latency) lastPlace() int32 { return int32(l.depth() - 1) }

// after returns the offset of what follows the calls of a stack, from the one
// that it has after MaxCalls.
func (l *Latency) after(at int) int { return at + (l.depth()-MaxCalls)*callSize }

func (l *Latency) paths() int { return l.after(nestedInner) + 8*l.depth() }

// StackSize is the size of a stack of calls.
func (l *Latency) StackSize() int {
	if l.Deep {
		return l.lasts() + 2*lastSize
	}
	return l.lasts()
}

// lasts is where what readActivation keeps follows all else.
func (l *Latency) lasts() int {
	if l.Nested {
		return l.paths() + 8*l.depth()
	}
	return l.after(CallsSize)
}

// PathSize is the size of a value of Latency.Paths.
func (l *Latency) PathSize() int { return 8 + align8(l.Path.Max+2) }

// nest prepares the place of a call that is pushed on the stack at R7. R1 has
// the number of the place. It keeps R1, R7 and R9.
func (b *builder) nest(c *call) {
	if !c.Nested || !c.ByThread() {
		return
	}
	if a := b.activation(c); a != nil {
		unread, read := b.Label(), b.Label()
		b.AddressOf(r3, r9, int(a.Caller))
		b.CallOr(unread, asm.FnProbeReadUser, onStack(c.caller), 8)
		b.Place(read)
		b.Emit(fromStack(r1, c.key+16))
		b.Aside(unread, read, func() { b.SetField(r10, c.caller, callLeft, r1) }) // no frame
	}
	b.Emit(asm.LSh.Imm(r1, 3), asm.Add.Reg(r1, r7))
	b.SetField(r1, c.after(nestedInner), 0, r2)
	b.otherStack(c)
	if c.Path != nil {
		b.Emit(toStack(c.slot, r9))
		b.Scratch(func() { b.namePath(c) })
		b.Emit(fromStack(r9, c.slot))
	}
	b.Emit(fromStack(r1, c.key+16))
}

// A thread that has several stacks, as for coroutines, changes them without a
// probe. A call whose frame is further than farAway from that of the call
// around it is on another stack. Then the time of calls inside is unknownInner
// for both, and for all that begin inside: an own time is not known. It is more
// than any duration, and leaves room for them.
const (
	farAway      = 256 << 10
	unknownInner = 1 << 62
)

// otherStack looks whether the call that is pushed on the stack at R7 is on
// another stack of the thread than the call around it, or is called by another
// function of the interpreter. R1 points nestedInner
// bytes before the time of the calls inside it. It keeps R7 and R9.
func (b *builder) otherStack(c *call) {
	other, mark := b.Label(), b.Label()
	b.Emit(loadN(r2, r7, callsCount, asm.Word))
	b.If(asm.JGE, r2, 2, r3, func() {
		b.Emit(mov(r5, r1), loadN(r1, r7, callsPushed, asm.Word), asm.Sub.Imm(r1, 2))
		b.callAt(c, r4)
		b.numberAt(c, r1)
		b.Emit(load(r0, r4, callFrame))
		if b.activation(c) != nil {
			b.Emit(fromStack(r3, c.caller))
			b.JumpIf(asm.JNE, r0, r3, other)
		} else {
			b.Emit(asm.Sub.Reg(r0, r9))
			if b.named(c) {
				b.Emit(asm.LSh.Imm(r0, callNames), asm.ArSh.Imm(r0, callNames))
			}
			b.Emit(asm.Add.Imm(r0, farAway))
			b.JumpIfImm(asm.JGT, r0, 2*farAway, r3, other)
		}
		b.Emit(load(r0, r1, c.after(nestedInner)), asm.RSh.Imm(r0, 62))
		b.If(asm.JNE, r0, 0, r3, func() {
			b.Place(mark)
			b.SetField(r5, c.after(nestedInner), unknownInner, r3)
		})
	})
	b.Aside(other, mark, func() { b.SetField(r1, c.after(nestedInner), unknownInner, r3) })
}

// numberAt changes a register from the number of a call on the stack at R7 to
// where its numbers are, less the offset from the first of these.
func (b *builder) numberAt(c *call, dst asm.Register) {
	b.Emit(asm.And.Imm(dst, c.lastPlace()), asm.LSh.Imm(dst, 3), asm.Add.Reg(dst, r7))
}

func (b *builder) namePath(c *call) {
	next, found, none, around := b.Label(), b.Label(), b.Label(), b.Label()
	b.Emit(loadN(r1, r7, callsPushed, asm.Word), asm.Sub.Imm(r1, 2),
		loadN(r2, r7, callsCount, asm.Word), asm.Sub.Imm(r2, 1))
	b.JumpIfImm(asm.JLT, r2, 1, r3, none)
	b.JumpIfImm(asm.JGT, r2, uint64(c.depth()), r3, none) // never: see searchCalls
	called := b.activation(c) != nil
	if called {
		b.Emit(fromStack(r5, c.caller))
	}
	b.Place(next)
	b.callAt(c, r4)
	b.Emit(load(r0, r4, callFrame))
	if called {
		b.JumpIf(asm.JEq, r0, r5, found)
	} else {
		b.Emit(asm.And.Imm(r0, callOver))
		b.JumpIfImm(asm.JEq, r0, 0, r3, found)
	}
	b.Emit(asm.Sub.Imm(r1, 1), asm.Sub.Imm(r2, 1))
	b.JumpIfImm(asm.JGT, r2, 0, r3, next)
	if called {
		b.Emit(set(r0, PathNone))
		b.JumpIfImm(asm.JEq, r5, 0, r3, around)
		b.Emit(set(r0, PathUnknown))
		b.Jump(around)
	}
	b.Place(none)
	b.Emit(set(r0, PathNone), load(r1, r7, c.after(nestedForgotten)))
	b.JumpIfImm(asm.JEq, r1, 0, r3, around)
	b.Emit(set(r0, PathUnknown))
	b.Jump(around)
	b.Place(found)
	// The verifier forgets which turn of the loop this is.
	b.Emit(storeN(r7, callsFound, r1, asm.Word), loadN(r1, r7, callsFound, asm.Word))
	b.numberAt(c, r1)
	b.Emit(load(r0, r1, c.paths()))
	b.Place(around)

	at := b.Alloc(c.PathSize())
	b.Emit(toStack(at, r0))
	b.zero(r10, at+8, c.PathSize()-8)
	if name := b.site.bound(*c.Path); b.site.canRead(name) {
		unread := b.Label()
		b.apart(func() {
			b.together(name.Arguments(), func() { b.load(unread, name.Arguments()...) })
			b.keyText(&name, r10, at+8, unread)
		})
		b.Place(unread)
	}
	b.Emit(fromStack(r1, at), asm.LoadImm(r3, pathFactor, asm.DWord))
	for i := 8; i < c.PathSize(); i += 8 {
		b.Emit(fromStack(r2, at+i), asm.Xor.Reg(r1, r2), asm.Mul.Reg(r1, r3), mov(r2, r1),
			asm.RSh.Imm(r2, 29), asm.Xor.Reg(r1, r2))
	}
	b.Emit(asm.Or.Imm(r1, PathUnknown+1), toStack(c.path, r1))
	known, full := b.Label(), b.Label()
	b.Element(c.Paths, c.path)
	b.Rarely(asm.JEq, r0, 0, r1, func() {
		b.Call(asm.FnMapUpdateElem, argcode.Map(c.Paths), onStack(c.path), onStack(at), updateNoExist)
		b.LookUp(c.Paths, c.path, full)
	})
	b.Place(known)
	b.Aside(full, known, func() { b.SetField(r10, c.path, PathUnknown, r1) })
	b.Emit(fromStack(r1, c.key+16), asm.LSh.Imm(r1, 3), asm.Add.Reg(r1, r7),
		fromStack(r2, c.path), store(r1, c.paths(), r2))
}

// pathFactor is odd, with as many bits of either kind.
const pathFactor = -0x61c8864680b583eb

// unnest finds the own time and the path of the call that has ended, which is
// off the stack at R7, and adds its duration to the call around it. It sets R1
// to the duration.
func (b *builder) unnest(c *call) {
	if !c.Nested {
		return
	}
	if !c.ByThread() { // calls of others are not inside each other
		b.SetField(r10, c.own, math.MaxUint64, r0)
		b.SetField(r10, c.path, PathUnknown, r0)
		return
	}
	intact := b.Label()
	b.Emit(fromStack(r2, c.key+16), asm.LSh.Imm(r2, 3), asm.Add.Reg(r2, r7),
		load(r3, r2, c.after(nestedInner)))
	if c.Path != nil {
		b.Emit(load(r4, r2, c.paths()), toStack(c.path, r4))
	}
	b.Emit(mov(r0, r1), asm.Sub.Reg(r0, r3), load(r3, r7, c.after(nestedTorn)),
		fromStack(r4, c.began))
	b.JumpIf(asm.JGT, r4, r3, intact)
	b.Emit(set(r0, -1))
	b.Place(intact)
	b.Emit(toStack(c.own, r0), loadN(r3, r7, callsCount, asm.Word))
	b.If(asm.JNE, r3, 0, r2, func() {
		b.Emit(loadN(r2, r7, callsPushed, asm.Word), asm.Sub.Imm(r2, 1))
		b.numberAt(c, r2)
		b.Emit(load(r3, r2, c.after(nestedInner)), asm.Add.Reg(r3, r1),
			store(r2, c.after(nestedInner), r3))
	})
}

// tear notes that calls on the stack at R7 are not inside each other, or ended
// unseen: the own times of all that have begun by now are not known. R0 is the
// present time.
func (b *builder) tear(c *call) {
	if c.Nested {
		b.Emit(store(r7, c.after(nestedTorn), r0))
	}
}

// endForgotten notes an end while the stack at R7 is empty: if calls around the
// others were forgotten, one of them ends.
func (b *builder) endForgotten(c *call) {
	b.Emit(load(r1, r7, c.after(nestedForgotten)))
	b.If(asm.JNE, r1, 0, r2, func() {
		b.Emit(asm.Sub.Imm(r1, 1), store(r7, c.after(nestedForgotten), r1))
	})
}

// ownTime sets R9 to the own time of the call that ends, and goes to unknown if
// that is not known.
func (b *builder) ownTime(unknown argcode.Label) {
	b.Emit(fromStack(r9, b.ending.own))
	b.JumpIfImm(asm.JSLT, r9, 0, r1, unknown)
}
