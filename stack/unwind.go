// SPDX-License-Identifier: BSD-2-Clause

package stack

import (
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"

	"github.com/gousdt/gousdt/internal/procfs"
	"github.com/gousdt/gousdt/internal/unwind"
)

// Unwind returns the addresses of a stack, the innermost first, as the kernel
// would if all code had frame pointers: from the registers and a copy of the
// memory from the stack pointer on, by the call frame information of the mapped
// files. Code that has none is taken to have frame pointers. The stack ends
// where that fails, where the copy ends, at a limit (see [Counts.CutStacks]),
// or with the context. It has at least the address of the instruction.
//
// Unwind scans processes as Frames does. A process of another machine than the
// kernel's, such as i386 on x86-64, has stacks of one address.
func (s *Symbolizer) Unwind(
	ctx context.Context, pid int, registers procfs.Registers, memory []byte,
) []uint64 {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	state := unwind.State{PC: registers.PC}
	copy(state.Registers[:], registers.General)
	w := &walk{
		Symbolizer: s, ctx: ctx, pid: pid, machine: registers.Machine, state: state,
		memory: unwind.Memory{Address: registers.SP, Bytes: memory},
	}
	s.mapping(pid, registers.PC) // so that the process is known
	s.begin(pid)
	work := maxStackSteps
	payer := s.processes[pid]
	if payer != nil {
		work = min(work, payer.steps.left)
	}
	s.unwinder.Work = work
	stack := append(make([]uint64, 0, usualDepth), registers.PC)
	for ctx.Err() == nil && w.step() {
		if len(stack) == maxDepth {
			w.isCut = true
			break
		}
		stack = append(stack, w.state.PC)
	}
	if payer != nil {
		payer.steps.take(work - s.unwinder.Work)
	}
	if w.isCut {
		s.counts.CutStacks++
	}
	return stack
}

// usualDepth is how many addresses most stacks have at most.
const usualDepth = 32

// walk is the unwinding of a stack.
type walk struct {
	*Symbolizer
	ctx     context.Context
	pid     int
	machine elf.Machine
	state   unwind.State
	memory  unwind.Memory
	isCut   bool // at a limit
}

// step goes on to the caller, and reports whether it was found.
func (w *walk) step() bool {
	at := w.mapping(w.pid, w.state.Executes())
	if at != nil && at.machine != elf.EM_NONE {
		if at.machine != w.machine {
			return false // such as i386's on x86-64: what is on the stack is of another size
		}
		err := w.stepByTable(at)
		w.isCut = errors.Is(err, unwind.ErrWork)
		if !errors.Is(err, unwind.ErrNoEntry) {
			return err == nil
		}
	}
	// No stack is executed: what looks like a pointer to it is none to code.
	caller := w.state
	if !unwind.StepByFramePointer(w.machine, binary.NativeEndian, &caller, w.memory) ||
		caller.PC-w.memory.Address < uint64(len(w.memory.Bytes)) {
		return false
	}
	// A file's code without a table has a caller in a file. Anything else is
	// taken for a wrong frame, unless the process says that it has made the
	// code there.
	if at != nil && w.mapping(w.pid, caller.Executes()) == nil {
		if _, _, ok := w.made(w.pid, caller.Executes()); !ok {
			return false
		}
	}
	w.state = caller
	return true
}

// stepByTable goes on to the caller by the call frame information of a file.
func (w *walk) stepByTable(at *mapping) error {
	// The process is known: it has the mapping.
	w.readFrames(w.ctx, w.processes[w.pid], at.file)
	segment := at.segment(w.state.Executes() - at.Start + at.Offset)
	if at.frames == nil || segment == nil {
		return unwind.ErrNoEntry
	}
	return at.frames.Step(&w.state, at.Start-at.Offset+segment.Offset-segment.Address, w.memory)
}
