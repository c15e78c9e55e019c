// SPDX-License-Identifier: BSD-2-Clause

package bpfgen

import (
	"cmp"
	"encoding/binary"
	"slices"
	"time"

	"github.com/cilium/ebpf/asm"

	"github.com/gousdt/gousdt/internal/argcode"
	"github.com/gousdt/gousdt/trace/internal/expr"
)

// Latency says how the starts and ends of calls are matched. Aggregations with
// the same Latency share it.
//
// A call is pushed at its start and popped at its end: there is a stack for
// each thread, or for each number that starts and ends have in common, and each
// pair of probes. So calls can be nested.
type Latency struct {
	Match

	// Starts is the descriptor of an LRU hash map: from two words, see
	// callsKey, to a stack of CallsSize bytes. Zeros is that of an array of one
	// element of zeros, large enough for a stack and for a saved record.
	Starts, Zeros int

	// Birth is the offset of task_struct.start_time, or None if it is not
	// known.
	Birth int

	// Fails says that some pair has probes that end a call when it fails.
	Fails bool

	// Named says that a definition names the probes of the call, and Outermost
	// that of calls inside each other only the outermost count. If has the
	// conditions of its probes, see Ends.
	Named     bool
	Outermost bool
	If        []*expr.Node

	// Conditions are decided at the start, and their outcome is remembered as
	// bits by their numbers (expr.Node.AtStart).
	Conditions []StartCondition

	// Values are kept of each start, for aggregations at its end. Kept is the
	// descriptor of an LRU hash map, with the keys of Saved, to KeptSize bytes.
	Values []StartValue
	Kept   int

	// Spans has each end send an event. Saved is the descriptor of an LRU hash
	// map with the start's part of the event: from three words, those of
	// callsKey and the place in the stack, to SavedSize bytes.
	Spans     bool
	Saved     int
	SavedSize int

	// Nested has own times of calls known, and with Path the paths of calls: it
	// is the text that names a call, with a limit. Paths is the descriptor of a
	// hash map, from a path to PathSize bytes.
	Nested bool
	Path   *expr.Term
	Deep   bool // there may be an Activation
	Paths  int
}

// Match is what must be equal at the start and the end of a call: TID for the
// same thread, or another number.
type Match struct{ Start, Done expr.Term }

// ByThread reports whether only the thread matches starts and ends.
func (m *Match) ByThread() bool {
	return m.Start.Source == expr.TID && m.Done.Source == expr.TID && !m.Start.HasMask &&
		!m.Done.HasMask
}

// Ends says what a site is for a Latency. Start, Done and Failed are numbers of
// pairs, or 0; Failed ends a call that has failed. Framed says that the site is
// in a function that has the other end of the pair, too, and that Site.Frame is
// known: start and end belong to one call exactly if their frames are equal.
// StartBy and DoneBy match the calls of these pairs, if not as those of the
// Latency.
//
// Activation, if it has a Depth, takes the place of Site.Frame. Names are for
// interpreters without one: 1 more than the numbers of arguments that start and
// end of a call have equal. A thread in which they differ has several stacks in
// one place, and none of its calls is measured from then on. So has one that
// starts a call above an open one. Lone says that no other site starts them, so
// that addresses at starts show this. StacksIf, of starts and ends, is a
// condition as StartIf: if it holds at a start, the thread has several stacks.
//
// Alone says that ends and starts of calls that overlap do not tell which
// belong together, and Over that no call goes on where Failed is passed.
//
// Compared is 1 more than the number of an argument that starts and ends of the
// pair have, 0 for none: see compareStart. Width is the size to which the
// argument that matches starts and ends is cut, because they have it in several
// sizes; 0 leaves it whole.
//
// The other fields are for calls with Outermost. Index tells which end belongs
// to a start. Attempt marks a start that is silently over where another call
// starts, or where the site is passed again. StartIf and FailedIf are
// conditions of Latency.If, counted from 1; 0 is none.
type Ends struct {
	Start, Done, Failed uint32
	StartBy, DoneBy     *Match
	Framed              bool
	Activation          Activation
	Names               [2]int
	Lone                bool
	StacksIf            int
	Alone, Over         bool
	Compared, Width     int
	Index               uint16
	Attempt             bool
	StartIf, FailedIf   int
}

// Frame says how the frame of the function that a site is in is found: the
// address is in the register with this DWARF number, plus Offset. It is the
// same for all of an invocation of the function, and lower for what that calls.
// If it is not known the stack pointer stands for it.
type Frame struct {
	Known    bool
	Register uint8
	Offset   int32
}

// Activation says where an interpreter has the frame of the function that it
// runs, which is not on the stack of C: each invocation has an address of its
// own, whatever else the thread runs meanwhile, as greenlets of Python do.
// Addresses do not tell which function called another.
//
// Variable is the address of a variable, relative to the instruction of the
// site. It points to a structure whose member at the first of Members points to
// a further one, and so on Depth times: the last one is the frame. That has the
// frame of the caller at Caller.
type Activation struct {
	Variable int64
	Members  [MaxActivation]int32
	Depth    int
	Caller   int32
}

// MaxActivation is the greatest Depth.
const MaxActivation = 4

func (s *Site) startBy(l *Latency) *Match { return cmp.Or(s.Pairs[l].StartBy, &l.Match) }
func (s *Site) doneBy(l *Latency) *Match  { return cmp.Or(s.Pairs[l].DoneBy, &l.Match) }

// end returns the pair that a site ends, and whether because it has failed.
func (e Ends) end() (pair uint32, failed bool) {
	if e.Done != 0 {
		return e.Done, false
	}
	return e.Failed, e.Failed != 0
}

// The flags of a call's word: the map Saved has something of it, it has failed,
// its Latency is Named, it is an attempt, it has overlapped another. Below the
// flags are the conditions, above them the ID of the start's site.
const (
	flagSaved   = 31
	FlagFailed  = 30
	FlagNamed   = 29
	flagAttempt = 28
	flagOverlap = 27
)

// call says where the facts about a call are on the stack.
type call struct {
	*Latency
	*Match       // of the pair
	began    int // nanoseconds of the monotonic clock
	duration int // nanoseconds
	word     int // see callWord
	key      int // of the map Saved; its first two words are the key of Starts
	slot     int // scratch
	own      int // nanoseconds, or -1 if that is not known; of a Latency that is Nested
	path     int
	caller   int // see Activation
}

// placeOf returns the places of a call's facts on the stack, which all calls
// share: the code handles one after the other.
func (b *builder) placeOf(l *Latency, m *Match) *call {
	if b.callPlace == 0 {
		size := 64
		if slices.ContainsFunc(b.plan.Latencies, func(l *Latency) bool { return l.Nested }) {
			size += 24
		}
		b.callPlace = b.Alloc(size)
	}
	at := b.callPlace // with a word below the key
	return &call{Latency: l, Match: m, began: at, duration: at + 8, word: at + 16, slot: at + 24,
		key: at + 40, own: at + 64, path: at + 72,
		caller: at + 80}
}

