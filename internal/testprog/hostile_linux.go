// SPDX-License-Identifier: BSD-2-Clause

package testprog

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/testneeds"
)

// Hostile is a user without privileges, in namespaces of its own, who serves a
// file system in them. internal/testdata/README.md lists what it can be told to
// do.
type Hostile struct {
	*Process
	// File is the path of its file on overlayfs, for the process itself.
	File string
}

// hostileFile is [Hostile.File].
const hostileFile = "merged/program"

// missingInKernel is the exit status of hostile where the kernel lacks what it
// needs.
const missingInKernel = 77

// StartHostile starts a hostile user who serves one file with these contents,
// and has it below overlayfs. Its processes are killed at the end of the test,
// and when this process ends.
func StartHostile(t testing.TB, user int, contents string, environment ...string) *Hostile {
	t.Helper()
	testneeds.Root(t)
	testneeds.Kernel(t, "5.11", "overlayfs in user namespaces")
	TakeTurn(t, HostileUsers)
	dir := t.TempDir()
	for _, sub := range []string{"fuse", "merged", "writable"} {
		qt.Assert(t, qt.IsNil(os.Mkdir(filepath.Join(dir, sub), 0o755)))
	}
	// With the permissions that udev sets.
	device := filepath.Join(dir, "device")
	qt.Assert(t, qt.IsNil(unix.Mknod(device, unix.S_IFCHR, int(unix.Mkdev(10, 229)))))
	qt.Assert(t, qt.IsNil(os.Chmod(device, 0o666)))
	command := exec.Command(Path(t, "hostile"), strconv.Itoa(user), dir,
		filepath.Base(hostileFile), contents)
	command.Env = append(os.Environ(), environment...)
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	h := &Hostile{Process: StartCommand(t, command), File: hostileFile}
	answer, err := h.Command("pid")
	if state := command.ProcessState; err != nil && state != nil &&
		state.ExitCode() == missingInKernel {
		testneeds.Missing(t, "needs FUSE and user namespaces in the kernel: %v", err)
	}
	qt.Assert(t, qt.IsNil(err))
	server, err := strconv.Atoi(answer) // the process that serves the file system
	qt.Assert(t, qt.IsNil(err))
	// Killed first of all: nothing that waits for it can end before.
	t.Cleanup(func() { _ = unix.Kill(server, unix.SIGKILL) }) // it may have ended
	_, err = h.Command("mount")
	if err != nil && strings.Contains(strings.ToLower(err.Error()), unix.ENODEV.Error()) {
		testneeds.Missing(t, "needs overlayfs in the kernel: %v", err)
	}
	qt.Assert(t, qt.IsNil(err))
	return h
}

// Requests that a FUSE server gets (linux/fuse.h).
const (
	fuseGetattr = 3
	fuseOpen    = 14
	fuseRead    = 15
	fuseFlush   = 25
)

// Unanswering are hostile users by PID. Each has a process that makes a scan of
// it wait for ever.
type Unanswering map[int]string

// CanBeAttached is the kind whose file can be attached: only closing it never
// ends.
const CanBeAttached = "a file that is never closed"

// StartUnanswering starts hostile users of all kinds, whose file is a program.
func StartUnanswering(t testing.TB, program string) Unanswering {
	t.Helper()
	kinds := map[string][]string{
		"a server that is stopped":        {"map " + hostileFile, "freeze"},
		"a file that is never identified": {"map " + hostileFile, fmt.Sprint("stop ", fuseGetattr)},
		"a file that is never opened":     {"map " + hostileFile, fmt.Sprint("stop ", fuseOpen)},
		"a file that is never read":       {"map " + hostileFile, fmt.Sprint("stop ", fuseRead)},
		CanBeAttached:                     {"map " + hostileFile, fmt.Sprint("stop ", fuseFlush)},
	}
	if testneeds.KernelAtLeast(t, "6.16") {
		// Others write back a copy of a page: munmap does not wait.
		kinds["a process stuck in munmap"] = []string{"stuck fuse/program"}
	}
	user, all := 1000, make(Unanswering)
	for what, commands := range kinds {
		user++
		h := StartHostile(t, user, program)
		h.Do(commands...)
		all[h.PID] = what
	}
	return all
}

// costsVariable names the file for the table of make test-hostile.
const costsVariable = "GOUSDT_HOSTILE"

// IsComplete reports whether tests of what users of the host may try are to do
// it in full, as make test-hostile has them do.
func IsComplete() bool { return os.Getenv(costsVariable) != "" }

// Soak returns how often to do something, or for how long: more in make
// test-soak.
func Soak[T int | time.Duration](short, complete T) T {
	if os.Getenv("GOUSDT_SOAK") == "" {
		return short
	}
	return complete
}

// InTime returns how long something may take that hostile users try to delay
// for ever: what is promised where make test-hostile measures it, and more
// where the machine may have been busy with anything else for some seconds.
func InTime(promised time.Duration) time.Duration {
	if IsComplete() {
		return testneeds.Patience(promised)
	}
	return testneeds.Patience(answerDeadline)
}

