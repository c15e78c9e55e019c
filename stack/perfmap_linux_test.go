// SPDX-License-Identifier: BSD-2-Clause

package stack_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/stack"
)

// perfMap writes the map of a process. The end of the test removes it.
func perfMap(t *testing.T, pid int, text string) string {
	t.Helper()
	path := fmt.Sprintf("/tmp/perf-%d.map", pid)
	qt.Assert(t, qt.IsNil(os.WriteFile(path, []byte(text), 0o644)))
	t.Cleanup(func() { os.Remove(path) })
	return path
}

// made is where no process has a file mapped.
const made = 0x10000

func TestCodeThatIsMadeAtRunTimeHasTheNamesThatItsProcessSays(t *testing.T) {
	process := testprog.Start(t, "target-pie")
	path := perfMap(t, process.PID, strings.Join([]string{
		"10000 100 first function", // the rest of the line is its name
		"0x10100 80 second",
		"10100 40 replaced", "10100 40 second, again",
		"no line", "10200 0 empty", "ffffffffffffffff 2 around the end", ""}, "\n"))
	s := stack.NewSymbolizer("")
	t.Cleanup(func() { qt.Check(t, qt.IsNil(s.Close())) })
	named := func(addresses ...uint64) (names []string) {
		for _, frame := range s.Frames(t.Context(), process.PID, addresses) {
			names = append(names, frame.String())
		}
		return names
	}
	qt.Check(t, qt.DeepEquals(named(made, made+0x100, made+0x101, made+0x150, made+0x200), []string{
		"first function+0x0", "first function+0x100", // a return address is of the call before
		"second, again+0x1", "second+0x50", "0x10200"}))

	// It grows while the program runs, and has code in the place of other code.
	now := time.Now().Add(time.Second)
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	qt.Assert(t, qt.IsNil(err))
	_, err = file.WriteString("10200 10 third\n10000 100 fourth\n")
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(file.Close()))
	qt.Assert(t, qt.IsNil(os.Chtimes(path, now, now)))
	testneeds.Await(t, 5*time.Second, "the function in the place of another one",
		func() bool { return named(made)[0] == "fourth+0x0" })
	qt.Check(t, qt.Equals(named(made + 0x200)[0], "third+0x0"))
	qt.Check(t, qt.Equals(s.Counts().NoFile > 0, true))
}

// What a process says in a file is read only if it is the process's file.
func TestMapsOfOthersAreNotRead(t *testing.T) {
	testneeds.Root(t)
	// A program that every user may run, until its input ends.
	cmd := exec.Command(testneeds.Tool(t, "cat", "coreutils"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1, Gid: 1}}
	input, err := cmd.StdinPipe()
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(cmd.Start()))
	t.Cleanup(func() { input.Close(); _ = cmd.Wait() })
	pid := cmd.Process.Pid
	target := filepath.Join(t.TempDir(), "secret")
	qt.Assert(t, qt.IsNil(os.WriteFile(target, []byte("10000 100 secret\n"), 0o600)))
	for name, plant := range map[string]func(path string) error{
		"a link":      func(path string) error { return os.Symlink(target, path) },
		"a pipe":      func(path string) error { return syscall.Mkfifo(path, 0o666) },
		"a directory": func(path string) error { return os.Mkdir(path, 0o755) },
		"another user's file": func(path string) error {
			os.WriteFile(path, []byte("10000 100 x\n"), 0o644)
			return os.Chown(path, 2, 2)
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := fmt.Sprintf("/tmp/perf-%d.map", pid)
			qt.Assert(t, qt.IsNil(plant(path)))
			t.Cleanup(func() { os.RemoveAll(path) })
			s := stack.NewSymbolizer("")
			defer s.Close()
			frames := s.Frames(t.Context(), pid, []uint64{made})
			qt.Check(t, qt.Equals(frames[0].Function, ""))
		})
	}
}

// A map is known by the PID in the process's own namespace, and is in its own
// file system.
func TestMapOfAProcessInNamespaces(t *testing.T) {
	testneeds.Root(t)
	cmd := exec.Command(testprog.Path(t, "target-pie"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	process := testprog.StartCommand(t, cmd)
	perfMap(t, 1, "10000 100 inside\n")
	s := stack.NewSymbolizer("")
	defer s.Close()
	frames := s.Frames(t.Context(), process.PID, []uint64{made})
	qt.Check(t, qt.Equals(frames[0].Function, "inside"))
}
