// SPDX-License-Identifier: BSD-2-Clause

package stack

import (
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"

	"github.com/gousdt/gousdt/internal/unwind"
)

// Unwind returns the addresses of a stack, the innermost first, as the kernel
// would if all code had frame pointers. It takes the Registers and the
// StackCopy of an event of package trace, and follows the call frame
// information of the mapped files. Code without that is taken to have frame
// pointers. The stack ends where no caller is found, where the copy ends, at a
// limit (see [Counts.CutStacks]), or with the context. It has at least the
// address of the instruction.
//
// Unwind scans processes as Frames does. A process of another machine than the
// kernel's, such as i386 on x86-64, has stacks of one address.
func (s *Symbolizer) Unwind(
	ctx context.Context, pid int, registers []uint64, memory []byte,
) []uint64 {
	s.mutex.Lock()
	defer s.unlock()
	if s.processes == nil || len(registers) == 0 {
		return nil
	}
	pc := registers[len(registers)-1]
	state := unwind.State{PC: pc}
	copy(state.Registers[:], registers[:len(registers)-1])
	stackPointer, framePointer := unwind.Pointers(s.machine)
	w := &walk{
		Symbolizer: s, ctx: ctx, pid: pid, state: state, left: maxStackSteps,
		memory: unwind.Memory{Address: state.Registers[stackPointer], Bytes: memory},
	}
	trail := unwind.TrailOf(ctx)
	trail.Begin(&w.state, stackPointer, framePointer)
	w.state.Trail = trail
	s.mapping(pid, pc) // scans the process if it is not known
	s.begin(pid)
	payer := s.processes[pid]
	if payer != nil {
		w.left = min(w.left, payer.steps.left)
	}
	work := w.left
	stack := append(make([]uint64, 0, 32), pc) // most are not deeper
	for ctx.Err() == nil && w.step() {
		if len(stack) == maxDepth {
			w.isCut = true
			break
		}
		stack = append(stack, w.state.PC)
	}
	if payer != nil {
		payer.steps.take(work - w.left)
	}
	if w.isCut {
		s.counts.CutStacks++
	}
	if w.isCut || ctx.Err() != nil {
		trail.Lose()
	}
	return stack
}

// walk is the state of unwinding one stack.
type walk struct {
	*Symbolizer
	ctx    context.Context
	pid    int
	state  unwind.State
	memory unwind.Memory
	left   int  // see unwind.Table.Work
	isCut  bool // it ended at a limit
}

// step moves to the caller, and reports whether it was found.
func (w *walk) step() bool {
	at := w.mapping(w.pid, w.state.Executes())
	if at != nil && at.machine != elf.EM_NONE {
		if at.machine != w.machine {
			return false // such as i386 on x86-64: the words on the stack have another size
		}
		// The process is known, since it has the mapping.
		w.awaitTables(w.ctx, w.processes[w.pid], at.file, false, true)
		if !at.hasRead {
			w.state.Trail.Lose() // there will be more to see
		}
		segment := at.segment(w.state.Executes() - at.Start + at.Offset)
		if at.frames != nil && segment != nil {
			moved := at.Start - at.Offset + segment.Offset - segment.Address
			at.frames.Work = w.left
			err := at.frames.Step(&w.state, moved, w.memory)
			w.left = at.frames.Work
			if kept := at.frames.Kept(); kept != at.rows.bytes {
				w.hold(&at.rows, at.owner, kept, at.frames.Forget)
			}
			w.isCut = errors.Is(err, unwind.ErrWork)
			if !errors.Is(err, unwind.ErrNoEntry) {
				return err == nil
			}
		}
	}
	// The stack holds no code: an address in it is no return address.
	caller := w.state
	if !unwind.StepByFramePointer(w.machine, binary.NativeEndian, &caller, w.memory) ||
		caller.PC-w.memory.Address < uint64(len(w.memory.Bytes)) {
		return false
	}
	// Code of a file has its caller in a file, or in code that the process says
	// it has made. Any other caller is taken for a wrong frame.
	if at != nil && w.mapping(w.pid, caller.Executes()) == nil {
		if _, _, ok := w.made(w.ctx, w.pid, caller.Executes()); !ok {
			return false
		}
	}
	w.state = caller
	return true
}
