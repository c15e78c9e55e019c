// SPDX-License-Identifier: BSD-2-Clause

package bpfgen

import (
	"time"

	"github.com/cilium/ebpf/asm"

	"github.com/gousdt/gousdt/internal/argcode"
)

// Sampling says which hits become events: about one in Every, or at most Rate a
// second on each processor. They are chosen at random: of two probes that
// alternate, such as a start and an end, every second hit would always be the
// same one.
//
// An event stands for the hits of its process and site before it that became
// none. With those of others, a quiet process would look like a busy one beside
// it: with a rate, the hit that comes after a burst is often not of the burst.
//
// With a rate the gaps between events follow the number of hits in the eighth
// of a second before, and make somewhat fewer events than are allowed. When
// hits become more frequent, the time of the next event holds them to the rate.
type Sampling struct {
	State   int // descriptor of a per-processor array of one SamplingState
	Waiting int // descriptor of an LRU hash map, WaitingKey: i64 hits that await an event
	Every   uint32
	Rate    uint32
}

// WaitingKey is a key of Sampling.Waiting.
type WaitingKey struct{ Site, Process uint32 }

// SamplingState is the state of a processor. A hit may interrupt another one,
// so Since can be less than 0 for a moment. So can a number of hits that wait,
// where two processors send an event of the same site. All weights, and what
// waits or was forgotten, add up to the number of hits.
type SamplingState struct {
	Since   int64  // hits since the last one that became an event
	Gap     uint64 // how many hits to wait from that one to the next
	LeftOut uint64 // hits that became no event
	Stood   uint64 // of all weights, what is above 1

	// With a rate, times in nanoseconds of the monotonic clock.
	Next  uint64 // when the next event would come if they came evenly
	Began uint64 // counting Hits
	Hits  uint64
	Mean  uint64 // of the gaps
}

// SamplingStateSize is the size of a SamplingState.
const SamplingStateSize = 8 * 8

const (
	stateSince   = 0
	stateGap     = 8
	stateLeftOut = 16
	stateStood   = 24
	stateNext    = 32
	stateBegan   = 40
	stateHits    = 48
	stateMean    = 56
)

// samplingWindow is how long hits are counted to know how frequent they are.
const samplingWindow = time.Second / 8

// spacing returns the time between events that come evenly, and how much
// earlier one may come: an eighth of those of a second may come at once.
func (s *Sampling) spacing() (between, early time.Duration) {
	between = max(time.Second/time.Duration(s.Rate), 1)
	return between, between * time.Duration(s.Rate/8)
}

// sampled has the places on the stack for a chosen hit: of the hits since the
// last event, of the addresses of the processor's state and of the hits that
// wait, and of its time.
type sampled struct {
	since, state, waiting, time int
}

// sample emits code that goes to leave for a hit that becomes no event.
func (b *builder) sample(s *Sampling, leave argcode.Label) *sampled {
	at := &sampled{since: b.Alloc(8), state: b.Alloc(8), waiting: b.Alloc(8)}
	b.LookUpIndex(s.State, at.state, 0, leave)
	b.Emit(mov(r9, r0), toStack(at.state, r9), set(r1, 1),
		asm.AddAtomic.Mem(r9, r1, asm.DWord, stateSince))

	// at.since is the key, and at.waiting the new value.
	skip := b.Label()
	b.Call(asm.FnGetCurrentPidTgid) // also of processes without a number in this namespace
	b.siteID(r1)
	b.Emit(asm.RSh.Imm(r0, 32), storeN(r10, at.since, r1, asm.Word),
		storeN(r10, at.since+4, r0, asm.Word), set(r1, 0), toStack(at.waiting, r1))
	b.lookUpOrAdd(s.Waiting, at.since, at.waiting, skip)
	b.Emit(set(r1, 1), asm.AddAtomic.Mem(r0, r1, asm.DWord, 0), toStack(at.waiting, r0))
	if s.Rate > 0 {
		at.time = b.Alloc(8)
		b.Call(asm.FnKtimeGetNs)
		b.Emit(toStack(at.time, r0))
		b.countForMean(s)
		_, early := s.spacing()
		b.Emit(load(r1, r9, stateNext), asm.Sub.Reg(r1, r0))
		b.JumpIfImm(asm.JSGT, r1, uint64(early), r2, skip)
	}
	b.Emit(load(r1, r9, stateSince), load(r2, r9, stateGap))
	b.JumpIf(asm.JSLT, r1, r2, skip)
	b.Emit(toStack(at.since, r1))
	b.Aside(skip, leave, func() { b.Increment(r9, stateLeftOut) })
	return at
}

// countForMean counts a hit, whose time is in R0. At the end of a window it
// sets the mean of the gaps: the hits in the time between two events, and a
// sixteenth more.
func (b *builder) countForMean(s *Sampling) {
	between, _ := s.spacing()
	b.Emit(load(r1, r9, stateBegan), mov(r2, r0), asm.Sub.Reg(r2, r1))
	b.If(asm.JGE, r2, uint64(samplingWindow), r1, func() {
		b.Emit(store(r9, stateBegan, r0), load(r1, r9, stateHits), asm.Mul.Imm(r1, int32(between)),
			asm.Div.Reg(r1, r2), mov(r2, r1), asm.RSh.Imm(r2, 4), asm.Add.Reg(r1, r2),
			store(r9, stateMean, r1), set(r1, 0), store(r9, stateHits, r1))
	})
	b.Increment(r9, stateHits)
}

