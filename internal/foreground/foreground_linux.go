// SPDX-License-Identifier: BSD-2-Clause

// Package foreground has a command end when its work has ended, whatever the
// kernel still waits for.
//
// A system call on somebody else's file may never return, and nothing ends a
// thread that makes it: a server on the other side of FUSE has taken the
// request and does not answer. Until that thread ends, the process has not, and
// who has started the process waits for it. So the work is done by another
// process, which the first one does not wait for in the end.
package foreground

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// variable is set for the process that does the work.
	variable = "GOUSDT_FOREGROUND"

	// statusDescriptor is where that one writes its exit status.
	statusDescriptor = 3

	// together is how long signals after one that was passed on are taken for
	// the same: timeout(1) signals its child and then the whole process group.
	together = time.Second

	// farewell is how long that one may take to end when its work is done.
	farewell = 100 * time.Millisecond
)

// IsWorker reports whether this process is the one that does the work.
func IsWorker() bool { return os.Getenv(variable) != "" }

// Run returns what work returns, the exit status. The work is done by another
// process that is started as this one was. It gets the signals that this one
// gets, and is killed if this one is.
func Run(work func() int) int {
	// The first thread stays idle. The kernel gives it the signals of the
	// process, which it would not take while it waits for an answer; and the
	// other process is killed when the thread ends that has started it.
	runtime.LockOSThread()
	if IsWorker() {
		os.Unsetenv(variable)
		unix.CloseOnExec(statusDescriptor)
		done := make(chan int, 1)
		go func() { done <- work() }()
		status := <-done
		// Whoever reads the output does not wait for this process, either.
		_ = unix.Close(1)
		_ = unix.Close(2)
		_, _ = unix.Write(statusDescriptor, []byte{byte(status)}) // unless nobody waits any more
		return status
	}
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2)
	w, err := start()
	if err != nil {
		signal.Stop(signals)
		return work()
	}
	return w.wait(signals)
}

// worker is the process that does the work.
type worker struct {
	pid    int
	ended  chan *os.ProcessState // when it has ended
	status chan int              // when its work has
}

func start() (*worker, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer write.Close()
	command := exec.Command("/proc/self/exe", os.Args[1:]...)
	command.Args[0] = os.Args[0]
	command.Env = append(os.Environ(), variable+"=1")
	command.Stdin, command.Stdout, command.Stderr = os.Stdin, os.Stdout, os.Stderr
	command.ExtraFiles = []*os.File{write}
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		read.Close()
		return nil, err
	}
	w := &worker{command.Process.Pid, make(chan *os.ProcessState, 1), make(chan int, 1)}
	go func() {
		defer read.Close()
		status := make([]byte, 1)
		if n, _ := read.Read(status); n == 1 {
			w.status <- int(status[0])
		}
	}()
	go func() {
		_ = command.Wait() // the state has it
		w.ended <- command.ProcessState
	}()
	return w, nil
}

// wait returns the exit status of the worker when its work has ended. If a
// signal has ended the worker, it ends this process.
func (w *worker) wait(signals <-chan os.Signal) int {
	var last os.Signal // that was passed on
	var at time.Time
	tick := time.NewTicker(farewell)
	defer tick.Stop()
	for {
		var looked <-chan time.Time
		if last != nil {
			looked = tick.C
		}
		select {
		case s := <-signals:
			if time.Since(at) < together {
				continue
			}
			last, at = s, time.Now()
			_ = unix.Kill(w.pid, last.(syscall.Signal)) // it may have ended
		case <-looked:
			if w.hasExited() {
				select {
				case status := <-w.status:
					return status
				case state := <-w.ended:
					return exit(state)
				case <-time.After(farewell):
					return exitBy(last.(syscall.Signal))
				}
			}
		case status := <-w.status:
			select {
			case <-w.ended:
			case <-time.After(farewell):
			}
			return status
		case state := <-w.ended:
			return exit(state)
		}
	}
}

// hasExited reports whether the worker has ended but for threads that no signal
// ends. The kernel has killed all threads then, and its first one is among
// those that are left, or is a zombie.
func (w *worker) hasExited() bool {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", w.pid))
	if err != nil {
		return errors.Is(err, os.ErrNotExist)
	}
	for line := range strings.Lines(string(status)) {
		switch name, value, _ := strings.Cut(line, ":"); name {
		case "State":
			if strings.HasPrefix(strings.TrimSpace(value), "Z") {
				return true
			}
		case "SigPnd":
			pending, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64)
			return err == nil && pending&(1<<(unix.SIGKILL-1)) != 0
		}
	}
	return false
}

func exit(state *os.ProcessState) int {
	status, ok := state.Sys().(syscall.WaitStatus)
	if ok && status.Signaled() {
		return exitBy(status.Signal())
	}
	return state.ExitCode()
}

// exitBy ends this process by a signal, as it has ended the worker.
func exitBy(s syscall.Signal) int {
	signal.Reset(s)
	_ = unix.Kill(os.Getpid(), s)
	time.Sleep(time.Second) // it comes
	return 128 + int(s)
}
