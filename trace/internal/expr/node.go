// SPDX-License-Identifier: BSD-2-Clause

package expr

import (
	"cmp"
	"slices"
	"strings"
)

// Op is what a Node does.
type Op uint8

// And, Or and Not combine conditions; the others compare two terms.
const (
	And Op = iota
	Or
	Not
	Equal
	NotEqual
	Less
	LessEqual
	Greater
	GreaterEqual
)

// String returns the operator as it is written.
func (op Op) String() string {
	return [...]string{"&&", "||", "!", "==", "!=", "<", "<=", ">", ">="}[op]
}

// Opposite returns the comparison that holds exactly where op does not.
func (op Op) Opposite() Op {
	return [...]Op{And, Or, Not, NotEqual, Equal, GreaterEqual, Greater, LessEqual, Less}[op]
}

// Mirrored returns the comparison that holds for b and a where op holds for a
// and b.
func (op Op) Mirrored() Op {
	return [...]Op{And, Or, Not, Equal, NotEqual, Greater, GreaterEqual, Less, LessEqual}[op]
}

// Node is a condition.
type Node struct {
	Op    Op
	Nodes []*Node // of And and Or two or more, of Not one

	Left, Right Term // of a comparison

	// AtStart is the number of a condition whose outcome at the start is
	// remembered, from 0: a comparison of the start's values, see
	// NumberAtStart, or one that is Held, see HoldAtStart.
	AtStart int
	Held    bool
}

// Source says where the value of a Term comes from.
type Source uint8

// The sources. Number and Text are literals, all others are known at a hit or
// at a site.
const (
	Number    Source = iota
	Text             // "postgres"
	Argument         // arg3
	String           // str(arg3, 64): the text that arg3 points to
	PID              // the process
	TID              // the thread
	UID              // the user
	GID              // the group
	CPU              // the processor
	Cgroup           // the control group
	Container        // the container; a key only, which is the control group in the kernel
	Command          // comm: the name of the thread
	Cookie           // of the attachment
	Provider         // of the probe
	Probe            // the probe's name; as a key provider and name
	Site             // the site
	Stack            // the user's stack; a key only
	Duration         // nanoseconds since the start probe
	Failed           // 1 if the call has failed, else 0; in conditions only
	Self             // nanoseconds of a call without the calls inside it; a value only
	Calls            // calls(arg0, 64): the texts of the calls around a call, and its own; a key only
)

// words are the names of the sources that have one.
var words = map[string]Source{
	"pid": PID, "tid": TID, "uid": UID, "gid": GID, "cpu": CPU, "cgroup": Cgroup,
	"container": Container, "comm": Command, "cookie": Cookie,
	"provider": Provider, "probe": Probe, "site": Site, "stack": Stack, "duration": Duration,
	"failed": Failed, "self": Self,
}

// Term is a value in an expression.
type Term struct {
	Source Source
	Number Value  // of Number
	IsTime bool   // of Number: it has a unit, as 5ms
	Text   string // of Text
	Index  int    // of Argument and String: which argument, from 0
	Name   string // of Argument and String: the argument's name, if it is not given by number; see IsVariable
	Max    int    // of String: at most that many bytes; 0: no limit here

	HasLength  bool // of String: another argument says how many bytes there are
	Length     int
	LengthName string

	Start   bool // Argument and String: it is one of the probe that starts a span
	AtStart int  // of such a key or value: its number among the kept values of starts

	HasMask bool
	Mask    uint64 // the value is combined with it by a bitwise and

	Offset int // where in the expression it begins, for messages
}

// globalPrefix is what the names of a program's variables begin with. No
// argument has a name with a dot.
const globalPrefix = "global."

// Global returns the symbol of the program's variable that an Argument or a
// String stands for. Sites have variables after the probe's own arguments.
func (t *Term) Global() (symbol string, ok bool) {
	symbol, ok = strings.CutPrefix(t.Name, globalPrefix)
	return symbol, ok && !strings.Contains(symbol, arrow)
}

