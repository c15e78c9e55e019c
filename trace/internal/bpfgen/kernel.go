// SPDX-License-Identifier: BSD-2-Clause

package bpfgen

import (
	"cmp"
	"debug/elf"
	"encoding/binary"
	"fmt"

	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/internal/argcode"
)

// Kernel describes the kernel that runs the generated code.
type Kernel struct {
	// Machine lays out the registers in the context.
	Machine elf.Machine

	// Order is the byte order of the kernel, which is this process's own.
	Order binary.ByteOrder

	// CompareExchange says that BPF_CMPXCHG can be used (Linux 5.12, kernel
	// commit 5ffa25502b5a). Without it minima and maxima are kept by a load and
	// a store, which is right on those kernels since they do not preempt a
	// program.
	CompareExchange bool

	// Processors is the descriptor of a per-processor array of one u64, the
	// processor's number, where bpf_get_smp_processor_id cannot be called; else
	// 0. Without a just-in-time compiler (net.core.bpf_jit_enable, off by
	// default on riscv64) Linux 7.2 refuses programs that call it, 6.12 does
	// not.
	Processors int

	// PIDs is the PID namespace whose numbers are reported, nil for the initial
	// one. Processes and threads of other namespaces have the number 0.
	PIDs *Namespace
}

// Namespace names a PID namespace as bpf_get_ns_current_pid_tgid does (Linux
// 5.7, kernel commit b4490c5c4e02).
type Namespace struct {
	Device uint64 // of the nsfs, as the kernel has it: major<<20 | minor
	Inode  uint64
}

func (k Kernel) bigEndian() bool { return k.Order.Uint16([]byte{0, 1}) == 1 }

// assemble returns the program that emit emits: code that goes to leave, or on
// after itself, at its end.
func assemble(emit func(a *argcode.Assembler, leave argcode.Label)) (asm.Instructions, error) {
	a := argcode.NewAssembler()
	leave := a.Label()
	emit(a, leave)
	a.Place(leave)
	a.Leave()
	return a.Finish()
}

// CompareExchangeProbe is a program that kernels with BPF_CMPXCHG load.
func CompareExchangeProbe() asm.Instructions {
	program, _ := assemble(func(a *argcode.Assembler, _ argcode.Label) {
		a.Emit(set(r0, 0), set(r1, 0), store(r10, -8, r0))
		a.CompareExchange(r10, -8, r1)
	})
	return program
}

// ProcessorIDProbe is a program that the kernel loads unless it needs
// Kernel.Processors.
func ProcessorIDProbe() asm.Instructions {
	return asm.Instructions{asm.FnGetSmpProcessorId.Call(), set(r0, 0), asm.Return()}
}

// updateNoExist is BPF_NOEXIST of bpf_map_update_elem.
const updateNoExist = 1

// The registers and the most frequent instructions, by short names.
const (
	r0, r1, r2, r3, r4, r5 = asm.R0, asm.R1, asm.R2, asm.R3, asm.R4, asm.R5
	r6, r7, r8, r9, r10    = asm.R6, asm.R7, asm.R8, asm.R9, asm.R10
)

func mov(dst, src asm.Register) asm.Instruction         { return asm.Mov.Reg(dst, src) }
func set(dst asm.Register, value int32) asm.Instruction { return asm.Mov.Imm(dst, value) }

// load and store move eight bytes, loadN and storeN as many as size says.
func load(dst, base asm.Register, offset int) asm.Instruction {
	return loadN(dst, base, offset, asm.DWord)
}

func loadN(dst, base asm.Register, offset int, size asm.Size) asm.Instruction {
	return asm.LoadMem(dst, base, int16(offset), size)
}

func store(base asm.Register, offset int, src asm.Register) asm.Instruction {
	return storeN(base, offset, src, asm.DWord)
}

func storeN(base asm.Register, offset int, src asm.Register, size asm.Size) asm.Instruction {
	return asm.StoreMem(base, int16(offset), src, size)
}

func storeImm(base asm.Register, offset int, value int64, size asm.Size) asm.Instruction {
	return asm.StoreImm(base, int16(offset), value, size)
}

// placeAt and onStack are places as arguments of Call.
func placeAt(base asm.Register, offset int) argcode.At {
	return argcode.At{Base: base, Offset: offset}
}

func onStack(at int) argcode.At { return placeAt(r10, at) }

func toStack(at int, src asm.Register) asm.Instruction   { return store(r10, at, src) }
func fromStack(dst asm.Register, at int) asm.Instruction { return load(dst, r10, at) }

// lookUpOrAdd is LookUp that adds an element, with the value on the stack,
// where there is none. It goes to none if there is no room.
func (b *builder) lookUpOrAdd(fd, key, value int, none argcode.Label) {
	found := b.Label()
	b.Element(fd, key)
	b.JumpIfImm(asm.JNE, r0, 0, r1, found)
	b.Call(asm.FnMapUpdateElem, argcode.Map(fd), onStack(key), onStack(value), updateNoExist)
	b.LookUp(fd, key, none)
	b.Place(found)
}

