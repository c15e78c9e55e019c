// SPDX-License-Identifier: BSD-2-Clause

package unwind

import (
	"context"
	"sync"
	"time"
)

// KnownStacks has the kernel count hits whose stack has been walked before, in
// place of sending them with a copy of the stack. A hit is either sent or
// counted.
//
// The kernel follows a trail word by word (see [Trail]): in a node it
// reads a word, and the node that it goes on in is found by the number of the
// node and that word. The first is found by the process and the address of the
// instruction. Where there is no such node the event is sent. At the end of a
// trail the node counts the hit.
//
// A process may come to have other code at the same addresses. So all is
// learned anew from time to time.
type KnownStacks struct {
	Map KnownMap // a hash table; trace.EventOptions has it, too

	mu        sync.Mutex
	renewed   time.Time
	last      uint64     // the last number of a node
	now       generation // what the kernel finds
	before    generation // what it found before the last Renew
	totalHits uint64
}

// KnownMap is a map of the kernel, of KnownKey and KnownNode.
type KnownMap interface {
	Lookup(key, value any) error
	Put(key, value any) error
	Delete(key any) error
}

// KnownKey finds a node. Numbers of nodes are larger than those of processes.
type KnownKey struct{ Node, Value uint64 }

// KnownNode says what is read: the word at Offset from the stack pointer, or
// the frame pointer ([InFramePointer]). The bits of the stack pointer that are
// in Mask are subtracted from it. Next is 0 at the end of a trail.
type KnownNode struct {
	Next   uint64
	Offset int64
	Mask   uint64
	Count  uint64
}

// MaxKnownNodes is the size of the map, and MaxKnownWords the longest trail.
const (
	KnownKeySize, KnownNodeSize = 16, 32
	MaxKnownNodes               = 1 << 16
	MaxKnownWords               = 128
)

// ending is much longer than a program takes that has found a node.
const ending = 20 * time.Millisecond

const firstNode = 1 << 32

type generation struct {
	next map[KnownKey]uint64
	ends map[KnownKey]*knownEnd
	seen map[string]bool // the keys of stacks that came once
}

type knownEnd struct {
	counted uint64
	add     func(hits uint64)
}

// Know has hits with a trail counted from now on, if the stack, whose key is
// unique, has come before. add is called for those that were.
func (k *KnownStacks) Know(pid uint32, pc uint64, words []Word, stack string, add func(hits uint64)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	g := &k.now
	if g.next == nil {
		*g = generation{make(map[KnownKey]uint64), make(map[KnownKey]*knownEnd), make(map[string]bool)}
	}
	switch {
	case len(words) == 0 || len(words) > MaxKnownWords:
		return
	case time.Since(k.renewed) < ending: // the memory of a removed node could be used for another one
		return
	case len(g.next)+len(g.ends)+len(k.before.next)+len(k.before.ends)+len(words) >= MaxKnownNodes:
		return
	case !g.seen[stack]: // many never come again
		if len(g.seen) < MaxKnownNodes {
			g.seen[stack] = true
		}
		return
	}
	key := KnownKey{uint64(pid), pc}
	var path []KnownKey
	for _, w := range words {
		if g.ends[key] != nil {
			return // its code has changed
		}
		path = append(path, key)
		number := g.next[key]
		if number == 0 {
			k.last++
			number = firstNode + k.last
		}
		key = KnownKey{number, w.Value}
	}
	if g.ends[key] != nil || g.next[key] != 0 {
		return // such as a hit from before it was known
	}
	// From the end on, so that what is found leads to an end.
	if k.Map.Put(&key, &KnownNode{}) != nil {
		return
	}
	g.ends[key] = &knownEnd{add: add}
	for i := len(path) - 1; i >= 0; i-- {
		if next := key.Node; g.next[path[i]] == 0 {
			node := KnownNode{Next: next, Offset: words[i].Offset}
			if words[i].FromStack {
				node.Mask = ^uint64(0)
			}
			if k.Map.Put(&path[i], &node) != nil {
				return // what follows is not found
			}
			g.next[path[i]] = next
		}
		key = path[i]
	}
}

// Take calls add for the hits that have been counted since the last Take, and
// returns how many there have been since the beginning. A nil KnownStacks has
// none.
func (k *KnownStacks) Take() uint64 {
	if k == nil {
		return 0
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.take(&k.before)
	k.take(&k.now)
	return k.totalHits
}

func (k *KnownStacks) take(g *generation) {
	for key, end := range g.ends {
		var node KnownNode
		if k.Map.Lookup(&key, &node) != nil || node.Count == end.counted {
			continue
		}
		hits := node.Count - end.counted
		end.counted = node.Count
		k.totalHits += hits
		end.add(hits)
	}
}

// Renew has everything learned anew. Programs that are running may still count
// until they end: these hits are taken later, and their nodes are removed with
// the next Renew.
func (k *KnownStacks) Renew() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.take(&k.before)
	for key := range k.before.next {
		_ = k.Map.Delete(&key) // it is there
	}
	for key := range k.before.ends {
		_ = k.Map.Delete(&key)
	}
	for key := range k.now.next {
		if key.Node < firstNode {
			_ = k.Map.Delete(&key)
			delete(k.now.next, key)
		}
	}
	k.before, k.now, k.renewed = k.now, generation{}, time.Now()
}

