// SPDX-License-Identifier: BSD-2-Clause

package bpfgen

import (
	"github.com/cilium/ebpf/asm"

	"github.com/gousdt/gousdt/internal/argcode"
)

// Room says how the room for an aggregation's keys is shared out. User space
// takes the keys before the room is full. What is left in reserve then is for
// owners that have made few keys since.
//
// Until then nothing is counted by owner, and hits of keys that are there
// already cost nothing at any time.
type Room struct {
	Left   int    // descriptor of an array: RoomState
	Index  uint32 // of the aggregation in it
	Signal int    // descriptor of a ring buffer, to which the index is sent, as a u32 and four zero bytes; 0: nobody takes keys

	// Scarce is what is Left, 0 or less, when only the reserve is left. Of that
	// an owner may have Share keys. Owners is the descriptor of an LRU hash
	// map, u64: two u32, for what each has.
	Scarce int32
	Share  uint32
	Owners int
}

// RoomState is what there is of a Room.
type RoomState struct {
	Left  int64  // how many more keys may come before the signal
	Round uint32 // goes up whenever keys are taken
	_     uint32
}

// Of RoomState, and of what an owner has.
const (
	RoomStateSize = 16
	roomLeft      = 0
	roomRound     = 8

	// OwnerKeysSize is the size of what an owner has.
	OwnerKeysSize = 8
	keysRound     = 0
	keysCount     = 4
)

// takeRoom emits what is to be done for a new key. It goes to refused if its
// owner, which is on the stack, may not make one. There are 8 bytes of zeros on
// the stack.
func (b *builder) takeRoom(r *Room, owner, zeros int, refused argcode.Label) {
	enough, known, same := b.Label(), b.Label(), b.Label()
	left := b.Temporary(24)
	round, index := left+8, left+16
	b.Emit(asm.StoreImm(asm.R10, int16(index), int64(r.Index), asm.Word), asm.StoreImm(asm.R10, int16(index+4), 0, asm.Word))
	b.lookUp(r.Left, index)
	b.JumpIfImm(asm.JEq, asm.R0, 0, asm.R1, enough)
	b.Emit(asm.Mov.Imm(asm.R1, -1), asm.AddAtomic.Mem(asm.R0, asm.R1, asm.DWord, roomLeft), asm.LoadMem(asm.R1, asm.R0, roomLeft, asm.DWord))
	b.JumpIfImm(asm.JSGT, asm.R1, 0, asm.R2, enough)
	b.Emit(asm.StoreMem(asm.R10, int16(left), asm.R1, asm.DWord))
	b.Emit(asm.LoadMem(asm.R1, asm.R0, roomRound, asm.Word), asm.StoreMem(asm.R10, int16(round), asm.R1, asm.DWord))
	if r.Signal != 0 {
		// The signal is repeated for each key from now on: one may be sent
		// before the reader is ready to see it.
		b.Emit(asm.LoadMapPtr(asm.R1, r.Signal))
		b.AddressOf(asm.R2, asm.R10, index)
		b.Emit(asm.Mov.Imm(asm.R3, 8), asm.Mov.Imm(asm.R4, 0))
		b.Call(asm.FnRingbufOutput)
	}
	b.Emit(asm.LoadMem(asm.R1, asm.R10, int16(left), asm.DWord))
	b.JumpIfImm(asm.JSGE, asm.R1, uint64(int64(r.Scarce)), asm.R2, enough)

	b.lookUp(r.Owners, owner)
	b.JumpIfImm(asm.JNE, asm.R0, 0, asm.R1, known)
	b.AddressOf(asm.R2, asm.R10, owner)
	b.AddressOf(asm.R3, asm.R10, zeros)
	b.Emit(asm.LoadMapPtr(asm.R1, r.Owners), asm.Mov.Imm(asm.R4, updateNoExist))
	b.Call(asm.FnMapUpdateElem)
	b.lookUp(r.Owners, owner)
	b.JumpIfImm(asm.JEq, asm.R0, 0, asm.R1, enough)
	b.Place(known)
	b.Emit(asm.LoadMem(asm.R1, asm.R0, keysRound, asm.Word), asm.LoadMem(asm.R2, asm.R10, int16(round), asm.DWord))
	b.JumpIf(asm.JEq, asm.R1, asm.R2, same)
	b.Emit(asm.StoreMem(asm.R0, keysRound, asm.R2, asm.Word), asm.StoreImm(asm.R0, keysCount, 0, asm.Word))
	b.Place(same)
	b.Emit(asm.LoadMem(asm.R1, asm.R0, keysCount, asm.Word))
	b.JumpIfImm(asm.JGE, asm.R1, uint64(r.Share), asm.R2, refused)
	b.Emit(asm.Mov.Imm(asm.R1, 1), asm.AddAtomic.Mem(asm.R0, asm.R1, asm.Word, keysCount))
	b.Place(enough)
}
