// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package trace_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/proc"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
	"github.com/gousdt/gousdt/watch"
)

// If any system call fails while a session is opened, read and closed, there is
// an error or the numbers are right, and nothing stays attached.
func TestFaultsOfASession(t *testing.T) {
	if !testprog.WithFaults(t) {
		return
	}
	process := start(t, "target-pie")
	faults := testprog.NewFaults(t)
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		faults.Each(t, func(t *testing.T) (err error) {
			counted := trace.NewAggregator(trace.Aggregation{Value: "arg0", Sum: true})
			s, err := trace.Open(usdt.Target{Path: process.path, PID: process.PID},
				&trace.SessionOptions{Mode: mode, Family: process.PID,
					Aggregators: []*trace.Aggregator{counted},
					Events:      &trace.EventOptions{}}, elfnote.Exact("gousdt_test",
					"three"))
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, s.Close()) }()
			process.Fire("three", 3)
			ctx, cancel := context.WithTimeout(context.Background(), testneeds.Patience(patience))
			defer cancel()
			events := 0
			for _, err := range s.Events(ctx) {
				if err != nil {
					return err
				}
				if events++; events == 3 {
					break
				}
			}
			qt.Check(t, qt.Equals(events, 3))
			snapshot, err := counted.Snapshot()
			if err != nil {
				return err
			}
			if len(snapshot.Rows) != 1 || snapshot.Rows[0].Count != 3 {
				t.Errorf("rows: %v", fmt.Sprint(snapshot.Rows))
			}
			return nil
		}, func(t *testing.T, _ error) { process.Fire("three", 1) })
	})
}

// A file that a watch cannot attach because of a passing fault is attached at
// the next scan.
func TestFaultsOfAWatch(t *testing.T) {
	if !testprog.WithFaults(t) {
		return
	}
	process := start(t, "target-pie")
	faults := testprog.NewFaults(t)
	faults.FirstErrors = true
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		s, err := trace.New(&trace.SessionOptions{Mode: mode})
		qt.Assert(t, qt.IsNil(err))
		defer s.Close()
		faults.Each(t, func(t *testing.T) (err error) {
			w, err := s.Watch(&watch.Options{
				Filter: func(p proc.Process) bool {
					return p.PID == process.PID
				},
			}, func(c *watch.Changes[*trace.Attachment]) {
				err = errors.Join(err,
					errors.Join(c.Errors...))
			}, elfnote.Exact("gousdt_test", "three"))
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, w.Close()) }()
			err = errors.Join(err, w.SyncAll(t.Context()))
			if len(s.Attachments()) == 0 {
				qt.Check(t, qt.IsNotNil(err), qt.Commentf("nothing attached, and no error"))
				qt.Check(t, qt.IsNil(w.SyncAll(t.Context())))
			}
			// Only what a busy machine has set aside takes more than two scans.
			if len(s.Attachments()) == 0 && errors.Is(err, proc.ErrBlocked) {
				testneeds.Await(t, 20*time.Second, "it is attached", func() bool {
					qt.Check(t, qt.IsNil(w.SyncAll(t.Context())))
					return len(s.Attachments()) > 0
				})
			}
			qt.Assert(t, qt.HasLen(s.Attachments(), 1), qt.Commentf("%v", err))
			process.Fire("three", 2)
			next(t, s, 2)
			return err
		}, func(t *testing.T, _ error) { process.Fire("three", 1) })
	})
}
