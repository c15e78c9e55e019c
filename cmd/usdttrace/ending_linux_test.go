// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
)

// timeout(1) signals its child and then the process group.
func TestSignalThatComesTwiceIsOne(t *testing.T) {
	testprog.Parallel(t)
	p := startTarget(t, "target-pie")
	r := startPrepared(t, func(cmd *exec.Cmd) { // what takes a moment elsewhere may take seconds here
		cmd.Env = append(cmd.Env, patientVariable+"=1h")
	}, "--count", p.path, "gousdt_test:three")
	r.await(&r.stderr, "(Ctrl-C ends)")
	p.Fire("three", 3)
	for range 20 {
		if r.runs() {
			_ = r.cmd.Process.Signal(syscall.SIGINT) // it may end this moment
		}
		for r.runs() && signalPending(r.cmd.Process.Pid, syscall.SIGINT) {
		}
	}
	lines := r.wait().ok()
	qt.Assert(t, qt.HasLen(lines, 3))
	qt.Check(t, qt.Equals(lines[0], "count"))
	qt.Check(t, qt.Matches(lines[1], "PROBE +COUNT +RATE +%"))
	qt.Check(t, qt.Matches(lines[2], "gousdt_test:three +3 +.*"))
}

// signalPending reports whether a process has been sent a signal that it has
// not taken yet.
func signalPending(pid int, signal syscall.Signal) bool {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)) // it may have ended
	_, after, _ := strings.Cut(string(status), "\nShdPnd:")
	line, _, _ := strings.Cut(after, "\n")
	pending, _ := strconv.ParseUint(strings.TrimSpace(line), 16, 64)
	return pending&(1<<(signal-1)) != 0
}

func TestItEndsAfterItsTime(t *testing.T) {
	testprog.Parallel(t)
	r := start(t, "--duration", "100ms", copyOf(t, "target-pie"), "gousdt_test:three").wait()
	qt.Check(t, qt.Equals(r.status, exitWatched))
	qt.Check(t, qt.StringContains(r.stderr, "0 events, 0 lost"))
}

// In a time namespace, too, the moments between which hits count are those of
// the clock that eBPF programs read.
func TestClockOfATimeNamespace(t *testing.T) {
	testprog.Parallel(t)
	if os.Getenv(inTimeNamespace) != "" {
		fmt.Println("it is", monotonic())
		return
	}
	unshare := []string{testneeds.Tool(t, "unshare", "util-linux"), "--time", "--monotonic",
		"90000000", "--fork", "--kill-child"}
	if out, err := exec.Command(unshare[0], append(unshare[1:], "true")...).CombinedOutput(); err != nil {
		testneeds.Missing(t, "needs to make time namespaces: %v: %s", err, out)
	}
	cmd := exec.Command(unshare[0], append(unshare[1:], os.Args[0], "-test.run=^"+t.Name()+"$")...)
	cmd.Env = append(os.Environ(), inTimeNamespace+"=1")
	before := monotonic()
	out, err := cmd.CombinedOutput()
	after := monotonic()
	qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", out))
	var now int64
	_, err = fmt.Sscanf(string(out), "it is %d", &now)
	qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", out))
	qt.Check(t, qt.IsTrue(before <= now && now <= after), qt.Commentf("%d %d %d", before, now, after))
}

const inTimeNamespace = "USDTTRACE_TEST_IN_TIME_NAMESPACE"

// Measuring begins when everything is attached, which takes time.
func TestTimeToAttachDoesNotCount(t *testing.T) {
	testprog.Parallel(t)
	p := startTarget(t, "target-pie")
	reader, writer, err := os.Pipe()
	qt.Assert(t, qt.IsNil(err))
	defer reader.Close()
	// It blocks while it attaches, in a message that a file is another one:
	// nobody reads that yet.
	fill(t, writer)
	r := startPrepared(t, func(cmd *exec.Cmd) { cmd.Stderr = writer },
		"--json", "--max-events", "1", p.path, p.path, "gousdt_test:three")
	writer.Close()
	time.Sleep(time.Second) // much more than detaching takes
	before := time.Now()
	go func() {
		buffer := make([]byte, 64<<10)
		for {
			if _, err := reader.Read(buffer); err != nil {
				return
			}
		}
	}()
	for r.runs() {
		p.Fire("three", 1)
	}
	seconds := r.wait().objects("summary")[0].Seconds
	qt.Check(t, qt.IsTrue(seconds < time.Since(before).Seconds()), qt.Commentf("%v", seconds))
}