// TaskSize is how many bytes of struct task_struct TaskProbe copies: about the
// smallest of any machine, and the fields before the state of the processor.
const TaskSize = 6 << 10

// TaskProbe returns a program for a raw tracepoint that copies the kernel's
// description of the current thread to an array of one element.
func TaskProbe(task int) asm.Instructions {
	program, _ := assemble(func(a *argcode.Assembler, leave argcode.Label) {
		a.LookUpIndex(task, a.Alloc(8), 0, leave)
		a.Emit(mov(r7, r0))
		a.Call(asm.FnGetCurrentTask)
		a.Emit(mov(r6, r0))
		const part = 1 << 10
		for at := 0; at < TaskSize; at += part {
			a.Call(asm.FnProbeReadKernel, placeAt(r7, at), part, placeAt(r6, at))
		}
	}) // there is nothing that could be too large
	return program
}

// ExecProbe returns a program for the raw tracepoint sched_process_exec that
// keeps when a process runs another program, see Plan.Execs. If there is no
// room, it keeps the time in forgotten, see Plan.Forgotten.
func ExecProbe(execs, forgotten int) asm.Instructions {
	program, _ := assemble(func(a *argcode.Assembler, leave argcode.Label) {
		process, now := a.Alloc(8), a.Alloc(8)
		a.ProcessTo(process)
		a.Call(asm.FnKtimeGetNs)
		a.Emit(toStack(now, r0))
		a.Call(asm.FnMapUpdateElem, argcode.Map(execs), onStack(process), onStack(now), 0)
		a.JumpIfImm(asm.JEq, r0, 0, r1, leave)
		a.LookUpIndex(forgotten, process, 0, leave)
		a.Emit(fromStack(r1, now), store(r0, 0, r1))
	}) // there is nothing that could be too large
	return program
}

// FamilyKeySize is the size of a key of the map of a family: the number of a
// process in the initial PID namespace.
const FamilyKeySize = 4

// Task says where the kernel's struct task_struct has the number of the thread
// and that of its process, how the thread has ended, and what all threads of
// the process share: struct signal_struct, in which there are the number of
// those that have not ended, and flags. The last four are 0 if not known.
type Task struct {
	Thread, Process                     uint32
	ExitCode, Signal, Live, SignalFlags uint32
}

// Exit is how a thread of a process with calls has ended, as ExitProbe keeps
// it.
type Exit struct {
	Time    uint64 // nanoseconds of the monotonic clock
	Process uint64 // as events have it: the numbers of process and thread
	Cgroup  uint64
	Command [2]uint64
	Code    uint32 // as wait(2) has it; UnknownExit if that is not known
	Live    uint32 // threads of the process that go on; likewise
	Flags   uint32 // of struct signal_struct
	CPU     uint32
	Exec    uint64 // when the process last ran another program, 0 if that is not known
}

// IsKill reports whether a signal has ended the thread.
func (e *Exit) IsKill() bool { return e.Code != UnknownExit && e.Code&0x7f != 0 }

// How returns how the thread has ended, "" for a process whose other threads go
// on if whole is set, since that has not.
func (e *Exit) How(whole bool) string {
	const groupExit = 4 // SIGNAL_GROUP_EXIT: the process ends
	known := e.Live != UnknownExit
	signal := unix.Signal(e.Code & 0x7f)
	process := known && (e.Live == 0 || e.Flags&groupExit != 0)
	switch {
	case whole && !process:
		return ""
	case e.Code == UnknownExit:
		return "ended"
	case signal != 0:
		return "killed by " + cmp.Or(unix.SignalName(signal), fmt.Sprintf("signal %d", signal))
	case known && !process:
		return "thread exited"
	}
	return fmt.Sprintf("exited with status %d", e.Code>>8&0xff)
}

const (
	// UnknownExit stands for what is not known of an exit.
	UnknownExit = 1<<32 - 1

	// ExitMark takes the place of a site's number, which it never is, in the
	// record that tells the reader of an exit.
	ExitMark       = 1<<32 - 1
	exitMarkLength = 8

	// exitSize is the size of an Exit.
	exitSize = 64
)

