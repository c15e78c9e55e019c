// SPDX-License-Identifier: BSD-2-Clause

package bpfgen

import (
	"time"

	"github.com/cilium/ebpf/asm"

	"github.com/gousdt/gousdt/internal/argcode"
)

// Sampling says which hits become events: about one in Every, or at most Rate a
// second on each processor. One of them is set.
//
// Hits are chosen at random, not each one of so many: probes that alternate,
// such as those at the start and at the end of something, would otherwise give
// events of one of them alone.
type Sampling struct {
	State int // descriptor of a per-processor array of one SamplingState
	Every uint32
	Rate  uint32
}

// SamplingState is what a processor knows. Another hit may interrupt this one
// where a hit is chosen, so Since can become less than 0 for a moment. But what
// events have as their weight and what is left in Since are all hits.
type SamplingState struct {
	Since   int64  // hits since the last one that became an event
	Gap     uint64 // how many hits there are to be from that one to the next
	LeftOut uint64 // hits that became no event

	// With a rate: of the second that is going on.
	Began uint64 // nanoseconds of the monotonic clock
	Hits  uint64
	Taken uint64
	Mean  uint64 // of the gaps

	// Hits that came when a second had its events already. They are shared out
	// to the events of the next one: as the weight of its first event they
	// would be taken for hits like that one.
	Over  uint64
	Share uint64 // of each event
}

// SamplingStateSize is the size of a SamplingState.
const SamplingStateSize = 9 * 8

const (
	stateSince   = 0
	stateGap     = 8
	stateLeftOut = 16
	stateBegan   = 24
	stateHits    = 32
	stateTaken   = 40
	stateMean    = 48
	stateOver    = 56
	stateShare   = 64
)

// sampled is where a hit that was chosen has its weight and the processor's
// state on the stack.
type sampled struct {
	weight, state int
}

// sample emits what goes to leave for a hit that becomes no event.
func (b *builder) sample(s *Sampling, leave argcode.Label) *sampled {
	at := &sampled{weight: b.Alloc(8), state: b.Alloc(8)}
	b.Emit(asm.StoreImm(asm.R10, int16(at.state), 0, asm.Word))
	b.AddressOf(asm.R2, asm.R10, at.state)
	b.Emit(asm.LoadMapPtr(asm.R1, s.State))
	b.Call(asm.FnMapLookupElem)
	b.JumpIfImm(asm.JEq, asm.R0, 0, asm.R1, leave)
	b.Emit(asm.Mov.Reg(asm.R9, asm.R0))
	b.Emit(asm.Mov.Imm(asm.R1, 1), asm.AddAtomic.Mem(asm.R9, asm.R1, asm.DWord, stateSince))

	skip := b.Label()
	if s.Rate > 0 {
		b.second(s)
		b.Emit(asm.LoadMem(asm.R1, asm.R9, stateTaken, asm.DWord))
		b.JumpIfImm(asm.JGE, asm.R1, uint64(s.Rate), asm.R2, skip)
	}
	b.Emit(asm.LoadMem(asm.R1, asm.R9, stateSince, asm.DWord),
		asm.LoadMem(asm.R2, asm.R9, stateGap, asm.DWord))
	b.JumpIf(asm.JSLT, asm.R1, asm.R2, skip)
	b.Emit(asm.StoreMem(asm.R10, int16(at.weight), asm.R1, asm.DWord),
		asm.StoreMem(asm.R10, int16(at.state), asm.R9, asm.DWord))
	b.Later(func() {
		b.Place(skip)
		b.Emit(asm.Mov.Imm(asm.R1, 1), asm.AddAtomic.Mem(asm.R9, asm.R1, asm.DWord, stateLeftOut))
		b.Jump(leave)
	})
	return at
}

