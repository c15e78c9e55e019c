// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package usdt_test

import (
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/usdt"
	"github.com/gousdt/gousdt/usdt/proc"
	"github.com/gousdt/gousdt/watch"
)

// withoutRoom watches a probe of programs. Cookies make each file take a spec
// of its own, and there is room for one. The channels get the attachments and
// the failures.
func withoutRoom(t *testing.T, c *collector, opts watch.Options,
	paths ...string) (w *watched, attached chan *watchAttachment, failed chan error) {
	t.Helper()
	attached, failed = make(chan *watchAttachment, 100), make(chan error, 100)
	programs := watching(t, c.Collect, "*:three")
	programs[0].OptionsFor = func(pair *proc.ProcessFile) usdt.AttachOptions {
		for i, path := range paths {
			if path == pair.Path {
				return usdt.AttachOptions{Cookie: uint64(i + 1)}
			}
		}
		t.Errorf("no cookie for %s", pair.Path)
		return usdt.AttachOptions{}
	}
	opts.Filter = only(paths...)
	changed := func(changes *watch.Changes[*watchAttachment]) {
		for _, a := range changes.Attached {
			attached <- a
		}
		for _, err := range failures(changes) {
			failed <- err
		}
	}
	w, err := c.Watch(&opts, changed, programs...)
	qt.Assert(t, qt.IsNil(err))
	t.Cleanup(func() { w.Close() })
	return w, attached, failed
}

func TestWatchAttachesWhatLackedRoomWhenThereIsSome(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		for name, perProcess := range map[string]bool{"per file": false, "per process": true} {
			t.Run(name, func(t *testing.T) {
				c := newCollector(t, &usdt.ManagerOptions{Mode: mode, MaxSpecs: 1})
				one, two := copies(t, "target-pie")
				w, attached, failed := withoutRoom(t, c,
					watch.Options{PerProcess: perProcess, Linger: -1}, one, two)
				first := testprog.Start(t, one)
				qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 0)))
				qt.Assert(t, qt.Equals(await(t, attached).Path, one))

				found, other := testprog.Start(t, two), testprog.Start(t, two)
				qt.Assert(t, qt.IsNil(w.Sync(t.Context(), found.PID)))
				var full *usdt.LimitError
				qt.Assert(t, qt.ErrorAs(await(t, failed), &full))
				// The file will be attached by another process than the one it
				// was found in.
				found.Kill()
				qt.Assert(t, qt.IsNil(w.Sync(t.Context(), other.PID)))
				if perProcess {
					qt.Assert(t, qt.ErrorAs(await(t, failed), &full))
				}
				for range 3 {
					qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 0)))
				}
				qt.Assert(t, qt.HasLen(w.Attachments(), 1))
				qt.Assert(t, qt.HasLen(failed, 0), qt.Commentf("it has been told"))

				first.Kill()
				qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 0)))
				qt.Assert(t, qt.Equals(await(t, attached).Path, two),
					qt.Commentf("without another scan"))
				c.fires(t, other, "three", 0, 2)
				qt.Assert(t, qt.HasLen(failed, 0))
			})
		}
	})
}

func TestWatchDetachesWhatHasGoneWhereThereIsNoRoomForBoth(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		for name, linger := range map[string]time.Duration{"lingering": time.Hour, "at once": -1} {
			t.Run(name, func(t *testing.T) {
				c := newCollector(t, &usdt.ManagerOptions{Mode: mode, MaxSpecs: 1})
				one, two := copies(t, "target-pie")
				w, attached, failed := withoutRoom(t, c,
					watch.Options{Linger: linger}, one, two)
				process := testprog.Start(t, one)
				qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 0)))
				qt.Assert(t, qt.Equals(await(t, attached).Path, one))

				process.Kill()
				process = testprog.Start(t, two)
				qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 0)))
				qt.Assert(t, qt.HasLen(attached, 1), qt.Commentf("within the same scan"))
				qt.Assert(t, qt.Equals(await(t, attached).Path, two))
				qt.Assert(t, qt.HasLen(failed, 0))
				qt.Assert(t, qt.HasLen(w.Attachments(), 1))
				c.fires(t, process, "three", 0, 2)
			})
		}
	})
}

// A link outside of the watch makes room, which the watch does not know of.
func TestWatchTriesAgainBeforeEachPass(t *testing.T) {
	c := newCollector(t, &usdt.ManagerOptions{MaxSpecs: 1})
	path, other := copies(t, "target-static")
	link := c.attach(t, c.Collect, usdt.Target{Path: other}, "three",
		&usdt.AttachOptions{Cookie: 7})
	called := 0
	w, attached, failed := withoutRoom(t, c, watch.Options{
		BeforePass: func() { called++ },
	}, path)
	process := testprog.Start(t, path)
	for range 3 {
		qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 0)))
	}
	qt.Assert(t, qt.HasLen(failed, 1))
	qt.Assert(t, qt.HasLen(attached, 0))

	qt.Assert(t, qt.IsNil(link.Close()))
	qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 0)))
	qt.Assert(t, qt.HasLen(attached, 1))
	c.fires(t, process, "three", 0, 1)
	qt.Assert(t, qt.Equals(called, 4))
}

func TestWatchDoesNotTryAgainInVain(t *testing.T) {
	c := newCollector(t, &usdt.ManagerOptions{MaxSpecs: 1})
	path, _ := copies(t, "target-static")
	tries := make([]int, 2)
	programs := append(watching(t, c.Collect12, "*:three", "*:twelve"),
		watching(t, c.Collect, "gousdt_broken:no_nop")...)
	for n := range programs {
		programs[n].OptionsFor = func(*proc.ProcessFile) usdt.AttachOptions {
			tries[n]++
			return usdt.AttachOptions{}
		}
	}
	w, told := watchTold(t, c, programs, watch.Options{}, nil, path)
	process := testprog.Start(t, path)
	qt.Assert(t, qt.IsNil(w.Sync(t.Context(), process.PID)))
	qt.Assert(t, qt.HasLen(told.Errors, 2))
	for i, is := range []func(error) bool{
		says("set ManagerOptions.MaxSpecs to"), says("no nop there")} {
		qt.Assert(t, qt.IsTrue(is(told.Errors[i])), qt.Commentf("%v", told.Errors[i]))
	}
	*told = watch.Changes[*watchAttachment]{}
	for range 3 {
		qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 0)))
	}
	qt.Assert(t, qt.HasLen(told.Errors, 0))
	qt.Assert(t, qt.DeepEquals(tries, []int{1, 0}))
}
