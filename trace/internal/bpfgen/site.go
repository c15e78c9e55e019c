// SPDX-License-Identifier: BSD-2-Clause

package bpfgen

import (
	"cmp"
	"debug/elf"
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf/asm"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/internal/argcode"
	"github.com/gousdt/gousdt/internal/debuginfo"
	"github.com/gousdt/gousdt/internal/elffile"
	"github.com/gousdt/gousdt/trace/internal/expr"
)

// Site is a place to generate code for.
type Site struct {
	Provider, Name string
	Cookie         uint64 // of the attachment, as expressions see it
	Args           []argspec.Arg
	Pointer        int                // the size of a pointer, 0 if it is not known
	Names          []string           // of the arguments, as far as they are known
	Lengths        []int              // for each text: the argument with its length, or -1
	Texts          []bool             // which are texts, as far as that is known
	Enums          []map[string]int64 // the values of those that are enumerations, by name
	Pairs          map[*Latency]Ends  // what it starts and ends
	Frame          Frame              // of the function that it is in

	// Starts is what the starts of calls have in the file of this site. A
	// Latency that has none there is missing: its calls start elsewhere.
	Starts map[*Latency]*Starts

	// The last Globals of Args are variables of the program and members of
	// structures, which expressions cannot name by number. The last Unsent of
	// these are for expressions only: no event has them. Absent says why a
	// variable is not among them, by its name in expressions.
	Globals, Unsent int
	Absent          map[string]error
	Members         map[int]Member // which of Args are members

	NoneAtEnd bool // the events of ends of calls have no arguments

	machine elf.Machine // of the kernel
	ending  bool        // the code is about the end of a call
	failed  bool        // that call has failed
	starts  *Starts     // of that call, nil if they are not known

	// original is the site of the file if the code looks the arguments up (see
	// Table); captures are its captures then.
	original *Site
	captures []Capture
}

// Member describes an argument that is a member of a structure. The argument
// Arg points to that structure, or to one that leads to it.
type Member struct {
	Arg      int
	OwnerArg int // the variable Owner, if there is one
	debuginfo.Member
}

// Plan says what a session does at each hit.
type Plan struct {
	Kernel   Kernel
	Family   int        // descriptor of the map of the processes whose hits count; 0: all
	Filter   *expr.Node // nil: every hit. Of calls, the end is filtered
	Events   *Events    // nil: none are sent
	Counters int        // descriptor of the map of counters
	Lost     int        // descriptor of an array, see LostSize; 0: all lost calls are in Counters
	Execs    int        // descriptor of a hash map: when a process (u32) last ran another program (u64); 0: not known
	// Forgotten is the descriptor of an array of one element: when a process
	// for which Execs had no room last ran another program.
	Forgotten int
	Callers   int // descriptor of an LRU hash map of processes (u32) in which calls have begun; 0: not known
	Filtered  int // descriptor of an array: its u32 is 1 once Filter left a hit out; 0: none

	// Generations is the descriptor of an array of maps. Its only element is an
	// array of one u64, whose bits choose the maps of aggregations. 0: all bits
	// are 0.
	Generations int

	Aggregations []*Aggregation
	Latencies    []*Latency // all that aggregations and spans have, each once
}

// Counter is an index into the map of counters, a per-processor array of u64.
type Counter uint32

// The counters.
const (
	CounterEvents     Counter = iota // events that found no room in the ring buffer
	CounterUnreadable                // hits that count nowhere: an argument could not be read
	CounterStarts                    // starts of calls that found no room
	CounterReplaced                  // starts of calls that were forgotten because no end came
	CounterOverlapped                // calls whose end is not known because others overlap them
	CounterLeft                      // calls whose function was left without the end
	CounterSelf                      // calls whose own time is not known
	CounterUnmatched                 // ends of calls without a start
	CounterCount                     // how many there are
)

// Block is the code for one kind of site.
type Block struct {
	Instructions asm.Instructions
	Record       *Record // how its events look, nil where it sends none
	Saved        *Record // how saved starts look, nil where none are saved
	UsesID       bool    // it takes the site's ID from the BPF cookie
	Starts, Ends bool    // it is the start, the end, of calls
	Delivers     bool    // it may send or aggregate something

	// Of a block for a Table: the most arguments that it may look up, and the
	// site's numbers that it looks up.
	lookedUp int
	numbers  []uint64
	code     string // the fingerprint of the instructions, which sites share
}

