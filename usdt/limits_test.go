// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package usdt_test

import (
	"errors"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/elffile"
	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/usdt"
	"github.com/gousdt/gousdt/watch"
)

// many has 400 sites of one spec, guarded a site with a semaphore.
func TestSelectRefusesMoreSitesThanItMay(t *testing.T) {
	target := usdt.Target{Path: testprog.Path(t, "target-pie")}
	for _, test := range []struct {
		probe    string
		max      int
		limit    string
		capacity int
		needed   int
	}{
		{"many", 0, "", 0, 0},
		{"many", 400, "", 0, 0},
		{"many", 399, "sites", 399, 400},
		{"fourteen", 2, "different arguments", 8, 14},
	} {
		target.MaxSites = test.max
		sel, err := usdt.Select(target, elfnote.Exact(provider, test.probe))
		if test.limit == "" {
			qt.Check(t, qt.IsNil(err), qt.Commentf("%s", test.probe))
			if err == nil {
				sel.Close()
			}
			continue
		}
		qt.Check(t, qt.ErrorIs(err, elffile.ErrTooLarge))
		// The limit may be less than any real file's.
		qt.Check(t, qt.ErrorMatches(err, `.*: there is room for .*`))
		var full *usdt.LimitError
		qt.Assert(t, qt.IsTrue(errors.As(err, &full)), qt.Commentf("%s: %v", test.probe, err))
		qt.Check(t, qt.Equals(*full, usdt.LimitError{
			Limit:    test.limit,
			Option:   "Target.MaxSites",
			Capacity: test.capacity,
			Needed:   test.needed,
		}))
	}
}

// A watch attaches as much as its limits allow, reports the rest, and attaches
// that when there is room.
func TestWatchLimits(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		c := newCollector(t, &usdt.ManagerOptions{Mode: mode})
		one, two := copies(t, "target-pie")
		processes := []*testprog.Process{testprog.Start(t, one), testprog.Start(t, two)}
		var changes watch.Changes[*watch.Attachment]
		w, err := c.Watch(&watch.Options{
			PerProcess: true,
			Filter:     only(one, two),
			Limits:     watch.Limits{OwnerSites: 3},
		}, func(c *watch.Changes[*watch.Attachment]) { changes = *c },
			watching(t, c.Collect, "gousdt_test:three", "gousdt_test:twelve")...)
		qt.Assert(t, qt.IsNil(err))
		defer w.Close()
		qt.Assert(t, qt.IsNil(w.SyncAll(t.Context())))
		qt.Assert(t, qt.HasLen(w.Attachments(), 1))
		qt.Assert(t, qt.HasLen(failures(&changes), 1))
		var full *usdt.LimitError
		qt.Assert(t, qt.IsTrue(errors.As(failures(&changes)[0], &full)),
			qt.Commentf("%v", changes.Errors))
		qt.Assert(t, qt.Equals(full.Option, "Limits.OwnerSites"))
		qt.Assert(t, qt.Equals([3]int{full.Capacity, full.InUse, full.Needed}, [3]int{3, 2, 2}))
		stats := w.Stats()
		qt.Assert(t,
			qt.Equals([3]int{stats.Sites, stats.OverLimit, stats.Waiting}, [3]int{2, 1, 0}))
		changes = watch.Changes[*watch.Attachment]{}
		qt.Assert(t, qt.IsNil(w.SyncAll(t.Context())))
		qt.Assert(t, qt.HasLen(failures(&changes), 0)) // it is not reported again

		for _, process := range processes {
			if process.PID == w.Attachments()[0].Process.PID {
				process.Kill()
			}
		}
		qt.Assert(t, qt.IsNil(w.SyncAll(t.Context())))
		testneeds.Await(t, 20*time.Second, "nothing is over the limit",
			func() bool { return w.Stats().OverLimit == 0 })
		qt.Assert(t, qt.HasLen(w.Attachments(), 1))
	})
}

// A file with more sites than one may have is reported, and does not affect
// others.
func TestWatchRefusesFilesWithTooManySites(t *testing.T) {
	c := newCollector(t, nil)
	one, _ := copies(t, "target-pie")
	testprog.Start(t, one)
	var failed []error
	w, err := c.Watch(&watch.Options{
		Filter: only(one),
		Limits: watch.Limits{FileSites: 399},
	}, func(c *watch.Changes[*watch.Attachment]) { failed = append(failed, c.Errors...) },
		watching(t, c.Collect, "gousdt_test:many")...)
	qt.Assert(t, qt.IsNil(err))
	defer w.Close()
	qt.Assert(t, qt.IsNil(w.SyncAll(t.Context())))
	qt.Assert(t, qt.IsNil(w.SyncAll(t.Context())))
	qt.Assert(t, qt.HasLen(failed, 1))
	qt.Assert(t,
		qt.ErrorMatches(failed[0],
			`.*there is room for 399 sites, 0 are in use, and 400 more are needed: set Limits.FileSites to 400 or more`))
	stats := w.Stats()
	qt.Assert(t, qt.Equals([4]int{stats.Sites, stats.Descriptors, stats.OverLimit, stats.Waiting},
		[4]int{0, 0, 1, 0}))
}
