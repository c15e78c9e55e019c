// SPDX-License-Identifier: BSD-2-Clause

package testprog

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/internal/testneeds"
)

// Hostile is a user without privileges, in namespaces of its own, who serves a
// file system in them. testdata/README.md lists what it can be told to do.
type Hostile struct {
	*Process
	// Server is the process that serves the file system.
	Server int
	// File is the path of its file on overlayfs, for the process itself.
	File string
}

// missingInKernel is the exit status of hostile where the kernel lacks what it
// needs.
const missingInKernel = 77

// StartHostile starts a hostile user who serves one file with these contents,
// and has it below overlayfs. The end of the test kills its processes.
func StartHostile(t testing.TB, user int, contents string, environment ...string) *Hostile {
	t.Helper()
	testneeds.Root(t)
	testneeds.Kernel(t, "5.11", "overlayfs in user namespaces")
	const name = "program"
	dir := t.TempDir()
	for _, sub := range []string{"fuse", "merged", "writable"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	// As it is where udev sets the permissions.
	device := filepath.Join(dir, "device")
	if err := unix.Mknod(device, unix.S_IFCHR, int(unix.Mkdev(10, 229))); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(device, 0o666); err != nil {
		t.Fatal(err)
	}
	command := exec.Command(Path(t, "hostile"), strconv.Itoa(user), dir, name, contents)
	command.Env = append(os.Environ(), environment...)
	h := &Hostile{Process: StartCommand(t, command), File: filepath.Join("merged", name)}
	answer, err := h.Command("pid")
	if state := command.ProcessState; err != nil && state != nil &&
		state.ExitCode() == missingInKernel {
		testneeds.Missing(t, "needs FUSE and user namespaces in the kernel: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if h.Server, err = strconv.Atoi(answer); err != nil {
		t.Fatal(err)
	}
	// First of all: nothing that waits for it can end before.
	t.Cleanup(func() { _ = unix.Kill(h.Server, unix.SIGKILL) }) // it may have ended
	if _, err := h.Command("mount"); err != nil {
		if strings.Contains(strings.ToLower(err.Error()), unix.ENODEV.Error()) {
			testneeds.Missing(t, "needs overlayfs in the kernel: %v", err)
		}
		t.Fatal(err)
	}
	return h
}

// Do gives commands.
func (h *Hostile) Do(commands ...string) {
	h.t.Helper()
	for _, command := range commands {
		h.must("%s", command)
	}
}

// Forge has the file say that it is another one.
func (h *Hostile) Forge(path string) {
	h.t.Helper()
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, path, 0, unix.STATX_BASIC_STATS|unix.STATX_BTIME,
		&st); err != nil {
		h.t.Fatal(err)
	}
	numbers := []string{fmt.Sprint(st.Ino), fmt.Sprint(st.Size)}
	for _, at := range []unix.StatxTimestamp{st.Btime, st.Mtime, st.Ctime} {
		numbers = append(numbers, fmt.Sprint(at.Sec*1e9+int64(at.Nsec)))
	}
	h.Do("forge " + strings.Join(numbers, " "))
}

// Unanswering are hostile users by PID. Each has a process that makes a scan of
// it wait for ever.
type Unanswering map[int]string

// CanBeAttached is the one of them whose file is only never closed.
const CanBeAttached = "a file that is never closed"

// StartUnanswering starts hostile users of all kinds, whose file is a program.
func StartUnanswering(t testing.TB, program string) Unanswering {
	t.Helper()
	kinds := map[string][]string{
		"a server that is stopped":        {"map ", "freeze"},
		"a file that is never identified": {"map ", fmt.Sprint("stop ", FUSEGetattr)},
		"a file that is never opened":     {"map ", fmt.Sprint("stop ", FUSEOpen)},
		"a file that is never read":       {"map ", fmt.Sprint("stop ", FUSERead)},
		CanBeAttached:                     {"map ", fmt.Sprint("stop ", FUSEFlush)},
	}
	if testneeds.KernelAtLeast(t, "6.16") {
		// Others write back a copy of a page, so that munmap waits for nobody.
		kinds["a process stuck in munmap"] = []string{"stuck fuse/program"}
	}
	user, all := 1000, make(Unanswering)
	for what, commands := range kinds {
		user++
		h := StartHostile(t, user, program)
		for _, command := range commands {
			if strings.HasSuffix(command, " ") {
				command += h.File
			}
			h.Do(command)
		}
		all[h.PID] = what
	}
	return all
}
