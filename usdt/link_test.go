// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package usdt_test

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"
	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/attaching"
	"github.com/gousdt/gousdt/internal/testbpf"
	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/usdt"
	"github.com/gousdt/gousdt/usdt/proc"
	"github.com/gousdt/gousdt/watch"
)

// tracerVariable makes the test binary a tracer that attaches and waits to be
// killed: "mode file pid probe".
const tracerVariable = "GOUSDT_TEST_TRACER"

func TestMain(m *testing.M) {
	if order := os.Getenv(tracerVariable); order != "" {
		if err := beTracer(order); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	testprog.BeMapper()
	os.Exit(m.Run())
}

func beTracer(order string) error {
	var mode usdt.Mode
	var file string
	var pid int
	var probe string
	if _, err := fmt.Sscan(order, &mode, &file, &pid, &probe); err != nil {
		return err
	}
	if err := rlimit.RemoveMemlock(); err != nil {
		return err
	}
	spec, err := testbpf.LoadArgs()
	if err != nil {
		return err
	}
	mgr, err := usdt.NewManager(spec, &usdt.ManagerOptions{Mode: mode, MaxSpecs: 1024})
	if err != nil {
		return err
	}
	var objs testbpf.ArgsObjects
	if err := spec.LoadAndAssign(&objs, mgr.CollectionOptions()); err != nil {
		return err
	}
	if _, err := mgr.Attach(objs.Collect, usdt.Target{Path: file, PID: pid}, nil,
		elfnote.Exact(provider, probe)); err != nil {
		return err
	}
	fmt.Println("attached")
	select {}
}

func TestAttachedSemaphoresAreZeroAfterTheTracerIsKilled(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		process := testprog.Start(t, "target-pie")
		self, err := os.Executable()
		qt.Assert(t, qt.IsNil(err))
		tracer := exec.Command(self)
		tracer.Env = append(os.Environ(), fmt.Sprintf("%s=%d %s %d counted", tracerVariable, mode,
			testprog.Path(t, "target-pie"), process.PID))
		tracer.Stderr = os.Stderr
		stdout, err := tracer.StdoutPipe()
		qt.Assert(t, qt.IsNil(err))
		qt.Assert(t, qt.IsNil(tracer.Start()))
		line, err := bufio.NewReader(stdout).ReadString('\n')
		qt.Check(t, qt.IsNil(err))
		qt.Check(t, qt.Equals(line, "attached\n"))
		qt.Check(t, qt.Equals(process.Semaphore("counted"), 1))

		qt.Assert(t, qt.IsNil(tracer.Process.Kill()))
		qt.Assert(t, qt.IsNotNil(tracer.Wait()))
		// The kernel detaches after the process has been reaped, some grace
		// periods later.
		testneeds.Await(t, 20*time.Second, "the semaphore does not count a tracer that is dead",
			func() bool { return process.Semaphore("counted") == 0 })
		process.Fire("counted", 1)
	})
}

