// SPDX-License-Identifier: BSD-2-Clause

//go:build linux && (386 || amd64 || arm64)

package main

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/usdt"
)

func TestCallsArePrintedUntilStopped(t *testing.T) {
	testprog.RequireBPF(t)
	testprog.LeakCheck(t)
	python := testprog.StartPython(t, testprog.CallsOfPython)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	reader, writer := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := run(ctx, writer, usdt.Target{Path: python.File, PID: python.PID})
		writer.CloseWithError(cmp.Or(err, io.EOF))
		done <- err
	}()

	lines := bufio.NewScanner(reader)
	qt.Assert(t, qt.IsTrue(lines.Scan()), qt.Commentf("%v", lines.Err()))
	qt.Assert(t, qt.Equals(lines.Text(), "attached"))
	python.Do("call")
	want := fmt.Sprintf("%d %s:%d %s", python.PID, python.Script, python.Line,
		python.Function)
	for lines.Scan() && lines.Text() != want {
		// The interpreter's own functions come first.
		qt.Assert(t, qt.IsTrue(strings.HasPrefix(lines.Text(), fmt.Sprint(python.PID))))
	}
	qt.Assert(t, qt.Equals(lines.Text(), want))

	stop()
	_, err := io.Copy(io.Discard, reader)
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(<-done))
}
