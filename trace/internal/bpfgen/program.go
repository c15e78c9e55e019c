// SPDX-License-Identifier: BSD-2-Clause

package bpfgen

import (
	"encoding/binary"
	"reflect"

	"github.com/cilium/ebpf/asm"

	"github.com/gousdt/gousdt/internal/attaching"
)

// maxProgram bounds the instructions of a program: a jump reaches over 32,767
// of them, and the one to a block may lead over all other blocks. Larger code
// becomes several programs.
const maxProgram = 28_000

// Blocks collects the code for the sites of a program. Sites with the same code
// share it.
type Blocks struct {
	// Table has what the programs look up about their site. It is nil if the
	// code of a block says all.
	Table *Table

	blocks []*Block
	known  map[string]int
}

// Add adds the code for a site, unless it is there already, and returns the
// number of its block. An equal Record becomes the same one.
func (bs *Blocks) Add(block *Block) int {
	key := block.code
	if key == "" {
		key = string(fingerprint(block.Instructions))
	}
	if n, ok := bs.known[key]; ok {
		if first := bs.blocks[n]; reflect.DeepEqual(block.Record, first.Record) {
			block.Record = first.Record
		}
		return n
	}
	if bs.known == nil {
		bs.known = make(map[string]int)
	}
	bs.known[key] = len(bs.blocks)
	bs.blocks = append(bs.blocks, block)
	return len(bs.blocks) - 1
}

// Len returns how many different blocks there are.
func (bs *Blocks) Len() int { return len(bs.blocks) }

// fingerprint returns bytes that are equal for equal code.
func fingerprint(ins asm.Instructions) []byte {
	b := make([]byte, 0, 18*len(ins))
	for i := range ins {
		b = binary.NativeEndian.AppendUint32(b, uint32(ins[i].OpCode))
		b = append(b, byte(ins[i].Dst), byte(ins[i].Src))
		b = binary.NativeEndian.AppendUint16(b, uint16(ins[i].Offset))
		b = binary.NativeEndian.AppendUint64(b, uint64(ins[i].Constant))
	}
	return b
}

// Program is the code for some kinds of sites.
type Program struct {
	Instructions asm.Instructions

	// First is the number of the program's first block, Blocks how many it has.
	// The program finds its block by the BPF cookie, the low half of which must
	// be the block's number minus First, or its place in the Table.
	First, Blocks int

	// Cookie reports whether the program reads the BPF cookie, or the value
	// that Slots have in its place.
	Cookie bool
}

// Fingerprint is equal for programs with equal code.
func (p *Program) Fingerprint() string { return string(fingerprint(p.Instructions)) }

// prologueSize is an upper bound of the instructions before the search.
const prologueSize = 32

// Programs returns the code of all blocks: one program, unless that would be
// too large. Without slots they find their blocks by the BPF cookie.
func (bs *Blocks) Programs(slots *Slots) []Program {
	var programs []Program
	size := maxProgram
	for i, block := range bs.blocks {
		n := 2 + int(block.Instructions.Size()/asm.InstructionSize) // with its part of the search
		if size+n > maxProgram {
			programs = append(programs, Program{First: i})
			size = prologueSize
		}
		size += n
		programs[len(programs)-1].Blocks++
	}
	for i := range programs {
		programs[i] = bs.Program(programs[i].First, programs[i].Blocks, slots)
	}
	return programs
}

// Program returns the code of count blocks from the number first on. They must
// be no more than Programs put into one program.
func (bs *Blocks) Program(first, count int, slots *Slots) Program {
	if slots != nil {
		return bs.program(first, count, slots.find())
	}
	return bs.program(first, count, asm.Instructions{asm.FnGetAttachCookie.Call(), mov(r8, r0)})
}

// Fixed returns the code of one block, with a constant in the place of the BPF
// cookie.
func (bs *Blocks) Fixed(number int, cookie uint64) Program {
	return bs.program(number, 1, asm.Instructions{asm.LoadImm(r8, int64(cookie), asm.DWord)})
}