// CutMember divides the name of a member of a structure, as in
// request->peer.port, into the name of the argument or variable that points to
// the structure, and the path from there.
func CutMember(name string) (argument, path string, ok bool) {
	argument, _, ok = strings.Cut(name, arrow)
	return argument, name[len(argument):], ok
}

const arrow = "->"

// IsVariable reports whether a name is of a variable of the program, or of a
// member: sites have these as arguments after the probe's own.
func IsVariable(name string) bool {
	return strings.HasPrefix(name, globalPrefix) || strings.Contains(name, arrow)
}

// Unbound is the Index of an argument that is given by name. No probe has it;
// at a site Bind puts the argument's number in its place.
const Unbound = maxIndex + 1

// Walk calls f for all terms.
func (n *Node) Walk(f func(*Term)) {
	if n == nil {
		return
	}
	for _, child := range n.Nodes {
		child.Walk(f)
	}
	if len(n.Nodes) == 0 {
		f(&n.Left)
		f(&n.Right)
	}
}

// Combined returns whether a condition of parts can be true, and whether it can
// be false, by what a function returns of each part.
func (n *Node) Combined(of func(part *Node) (yes, no bool)) (yes, no bool) {
	yes, no = n.Op != Or, n.Op == Or
	for _, part := range n.Nodes {
		y, f := of(part)
		if n.Op == Or {
			yes, no = yes || y, no && f
		} else {
			yes, no = yes && y, no || f
		}
	}
	if n.Op == Not {
		return no, yes
	}
	return yes, no
}

// Bind returns the term with its names replaced by their indices in names. A
// name that is not there stays unbound.
func (t Term) Bind(names []string) Term {
	if i := slices.Index(names, t.Name); i >= 0 && t.Name != "" {
		t.Index = i
	}
	if i := slices.Index(names, t.LengthName); i >= 0 && t.LengthName != "" {
		t.Length = i
	}
	return t
}

// Arguments returns the numbers of the arguments that the term needs.
func (t *Term) Arguments() []int {
	switch {
	case t.Source != Argument && t.Source != String:
		return nil
	case t.HasLength:
		return []int{t.Index, t.Length}
	}
	return []int{t.Index}
}

// IsText reports whether the value is a text rather than a number. An Argument
// can stand for either.
func (t Term) IsText() bool {
	return slices.Contains([]Source{Text, String, Command, Provider, Probe}, t.Source)
}

func (t Term) isLiteral() bool { return t.Source == Number || t.Source == Text }

// NumberAtStart numbers the comparisons of the start's values, from a number
// on, and returns the next. Conditions on one span must not share numbers.
func (n *Node) NumberAtStart(next int) int {
	for _, part := range n.Nodes {
		next = part.NumberAtStart(next)
	}
	if n.OfStart() {
		n.AtStart = next
		next++
	}
	return next
}

// HoldAtStart numbers the parts whose outcome hardly changes while a call goes
// on, from a number on, and returns the next. It is remembered for calls that
// have no end yet. There are no numbers from most on.
func (n *Node) HoldAtStart(next, most int) int {
	lasts := !n.IsOfSpan()
	n.Walk(func(t *Term) {
		isGlobal := strings.HasPrefix(t.Name, globalPrefix)
		lasts = lasts && (t.isLiteral() || isGlobal ||
			slices.Contains([]Source{PID, TID, UID, GID, Cgroup, Command}, t.Source))
	})
	if lasts && next < most {
		n.Held, n.AtStart = true, next
		return next + 1
	}
	for _, part := range n.Nodes {
		next = part.HoldAtStart(next, most)
	}
	return next
}

// OfStart reports whether a node is a comparison of the start's values.
func (n *Node) OfStart() bool { return len(n.Nodes) == 0 && (n.Left.Start || n.Right.Start) }