// fill fills a pipe.
func fill(t *testing.T, pipe *os.File) {
	t.Helper()
	raw, err := pipe.SyscallConn()
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(raw.Write(func(fd uintptr) bool {
		for _, size := range []int{4096, 1} {
			for err = nil; err == nil; {
				_, err = unix.Write(int(fd), make([]byte, size))
			}
		}
		return true
	})))
	qt.Assert(t, qt.ErrorIs(err, unix.EAGAIN))
	qt.Assert(t, qt.IsNil(unix.SetNonblock(int(pipe.Fd()), false)))
}

func TestItEndsQuietlyWhenNobodyReads(t *testing.T) {
	testprog.Parallel(t)
	p := startTarget(t, "target-pie")
	reader, writer, err := os.Pipe()
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(reader.Close()))
	r := startPrepared(t, func(cmd *exec.Cmd) { cmd.Stdout = writer }, "-q", p.path,
		"gousdt_test:three")
	writer.Close()
	for r.runs() {
		p.Fire("three", 1)
	}
	ended := r.wait()
	qt.Check(t, qt.Equals(ended.status, exitPipe))
	qt.Check(t, qt.Equals(ended.stderr, ""))
}

// It may be blocked in a write, of events or of messages, for as long as nobody
// reads them.
func TestSIGTERMEndsItWithAFullPipe(t *testing.T) {
	testprog.Parallel(t)
	p := startTarget(t, "target-pie")
	for _, stream := range []string{"stdout", "stderr"} {
		t.Run(stream, func(t *testing.T) {
			reader, writer, err := os.Pipe()
			qt.Assert(t, qt.IsNil(err))
			defer reader.Close()
			fill(t, writer)
			r := startPrepared(t, func(cmd *exec.Cmd) {
				if stream == "stdout" {
					cmd.Stdout = writer
				} else {
					cmd.Stderr = writer
				}
			}, p.path, "gousdt_test:three")
			writer.Close()
			if stream == "stdout" {
				r.await(&r.stderr, "(Ctrl-C ends)")
				p.Fire("three", 10_000) // more than it keeps
			}
			testneeds.Await(t, 10*time.Second, "it ends or writes", func() bool {
				return !r.runs() || blocked(t, r.cmd.Process.Pid)
			})
			qt.Assert(t, qt.IsNil(r.cmd.Process.Signal(syscall.SIGTERM)))
			result := r.wait()
			qt.Check(t, qt.IsTrue(r.cmd.ProcessState.Exited()),
				qt.Commentf("%v", r.cmd.ProcessState))
			if stream == "stdout" {
				qt.Check(t, qt.Equals(result.status, exitError))
				qt.Check(t, qt.StringContains(result.stderr,
					"usdttrace: writing the output: nobody reads the output\n"))
			}
		})
	}
}

// blocked reports whether a thread of a process is writing into a pipe.
func blocked(t *testing.T, pid int) bool {
	t.Helper()
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/wchan", pid))
	qt.Assert(t, qt.IsNil(err))
	for _, task := range tasks {
		if wchan, _ := os.ReadFile(task); strings.Contains(string(wchan), "pipe_write") {
			return true
		}
	}
	return false
}

func TestThreadIsNoProcess(t *testing.T) {
	testprog.Parallel(t)
	tasks, err := os.ReadDir("/proc/self/task") // the Go runtime has some
	qt.Assert(t, qt.IsNil(err))
	for _, task := range tasks {
		if thread := task.Name(); thread != decimal(os.Getpid()) {
			r := start(t, "-p", thread, "a:b").wait()
			qt.Check(t, qt.Equals(r.status, exitError))
			qt.Check(t, qt.Equals(r.stderr, fmt.Sprintf(
				"usdttrace: process %s: this is a thread: give the PID of its process, %d\n",
				thread, os.Getpid())))
			return
		}
	}
	t.Fatal("no threads")
}

// Sites over a limit are reported, with the numbers.
func TestLimitsAreSaid(t *testing.T) {
	testprog.Parallel(t)
	p := startTarget(t, "target-pie")
	r := start(t, "--limits", "file=399", "-p", decimal(p.PID), "gousdt_test:many")
	stderr := r.wait().stderr
	qt.Check(t,
		qt.StringContains(stderr,
			"there is room for 399 sites, 0 are in use, and 400 more are needed: set --limits file= to 400 or more"))

	r = watching(t, "--stats", "--json", "-p", decimal(p.PID), "gousdt_test:three")
	summary := r.interrupt().objects("summary")[0]
	qt.Check(t, qt.Equals(summary.LimitedSites, summary.Sites))
	qt.Check(t, qt.IsTrue(summary.LimitedDescriptors > 0))
}
