// SPDX-License-Identifier: BSD-2-Clause

package bpfgen

import (
	"github.com/cilium/ebpf/asm"

	"github.com/gousdt/gousdt/internal/argcode"
)

// FamilyKeySize is the size of a key of the map of a family: the number of a
// process in the initial PID namespace.
const FamilyKeySize = 4

// ofFamily emits what goes to leave for a hit of a process that is not in the
// map of the family.
func (b *builder) ofFamily(family int, leave argcode.Label) {
	b.Scratch(func() {
		key := b.Alloc(8)
		b.Call(asm.FnGetCurrentPidTgid)
		b.Emit(asm.RSh.Imm(asm.R0, 32), asm.StoreMem(asm.R10, int16(key), asm.R0, asm.Word))
		b.AddressOf(asm.R2, asm.R10, key)
		b.Emit(asm.LoadMapPtr(asm.R1, family))
		b.Call(asm.FnMapLookupElem)
		b.JumpIfImm(asm.JEq, asm.R0, 0, asm.R1, leave)
	})
}

// Task says where the kernel's struct task_struct has the number of the thread
// and that of its process.
type Task struct {
	Thread, Process uint32
}

// FamilyFork generates the program of the tracepoint sched_process_fork, whose
// second argument is the new task: it adds a process to the family that its
// parent is of. If there is no room it counts that in a map of one u64.
func FamilyFork(family, full int, task Task) (asm.Instructions, error) {
	a := argcode.NewAssembler()
	done := a.Label()
	a.Emit(asm.LoadMem(asm.R6, asm.R1, 8, asm.DWord))
	child := processOf(a, task, done)
	parent := a.Alloc(8)
	a.Call(asm.FnGetCurrentPidTgid)
	a.Emit(asm.RSh.Imm(asm.R0, 32), asm.StoreMem(asm.R10, int16(parent), asm.R0, asm.Word))
	a.AddressOf(asm.R2, asm.R10, parent)
	a.Emit(asm.LoadMapPtr(asm.R1, family))
	a.Call(asm.FnMapLookupElem)
	a.JumpIfImm(asm.JEq, asm.R0, 0, asm.R1, done)

	value := a.Alloc(8)
	a.Emit(asm.StoreImm(asm.R10, int16(value), 1, asm.Word))
	a.AddressOf(asm.R2, asm.R10, child)
	a.AddressOf(asm.R3, asm.R10, value)
	a.Emit(asm.LoadMapPtr(asm.R1, family), asm.Mov.Imm(asm.R4, 0))
	a.Call(asm.FnMapUpdateElem)
	a.JumpIfImm(asm.JEq, asm.R0, 0, asm.R1, done)
	a.Emit(asm.StoreImm(asm.R10, int16(value), 0, asm.Word))
	a.AddressOf(asm.R2, asm.R10, value)
	a.Emit(asm.LoadMapPtr(asm.R1, full))
	a.Call(asm.FnMapLookupElem)
	a.JumpIfImm(asm.JEq, asm.R0, 0, asm.R1, done)
	a.Emit(asm.Mov.Imm(asm.R1, 1), asm.AddAtomic.Mem(asm.R0, asm.R1, asm.DWord, 0))
	a.Place(done)
	a.Leave()
	return a.Finish()
}

// FamilyExit generates the program of the tracepoint sched_process_free, whose
// first argument is a task that has ended: it removes a process, whose number
// another one may get.
func FamilyExit(family int, task Task) (asm.Instructions, error) {
	a := argcode.NewAssembler()
	done := a.Label()
	a.Emit(asm.LoadMem(asm.R6, asm.R1, 0, asm.DWord))
	process := processOf(a, task, done)
	a.AddressOf(asm.R2, asm.R10, process)
	a.Emit(asm.LoadMapPtr(asm.R1, family))
	a.Call(asm.FnMapDeleteElem)
	a.Place(done)
	a.Leave()
	return a.Finish()
}

// processOf emits what brings the number of the process of the task in R6 to
// the stack, and goes to other for a task that is not its first thread.
func processOf(a *argcode.Assembler, task Task, other argcode.Label) int {
	process, thread := a.Alloc(8), a.Alloc(8)
	for _, number := range []struct {
		at     int
		offset uint32
	}{{process, task.Process}, {thread, task.Thread}} {
		a.AddressOf(asm.R1, asm.R10, number.at)
		a.Emit(asm.Mov.Imm(asm.R2, 4))
		a.AddressOf(asm.R3, asm.R6, int(number.offset))
		a.Call(asm.FnProbeReadKernel)
		a.JumpIfImm(asm.JNE, asm.R0, 0, asm.R1, other)
	}
	a.Emit(asm.LoadMem(asm.R1, asm.R10, int16(process), asm.Word),
		asm.LoadMem(asm.R2, asm.R10, int16(thread), asm.Word))
	a.JumpIf(asm.JNE, asm.R1, asm.R2, other)
	return process
}