// The documented capabilities are enough without root, and without one of them
// it is refused. Where the kernel wants CAP_SYS_ADMIN for perf events on
// uprobes, an event of tracefs does, and without tracefs the error names what
// is missing. docs/troubleshooting.md has the table.
func TestAttachWithCapabilitiesAlone(t *testing.T) {
	if !testprog.InPrivateMounts(t) {
		return
	}
	try := func(t *testing.T, mode usdt.Mode, capabilities ...int) (attached bool, stderr string) {
		self, err := os.Executable()
		qt.Assert(t, qt.IsNil(err))
		tracer := exec.Command(self)
		tracer.Env = append(os.Environ(), fmt.Sprintf("%s=%d %s 0 counted", tracerVariable, mode,
			testprog.Path(t, "target-static")))
		var said strings.Builder
		tracer.Stderr = &said
		stdout, err := tracer.StdoutPipe()
		qt.Assert(t, qt.IsNil(err))
		withCapabilities(t, capabilities, func() {
			err = tracer.Start()
		})
		qt.Assert(t, qt.IsNil(err))
		line, _ := bufio.NewReader(stdout).ReadString('\n')
		_ = tracer.Process.Kill()
		_ = tracer.Wait()
		return line == "attached\n", said.String()
	}
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		attached, stderr := try(t, mode, unix.CAP_BPF, unix.CAP_PERFMON)
		qt.Check(t, qt.IsTrue(attached), qt.Commentf("%s", stderr))
		for _, one := range []int{unix.CAP_BPF, unix.CAP_PERFMON} {
			attached, stderr = try(t, mode, one)
			qt.Check(t, qt.IsFalse(attached))
			qt.Check(t, qt.StringContains(stderr, "operation not permitted"))
		}
	})
	_, err := attaching.RemoveEnded() // of those that were killed
	qt.Check(t, qt.IsNil(err))
	for _, dir := range []string{testprog.Tracefs, "/sys/kernel/debug"} {
		qt.Assert(t, qt.IsNil(unix.Mount("none", dir, "tmpfs", 0, "")))
	}
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		attached, stderr := try(t, mode, unix.CAP_BPF, unix.CAP_PERFMON)
		qt.Check(t, qt.IsTrue(attached || mode != usdt.ModeMulti &&
			strings.Contains(stderr, "CAP_SYS_ADMIN")), qt.Commentf("%s", stderr))
		attached, stderr = try(t, mode, unix.CAP_BPF, unix.CAP_PERFMON, unix.CAP_SYS_ADMIN)
		qt.Check(t, qt.IsTrue(attached), qt.Commentf("%s", stderr))
	})
}

func TestManagerConcurrentUse(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		c := newCollector(t, &usdt.ManagerOptions{Mode: mode, MaxSpecs: 8})
		process := testprog.Start(t, "target-pie")
		target := usdt.Target{Path: testprog.Path(t, "target-pie"), PID: process.PID}
		probes := []string{"three", "twelve", "counted", "sizes"}

		var wait sync.WaitGroup
		links := make(chan *usdt.Link, 100)
		for worker := range 4 {
			wait.Go(func() {
				for round := range 4 {
					lnk, err := c.Manager.Attach(c.Collect3, target, nil,
						elfnote.Exact(provider, probes[(worker+round)%len(probes)]))
					if err != nil {
						t.Error(err)
						return
					}
					links <- lnk
					if rand.IntN(2) == 0 {
						if err := (<-links).Close(); err != nil {
							t.Error(err)
						}
					}
					c.SpecsInUse()
				}
			})
		}
		wait.Wait()
		// Several goroutines also close the Manager and the links at the same
		// time.
		close(links)
		wait.Go(func() {
			if err := c.Manager.Close(); err != nil {
				t.Error(err)
			}
		})
		for lnk := range links {
			wait.Go(func() {
				if err := lnk.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		wait.Wait()
		used, _ := c.SpecsInUse()
		qt.Assert(t, qt.Equals(used, 0))
		qt.Assert(t, qt.Equals(process.Semaphore("counted"), 0))
	})
}

// Once the Manager is closed nothing is attached, nor will be, also by a call
// of Attach that has come as far as the kernel.
func TestManagerCloseWaitsForAttach(t *testing.T) {
	process := testprog.Start(t, "target-pie")
	target := usdt.Target{Path: testprog.Path(t, "target-pie"), PID: process.PID}
	for range 20 {
		c := newCollector(t, &usdt.ManagerOptions{MaxSpecs: 1024})
		attaching, ended := make(chan struct{}), make(chan error, 1)
		var once sync.Once
		go func() {
			_, err := c.Manager.Attach(c.Collect3, target, &usdt.AttachOptions{
				SiteCookie: func(usdt.Site) uint64 {
					once.Do(func() { close(attaching) })
					return 0
				}}, elfnote.MustParsePattern(provider+":*"))
			ended <- err
		}()
		<-attaching
		qt.Assert(t, qt.IsNil(c.Manager.Close()))
		for isOver := false; !isOver; {
			select {
			case err := <-ended:
				if err != nil {
					qt.Assert(t, qt.ErrorIs(err, os.ErrClosed))
				}
				isOver = true
			default:
			}
			qt.Assert(t, qt.Equals(process.Semaphore("counted"), 0))
		}
	}
}

// A target that is killed, or runs another program, while it is being attached
// leaves nothing attached.
func TestAttachToAProcessThatDiesMeanwhile(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		c := newCollector(t, &usdt.ManagerOptions{Mode: mode})
		path := testprog.Path(t, "target-static")
		for range 10 {
			process := testprog.Start(t, "target-static")
			var wait sync.WaitGroup
			wait.Go(process.Kill)
			lnk, err := c.Manager.Attach(c.Collect, usdt.Target{Path: path, PID: process.PID}, nil,
				elfnote.Exact(provider, "three"))
			wait.Wait()
			if err != nil {
				// While a process is being killed, its main thread may have
				// exited before another one. A process without memory denies
				// access.
				if !errors.Is(err, proc.ErrGone) && !errors.Is(err, os.ErrPermission) {
					qt.Assert(t,
						qt.ErrorMatches(err, `process \d+: its main thread has exited, .*`))
				}
				continue
			}
			qt.Assert(t, qt.IsNil(lnk.Close()))
		}
		used, _ := c.SpecsInUse()
		qt.Assert(t, qt.Equals(used, 0))
	})
}