func (b *builder) start(l *Latency, pair uint32) {
	c := b.placeOf(l, b.site.startBy(l))
	if !b.site.canRead(c.Start) {
		b.count(CounterUnreadable)
		return
	}
	unread, full, done := b.Label(), b.Label(), b.Label()
	b.onlyIf(l, b.site.Pairs[l].StartIf, done)
	var groups []argcode.Group
	if l.Spans {
		b.block.Saved, groups = b.savedRecord(l)
	}
	saves := l.Spans && b.block.Saved.Size > emptyRecord
	if !l.Outermost {
		b.startWord(c, saves)
	}
	b.callsKey(c, c.Start, pair, unread)
	b.lookUpOrMake(c, l.Starts, full)
	if l.Outermost {
		b.inside(c, done)
		b.startWord(c, saves)
	}
	if b.tears(c) {
		b.Emit(loadN(r1, r7, callsTorn, asm.Half))
		b.JumpIfImm(asm.JNE, r1, 0, r2, done)
	}
	if number := b.site.Pairs[l].StacksIf; number != 0 && c.ByThread() {
		own := b.Label()
		b.Scratch(func() { b.apart(func() { b.onlyIf(l, number, own) }) })
		b.mix()
		b.Jump(done)
		b.Place(own)
	}
	b.compareStart(c)
	b.push(c, done)
	if len(l.Values) > 0 {
		b.keep(c)
	}
	if saves {
		b.save(c, b.block.Saved, groups)
	} else {
		b.Call(asm.FnKtimeGetNs)
		b.Emit(store(r7, callsFirst+callTime, r0))
	}
	if len(l.Values) > 0 {
		// The time after the kept values tells which call they belong to: the
		// map may forget them, and get new ones for the same key.
		b.Emit(fromStack(r2, c.began))
		b.If(asm.JGE, r2, 1, r1, func() {
			b.Emit(fromStack(r1, c.slot), load(r1, r1, callsFirst+callTime),
				store(r2, c.KeptSize()-8, r1))
		})
	}
	b.Place(done)
	b.Aside(full, done, func() { b.count(CounterStarts) })
	b.Aside(unread, done, func() { b.count(CounterUnreadable) })
}

// done emits code that finds the call that ends, and goes to none if there is
// none. That is counted, except for ends of failed calls: a transaction can be
// aborted while no query runs.
func (b *builder) done(l *Latency, pair uint32, failed bool, none argcode.Label) *call {
	unread, unmatched, checked := b.Label(), b.Label(), b.Label()
	if failed {
		unmatched = none
	}
	c := b.placeOf(l, b.site.doneBy(l))
	b.Call(asm.FnKtimeGetNs)
	b.Emit(toStack(c.duration, r0))
	b.callsKey(c, c.Done, pair, unread)
	b.LookUp(l.Starts, c.key, unmatched)
	b.Emit(mov(r7, r0))
	b.frame(c)
	if b.activation(c) != nil {
		b.JumpIfImm(asm.JEq, r9, 0, r1, unmatched) // it could not be read
	}
	mixed := b.Label()
	if b.tears(c) {
		b.Emit(loadN(r2, r7, callsTorn, asm.Half))
		b.JumpIfImm(asm.JNE, r2, 0, r1, mixed)
		b.Aside(mixed, none, func() { b.lost(CounterOverlapped, set(r1, 1)) })
	}
	b.Emit(loadN(r2, r7, callsCount, asm.Word))
	empty := unmatched
	if c.Nested {
		empty = b.Label()
		b.Aside(empty, unmatched, func() { b.endForgotten(c) })
	}
	b.JumpIfImm(asm.JLT, r2, 1, r1, empty)
	b.innermost(c)
	if b.plan.Execs != 0 {
		b.Emit(load(r0, r4, callTime), fromStack(r3, c.duration), asm.Sub.Reg(r3, r0))
		b.Rarely(asm.JSGT, r3, uint64(leastExec), r5, func() {
			some := b.Label()
			b.unlessExec(c, some)
			b.Jump(unmatched)
			b.Place(some)
			b.JumpIfImm(asm.JLT, r2, 1, r3, unmatched) // never: for the verifier
		})
	}
	if b.named(c) {
		other := b.Label()
		b.Emit(load(r0, r4, callFrame), asm.And.Imm(r0, -callBits-1), asm.Xor.Reg(r0, r9))
		if !b.framed(c) {
			b.Emit(asm.RSh.Imm(r0, 64-callNames))
		}
		b.JumpIfImm(asm.JNE, r0, 0, r3, other)
		b.Aside(other, mixed, b.mix)
	}
	switch {
	case b.site.Pairs[l].Over:
		b.forget(c, CounterLeft, 0)
		b.Jump(none)
		return c
	case failed:
		b.fail(c, none)
	case l.Outermost:
		b.popOutermost(c, none)
	default:
		b.pop(c, none, unmatched)
	}

	// R4 is the call.
	b.Emit(load(r1, r4, callWord), toStack(c.word, r1), load(r3, r4, callTime),
		toStack(c.began, r3), fromStack(r1, c.duration), asm.Sub.Reg(r1, r3),
		toStack(c.duration, r1))
	b.unnest(c)
	if b.site.Pairs[l].Alone {
		overlapped := b.Label()
		b.Emit(fromStack(r2, c.word), asm.And.Imm(r2, 1<<flagOverlap))
		b.JumpIfImm(asm.JNE, r2, 0, r3, overlapped)
		b.Aside(overlapped, none, func() { b.lost(CounterOverlapped, set(r1, 1)) })
	}
	if c.ByThread() && l.Birth != None {
		old := b.Label()
		b.JumpIfImm(asm.JSGT, r1, uint64(maxYoung), r2, old)
		b.Aside(old, unmatched, func() { b.bornBefore(c, checked) })
	}
	b.Place(checked)
	if !failed {
		b.compareEnd(c)
		b.Aside(unmatched, none, func() { b.lost(CounterUnmatched, set(r1, 1)) })
	}
	b.Aside(unread, none, func() { b.count(CounterUnreadable) })
	return c
}

