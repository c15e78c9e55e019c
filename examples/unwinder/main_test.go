// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/usdt"
)

// The stack is deeper than one program walks.
func TestStacksAreWalkedByTailCalls(t *testing.T) {
	testprog.RequireBPF(t)
	testprog.LeakCheck(t)
	process := testprog.Start(t, "heap")
	library := filepath.Join(filepath.Dir(testprog.Path(t, "heap")), "libheap.so")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	reader, writer := io.Pipe()
	defer reader.Close() // what is written after a failure
	done := make(chan error, 1)
	go func() {
		err := run(ctx, writer, usdt.Target{Path: library, PID: process.PID},
			elfnote.Exact("otel_memory", "free"))
		writer.CloseWithError(io.EOF)
		done <- err
	}()
	lines := bufio.NewScanner(reader)
	qt.Assert(t, qt.IsTrue(lines.Scan()), qt.Commentf("%v", lines.Err()))
	qt.Assert(t, qt.Equals(lines.Text(), "attached"))
	_, err := process.Command("serve 1")
	qt.Assert(t, qt.IsNil(err))

	head := regexp.MustCompile(fmt.Sprintf(`^process %d, argument \d+, ([2-9]|\d\d) tail calls$`,
		process.PID))
	function := regexp.MustCompile(`^\t"(\w+)\+`)
	for range 100 { // one for each header of a request
		for !strings.HasPrefix(lines.Text(), "process") {
			qt.Assert(t, qt.IsTrue(lines.Scan())) // what is below main is the C library's
		}
		qt.Assert(t, qt.IsTrue(head.MatchString(lines.Text())), qt.Commentf("%q", lines.Text()))
		for _, want := range []string{"heap_free", "parse_request", "serve", "main"} {
			qt.Assert(t, qt.IsTrue(lines.Scan()))
			match := function.FindStringSubmatch(lines.Text())
			qt.Assert(t, qt.HasLen(match, 2), qt.Commentf("%q", lines.Text()))
			qt.Assert(t, qt.Equals(match[1], want))
		}
	}
	stop()
	_, err = io.Copy(io.Discard, reader)
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(<-done))
}