// A Trail has what the walk of a stack depends on: words of the stack, and the
// first frame pointer. At another hit at the same instruction of the same
// process, where they are the same, the stack has the same addresses. So it
// need not be walked again, and not be copied. Most words of a stack are not
// among them.
//
// It is known for code whose frames are found from the stack pointer or the
// frame pointer, which nearly all code is. Methods do nothing on a nil Trail.
type Trail struct {
	Words []Word

	// IsLost says that the walk depends on something else, too: an expression,
	// where the copy ends, or another register.
	IsLost bool

	start uint64 // the first stack pointer
	sourceOf
}

// A Word is a word of the stack, or the first frame pointer.
type Word struct {
	Offset int64 // from the first stack pointer, or InFramePointer
	Value  uint64

	// FromStack says that Value is the distance from the first stack pointer.
	// Stacks of threads, and of calls, lie at different addresses.
	FromStack bool
}

// InFramePointer is the Offset of a Word that is the first frame pointer.
const InFramePointer = 1<<31 - 1

// sourceOf says, for each register, where its value is from.
type sourceOf [MaxRegisters]source

type source struct {
	kind   sourceKind
	offset int64 // of the word on the stack
}

type sourceKind uint8

const (
	isElsewhere  sourceKind = iota // it is not known
	isDetermined                   // by the words there are
	isOnStack                      // it has been read there
	isFirstFrame                   // the first frame pointer
)

type trailKey struct{}

// WithTrail returns a context for a walk that keeps its trail.
func WithTrail(ctx context.Context, t *Trail) context.Context {
	return context.WithValue(ctx, trailKey{}, t)
}

// TrailOf returns the trail of [WithTrail], or nil.
func TrailOf(ctx context.Context) *Trail {
	t, _ := ctx.Value(trailKey{}).(*Trail)
	return t
}

// Begin prepares for the walk from a state of a machine's thread.
func (t *Trail) Begin(s *State, stackPointer, framePointer int) {
	if t == nil {
		return
	}
	*t = Trail{start: s.Registers[stackPointer], IsLost: stackPointer == framePointer}
	t.sourceOf[stackPointer] = source{kind: isDetermined}
	t.sourceOf[framePointer] = source{kind: isFirstFrame}
	t.IsLost = t.IsLost || t.start%8 != 0
}

// Lose says that the walk depends on more than the stack.
func (t *Trail) Lose() {
	if t != nil {
		t.IsLost = true
	}
}

// depend adds a word. value is what it is, as it is to be compared.
func (t *Trail) depend(from source, value uint64, fromStack bool) {
	w := Word{Offset: from.offset, Value: value, FromStack: fromStack}
	switch from.kind {
	case isDetermined:
		return
	case isElsewhere:
		t.IsLost = true
		return
	case isFirstFrame:
		w.Offset = InFramePointer
	}
	if int64(int32(w.Offset)) != w.Offset {
		t.IsLost = true
		return
	}
	t.Words = append(t.Words, w)
}

// use is called when a frame is found from a register.
func (t *Trail) use(register int, value uint64) {
	if t != nil {
		t.depend(t.sourceOf[register], value-t.start, true)
	}
}

// useZero is called when a register does not lead to a frame because it is 0.
func (t *Trail) useZero(register int) {
	if t != nil {
		t.depend(t.sourceOf[register], 0, false)
	}
}

// followFrame is called when the caller has been found by the frame pointer.
func (t *Trail) followFrame(m *machine, frame, returns uint64) {
	if t == nil {
		return
	}
	t.use(m.framePointer, frame)
	at := int64(frame - t.start)
	t.depend(source{isOnStack, at + m.savedReturn}, returns, false)
	t.sourceOf[m.framePointer] = source{isOnStack, at + m.savedFrame}
	t.sourceOf[m.stackPointer] = source{kind: isDetermined}
}

// sources returns where the registers of a caller are from unless rules say
// otherwise: they are those of the function that it has called.
func (t *Trail) sources(m *machine) (of sourceOf) {
	if t == nil {
		return of
	}
	of = t.sourceOf
	of[m.stackPointer] = source{kind: isDetermined}
	if m.instruction >= 0 {
		t.sourceOf[m.instruction] = source{kind: isDetermined}
		of[m.instruction] = source{kind: isDetermined}
	}
	return of
}

// restore is called when a rule has given the value of a caller's register.
func (t *Trail) restore(of *sourceOf, r *registerRule, frame uint64) {
	if t == nil {
		return
	}
	switch r.kind {
	case isSaved:
		of[r.number] = source{isOnStack, int64(frame + uint64(r.offset) - t.start)}
	case isOffset:
		of[r.number] = source{kind: isDetermined}
	case isRegister:
		of[r.number] = t.sourceOf[r.register]
	default:
		of[r.number] = source{}
	}
}

// returns is called when the register with the return address is known.
func (t *Trail) returns(of *sourceOf, register int, value uint64) {
	if t == nil {
		return
	}
	t.sourceOf = *of
	if from := of[register]; from.kind == isOnStack {
		t.depend(from, value, false)
	} else {
		t.IsLost = true // such as in the link register, of a function that calls none
	}
}
