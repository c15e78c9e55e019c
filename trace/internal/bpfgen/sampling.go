// SPDX-License-Identifier: BSD-2-Clause

package bpfgen

import (
	"time"

	"github.com/cilium/ebpf/asm"

	"github.com/gousdt/gousdt/internal/argcode"
)

// Sampling says which hits become events: about one in Every, or at most Rate a
// second on each processor. They are chosen at random: of probes that
// alternate, such as a start and an end, each second hit would be those of one.
//
// With a rate the gaps between events follow the number of hits in the eighth
// of a second before, and make somewhat fewer events than are allowed. Where
// hits become more frequent, the time of the next event holds them to the rate.
type Sampling struct {
	State int // descriptor of a per-processor array of one SamplingState
	Every uint32
	Rate  uint32
}

// SamplingState is what a processor knows. Another hit may interrupt this one,
// so Since can be less than 0 for a moment. But the weights of events and what
// is left in Since are all hits.
type SamplingState struct {
	Since   int64  // hits since the last one that became an event
	Gap     uint64 // how many hits there are to be from that one to the next
	LeftOut uint64 // hits that became no event

	// With a rate, times in nanoseconds of the monotonic clock.
	Next  uint64 // when the next event would come if they came evenly
	Began uint64 // counting Hits
	Hits  uint64
	Mean  uint64 // of the gaps
}

// SamplingStateSize is the size of a SamplingState.
const SamplingStateSize = 7 * 8

const (
	stateSince   = 0
	stateGap     = 8
	stateLeftOut = 16
	stateNext    = 24
	stateBegan   = 32
	stateHits    = 40
	stateMean    = 48
)

// samplingWindow is how long hits are counted to know how frequent they are.
const samplingWindow = time.Second / 8

// spacing returns the time between events that come evenly, and how much
// earlier one may come: an eighth of those of a second may come at once.
func (s *Sampling) spacing() (between, early time.Duration) {
	between = max(time.Second/time.Duration(s.Rate), 1)
	return between, between * time.Duration(s.Rate/8)
}

// sampled is where a hit that was chosen has its weight, the processor's state
// and its time on the stack.
type sampled struct {
	weight, state, time int
}

// sample emits what goes to leave for a hit that becomes no event.
func (b *builder) sample(s *Sampling, leave argcode.Label) *sampled {
	at := &sampled{weight: b.Alloc(8), state: b.Alloc(8)}
	b.Emit(asm.StoreImm(asm.R10, int16(at.state), 0, asm.Word))
	b.lookUp(s.State, at.state, leave)
	b.Emit(asm.Mov.Reg(asm.R9, asm.R0))
	b.Emit(asm.Mov.Imm(asm.R1, 1), asm.AddAtomic.Mem(asm.R9, asm.R1, asm.DWord, stateSince))

	skip := b.Label()
	if s.Rate > 0 {
		at.time = b.Alloc(8)
		b.Call(asm.FnKtimeGetNs)
		b.Emit(toStack(at.time, asm.R0))
		b.countForMean(s)
		_, early := s.spacing()
		b.Emit(asm.LoadMem(asm.R1, asm.R9, stateNext, asm.DWord), asm.Sub.Reg(asm.R1, asm.R0))
		b.JumpIfImm(asm.JSGT, asm.R1, uint64(early), asm.R2, skip)
	}
	b.Emit(asm.LoadMem(asm.R1, asm.R9, stateSince, asm.DWord),
		asm.LoadMem(asm.R2, asm.R9, stateGap, asm.DWord))
	b.JumpIf(asm.JSLT, asm.R1, asm.R2, skip)
	b.Emit(toStack(at.weight, asm.R1), toStack(at.state, asm.R9))
	b.Later(func() {
		b.Place(skip)
		b.Emit(asm.Mov.Imm(asm.R1, 1), asm.AddAtomic.Mem(asm.R9, asm.R1, asm.DWord, stateLeftOut))
		b.Jump(leave)
	})
	return at
}

// countForMean emits what counts a hit, of which R0 has the time. At the end of
// a window it sets the mean of the gaps: the hits in the time between two
// events, and a sixteenth more.
func (b *builder) countForMean(s *Sampling) {
	same := b.Label()
	between, _ := s.spacing()
	b.Emit(asm.LoadMem(asm.R1, asm.R9, stateBegan, asm.DWord), asm.Mov.Reg(asm.R2, asm.R0),
		asm.Sub.Reg(asm.R2, asm.R1))
	b.JumpIfImm(asm.JLT, asm.R2, uint64(samplingWindow), asm.R1, same)
	b.Emit(asm.StoreMem(asm.R9, stateBegan, asm.R0, asm.DWord),
		asm.LoadMem(asm.R1, asm.R9, stateHits, asm.DWord),
		asm.Mul.Imm(asm.R1, int32(between)), asm.Div.Reg(asm.R1, asm.R2),
		asm.Mov.Reg(asm.R2, asm.R1), asm.RSh.Imm(asm.R2, 4), asm.Add.Reg(asm.R1, asm.R2),
		asm.StoreMem(asm.R9, stateMean, asm.R1, asm.DWord),
		asm.Mov.Imm(asm.R1, 0), asm.StoreMem(asm.R9, stateHits, asm.R1, asm.DWord))
	b.Place(same)
	b.Emit(asm.Mov.Imm(asm.R1, 1), asm.AddAtomic.Mem(asm.R9, asm.R1, asm.DWord, stateHits))
}

