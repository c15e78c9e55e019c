// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package usdt_test

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/usdt"
	"github.com/gousdt/gousdt/watch"
)

// Many goroutines attach and close the same probes at the same time. At the end
// nothing is left, no spec is in use, and the kernel has counted each semaphore
// down as often as up.
func TestSoakAttachAndClose(t *testing.T) {
	c := newCollector(t, &usdt.ManagerOptions{MaxSpecs: 64})
	process := testprog.Start(t, "target-pie")
	probes := []string{"three", "twelve", "counted", "sizes", "guarded"}
	workers, cycles := testprog.Soak(8, 48), int64(testprog.Soak(100, 10_000))
	var done atomic.Int64
	var wait sync.WaitGroup
	for worker := range workers {
		wait.Go(func() {
			for n := worker; done.Add(1) <= cycles && !t.Failed(); n++ {
				target := usdt.Target{Path: testprog.Path(t, "target-pie")}
				if n%2 == 0 {
					target.PID = process.PID
				}
				lnk, err := c.Manager.Attach(c.Collect3, target,
					&usdt.AttachOptions{Cookie: uint64(n % 5)},
					elfnote.Exact(provider, probes[n%len(probes)]))
				var full *usdt.LimitError
				if errors.As(err, &full) {
					continue // for a moment: others have given none back yet
				}
				if err == nil {
					err = lnk.Close()
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wait.Wait()
	inUse, _ := c.SpecsInUse()
	qt.Check(t, qt.Equals(inUse, 0))
	qt.Check(t, qt.Equals(process.Semaphore("counted"), 0))
	qt.Check(t, qt.Equals(process.Semaphore("guarded"), 0))
	process.Fire("three", 10)
	c.silent(t)
}

// Programs are started and end all the time. Those that stay are attached, and
// those that have ended leave nothing.
func TestSoakWatchWhileProcessesComeAndGo(t *testing.T) {
	c := newCollector(t, nil)
	program := filepath.Join(t.TempDir(), "churn")
	copyFile(t, program, testprog.Path(t, "target-pie"))
	w, err := c.Watch(&watch.Options{
		Filter: only(program), PerProcess: true,
	}, nil, watching(t, c.Collect3, "gousdt_test:three", "gousdt_test:counted")...)
	qt.Assert(t, qt.IsNil(err))
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx, 50*time.Millisecond) }()

	workers, runs := testprog.Soak(4, 16), int64(testprog.Soak(60, 20_000))
	var started atomic.Int64
	var wait sync.WaitGroup
	for range workers {
		wait.Go(func() {
			for n := started.Add(1); n <= runs; n = started.Add(1) {
				run := exec.Command(program)
				stdin, err := run.StdinPipe()
				if err == nil {
					err = run.Start()
				}
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = stdin.Write([]byte("fire three " + strconv.Itoa(int(n%3)) + "\n"))
				if n%2 == 0 {
					_ = run.Process.Kill()
				}
				stdin.Close()
				_ = run.Wait()
			}
		})
	}
	wait.Wait()
	stays := testprog.Start(t, program)
	qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 0)))
	qt.Assert(t, qt.HasLen(w.Attachments(), 1))
	qt.Assert(t, qt.Equals(w.Attachments()[0].Process.PID, stays.PID))
	qt.Assert(t, qt.Equals(stays.Semaphore("counted"), 1))
	stop()
	qt.Assert(t, qt.ErrorIs(<-ended, context.Canceled))
	qt.Assert(t, qt.IsNil(w.Close()))
	qt.Assert(t, qt.Equals(stays.Semaphore("counted"), 0))
	inUse, _ := c.SpecsInUse()
	qt.Assert(t, qt.Equals(inUse, 0))
}