// makeRoom removes what is kept for the number of the call that has ended,
// unless other calls have it, too. It may never come again, as that of a
// request, and longer calls would be forgotten for those that have ended.
func (b *builder) makeRoom() {
	c, done := b.ending, b.Label()
	b.LookUp(c.Starts, c.key, done)
	b.Emit(loadN(r1, r0, callsCount, asm.Word))
	b.JumpIfImm(asm.JNE, r1, 0, r2, done)
	remove := func(has bool, m int) {
		if has {
			b.Call(asm.FnMapDeleteElem, argcode.Map(m), onStack(c.key))
		}
	}
	remove(c.Spans, c.Saved)
	remove(len(c.Values) > 0, c.Kept)
	remove(true, c.Starts)
	b.Place(done)
}

// callsKey stores the key of a stack of calls: the number that matches starts
// and ends, then the pair, with the process above it unless the number has it.
func (b *builder) callsKey(c *call, t expr.Term, pair uint32, unread argcode.Label) {
	if t = b.site.bound(t); t.Source == expr.Argument {
		b.load(unread, t.Index)
	}
	key := c.key
	// These numbers are not reported, and processes of other PID namespaces
	// would all have the number 0.
	defer func(namespace *Namespace) { b.kernel.PIDs = namespace }(b.kernel.PIDs)
	b.kernel.PIDs = nil
	if c.ByThread() {
		b.Call(asm.FnGetCurrentPidTgid)
		b.Emit(toStack(key, r0))
		b.siteNumber(r1, uint64(pair))
		b.Emit(toStack(key+8, r1))
		return
	}
	b.term(r9, &t)
	if width := b.site.Pairs[c.Latency].Width; width > 0 {
		b.Truncate(r9, width)
	}
	b.Emit(toStack(key, r9))
	b.siteNumber(r9, uint64(pair))
	b.Call(asm.FnGetCurrentPidTgid)
	b.Emit(asm.RSh.Imm(r0, 32), asm.LSh.Imm(r0, 32), asm.Or.Reg(r0, r9), toStack(key+8, r0))
}

// MaxCalls is how many open calls of a pair are kept for each thread or number.
// Of more, the outermost are forgotten. It is a power of two.
const MaxCalls = 64

// A stack of calls begins with how many have been pushed and how many of them
// are there, 4 bytes each. It is a ring: what is pushed on a full stack takes
// the place of the outermost call. It is read while it changes, so what is
// pushed is counted last, and what is popped is uncounted first.
//
// With Outermost one call is there at most. Then follow how many starts inside
// it have its frame, because the compiler has made one function of two, how
// many starts have been passed inside it whose ends have not, and Ends.Index of
// its own, 2 bytes each but for the first.
const (
	callsPushed  = 0
	callsCount   = 4
	callsShared  = 8
	callsInside  = 12
	callsIndex   = 14
	callsFound   = 16
	callsOutside = 20
	callsFirst   = 24

	// Without Outermost, while calls are looked at: how many were just found to
	// be left, whether the one that ends has failed, the number of the one that
	// was found, and that of the calls up to it. The verifier follows values in
	// registers and on the program's stack, but not those in a map: a loop over
	// the calls would be too much for it.
	callsLeft = callsShared
	callsSome = callsInside

	// With an Activation, 1 if a call has ended that was not the innermost;
	// with Ends.Names, tornAll if none is measured any more. 2 bytes.
	callsTorn = callsIndex
	tornAll   = 2

	// Of a call: when it began, its frame with what is known of the call in the
	// lowest bits, and the start's conditions and site.
	callTime  = 0
	callFrame = 8
	callWord  = 16
	callSize  = 24
)

// The bits of a frame. A call that was left stays on the stack, since a thread
// can have several stacks, as for coroutines and signal handlers: addresses of
// two of these tell nothing, and the call may end after all.
const (
	callLeft    = 1 // its function does not run any more; without an address it has ended
	callForeign = 2 // not Ends.Framed: it ends in another function
	callFailed  = 4

	callOver = callLeft | callFailed
	callBits = callOver | callForeign

	// With Ends.Names the upper bits are made of these, and the address is in
	// the others.
	callNames = 16

	// leastInterpreter is less than what an interpreter that is called by
	// another one takes of the stack.
	leastInterpreter = 64
)

// After the calls, without Outermost, follow how many of them have ended, as
// far as they are looked at, in how many of these the compared argument
// differed, and its values at the innermost starts. All have 4 bytes. Then
// follow the last calls in which it differed: see Differing.
const (
	callsEnded  = callsFirst + MaxCalls*callSize
	callsDiffer = callsEnded + 4
	callsValues = callsDiffer + 4
	callsPairs  = callsValues + 4*valuesKept
	valuesKept  = 16
	pairSize    = 24
	pairsKept   = 8

	// MaxCompared is how many calls of a stack are looked at: the first ones.
	MaxCompared = 256

	// CallsSize is the size of a stack of calls.
	CallsSize = callsPairs + pairSize*pairsKept
)

// Compared is what was seen of an argument that starts and ends have in common
// if they belong together.
type Compared struct {
	Ended, Differ uint32 // calls, of the first MaxCompared
	Last          []Differing
	Mixed         bool // no call is measured any more, see Ends.Names
}

// Differing is a call in which the argument differed: its values at the start
// and the end, and the times of these on the monotonic clock.
type Differing struct {
	Start, End   uint32
	Began, Ended uint64
}

// Compared returns what the calls of a stack had in common.
func (l *Latency) Compared(stack []byte) (c Compared) {
	if l.Outermost {
		return c
	}
	word := func(at int) uint32 { return binary.NativeEndian.Uint32(stack[at:]) }
	c.Ended, c.Differ = word(l.after(callsEnded)), word(l.after(callsDiffer))
	c.Mixed = binary.NativeEndian.Uint16(stack[callsTorn:]) == tornAll
	for n := c.Differ - min(c.Differ, pairsKept); n != c.Differ; n++ {
		at := l.after(callsPairs) + pairSize*int(n%pairsKept)
		c.Last = append(c.Last, Differing{word(at), word(at + 4),
			binary.NativeEndian.Uint64(stack[at+8:]), binary.NativeEndian.Uint64(stack[at+16:])})
	}
	return c
}

// compared returns the argument that is compared at the site.
func (b *builder) compared(c *call) (t expr.Term, ok bool) {
	t = expr.Term{Source: expr.Argument, Index: b.site.Pairs[c.Latency].Compared - 1}
	return t, t.Index >= 0 && b.site.canRead(t)
}

// compareStart stores the value of the compared argument at c.duration, for
// push. R7 points to the stack of calls.
func (b *builder) compareStart(c *call) {
	t, ok := b.compared(c)
	if !ok {
		return
	}
	known := b.Label()
	b.SetField(r10, c.duration, 0, r1)
	b.Emit(loadN(r1, r7, c.after(callsEnded), asm.Word))
	b.JumpIfImm(asm.JGE, r1, MaxCompared, r2, known)
	b.apart(func() {
		b.load(known, t.Index)
		b.term(r9, &t)
	})
	b.Emit(toStack(c.duration, r9))
	b.Place(known)
}

