// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/internal/sys"
	"github.com/gousdt/gousdt/proc"
	"github.com/gousdt/gousdt/trace/internal/bpfgen"
)

// maxFamily bounds the processes of a family that run at a time. A build has
// some hundreds, a database some thousands.
const maxFamily = 1 << 16

// family is what SessionOptions.Family asks for: a map of processes, which the
// kernel adds to as they fork.
type family struct {
	members *ebpf.Map
	full    *ebpf.Map // one u64: processes that found no room
	links   []link.Link
	progs   []*ebpf.Program
}

// newFamily follows a process and its descendants: those that are there, and
// those to come.
func newFamily(pid int) (_ *family, err error) {
	if ownPIDs() != nil {
		return nil, optionError("Family", errors.New("a process and its descendants are followed from the initial PID namespace only"))
	}
	task, err := taskLayout()
	if err != nil {
		return nil, optionError("Family", err)
	}
	f := &family{}
	defer func() {
		if err != nil {
			f.close()
		}
	}()
	if f.members, err = ebpf.NewMap(&ebpf.MapSpec{
		Name: "trace_family", Type: ebpf.Hash, KeySize: bpfgen.FamilyKeySize, ValueSize: 4,
		MaxEntries: maxFamily,
	}); err != nil {
		return nil, explain("creating the map of a family", err)
	}
	if f.full, err = ebpf.NewMap(&ebpf.MapSpec{
		Name: "trace_full", Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1,
	}); err != nil {
		return nil, explain("creating the map of a family", err)
	}
	fork, err := bpfgen.FamilyFork(f.members.FD(), f.full.FD(), task)
	if err != nil {
		return nil, err
	}
	exit, err := bpfgen.FamilyExit(f.members.FD(), task)
	if err != nil {
		return nil, err
	}
	// Ends first: what is added is to be removed.
	for _, p := range []*ebpf.ProgramSpec{
		{Name: "sched_process_free", Instructions: exit},
		{Name: "sched_process_fork", Instructions: fork},
	} {
		tracepoint := p.Name
		p.Name, p.Type, p.License = "trace_family", ebpf.RawTracepoint, license
		prog, err := ebpf.NewProgramWithOptions(p, ebpf.ProgramOptions{LogDisabled: true})
		if err != nil {
			return nil, explain("loading what follows forks", err)
		}
		f.progs = append(f.progs, prog)
		l, err := link.AttachRawTracepoint(link.RawTracepointOptions{Name: tracepoint,
			Program: prog})
		if err != nil {
			return nil, explain("attaching to the tracepoint "+tracepoint, err)
		}
		f.links = append(f.links, l)
	}
	if err := f.addAll(pid); err != nil {
		return nil, err
	}
	return f, nil
}

