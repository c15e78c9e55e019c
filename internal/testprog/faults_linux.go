// SPDX-License-Identifier: BSD-2-Clause

package testprog

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/testneeds"
)

// Faults makes system calls of this process fail, one at a time.
//
// The kernel asks another process about each call (seccomp user notification):
// the test, which has run itself again as this process. So all threads are
// seen, nothing is built differently, and calls can be counted.
type Faults struct {
	// FirstErrors makes calls fail with the first error of their kind only,
	// also in the complete form. The other errors say that a retry is of no
	// use, as ENOENT does of a process and EINVAL of a program.
	FirstErrors bool
}

const (
	// faultsVariable makes a test the one whose calls fail.
	faultsVariable = "GOUSDT_TEST_FAULTS"

	// allFaultsVariable asks for every call and every error; otherwise a test
	// takes a few calls of each kind.
	allFaultsVariable = "GOUSDT_ALL_FAULTS"

	// notifyFD is the number of the descriptor that tells of calls, in the
	// process whose calls they are.
	notifyFD = 900

	// controlFD is no descriptor: an ioctl on it is a message to the
	// supervisor.
	controlFD = 0x0fa17
)

// The messages to the supervisor. The first two begin to count anew.
const (
	controlCount  = 1 + iota // let all calls pass
	controlFail              // fail the call with a number, of those of a kind, with an error
	controlRead              // tell how many calls of a kind there were
	controlFailed            // tell whether one failed
)

// A faultKind is a system call that fails, with its errors.
type faultKind struct {
	name   string
	number int
	errors []unix.Errno
}

// faultKinds are the calls that this module makes of the kernel. Closing is not
// among them: the kernel closes whatever it answers.
var faultKinds = []faultKind{
	{"bpf", unix.SYS_BPF, []unix.Errno{unix.ENOMEM, unix.EPERM, unix.EINVAL}},
	{"perf_event_open", unix.SYS_PERF_EVENT_OPEN,
		[]unix.Errno{unix.EMFILE, unix.EACCES, unix.EINVAL}},
	{"ioctl", unix.SYS_IOCTL, []unix.Errno{unix.ENOMEM, unix.EINVAL}},
	{"openat", unix.SYS_OPENAT, []unix.Errno{unix.EMFILE, unix.EACCES, unix.ENOENT}},
	{"read", unix.SYS_READ, []unix.Errno{unix.EIO}},
	{"pread64", unix.SYS_PREAD64, []unix.Errno{unix.EIO}},
	{"fstat", unix.SYS_FSTAT, []unix.Errno{unix.EIO}},
	{"statx", unix.SYS_STATX, []unix.Errno{unix.EACCES}},
	{"mmap", unix.SYS_MMAP, []unix.Errno{unix.ENOMEM, unix.EPERM}},
	{"getdents64", unix.SYS_GETDENTS64, []unix.Errno{unix.EIO}},
	{"readlinkat", unix.SYS_READLINKAT, []unix.Errno{unix.EACCES}},
	{"pidfd_open", unix.SYS_PIDFD_OPEN, []unix.Errno{unix.EMFILE}},
	{"epoll_create1", unix.SYS_EPOLL_CREATE1, []unix.Errno{unix.EMFILE}},
	{"epoll_ctl", unix.SYS_EPOLL_CTL, []unix.Errno{unix.ENOMEM}},
	{"eventfd2", unix.SYS_EVENTFD2, []unix.Errno{unix.EMFILE}},
	{"fcntl", unix.SYS_FCNTL, []unix.Errno{unix.EMFILE}},
	{"prlimit64", unix.SYS_PRLIMIT64, []unix.Errno{unix.EPERM}},
}

