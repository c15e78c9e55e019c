// SPDX-License-Identifier: BSD-2-Clause

package selftest

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/internal/testneeds"
)

func TestGuestHasItsFileSystems(t *testing.T) {
	testneeds.Guest(t)
	for _, fs := range []struct {
		at    string
		magic int64
	}{
		{"/proc", unix.PROC_SUPER_MAGIC},
		{"/sys", unix.SYSFS_MAGIC},
		{"/sys/kernel/tracing", unix.TRACEFS_MAGIC},
		{"/sys/kernel/debug", unix.DEBUGFS_MAGIC},
		{"/sys/fs/bpf", unix.BPF_FS_MAGIC},
		{"/sys/fs/cgroup", unix.CGROUP2_SUPER_MAGIC},
		{"/tmp", unix.TMPFS_MAGIC},
		{"/dev/shm", unix.TMPFS_MAGIC},
	} {
		var s unix.Statfs_t
		qt.Assert(t, qt.IsNil(unix.Statfs(fs.at, &s)))
		qt.Check(t, qt.Equals(uint32(s.Type), uint32(fs.magic)), qt.Commentf("%s", fs.at))
	}
}

func TestGuestHasALoopbackInterface(t *testing.T) {
	testneeds.Guest(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	qt.Assert(t, qt.IsNil(err))
	defer listener.Close()
	conn, err := net.Dial("tcp", listener.Addr().String())
	qt.Assert(t, qt.IsNil(err))
	conn.Close()
}

func TestTestdataCameAlong(t *testing.T) {
	text, err := os.ReadFile("testdata/packed.txt")
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.Equals(string(text), "packed with the test\n"))
}

// What the traced programs need, loader and libraries, must have come along
// with them. They end when their input does.
func TestTracedProgramsStart(t *testing.T) {
	testneeds.Guest(t)
	kinds := map[string][]string{"amd64": {"amd64", "386"}}[runtime.GOARCH]
	if kinds == nil {
		kinds = []string{runtime.GOARCH}
	}
	found := 0
	for _, kind := range kinds {
		files, err := filepath.Glob(filepath.Join(os.Getenv("GOUSDT_TESTDATA"), kind, "*"))
		qt.Assert(t, qt.IsNil(err))
		for _, file := range files {
			if !isProgram(file) {
				continue
			}
			found++
			t.Run(kind+"/"+filepath.Base(file), func(t *testing.T) { startAndEnd(t, file) })
		}
	}
	qt.Assert(t, qt.IsTrue(found > 0), qt.Commentf("no traced programs were built"))
}

// isProgram tells programs from libraries, objects and debug information.
func isProgram(file string) bool {
	f, err := elf.Open(file)
	if err != nil {
		return false
	}
	defer f.Close()
	return f.Entry != 0 && !strings.HasSuffix(file, ".debug") &&
		!strings.Contains(filepath.Base(file), ".so")
}

func startAndEnd(t *testing.T, file string) {
	t.Helper()
	var output bytes.Buffer
	cmd := exec.Command(file)
	cmd.Stdout, cmd.Stderr = &output, &output
	qt.Assert(t, qt.IsNil(cmd.Start()))
	timeout := time.AfterFunc(20*time.Second, func() { cmd.Process.Kill() })
	err := cmd.Wait()
	// A program that goes on forever has started, too.
	if !timeout.Stop() {
		return
	}
	qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", output.String()))
}

// orphanVariable makes this test binary a process that leaves a child behind
// ("parent"), or that child ("child").
const orphanVariable = "SELFTEST_ORPHAN"

func TestMain(m *testing.M) {
	switch os.Getenv(orphanVariable) {
	case "parent":
		child := exec.Command("/proc/self/exe")
		child.Env = append(os.Environ(), orphanVariable+"=child")
		child.Stdin = os.Stdin
		if err := child.Start(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(child.Process.Pid)
		os.Exit(0)
	case "child":
		io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestFirstProcessReapsOrphans(t *testing.T) {
	testneeds.Guest(t)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), orphanVariable+"=parent")
	hold, err := cmd.StdinPipe()
	qt.Assert(t, qt.IsNil(err))
	out, err := cmd.Output()
	qt.Assert(t, qt.IsNil(err))
	pid, err := strconv.Atoi(strings.TrimSpace(string(out)))
	qt.Assert(t, qt.IsNil(err))

	hold.Close()
	// A process that has ended but was not waited for can still be signalled.
	testneeds.Await(t, 20*time.Second, "an orphan is waited for", func() bool {
		return errors.Is(unix.Kill(pid, 0), unix.ESRCH)
	})
}
