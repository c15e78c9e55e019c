// SPDX-License-Identifier: BSD-2-Clause

package procwatch

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/internal/procfs"
	"github.com/gousdt/gousdt/internal/testneeds"
)

// The test binary run with this variable is the helper: a process that does
// what it is told, one command per line, its words separated by tabs, and
// answers with a line: "ok" and a result, or what went wrong.
const helperVariable = "PROC_TEST_HELPER"

// The helper's first thread runs its commands, so that it can end (see
// leaderless), and so that privileges, which threads have each for themselves,
// are the same for all commands.
var _ = func() struct{} {
	if os.Getenv(helperVariable) != "" {
		runtime.LockOSThread()
	}
	return struct{}{}
}()

func TestMain(m *testing.M) {
	if os.Getenv(helperVariable) != "" {
		helperMain()
		return
	}
	os.Exit(m.Run())
}

var lastMapped []byte
var started = map[string]io.Closer{}

var helperCommands = map[string]func(args []string) (string, error){
	"leaderless": nil,
	// map PATH maps a file executable, as the loader does.
	"map": func(args []string) (string, error) {
		file, err := os.Open(args[0])
		if err != nil {
			return "", err
		}
		defer file.Close()
		return mapExecutable(int(file.Fd()))
	},
	// maps PATH maps a file without the right to execute it.
	"maps": func(args []string) (string, error) {
		file, err := os.Open(args[0])
		if err != nil {
			return "", err
		}
		defer file.Close()
		_, err = unix.Mmap(int(file.Fd()), 0, 0x2000, unix.PROT_READ, unix.MAP_PRIVATE)
		return "", err
	},
	"unmap": func([]string) (string, error) { return "", unix.Munmap(lastMapped) },
	// memfd PATH maps a copy in a file that has no path.
	"memfd": func(args []string) (string, error) {
		content, err := os.ReadFile(args[0])
		if err != nil {
			return "", err
		}
		fd, err := unix.MemfdCreate("provider", unix.MFD_CLOEXEC)
		if err != nil {
			return "", err
		}
		defer unix.Close(fd)
		if _, err := unix.Write(fd, content); err != nil {
			return "", err
		}
		return mapExecutable(fd)
	},
	// write PATH TEXT appends to a file.
	"write": func(args []string) (string, error) {
		file, err := os.OpenFile(args[0], os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			return "", err
		}
		_, err = file.WriteString(args[1])
		return "", errors.Join(err, file.Close())
	},
	// exec starts the helper anew in the same process.
	"exec": func([]string) (string, error) {
		return "", syscall.Exec("/proc/self/exe", os.Args, os.Environ())
	},
	// mount TYPE SOURCE TARGET OPTIONS, where a type "bind" binds.
	"mount": func(args []string) (string, error) {
		if args[0] == "bind" {
			return "", unix.Mount(args[1], args[2], "", unix.MS_BIND, "")
		}
		return "", unix.Mount(args[1], args[2], args[0], 0, args[3])
	},
	// private keeps what is mounted from other namespaces.
	"private": func([]string) (string, error) {
		return "", unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	},
	"chroot": func(args []string) (string, error) {
		return "", errors.Join(unix.Chroot(args[0]), os.Chdir("/"))
	},
	// pivot makes a directory the root of the mount namespace.
	"pivot": func(args []string) (string, error) {
		return "", errors.Join(
			unix.Mount(args[0], args[0], "", unix.MS_BIND|unix.MS_REC, ""),
			os.Chdir(args[0]),
			unix.PivotRoot(".", "."),
			unix.Unmount(".", unix.MNT_DETACH),
			os.Chdir("/"))
	},
	// start PATH runs waitCode, with a pipe for its input, and answers its PID
	// in the helper's namespace.
	"start": func(args []string) (string, error) {
		p, err := startProgram(args[0])
		if err != nil {
			return "", err
		}
		pid := strconv.Itoa(p.Process.Pid)
		started[pid] = p
		return pid, nil
	},
	// stop PID ends it and waits for it.
	"stop": func(args []string) (string, error) { return "", started[args[0]].Close() },
	// lastpid PID has the next process get the next PID.
	"lastpid": func(args []string) (string, error) {
		return "", os.WriteFile("/proc/sys/kernel/ns_last_pid", []byte(args[0]), 0)
	},
	// tick waits until the clock by which start times are told has gone on.
	"tick": func([]string) (string, error) {
		time.Sleep(20 * time.Millisecond)
		return "", nil
	},
	"setuid": func(args []string) (string, error) {
		uid, err := strconv.Atoi(args[0])
		return "", errors.Join(err, syscall.Setgroups(nil), syscall.Setgid(uid),
			syscall.Setuid(uid))
	},
	// drop CAPABILITY... drops capabilities of the first thread, by number.
	"drop": func(args []string) (string, error) {
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var data [2]unix.CapUserData
		if err := unix.Capget(&header, &data[0]); err != nil {
			return "", err
		}
		for _, arg := range args {
			n, err := strconv.Atoi(arg)
			if err != nil {
				return "", err
			}
			data[n/32].Effective &^= 1 << (n % 32)
			data[n/32].Permitted &^= 1 << (n % 32)
		}
		return "", unix.Capset(&header, &data[0])
	},
	// open ROOT PID TEXT answers how the files whose paths contain the text are
	// reached, or what prevents it.
	"open": func(args []string) (string, error) {
		pid, err := strconv.Atoi(args[1])
		if err != nil {
			return "", err
		}
		files, err := procfs.Files(procfs.FS(args[0]), pid)
		if err != nil {
			return "", err
		}
		var results []string
		for _, m := range files {
			if !strings.Contains(m.Path, args[2]) {
				continue
			}
			file, err := m.Open()
			if err != nil {
				return "", err
			}
			file.Close()
			results = append(results, m.OpenedPath)
		}
		return strings.Join(results, " "), nil
	},
	// pids ROOT answers how many processes are seen.
	"pids": func(args []string) (string, error) {
		pids, err := procfs.FS(args[0]).PIDs()
		return fmt.Sprint(len(pids)), err
	},
	// pass ROOT scans all processes as a watcher does.
	"pass": func(args []string) (string, error) {
		access, other := 0, 0
		w := NewWatcher(&WatcherOptions{FS: procfs.FS(args[0]), Handler: func(c *Changes) {
			for _, err := range c.Errors {
				if errors.Is(err, procfs.ErrAccess) && (errors.Is(err, unix.EACCES) ||
					errors.Is(err, unix.EPERM)) {
					access++
				} else {
					other++
				}
			}
		}})
		defer w.Close()
		err := w.Sync(context.Background(), 0)
		return fmt.Sprintf("denied=%d access=%d other=%d", w.Stats().Denied, access, other), err
	},
}

