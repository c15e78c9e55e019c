// SPDX-License-Identifier: BSD-2-Clause

package usdt

import (
	"debug/elf"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/internal/sys"
)

// In ModeSingleIPMap a small program is attached ahead of the caller's, for
// sites that differ in the low bits of their address. It puts the ID of the
// site's spec where the caller's program looks for it, and makes a tail call.

// addressBits is how many low bits of an address are the same wherever a file
// is mapped: no machine has pages of less than 4 kB.
const addressBits = 12

func lowBits(address uint64) uint64 { return address & (1<<addressBits - 1) }

// slots is where a dispatcher puts the ID of a spec for the program after it:
// in an array, at an index that both get from a helper. Before Linux 5.15
// uprobes run with preemption switched off and never inside of each other, so
// there is an ID for each processor. Later ones have BPF cookies, and can
// preempt programs. There the thread is the index, and its number is put beside
// the ID: should two threads have the same index at the same time, the program
// of one finds no spec.
type slots struct {
	entries  *ebpf.Map
	count    int // a power of two
	byThread bool
}

// slotShift is the size of a slot, that of a cache line, as a shift.
const slotShift = 6

// newSlots makes the map of addresses, which is no longer one, the slots. The
// object has no use for it, because it believes to have BPF cookies.
func newSlots(spec *ebpf.MapSpec, byThread bool) (*slots, error) {
	processors, err := ebpf.PossibleCPU()
	if err != nil {
		return nil, fmt.Errorf("asking for the number of processors: %w", err)
	}
	const threads = 4096
	s := &slots{byThread: byThread, count: 1 << bits.Len(uint(processors-1))}
	if byThread {
		s.count = max(s.count, threads)
	}
	spec.Type, spec.MaxEntries = ebpf.Array, 1
	spec.KeySize, spec.ValueSize = 4, uint32(s.count)<<slotShift
	spec.Key, spec.Value = nil, nil
	if s.entries, err = ebpf.NewMap(spec); err != nil {
		return nil, explain("creating the map of slots", err)
	}
	return s, nil
}

// at returns instructions that set address to that of the slot, and leave the
// thread in R0 if that is the index. They change R0 to R5.
func (s *slots) at(address asm.Register, entries asm.Instruction) asm.Instructions {
	helper := asm.FnGetSmpProcessorId
	if s.byThread {
		helper = asm.FnGetCurrentPidTgid
	}
	entries.Dst = address
	return asm.Instructions{helper.Call(), asm.Mov.Reg(asm.R1, asm.R0), asm.And.Imm(asm.R1, int32(s.count-1)),
		asm.LSh.Imm(asm.R1, slotShift), entries, asm.Add.Reg(address, asm.R1)}
}

// find returns instructions that do as a call of bpf_get_attach_cookie: R0 is
// the ID that a dispatcher has put there, or 0.
func (s *slots) find() asm.Instructions {
	entries := asm.LoadMapValue(asm.R2, 0, 0).WithReference(addressMapName)
	ins := append(s.at(asm.R2, entries), asm.LoadMem(asm.R1, asm.R2, 0, asm.DWord))
	if s.byThread {
		ins = append(ins, asm.Mov.Reg(asm.R2, asm.R1), asm.RSh.Imm(asm.R2, 32),
			asm.LSh.Imm(asm.R0, 32), asm.RSh.Imm(asm.R0, 32),
			asm.Instruction{OpCode: asm.JEq.Op(asm.RegSource), Dst: asm.R0, Src: asm.R2, Offset: 1},
			asm.Mov.Imm(asm.R1, 0))
	}
	return append(ins, asm.Mov.Reg32(asm.R0, asm.R1))
}

// findIn makes a program find its spec in the slots, where it would by the BPF
// cookie.
func (s *slots) findIn(program asm.Instructions) (asm.Instructions, error) {
	// Jumps count in words of 8 bytes.
	var before, after []int
	was, is := 0, 0
	find := s.find()
	width := func(ins asm.Instructions) int { return int(ins.Size() / asm.InstructionSize) }
	isCookie := func(ins *asm.Instruction) bool {
		return ins.IsBuiltinCall() && asm.BuiltinFunc(ins.Constant) == asm.FnGetAttachCookie
	}
	for i := range program {
		before, after = append(before, was), append(after, is)
		was += width(program[i : i+1])
		if isCookie(&program[i]) {
			is += width(find)
		} else {
			is += width(program[i : i+1])
		}
	}
	moved := func(i int, offset int64) (int64, error) {
		target, ok := slices.BinarySearch(before, before[i]+1+int(offset))
		if !ok {
			return 0, fmt.Errorf("instruction %d jumps out of the program", i)
		}
		return int64(after[target] - after[i] - 1), nil
	}
	found := make(asm.Instructions, 0, len(program)+16)
	for i, ins := range program {
		class := ins.OpCode.Class()
		switch {
		case isCookie(&ins):
			call := slices.Clone(find)
			call[0].Metadata = ins.Metadata
			found = append(found, call...)
			continue
		case !class.IsJump() || ins.Reference() != "" || ins.OpCode.JumpOp() == asm.Call ||
			ins.OpCode.JumpOp() == asm.Exit:
		case class == asm.Jump32Class && ins.OpCode.JumpOp() == asm.Ja:
			offset, err := moved(i, ins.Constant)
			if err != nil {
				return nil, err
			}
			ins.Constant = offset
		default:
			offset, err := moved(i, int64(ins.Offset))
			if err != nil {
				return nil, err
			}
			if ins.Offset = int16(offset); int64(ins.Offset) != offset {
				return nil, fmt.Errorf("the program is too large: instruction %d cannot jump that far", i)
			}
		}
		found = append(found, ins)
	}
	return found, nil
}