// opening opens a file for writing on a goroutine of its own, and returns a
// channel that is closed as soon as that has been possible.
func opening(t *testing.T, path string) <-chan struct{} {
	opened := make(chan struct{})
	go func() {
		file, err := os.OpenFile(path, os.O_RDWR|os.O_TRUNC, 0)
		if err != nil {
			t.Error(err)
		} else {
			file.Close()
		}
		close(opened)
	}()
	return opened
}

// A breakpoint that stays in a file which is written to is in other code, and
// kills what runs it.
func TestLinksAreDetachedBeforeTheFileIsWrittenTo(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		c := newCollector(t, &usdt.ManagerOptions{Mode: mode})
		program, other := copies(t, "target-static")
		exact := elfnote.Exact(provider, "three")
		sel, err := usdt.Select(usdt.Target{Path: program}, exact)
		qt.Assert(t, qt.IsNil(err))
		defer sel.Close()
		attach := func() *usdt.Link {
			lnk, err := c.Attach(c.Collect, usdt.Target{Selection: sel}, nil)
			qt.Assert(t, qt.IsNil(err))
			return lnk
		}
		links := []*usdt.Link{attach(), attach()}
		stays := c.attach(t, c.Collect, usdt.Target{Path: other}, "three", nil)
		qt.Check(t, qt.IsNil(links[0].Err()))

		<-opening(t, program)
		for _, lnk := range links {
			select {
			case <-lnk.Done():
			default:
				t.Error("the file was opened for writing before it was detached")
			}
			qt.Check(t, qt.ErrorIs(lnk.Err(), usdt.ErrWritten))
			qt.Check(t, qt.IsNil(lnk.Close()))
		}
		qt.Check(t, qt.IsNil(stays.Err()))
		qt.Check(t, qt.IsNil(stays.Close()))
		qt.Check(t, qt.ErrorIs(stays.Err(), os.ErrClosed))
		used, _ := c.SpecsInUse()
		qt.Check(t, qt.Equals(used, 0))

		_, err = c.Attach(c.Collect, usdt.Target{Selection: sel}, nil)
		qt.Check(t, qt.ErrorIs(err, usdt.ErrWritten))
		copyFile(t, program, other)
		again := c.attach(t, c.Collect, usdt.Target{Path: program}, "three", nil)
		testprog.Start(t, program).Fire("three", 1)
		c.next(t, 1)
		qt.Check(t, qt.IsNil(again.Err()))
	})
}

// A child that is being started has the links of its parent, which are attached
// as long.
func TestWritersWaitForChildrenThatAreBeingStarted(t *testing.T) {
	c := newCollector(t, nil)
	program, _ := copies(t, "target-static")
	lnk := c.attach(t, c.Collect, usdt.Target{Path: program}, "three", nil)
	started := make(chan struct{})
	syscall.ForkLock.Lock()
	opened := opening(t, program)
	<-lnk.Done()
	time.AfterFunc(50*time.Millisecond, func() { // the writer could be faster
		close(started)
		syscall.ForkLock.Unlock()
	})
	<-opened
	select {
	case <-started:
	default:
		t.Error("the file was opened for writing while a child was being started")
	}
}