// Costs are what this process spends from some time on.
type Costs struct {
	t   testing.TB
	cpu time.Duration
}

// StartCosts begins to measure.
func StartCosts(t testing.TB) *Costs {
	t.Helper()
	debug.FreeOSMemory()  // of what was before
	const resetPeak = "5" // see proc_pid_clear_refs(5)
	err := os.WriteFile("/proc/self/clear_refs", []byte(resetPeak), 0)
	if !errors.Is(err, os.ErrNotExist) { // a kernel without it counts from the start
		qt.Assert(t, qt.IsNil(err))
	}
	return &Costs{t, processorTime(t)}
}

// CPU returns how much of the processors has been used.
func (c *Costs) CPU() time.Duration {
	c.t.Helper()
	return processorTime(c.t) - c.cpu
}

// Report adds a row to the table of make test-hostile: the attack with its
// number in docs/security-model.md, its effect before there was a defence, its
// effect now, and how late another user's process was attached. The row goes on
// with the processor time, the peak of memory, and the descriptors.
func (c *Costs) Report(number int, attack, before, now string, late time.Duration) {
	c.t.Helper()
	descriptors, err := os.ReadDir("/proc/self/fd")
	qt.Assert(c.t, qt.IsNil(err))
	status, err := os.ReadFile("/proc/self/status")
	qt.Assert(c.t, qt.IsNil(err))
	_, peak, _ := strings.Cut(string(status), "\nVmHWM:")
	var kilobytes int
	_, err = fmt.Sscan(peak, &kilobytes)
	qt.Assert(c.t, qt.IsNil(err), qt.Commentf("%s", status))
	row := fmt.Sprintf("%d | %s | %s | %s | %.2f s | %.2f s | %d MB | %d\n", number, attack, before,
		now, late.Seconds(), c.CPU().Seconds(), kilobytes>>10, len(descriptors))
	c.t.Log(row)
	if !IsComplete() {
		return
	}
	table, err := os.OpenFile(os.Getenv(costsVariable), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o666)
	qt.Assert(c.t, qt.IsNil(err))
	defer table.Close()
	_, err = table.WriteString(row)
	qt.Assert(c.t, qt.IsNil(err))
}

// processorTime returns how much of the processors this process has used.
func processorTime(t testing.TB) time.Duration {
	t.Helper()
	var usage unix.Rusage
	qt.Assert(t, qt.IsNil(unix.Getrusage(unix.RUSAGE_SELF, &usage)))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// mapperVariable makes a test binary a mapper: "user nanoseconds directory".
const mapperVariable = "GOUSDT_TEST_MAPPER"

// Nobody is a user who has no processes on most hosts.
const Nobody = 65534

// mappedBytes is how much a mapper maps of each file: all code of those that
// tests write.
const mappedBytes = 8192

// StartMapper starts a process of another user that maps all files of a
// directory as code, and one of them anew each time that every has passed,
// unless that is 0. The test's TestMain must call [BeMapper].
func StartMapper(t testing.TB, user int, every time.Duration, dir string) *Process {
	t.Helper()
	testneeds.Root(t)
	TakeTurn(t, HostileUsers)
	self, err := os.Executable()
	qt.Assert(t, qt.IsNil(err))
	command := exec.Command(self)
	command.Env = append(os.Environ(), fmt.Sprintf("%s=%d %d %s", mapperVariable, user, every, dir))
	p := StartCommand(t, command)
	p.must("pid") // fails if it has ended
	return p
}

// BeMapper does nothing but in a process that StartMapper has started.
func BeMapper() {
	if order := os.Getenv(mapperVariable); order != "" {
		fmt.Fprintln(os.Stderr, beMapper(order))
		os.Exit(1)
	}
}

// beMapper does not return unless it fails.
func beMapper(order string) error {
	var user int
	var every time.Duration
	var dir string
	if _, err := fmt.Sscan(order, &user, (*int64)(&every), &dir); err != nil {
		return err
	}
	paths, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		return err
	}
	var file *os.File // the last one stays open, to be mapped again
	var code []byte
	mapCode := func() (err error) {
		code, err = unix.Mmap(int(file.Fd()), 0, mappedBytes, unix.PROT_READ|unix.PROT_EXEC,
			unix.MAP_PRIVATE)
		return err
	}
	for i, path := range paths {
		if file, err = os.Open(path); err != nil {
			return err
		}
		if err := mapCode(); err != nil {
			return err
		}
		if i < len(paths)-1 {
			file.Close()
		}
	}
	if err := syscall.Setuid(user); err != nil {
		return err
	}
	go func() {
		for commands := bufio.NewScanner(os.Stdin); commands.Scan(); {
			fmt.Println("ok")
		}
		os.Exit(0)
	}()
	for every > 0 {
		time.Sleep(every)
		if err := cmp.Or(unix.Munmap(code), mapCode()); err != nil {
			return err
		}
	}
	select {}
}