// addAll adds the process and its descendants. Those that fork meanwhile are
// added by the kernel if their parent is there already, so it is tried until
// there is no other one.
func (f *family) addAll(pid int) error {
	fs := proc.NewFS("")
	known := map[int]bool{pid: true}
	switch there, err := f.add(pid); {
	case err != nil:
		return err
	case !there:
		return optionError("Family", fmt.Errorf("there is no process %d", pid))
	}
	for added := true; added; {
		added = false
		pids, err := fs.PIDs()
		if err != nil {
			return fmt.Errorf("listing processes: %w", err)
		}
		for _, p := range pids {
			if process, err := fs.Process(p); err == nil && known[process.Parent] && !known[p] {
				known[p], added = true, true
				if _, err := f.add(p); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// add adds a process, and reports whether it is there. The kernel does not
// remove one that has ended before: another process may get its number.
func (f *family) add(pid int) (there bool, err error) {
	if err := f.members.Put(uint32(pid), uint32(1)); err != nil {
		return false, explain("adding a process to the family", err)
	}
	if unix.Kill(pid, 0) != unix.ESRCH {
		return true, nil
	}
	return false, ignoreMissing(f.members.Delete(uint32(pid)))
}

// lost returns how many processes found no room.
func (f *family) lost() (n uint64, err error) {
	err = f.full.Lookup(uint32(0), &n)
	return n, err
}

func (f *family) close() error {
	var errs []error
	for _, l := range f.links {
		errs = append(errs, l.Close())
	}
	for _, p := range f.progs {
		errs = append(errs, p.Close())
	}
	for _, m := range []*ebpf.Map{f.members, f.full} {
		if m != nil {
			errs = append(errs, m.Close())
		}
	}
	return errors.Join(errs...)
}

// taskLayout asks the kernel where a task has its numbers.
func taskLayout() (task bpfgen.Task, err error) {
	spec, err := btf.LoadKernelSpec()
	if err != nil {
		return task, &sys.UnsupportedError{Feature: "following forks without the kernel's BTF",
			Since: "5.2",
			Hint:  "the kernel needs CONFIG_DEBUG_INFO_BTF"}
	}
	var layout *btf.Struct
	if err := spec.TypeByName("task_struct", &layout); err != nil {
		return task, fmt.Errorf("the kernel's BTF: %w", err)
	}
	found := 0
	for _, m := range layout.Members {
		switch m.Name {
		case "pid":
			task.Thread = m.Offset.Bytes()
			found++
		case "tgid":
			task.Process = m.Offset.Bytes()
			found++
		}
	}
	if found != 2 {
		return task, errors.New("the kernel's BTF: task_struct has no pid or no tgid")
	}
	return task, nil
}

// numberProcessors makes the map from which programs read the number of their
// processor, on a kernel that does not let them call a helper for it.
func (s *Session) numberProcessors() error {
	known, err := hasProcessorID()
	if known || err != nil {
		return err
	}
	if s.processors, err = ebpf.NewMap(&ebpf.MapSpec{
		Name: "trace_processor", Type: ebpf.PerCPUArray, KeySize: 4, ValueSize: 8, MaxEntries: 1,
	}); err != nil {
		return err
	}
	s.plan.Kernel.Processors = s.processors.FD()
	count, err := ebpf.PossibleCPU()
	if err != nil {
		return err
	}
	numbers := make([]uint64, count)
	for i := range numbers {
		numbers[i] = uint64(i)
	}
	return s.processors.Put(uint32(0), numbers)
}

// hasProcessorID reports whether programs may call bpf_get_smp_processor_id. It
// loads one that does. It is a variable for tests.
var hasProcessorID = func() (bool, error) {
	prog, err := ebpf.NewProgramWithOptions(&ebpf.ProgramSpec{
		Name: "trace_processor", Type: ebpf.Kprobe, License: license,
		Instructions: bpfgen.ProcessorIDProbe(),
	}, ebpf.ProgramOptions{LogDisabled: true})
	if errors.Is(err, unix.EINVAL) || errors.Is(err, errNotSupported) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, prog.Close()
}

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

// clockOffsets is how far the clocks of a time namespace are ahead of those of
// the initial one, by which BPF programs measure.
type clockOffsets struct {
	monotonic, boot time.Duration
}

// ownClockOffsets returns the offsets of the time namespace of this process.
// They do not change while a process is in it.
var ownClockOffsets = sync.OnceValue(func() clockOffsets {
	// The kernel tells those of the namespace that new processes will be in.
	own, err := os.Readlink("/proc/self/ns/time")
	if err != nil {
		return clockOffsets{} // before Linux 5.6 there are no time namespaces
	}
	if of, err := os.Readlink("/proc/self/ns/time_for_children"); err != nil || of != own {
		return clockOffsets{}
	}
	text, err := os.ReadFile("/proc/self/timens_offsets")
	if err != nil {
		return clockOffsets{}
	}
	return parseClockOffsets(string(text))
})

// parseClockOffsets reads lines like "monotonic -86400 0": the name of a clock,
// seconds and nanoseconds.
func parseClockOffsets(text string) (o clockOffsets) {
	for line := range strings.Lines(text) {
		var name string
		var seconds, nanoseconds int64
		if _, err := fmt.Sscan(line, &name, &seconds, &nanoseconds); err != nil {
			continue
		}
		offset := time.Duration(seconds)*time.Second + time.Duration(nanoseconds)
		switch name {
		case "monotonic":
			o.monotonic = offset
		case "boottime":
			o.boot = offset
		}
	}
	return o
}
