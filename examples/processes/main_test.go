// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os/exec"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/usdt"
)

// Hundreds where one link is enough for a process, a few where closing it takes
// a tenth of a second for each.
func TestHitsAreCountedByProcess(t *testing.T) {
	testprog.RequireBPF(t)
	testprog.LeakCheck(t)
	mode, err := usdt.ModeAuto.Resolve()
	qt.Assert(t, qt.IsNil(err))
	idle := 2
	if mode == usdt.ModeMulti && !testing.Short() {
		idle = 200
	}

	path := testprog.Path(t, "target-static")
	processes := []*testprog.Process{testprog.Start(t, path), testprog.Start(t, path),
		testprog.Start(t, path)}
	var pids []int
	for range idle {
		cmd := exec.Command(path) // waits for a command on its standard input
		stdin, err := cmd.StdinPipe()
		qt.Assert(t, qt.IsNil(err))
		qt.Assert(t, qt.IsNil(cmd.Start()))
		defer cmd.Wait()
		defer stdin.Close()
		pids = append(pids, cmd.Process.Pid)
	}
	for _, process := range processes {
		pids = append(pids, process.PID)
	}

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	reader, writer := io.Pipe()
	defer reader.Close() // what is written after a failure
	done := make(chan error, 1)
	go func() {
		err := run(ctx, writer, path, pids, elfnote.Exact("gousdt_test", "three"))
		writer.CloseWithError(io.EOF)
		done <- err
	}()
	lines := bufio.NewScanner(reader)
	qt.Assert(t, qt.IsTrue(lines.Scan()), qt.Commentf("%v", lines.Err()))
	qt.Assert(t, qt.Equals(lines.Text(), fmt.Sprintf("attached, with %d specs", len(pids))))
	for i, process := range processes {
		process.Fire("three", 1+i)
	}
	stop()
	for i, pid := range pids {
		hits := max(0, 1+i-idle)
		qt.Assert(t, qt.IsTrue(lines.Scan()))
		qt.Assert(t, qt.Equals(lines.Text(), fmt.Sprintf("%8d  process %d", hits, pid)))
	}
	qt.Assert(t, qt.IsNil(<-done))
}