// compareEnd counts a call that has ended, unless many have, and compares an
// argument with that of the start: it differs where the end is not that of the
// start. R7 points to the stack of calls.
func (b *builder) compareEnd(c *call) {
	if c.Outermost || !c.ByThread() {
		return
	}
	counted := b.Label()
	b.Emit(loadN(r1, r7, c.after(callsEnded), asm.Word))
	b.JumpIfImm(asm.JGE, r1, MaxCompared, r2, counted)
	b.Emit(asm.Add.Imm(r1, 1), storeN(r7, c.after(callsEnded), r1, asm.Word))
	if t, ok := b.compared(c); ok {
		b.apart(func() {
			b.load(counted, t.Index)
			b.term(r9, &t)
		})
		b.Truncate(r9, 4)
		b.valueAt(c, r1)
		b.Emit(loadN(r2, r1, c.after(callsValues), asm.Word))
		b.JumpIf(asm.JEq, r2, r9, counted)
		b.Emit(loadN(r1, r7, c.after(callsDiffer), asm.Word), mov(r3, r1), asm.And.Imm(r3, pairsKept-1),
			asm.Mul.Imm(r3, pairSize), asm.Add.Reg(r3, r7), storeN(r3, c.after(callsPairs), r2, asm.Word),
			storeN(r3, c.after(callsPairs)+4, r9, asm.Word), asm.Add.Imm(r1, 1),
			storeN(r7, c.after(callsDiffer), r1, asm.Word), fromStack(r1, c.began),
			store(r3, c.after(callsPairs)+8, r1), fromStack(r2, c.duration), asm.Add.Reg(r1, r2),
			store(r3, c.after(callsPairs)+16, r1))
	}
	b.Place(counted)
}

// valueAt sets a register to callsValues bytes before the value of the call
// whose place is after the key.
func (b *builder) valueAt(c *call, dst asm.Register) {
	b.Emit(fromStack(dst, c.key+16), asm.And.Imm(dst, valuesKept-1), asm.LSh.Imm(dst, 2),
		asm.Add.Reg(dst, r7))
}

// An OpenCall is a call on a stack that has not ended.
type OpenCall struct {
	Began      time.Duration // of the monotonic clock
	Site       uint32        // of the start; with Spans only
	Conditions uint32        // bits: which of Latency.Conditions hold
	Saved      bool          // the map Saved has something of it
	Slot       uint64        // the last word of its key there
	Failed     bool          // its thread or process has ended
}

// Calls returns the calls that are on a stack, the innermost first. One that is
// just being pushed has no time, and is left out.
func (l *Latency) Calls(stack []byte) []OpenCall {
	order := binary.NativeEndian
	count, pushed := order.Uint32(stack[callsCount:]), order.Uint32(stack[callsPushed:])
	var calls []OpenCall
	depth := uint32(l.depth())
	for n := range min(count, depth) {
		slot := (pushed - 1 - n) % depth
		call := stack[callsFirst+int(slot)*callSize:]
		began, word := order.Uint64(call[callTime:]), order.Uint64(call[callWord:])
		if began == 0 || order.Uint64(call[callFrame:])&callOver != 0 {
			continue
		}
		calls = append(calls, OpenCall{
			Began: time.Duration(began), Site: uint32(word >> 32),
			Conditions: uint32(word) & (1<<MaxStartConditions - 1),
			Saved:      word&(1<<flagSaved) != 0, Slot: uint64(slot),
		})
	}
	return calls
}

// Caller returns the thread whose calls are on a stack, and their pair, from
// the stack's key. Where calls are not matched by the thread, tid is 0.
func Caller(key [2]uint64) (pid, tid int, pair uint32) {
	if key[1]>>32 == 0 {
		return int(key[0] >> 32), int(uint32(key[0])), uint32(key[1])
	}
	return int(key[1] >> 32), 0, uint32(key[1])
}

// leastExec is less than the kernel takes to run another program: no younger
// call is one of the program before.
const leastExec = 50 * time.Microsecond

// unlessExec goes to same unless the process has run another program since the
// innermost call of those at R7 began, which is at R4, or may have. Then all
// calls of before are over. It sets R1, R2 and R4 as innermost does.
func (b *builder) unlessExec(c *call, same argcode.Label) {
	here, process := b.Label(), b.Temporary(8)
	b.Emit(load(r0, r4, callTime), toStack(c.began, r0))
	if !c.ByThread() { // another thread may be about to set it
		b.JumpIfImm(asm.JEq, r0, 0, r3, here)
	}
	b.ProcessTo(process)
	b.Element(b.plan.Execs, process)
	b.Rarely(asm.JEq, r0, 0, r1, func() { b.LookUpIndex(b.plan.Forgotten, process, 0, here) })
	b.Emit(load(r1, r0, 0), fromStack(r2, c.began))
	b.JumpIf(asm.JLE, r1, r2, here)
	b.forget(c, CounterReplaced, 0)
	b.Aside(here, same, func() {
		b.innermost(c)
		b.Emit(loadN(r2, r7, callsCount, asm.Word))
	})
}

// forget empties the stack at R7, from which some calls are removed already,
// and counts those that were not over.
func (b *builder) forget(c *call, as Counter, removed int32) {
	next, counted := b.Label(), b.Label()
	b.Emit(loadN(r1, r7, callsPushed, asm.Word), loadN(r2, r7, callsCount, asm.Word),
		storeImm(r7, callsCount, 0, asm.Word), set(r5, removed))
	if c.Nested {
		b.SetField(r7, c.after(nestedForgotten), 0, r3)
	}
	b.JumpIfImm(asm.JLT, r2, 1, r3, counted)
	b.JumpIfImm(asm.JGT, r2, uint64(c.depth()), r3, counted) // never: see searchCalls
	b.Place(next)
	b.Emit(asm.Sub.Imm(r1, 1))
	b.callAt(c, r4)
	b.Emit(load(r0, r4, callFrame), asm.And.Imm(r0, callOver), asm.Sub.Imm(r0, 1),
		asm.RSh.Imm(r0, 63), asm.Add.Reg(r5, r0), asm.Sub.Imm(r2, 1))
	b.JumpIfImm(asm.JGT, r2, 0, r3, next)
	b.Place(counted)
	b.Emit(toStack(c.slot, r5))
	b.lost(as, fromStack(r1, c.slot))
}

// maxYoung is the age up to which a call is certainly one of this thread: the
// kernel reuses the number of a thread only after all others.
const maxYoung = 100 * time.Millisecond

