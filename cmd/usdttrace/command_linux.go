// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
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
