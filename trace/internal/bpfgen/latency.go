// SPDX-License-Identifier: BSD-2-Clause

package bpfgen

import (
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
	Start, Done expr.Term // what must be equal: TID for the same thread, or another number

	// Starts is the descriptor of an LRU hash map: from two words, see
	// callsKey, to a stack of CallsSize bytes. Zeros is that of an array of one
	// element of zeros, large enough for a stack and for what is saved.
	Starts, Zeros int

	// Birth is the offset of task_struct.start_time, or None if it is not
	// known.
	Birth int

	// Fails says that some pair has probes that end a call where it fails.
	Fails bool

	// Conditions are comparisons of the start's values. They are made at the
	// start, and remembered as bits by their numbers (expr.Node.AtStart).
	Conditions []StartCondition

	// Spans has each end send an event. Saved is the descriptor of an LRU hash
	// map with what the start's part of the event is made of: from three words,
	// those of callsKey and the place in the stack, to SavedSize bytes.
	Spans     bool
	Saved     int
	SavedSize int
}

// StartCondition is a comparison, and whether its opposite is asked for.
type StartCondition struct {
	Node    *expr.Node
	Negated bool
}

// MaxStartConditions is how many conditions of a start there can be: they share
// a word with the site's number and two flags.
const MaxStartConditions = 30

// StartConditions appends the comparisons of the start's values in a condition.
func StartConditions(to []StartCondition, n *expr.Node) []StartCondition {
	return startConditions(to, n, false)
}

func startConditions(to []StartCondition, n *expr.Node, negated bool) []StartCondition {
	if n.OfStart() {
		return append(to, StartCondition{n, negated})
	}
	for _, part := range n.Nodes {
		to = startConditions(to, part, negated != (n.Op == expr.Not))
	}
	return to
}

// Ends says what a site is for a Latency: numbers of pairs, which are not 0, or
// 0. A site can end one call and start another one. Failed ends a call that has
// failed.
type Ends struct {
	Start, Done, Failed uint32
}

// end returns the pair that a site ends, and whether because it has failed.
func (e Ends) end() (pair uint32, failed bool) {
	if e.Done != 0 {
		return e.Done, false
	}
	return e.Failed, e.Failed != 0
}

// The flags of a call's word: there is something in the map Saved, and the call
// has failed. Below them are the conditions, above the ID of the start's site.
const (
	flagSaved  = 31
	FlagFailed = 30
)

// byThread reports whether starts and ends are matched by nothing but the
// thread.
func (l *Latency) byThread() bool {
	return l.Start.Source == expr.TID && l.Done.Source == expr.TID && !l.Start.HasMask &&
		!l.Done.HasMask
}

// call is where on the stack starts and ends have what they know of a call.
type call struct {
	*Latency
	began    int // nanoseconds of the monotonic clock
	duration int // nanoseconds
	word     int // see callWord
	key      int // of the map Saved, of which the first two words are that of Starts
	slot     int // for passing use
}

// placeOf gives a call its place on the stack, the same for all calls: one is
// dealt with after the other.
func (b *builder) placeOf(l *Latency) *call {
	if b.callPlace == 0 {
		b.callPlace = b.Alloc(64)
	}
	at := b.callPlace
	// With a word below the key.
	return &call{Latency: l, began: at, duration: at + 8, word: at + 16, slot: at + 24,
		key: at + 40}
}

// start emits what remembers a start, and returns how what it saves looks.
func (b *builder) start(l *Latency, pair uint32) (saved *Record, err error) {
	unread, full, done := b.Label(), b.Label(), b.Label()
	switch b.matches(&l.Start) {
	case unconcerned:
		return nil, nil
	case unreadable:
		b.count(CounterUnreadable)
		return nil, nil
	}
	c := b.placeOf(l)
	var groups []argcode.Group
	if l.Spans {
		saved, groups = b.savedRecord(l)
	}
	saves := saved != nil && saved.Size > emptyRecord
	if err := b.startWord(c, saves); err != nil {
		return nil, err
	}
	b.loadTerm(&l.Start, unread)
	b.callsKey(c, &l.Start, pair)
	b.lookUpOrMake(c, l.Starts, full)
	b.push(c)
	if saves {
		b.save(c, saved, groups)
	} else {
		b.Call(asm.FnKtimeGetNs)
		b.Emit(asm.StoreMem(asm.R7, callsFirst+callTime, asm.R0, asm.DWord))
	}
	b.Place(done)
	b.Later(func() {
		b.Place(full)
		b.count(CounterStarts)
		b.Jump(done)
		b.Place(unread)
		b.count(CounterUnreadable)
		b.Jump(done)
	})
	return saved, nil
}

// startWord emits the word of a call: which conditions hold, and the site.
func (b *builder) startWord(c *call, saves bool) error {
	b.Emit(asm.Mov.Imm(asm.R1, 0))
	if c.Spans {
		b.siteID(asm.R1)
		b.Emit(asm.LSh.Imm(asm.R1, 32))
	}
	b.Emit(asm.StoreMem(asm.R10, int16(c.word), asm.R1, asm.DWord))
	hold := func(bit int) {
		b.Emit(asm.LoadMem(asm.R1, asm.R10, int16(c.word), asm.DWord))
		b.Set(asm.R2, 1<<bit)
		b.Emit(asm.Or.Reg(asm.R1, asm.R2), asm.StoreMem(asm.R10, int16(c.word), asm.R1, asm.DWord))
	}
	if saves {
		hold(flagSaved)
	}
	for _, asked := range c.Conditions {
		node := *asked.Node
		node.Left.Start, node.Right.Start = false, false
		resolved, err := b.site.resolve(b.plan.Kernel, &node, asked.Negated)
		if err != nil {
			return err
		}
		if resolved.kind == never {
			continue
		}
		b.apart(func() {
			no := b.Label()
			b.together(resolved.arguments(nil), func() { b.condition(&resolved, no) })
			hold(asked.Node.AtStart)
			b.Place(no)
		})
	}
	return nil
}