// lookUpOrMake sets R7 to a value of a map (Starts, Saved or Kept), and makes
// one of zeros where there is none. It goes to full if there is no room.
func (b *builder) lookUpOrMake(c *call, m int, full argcode.Label) {
	b.Element(m, c.key)
	b.Rarely(asm.JEq, r0, 0, r1, func() {
		b.LookUpIndex(c.Zeros, c.key-8, 0, full)
		b.Call(asm.FnMapUpdateElem, argcode.Map(m), onStack(c.key), r0, updateNoExist)
		if m == c.Starts && b.plan.Callers != 0 {
			process, known := b.Temporary(8), b.Label()
			b.ProcessTo(process)
			b.lookUpOrAdd(b.plan.Callers, process, process, known)
			b.Place(known)
		}
		b.LookUp(m, c.key, full)
	})
	b.Emit(mov(r7, r0))
}

// push emits code that pushes a call on the stack at R7, without its time, and
// stores its place after the key. Afterwards R7 points callsFirst bytes before
// the call. It goes to mixed where no call is measured from now on, see
// Ends.Names.
func (b *builder) push(c *call, mixed argcode.Label) {
	full, pushed := b.Label(), b.Label()
	count := func() {
		b.Emit(loadN(r1, r7, callsPushed, asm.Word), loadN(r2, r7, callsCount, asm.Word))
	}
	b.frame(c)
	count()
	if b.plan.Execs != 0 && !c.Outermost {
		b.Rarely(asm.JNE, r2, 0, r3, func() {
			known := b.Label()
			b.innermost(c)
			b.unlessExec(c, known)
			b.Place(known)
			count()
		})
	}
	if c.Fails || c.ByThread() && !c.Outermost {
		b.leave(c, mixed)
	}
	if b.site.Pairs[c.Latency].Alone {
		b.overlap(c)
	}
	if b.activation(c) != nil {
		b.Rarely(asm.JGE, r2, uint64(c.depth()), r3, func() { b.freePlace(c) })
	}
	// Others may read or take it before it has its time: those of a call before
	// must not be there.
	b.callAt(c, r5)
	b.SetField(r5, callTime, 0, r3)
	b.Emit(mov(r3, r1), asm.Add.Imm(r3, 1), storeN(r7, callsPushed, r3, asm.Word))
	b.JumpIfImm(asm.JGE, r2, uint64(c.depth()), r3, full)
	b.Emit(asm.Add.Imm(r2, 1), storeN(r7, callsCount, r2, asm.Word))
	b.Place(pushed)
	b.storeSlot(c)
	b.nest(c)
	if _, compares := b.compared(c); compares {
		b.valueAt(c, r2)
		b.Emit(fromStack(r3, c.duration), storeN(r2, c.after(callsValues), r3, asm.Word))
	}
	b.Emit(asm.Mul.Imm(r1, callSize), asm.Add.Reg(r7, r1))
	if !b.framed(c) {
		b.Emit(asm.Or.Imm(r9, callForeign))
	}
	b.Emit(store(r7, callsFirst+callFrame, r9))
	b.Emit(fromStack(r1, c.word), store(r7, callsFirst+callWord, r1))
	b.Aside(full, pushed, func() {
		b.callAt(c, r4)
		b.isFrame(callOver, pushed)
		b.Emit(toStack(c.slot, r1))
		b.lost(CounterReplaced, set(r1, 1))
		if c.Nested {
			b.Emit(load(r1, r7, c.after(nestedForgotten)), asm.Add.Imm(r1, 1),
				store(r7, c.after(nestedForgotten), r1))
		}
		b.Emit(fromStack(r1, c.slot))
	})
}

// freePlace has R1, the number of the call that is pushed on the full stack at
// R7, be that of a place whose call has ended, if there is one: calls of
// greenlets end in any order. Those whose places are passed over become the
// innermost, which tells nothing with an Activation. It keeps R2, R7 and R9.
func (b *builder) freePlace(c *call) {
	next, free := b.Label(), b.Label()
	b.Emit(loadN(r2, r7, callsTorn, asm.Half))
	b.If(asm.JNE, r2, 0, r3, func() {
		b.Emit(set(r2, int32(c.depth())))
		b.Place(next)
		b.callAt(c, r4)
		b.isFrame(callOver, free)
		b.Emit(asm.Add.Imm(r1, 1), asm.Sub.Imm(r2, 1))
		b.JumpIfImm(asm.JGT, r2, 0, r3, next)
		b.Emit(loadN(r1, r7, callsPushed, asm.Word))
		b.Place(free)
		// The verifier forgets which turn of the loop this is.
		b.Emit(storeN(r7, callsFound, r1, asm.Word), loadN(r1, r7, callsFound, asm.Word))
	})
	b.Emit(loadN(r2, r7, callsCount, asm.Word))
}

// overlap marks the call that starts, and the innermost of R2 calls at R7, if
// that goes on. It keeps R1, R2, R7 and R9.
func (b *builder) overlap(c *call) {
	alone := b.Label()
	b.JumpIfImm(asm.JLT, r2, 1, r3, alone)
	b.lastOf(c)
	b.Emit(asm.Add.Imm(r4, callsFirst))
	b.isFrame(callOver, alone)
	b.Emit(load(r3, r4, callWord), asm.Or.Imm(r3, 1<<flagOverlap), store(r4, callWord, r3),
		fromStack(r3, c.word), asm.Or.Imm(r3, 1<<flagOverlap), toStack(c.word, r3))
	b.Place(alone)
}

// lastOf sets R4 to callsFirst bytes before the call with the number R1 less 1.
func (b *builder) lastOf(c *call) {
	b.Emit(mov(r4, r1), asm.Sub.Imm(r4, 1), asm.And.Imm(r4, c.lastPlace()),
		asm.Mul.Imm(r4, callSize), asm.Add.Reg(r4, r7))
}

// framed reports whether start and end have the same frame.
func (b *builder) framed(c *call) bool { return b.site.Pairs[c.Latency].Framed && c.ByThread() }

// activation returns where the frame of the interpreter is, nil if there is
// none.
func (b *builder) activation(c *call) *Activation {
	if a := b.site.Pairs[c.Latency].Activation; a.Depth > 0 && b.framed(c) {
		return &a
	}
	return nil
}

// named reports whether the frame has the names of the call.
func (b *builder) named(c *call) bool {
	return b.site.Pairs[c.Latency].Names[0] != 0 && c.ByThread()
}

// tears reports whether calls of a thread may be given up, see mix.
func (b *builder) tears(c *call) bool {
	return b.named(c) || b.site.Pairs[c.Latency].StacksIf != 0 && c.ByThread()
}

// mix gives up the calls of the thread at R7, see Ends.Names.
func (b *builder) mix() {
	b.Emit(storeImm(r7, callsTorn, tornAll, asm.Half), storeImm(r7, callsCount, 0, asm.Word))
}

