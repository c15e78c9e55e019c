// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/kernels/internal/platform"
)

// A Go program needs a moment to print its stacks over a serial line.
const quitGrace = 20 * time.Second

// cannotStart is a shell's exit status for a program that cannot be run.
const cannotStart = 127

// run starts a job and waits until it has ended, and with it everything that
// it left behind. The result is an exit status as a shell gives it.
func run(job platform.Job) (int, error) {
	null, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("opening /dev/null: %w", err)
	}
	defer unix.Close(null)

	// Not os/exec: that waits for one process, and the first process must
	// wait for all of them.
	pid, err := syscall.ForkExec(job.Path, append([]string{filepath.Base(job.Path)}, job.Args...),
		&syscall.ProcAttr{
			Dir:   job.Dir,
			Env:   job.Env,
			Files: []uintptr{uintptr(null), 1, 2},
			Sys:   &syscall.SysProcAttr{Setsid: true},
		})
	if err != nil {
		fmt.Printf("guest: starting %s in %s: %v\n", job.Path, job.Dir, err)
		return cannotStart, nil
	}

	quit := time.AfterFunc(job.Timeout, func() { unix.Kill(-pid, unix.SIGQUIT) })
	kill := time.AfterFunc(job.Timeout+quitGrace, func() { unix.Kill(-pid, unix.SIGKILL) })
	defer quit.Stop()
	defer kill.Stop()

	status, err := reap(pid)
	if err != nil {
		return 0, err
	}
	// Every process but this one ends, so that the next job finds the machine
	// as the first did.
	if err := unix.Kill(-1, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
		return 0, fmt.Errorf("killing what is left: %w", err)
	}
	_, err = reap(0)
	return status, err
}

// reap collects ended processes until pid is among them, and returns how that
// one ended. Without one it collects all that there are.
func reap(pid int) (int, error) {
	for {
		var status unix.WaitStatus
		ended, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.ECHILD) && pid == 0:
			return 0, nil
		case err != nil:
			return 0, fmt.Errorf("waiting for process %d: %w", pid, err)
		case ended == pid && status.Signaled():
			return 128 + int(status.Signal()), nil
		case ended == pid:
			return status.ExitStatus(), nil
		}
	}
}