// ExitProbe generates the program of the raw tracepoint sched_process_exit,
// whose first argument is the task, and the current one. It keeps how a thread
// of a process in callers ends, by the thread in exits, and tells the reader of
// the events, if there are some.
func (p *Plan) ExitProbe(exits int, task Task) (asm.Instructions, error) {
	a := argcode.NewAssembler()
	b := &builder{Fetcher: &argcode.Fetcher{Assembler: a}, kernel: p.Kernel}
	done := a.Label()
	thread, process, exit := a.Alloc(8), a.Alloc(8), a.Alloc(exitSize)
	a.Emit(load(r6, r1, 0))
	a.Call(asm.FnGetCurrentPidTgid)
	a.Emit(toStack(thread, r0), asm.RSh.Imm(r0, 32), storeN(r10, process, r0, asm.Word))
	a.LookUp(p.Callers, process, done)

	a.Call(asm.FnKtimeGetNs)
	a.Emit(toStack(exit, r0))
	b.numbers()
	a.Emit(toStack(exit+8, r0))
	a.Call(asm.FnGetCurrentCgroupId)
	a.Emit(toStack(exit+16, r0))
	b.command(r10, exit+24)
	a.SetField(r10, exit+40, UnknownExit<<32|UnknownExit, r1)
	a.SetField(r10, exit+48, 0, r1)
	b.processorID()
	a.Emit(storeN(r10, exit+52, r0, asm.Word))
	read := func(at, size int, offset uint32) {
		failed := a.Label()
		a.CallOr(failed, asm.FnProbeReadKernel, onStack(at), size, placeAt(r6, int(offset)))
		a.Place(failed)
	}
	if task.ExitCode != 0 {
		read(exit+40, 4, task.ExitCode)
	}
	if task.Signal != 0 {
		read(process, 8, task.Signal)
		a.Emit(fromStack(r6, process))
		read(exit+44, 4, task.Live)
		read(exit+48, 4, task.SignalFlags)
	}
	a.SetField(r10, exit+56, 0, r1)
	if p.Execs != 0 {
		a.Emit(fromStack(r1, thread), asm.RSh.Imm(r1, 32), storeN(r10, process, r1, asm.Word))
		a.IfElement(p.Execs, process, func() { a.Emit(load(r1, r0, 0), toStack(exit+56, r1)) })
	}
	a.Call(asm.FnMapUpdateElem, argcode.Map(exits), onStack(thread), onStack(exit), 0)
	if p.Events != nil && p.Events.Exits {
		a.Call(asm.FnRingbufReserve, argcode.Map(p.Events.Ring), exitMarkLength, 0)
		a.JumpIfImm(asm.JEq, r0, 0, r1, done)
		a.SetField(r0, 0, ExitMark<<32|ExitMark, r1)
		a.Call(asm.FnRingbufSubmit, r0, 0)
	}
	a.Place(done)
	a.Leave()
	return a.Finish()
}

// IsMarkOfExit reports whether a record of the ring buffer is that of an exit.
func IsMarkOfExit(record []byte) bool {
	return len(record) == exitMarkLength && binary.NativeEndian.Uint32(record) == ExitMark
}

// FamilyFork generates the program of the tracepoint sched_process_fork, whose
// second argument is the new task: it adds a process whose parent is of the
// family. If there is no room, it counts the process in full, a map of one u64.
func FamilyFork(family, full int, task Task) (asm.Instructions, error) {
	return assemble(func(a *argcode.Assembler, leave argcode.Label) {
		a.Emit(load(r6, r1, 8))
		child := processOf(a, task, leave)
		parent, value := a.Alloc(8), a.Alloc(8)
		a.ProcessTo(parent)
		a.LookUp(family, parent, leave)
		a.Emit(storeImm(r10, value, 1, asm.Word))
		a.Call(asm.FnMapUpdateElem, argcode.Map(family), onStack(child), onStack(value), 0)
		a.JumpIfImm(asm.JEq, r0, 0, r1, leave)
		a.LookUpIndex(full, value, 0, leave)
		a.Increment(r0, 0)
	})
}

// FamilyExit generates the program of the tracepoint sched_process_free, whose
// first argument is a task that has ended: it removes a process, whose number
// another one may get.
func FamilyExit(family int, task Task) (asm.Instructions, error) {
	return assemble(func(a *argcode.Assembler, leave argcode.Label) {
		a.Emit(load(r6, r1, 0))
		a.Call(asm.FnMapDeleteElem, argcode.Map(family), onStack(processOf(a, task, leave)))
	})
}

// processOf emits code that stores the number of the process of the task in R6
// on the stack. It goes to other for a task that is not its process's first
// thread.
func processOf(a *argcode.Assembler, task Task, other argcode.Label) int {
	process, thread := a.Alloc(8), a.Alloc(8)
	read := func(at int, offset uint32) {
		a.CallOr(other, asm.FnProbeReadKernel, onStack(at), 4, placeAt(r6, int(offset)))
	}
	read(process, task.Process)
	read(thread, task.Thread)
	a.Emit(loadN(r1, r10, process, asm.Word), loadN(r2, r10, thread, asm.Word))
	a.JumpIf(asm.JNE, r1, r2, other)
	return process
}