// addNames puts what is made of the call's names into the upper bits of R9.
func (b *builder) addNames(c *call) {
	unread := b.Label()
	b.Scratch(func() {
		at := b.Alloc(16)
		b.Emit(toStack(at, r9))
		b.SetField(r10, at+8, 0, r1)
		b.apart(func() {
			for _, n := range b.site.Pairs[c.Latency].Names {
				if n == 0 {
					continue
				}
				b.load(unread, n-1)
				b.term(r9, &expr.Term{Source: expr.Argument, Index: n - 1})
				b.Emit(fromStack(r1, at+8), asm.LoadImm(r3, pathFactor, asm.DWord), asm.Add.Reg(r1, r9),
					asm.Mul.Reg(r1, r3), toStack(at+8, r1))
			}
		})
		b.Place(unread)
		b.Emit(fromStack(r1, at+8), asm.RSh.Imm(r1, 64-callNames), asm.LSh.Imm(r1, 64-callNames),
			fromStack(r9, at), asm.LSh.Imm(r9, callNames), asm.RSh.Imm(r9, callNames), asm.Or.Reg(r9, r1))
	})
}

// readActivation sets R9 to the frame of the interpreter, or to 0. R7 points to
// the stack of calls.
//
// What points to the frame may be a variable of the interpreter's loop, on the
// stack of C, as in Python 3.11: it is as far from the stack pointer at each
// hit of a site. So the thread's last one is kept, with the stack pointer: one
// read of user memory in place of three saves 130 of 490 ns.
func (b *builder) readActivation(c *call, a *Activation) {
	saved, at := savedRegisters[b.kernel.Machine], b.Temporary(8)
	unread, read, all, known := b.Label(), b.Label(), b.Label(), b.Label()
	last := c.lasts()
	if b.site.Pairs[c.Latency].Start == 0 {
		last += lastSize
	}
	b.Emit(load(r1, r6, 8*saved.PC), load(r2, r6, 8*saved.SP), load(r3, r7, last))
	b.JumpIf(asm.JNE, r1, r3, all)
	b.Emit(load(r3, r7, last+8))
	b.JumpIf(asm.JNE, r2, r3, all)
	b.Emit(load(r3, r7, last+16))
	b.Place(known)
	b.Emit(asm.Add.Imm(r3, a.Members[a.Depth-1]))
	b.CallOr(unread, asm.FnProbeReadUser, onStack(at), 8)
	b.Emit(fromStack(r9, at))
	b.Place(read)
	b.Aside(unread, read, func() { b.Emit(set(r9, 0)) })
	b.Aside(all, known, func() {
		b.siteNumber(r3, uint64(a.Variable))
		b.Emit(load(r1, r6, 8*saved.PC), asm.Add.Reg(r3, r1))
		for i := range a.Depth {
			if i > 0 {
				b.Emit(asm.Add.Imm(r3, a.Members[i-1]))
			}
			b.CallOr(unread, asm.FnProbeReadUser, onStack(at), 8)
			b.Emit(fromStack(r3, at))
		}
		b.Emit(load(r2, r6, 8*saved.SP), mov(r1, r3), asm.Sub.Reg(r1, r2))
		b.If(asm.JLT, r1, nearStack, r0, func() {
			b.Emit(load(r1, r6, 8*saved.PC), store(r7, last, r1), store(r7, last+8, r2),
				store(r7, last+16, r3))
		})
	})
}

// lastSize is the size of what readActivation keeps of starts, and of ends: the
// site, the stack pointer, and the pointer to the frame. That is no more than
// nearStack above the stack pointer.
const (
	lastSize  = 24
	nearStack = 4096
)

// frame sets R9 to the frame at the site, without its lowest bits. It changes
// R0 to R5.
func (b *builder) frame(c *call) {
	b.address(c)
	if b.named(c) {
		b.addNames(c)
	}
}

func (b *builder) address(c *call) {
	saved, f := savedRegisters[b.kernel.Machine], b.site.Frame
	if a := b.activation(c); a != nil {
		b.readActivation(c, a)
		b.Emit(asm.And.Imm(r9, -callBits-1))
		return
	}
	if saved.General == nil || !c.ByThread() {
		b.Emit(set(r9, 0))
		return
	}
	word := saved.SP
	if f.Known {
		word = saved.General[f.Register]
	}
	if b.lookedUp() && f.Known {
		b.siteNumber(r9, uint64(f.Offset))
		b.Emit(load(r1, r6, 8*word), asm.Add.Reg(r9, r1))
	} else {
		b.Emit(load(r9, r6, 8*word))
		if f.Offset != 0 {
			b.Emit(asm.Add.Imm(r9, f.Offset))
		}
	}
	b.Emit(asm.And.Imm(r9, -callBits-1))
}

// isFrame goes to a label if the frame of the call at R4 has any of the bits.
// It sets R0 to the frame, and R3.
func (b *builder) isFrame(bits int32, then argcode.Label) {
	b.Emit(load(r0, r4, callFrame), mov(r3, r0), asm.And.Imm(r3, bits))
	b.JumpIfImm(asm.JNE, r3, 0, r5, then)
}