// WithFaults runs the test that calls it a second time, in a process whose
// system calls can fail, and reports whether this is that process. The test
// goes on there alone, and calls [NewFaults] when what it traces runs.
func WithFaults(t *testing.T) bool {
	t.Helper()
	testneeds.NoGuest(t, "another process answers each system call, for which a guest of one "+
		"processor takes too long")
	if os.Getenv(faultsVariable) != "" {
		return true
	}
	testneeds.Root(t)
	testneeds.Only(t, "the calls are known by the numbers of these machines", "amd64", "arm64")
	testneeds.Kernel(t, "5.19", "seccomp user notification that signals do not disturb")
	self, err := os.Executable()
	qt.Assert(t, qt.IsNil(err))
	ready, theirs, err := os.Pipe()
	qt.Assert(t, qt.IsNil(err))
	defer ready.Close()
	timeout := time.Duration(0)
	if deadline, ok := t.Deadline(); ok {
		timeout = time.Until(deadline) * 9 / 10 // the child ends before this test
	}
	child := exec.Command(self, "-test.run=^"+regexp.QuoteMeta(t.Name())+"$",
		"-test.count=1", "-test.v", "-test.timeout="+timeout.String())
	child.Env = append(os.Environ(), faultsVariable+"=1", "GODEBUG=asyncpreemptoff=1")
	child.ExtraFiles = []*os.File{theirs}
	var output strings.Builder
	child.Stdout, child.Stderr = &output, &output
	err = child.Start()
	theirs.Close()
	qt.Assert(t, qt.IsNil(err))
	if line, _ := bufio.NewReader(ready).ReadString('\n'); line != "" {
		superviseFaults(t, child.Process.Pid)
	}
	if err := child.Wait(); err != nil {
		t.Errorf("with faults: %v\n%s", err, &output)
	}
	for line := range strings.Lines(output.String()) {
		if strings.Contains(line, summaryMark) {
			t.Log(strings.TrimSpace(line))
		}
	}
	return false
}

// NewFaults makes the kernel ask about each call from now on. That includes
// calls of processes that are started later: start them before.
func NewFaults(t *testing.T) *Faults {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	filter := faultFilter()
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	const flags = unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_TSYNC |
		unix.SECCOMP_FILTER_FLAG_TSYNC_ESRCH | unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags,
		uintptr(unsafe.Pointer(&program)))
	qt.Assert(t, qt.Equals(errno, 0), qt.Commentf("seccomp"))
	qt.Assert(t, qt.IsNil(unix.Dup3(int(fd), notifyFD, unix.O_CLOEXEC)))
	const readyFD = 3
	_, err := unix.Write(readyFD, []byte("ready\n"))
	qt.Assert(t, qt.IsNil(err))
	return &Faults{}
}

// faultFilter notifies of the calls in faultKinds and lets all others pass. A
// mapping of memory without a file is the runtime's own.
func faultFilter() []unix.SockFilter {
	const number, lowOfFifth = 0, 16 + 8*4 // in struct seccomp_data
	load := func(at uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: at}
	}
	answer := func(k uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: k}
	}
	equal := func(k uint32, skip uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: k, Jf: skip}
	}
	filter := []unix.SockFilter{
		load(number), equal(unix.SYS_MMAP, 4), load(lowOfFifth), equal(^uint32(0), 1),
		answer(unix.SECCOMP_RET_ALLOW), load(number),
	}
	for _, kind := range faultKinds {
		filter = append(filter, equal(uint32(kind.number), 1), answer(unix.SECCOMP_RET_USER_NOTIF))
	}
	return append(filter, answer(unix.SECCOMP_RET_ALLOW))
}

const summaryMark = "faults: "

// Each calls try once without a fault, in which it must succeed, and then again
// and again with another call failing each time. After each of these it calls
// check, with the error of try: nothing may be left by then, and what try
// traced must be as before. With names of calls it is only these that fail.
func (f *Faults) Each(
	t *testing.T, try func(t *testing.T) error, check func(t *testing.T, err error), only ...string,
) {
	t.Helper()
	for range 2 { // the first time finds out what is asked of the kernel once only
		control(controlCount, 0, 0, 0)
		if err := try(t); err != nil {
			t.Fatalf("without a fault: %v", err)
		}
	}
	counts := make([]int, len(faultKinds))
	for kind := range counts {
		counts[kind] = control(controlRead, kind, 0, 0)
	}
	total, failed := 0, 0
	for kind, count := range counts {
		k := &faultKinds[kind]
		if len(only) > 0 && !slices.Contains(only, k.name) {
			continue
		}
		errnos := k.errors
		if f.FirstErrors {
			errnos = errnos[:1]
		}
		// Unless all are asked for, each error once, and two calls or more.
		// The first call is the one that fails without privileges.
		few := max(len(k.errors), 2)
		step := max(1, (count+few-1)/few)
		for i := range count * len(errnos) {
			n, errno := i/len(errnos), i%len(errnos)
			isChosen := n%step == 0 && n/step%len(errnos) == errno
			if !isChosen && os.Getenv(allFaultsVariable) == "" {
				continue
			}
			name := fmt.Sprintf("%s %d of %d/%s", k.name, n+1, count, unix.ErrnoName(errnos[errno]))
			t.Run(name, func(t *testing.T) {
				LeakCheck(t)
				control(controlFail, kind, n, errnos[errno])
				err := try(t)
				hasFailed := control(controlFailed, 0, 0, 0) > 0
				control(controlCount, 0, 0, 0)
				if !hasFailed {
					return // not as many calls this time
				}
				total++
				if err != nil {
					failed++
				}
				check(t, err)
			})
		}
	}
	// Printed also when the test passes.
	fmt.Printf("%s%s: %d calls failed, of which %d with an error\n", summaryMark, t.Name(),
		total, failed)
}