func TestWritersDoNotWaitWithoutALease(t *testing.T) {
	c := newCollector(t, nil)
	program, _ := copies(t, "target-static")
	lnk, err := c.Attach(c.Collect, usdt.Target{Path: program, NoLease: true}, nil,
		elfnote.Exact(provider, "three"))
	qt.Assert(t, qt.IsNil(err))
	<-opening(t, program)
	<-lnk.Done() // some time after it
	qt.Check(t, qt.ErrorIs(lnk.Err(), usdt.ErrWritten))
}

// What reads a file that is not attached is no reason to wait.
func TestWritersDoNotWaitForASelection(t *testing.T) {
	testprog.LeakCheck(t)
	program, _ := copies(t, "target-static")
	sel, err := usdt.Select(usdt.Target{Path: program})
	qt.Assert(t, qt.IsNil(err))
	<-opening(t, program)
	qt.Check(t, qt.IsNil(sel.Close()))
}

func TestWatchAttachesAgainAfterAWrite(t *testing.T) {
	c := newCollector(t, nil)
	dir := t.TempDir()
	library := filepath.Join(dir, "libtarget.so")
	copyFile(t, library, testprog.Path(t, "libtarget.so"))
	program := filepath.Join(dir, "target-shared")
	copyFile(t, program, testprog.Path(t, "target-shared"))
	reported := make(chan error, 10)
	w, err := c.Watch(&watch.Options{Filter: only(program)},
		func(changes *watch.Changes[*watchAttachment]) {
			for _, err := range changes.Errors {
				reported <- err
			}
		}, watching(t, c.Collect, "gousdt_test:three")...)
	qt.Assert(t, qt.IsNil(err))
	defer w.Close()
	process := testprog.Start(t, program)
	qt.Assert(t, qt.IsNil(w.Sync(t.Context(), process.PID)))
	qt.Assert(t, qt.HasLen(w.Attachments(), 1))
	lnk := w.Attachments()[0]

	// A process that maps a library keeps nobody from writing to it.
	writer, err := os.OpenFile(library, os.O_RDWR, 0)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.ErrorIs(lnk.Link.Err(), usdt.ErrWritten))
	qt.Check(t, qt.ErrorMatches(await(t, reported), ".*being written to, and is attached again.*"))
	qt.Check(t, qt.HasLen(w.Attachments(), 0))
	writer.Close()
	testneeds.Await(t, 10*time.Second, "the library is attached again",
		func() bool { return len(w.Attachments()) == 1 })
	process.Fire("three", 1)
	c.next(t, 1)
}