// leave emits code that removes the innermost of R2 calls, the last of which
// has the number R1 less one, if it has ended or failed. Then it marks those
// that were left: a function with the frame R9 goes on. When there are many it
// removes these, too. An interpreter leaves no call: with Ends.Names that shows
// that the thread has another stack in place of its own.
func (b *builder) leave(c *call, mixed argcode.Label) {
	over, look, looked := b.Label(), b.Label(), b.Label()
	framed, checked := b.framed(c), b.Label()
	innermost := func() {
		b.JumpIfImm(asm.JLT, r2, 1, r3, looked)
		b.lastOf(c)
		b.Emit(load(r0, r4, callsFirst+callFrame))
	}
	innermost()
	b.Emit(mov(r3, r0))
	if framed { // one that was left is not removed if it has an address
		b.JumpIfImm(asm.JEq, r0, callLeft, r3, over)
		b.Emit(asm.And.Imm(r3, callFailed))
	} else {
		b.Emit(asm.And.Imm(r3, callOver))
	}
	b.JumpIfImm(asm.JNE, r3, 0, r0, over)
	b.Place(checked)
	ordered := framed && b.activation(c) == nil && !b.named(c)
	switch {
	case ordered:
		b.JumpIf(asm.JLT, r0, r9, look)
	case b.named(c) && (framed || b.site.Pairs[c.Latency].Lone):
		b.Emit(asm.Sub.Reg(r0, r9), asm.LSh.Imm(r0, callNames))
		above := int64(-leastInterpreter) << callNames
		b.Rarely(asm.JSLT, r0, uint64(above), r3, func() {
			b.mix()
			b.Jump(mixed)
		})
	}
	b.Place(looked)
	b.Aside(over, checked, func() {
		b.Emit(asm.Sub.Imm(r1, 1), asm.Sub.Imm(r2, 1))
		if framed { // others may have ended inside it, as calls of coroutines do
			next, last := b.Label(), b.Label()
			b.JumpIfImm(asm.JGT, r2, uint64(c.depth()), r3, looked) // never: see searchCalls
			b.Place(next)
			b.JumpIfImm(asm.JLT, r2, 1, r3, last)
			b.Emit(asm.Sub.Imm(r1, 1))
			b.callAt(c, r4)
			b.Emit(load(r0, r4, callFrame), asm.Sub.Imm(r2, 1))
			b.JumpIfImm(asm.JEq, r0, callLeft, r3, next)
			b.Emit(asm.Add.Imm(r1, 1), asm.Add.Imm(r2, 1))
			b.Place(last)
			b.Emit(storeN(r7, callsFound, r1, asm.Word), storeN(r7, callsOutside, r2, asm.Word),
				loadN(r1, r7, callsFound, asm.Word), loadN(r2, r7, callsOutside, asm.Word))
		}
		innermost()
	})
	if !ordered {
		return
	}
	b.Aside(look, looked, func() {
		next, stop := b.Label(), b.Label()
		b.JumpIfImm(asm.JGT, r2, uint64(c.depth()), r3, looked) // never: see searchCalls
		b.Emit(storeN(r7, callsCount, r2, asm.Word), storeN(r7, callsPushed, r1, asm.Word))
		b.Place(next)
		b.Emit(asm.Sub.Imm(r1, 1))
		b.callAt(c, r4)
		b.Emit(load(r0, r4, callFrame), mov(r3, r0), asm.And.Imm(r3, callForeign))
		b.JumpIf(asm.JGE, r0, r9, stop)
		b.JumpIfImm(asm.JNE, r3, 0, r5, stop)
		b.markLeft()
		b.Emit(asm.Sub.Imm(r2, 1))
		b.JumpIfImm(asm.JGT, r2, 0, r3, next)
		b.Emit(asm.Sub.Imm(r1, 1))
		b.Place(stop)
		b.Emit(asm.Add.Imm(r1, 1))
		b.found(c)
		b.Emit(loadN(r3, r7, callsCount, asm.Word))
		b.JumpIfImm(asm.JGE, r3, uint64(c.depth()/2), r0, looked)
		b.Emit(mov(r2, r3), loadN(r1, r7, callsPushed, asm.Word))
	})
}

// markLeft marks the call at R4, whose frame is in R0, as left if that is below
// R9, and counts it unless it was over already. There are no jumps: the
// verifier would follow each way through a loop.
func (b *builder) markLeft() {
	b.Emit(mov(r3, r0), asm.Sub.Reg(r3, r9), asm.RSh.Imm(r3, 63), // 1 if it is below
		mov(r5, r0), asm.And.Imm(r5, callOver), asm.Sub.Imm(r5, 1), asm.RSh.Imm(r5, 63), // 1 if it is not over
		asm.And.Reg(r5, r3), asm.Or.Reg(r0, r3), store(r4, callFrame, r0),
		loadN(r3, r7, callsLeft, asm.Word), asm.Add.Reg(r3, r5), storeN(r7, callsLeft, r3, asm.Word))
}

// found forgets what the verifier knows of R1 and R2, and counts the calls that
// were marked.
func (b *builder) found(c *call) {
	if !c.ByThread() {
		return // another thread may be at it
	}
	b.Emit(storeN(r7, callsFound, r1, asm.Word), storeN(r7, callsOutside, r2, asm.Word),
		loadN(r3, r7, callsLeft, asm.Word))
	b.Rarely(asm.JNE, r3, 0, r0, func() {
		b.Emit(asm.LSh.Imm(r3, 32), asm.ArSh.Imm(r3, 32), toStack(c.key+16, r3),
			storeImm(r7, callsLeft, 0, asm.Word))
		b.lost(CounterLeft, fromStack(r1, c.key+16))
		if c.Nested {
			b.Call(asm.FnKtimeGetNs)
			b.tear(c)
		}
	})
	b.Emit(loadN(r1, r7, callsFound, asm.Word), loadN(r2, r7, callsOutside, asm.Word))
}

// pop emits code that removes the call that ends here from the R2 calls on the
// stack at R7, and sets R4 to it. The innermost one is in R4, and its number in
// R1. It goes to none if that is a call that has failed, and to unmatched if
// there is no such call, or if it has begun after the end, as it can if calls
// are not matched by the thread.
func (b *builder) pop(c *call, none, unmatched argcode.Label) {
	taken := b.Label()
	b.findCall(c, none, unmatched, func(isInnermost argcode.Label) {
		b.Emit(loadN(r3, r7, callsCount, asm.Word))
		b.JumpIf(asm.JEq, r3, r2, isInnermost)
		b.Emit(fromStack(r0, c.duration))
		b.tear(c)
		if b.activation(c) != nil {
			b.Emit(storeImm(r7, callsTorn, 1, asm.Half))
		}
		if !c.ByThread() {
			b.notYounger(c, unmatched)
		}
		b.SetField(r4, callFrame, callLeft, r0)
		b.Jump(taken)
	})
	if !c.ByThread() {
		b.notYounger(c, unmatched)
	}
	b.Emit(asm.Sub.Imm(r2, 1), storeN(r7, callsCount, r2, asm.Word),
		storeN(r7, callsPushed, r1, asm.Word))
	b.Place(taken)
	b.storeSlot(c)
}

// findCall emits code that finds the call that ends at the site. If it is not
// the innermost, further is called to emit what is done then, with the label of
// what follows.
func (b *builder) findCall(
	c *call, none, missing argcode.Label, further func(innermost argcode.Label),
) {
	search, found := b.Label(), b.Label()
	framed := b.framed(c)
	if framed {
		b.Emit(load(r0, r4, callFrame))
		b.JumpIf(asm.JNE, r0, r9, search)
	} else {
		b.isFrame(callOver, search)
	}
	b.Place(found)
	b.Later(func() {
		b.Place(search)
		b.searchCalls(c, framed, none, missing)
		further(found)
		b.Jump(found)
	})
}

