// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package usdt_test

import (
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/usdt"
	"github.com/gousdt/gousdt/watch"
)

// watchLingering watches a probe of two programs that are attached for every
// process in all modes. It returns channels of what is attached and detached.
func watchLingering(t *testing.T, c *collector, linger time.Duration, opts usdt.AttachOptions,
	programs ...string) (w *watched, attached, detached chan *watchAttachment) {
	t.Helper()
	attached, detached = make(chan *watchAttachment, 100), make(chan *watchAttachment, 100)
	watched := watching(t, c.Collect, "gousdt_test:three")
	watched[0].OptionsFor = always(opts)
	w, err := c.Watch(&watch.Options{
		Linger: linger,
		Filter: only(programs...),
	}, func(changes *watch.Changes[*watchAttachment]) {
		for _, a := range changes.Attached {
			attached <- a
		}
		for _, a := range changes.Detached {
			detached <- a
		}
		for _, err := range failures(changes) {
			t.Error(err)
		}
	}, watched...)
	qt.Assert(t, qt.IsNil(err))
	t.Cleanup(func() { w.Close() })
	return w, attached, detached
}

func TestWatchLeavesAFileAttachedBetweenItsProcesses(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		c := newCollector(t, &usdt.ManagerOptions{Mode: mode})
		program, _ := copies(t, "target-static")
		w, attached, detached := watchLingering(t, c, time.Hour, usdt.AttachOptions{}, program)
		process := testprog.Start(t, program)
		qt.Assert(t, qt.IsNil(w.Sync(t.Context(), process.PID)))
		first := await(t, attached)

		for range 2 {
			process.Kill()
			qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 0)))
			qt.Assert(t, qt.HasLen(w.Attachments(), 1))

			process = testprog.Start(t, program)
			process.Fire("three", 1) // before it is scanned
			qt.Assert(t, qt.Equals(int(c.next(t, 1)[0].Pid), process.PID))
			qt.Assert(t, qt.IsNil(w.Sync(t.Context(), process.PID)))
			qt.Assert(t, qt.Equals(w.Attachments()[0], first))
		}
		qt.Assert(t, qt.HasLen(attached, 0))
		qt.Assert(t, qt.HasLen(detached, 0))

		process.Kill()
		qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 0)))
		qt.Assert(t, qt.IsNil(w.Close()))
		qt.Assert(t, qt.Equals(await(t, detached), first))
		qt.Assert(t, qt.HasLen(detached, 0))
		used, _ := c.SpecsInUse()
		qt.Assert(t, qt.Equals(used, 0))
	})
}

func TestWatchDetachesAFileThatHasLingered(t *testing.T) {
	c := newCollector(t, nil)
	program, _ := copies(t, "target-static")
	w, attached, detached := watchLingering(t, c, time.Millisecond, usdt.AttachOptions{}, program)
	for range 2 {
		process := testprog.Start(t, program)
		qt.Assert(t, qt.IsNil(w.Sync(t.Context(), process.PID)))
		a := await(t, attached)
		process.Kill()
		qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 0)))
		qt.Assert(t, qt.Equals(await(t, detached), a))
		qt.Assert(t, qt.HasLen(w.Attachments(), 0))
	}
}

func TestWatchMakesRoomByWhatLingers(t *testing.T) {
	c := newCollector(t, &usdt.ManagerOptions{MaxSpecs: 1})
	one, two := copies(t, "target-static")
	cookie := uint64(0) // other ones take other specs
	w, attached, detached := watchLingering(t, c, time.Hour,
		usdt.AttachOptions{SiteCookie: func(usdt.Site) uint64 {
			cookie++
			return cookie
		}}, one, two)
	process := testprog.Start(t, one)
	qt.Assert(t, qt.IsNil(w.Sync(t.Context(), process.PID)))
	first := await(t, attached)
	process.Kill()
	qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 0)))
	qt.Assert(t, qt.HasLen(w.Attachments(), 1))

	process = testprog.Start(t, two)
	qt.Assert(t, qt.IsNil(w.Sync(t.Context(), process.PID)))
	qt.Assert(t, qt.Equals(await(t, attached).Path, two))
	qt.Assert(t, qt.Equals(await(t, detached), first))
	process.Fire("three", 1)
	qt.Assert(t, qt.Equals(int(c.next(t, 1)[0].Pid), process.PID))
}