// lld gives RELRO and data two writable segments that share a page of the file.
// The kernel counts the semaphore in the first, unless that is read-only.
func TestSemaphoreOnThePageOfTwoSegments(t *testing.T) {
	gcc := testneeds.Tool(t, "gcc", "gcc")
	testneeds.Tool(t, "ld.lld", "lld")
	const source = `
#define _SDT_HAS_SEMAPHORES 1
#include <sys/sdt.h>
#include <unistd.h>
__extension__ unsigned short gousdt_test_gated_semaphore __attribute__((section(".probes")));
int main(void)
{
	char c;
	while (read(0, &c, 1) == 1) {
		if (c == 'e')
			execl("/proc/self/exe", "program", (char *)0);
		if (gousdt_test_gated_semaphore)
			DTRACE_PROBE1(gousdt_test, gated, c);
		write(1, "\n", 1);
	}
	return 0;
}`
	dir := t.TempDir()
	program := filepath.Join(dir, "program")
	build := exec.Command(gcc, "-O2", "-fuse-ld=lld", "-x", "c", "-", "-o", program)
	build.Stdin = strings.NewReader(source)
	output, err := build.CombinedOutput()
	qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", output))
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		c := newCollector(t, &usdt.ManagerOptions{Mode: mode})
		_, err := c.Attach(c.Collect, usdt.Target{Path: program}, nil, elfnote.Exact(provider, "gated"))
		qt.Assert(t, qt.ErrorMatches(err, ".*two writable segments.*attach to each process after.*"))
		var mu sync.Mutex // the watch attaches later what has not started
		var reported []error
		w, err := c.Watch(&watch.Options{Filter: only(program)},
			func(changes *watch.Changes[*watchAttachment]) {
				mu.Lock()
				defer mu.Unlock()
				reported = append(reported, changes.Errors...)
			}, watching(t, c.Collect, "gousdt_test:gated")...)
		failed := func() []error {
			mu.Lock()
			defer mu.Unlock()
			return failures(&watch.Changes[*watchAttachment]{Errors: reported})
		}
		qt.Assert(t, qt.IsNil(err))
		defer w.Close()
		for range 3 { // also while a link for the process before is there
			run := exec.Command(program)
			in, err := run.StdinPipe()
			qt.Assert(t, qt.IsNil(err))
			out, err := run.StdoutPipe()
			qt.Assert(t, qt.IsNil(err))
			qt.Assert(t, qt.IsNil(run.Start()))
			answer := make([]byte, 1)
			pass := func() {
				_, err := in.Write([]byte("x"))
				qt.Assert(t, qt.IsNil(err))
				_, err = out.Read(answer)
				qt.Assert(t, qt.IsNil(err))
			}
			testneeds.Await(t, 10*time.Second, "the process is attached", func() bool {
				// Start returns before the program is mapped.
				qt.Assert(t, qt.IsNil(w.Sync(t.Context(), run.Process.Pid)))
				return slices.ContainsFunc(w.Attachments(), func(a *watchAttachment) bool {
					return a.Process.PID == run.Process.Pid
				})
			})
			pass()
			pass()
			qt.Assert(t, qt.HasLen(c.next(t, 2), 2))
			qt.Check(t, qt.HasLen(failed(), 0))
			_, err = in.Write([]byte("e"))
			qt.Assert(t, qt.IsNil(err))
			pass() // while it is being executed, it has no file
			testneeds.Await(t, 10*time.Second, "what was executed again is reported", func() bool {
				qt.Assert(t, qt.IsNil(w.Sync(t.Context(), run.Process.Pid)))
				return len(failed()) > 0
			})
			qt.Check(t, qt.ErrorMatches(failed()[0], ".*executed the program again.*"))
			qt.Check(t, qt.HasLen(failed(), 1))
			mu.Lock()
			reported = nil
			mu.Unlock()
			in.Close() // it ends before it is detached, and so no uprobe leaks
			_ = run.Wait()
			qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 0)))
		}
	})
}

// A uprobe_multi link can be pinned, and Close ends it all the same.
func TestLinks(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		c := newCollector(t, &usdt.ManagerOptions{Mode: mode})
		process := testprog.Start(t, "target-pie")
		lnk, err := c.Attach(c.Collect,
			usdt.Target{Path: testprog.Path(t, "target-pie"), PID: process.PID}, nil,
			elfnote.Exact(provider, "three"))
		qt.Assert(t, qt.IsNil(err))
		defer lnk.Close()
		links, err := lnk.Links()
		if mode != usdt.ModeMulti {
			qt.Assert(t, qt.ErrorIs(err, errors.ErrUnsupported))
			return
		}
		qt.Assert(t, qt.IsNil(err))
		qt.Assert(t, qt.HasLen(links, 1))

		pins := t.TempDir()
		qt.Assert(t, qt.IsNil(unix.Mount("bpf", pins, "bpf", 0, "")))
		defer unix.Unmount(pins, unix.MNT_DETACH)
		pin := filepath.Join(pins, "three")
		qt.Assert(t, qt.IsNil(links[0].Pin(pin)))
		pinned, err := link.LoadPinnedLink(pin, nil)
		qt.Assert(t, qt.IsNil(err))
		mine, err := links[0].Info()
		qt.Assert(t, qt.IsNil(err))
		same, err := pinned.Info()
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.Equals(same.ID, mine.ID))
		qt.Assert(t, qt.IsNil(pinned.Close()))

		qt.Assert(t, qt.IsNil(lnk.Close()))
		_, err = os.Stat(pin)
		qt.Check(t, qt.ErrorIs(err, os.ErrNotExist))
		process.Fire("three", 1)
		c.silent(t)
	})
}
