// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package usdt_test

import (
	"errors"
	"testing"
	"time"

	"github.com/cilium/ebpf/ringbuf"
	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/testbpf"
	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/usdt"
	"github.com/gousdt/gousdt/usdt/proc"
	"github.com/gousdt/gousdt/watch"
)

// If any one system call fails, either an error is returned and nothing stays
// attached, nor any semaphore up, or attaching works.
func TestFaultsWhileAttaching(t *testing.T) {
	if !testprog.WithFaults(t) {
		return
	}
	process := testprog.Start(t, "target-pie")
	faults := testprog.NewFaults(t)
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		faults.Each(t, func(t *testing.T) (err error) {
			return attachAndFire(t, process, &usdt.ManagerOptions{Mode: mode})
		}, func(t *testing.T, _ error) { checkUntouched(t, process) })
	})
}

// attachAndFire loads and attaches a program, passes its probe twice, and
// detaches it.
func attachAndFire(t *testing.T, process *testprog.Process, opts *usdt.ManagerOptions) (err error) {
	spec, err := testbpf.LoadArgs()
	if err != nil {
		return err
	}
	mgr, err := usdt.NewManager(spec, opts)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, mgr.Close()) }()
	var objs testbpf.ArgsObjects
	if err := spec.LoadAndAssign(&objs, mgr.CollectionOptions()); err != nil {
		return err
	}
	defer objs.Close()
	lnk, err := mgr.Attach(objs.Collect,
		usdt.Target{Path: testprog.Path(t, "target-pie"), PID: process.PID}, nil,
		elfnote.Exact(provider, "counted"), elfnote.Exact(provider, "three"))
	if err != nil {
		return err
	}
	events, err := ringbuf.NewReader(objs.Events)
	if err != nil {
		return err
	}
	defer events.Close()
	process.Fire("three", 2)
	events.SetDeadline(time.Now().Add(testneeds.Patience(10 * time.Second)))
	for range 2 {
		if _, err := events.Read(); err != nil {
			return err
		}
	}
	qt.Check(t, qt.Equals(process.Semaphore("counted"), 1))
	return lnk.Close()
}

// A file that fails once is attached by the next scan, or by the same one.
func TestFaultsWhileWatching(t *testing.T) {
	if !testprog.WithFaults(t) {
		return
	}
	process := testprog.Start(t, "target-pie")
	faults := testprog.NewFaults(t)
	faults.FirstErrors = true
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		spec, err := testbpf.LoadArgs()
		qt.Assert(t, qt.IsNil(err))
		mgr, err := usdt.NewManager(spec, &usdt.ManagerOptions{Mode: mode})
		qt.Assert(t, qt.IsNil(err))
		defer mgr.Close()
		var objs testbpf.ArgsObjects
		load(t, spec, &objs, mgr.CollectionOptions())
		defer objs.Close()

		faults.Each(t, func(t *testing.T) (err error) {
			w, err := watchPrograms(mgr, &watch.Options{
				Filter: func(p proc.Process) bool {
					return p.PID == process.PID
				},
				PerProcess: true,
			}, func(c *watch.Changes[*watchAttachment]) {
				err = errors.Join(err,
					errors.Join(c.Errors...))
			}, watchProgram{Program: objs.Collect,
				Patterns: []elfnote.Pattern{elfnote.Exact(provider, "counted")}})
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, w.Close()) }()
			err = errors.Join(err, w.Sync(t.Context(), 0))
			if len(w.Attachments()) == 0 {
				qt.Check(t, qt.IsNotNil(err), qt.Commentf("nothing attached, and no error"))
				qt.Check(t, qt.IsNil(w.Sync(t.Context(), 0)))
			}
			// Only what a busy machine has set aside takes more than two scans.
			if len(w.Attachments()) == 0 && errors.Is(err, proc.ErrBlocked) {
				testneeds.Await(t, 20*time.Second, "it is attached", func() bool {
					qt.Check(t, qt.IsNil(w.Sync(t.Context(), 0)))
					return len(w.Attachments()) > 0
				})
			}
			qt.Assert(t, qt.HasLen(w.Attachments(), 1), qt.Commentf("%v", err))
			qt.Check(t, qt.Equals(process.Semaphore("counted"), 1))
			return err
		}, func(t *testing.T, _ error) { checkUntouched(t, process) })
	})
}

// checkUntouched asserts that a process runs, and that nothing is attached to
// its probe with a semaphore.
func checkUntouched(t *testing.T, process *testprog.Process) {
	t.Helper()
	testneeds.Await(t, 20*time.Second, "the semaphore is down",
		func() bool { return process.Semaphore("counted") == 0 })
	process.Fire("three", 1)
}
