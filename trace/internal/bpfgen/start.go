// SPDX-License-Identifier: BSD-2-Clause

package bpfgen

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/cilium/ebpf/asm"

	"github.com/gousdt/gousdt/internal/argcode"
	"github.com/gousdt/gousdt/trace/internal/expr"
)

// StartValue is a number or a text that is kept of a start: 8 bytes say what it
// is, and the value follows.
type StartValue struct {
	Term   expr.Term
	offset int
}

// The first 8 bytes of a kept value. For a number they are startNumber plus its
// class.
const (
	startUnreadable = iota
	startMissing    // the start does not have it
	startNumber
)

func (v *StartValue) room() int {
	if v.Term.Source == expr.String {
		return 8 + align8(v.Term.Max+2)
	}
	return 16
}

// Keep adds a term to the values that are kept of each start, and returns its
// number.
func (l *Latency) Keep(t expr.Term) int {
	t.Offset, t.Start = 0, false
	offset := 0
	for i := range l.Values {
		if l.Values[i].Term == t {
			return i
		}
		offset += l.Values[i].room()
	}
	l.Values = append(l.Values, StartValue{t, offset})
	return len(l.Values) - 1
}

// KeptSize is the size of a start's kept values, with the time of the start.
func (l *Latency) KeptSize() int {
	last := &l.Values[len(l.Values)-1]
	return last.offset + last.room() + 8
}

// StartCondition is a condition, and whether its opposite is asked for.
type StartCondition struct {
	Node    *expr.Node
	Negated bool
}

// MaxStartConditions is how many conditions of a start there can be: they share
// a word with the site's number and five flags.
const MaxStartConditions = 27

// StartConditions appends the parts of a condition, or of one that is negated,
// whose outcome at the start is remembered.
func StartConditions(to []StartCondition, n *expr.Node, negated bool) []StartCondition {
	if n.OfStart() || n.Held {
		return append(to, StartCondition{n, negated})
	}
	for _, part := range n.Nodes {
		to = StartConditions(to, part, negated != (n.Op == expr.Not))
	}
	return to
}

// Starts is what at least one start of a call has in a file. What none has
// makes conditions false, and leaves aggregations out, at the ends of the
// calls.
type Starts struct {
	conditions uint32 // those that can hold, by expr.Node.AtStart
	values     []bool // the Values that are there
	missing    error  // why one of them is not, or one condition cannot hold
}

// AddStart adds what a start of a call has.
func (p *Plan) AddStart(s *Starts, l *Latency, site *Site) {
	site.machine = p.Kernel.Machine
	for _, asked := range l.Conditions {
		node := *asked.Node
		node.Left.Start, node.Right.Start = false, false
		if c, err := site.resolve(&node, asked.Negated); err == nil && c.kind == never {
			s.missing = cmp.Or(s.missing, site.lacks(node.Left), site.lacks(node.Right))
			continue
		}
		s.conditions |= 1 << asked.Node.AtStart // an error is returned when code is generated
	}
	if l.Path != nil {
		s.missing = cmp.Or(s.missing, site.lacks(*l.Path))
	}
	if s.values == nil {
		s.values = make([]bool, len(l.Values))
	}
	for i := range l.Values {
		if t := l.Values[i].Term; site.has(t) {
			s.values[i] = true
		} else {
			s.missing = cmp.Or(s.missing, site.lacks(t))
		}
	}
}

// holds reports whether a condition can hold, by its number.
func (s *Starts) holds(atStart int) bool { return s == nil || s.conditions&(1<<atStart) != 0 }

// has reports whether a value is there, by its number.
func (s *Starts) has(atStart int) bool { return s == nil || s.values[atStart] }

// startWord emits the word of a call: which conditions hold, and the site.
func (b *builder) startWord(c *call, saves bool) {
	b.Emit(set(r1, 0))
	if c.Spans || c.Named {
		b.siteID(r1)
		b.Emit(asm.LSh.Imm(r1, 32))
	}
	b.Emit(toStack(c.word, r1))
	hold := func(bit int) {
		b.Emit(fromStack(r1, c.word))
		b.Set(r2, 1<<bit)
		b.Emit(asm.Or.Reg(r1, r2), toStack(c.word, r1))
	}
	if saves {
		hold(flagSaved)
	}
	if c.Named {
		hold(FlagNamed)
	}
	if b.site.Pairs[c.Latency].Attempt {
		hold(flagAttempt)
	}
	for _, asked := range c.Conditions {
		node := *asked.Node
		if node.Held && !b.isKnown(c, &node) {
			hold(node.AtStart) // it may at the end
			continue
		}
		node.Left.Start, node.Right.Start = false, false
		resolved := b.resolve(&node, asked.Negated)
		if resolved.kind == never {
			continue
		}
		b.apart(func() {
			no := b.Label()
			b.unless(&resolved, no)
			hold(asked.Node.AtStart)
			b.Place(no)
		})
	}
}