// IsOfSpan reports whether a condition has a term that makes sense only between
// two probes.
func (n *Node) IsOfSpan() bool {
	isOfSpan := false
	n.Walk(func(t *Term) { isOfSpan = isOfSpan || t.Start || t.IsOfEnd() })
	return isOfSpan
}

// IsOfEnd reports whether a term is known at the end of a call only.
func (t *Term) IsOfEnd() bool {
	return t.Source == Duration || t.Source == Failed || t.Source == Self
}

// Value is a number of an expression: an integer from -2^63 to 2^64-1, or a
// fraction.
type Value struct {
	IsFloat  bool
	Float    float64
	Negative bool   // of an integer: the value is below 0, and Bits is its two's complement
	Bits     uint64 // of an integer
}

// Int returns an integer Value.
func Int(v int64) Value { return Value{Negative: v < 0, Bits: uint64(v)} }

// Uint returns an integer Value.
func Uint(v uint64) Value { return Value{Bits: v} }

// Fraction returns a Value that is not an integer.
func Fraction(v float64) Value { return Value{IsFloat: true, Float: v} }

// AsFloat returns the value, rounded where 64 bits of integer do not fit.
func (v Value) AsFloat() float64 {
	switch {
	case v.IsFloat:
		return v.Float
	case v.Negative:
		return float64(int64(v.Bits))
	}
	return float64(v.Bits)
}

// Compare returns -1, 0 or 1 as v is less than, equal to or greater than w. It
// must not be asked about a NaN.
func (v Value) Compare(w Value) int {
	if v.IsFloat || w.IsFloat || v.Negative != w.Negative { // one is below 0
		return cmp.Compare(v.AsFloat(), w.AsFloat())
	}
	// The two's complements of two negative numbers are ordered as the numbers
	// are.
	return cmp.Compare(v.Bits, w.Bits)
}

// Holds reports whether a comparison holds between two values whose Compare is
// c.
func (op Op) Holds(c int) bool {
	holds := [...][3]bool{ // for -1, 0 and 1
		Equal: {false, true, false}, NotEqual: {true, false, true}, Less: {true, false, false},
		LessEqual: {true, true, false}, Greater: {false, false, true},
		GreaterEqual: {false, true, true},
	}
	return holds[op][c+1]
}

// Containers returns the IDs of the control groups of the container that a text
// stands for. There is at least one, or an error.
type Containers func(text string) (ids []uint64, err error)

// checkContainer refuses what a container cannot be compared with.
func (p *parser) checkContainer(node *Node) {
	switch t := node.Left; {
	case t.Source != Container || node.Right.Source != Text ||
		node.Op != Equal && node.Op != NotEqual:
		p.fail(t.Offset,
			`a container can only be compared with a string, as in container == "4c01db0b339c"`)
	case p.containers == nil:
		p.fail(t.Offset, "containers are not known here: SessionOptions.Containers is not set")
	}
}

// ofContainer returns the comparisons with control groups that stand for one
// with a container, which the kernel does not know.
func (p *parser) ofContainer(node *Node) *Node {
	offset := node.Left.Offset
	ids, err := p.containers(node.Right.Text)
	if err != nil {
		p.fail(offset, err.Error())
		return nil
	}
	if p.comparisons += len(ids) - 1; p.comparisons > maxComparisons {
		p.fail(offset, "the container has more control groups than there can be comparisons")
	}
	parts := &Node{Op: Or}
	if node.Op == NotEqual {
		parts.Op = And
	}
	for _, id := range ids {
		parts.Nodes = append(parts.Nodes, &Node{Op: node.Op,
			Left:  Term{Source: Cgroup, Offset: offset},
			Right: Term{Source: Number, Number: Uint(id), Offset: offset}})
	}
	if len(parts.Nodes) == 1 {
		return parts.Nodes[0]
	}
	return parts
}