// assumeCookie makes objects with the header of libbpf 0.8 believe that there
// are BPF cookies. They ask the kernel's types for the helper.
func assumeCookie(program asm.Instructions) {
	for i := range program {
		relocation := btf.CORERelocationMetadata(&program[i])
		if relocation != nil && strings.Contains(relocation.String(), "bpf_func_id___usdt") {
			program[i] = btf.WithCORERelocationMetadata(program[i], nil)
			program[i].Constant = 1
		}
	}
}

// A dispatcher makes the programs that are attached for one of the caller's.
// Its array is closed after the last of them is detached: the kernel empties an
// array that nobody has open.
type dispatcher struct {
	*slots
	pc      int16     // the offset of the instruction pointer in struct pt_regs
	program *ebpf.Map // an array for tail calls, with the caller's program
}

func (s *slots) dispatcher(prog *ebpf.Program) (*dispatcher, error) {
	machine, err := sys.KernelMachine()
	if err != nil {
		return nil, err
	}
	// A variable is counted from the instruction pointer.
	variable := argspec.Global(machineFile(machine), 0, "variable")
	at, err := variable.Encode(machine)
	if err != nil {
		return nil, err
	}
	program, err := ebpf.NewMap(&ebpf.MapSpec{Name: "usdt_program", Type: ebpf.ProgramArray,
		KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err != nil {
		return nil, explain("creating an array for the program", err)
	}
	d := &dispatcher{slots: s, pc: at.Register, program: program}
	if err := program.Put(uint32(0), prog); err != nil {
		program.Close()
		return nil, explain(fmt.Sprintf("calling program %s by another", prog), err)
	}
	return d, nil
}

// A machineFile is a program for a machine with any variable.
type machineFile elf.Machine

func (f machineFile) Header() elf.FileHeader          { return elf.FileHeader{Machine: elf.Machine(f)} }
func (machineFile) IsProgram() bool                   { return true }
func (machineFile) Symbol(string) (elf.Symbol, error) { return elf.Symbol{Size: 8}, nil }

// load loads the program for sites of a selection, which are one of its groups.
// ids has the specs of all.
func (d *dispatcher) load(s *Selection, sites []int, ids []uint64) (*ebpf.Program, error) {
	specs := make(map[uint64]uint64, len(sites)) // by the low bits of the sites' addresses
	for _, i := range sites {
		specs[lowBits(s.sites[i].Instruction)] = ids[i]
	}
	const address, context, number = asm.R9, asm.R6, asm.R7
	ins := asm.Instructions{asm.Mov.Reg(context, asm.R1),
		asm.LoadMem(number, context, d.pc, asm.DWord), asm.And.Imm(number, 1<<addressBits-1)}
	ins = append(ins, d.at(address, asm.LoadMapValue(address, d.entries.FD(), 0))...)
	ins = append(ins, asm.Mov.Reg(asm.R8, asm.R0), asm.LSh.Imm(asm.R8, 32))

	places := slices.Sorted(maps.Keys(specs))
	var search func(places []uint64) asm.Instructions
	search = func(places []uint64) asm.Instructions {
		if len(places) == 1 {
			return asm.Instructions{asm.Mov.Imm32(asm.R1, int32(specs[places[0]]))}
		}
		half := len(places) / 2
		low, high := search(places[:half]), search(places[half:])
		low = append(low, asm.Instruction{OpCode: asm.Ja.Op(asm.ImmSource), Offset: int16(len(high))})
		ins := asm.Instructions{{OpCode: asm.JGE.Op(asm.ImmSource), Dst: number,
			Constant: int64(places[half]), Offset: int16(len(low))}}
		return append(append(ins, low...), high...)
	}
	ins = append(ins, search(places)...)
	if d.byThread {
		ins = append(ins, asm.Or.Reg(asm.R1, asm.R8))
	}
	ins = append(ins, asm.StoreMem(address, 0, asm.R1, asm.DWord),
		asm.Mov.Reg(asm.R1, context), asm.LoadMapPtr(asm.R2, d.program.FD()), asm.Mov.Imm(asm.R3, 0),
		asm.FnTailCall.Call(), asm.Mov.Imm(asm.R0, 0), asm.Return())
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "usdt_dispatch", Type: ebpf.Kprobe,
		Instructions: ins, License: "Dual BSD/GPL"})
	if err != nil {
		return nil, explain("loading a program that finds the site", err)
	}
	return prog, nil
}

// isSleepable reports whether a program may wait. None may be reached by a tail
// call, and kernels that have them have BPF cookies.
func isSleepable(prog *ebpf.ProgramSpec) bool {
	const sleepable = 1 << 4 // BPF_F_SLEEPABLE
	return prog.Flags&sleepable != 0
}