// done emits what finds the call that ends. It goes to none if there is none.
// That is nothing to count where a call would have failed: a transaction can be
// aborted without a query that goes on.
func (b *builder) done(l *Latency, pair uint32, failed bool, none argcode.Label) *call {
	unread, unmatched, checked := b.Label(), b.Label(), b.Label()
	if failed {
		unmatched = none
	}
	c := b.placeOf(l)
	b.Call(asm.FnKtimeGetNs)
	b.Emit(asm.StoreMem(asm.R10, int16(c.duration), asm.R0, asm.DWord))
	b.loadTerm(&l.Done, unread)
	b.callsKey(c, &l.Done, pair)
	b.AddressOf(asm.R2, asm.R10, c.key)
	b.Emit(asm.LoadMapPtr(asm.R1, l.Starts))
	b.Call(asm.FnMapLookupElem)
	b.JumpIfImm(asm.JEq, asm.R0, 0, asm.R1, unmatched)
	b.Emit(asm.Mov.Reg(asm.R7, asm.R0), asm.LoadMem(asm.R2, asm.R7, callsCount, asm.Word))
	b.JumpIfImm(asm.JEq, asm.R2, 0, asm.R1, unmatched)
	switch {
	case failed:
		b.fail(c, none)
	case l.Fails:
		b.dropFailed(c, none, unmatched)
		b.pop(c, unmatched)
	default:
		b.pop(c, unmatched)
	}

	// R4 is the call.
	b.Emit(asm.LoadMem(asm.R1, asm.R4, callWord, asm.DWord),
		asm.StoreMem(asm.R10, int16(c.word), asm.R1, asm.DWord))
	b.Emit(asm.LoadMem(asm.R3, asm.R4, callTime, asm.DWord),
		asm.StoreMem(asm.R10, int16(c.began), asm.R3, asm.DWord))
	b.Emit(asm.LoadMem(asm.R1, asm.R10, int16(c.duration), asm.DWord), asm.Sub.Reg(asm.R1, asm.R3))
	b.Emit(asm.StoreMem(asm.R10, int16(c.duration), asm.R1, asm.DWord))
	if l.byThread() && l.Birth != None {
		old := b.Label()
		b.JumpIfImm(asm.JSGT, asm.R1, uint64(maxYoung), asm.R2, old)
		b.Later(func() {
			b.Place(old)
			b.bornBefore(c, checked)
			b.Jump(unmatched)
		})
	}
	b.Place(checked)
	if b.knowsLevels(l) && !failed {
		abandoned, counted := b.Label(), b.Label()
		b.Emit(asm.LoadMem(asm.R1, asm.R10, int16(c.slot), asm.DWord))
		b.JumpIfImm(asm.JNE, asm.R1, 0, asm.R2, abandoned)
		b.Place(counted)
		b.Later(func() {
			b.Place(abandoned)
			b.countMany(CounterReplaced, c.slot)
			b.Jump(counted)
		})
	}
	b.Later(func() {
		if !failed {
			b.Place(unmatched)
			b.count(CounterUnmatched)
			b.Jump(none)
		}
		b.Place(unread)
		b.count(CounterUnreadable)
		b.Jump(none)
	})
	return c
}

// matches reports whether the site has what starts and ends are matched by.
func (b *builder) matches(t *expr.Term) role {
	switch {
	case t.Source != expr.Argument:
		return concerned
	case t.Index >= len(b.Args):
		return unconcerned
	case !b.Readable(t.Index):
		return unreadable
	default:
		return concerned
	}
}

func (b *builder) loadTerm(t *expr.Term, unread argcode.Label) {
	if t.Source == expr.Argument {
		b.load(unread, t.Index)
	}
}

// callsKey emits the key of a stack of calls: what starts and ends are matched
// by, then the pair, and the process unless that is part of the first.
func (b *builder) callsKey(c *call, t *expr.Term, pair uint32) {
	key := c.key
	// These numbers are not reported, and processes of other PID namespaces
	// would all have the number 0.
	namespace := b.kernel.PIDs
	b.kernel.PIDs = nil
	defer func() { b.kernel.PIDs = namespace }()
	if c.byThread() {
		b.Call(asm.FnGetCurrentPidTgid)
		b.Emit(asm.StoreMem(asm.R10, int16(key), asm.R0, asm.DWord))
		b.siteNumber(asm.R1, uint64(pair))
		b.Emit(asm.StoreMem(asm.R10, int16(key+8), asm.R1, asm.DWord))
		return
	}
	b.term(asm.R9, t)
	b.Emit(asm.StoreMem(asm.R10, int16(key), asm.R9, asm.DWord))
	b.siteNumber(asm.R9, uint64(pair))
	b.Call(asm.FnGetCurrentPidTgid)
	b.Emit(asm.RSh.Imm(asm.R0, 32), asm.LSh.Imm(asm.R0, 32))
	b.Emit(asm.Or.Reg(asm.R0, asm.R9), asm.StoreMem(asm.R10, int16(key+8), asm.R0, asm.DWord))
}