// program returns the code of some blocks; cookie sets R8.
func (bs *Blocks) program(first, count int, cookie asm.Instructions) Program {
	p := Program{First: first, Blocks: count}
	blocks := bs.blocks[first:][:count]
	p.Cookie = len(blocks) > 1 || blocks[0].UsesID
	p.Instructions = append(asm.Instructions{mov(r6, r1)}, attaching.AvoidPrivateStack()...)
	if p.Cookie {
		p.Instructions = append(p.Instructions, cookie...)
	}
	switch {
	case len(blocks) == 1:
	case bs.Table != nil:
		// Every site is in the table, but the verifier wants a check.
		p.Instructions = append(p.Instructions, storeN(r10, slotKey, r8, asm.Word))
		p.Instructions = append(p.Instructions, valueOrExit(TableMap, r1)...)
	default:
		p.Instructions = append(p.Instructions, asm.Mov.Reg32(r1, r8))
		first = 0
	}
	p.search(blocks, first)
	return p
}

// search emits a binary search for the number in R1, and the blocks, from the
// one with the given number on.
func (p *Program) search(blocks []*Block, first int) {
	if len(blocks) == 1 {
		p.Instructions = append(p.Instructions, blocks[0].Instructions...)
		return
	}
	half, at := len(blocks)/2, len(p.Instructions)
	p.Instructions = append(p.Instructions, asm.Instruction{
		OpCode: asm.JGE.Op(asm.ImmSource), Dst: r1, Constant: int64(first + half),
	})
	p.search(blocks[:half], first)
	p.Instructions[at].Offset = int16(p.Instructions[at+1:].Size() / asm.InstructionSize)
	p.search(blocks[half:], first+half)
}

// slotBits is how many low bits of an address are the same wherever a file is
// mapped: no machine has pages of less than 4 kB.
const slotBits = 12

// Slots is for programs whose sites share a BPF cookie, or have none. A program
// then finds its site in a map by the low bits of the instruction pointer, in
// which the sites of a group, which share a cookie, differ.
type Slots struct {
	// Map is the descriptor of a hash map. The keys are those of Slot. The
	// values are the BPF cookies of other modes. All have 8 bytes.
	Map    int
	Kernel Kernel // that runs the program

	// Cookie says that the BPF cookie is the number of the group. Otherwise the
	// program is for the one group Group.
	Cookie bool
	Group  uint64
}

// Slot returns the key of the site at an address in a group.
func Slot(group, address uint64) uint64 { return group<<slotBits | LowBits(address) }

// LowBits returns the bits of an address that are the same wherever the file is
// mapped.
func LowBits(address uint64) uint64 { return address & (1<<slotBits - 1) }

// HasSlots reports whether programs can find their sites by slots.
func (k Kernel) HasSlots() bool {
	saved, ok := savedRegisters[k.Machine]
	return ok && saved.PC != None
}

// slotKey is the place of the key on the stack, before the code of a site uses
// that.
const slotKey = -8

// find loads the site's value into R8.
func (s *Slots) find() asm.Instructions {
	ins := asm.Instructions{asm.LoadImm(r0, int64(s.Group), asm.DWord)}
	if s.Cookie {
		ins = asm.Instructions{asm.FnGetAttachCookie.Call()}
	}
	ins = append(ins, asm.LSh.Imm(r0, slotBits),
		load(r1, r6, 8*savedRegisters[s.Kernel.Machine].PC), asm.And.Imm(r1, 1<<slotBits-1),
		asm.Or.Reg(r0, r1), store(r10, slotKey, r0))
	return append(ins, valueOrExit(s.Map, r8)...)
}

// valueOrExit loads the value of a map for the key at slotKey. The key is
// always there, but the verifier wants a check, which ends the program.
func valueOrExit(fd int, dst asm.Register) asm.Instructions {
	return asm.Instructions{
		mov(r2, r10), asm.Add.Imm(r2, slotKey), asm.LoadMapPtr(r1, fd), asm.FnMapLookupElem.Call(),
		{OpCode: asm.JNE.Op(asm.ImmSource), Dst: r0, Offset: 1}, // over the exit
		asm.Return(), load(dst, r0, 0),
	}
}
