// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/testneeds"
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

// printed adds up the statements that are printed.
type printed struct{ sum atomic.Int64 }

func (p *printed) Write(b []byte) (int, error) {
	for line := range bytes.Lines(b) {
		_, count, _ := bytes.Cut(line, []byte("  "))
		var n int64
		if _, err := fmt.Sscan(string(count), &n); err != nil {
			return 0, fmt.Errorf("%q: %w", line, err)
		}
		p.sum.Add(n)
	}
	return len(b), nil
}

// No program dies because it is watched while it is deployed, and its
// statements are counted. There may be those of other servers, too.
func TestDeployments(t *testing.T) {
	if !testprog.InPrivateMounts(t) {
		return
	}
	d := testprog.NewDeployments(t, 1)
	d.Pause = testprog.Soak(50*time.Millisecond, d.Pause)
	ctx, stop := context.WithCancel(t.Context())
	all := &printed{}
	done := make(chan error, 1)
	go func() { done <- run(ctx, all, time.Millisecond) }()
	before, first := make(map[int]int64), make(map[int]int)
	d.Counted = func(run, passed int) (counted, missed int) {
		if _, known := before[run]; !known {
			before[run] = all.sum.Load()
		}
		counted = int(all.sum.Load() - before[run])
		if expected, again := first[run]; again {
			expected += testprog.DeployedMore
			until := time.Now().Add(testneeds.Patience(10 * time.Second))
			for counted < expected && time.Now().Before(until) {
				time.Sleep(time.Millisecond)
				counted = int(all.sum.Load() - before[run])
			}
			return min(counted, expected), 0
		} else if passed > 0 {
			first[run] = counted
		}
		return counted, 0
	}
	for kind, dir := range d.Dirs { // the process of a statement is not printed
		d.Dirs = map[string]string{kind: dir}
		d.Run(t, "agent", testprog.Soak(2, 250), 0)
	}
	stop()
	qt.Assert(t, qt.IsNil(<-done))
}
