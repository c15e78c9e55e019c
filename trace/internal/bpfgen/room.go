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
	State  int    // descriptor of an array, of which an aggregation has two elements: RoomState
	Index  uint32 // of the aggregation
	Signal int    // descriptor of a ring buffer, to which the index is sent, as a u32 and four zero bytes; 0: nobody takes keys

	// Filled is how many keys there are before the signal, and Size before only
	// the reserve is left. Of that an owner may have Share keys. Owners is the
	// descriptor of an LRU hash map, u64: two u32, for what each has.
	Filled, Size, Share uint32
	Owners              int
}

// RoomState is an element of Room.State. Of each aggregation programs write
// nothing but the first, and user space nothing but the second. So none of them
// undoes what the other one does at the same moment.
type RoomState struct {
	Keys  uint64 // that programs have made, or had made when the room became empty
	Round uint32 // goes up whenever keys are taken
	_     uint32
}

// Made returns the number of the element that programs write.
func (r *Room) Made() uint32 { return 2 * r.Index }

// Taken returns the number of the element that user space writes.
func (r *Room) Taken() uint32 { return 2*r.Index + 1 }

// Of RoomState, and of what an owner has.
const (
	RoomStateSize = 16
	roomKeys      = 0
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
	enough, known, same, little := b.Label(), b.Label(), b.Label(), b.Label()
	key := b.Temporary(32)
	round, made, index := key+8, key+16, key+24
	b.Emit(asm.StoreImm(asm.R10, int16(key), int64(r.Taken()), asm.Word))
	b.lookUp(r.State, key)
	b.JumpIfImm(asm.JEq, asm.R0, 0, asm.R1, enough)
	b.Emit(asm.LoadMem(asm.R1, asm.R0, roomRound, asm.Word),
		asm.StoreMem(asm.R10, int16(round), asm.R1, asm.DWord))
	b.Emit(asm.LoadMem(asm.R1, asm.R0, roomKeys, asm.DWord),
		asm.StoreMem(asm.R10, int16(made), asm.R1, asm.DWord))
	b.Emit(asm.StoreImm(asm.R10, int16(key), int64(r.Made()), asm.Word))
	b.lookUp(r.State, key)
	b.JumpIfImm(asm.JEq, asm.R0, 0, asm.R1, enough)
	b.Emit(asm.LoadMem(asm.R1, asm.R0, roomKeys, asm.DWord),
		asm.LoadMem(asm.R2, asm.R10, int16(made), asm.DWord),
		asm.Sub.Reg(asm.R1, asm.R2), asm.StoreMem(asm.R10, int16(made), asm.R1, asm.DWord))
	b.JumpIfImm(asm.JGE, asm.R1, uint64(r.Size), asm.R2, little)
	b.Emit(asm.Mov.Imm(asm.R2, 1), asm.AddAtomic.Mem(asm.R0, asm.R2, asm.DWord, roomKeys))
	b.JumpIfImm(asm.JLT, asm.R1, uint64(r.Filled-1), asm.R2, enough)
	b.Place(little)
	if r.Signal != 0 {
		// The signal is repeated for each key from now on: one may be sent
		// before the reader is ready to see it.
		b.Emit(asm.StoreImm(asm.R10, int16(index), int64(r.Index), asm.Word),
			asm.StoreImm(asm.R10, int16(index+4), 0, asm.Word))
		b.Emit(asm.LoadMapPtr(asm.R1, r.Signal))
		b.AddressOf(asm.R2, asm.R10, index)
		b.Emit(asm.Mov.Imm(asm.R3, 8), asm.Mov.Imm(asm.R4, 0))
		b.Call(asm.FnRingbufOutput)
	}
	b.Emit(asm.LoadMem(asm.R1, asm.R10, int16(made), asm.DWord))
	b.JumpIfImm(asm.JLT, asm.R1, uint64(r.Size), asm.R2, enough)

	b.lookUp(r.Owners, owner)
	b.JumpIfImm(asm.JNE, asm.R0, 0, asm.R1, known)
	b.AddressOf(asm.R2, asm.R10, owner)
	b.AddressOf(asm.R3, asm.R10, zeros)
	b.Emit(asm.LoadMapPtr(asm.R1, r.Owners), asm.Mov.Imm(asm.R4, updateNoExist))
	b.Call(asm.FnMapUpdateElem)
	b.lookUp(r.Owners, owner)
	b.JumpIfImm(asm.JEq, asm.R0, 0, asm.R1, enough)
	b.Place(known)
	b.Emit(asm.LoadMem(asm.R1, asm.R0, keysRound, asm.Word),
		asm.LoadMem(asm.R2, asm.R10, int16(round), asm.DWord))
	b.JumpIf(asm.JEq, asm.R1, asm.R2, same)
	b.Emit(asm.StoreMem(asm.R0, keysRound, asm.R2, asm.Word),
		asm.StoreImm(asm.R0, keysCount, 0, asm.Word))
	b.Place(same)
	b.Emit(asm.LoadMem(asm.R1, asm.R0, keysCount, asm.Word))
	b.JumpIfImm(asm.JGE, asm.R1, uint64(r.Share), asm.R2, refused)
	b.Emit(asm.Mov.Imm(asm.R1, 1), asm.AddAtomic.Mem(asm.R0, asm.R1, asm.Word, keysCount))
	b.Place(enough)
}
