// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/internal/uprobeevent"
	"github.com/gousdt/gousdt/proc"
)

// command is a program that is run to be watched. It is traced (ptrace) as long
// as it runs, so that it waits at each exec until the new program is attached,
// and at its end until its mappings are known.
type command struct {
	argv   []string
	stdout uintptr // what it gets as its standard output
	pid    int
	// execed is called while the process waits before the first instruction of
	// a program.
	execed func(pid int) error
	// exits is called while the process waits at its end.
	exits func(pid int)

	done   chan struct{} // closed when the process has ended
	status syscall.WaitStatus
}

// start starts the command. It returns when the first program has been attached
// to; if that fails the process is ended.
func (c *command) start() error {
	path, err := exec.LookPath(c.argv[0])
	if err != nil && !errors.Is(err, exec.ErrDot) {
		return fmt.Errorf("-c: %w", err)
	}
	c.done = make(chan struct{})
	started := make(chan error, 1)
	go func() {
		defer close(c.done)
		// A tracee answers to one thread only. That ends with this function.
		runtime.LockOSThread()
		if err := c.startStopped(path); err != nil {
			started <- fmt.Errorf("-c: %s: %w", path, err)
			return
		}
		err := c.execed(c.pid)
		if err != nil {
			_ = syscall.Kill(c.pid, syscall.SIGKILL) // it waits: it cannot have gone
		}
		started <- err
		c.loop()
	}()
	err = <-started
	if err != nil {
		<-c.done
	}
	return err
}

func (c *command) startStopped(path string) (err error) {
	c.pid, err = syscall.ForkExec(path, c.argv, &syscall.ProcAttr{
		Env:   os.Environ(),
		Files: []uintptr{0, c.stdout, 2},
		Sys:   &syscall.SysProcAttr{Ptrace: true},
	})
	if err != nil {
		return err
	}
	if err := c.wait(); err != nil {
		return err
	}
	if !c.status.Stopped() {
		return errors.New("it ended before it began")
	}
	err = unix.PtraceSetOptions(c.pid, unix.PTRACE_O_TRACEEXEC|unix.PTRACE_O_TRACEEXIT)
	if err != nil {
		_ = syscall.Kill(c.pid, syscall.SIGKILL) // the error is returned
		_ = c.wait()
	}
	return err
}

// wait waits until the process stops or ends.
func (c *command) wait() error {
	for {
		_, err := syscall.Wait4(c.pid, &c.status, unix.WALL, nil)
		if err != syscall.EINTR {
			return err
		}
	}
}

// loop has the stopped process go on, and does so whenever it stops, until it
// has ended.
func (c *command) loop() {
	signal := 0
	for {
		// The error is that it has been killed meanwhile, and waiting says so.
		_ = unix.PtraceCont(c.pid, signal)
		if c.wait() != nil || !c.status.Stopped() {
			return
		}
		signal = 0
		switch stopped := c.status.StopSignal(); {
		case c.status.TrapCause() == unix.PTRACE_EVENT_EXEC:
			_ = c.execed(c.pid) // it has reported its error
		case c.status.TrapCause() == unix.PTRACE_EVENT_EXIT:
			c.exits(c.pid)
		case isStop(stopped) && c.inGroupStop():
			// The user has suspended it, and a tracee would not go on at
			// SIGCONT. Let it be an ordinary process.
			_ = detach(c.pid, stopped)
			_ = c.wait()
			return
		default:
			signal = int(stopped)
		}
	}
}

func isStop(s syscall.Signal) bool {
	return s == syscall.SIGSTOP || s == syscall.SIGTSTP || s == syscall.SIGTTIN ||
		s == syscall.SIGTTOU
}

// inGroupStop reports whether the process has been suspended, rather than being
// about to get a signal.
func (c *command) inGroupStop() bool {
	var info [128]byte // siginfo_t
	_, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_GETSIGINFO, uintptr(c.pid), 0,
		uintptr(unsafe.Pointer(&info)), 0, 0)
	return errno == unix.EINVAL
}

