// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package trace_test

import (
	"os"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/tracing"
	"github.com/gousdt/gousdt/proc"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
	"github.com/gousdt/gousdt/watch"
)

// watchTogether has sessions share a watch, each for a probe of its own.
func watchTogether(
	t *testing.T, opts *watch.Options, changed func(*watch.Changes[*trace.Attachment]),
	sessions map[string]*trace.Session,
) *watch.Watch {
	t.Helper()
	var all []trace.WatchSession
	for name, s := range sessions {
		patterns := []elfnote.Pattern{elfnote.Exact("gousdt_test", name)}
		all = append(all, trace.WatchSession{Session: s, Patterns: patterns, Name: name})
	}
	w, err := trace.WatchSessions(opts, changed, all...)
	qt.Assert(t, qt.IsNil(err))
	t.Cleanup(func() { qt.Check(t, qt.IsNil(w.Close())) })
	return w
}

func TestWatchSessionsFeedsEachWithItsProbes(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		for name, perProcess := range map[string]bool{"per file": false, "per process": true} {
			t.Run(name, func(t *testing.T) {
				opts := &trace.SessionOptions{Mode: mode}
				three, none, absent := newSession(t, opts), newSession(t, opts), newSession(t, opts)
				process := start(t, "target-pie")
				var c changed
				filtered := 0
				filter := countCalls(only(process.path), process.PID, &filtered)
				w := watchTogether(t,
					&watch.Options{Filter: filter, PerProcess: perProcess}, c.tell(t),
					map[string]*trace.Session{"three": three, "none": none,
						"there_is_no_such": absent})
				qt.Assert(t, qt.IsNil(w.SyncAll(t.Context())))
				qt.Check(t, qt.Equals(filtered, 1)) // by one scan for all
				qt.Assert(t, qt.HasLen(c.attached, 2))
				one, other := (<-c.attached).Session(), (<-c.attached).Session()
				qt.Check(t,
					qt.IsTrue(one == three && other == none || one == none && other == three))
				qt.Check(t, qt.HasLen(three.Attachments(), 1))
				qt.Check(t, qt.HasLen(absent.Attachments(), 0))

				process.Fire("three", 2)
				process.Fire("none", 1)
				for _, event := range next(t, three, 2) {
					qt.Check(t, qt.Equals(event.Site.Name, "three"))
				}
				qt.Check(t, qt.Equals(next(t, none, 1)[0].Site.Name, "none"))

				qt.Assert(t, qt.IsNil(w.Close()))
				process.Fire("three", 1)
				silent(t, three)
				silent(t, none)
				qt.Check(t, qt.HasLen(three.Attachments(), 0))
				qt.Check(t, qt.HasLen(none.Attachments(), 0))
			})
		}
	})
}

// countCalls counts how often a filter is asked about a process.
func countCalls(filter func(proc.Process) bool, pid int, calls *int) func(proc.Process) bool {
	return func(p proc.Process) bool {
		if p.PID == pid {
			*calls++
		}
		return filter(p)
	}
}

func TestWatchSessionsGoesOnWhereOneCannotBeAttached(t *testing.T) {
	three := newSession(t, nil)
	none := newSession(t, &trace.SessionOptions{Filter: "arg0 == 1"}) // it has no argument
	process := start(t, "target-pie")
	var changes watch.Changes[*trace.Attachment]
	w := watchTogether(t, &watch.Options{
		Filter: only(process.path),
	}, func(c *watch.Changes[*trace.Attachment]) { changes = *c },
		map[string]*trace.Session{"three": three, "none": none})
	qt.Assert(t, qt.IsNil(w.SyncAll(t.Context())))
	qt.Assert(t, qt.HasLen(changes.Attached, 1))
	qt.Assert(t, qt.HasLen(changes.Errors, 1))
	qt.Check(t, qt.ErrorMatches(changes.Errors[0], "none: attaching to .*/target-pie .*"))
	var filtered *tracing.FilteredError
	qt.Check(t, qt.ErrorAs(changes.Errors[0], &filtered))
	process.fires(t, three)
}

func TestWatchSessionsEndsWithTheFirst(t *testing.T) {
	for name, end := range map[string]func(*trace.Session) error{
		"detach": (*trace.Session).Detach, "close": (*trace.Session).Close,
	} {
		t.Run(name, func(t *testing.T) {
			three, none := newSession(t, nil), newSession(t, nil)
			process := start(t, "target-pie")
			sessions := map[string]*trace.Session{"three": three, "none": none}
			w := watchTogether(t, &watch.Options{Filter: only(process.path)}, nil, sessions)
			qt.Assert(t, qt.IsNil(w.SyncAll(t.Context())))
			qt.Assert(t, qt.IsNil(end(none)))
			qt.Check(t, qt.ErrorIs(w.Sync(t.Context(), process.PID), os.ErrClosed))
			_, err := trace.WatchSessions(nil, nil, trace.WatchSession{Session: three},
				trace.WatchSession{Session: none})
			qt.Check(t, qt.ErrorIs(err, os.ErrClosed))
			// The other session can be used, and be ended, as before.
			again := watchProbes(t, three, &watch.Options{Filter: only(process.path)}, nil,
				"gousdt_test:three")
			qt.Check(t, qt.IsNil(again.SyncAll(t.Context())))
			qt.Check(t, qt.IsNil(w.Close()))
			qt.Check(t, qt.HasLen(three.Attachments(), 1))
		})
	}
}

func TestWatchSessionsRefusesWithoutASession(t *testing.T) {
	_, err := trace.WatchSessions(nil, nil)
	qt.Assert(t, qt.ErrorMatches(err, "a watch needs at least one WatchSession"))
}

func TestWatchSessionsWithoutASession(t *testing.T) {
	_, err := trace.WatchSessions(nil, nil, trace.WatchSession{})
	qt.Check(t, qt.ErrorMatches(err, "WatchSession 0 has no Session"))
}
