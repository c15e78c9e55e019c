// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/internal/procfs"
	"github.com/gousdt/gousdt/internal/tracing"
	"github.com/gousdt/gousdt/trace/internal/bpfgen"
)

// threadBirth returns the offset of a thread's start time, by the monotonic
// clock, in the kernel's description of the thread (struct task_struct), or
// bpfgen.None if it is not found. Then a call that a thread has left without
// its end may be taken for one of a later thread with the same number.
//
// Not every kernel has BTF, and reading it takes 30 ms. So a program copies the
// description of this very thread, and the time is looked for there.
var threadBirth = sync.OnceValue(func() int {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	task, err := copyTask()
	stat, err2 := procfs.ReadStat("/proc/self/task", unix.Gettid(), make([]byte, procfs.MaxStat))
	suspended, ok := suspendedTime()
	if err != nil || err2 != nil || !ok {
		return bpfgen.None
	}
	return findBirth(task, stat.StartTime, uint64(suspended), uint64(tracing.OwnClockOffsets().Boot))
})

func suspendedTime() (time.Duration, bool) {
	var monotonic, boot unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &monotonic) != nil ||
		unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot) != nil {
		return 0, false
	}
	ahead := tracing.OwnClockOffsets()
	return time.Duration(boot.Nano()-monotonic.Nano()) - (ahead.Boot - ahead.Monotonic), true
}

// copyTask returns the beginning of the kernel's description of this thread.
func copyTask() ([]byte, error) {
	copied, err := ebpf.NewMap(mapSpec("trace_task", ebpf.Array, 4, bpfgen.TaskSize, 1))
	if err != nil {
		return nil, err
	}
	defer copied.Close()
	prog, err := ebpf.NewProgramWithOptions(&ebpf.ProgramSpec{
		Name: "trace_task", Type: ebpf.RawTracepoint, License: license,
		Instructions: bpfgen.TaskProbe(copied.FD()),
	}, ebpf.ProgramOptions{LogDisabled: true})
	if err != nil {
		return nil, err
	}
	defer prog.Close()
	if _, err := prog.Run(&ebpf.RunOptions{}); err != nil {
		return nil, err
	}
	task := make([]byte, bpfgen.TaskSize)
	return task, copied.Lookup(uint32(0), &task)
}

// tick is the unit of start times in /proc/PID/stat, in nanoseconds (USER_HZ,
// which is 100 on all machines that this package supports).
const tick = 10_000_000

// findBirth finds the time of a thread's start in its description. The time is
// a pair of numbers, one by the monotonic clock (start_time) and one that also
// counts suspensions (start_boottime). The second one is also in
// /proc/PID/stat, by the clock of this process's time namespace, which is ahead
// of the initial one's. The two differ by at most the time that the machine was
// suspended, and perhaps a moment more.
func findBirth(task []byte, ticks, suspended, ahead uint64) int {
	if ticks == 0 {
		return bpfgen.None
	}
	found, least := bpfgen.None, suspended+tick
	for at := 0; at+16 <= len(task); at += 8 {
		start, boot := binary.NativeEndian.Uint64(task[at:]),
			binary.NativeEndian.Uint64(task[at+8:])
		// Another pair of numbers may match, but it differs by more.
		if (boot+ahead)/tick == ticks && start > 0 && start <= boot && boot-start < least {
			found, least = at, boot-start
		}
	}
	return found
}

// commandSince returns the name of a thread, or of a process if tid is 0. ok is
// false if there is none, or if it began after a moment of the monotonic clock:
// then it is a later one with the same number.
func commandSince(pid, tid int, moment time.Duration) (name string, ok bool) {
	root, of := "/proc", pid
	if tid != 0 {
		root, of = fmt.Sprintf("/proc/%d/task", pid), tid
	}
	stat, err := procfs.ReadStat(root, of, make([]byte, procfs.MaxStat))
	suspended, known := suspendedTime()
	// The machine had been suspended for at most this time then.
	began := time.Duration(stat.StartTime*tick) - tracing.OwnClockOffsets().Boot - suspended
	return string(stat.Command), err == nil && known && began <= moment
}

// hasEnded reports whether there is no such thread, or process if tid is 0.
func hasEnded(pid, tid int) bool {
	if tid == 0 {
		return unix.Kill(pid, 0) == unix.ESRCH
	}
	return unix.Tgkill(pid, tid, 0) == unix.ESRCH
}