// builder emits a block.
type builder struct {
	*argcode.Fetcher
	kernel Kernel
	plan   *Plan
	site   *Site
	block  Block

	sent        int      // how many of the arguments are sent with events
	ending      *call    // whose end this is, nil if it is none
	callPlace   int      // see placeOf
	chosen      *sampled // nil where every hit becomes an event
	unread      int      // the place of a word that says that the filter could not read a value; 0: none
	generations int      // the place of the word of Plan.Generations on the stack, 0 if it is not read

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
}

// lookedUp reports whether a Table says where arguments are.
func (b *builder) lookedUp() bool { return b.site.original != nil }

// Block generates the code for a site. It returns nil if a hit has no effect
// there.
func (p *Plan) Block(site *Site) (*Block, error) {
	block, err := p.generate(site, false)
	if errors.Is(err, argcode.ErrStack) {
		return p.generate(site, true) // reading neighbours together takes more stack
	}
	return block, err
}

func (p *Plan) generate(site *Site, alone bool) (*Block, error) {
	site.machine = p.Kernel.Machine
	b := &builder{plan: p, site: site, kernel: p.Kernel, alone: alone,
		Fetcher: &argcode.Fetcher{
			Assembler: argcode.NewAssembler(), Machine: p.Kernel.Machine,
			BigEndian: p.Kernel.bigEndian(), Args: site.Args, Context: r6,
		},
		sent: len(site.Args) - site.Unsent, stack: make(map[int]int),
		loaded: make(map[int]bool), merged: make(map[int]*placedGroup)}
	if b.lookedUp() {
		b.block.lookedUp, b.block.UsesID = len(site.Args), true
	}
	something := b.hit()
	b.Leave()
	var err error
	if b.block.Instructions, err = b.Finish(); err != nil {
		return nil, fmt.Errorf("probe %s: %w", site.probe(), err)
	}
	if !something {
		return nil, nil
	}
	block := b.block // the builder is not kept, which has some 100 kB
	return &block, nil
}

func (b *builder) hit() (something bool) {
	outside := b.Label()
	if b.plan.Family != 0 {
		process := b.Temporary(8)
		b.ProcessTo(process)
		b.LookUp(b.plan.Family, process, outside)
	}
	b.generation(outside)
	// Ends come first, so that a probe can be the end of one call and the start
	// of the next.
	for _, l := range b.plan.Latencies {
		if pair, _ := b.site.Pairs[l].end(); pair != 0 && b.site.has(b.site.doneBy(l).Done) {
			something, b.block.Ends = true, true
			b.apart(func() { b.end(l) })
		}
	}
	b.apart(b.plain)
	for _, l := range b.plan.Latencies {
		if pair := b.site.Pairs[l].Start; pair != 0 && b.site.has(b.site.startBy(l).Start) {
			something, b.block.Starts = true, true
			b.apart(func() { b.start(l, pair) })
		}
	}
	b.Place(outside)
	return something || b.block.Delivers
}

// plain emits the work of a hit that has nothing to do with calls.
func (b *builder) plain() {
	end := b.Label()
	isSpan := func(l *Latency) bool { return l.Spans }
	delivers := b.plan.Events != nil && !slices.ContainsFunc(b.plan.Latencies, isSpan)
	isOfHits := func(a *Aggregation) bool { return a.Latency == nil }
	if !b.filter(end, delivers || slices.ContainsFunc(b.plan.Aggregations, isOfHits)) {
		return
	}
	for _, a := range b.plan.Aggregations {
		if a.Latency == nil {
			b.aggregate(a)
		}
	}
	if delivers {
		b.block.Delivers = true
		b.block.Record = b.event(b.plan.Events)
	}
	b.Place(end)
}

func (b *builder) end(l *Latency) {
	if !b.site.canRead(b.site.doneBy(l).Done) {
		b.count(CounterUnreadable)
		return
	}
	over, none := b.Label(), b.Label()
	pair, failed := b.site.Pairs[l].end()
	if failed {
		b.onlyIf(l, b.site.Pairs[l].FailedIf, none)
	}
	b.ending = b.done(l, pair, failed, none)
	b.site.ending, b.site.failed, b.site.starts = true, failed, b.site.Starts[l]
	defer func() { b.ending, b.site.ending, b.site.starts = nil, false, nil }()
	if !b.filter(over, true) {
		// The exit of a thread inside the call, which then has failed, may be
		// what it lets through.
		b.site.failed = true
		b.block.Delivers = b.block.Delivers || l.Spans && b.plan.Events.Exits &&
			b.resolve(b.plan.Filter, false).kind != never
		b.Jump(b.filtered(none))
		b.Place(none)
		return
	}
	for _, a := range b.plan.Aggregations {
		if a.Latency == l {
			b.aggregate(a)
		}
	}
	if l.Spans {
		b.block.Delivers = true
		isOther := func(other *Latency) bool {
			pair, _ := b.site.Pairs[other].end()
			return other != l && other.Spans && pair != 0
		}
		if slices.ContainsFunc(b.plan.Latencies, isOther) {
			// The records must look the same, whatever has been read for one.
			b.loaded = make(map[int]bool)
		}
		sent := b.sent
		if b.site.NoneAtEnd {
			b.sent = 0
		}
		b.block.Record = b.event(b.plan.Events)
		b.sent = sent
	}
	b.Place(over)
	if !b.ending.ByThread() {
		b.makeRoom()
	}
	b.Place(none)
}