// second emits what counts the hits of a second. The next one has so large gaps
// that as many hits would make Rate events.
func (b *builder) second(s *Sampling) {
	same, none := b.Label(), b.Label()
	b.Call(asm.FnKtimeGetNs)
	b.Emit(asm.LoadMem(asm.R1, asm.R9, stateBegan, asm.DWord), asm.Mov.Reg(asm.R2, asm.R0),
		asm.Sub.Reg(asm.R2, asm.R1))
	b.JumpIfImm(asm.JLT, asm.R2, uint64(time.Second), asm.R1, same)
	// All hits but this one, if the second had its events.
	b.Emit(asm.LoadMem(asm.R1, asm.R9, stateTaken, asm.DWord))
	b.JumpIfImm(asm.JLT, asm.R1, uint64(s.Rate), asm.R2, none)
	b.Emit(asm.LoadMem(asm.R1, asm.R9, stateSince, asm.DWord), asm.Sub.Imm(asm.R1, 1))
	b.JumpIfImm(asm.JSLT, asm.R1, 1, asm.R2, none)
	b.Emit(asm.LoadMem(asm.R2, asm.R9, stateOver, asm.DWord), asm.Add.Reg(asm.R2, asm.R1),
		asm.StoreMem(asm.R9, stateOver, asm.R2, asm.DWord),
		asm.Div.Imm(asm.R2, int32(s.Rate)), asm.Add.Imm(asm.R2, 1),
		asm.StoreMem(asm.R9, stateShare, asm.R2, asm.DWord),
		asm.Neg.Imm(asm.R1, 0), asm.AddAtomic.Mem(asm.R9, asm.R1, asm.DWord, stateSince))
	b.Place(none)
	b.Emit(asm.StoreMem(asm.R9, stateBegan, asm.R0, asm.DWord),
		asm.LoadMem(asm.R1, asm.R9, stateHits, asm.DWord),
		asm.Div.Imm(asm.R1, int32(s.Rate)),
		asm.StoreMem(asm.R9, stateMean, asm.R1, asm.DWord),
		asm.Mov.Imm(asm.R1, 0),
		asm.StoreMem(asm.R9, stateHits, asm.R1, asm.DWord),
		asm.StoreMem(asm.R9, stateTaken, asm.R1, asm.DWord))
	b.Place(same)
	b.Emit(asm.Mov.Imm(asm.R1, 1), asm.AddAtomic.Mem(asm.R9, asm.R1, asm.DWord, stateHits))
}

// take emits what is to be done once there is room for the event in R7: it gets
// the weight, and the next gap is chosen. A hit that found no room is part of
// the weight of the next one.
func (b *builder) take(s *Sampling, at *sampled, weight int) {
	b.Emit(asm.LoadMem(asm.R1, asm.R10, int16(at.weight), asm.DWord),
		asm.LoadMem(asm.R9, asm.R10, int16(at.state), asm.DWord))
	if s.Rate > 0 {
		enough := b.Label()
		b.Emit(asm.LoadMem(asm.R2, asm.R9, stateShare, asm.DWord),
			asm.LoadMem(asm.R3, asm.R9, stateOver, asm.DWord))
		b.JumpIf(asm.JGE, asm.R3, asm.R2, enough)
		b.Emit(asm.Mov.Reg(asm.R2, asm.R3))
		b.Place(enough)
		b.Emit(asm.Sub.Reg(asm.R3, asm.R2), asm.StoreMem(asm.R9, stateOver, asm.R3, asm.DWord),
			asm.Add.Reg(asm.R2, asm.R1), asm.StoreMem(asm.R7, int16(weight), asm.R2, asm.DWord),
			asm.Mov.Imm(asm.R2, 1), asm.AddAtomic.Mem(asm.R9, asm.R2, asm.DWord, stateTaken))
	} else {
		b.Emit(asm.StoreMem(asm.R7, int16(weight), asm.R1, asm.DWord))
	}
	b.Emit(asm.Neg.Imm(asm.R1, 0), asm.AddAtomic.Mem(asm.R9, asm.R1, asm.DWord, stateSince))
	// From 1 to 2 * mean - 1.
	b.Call(asm.FnGetPrandomU32)
	if s.Rate > 0 {
		known := b.Label()
		b.Emit(asm.LoadMem(asm.R1, asm.R9, stateMean, asm.DWord))
		b.JumpIfImm(asm.JNE, asm.R1, 0, asm.R2, known)
		b.Emit(asm.Mov.Imm(asm.R1, 1))
		b.Place(known)
		b.Emit(asm.LSh.Imm(asm.R1, 1), asm.Sub.Imm(asm.R1, 1))
	} else {
		b.Set(asm.R1, 2*uint64(s.Every)-1)
	}
	b.Emit(asm.Mod.Reg(asm.R0, asm.R1), asm.Add.Imm(asm.R0, 1),
		asm.StoreMem(asm.R9, stateGap, asm.R0, asm.DWord))
}
