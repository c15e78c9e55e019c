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
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/usdt"
)

func TestObjectForLibbpfIsRun(t *testing.T) {
	testprog.RequireBPF(t)
	testprog.LeakCheck(t)
	object := testprog.Path(t, "libbpf-installed/first.bpf.o")
	process := testprog.Start(t, "target-pie")
	target := usdt.Target{Path: testprog.Path(t, "target-pie"), PID: process.PID}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	reader, writer := io.Pipe()
	defer reader.Close() // what is written after a failure
	done := make(chan error, 1)
	go func() {
		err := run(ctx, writer, object, target, elfnote.Exact("gousdt_test", "narrow"))
		writer.CloseWithError(io.EOF)
		done <- err
	}()
	lines := bufio.NewScanner(reader)
	qt.Assert(t, qt.IsTrue(lines.Scan()), qt.Commentf("%v", lines.Err()))
	qt.Assert(t, qt.Matches(lines.Text(), `attached to 1 sites of ".*"`))
	process.Fire("narrow", 1)
	stop()
	const a, b = -0x3d, 0xc3 // the first arguments of the probe
	qt.Assert(t, qt.IsTrue(lines.Scan()))
	qt.Check(t, qt.Equals(lines.Text(), "sum = 73"))
	qt.Check(t, qt.Equals(a+b+a, 73))
	qt.Check(t, qt.IsFalse(lines.Scan()))
	qt.Assert(t, qt.IsNil(<-done))
}
