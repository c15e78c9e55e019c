// SPDX-License-Identifier: BSD-2-Clause

package bpfgen

import (
	"github.com/cilium/ebpf/asm"

	"github.com/gousdt/gousdt/internal/argcode"
)

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

	// sharePart is which part of the ring buffer an owner may fill in a period
	// while only the last quarter is left: so that eight owners that fill it
	// leave something to others.
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
	found := b.Label()
	b.ownerID()
	b.Emit(asm.StoreMem(asm.R10, int16(at), asm.R0, asm.DWord))
	b.lookUp(s.Owners, at)
	b.JumpIfImm(asm.JNE, asm.R0, 0, asm.R1, found)
	b.zero(at+8, OwnerStateSize)
	b.AddressOf(asm.R2, asm.R10, at)
	b.AddressOf(asm.R3, asm.R10, at+8)
	b.Emit(asm.LoadMapPtr(asm.R1, s.Owners), asm.Mov.Imm(asm.R4, updateNoExist))
	b.Call(asm.FnMapUpdateElem)
	b.lookUp(s.Owners, at)
	b.JumpIfImm(asm.JEq, asm.R0, 0, asm.R1, none)
	b.Place(found)
}