// filter emits a jump to leave for hits that the plan's filter leaves out. It
// reports whether the filter can let any through; if not, it emits nothing. If
// counts is set, hits left out because a value could not be read are counted.
func (b *builder) filter(leave argcode.Label, counts bool) bool {
	if b.plan.Filter == nil {
		return true
	}
	c := b.resolve(b.plan.Filter, false)
	if c.kind == never {
		return false
	}
	if counts && b.site.reads(&c) > 0 {
		b.unread = b.Alloc(8)
		b.Emit(storeImm(r10, b.unread, 0, asm.Word))
	}
	b.unless(&c, b.filtered(leave))
	b.unread = 0
	return true
}

// resolve is Site.resolve. Its error makes the code fail.
func (b *builder) resolve(node *expr.Node, negated bool) condition {
	c, err := b.site.resolve(node, negated)
	if err != nil {
		b.Fail(err)
		return condition{kind: never}
	}
	return c
}

func (b *builder) unless(c *condition, ifFalse argcode.Label) {
	b.together(c.arguments(nil), func() { b.condition(c, ifFalse) })
}

// unreadable returns the label for a comparison of the filter whose values
// cannot be read. The code there notes that and goes to ifFalse.
func (b *builder) unreadable(ifFalse argcode.Label) argcode.Label {
	at := b.unread
	if at == 0 {
		return ifFalse
	}
	note := b.Label()
	b.Aside(note, ifFalse, func() { b.Emit(storeImm(r10, at, 1, asm.Word)) })
	return note
}

// filtered returns the label for hits that the filter leaves out. The code
// there counts those with a value that could not be read, sets the u32 of
// Plan.Filtered and goes to leave.
func (b *builder) filtered(leave argcode.Label) argcode.Label {
	at := b.unread
	if at == 0 && b.plan.Filtered == 0 {
		return leave
	}
	note := b.Label()
	b.Aside(note, leave, func() {
		if at != 0 {
			b.Emit(loadN(r0, r10, at, asm.Word))
			b.If(asm.JNE, r0, 0, r1, func() { b.count(CounterUnreadable) })
		}
		if b.plan.Filtered == 0 {
			return
		}
		// It is written once: processors that write to the same memory wait for
		// each other.
		b.Emit(asm.LoadMapValue(r1, b.plan.Filtered, 0), loadN(r0, r1, 0, asm.Word))
		b.JumpIfImm(asm.JNE, r0, 0, r2, leave)
		b.Emit(storeImm(r1, 0, 1, asm.Word))
	})
	return note
}

func (b *builder) siteID(dst asm.Register) {
	b.block.UsesID = true
	b.Emit(mov(dst, r8), asm.RSh.Imm(dst, 32))
}

// LostSize is the size of an element of Plan.Lost, at the ID of a site: the
// ends without a start, the starts that were forgotten, the calls that were
// found to be left, and those that overlapped, a u64 each. Those of sites over
// its size are in Counters.
const LostSize = 32

// lost adds R1 to the lost calls of the site; the instruction sets R1.
func (b *builder) lost(c Counter, number asm.Instruction) {
	if b.plan.Lost == 0 {
		b.addTo(c, number)
		return
	}
	over, done := b.Label(), b.Label()
	site := b.Temporary(4)
	at := map[Counter]int16{CounterReplaced: 8, CounterLeft: 16, CounterOverlapped: 24}[c]
	b.siteID(r1)
	b.Emit(storeN(r10, site, r1, asm.Word))
	b.LookUp(b.plan.Lost, site, over)
	b.Emit(number, asm.AddAtomic.Mem(r0, r1, asm.DWord, at))
	b.Place(done)
	b.Aside(over, done, func() { b.addTo(c, number) })
}

func (b *builder) count(c Counter) { b.addTo(c, set(r1, 1)) }