// program is a process that ends when its input does.
type program struct {
	*exec.Cmd
	input io.Closer
}

// startProgram runs a file with waitCode and returns when it does: exec is
// known to have succeeded before anything is mapped.
func startProgram(path string) (*program, error) {
	cmd := exec.Command(path)
	input, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	if _, err := output.Read(make([]byte, 1)); err != nil {
		return nil, err
	}
	return &program{cmd, input}, nil
}

// Close ends the program and waits for it.
func (p *program) Close() error { return errors.Join(p.input.Close(), p.Wait()) }

// helper is the test's end of a helper.
type helper struct {
	t      testing.TB
	cmd    *exec.Cmd
	input  io.WriteCloser
	output *bufio.Scanner
	pid    int
}

// startHelper runs a helper, in new namespaces if flags name some.
func startHelper(t testing.TB, flags uintptr) *helper {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), helperVariable+"=1")
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags}
	if flags&unix.CLONE_NEWUSER != 0 {
		mapping := []syscall.SysProcIDMap{{Size: 1}} // root is root
		cmd.SysProcAttr.UidMappings, cmd.SysProcAttr.GidMappings = mapping, mapping
	}
	input, err := cmd.StdinPipe()
	qt.Assert(t, qt.IsNil(err))
	output, err := cmd.StdoutPipe()
	qt.Assert(t, qt.IsNil(err))
	err = cmd.Start()
	if flags&unix.CLONE_NEWUSER != 0 && errors.Is(err, unix.EPERM) {
		testneeds.Missing(t, "needs the right to create a user namespace, which a chroot does not give")
	}
	qt.Assert(t, qt.IsNil(err))
	h := &helper{t: t, cmd: cmd, input: input, output: bufio.NewScanner(output),
		pid: cmd.Process.Pid}
	t.Cleanup(h.stop)
	h.answer()
	return h
}

