// SPDX-License-Identifier: BSD-2-Clause

package procwatch

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"testing"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/internal/testneeds"
)

// nobody is a user that has no processes.
const nobody = "54321"

func TestWithoutAccessOneIsToldSo(t *testing.T) {
	testneeds.Root(t)
	h := startHelper(t, 0)
	h.do("setuid", nobody)
	answer := h.try("open", "/proc", strconv.Itoa(os.Getpid()), "")
	qt.Check(t,
		qt.Matches(answer,
			`process \d+: read maps: no access to the process \(.*CAP_SYS_PTRACE.*\): permission denied`))

	// The helper itself may be read by the helper, the test may not.
	result := h.do("pass", "/proc")
	numbers := regexp.MustCompile(`^denied=(\d+) access=(\d+) other=(\d+)$`).FindStringSubmatch(result)
	qt.Assert(t, qt.HasLen(numbers, 4), qt.Commentf(result))
	qt.Check(t, qt.Not(qt.Equals(numbers[1], "0")))
	qt.Check(t, qt.Equals(numbers[1], numbers[2]), qt.Commentf("each is reported once"))
}

func TestHiddenProcesses(t *testing.T) {
	testneeds.Root(t)
	for _, option := range []string{"noaccess", "invisible"} {
		t.Run(option, func(t *testing.T) {
			mount := t.TempDir()
			qt.Assert(t, qt.IsNil(os.Chmod(mount, 0o755)))
			qt.Assert(t, qt.IsNil(os.Chmod(mount+"/..", 0o755)))
			h := startHelper(t, unix.CLONE_NEWNS)
			h.do("private")
			h.do("mount", "proc", "proc", mount, "hidepid="+option)
			h.do("setuid", nobody)
			seen := h.do("pids", mount)
			answer := h.try("open", mount, strconv.Itoa(os.Getpid()), "")
			if option == "invisible" {
				qt.Check(t, qt.Matches(answer, `process \d+: read stat: no such process: .*`))
				// It sees itself.
				qt.Check(t, qt.Equals(seen, "1"))
			} else {
				qt.Check(t,
					qt.Matches(answer,
						`process \d+: read stat: no access to the process .*hidepid.*`))
			}
		})
	}
}

func TestOpenWithoutThePrivilegeForMapFiles(t *testing.T) {
	testneeds.Root(t)
	// By the path in the mount namespace of the process.
	container := t.TempDir()
	lib := traced(1).write(t, container, "lib/libtraced.so")
	process := startHelper(t, unix.CLONE_NEWNS)
	process.do("private")
	process.pivot(container)
	process.do("map", "/lib/libtraced.so")

	h := startHelper(t, 0)
	pid := strconv.Itoa(process.pid)
	qt.Check(t, qt.Matches(h.do("open", "/proc", pid, "libtraced"), `/proc/\d+/map_files/.*`))
	h.do("drop", strconv.Itoa(unix.CAP_SYS_ADMIN), strconv.Itoa(unix.CAP_CHECKPOINT_RESTORE))
	qt.Check(t, qt.Equals(h.do("open", "/proc", pid, "libtraced"),
		fmt.Sprintf("/proc/%s/root/lib/libtraced.so", pid)))

	unreachable := `process \d+: open "/lib/libtraced.so": the mapped file is not at its path .*CAP_CHECKPOINT_RESTORE.*: operation not permitted`
	traced(2).write(t, container, "lib/libtraced.so.new")
	qt.Assert(t, qt.IsNil(os.Rename(lib+".new", lib)))
	qt.Check(t, qt.Matches(h.try("open", "/proc", pid, "libtraced"), unreachable),
		qt.Commentf("another file has its path"))
	qt.Assert(t, qt.IsNil(os.Remove(lib)))
	qt.Check(t, qt.Matches(h.try("open", "/proc", pid, "libtraced"), unreachable),
		qt.Commentf("no file has its path"))
}