// detach lets go of a tracee and sends it a signal.
func detach(pid int, signal syscall.Signal) error {
	_, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_DETACH, uintptr(pid), 0,
		uintptr(signal), 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// finish ends the process if it still runs.
func (c *command) finish() {
	select {
	case <-c.done:
	default:
		_ = syscall.Kill(c.pid, syscall.SIGTERM) // it may have ended this moment
		_ = syscall.Kill(c.pid, syscall.SIGCONT) // a suspended process ends when it goes on
		<-c.done
	}
}

// exitStatus returns the status as a shell has it.
func (c *command) exitStatus() int {
	if c.status.Signaled() {
		return 128 + int(c.status.Signal())
	}
	return c.status.ExitStatus()
}

// failure says how the process ended, "" if it was successful.
func (c *command) failure() string {
	switch {
	case c.status.Signaled():
		return fmt.Sprintf("%s ended by a signal: %v", c.argv[0], c.status.Signal())
	case c.status.ExitStatus() > 0:
		return fmt.Sprintf("%s ended with exit status %d", c.argv[0], c.status.ExitStatus())
	}
	return ""
}

// leaveLinks has another process close the links and perf events of this one.
// The kernel takes a tenth of a second for each perf event, and waits for what
// other tools do, for which a process that ends would keep its shell waiting.
// The other process is this program once more.
//
// Events that are defined in tracefs are not among them: they are few, and the
// next tracer takes them for unused once this process has ended.
func leaveLinks() {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return
	}
	shared := uprobeevent.Descriptors()
	heir := exec.Command("/proc/self/exe", holdLinks)
	// So that no signal of the terminal is for it.
	heir.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	for _, entry := range entries {
		fd, err := strconv.Atoi(entry.Name())
		if err != nil || slices.Contains(shared, fd) {
			continue
		}
		if !isLink(fd) {
			continue
		}
		// Another goroutine may be closing it, and the number be another
		// file's.
		copied, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			break // what is left is closed here
		}
		if !isLink(copied) {
			unix.Close(copied)
			continue
		}
		heir.ExtraFiles = append(heir.ExtraFiles, os.NewFile(uintptr(copied), "link"))
	}
	if len(heir.ExtraFiles) > 0 {
		_ = heir.Start() // or they are closed here
	}
}

// holdUntilAlone returns when the process that has started this one has ended.
// What it had open is then closed when this process ends.
func holdUntilAlone() {
	for parent := os.Getppid(); os.Getppid() == parent && parent != 1; {
		time.Sleep(10 * time.Millisecond)
	}
}

// isLink reports whether a descriptor is of a BPF link or a perf event.
func isLink(fd int) bool {
	target, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
	if err != nil {
		return false
	}
	switch target {
	case "anon_inode:[perf_event]", "anon_inode:bpf_link", "anon_inode:bpf-link",
		"anon_inode:[bpf_link]":
		return true
	}
	return false
}

// watchExit returns a function that waits until a process has ended, or the
// context has.
func watchExit(pid int) (wait func(context.Context), err error) {
	fd, err := unix.PidfdOpen(pid, 0) // Linux 5.3
	switch {
	case errors.Is(err, unix.ESRCH), errors.Is(err, unix.EINVAL):
		// It has ended since it was checked.
		return nil, fmt.Errorf("process %d: %w", pid, proc.ErrGone)
	case err != nil:
		return nil, fmt.Errorf("process %d: %w", pid, err)
	}
	return func(ctx context.Context) {
		defer unix.Close(fd)
		for ctx.Err() == nil {
			ready, _ := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, exitPatience)
			if ready > 0 {
				return
			}
		}
	}, nil
}

// exitPatience is how many milliseconds may pass until it is noticed that the
// context has ended.
const exitPatience = 100
