// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/internal/procfs"
	"github.com/gousdt/gousdt/internal/sys"
	"github.com/gousdt/gousdt/trace/internal/bpfgen"
	"github.com/gousdt/gousdt/usdt/proc"
)

// maxFamily bounds the processes of a family that run at a time. A build has
// some hundreds, a database some thousands.
const maxFamily = 1 << 16

// followFamily restricts the session to a process and its descendants. The
// kernel adds later descendants to a map as they fork.
func (s *Session) followFamily(pid int) error {
	if ownPIDs() != nil {
		return optionError("Family",
			errors.New("descendants can be followed only from the initial PID namespace"))
	}
	task, err := taskLayout()
	if err != nil {
		return optionError("Family", err)
	}
	members, family := s.newMap("trace_family", ebpf.Hash, bpfgen.FamilyKeySize, 4, maxFamily)
	var full int
	s.familyFull, full = s.newMap("trace_full", ebpf.Array, 4, 8, 1)
	if s.mapErr != nil {
		return s.mapErr
	}
	s.family, s.plan.Family = members, family
	fork, err := bpfgen.FamilyFork(family, full, task)
	if err != nil {
		return err
	}
	exit, err := bpfgen.FamilyExit(family, task)
	if err != nil {
		return err
	}
	// Ends are attached first, so that each process that is added is removed.
	for _, p := range []*ebpf.ProgramSpec{
		{Name: "sched_process_free", Instructions: exit},
		{Name: "sched_process_fork", Instructions: fork},
	} {
		if err := s.followTasks(p); err != nil {
			return err
		}
	}
	return addFamily(members, pid)
}

// followTasks attaches a program to the raw tracepoint that it is named after.
func (s *Session) followTasks(p *ebpf.ProgramSpec) error {
	tracepoint := p.Name
	p.Name, p.Type, p.License = "trace_tasks", ebpf.RawTracepoint, license
	prog, err := ebpf.NewProgramWithOptions(p, ebpf.ProgramOptions{LogDisabled: true})
	if err != nil {
		return explain("loading a program for the tracepoint "+tracepoint, err)
	}
	s.followers = append(s.followers, prog)
	l, err := link.AttachRawTracepoint(link.RawTracepointOptions{Name: tracepoint, Program: prog})
	if err != nil {
		return explain("attaching to the tracepoint "+tracepoint, err)
	}
	s.followers = append(s.followers, l)
	return nil
}

// maxExecs is the number of processes that run at a time whose last exec is
// known. If there are more, or the kernel has no BTF, so that those that have
// ended stay, all calls end that began before an exec that found no room.
const maxExecs = 1 << 14

// followExecs keeps when processes run another program, which ends their calls.
// Where the kernel does not let it, such calls end at the new program's probes.
func (s *Session) followExecs() {
	execs, fd := s.newMap("trace_execs", ebpf.Hash, 4, 8, maxExecs)
	forgotten, noRoom := s.newMap("trace_forgotten", ebpf.Array, 4, 8, 1)
	if s.mapErr != nil || s.followTasks(&ebpf.ProgramSpec{Name: "sched_process_exec",
		Instructions: bpfgen.ExecProbe(fd, noRoom)}) != nil {
		return
	}
	s.execs, s.forgotten, s.plan.Execs, s.plan.Forgotten = execs, forgotten, fd, noRoom
	if task, err := taskLayout(); err == nil {
		if exit, err := bpfgen.FamilyExit(fd, task); err == nil {
			_ = s.followTasks(&ebpf.ProgramSpec{Name: "sched_process_free", Instructions: exit})
		}
	}
}

// maxExits is the number of threads that have ended whose calls nobody has
// looked at yet. Of more, the oldest ones' calls count as Losses.Replaced.
const maxExits = 4096

// followExits keeps how threads end in whose processes calls have begun. Where
// the kernel does not let it, they count as Losses.Replaced when they are gone.
func (s *Session) followExits() {
	if len(s.latencies) == 0 {
		return
	}
	held := heldBack * s.cpus
	_, callers := s.newMap("trace_callers", ebpf.LRUHash, 4, 4, maxCallers+held)
	exits, fd := s.newMap("trace_exits", ebpf.LRUHash, 8, int(unsafe.Sizeof(bpfgen.Exit{})), maxExits+held)
	if s.mapErr != nil {
		return
	}
	task, _ := taskLayout() // else it is not known how
	plan := *s.plan
	plan.Callers, plan.Kernel.Order = callers, binary.NativeEndian
	program, err := plan.ExitProbe(fd, task)
	if err == nil && s.followTasks(&ebpf.ProgramSpec{Name: "sched_process_exit",
		Instructions: program}) == nil {
		s.exits, s.plan.Callers = exits, callers
	}
}