// control sends a message to the supervisor, and returns its answer.
func control(message uintptr, kind, n int, errno unix.Errno) int {
	answer, _, _ := unix.Syscall6(unix.SYS_IOCTL, controlFD, message, uintptr(kind), uintptr(n),
		uintptr(errno), 0)
	return int(answer)
}

// superviseFaults answers the calls of a process until it has ended.
func superviseFaults(t *testing.T, pid int) {
	t.Helper()
	pidfd, err := unix.PidfdOpen(pid, 0)
	qt.Assert(t, qt.IsNil(err))
	defer unix.Close(pidfd)
	fd, err := unix.PidfdGetfd(pidfd, notifyFD, 0)
	qt.Assert(t, qt.IsNil(err))
	defer unix.Close(fd)

	// struct seccomp_notif and struct seccomp_notif_resp
	var notification [80]byte
	var answer [24]byte
	order := binary.NativeEndian
	counts := make([]int, len(faultKinds))
	kind, fail, failed := -1, -1, 0
	var errno unix.Errno
	for {
		// It says that there is nothing more when the last thread has ended.
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		if _, err := unix.Poll(poll, -1); errors.Is(err, unix.EINTR) {
			continue
		} else if err != nil || poll[0].Revents&unix.POLLIN == 0 {
			return
		}
		clear(notification[:])
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SECCOMP_IOCTL_NOTIF_RECV,
			uintptr(unsafe.Pointer(&notification))); errno != 0 {
			continue // the thread has gone
		}
		clear(answer[:])
		copy(answer[:8], notification[:8])
		number := int(order.Uint32(notification[16:]))
		argument := func(i int) uint64 { return order.Uint64(notification[32+8*i:]) }
		if number == unix.SYS_IOCTL && argument(0) == controlFD {
			switch argument(1) {
			case controlRead:
				order.PutUint64(answer[8:], uint64(counts[argument(2)]))
			case controlFailed:
				order.PutUint64(answer[8:], uint64(failed))
			case controlCount, controlFail:
				clear(counts)
				kind, fail, failed = -1, int(argument(3)), 0
				if argument(1) == controlFail {
					kind, errno = int(argument(2)), unix.Errno(argument(4))
				}
			}
		} else {
			order.PutUint32(answer[20:], unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE)
			is := func(k faultKind) bool { return k.number == number }
			of := slices.IndexFunc(faultKinds, is)
			if of >= 0 && !isPipe(pid, number, argument(0)) {
				if of == kind && counts[of] == fail {
					failed = 1
					order.PutUint32(answer[16:], uint32(-int32(errno)))
					order.PutUint32(answer[20:], 0)
				}
				counts[of]++
			}
		}
		// It fails if the thread has gone.
		_, _, _ = unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SECCOMP_IOCTL_NOTIF_SEND,
			uintptr(unsafe.Pointer(&answer)))
	}
}

// isPipe reports whether a call reads from a pipe: the test's own, to what it
// traces.
func isPipe(pid, number int, fd uint64) bool {
	if number != unix.SYS_READ {
		return false
	}
	link, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", pid, fd))
	return err == nil && strings.HasPrefix(link, "pipe:")
}
