// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
)

// userID has no processes but those of these tests.
const userID = 54321

// runUnprivileged is usdtlist as a user without privileges, who sees /proc
// mounted with the option in the variable, if it is one.
func runUnprivileged(args []string) int {
	switch option := os.Getenv(unprivilegedVariable); {
	case strings.HasPrefix(option, "hidepid="):
		if err := mountProc(option); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return -1
		}
	case option == ownNamespace:
		if err := mountProc(""); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return -1
		}
		return run(args, os.Stdout, os.Stderr)
	}
	if err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(userID),
		syscall.Setuid(userID)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return -1
	}
	return run(args, os.Stdout, os.Stderr)
}

// ownNamespace is an option for usdtlistAsUser: as root in a PID namespace of
// its own.
const ownNamespace = "own namespace"

func mountProc(options string) error {
	return errors.Join(
		unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount("proc", "/proc", "proc", 0, options))
}

// usdtlistAsUser runs usdtlist without privileges.
func usdtlistAsUser(t *testing.T, option string, args ...string) result {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", args...)
	coverage := openDir(t) // that of go test -cover is not the user's to write into
	qt.Assert(t, qt.IsNil(os.Chmod(coverage, 0o777)))
	cmd.Env = append(os.Environ(), unprivilegedVariable+"="+option, "GOCOVERDIR="+coverage)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if option == ownNamespace {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWPID
	}
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return result{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
}

// openDir is a temporary directory that every user can read.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "usdtlist-test")
	qt.Assert(t, qt.IsNil(err))
	t.Cleanup(func() { os.RemoveAll(dir) })
	qt.Assert(t, qt.IsNil(os.Chmod(dir, 0o755)))
	return dir
}

// startAsUser runs a program as the user.
func startAsUser(t *testing.T, path string) *testprog.Process {
	t.Helper()
	cmd := exec.Command(path)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: userID,
		Gid: userID}}
	p := testprog.StartCommand(t, cmd)
	p.Do("list") // it has been executed
	return p
}

func TestUsersSeeTheirOwnProcessesAndAreToldWhatIsLeftOut(t *testing.T) {
	testneeds.Root(t)
	dir := openDir(t)
	program := put(t, dir, "target-shared")
	library := put(t, dir, "libtarget.so")
	own, other := startAsUser(t, program), testprog.Start(t, program)
	other.Do("list")

	// One's own process, with its library, is no less than root sees.
	r := usdtlistAsUser(t, "-", "-p", strconv.Itoa(own.PID), "gousdt_test:three")
	qt.Check(t, qt.Equals(r.status, exitFound), qt.Commentf(r.stderr))
	qt.Check(t, qt.Equals(r.stderr, ""))
	qt.Check(t, qt.Matches(firstLine(r.stdout), "File: "+library))

	r = usdtlistAsUser(t, "-", "-p", strconv.Itoa(other.PID))
	qt.Check(t, qt.Equals(r.status, exitError))
	qt.Check(t, qt.Equals(r.stdout, ""))
	qt.Check(t, qt.Matches(r.stderr, fmt.Sprintf(
		`usdtlist: process %d: read maps: no access to the process \(.*CAP_SYS_PTRACE.*\): permission denied\n`, other.PID)))

	r = usdtlistAsUser(t, "-", "-a", library, "gousdt_test:three")
	qt.Check(t, qt.Equals(r.status, exitFound))
	qt.Check(t,
		qt.StringContains(r.stdout, fmt.Sprintf("  Mapped by: target-shared %d\n", own.PID)))
	qt.Check(t,
		qt.Matches(r.stderr,
			`usdtlist: left out: \d+ processes: no access to the process \(.*\)\n`))
	r = usdtlistAsUser(t, "-", "-a", library, "gousdt_test:nonesuch")
	qt.Check(t, qt.Equals(r.status, exitNothing))

	// Each process is in the JSON document.
	r = usdtlistAsUser(t, "-", "--json", "-a", library)
	document := r.document(t)
	qt.Assert(t, qt.HasLen(document.Files, 1))
	qt.Check(t, qt.DeepEquals(document.Files[0].PIDs, []int{own.PID}))
	leftOut := false
	for _, e := range document.Errors {
		leftOut = leftOut || e.PID == other.PID && e.File == "" && strings.Contains(e.Error,
			"no access")
	}
	qt.Check(t, qt.IsTrue(leftOut), qt.Commentf("%v", document.Errors))

	// The kernel shows a deleted file to nobody without a privilege.
	qt.Assert(t, qt.IsNil(os.Remove(library)))
	r = usdtlistAsUser(t, "-", "-p", strconv.Itoa(own.PID))
	qt.Check(t, qt.Equals(r.status, exitError))
	qt.Check(t, qt.StringContains(r.stderr, library+`": the mapped file is not at its path`))

	// Where there is an answer, such a file is left out of it.
	program = put(t, dir, "target-pie")
	own = startAsUser(t, program)
	own.Do("load " + put(t, dir, "libtarget.so"))
	qt.Assert(t, qt.IsNil(os.Remove(library)))
	r = usdtlistAsUser(t, "-", "-p", strconv.Itoa(own.PID))
	qt.Check(t, qt.Equals(r.status, exitFound))
	qt.Check(t, qt.Matches(firstLine(r.stdout), "File: "+program))
	qt.Check(t, qt.Matches(r.stderr, `usdtlist: left out: .*: the mapped file is not at its path .*\n`))
}

