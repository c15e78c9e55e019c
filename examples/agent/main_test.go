// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package main

import (
	"bufio"
	"context"
	"io"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/testprog"
)

func TestQueriesAreMeasuredUntilStopped(t *testing.T) {
	testprog.RequireBPF(t)
	postgres := testprog.StartPostgres(t)
	testprog.LeakCheck(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	reader, writer := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := run(ctx, writer, 200*time.Millisecond)
		writer.CloseWithError(io.EOF)
		done <- err
	}()
	rows := make(chan string)
	go func() {
		defer close(rows)
		for lines := bufio.NewScanner(reader); lines.Scan(); {
			rows <- lines.Text()
		}
	}()
	for row := ""; row == ""; {
		qt.Assert(t, qt.Equals(postgres.Query("SELECT 1"), "1"))
		select {
		case row = <-rows:
			qt.Check(t,
				qt.Matches(row, `\S+  \d+ statements, half of them within \S+, 99 % within \S+`))
		default:
		}
	}
	stop()
	for range rows {
	}
	qt.Assert(t, qt.IsNil(<-done))
}