// isKnown reports whether a start knows if a condition will hold at the end:
// another thread may end the call, and the file of the end may have variables
// that this one lacks.
func (b *builder) isKnown(c *call, n *expr.Node) bool {
	known := true
	n.Walk(func(t *expr.Term) {
		ofThread := t.Source == expr.TID || t.Source == expr.Command
		known = known && b.site.Absent[t.Name] == nil && (c.ByThread() || !ofThread)
	})
	return known
}

// savedRecord returns the layout of the start's part of an event, the same for
// all spans that a site starts. The header and the control group are saved only
// if a span may end in another thread: in the same thread the end knows them.
func (b *builder) savedRecord(l *Latency) (*Record, []argcode.Group) {
	e := *b.plan.Events
	otherThread := slices.ContainsFunc(b.plan.Latencies,
		func(l *Latency) bool { return l.Spans && !b.site.startBy(l).ByThread() })
	e.Header, e.Cgroup = e.Header && otherThread, e.Cgroup && otherThread
	if !e.StartStacks {
		e.Frames, e.Copy = 0, 0
	}
	record, groups := b.recordOf(&e, None)
	if record.Size > l.SavedSize-8 {
		b.Fail(fmt.Errorf("a start has %d bytes to keep, more than %d", record.Size, l.SavedSize-8))
	}
	return record, groups
}

// save emits code that saves the start's part of an event, and sets the time of
// the call. R7 points callsFirst bytes before the call.
func (b *builder) save(c *call, r *Record, groups []argcode.Group) {
	full, done := b.Label(), b.Label()
	b.Emit(toStack(c.slot, r7))
	setTime := func() {
		b.Call(asm.FnKtimeGetNs)
		b.Emit(fromStack(r1, c.slot), store(r1, callsFirst+callTime, r0))
	}
	b.lookUpOrMake(c, c.Saved, full)
	b.write(r, groups)
	setTime()
	// The time tells which call the record belongs to: the map may forget a
	// record, and get a new one for the same key.
	b.AddressOf(r1, r7, c.SavedSize-8)
	b.Emit(store(r1, 0, r0))
	b.Place(done)
	b.Aside(full, done, func() {
		b.count(CounterStarts)
		setTime()
	})
}

// keep stores the values of a start. R7 points callsFirst bytes before the
// call. Afterwards c.slot has R7, and c.began the address of the values, or 0
// if there is no room for them.
func (b *builder) keep(c *call) {
	full, done := b.Label(), b.Label()
	b.Emit(toStack(c.slot, r7))
	b.SetField(r10, c.began, 0, r1)
	b.lookUpOrMake(c, c.Kept, full)
	b.Emit(toStack(c.began, r7))
	for i := range c.Values {
		b.apart(func() { b.keepValue(&c.Values[i]) })
	}
	b.Place(done)
	b.Emit(fromStack(r7, c.slot))
	b.Aside(full, done, func() { b.count(CounterStarts) })
}

// keepValue stores a value of the start after R7.
func (b *builder) keepValue(v *StartValue) {
	at, t := v.offset, b.site.bound(v.Term)
	if !b.site.has(t) {
		b.SetField(r7, at, startMissing, r1)
		return
	}
	b.SetField(r7, at, startUnreadable, r1)
	if !b.site.canRead(t) {
		return
	}
	unread := b.Label()
	b.together(t.Arguments(), func() { b.load(unread, t.Arguments()...) })
	kept := ClassUnsigned
	if t.Source == expr.String {
		b.keyText(&t, r7, at+8, unread)
	} else {
		kept = b.term(r9, &t)
		b.Emit(store(r7, at+8, r9))
	}
	b.SetField(r7, at, uint64(startNumber+kept), r1)
	b.Place(unread)
}

// findKept sets R7 to the kept values of the call that ends. It goes to none if
// they were forgotten.
func (b *builder) findKept(none argcode.Label) {
	c := b.ending
	b.LookUp(c.Kept, c.key, none)
	b.Emit(mov(r7, r0), load(r1, r7, c.KeptSize()-8), fromStack(r2, c.began))
	b.JumpIf(asm.JNE, r1, r2, none)
}

// spanTo emits code that stores the call that ends here in the record at R7.
func (b *builder) spanTo(p *SpanPlace) {
	c := p.call
	done := b.Label()
	b.SetField(r7, p.Found, 0, r1)
	for _, word := range [][2]int{{p.Duration, c.duration}, {p.Began, c.began}, {p.Word, c.word}} {
		b.Emit(fromStack(r1, word[1]), store(r7, word[0], r1))
	}
	b.Emit(fromStack(r1, c.word))
	b.Set(r2, 1<<flagSaved)
	b.Emit(asm.And.Reg(r1, r2))
	b.JumpIfImm(asm.JEq, r1, 0, r2, done)
	b.LookUp(c.Saved, c.key, done)
	b.AddressOf(r1, r0, p.Size)
	b.Emit(load(r1, r1, 0), fromStack(r2, c.began))
	b.JumpIf(asm.JNE, r1, r2, done)
	b.CallOr(done, asm.FnProbeReadKernel, placeAt(r7, p.Saved), p.Size, r0)
	b.SetField(r7, p.Found, 1, r1)
	b.Place(done)
}