// take gives the event in R7, for which there was room, its weight, and chooses
// the next gap. A hit that found no room is part of the weight of the next one.
func (b *builder) take(s *Sampling, at *sampled, weight int) {
	b.Emit(fromStack(r2, at.waiting), load(r1, r2, 0))
	b.If(asm.JSLT, r1, 1, r3, func() { b.Emit(set(r1, 1)) })
	b.Emit(store(r7, weight, r1), mov(r3, r1), asm.Neg.Imm(r3, 0),
		asm.AddAtomic.Mem(r2, r3, asm.DWord, 0), fromStack(r9, at.state),
		asm.Sub.Imm(r1, 1), asm.AddAtomic.Mem(r9, r1, asm.DWord, stateStood),
		fromStack(r1, at.since), asm.Neg.Imm(r1, 0),
		asm.AddAtomic.Mem(r9, r1, asm.DWord, stateSince))
	if s.Rate > 0 {
		later := b.Label()
		between, _ := s.spacing()
		b.Emit(load(r1, r9, stateNext), fromStack(r2, at.time))
		b.JumpIf(asm.JGE, r1, r2, later)
		b.Emit(mov(r1, r2))
		b.Place(later)
		b.Emit(asm.Add.Imm(r1, int32(between)), store(r9, stateNext, r1))
	}
	// From 1 to 2 * mean - 1.
	b.Call(asm.FnGetPrandomU32)
	if s.Rate > 0 {
		b.Emit(load(r1, r9, stateMean))
		b.If(asm.JEq, r1, 0, r2, func() { b.Emit(set(r1, 1)) })
		b.Emit(asm.LSh.Imm(r1, 1), asm.Sub.Imm(r1, 1))
	} else {
		b.Set(r1, 2*uint64(s.Every)-1)
	}
	b.Emit(asm.Mod.Reg(r0, r1), asm.Add.Imm(r0, 1), store(r9, stateGap, r0))
}

// Share shares out the ring buffer: its last quarter is for owners that have
// put little into it lately. An owner is a control group or, in the root
// control group, a user. Room has the same owners.
//
// While more than a quarter is free nothing is counted, and a hit pays only for
// one look at how full the ring buffer is.
type Share struct {
	Owners int // descriptor of a hash map, u64: OwnerState
}

// OwnerState is a value of the map of owners.
type OwnerState struct {
	Period uint64 // number of the period that Bytes are of
	Bytes  uint64 // put into the last quarter
	Lost   uint64 // events
}

// The size and the offsets of an OwnerState.
const (
	OwnerStateSize = 24
	ownerPeriod    = 0
	ownerBytes     = 8
	ownerLost      = 16
)

const (
	// periodBits makes a period of 2^27 ns, an eighth of a second.
	periodBits = 27

	// sharePart is the share of the ring buffer that an owner may fill in a
	// period while only the last quarter is left: one part of this many. So
	// eight owners that fill theirs leave room for others.
	sharePart = 4 * 9

	// UserOwner is set in the key of an owner that is a user.
	UserOwner = 1 << 63

	// rootCgroup is the ID of the root control group. All processes have it on
	// systems that use cgroup v2 only in part.
	rootCgroup = 1
)

// share emits what goes to full if there is no room for this hit's owner.
func (b *builder) share(e *Events, size int, full argcode.Label) {
	if e.Share == nil {
		return
	}
	enough := b.Label()
	b.Call(asm.FnRingbufQuery, argcode.Map(e.Ring), ringAvailable)
	b.Rarely(asm.JGE, r0, uint64(e.RingSize/4*3), r1, func() {
		b.owner(e.Share, enough)
		b.Emit(mov(r7, r0))
		b.Call(asm.FnKtimeGetNs)
		same := b.Label()
		b.Emit(asm.RSh.Imm(r0, periodBits), load(r1, r7, ownerPeriod))
		b.JumpIf(asm.JEq, r0, r1, same)
		b.Emit(store(r7, ownerPeriod, r0), storeImm(r7, ownerBytes, 0, asm.Word),
			storeImm(r7, ownerBytes+4, 0, asm.Word))
		b.Place(same)
		b.Emit(load(r1, r7, ownerBytes))
		b.JumpIfImm(asm.JGE, r1, uint64(e.RingSize/sharePart), r2, full)
		b.Emit(set(r1, int32(size+ringHeader)), asm.AddAtomic.Mem(r7, r1, asm.DWord, ownerBytes))
	})
	b.Place(enough)
}

// ownerID sets R0 to the owner of this hit.
func (b *builder) ownerID() {
	b.Call(asm.FnGetCurrentCgroupId)
	b.If(asm.JLE, r0, rootCgroup, r1, func() {
		b.Call(asm.FnGetCurrentUidGid)
		b.Emit(asm.LSh.Imm(r0, 32), asm.RSh.Imm(r0, 32), asm.LoadImm(r1, -1<<63, asm.DWord),
			asm.Or.Reg(r0, r1))
	})
}

// owner sets R0 to the state of this hit's owner, or goes to none if there is
// no room for one more.
func (b *builder) owner(s *Share, none argcode.Label) {
	at := b.Temporary(8 + OwnerStateSize)
	b.ownerID()
	b.Emit(toStack(at, r0))
	b.zero(r10, at+8, OwnerStateSize)
	b.lookUpOrAdd(s.Owners, at, at+8, none)
}