// addTo adds R1 to a counter; the instruction sets R1.
func (b *builder) addTo(c Counter, number asm.Instruction) {
	none := b.Label()
	b.LookUpIndex(b.plan.Counters, b.Temporary(4), uint32(c), none)
	b.Emit(number, asm.AddAtomic.Mem(r0, r1, asm.DWord, 0))
	b.Place(none)
}

// bound returns a term with the numbers of the site's arguments in place of
// their names. An argument that the site lacks stays unbound. A text whose
// length is known to be in another argument gets that length: it has no zero
// byte at its end.
func (s *Site) bound(t expr.Term) expr.Term {
	if len(s.Names) == 0 {
		return t
	}
	own := len(cmp.Or(s.original, s).Args) - s.Globals
	if t.Name == "" && t.Index >= own {
		t.Index = expr.Unbound
	}
	if t.LengthName == "" && t.Length >= own {
		t.Length = expr.Unbound
	}
	t = t.Bind(s.Names)
	if t.Source == expr.String && !t.HasLength && t.Index < len(s.Lengths) &&
		s.Lengths[t.Index] >= 0 {
		t.HasLength, t.Length = true, s.Lengths[t.Index]
	}
	return t
}

// has reports whether the site has the arguments that a term needs, and canRead
// whether they can be read there, too.
func (s *Site) has(t expr.Term) bool {
	t = s.bound(t)
	return !slices.ContainsFunc(t.Arguments(), func(i int) bool { return i >= len(s.Args) })
}

func (s *Site) canRead(t expr.Term) bool {
	t = s.bound(t)
	return !slices.ContainsFunc(t.Arguments(), func(i int) bool { return !s.readable(i) })
}

// probe returns the site's name for messages.
func (s *Site) probe() string { return elffile.ShortName(s.Provider) + ":" + elffile.ShortName(s.Name) }

// Missing returns why an argument that the plan's expressions name is not
// available at a site, or at none of the starts of the calls that end there;
// nil if all are.
func (p *Plan) Missing(site *Site) error {
	site.machine = p.Kernel.Machine
	var terms []expr.Term
	p.Filter.Walk(func(t *expr.Term) { terms = append(terms, *t) })
	for _, a := range p.Aggregations {
		if a.isOf(site) {
			for _, t := range a.terms() {
				terms = append(terms, *t)
			}
		}
	}
	for _, t := range terms {
		if err := site.lacks(t); err != nil && !t.Start {
			return err
		}
	}
	for _, l := range p.Latencies {
		if pair, _ := site.Pairs[l].end(); pair != 0 && site.Starts[l] != nil &&
			site.Starts[l].missing != nil {
			return site.Starts[l].missing
		}
	}
	return nil
}

// lacks returns why a term's argument is not available at a site, nil if it is.
func (s *Site) lacks(t expr.Term) error {
	name := cmp.Or(t.Name, fmt.Sprintf("arg%d", t.Index))
	if t = s.bound(t); t.Source != expr.Argument && t.Source != expr.String {
		return nil
	}
	why := s.Absent[t.Name]
	if why == nil {
		switch {
		case t.Index >= len(s.Args):
			of := ""
			for _, ends := range s.Pairs {
				if pair, _ := ends.end(); pair != 0 && !t.Start {
					of = fmt.Sprintf(" (start.%s is of the start)", name)
				}
			}
			return fmt.Errorf("%s has no %s%s", s.probe(), name, of)
		case s.readable(t.Index):
			return nil
		}
		if why = s.Args[t.Index].Err; why == nil {
			return fmt.Errorf("%s of %s is not a number: %s", name, s.probe(), &s.Args[t.Index])
		}
	}
	return fmt.Errorf("%s of %s is not available: %w", name, s.probe(), why)
}

// Terms calls f for all terms of the plan.
func (p *Plan) Terms(f func(*expr.Term)) {
	p.Filter.Walk(f)
	for _, a := range p.Aggregations {
		a.Where.Walk(f)
		for _, t := range a.terms() {
			if !t.Start {
				f(t)
			}
		}
	}
	for _, l := range p.Latencies {
		f(&l.Start)
		f(&l.Done)
		for _, c := range l.Conditions {
			c.Node.Walk(f)
		}
		for _, node := range l.If {
			node.Walk(f)
		}
		for i := range l.Values {
			f(&l.Values[i].Term)
		}
		if l.Path != nil {
			f(l.Path)
		}
	}
}

// Globals returns the names of the variables and members that the plan's
// expressions name.
func (p *Plan) Globals() (names []string) {
	p.Terms(func(t *expr.Term) {
		for _, name := range []string{t.Name, t.LengthName} {
			if expr.IsVariable(name) && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	})
	return names
}