// searchCalls emits the search for the call that ends here, from the innermost
// of R2 calls outwards. R1 becomes its number, R2 that of the calls up to it,
// and R4 points to it.
//
// A function that has both ends has the frame of the call. A start whose
// function has no end may end anywhere: the last one ends first, as all do at
// an end whose function has no start. Where the function goes on, those that
// were called from it do not.
func (b *builder) searchCalls(c *call, framed bool, none, missing argcode.Label) {
	next, hit, own := b.Label(), b.Label(), b.Label()
	_, failed := b.site.Pairs[c.Latency].end()
	mayFail := c.Fails && !failed
	// The kernel wants to know that the loop ends.
	b.JumpIfImm(asm.JGT, r2, uint64(c.depth()), r3, missing)
	if framed && mayFail {
		b.Emit(storeImm(r7, callsSome, 0, asm.Half))
	}
	b.Place(next)
	b.callAt(c, r4)
	b.Emit(load(r0, r4, callFrame), mov(r3, r0))
	if framed {
		b.Emit(asm.And.Imm(r3, -callLeft-1))
		b.JumpIf(asm.JEq, r3, r9, hit)
		if mayFail { // it is the end of that call unless one further out has not failed
			b.Emit(asm.Xor.Reg(r3, r9), asm.Xor.Imm(r3, callFailed), asm.Sub.Imm(r3, 1),
				asm.RSh.Imm(r3, 63), loadN(r5, r7, callsSome, asm.Half), asm.Or.Reg(r5, r3),
				storeN(r7, callsSome, r5, asm.Half))
		}
		b.Emit(mov(r3, r0), asm.And.Imm(r3, callBits))
		b.JumpIfImm(asm.JEq, r3, callForeign, r5, hit)
		if b.activation(c) == nil {
			b.markLeft()
		}
	} else {
		b.Emit(asm.And.Imm(r3, callOver))
		b.JumpIfImm(asm.JEq, r3, 0, r5, hit)
		if mayFail {
			// It is the end of the call that has failed unless that was called
			// from here: the frame is not below R9, and bit 2 is set.
			b.Emit(mov(r3, r0), asm.And.Imm(r3, -callBits-1), asm.Sub.Reg(r3, r9),
				asm.Xor.Imm(r3, -1), asm.LSh.Imm(r0, 61), asm.And.Reg(r3, r0))
			b.JumpIfImm(asm.JSLT, r3, 0, r5, own)
		}
	}
	b.Emit(asm.Sub.Imm(r1, 1), asm.Sub.Imm(r2, 1))
	b.JumpIfImm(asm.JGT, r2, 0, r3, next)
	b.Place(hit)
	b.found(c)
	if framed && mayFail {
		b.If(asm.JLE, r2, 0, r3, func() {
			b.Emit(loadN(r0, r7, callsSome, asm.Half))
			b.JumpIfImm(asm.JNE, r0, 0, r3, none)
		})
	}
	b.JumpIfImm(asm.JLT, r2, 1, r3, missing)
	b.callAt(c, r4)
	if framed {
		back, here := b.Label(), b.Label()
		b.isFrame(callLeft, back)
		b.Place(here)
		b.Aside(back, here, func() { // it was on another stack
			b.Emit(asm.Sub.Imm(r0, callLeft), store(r4, callFrame, r0))
			b.lost(CounterLeft, set(r1, -1))
			b.Emit(loadN(r1, r7, callsFound, asm.Word), loadN(r2, r7, callsOutside, asm.Word))
			b.callAt(c, r4)
		})
	}
	if !framed && mayFail {
		b.Aside(own, none, func() { b.SetField(r4, callFrame, callLeft, r0) })
	}
}

// is goes to a label if the call at R4 has any of the flags. It changes R0 and
// R3.
func (b *builder) is(flags int32, then argcode.Label) {
	b.Emit(load(r0, r4, callWord), asm.And.Imm(r0, flags))
	b.JumpIfImm(asm.JNE, r0, 0, r3, then)
}

// fail emits code that marks the call that fails here, and sets R4 to it. The
// innermost of R2 calls is in R4, and its number in R1. It goes to none if
// there is no call that has not failed. The call stays on the stack for an end
// that comes all the same, as of a query that is a ROLLBACK.
func (b *builder) fail(c *call, none argcode.Label) {
	if c.Outermost {
		b.isFrame(callFailed, none)
	} else {
		b.findCall(c, none, none, func(argcode.Label) {})
	}
	if !c.ByThread() {
		b.notYounger(c, none)
	}
	if b.site.Pairs[c.Latency].Attempt {
		over := b.Label()
		b.is(1<<flagAttempt, over)
		b.Aside(over, none, func() { b.Emit(storeImm(r7, callsCount, 0, asm.Word)) })
	}
	b.Emit(load(r0, r4, callWord), asm.Or.Imm(r0, 1<<FlagFailed), store(r4, callWord, r0),
		load(r0, r4, callFrame), asm.Or.Imm(r0, callFailed), store(r4, callFrame, r0))
	b.storeSlot(c)
}

// notYounger goes to a label if the call at R4 has begun after the end.
func (b *builder) notYounger(c *call, younger argcode.Label) {
	b.Emit(load(r5, r4, callTime), fromStack(r0, c.duration))
	b.JumpIfImm(asm.JEq, r5, 0, r3, younger)
	b.JumpIf(asm.JGT, r5, r0, younger)
}

// innermost sets R1 to the number of the innermost call, and R4 to the call.
func (b *builder) innermost(c *call) {
	b.Emit(loadN(r1, r7, callsPushed, asm.Word), asm.Sub.Imm(r1, 1))
	b.callAt(c, r4)
}

// storeSlot stores the place of the call whose number is in R1 after the key.
func (b *builder) storeSlot(c *call) {
	b.Emit(asm.And.Imm(r1, c.lastPlace()), toStack(c.key+16, r1))
}

// callAt sets a register to the call whose number is in R1. It changes R3.
func (b *builder) callAt(c *call, dst asm.Register) {
	b.Emit(mov(r3, r1), asm.And.Imm(r3, c.lastPlace()), asm.Mul.Imm(r3, callSize), mov(dst, r7),
		asm.Add.Reg(dst, r3), asm.Add.Imm(dst, callsFirst))
}

// bornBefore goes to checked if this thread is older than the call. Otherwise
// the call was one of an earlier thread with the same number, and so were all
// calls on the stack at R7, which it empties.
func (b *builder) bornBefore(c *call, checked argcode.Label) {
	birth := b.Temporary(8)
	b.Call(asm.FnGetCurrentTask)
	b.CallOr(checked, asm.FnProbeReadKernel, onStack(birth), 8, placeAt(r0, c.Birth))
	b.Emit(fromStack(r1, birth), fromStack(r2, c.began))
	b.JumpIf(asm.JLE, r1, r2, checked)
	removed := int32(1)
	if _, failed := b.site.Pairs[c.Latency].end(); failed {
		removed = 0
	}
	b.forget(c, CounterReplaced, removed)
}