func TestHiddenProcessesAreToldOf(t *testing.T) {
	testneeds.Root(t)
	own, other := startAsUser(t, put(t, openDir(t), "target-pie")), testprog.Start(t, "target-pie")
	other.Do("list")
	pid := strconv.Itoa(other.PID)

	r := usdtlistAsUser(t, "hidepid=invisible", "-a", "gousdt_test:three")
	qt.Check(t, qt.Equals(r.status, exitFound))
	qt.Check(t, qt.StringContains(r.stdout, fmt.Sprintf("  Mapped by: target-pie %d\n", own.PID)))
	qt.Check(t, qt.Equals(r.stderr,
		"usdtlist: left out: processes that are hidden by the option hidepid of /proc (run as root or with CAP_SYS_PTRACE)\n"))
	r = usdtlistAsUser(t, "hidepid=invisible", "-p", pid)
	qt.Check(t, qt.Equals(r.status, exitError))
	qt.Check(t,
		qt.StringContains(r.stderr,
			"process "+pid+": no such process, or it is hidden by the option hidepid of /proc "))

	r = usdtlistAsUser(t, "hidepid=noaccess", "-a", "gousdt_test:three")
	qt.Check(t, qt.Equals(r.status, exitFound))
	qt.Check(t, qt.StringContains(r.stdout, fmt.Sprintf("  Mapped by: target-pie %d\n", own.PID)))
	qt.Check(t,
		qt.Matches(r.stderr,
			`usdtlist: left out: \d+ processes: no access to the process \(.*hidepid.*\)\n`))
	r = usdtlistAsUser(t, "hidepid=noaccess", "-p", pid)
	qt.Check(t, qt.Equals(r.status, exitError))
	qt.Check(t,
		qt.Matches(r.stderr,
			`usdtlist: process `+pid+`: read stat: no access to the process \(.*hidepid.*\n`))
}

func TestProcessesOutsideOfThePIDNamespaceAreToldOf(t *testing.T) {
	testneeds.Root(t)
	testprog.Start(t, "target-pie")
	r := usdtlistAsUser(t, ownNamespace, "-a", "gousdt_test:three")
	qt.Check(t, qt.Equals(r.status, exitNothing))
	qt.Check(t,
		qt.StringContains(r.stderr,
			"usdtlist: left out: processes outside of this PID namespace, "))
}

// put copies a traced program or library into a directory.
func put(t *testing.T, dir, name string) string {
	t.Helper()
	content, err := os.ReadFile(testprog.Path(t, name))
	qt.Assert(t, qt.IsNil(err))
	path := filepath.Join(dir, name)
	qt.Assert(t, qt.IsNil(os.WriteFile(path, content, 0o755)))
	return path
}