// take emits what is to be done once there is room for the event in R7: it gets
// the weight, and the next gap is chosen. A hit that found no room is part of
// the weight of the next one.
func (b *builder) take(s *Sampling, at *sampled, weight int) {
	b.Emit(fromStack(asm.R1, at.weight), fromStack(asm.R9, at.state),
		asm.StoreMem(asm.R7, int16(weight), asm.R1, asm.DWord), asm.Neg.Imm(asm.R1, 0),
		asm.AddAtomic.Mem(asm.R9, asm.R1, asm.DWord, stateSince))
	if s.Rate > 0 {
		later := b.Label()
		between, _ := s.spacing()
		b.Emit(asm.LoadMem(asm.R1, asm.R9, stateNext, asm.DWord), fromStack(asm.R2, at.time))
		b.JumpIf(asm.JGE, asm.R1, asm.R2, later)
		b.Emit(asm.Mov.Reg(asm.R1, asm.R2))
		b.Place(later)
		b.Emit(asm.Add.Imm(asm.R1, int32(between)),
			asm.StoreMem(asm.R9, stateNext, asm.R1, asm.DWord))
	}
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

// Share says how the ring buffer is shared out: its last quarter is for owners
// that have put little into it lately. An owner is a control group, or where
// that is the root, a user; so it is for the keys of an aggregation, see Room.
//
// Until then nothing is counted, so that a hit pays for one look at how full
// the ring buffer is.
type Share struct {
	Owners int // descriptor of a hash map, u64: OwnerState
}

// OwnerState is what the map of owners has.
type OwnerState struct {
	Period uint64 // number of the period that Bytes are of
	Bytes  uint64 // put into the last quarter
	Lost   uint64 // events
}

// Of OwnerState.
const (
	OwnerStateSize = 24
	ownerPeriod    = 0
	ownerBytes     = 8
	ownerLost      = 16
)

const (
	// periodBits makes a period of 2^27 ns, an eighth of a second.
	periodBits = 27

	// sharePart says what share of the ring buffer an owner may fill in a
	// period while only the last quarter is left: one part of this many. So
	// eight owners that fill it leave something to others.
	sharePart = 4 * 9

	// UserOwner is set in the key of an owner that is a user.
	UserOwner = 1 << 63

	// rootCgroup is the ID of the root of all control groups, which is that of
	// all processes too where the kernel has the second version only in part.
	rootCgroup = 1
)

// share emits what goes to full if there is no room for this hit's owner.
func (b *builder) share(e *Events, size int, full argcode.Label) {
	if e.Share == nil {
		return
	}
	scarce, enough := b.Label(), b.Label()
	b.Emit(asm.LoadMapPtr(asm.R1, e.Ring), asm.Mov.Imm(asm.R2, ringAvailable))
	b.Call(asm.FnRingbufQuery)
	b.JumpIfImm(asm.JGE, asm.R0, uint64(e.RingSize/4*3), asm.R1, scarce)
	b.Place(enough)
	b.Later(func() {
		b.Place(scarce)
		b.owner(e.Share, enough)
		b.Emit(asm.Mov.Reg(asm.R7, asm.R0))
		b.Call(asm.FnKtimeGetNs)
		same := b.Label()
		b.Emit(asm.RSh.Imm(asm.R0, periodBits), asm.LoadMem(asm.R1, asm.R7, ownerPeriod, asm.DWord))
		b.JumpIf(asm.JEq, asm.R0, asm.R1, same)
		b.Emit(asm.StoreMem(asm.R7, ownerPeriod, asm.R0, asm.DWord),
			asm.StoreImm(asm.R7, ownerBytes, 0, asm.Word),
			asm.StoreImm(asm.R7, ownerBytes+4, 0, asm.Word))
		b.Place(same)
		b.Emit(asm.LoadMem(asm.R1, asm.R7, ownerBytes, asm.DWord))
		b.JumpIfImm(asm.JGE, asm.R1, uint64(e.RingSize/sharePart), asm.R2, full)
		b.Emit(asm.Mov.Imm(asm.R1, int32(size+ringHeader)),
			asm.AddAtomic.Mem(asm.R7, asm.R1, asm.DWord, ownerBytes))
		b.Jump(enough)
	})
}

// loseOf counts an event that the owner of this hit has lost.
func (b *builder) loseOf(e *Events) {
	if e.Share == nil {
		return
	}
	none := b.Label()
	b.owner(e.Share, none)
	b.Emit(asm.Mov.Imm(asm.R1, 1), asm.AddAtomic.Mem(asm.R0, asm.R1, asm.DWord, ownerLost))
	b.Place(none)
}

// ownerID sets R0 to the owner of this hit.
func (b *builder) ownerID() {
	known := b.Label()
	b.Call(asm.FnGetCurrentCgroupId)
	b.JumpIfImm(asm.JGT, asm.R0, rootCgroup, asm.R1, known)
	b.Call(asm.FnGetCurrentUidGid)
	b.Emit(asm.LSh.Imm(asm.R0, 32), asm.RSh.Imm(asm.R0, 32), asm.LoadImm(asm.R1, -1<<63, asm.DWord),
		asm.Or.Reg(asm.R0, asm.R1))
	b.Place(known)
}

// owner sets R0 to the state of this hit's owner, or goes to none if there is
// no room for one more.
func (b *builder) owner(s *Share, none argcode.Label) {
	at := b.Temporary(8 + OwnerStateSize)
	b.ownerID()
	b.Emit(toStack(at, asm.R0))
	b.zero(asm.R10, at+8, OwnerStateSize)
	b.lookUpOrAdd(s.Owners, at, at+8, none)
}
