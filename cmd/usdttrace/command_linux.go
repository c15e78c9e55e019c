// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/internal/attaching"
	"github.com/gousdt/gousdt/usdt/proc"
)

// command is a program that is run to be watched. A child of this process waits
// until everything is attached, and only then executes the program, so that no
// hit is missed, neither its own nor a descendant's.
type command struct {
	argv []string
	pid  int
	tid  int      // of the thread that executes the program
	held *os.File // the child waits for a byte from it

	process *os.Process   // which never signals another one that has the PID later
	done    chan struct{} // closed when the process has ended
	status  syscall.WaitStatus
}

// hold starts the child, which waits in [becomeCommand] until it is released.
func hold(argv []string, stdout *os.File) (c *command, err error) {
	path, err := exec.LookPath(argv[0])
	if err != nil && !errors.Is(err, exec.ErrDot) {
		return nil, fmt.Errorf("the command: %w", err)
	}
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("the command: socketpair: %w", err)
	}
	c = &command{argv: argv, held: os.NewFile(uintptr(ends[0]), "command"),
		done: make(chan struct{})}
	childsEnd := os.NewFile(uintptr(ends[1]), "command")
	child := exec.Command("/proc/self/exe", append([]string{runHeld, path}, argv...)...)
	child.Stdin, child.Stdout, child.Stderr = os.Stdin, stdout, os.Stderr
	child.ExtraFiles = []*os.File{childsEnd}
	err = child.Start()
	childsEnd.Close()
	if err != nil {
		c.held.Close()
		return nil, fmt.Errorf("the command: %w", err)
	}
	c.process, c.pid = child.Process, child.Process.Pid
	go func() {
		defer close(c.done)
		_ = child.Wait() // its error is in the state
		c.status, _ = child.ProcessState.Sys().(syscall.WaitStatus)
	}()
	if _, err := fmt.Fscan(c.held, &c.tid); err != nil {
		c.end()
		return nil, fmt.Errorf("the command: %s: its process ended before executing it", argv[0])
	}
	return c, nil
}

// becomeCommand runs in the child of [hold]. It maps the files that the command
// will map, so that they are found and attached as those of any process. Then
// it waits, and executes the program.
func becomeCommand(args []string) (status int) {
	runtime.LockOSThread() // mappings are recorded for this thread
	const heldFD = 3       // the first of ExtraFiles
	unix.CloseOnExec(heldFD)
	held := os.NewFile(heldFD, "command")
	path, argv := args[0], args[1:]
	for _, file := range commandFiles(path, argv) {
		mapFile(file)
	}
	fmt.Fprintln(held, unix.Gettid())
	if _, err := held.Read(make([]byte, 1)); err != nil {
		return exitError // usdttrace has ended
	}
	err := syscall.Exec(path, argv, os.Environ())
	fmt.Fprint(held, err)
	return exitError
}

// mapFile maps a file so that it is found. The mapping is shared because the
// kernel puts no breakpoints into such a mapping.
func mapFile(path string) {
	file, err := os.Open(path)
	if err != nil {
		return // then it cannot be executed, either
	}
	defer file.Close()
	_, _ = unix.Mmap(int(file.Fd()), 0, 1, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_SHARED)
}

// release has the child execute the program. It returns when that is done.
func (c *command) release() error {
	defer c.held.Close()
	if _, err := c.held.Write([]byte{1}); err != nil {
		return fmt.Errorf("the command: %s: its process ended before executing it", c.argv[0])
	}
	// The child's end is closed when the program is executed.
	failed, _ := io.ReadAll(io.LimitReader(c.held, 1024))
	if len(failed) > 0 {
		return fmt.Errorf("the command: %s: %s", c.argv[0], failed)
	}
	return nil
}

func (c *command) end() {
	c.held.Close()
	if !isClosed(c.done) {
		_ = c.process.Signal(syscall.SIGTERM) // it may have ended this moment
		_ = c.process.Signal(syscall.SIGCONT) // a suspended process ends when it goes on
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
		text := fmt.Sprintf("%s ended by a signal: %v", c.argv[0], c.status.Signal())
		if c.status.Signal() == syscall.SIGTRAP {
			text += trapped
		}
		return text
	case c.status.ExitStatus() > 0:
		return fmt.Sprintf("%s ended with exit status %d", c.argv[0], c.status.ExitStatus())
	}
	return ""
}

// leaveLinks passes the links and perf events of this process to another one,
// which closes them. The kernel takes a tenth of a second to close a perf
// event, and waits for other tools meanwhile: a process that ends would keep
// its shell waiting. The other process runs this program, see [holdUntilAlone].
//
// Perf events of the events defined in tracefs are not passed on. They are few,
// and the next tracer takes those events for unused once this process has
// ended.
func leaveLinks() {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return
	}
	shared := attaching.EventDescriptors()
	heir := exec.Command("/proc/self/exe", holdLinks)
	// Signals of the terminal must not reach it.
	heir.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	for _, entry := range entries {
		fd, err := strconv.Atoi(entry.Name())
		if err != nil || slices.Contains(shared, fd) || !isLink(fd) {
			continue
		}
		// Another goroutine may be closing fd, whose number may then be another
		// file's: the copy is checked again.
		copied, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			break // the others are closed here
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

// holdUntilAlone returns when the parent process has ended. The end of this
// process then closes the descriptors that both have.
func holdUntilAlone() {
	for parent := os.Getppid(); os.Getppid() == parent && parent != 1; {
		time.Sleep(10 * time.Millisecond)
	}
}

func isLink(fd int) bool {
	target, _ := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd)) // "" is none
	return slices.Contains([]string{"anon_inode:[perf_event]", "anon_inode:bpf_link",
		"anon_inode:bpf-link", "anon_inode:[bpf_link]"}, target)
}

// watchExit returns a function that waits until the process has ended or the
// context is done.
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

// exitPatience is after how many milliseconds an ended context is noticed.
const exitPatience = 100
