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

// The argument of the probe points to a page of a file that nobody has touched.
func TestMemoryThatIsNotThereIsWaitedFor(t *testing.T) {
	testneeds.Kernel(t, "6.0", "sleepable programs on uprobes")
	testprog.RequireBPF(t)
	for _, test := range []struct {
		name  string
		hurry bool
		want  string
	}{
		{"waits", false, `"\\x7fELF.*"`},
		{"hurries", true, "cannot be read: bad address"},
	} {
		t.Run(test.name, func(t *testing.T) {
			testprog.LeakCheck(t)
			process := testprog.Start(t, "target-pie")
			target := usdt.Target{Path: testprog.Path(t, "target-pie"), PID: process.PID}
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			reader, writer := io.Pipe()
			defer reader.Close() // what is written after a failure
			done := make(chan error, 1)
			go func() {
				err := run(ctx, writer, target, elfnote.Exact("gousdt_test", "cold"), test.hurry)
				writer.CloseWithError(io.EOF)
				done <- err
			}()
			lines := bufio.NewScanner(reader)
			qt.Assert(t, qt.IsTrue(lines.Scan()), qt.Commentf("%v", lines.Err()))
			qt.Assert(t, qt.Equals(lines.Text(), "attached"))
			process.Fire("cold", 1)
			qt.Assert(t, qt.IsTrue(lines.Scan()))
			qt.Check(t, qt.Matches(lines.Text(), test.want))
			stop()
			qt.Check(t, qt.IsFalse(lines.Scan()))
			qt.Assert(t, qt.IsNil(<-done))
		})
	}
}
