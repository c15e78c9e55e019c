// SPDX-License-Identifier: BSD-2-Clause

package unwind

import "context"

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

func (t *Trail) lose() {
	if t != nil {
		t.IsLost = true
	}
}

// Lose says that the walk depends on more than the stack.
func (t *Trail) Lose() { t.lose() }

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