// execAfter reports whether a process has, or may have, run another program
// after a moment of the monotonic clock.
func (s *Session) execAfter(pid int, moment time.Duration) bool {
	var at uint64
	return s.execs != nil && (s.execs.Lookup(uint32(pid), &at) == nil ||
		s.forgotten.Lookup(uint32(0), &at) == nil) && time.Duration(at) > moment
}

// addFamily adds a process and its descendants. The kernel adds those that fork
// meanwhile if it knows their parent: so the search is repeated.
func addFamily(members *ebpf.Map, pid int) error {
	fs := procfs.FS("")
	known := map[int]bool{pid: true}
	// The kernel does not remove a process that has ended before it was added,
	// and another one may get its number.
	add := func(pid int) (there bool, err error) {
		if err := members.Put(uint32(pid), uint32(1)); err != nil {
			return false, explain("adding a process to the family", err)
		}
		if unix.Kill(pid, 0) != unix.ESRCH {
			return true, nil
		}
		return false, ignoreMissing(members.Delete(uint32(pid)))
	}
	if there, err := add(pid); err != nil {
		return err
	} else if !there {
		return optionError("Family", fmt.Errorf("there is no process %d", pid))
	}
	for added := true; added; {
		added = false
		pids, err := fs.PIDs()
		if err != nil {
			return fmt.Errorf("listing processes: %w", err)
		}
		for _, p := range pids {
			if process, err := proc.Find("", p); err == nil && known[process.Parent] && !known[p] {
				known[p], added = true, true
				if _, err := add(p); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func taskLayout() (task bpfgen.Task, err error) {
	spec, err := btf.LoadKernelSpec()
	if err != nil {
		return task, &sys.UnsupportedError{Feature: "following forks without the kernel's BTF",
			Since: "5.2", Hint: "the kernel needs CONFIG_DEBUG_INFO_BTF"}
	}
	// offsets sets those of members, and leaves those of others 0.
	offsets := func(of string, members map[string]*uint32) error {
		var layout *btf.Struct
		err := spec.TypeByName(of, &layout)
		for i := 0; err == nil && i < len(layout.Members); i++ {
			if to := members[layout.Members[i].Name]; to != nil {
				*to = layout.Members[i].Offset.Bytes()
			}
		}
		return err
	}
	if err := offsets("task_struct", map[string]*uint32{"pid": &task.Thread, "tgid": &task.Process,
		"exit_code": &task.ExitCode, "signal": &task.Signal}); err != nil {
		return task, fmt.Errorf("the kernel's BTF: %w", err)
	}
	_ = offsets("signal_struct", map[string]*uint32{"live": &task.Live, "flags": &task.SignalFlags})
	if task.Live == 0 || task.SignalFlags == 0 { // other members come first
		task.Signal = 0
	}
	if task.Thread == 0 || task.Process == 0 { // other members come first
		return task, errors.New("the kernel's BTF: task_struct has no pid or no tgid")
	}
	return task, nil
}

// numberProcessors makes the map from which programs read the number of their
// processor, on a kernel that does not let them call a helper for it.
func (s *Session) numberProcessors() error {
	processors, fd := s.newMap("trace_processor", ebpf.PerCPUArray, 4, 8, 1)
	if s.mapErr != nil {
		return s.mapErr
	}
	s.plan.Kernel.Processors = fd
	numbers := make([]uint64, s.cpus)
	for i := range numbers {
		numbers[i] = uint64(i)
	}
	return processors.Put(uint32(0), numbers)
}

// supports reports whether the kernel loads a program. It refuses one with
// EINVAL, or with ENOTSUPP if its just-in-time compiler does not support an
// instruction.
func supports(program asm.Instructions) (bool, error) {
	prog, err := ebpf.NewProgramWithOptions(&ebpf.ProgramSpec{Name: "trace_probe",
		Type: ebpf.Kprobe, License: license, Instructions: program,
	}, ebpf.ProgramOptions{LogDisabled: true})
	switch {
	case err == nil:
		return true, prog.Close()
	case errors.Is(err, unix.EINVAL) || errors.Is(err, errNotSupported):
		return false, nil
	}
	return false, err
}

// errNotSupported is the kernel's ENOTSUPP, which is no error of POSIX and has
// no name in user space.
const errNotSupported = unix.Errno(524)

// ownPIDs returns the PID namespace of this process, nil for the initial one,
// or if that is not known.
func ownPIDs() *bpfgen.Namespace {
	var stat unix.Stat_t
	if err := unix.Stat("/proc/self/ns/pid", &stat); err != nil ||
		stat.Ino == sys.InitialPIDNamespace {
		return nil
	}
	device := uint64(stat.Dev)
	return &bpfgen.Namespace{
		Device: uint64(unix.Major(device))<<20 | uint64(unix.Minor(device)),
		Inode:  stat.Ino,
	}
}
