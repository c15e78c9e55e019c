// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package main

import (
	"bufio"
	"context"
	"io"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/usdt"
)

// The traced program writes an answer after each probe: it is a write of the
// statement after the start of one, and of none after the end.
func TestWritesAreCountedByStatement(t *testing.T) {
	testprog.RequireBPF(t)
	testneeds.EventSource(t, "kprobe", "kprobes (CONFIG_KPROBES)")
	testprog.LeakCheck(t)
	process := testprog.Start(t, "target-pie")
	target := usdt.Target{Path: testprog.Path(t, "target-pie"), PID: process.PID}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	reader, writer := io.Pipe()
	defer reader.Close() // what is written after a failure
	done := make(chan error, 1)
	go func() {
		err := run(ctx, writer, target, elfnote.Exact("gousdt_test", "strings"),
			elfnote.Exact("gousdt_test", "none"))
		writer.CloseWithError(io.EOF)
		done <- err
	}()
	lines := bufio.NewScanner(reader)
	qt.Assert(t, qt.IsTrue(lines.Scan()), qt.Commentf("%v", lines.Err()))
	qt.Assert(t, qt.Equals(lines.Text(), "attached"))
	process.Fire("twelve", 1)
	for range 2 {
		process.Fire("strings", 1)
		process.Fire("twelve", 3)
		process.Fire("none", 1)
		process.Fire("twelve", 1)
	}
	stop()
	qt.Assert(t, qt.IsTrue(lines.Scan()))
	qt.Check(t, qt.Equals(lines.Text(), `       4  "hello, gousdt"`))
	qt.Check(t, qt.IsFalse(lines.Scan()))
	qt.Assert(t, qt.IsNil(<-done))
}
