// SPDX-License-Identifier: BSD-2-Clause

package code

import (
	"encoding/binary"

	"github.com/cilium/ebpf/asm"
)

// maxProgram bounds the instructions of a program, because a jump reaches over 32,767 of them and the way to a block may
// lead over all others. What needs more becomes several programs, of which the first calls the others.
const maxProgram = 28_000

// Blocks collects the code for the sites of a program. Sites with the same code share it.
type Blocks struct {
	blocks []*Block
	known  map[string]int
}

// Add adds the code for a site and returns its number.
func (bs *Blocks) Add(block *Block) int {
	key := string(fingerprint(block.Instructions))
	if n, ok := bs.known[key]; ok {
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

// Fingerprint returns what is equal for programs with equal code.
func (bs *Blocks) Fingerprint() string {
	var b []byte
	for _, block := range bs.blocks {
		b = binary.NativeEndian.AppendUint64(b, uint64(len(block.Instructions)))
		b = append(b, fingerprint(block.Instructions)...)
	}
	return string(b)
}

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

// Programs returns the code of the programs: the first one is what to attach; if there are more, the first one calls
// them as the entries 0, 1, ... of a map of programs. chunkMap returns the descriptor of that map for a number of
// programs; it is called at most once. cookie tells whether the BPF cookie is needed.
func (bs *Blocks) Programs(chunkMap func(programs int) (int, error)) (programs []asm.Instructions, cookie bool, err error) {
	var bounds []int // the first block of each program
	size := maxProgram
	for i, block := range bs.blocks {
		n := 2 + int(block.Instructions.Size()/asm.InstructionSize) // with its part of the search
		if size+n > maxProgram {
			bounds = append(bounds, i)
			size = 16
		}
		size += n
	}

	if len(bounds) == 1 {
		program, cookie := bs.program(0, len(bs.blocks))
		return []asm.Instructions{program}, cookie, nil
	}
	fd, err := chunkMap(len(bounds))
	if err != nil {
		return nil, false, err
	}
	programs = append(programs, dispatcher(fd, bounds))
	for i, from := range bounds {
		to := len(bs.blocks)
		if i+1 < len(bounds) {
			to = bounds[i+1]
		}
		program, _ := bs.program(from, to)
		programs = append(programs, program)
	}
	return programs, true, nil
}

// program returns the code of a program of some blocks. The first one of others does not come to it.
func (bs *Blocks) program(from, to int) (program asm.Instructions, cookie bool) {
	several := to-from > 1
	cookie = several || bs.blocks[from].UsesID || len(bs.blocks) > 1
	program = append(program, asm.Mov.Reg(asm.R6, asm.R1))
	if cookie {
		program = append(program, asm.FnGetAttachCookie.Call(), asm.Mov.Reg(asm.R8, asm.R0))
	}
	if several {
		program = append(program, asm.Mov.Reg32(asm.R1, asm.R8))
		bs.search(&program, from, to)
		return program, cookie
	}
	return append(program, bs.blocks[from].Instructions...), cookie
}

// search emits the blocks behind a binary search for the number in R1.
func (bs *Blocks) search(program *asm.Instructions, from, to int) {
	if to-from == 1 {
		*program = append(*program, bs.blocks[from].Instructions...)
		return
	}
	middle := from + (to-from)/2
	at := len(*program)
	*program = append(*program, asm.Instruction{
		OpCode: asm.JGE.Op(asm.ImmSource), Dst: asm.R1, Constant: int64(middle),
	})
	bs.search(program, from, middle)
	distance := (*program)[at+1:].Size() / asm.InstructionSize
	(*program)[at].Offset = int16(distance)
	bs.search(program, middle, to)
}

// dispatcher returns the code that calls the program in which a block is.
func dispatcher(fd int, bounds []int) asm.Instructions {
	a := newAssembler()
	call := a.label()
	a.emit(asm.Mov.Reg(asm.R6, asm.R1), asm.FnGetAttachCookie.Call(), asm.Mov.Reg32(asm.R1, asm.R0))
	for i := len(bounds) - 1; i > 0; i-- {
		a.emit(asm.Mov.Imm(asm.R3, int32(i)))
		a.jumpIfImm(asm.JGE, asm.R1, uint64(bounds[i]), asm.R2, call)
	}
	a.emit(asm.Mov.Imm(asm.R3, 0))
	a.place(call)
	a.emit(asm.Mov.Reg(asm.R1, asm.R6), asm.LoadMapPtr(asm.R2, fd), asm.FnTailCall.Call())
	a.leave()
	program, _ := a.finish()
	return program
}
