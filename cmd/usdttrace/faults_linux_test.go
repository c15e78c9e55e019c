// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
)

// Whatever a file of the proc file system or the kernel answers while all
// processes are watched, usdttrace either traces the program or ends and says
// why. Ctrl-C ends it, and nothing stays attached.
func TestFaultsWhileAllIsWatched(t *testing.T) {
	if !testprog.WithFaults(t) {
		return
	}
	// Tests of other packages count the tracers of gousdt_test:counted.
	path := copyOf(t, "target-pie")
	contents, err := os.ReadFile(path)
	qt.Assert(t, qt.IsNil(err))
	contents = bytes.ReplaceAll(contents, []byte("gousdt_test\x00"), []byte("gousdt_only\x00"))
	testprog.WriteProgram(t, path, contents)
	process := startProgram(t, path)
	nothing, err := os.Open(os.DevNull) // opened before, so that this does not fail
	qt.Assert(t, qt.IsNil(err))
	defer nothing.Close()
	faults := testprog.NewFaults(t)
	faults.Each(t, func(t *testing.T) error {
		ctx, cancel := context.WithTimeout(context.Background(), testneeds.Patience(runDeadline))
		defer cancel()
		var stdout, stderr watched
		command := exec.CommandContext(ctx, "/proc/self/exe", "-a", "gousdt_only:counted")
		command.Env = append(os.Environ(), runVariable+"=1")
		command.Stdin, command.Stdout, command.Stderr = nothing, &stdout, &stderr
		if err := command.Start(); err != nil {
			return err
		}
		ended := make(chan error, 1)
		go func() { ended <- command.Wait() }()
		leftOut := fmt.Sprintf("usdttrace: process %d ", process.PID)
		// Hits before it says that it watches are no events.
		for process.Semaphore("counted") == 0 || !strings.Contains(stderr.String(), "watching ") {
			if strings.Contains(stderr.String(), leftOut) {
				// It goes on with others that may come.
				_ = command.Process.Signal(syscall.SIGINT)
				return errors.Join(<-ended, errors.New(stderr.String()))
			}
			select {
			case err := <-ended:
				qt.Check(t, qt.Not(qt.Equals(stderr.String(), "")))
				qt.Check(t, qt.IsNil(ctx.Err()), qt.Commentf("%s", &stderr))
				return fmt.Errorf("%w: %s", err, &stderr)
			case <-time.After(time.Millisecond):
			}
		}
		process.Fire("counted", 1)
		_ = command.Process.Signal(syscall.SIGINT) // it may have ended
		err := <-ended
		qt.Check(t, qt.IsNil(ctx.Err()), qt.Commentf("%s", &stderr))
		hits := strings.Count(stdout.String(), fmt.Sprintf(" %d ", process.PID))
		qt.Check(t, qt.Equals(err != nil || hits > 0, true),
			qt.Commentf("%s\n%s", &stdout, &stderr))
		return err
	}, func(t *testing.T, _ error) {
		qt.Check(t, qt.Equals(process.Semaphore("counted"), 0))
	}, "openat", "bpf")
}

// Where the output cannot be written usdttrace ends at once and says so, and
// leaves nothing attached.
func TestOutputThatFails(t *testing.T) {
	process := startTarget(t, "target-pie")
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	qt.Assert(t, qt.IsNil(err))
	defer full.Close()
	for _, flags := range [][]string{nil, {"--json"},
		{"--count", "--interval", "0.02"}} {
		args := append(flags, "-p", decimal(process.PID), "gousdt_test:counted")
		r := startPrepared(t, func(cmd *exec.Cmd) { cmd.Stdout = full }, args...)
		r.await(&r.stderr, "(Ctrl-C ends)")
		process.Fire("counted", 1)
		result := r.wait()
		qt.Check(t, qt.Equals(result.status, exitError))
		qt.Check(t, qt.StringContains(result.stderr, "writing the output: no space left on device"))
		qt.Check(t, qt.Equals(process.Semaphore("counted"), 0))
	}
}

// A file that cannot be written to its end has whole lines, and is not left
// behind without any.
func TestOutputFilesThatFail(t *testing.T) {
	testprog.Parallel(t)
	process := startTarget(t, "target-pie")
	folder := t.TempDir()
	if err := unix.Mount("none", folder, "tmpfs", 0, "size=4k"); err != nil {
		testneeds.Missing(t, "needs a small file system: %v", err)
	}
	t.Cleanup(func() { qt.Check(t, qt.IsNil(unix.Unmount(folder, 0))) })
	path := filepath.Join(folder, "out")
	fails := func(fire int, meanwhile func(), path string) string {
		r := start(t, "--json", "-o", path, "-p", decimal(process.PID), "gousdt_test:counted")
		r.await(&r.stderr, "(Ctrl-C ends)")
		meanwhile()
		process.Fire("counted", fire)
		result := r.wait()
		qt.Check(t, qt.Equals(result.status, exitError))
		return result.stderr
	}
	said := fails(100, func() {}, path)
	qt.Check(t, qt.StringContains(said, "--output: "+path+
		" is incomplete: writing it: no space left on device"))
	text, err := os.ReadFile(path)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Matches(string(text), `(?s)\{.*\}\n`))

	qt.Assert(t, qt.IsNil(os.Remove(path)))
	other := filepath.Join(folder, "other")
	qt.Assert(t, qt.IsNil(os.WriteFile(other, make([]byte, 4096), 0o666)))
	qt.Check(t, qt.StringContains(fails(1, func() {}, path), path+" is removed, for it has nothing: "))
	_, err = os.Stat(path)
	qt.Check(t, qt.ErrorIs(err, os.ErrNotExist))

	pipe := filepath.Join(t.TempDir(), "pipe")
	qt.Assert(t, qt.IsNil(unix.Mkfifo(pipe, 0o600)))
	reader, err := os.OpenFile(pipe, os.O_RDONLY|unix.O_NONBLOCK, 0)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.StringContains(fails(1, func() { reader.Close() }, pipe),
		pipe+" is incomplete: writing it: broken pipe"))
}