func (h *helper) stop() {
	if h.cmd.ProcessState == nil {
		h.input.Close()
		_ = h.cmd.Wait() // killed, in some tests
	}
}

// try gives a command and returns the answer.
func (h *helper) try(words ...string) string {
	h.t.Helper()
	_, err := fmt.Fprintln(h.input, strings.Join(words, "\t"))
	qt.Assert(h.t, qt.IsNil(err))
	qt.Assert(h.t, qt.IsTrue(h.output.Scan()), qt.Commentf("helper ended"))
	return h.output.Text()
}

// do gives a command that must succeed and returns its result.
func (h *helper) do(words ...string) string {
	h.t.Helper()
	answer := h.try(words...)
	result, ok := strings.CutPrefix(answer, "ok")
	qt.Assert(h.t, qt.IsTrue(ok), qt.Commentf("%s: %s", words[0], answer))
	return strings.TrimSpace(result)
}

// pivot gives the helper another root. The initramfs cannot be replaced as one.
func (h *helper) pivot(root string) {
	h.t.Helper()
	mounts, err := os.ReadFile("/proc/self/mounts")
	qt.Assert(h.t, qt.IsNil(err))
	if strings.HasPrefix(string(mounts), "rootfs / ") {
		testneeds.Missing(h.t, "needs a root file system other than the initramfs")
	}
	h.do("pivot", root)
}

// mountOverlay mounts an overlayfs at target. A small kernel has none.
func (h *helper) mountOverlay(target, options string) {
	h.t.Helper()
	answer := h.try("mount", "overlay", "overlay", target, options)
	if strings.HasSuffix(answer, unix.ENODEV.Error()) {
		testneeds.Missing(h.t, "needs overlayfs in the kernel")
	}
	qt.Assert(h.t, qt.Matches(answer, "ok.*"))
}

// needBirthTime skips tests of a file system on which a deletion makes another
// file (see procfs.FileID).
func needBirthTime(t testing.TB, path string) {
	t.Helper()
	var st unix.Statx_t
	qt.Assert(t, qt.IsNil(unix.Statx(unix.AT_FDCWD, path, 0, unix.STATX_BTIME, &st)))
	if st.Mask&unix.STATX_BTIME == 0 {
		testneeds.Missing(t, "needs a file system that keeps times of birth at %s", path)
	}
}

// answer waits for a line that follows no command: the helper has started.
func (h *helper) answer() {
	h.t.Helper()
	qt.Assert(h.t, qt.IsTrue(h.output.Scan()), qt.Commentf("helper ended"))
	qt.Assert(h.t, qt.Equals(h.output.Text(), "ok"))
}

// traced is a library with probes of a provider that no other process has, so
// that tests on the real /proc see nothing but their own processes.
func traced(tag byte) testELF {
	return testELF{probes: [][2]string{{tracedProvider(), "alloc"}}, tag: tag}
}

func tracedProvider() string { return fmt.Sprintf("proc_test_%d", os.Getpid()) }
