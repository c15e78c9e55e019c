// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package trace_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/procfs"
	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/proc"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
	"github.com/gousdt/gousdt/watch"
)

// only lets these programs through, by the file that they run.
func only(paths ...string) func(proc.Process) bool {
	return func(p proc.Process) bool {
		executable, err := p.Executable()
		for _, path := range paths {
			if err == nil && executable == path {
				return true
			}
		}
		return false
	}
}

// watchProbes watches probes until the end of the test.
func watchProbes(
	t *testing.T, s *trace.Session, opts *watch.Options, changed func(*watch.Changes[*trace.Attachment]),
	patterns ...string,
) *watch.Watch {
	t.Helper()
	return watchFor(t, s, nil, opts, changed, patterns...)
}

// watchFor is watch with the options of each attachment.
func watchFor(
	t *testing.T, s *trace.Session, optionsFor func(*proc.ProcessFile) usdt.AttachOptions,
	opts *watch.Options, changed func(*watch.Changes[*trace.Attachment]),
	patterns ...string,
) *watch.Watch {
	t.Helper()
	var parsed []elfnote.Pattern
	for _, text := range patterns {
		p, err := elfnote.ParsePattern(text)
		qt.Assert(t, qt.IsNil(err))
		parsed = append(parsed, p)
	}
	w, err := trace.WatchSessions(opts, changed,
		trace.WatchSession{Session: s, Patterns: parsed, OptionsFor: optionsFor})
	qt.Assert(t, qt.IsNil(err))
	t.Cleanup(func() { qt.Check(t, qt.IsNil(w.Close())) })
	return w
}

// changed are channels of the changes that a watch reports. Errors fail the
// test.
type changed struct {
	attached, detached chan *trace.Attachment
}

func (c *changed) tell(t *testing.T) func(*watch.Changes[*trace.Attachment]) {
	c.attached, c.detached = make(chan *trace.Attachment, 100), make(chan *trace.Attachment, 100)
	return func(changes *watch.Changes[*trace.Attachment]) {
		for _, a := range changes.Attached {
			c.attached <- a
		}
		for _, a := range changes.Detached {
			c.detached <- a
		}
		for _, err := range failures(changes) {
			t.Error(err)
		}
	}
}

// failures returns the errors of a Watch but for those that say that a process
// is scanned later, which happens on a slow machine.
func failures(changes *watch.Changes[*trace.Attachment]) []error {
	return slices.DeleteFunc(slices.Clone(changes.Errors), func(err error) bool {
		return errors.Is(err, procfs.ErrPostponed)
	})
}

func await[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(testneeds.Patience(patience)):
		t.Fatal("nothing happened")
		panic("unreachable")
	}
}

func awaitThat(t *testing.T, c <-chan *trace.Attachment,
	is func(*trace.Attachment) bool) *trace.Attachment {
	t.Helper()
	for {
		if a := await(t, c); is(a) {
			return a
		}
	}
}

// fires asserts that a process is watched, and which file its hits name.
func (p *traced) fires(t *testing.T, s *trace.Session) {
	t.Helper()
	p.Fire("three", 1)
	event := next(t, s, 1)[0]
	qt.Assert(t, qt.Equals(event.PID, p.PID))
	qt.Assert(t, qt.Equals(event.Site.File, p.path))
}

func TestWatchFollowsProcesses(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		for name, perProcess := range map[string]bool{"per file": false, "per process": true} {
			t.Run(name, func(t *testing.T) {
				s := newSession(t, &trace.SessionOptions{Mode: mode})
				process, another := start(t, "target-pie"), copyOf(t, "target-pie")
				var changes watch.Changes[*trace.Attachment]
				w := watchFor(t, s, func(*proc.ProcessFile) usdt.AttachOptions {
					return usdt.AttachOptions{Cookie: 5}
				}, &watch.Options{
					Filter:     only(process.path, another),
					PerProcess: perProcess,
					Linger:     -1,
				}, func(c *watch.Changes[*trace.Attachment]) {
					changes = *c
				}, "gousdt_test:three", "gousdt_test:guarded")
				qt.Assert(t, qt.IsNil(w.SyncAll(t.Context())))
				qt.Assert(t, qt.HasLen(failures(&changes), 0))
				qt.Assert(t, qt.HasLen(changes.Attached, 1))
				qt.Assert(t, qt.Equals(changes.Attached[0].Path(), process.path))
				process.fires(t, s)
				qt.Assert(t, qt.Equals(process.Semaphore("guarded"), 1))

				// Another process of the same file, and one of another.
				same, other := process.again(t), startFile(t, another)
				qt.Assert(t, qt.IsNil(w.Sync(t.Context(), same.PID)))
				qt.Assert(t, qt.IsNil(w.Sync(t.Context(), other.PID)))
				want := 2
				if perProcess {
					want = 3
				}
				qt.Assert(t, qt.HasLen(s.Attachments(), want))
				for _, p := range []*traced{process, same, other} {
					p.fires(t, s)
				}

				same.Exec()
				qt.Assert(t, qt.IsNil(w.Sync(t.Context(), same.PID)))
				same.fires(t, s)

				// Hits that have not been read when the process has gone.
				other.Fire("three", 1)
				other.Kill()
				same.Kill()
				qt.Assert(t, qt.IsNil(w.SyncAll(t.Context())))
				qt.Assert(t, qt.HasLen(changes.Detached, want-1))
				for _, a := range changes.Detached {
					qt.Assert(t, qt.IsNil(a.Close()))
				}
				qt.Assert(t, qt.HasLen(s.Attachments(), 1))
				event := next(t, s, 1)[0]
				qt.Assert(t, qt.Equals(event.Site.File, another))
				qt.Assert(t, qt.Equals(event.Site.Cookie, 5))
				qt.Assert(t, qt.Equals(event.Site.Name, "three"))

				qt.Assert(t, qt.IsNil(w.Close()))
				qt.Assert(t, qt.HasLen(s.Attachments(), 0))
				qt.Assert(t, qt.HasLen(changes.Detached, 1))
				qt.Assert(t, qt.HasLen(s.Attachments(), 0))
				qt.Assert(t, qt.ErrorIs(w.SyncAll(t.Context()), os.ErrClosed))
				qt.Assert(t, qt.Equals(process.Semaphore("guarded"), 0))
				process.Fire("three", 1)
				silent(t, s)
			})
		}
	})
}

// A library that is loaded after the watch has begun, by another program than
// the one that it was begun with.
func TestWatchSeesProcessesAndLibrariesComeAndGo(t *testing.T) {
	s := newSession(t, nil)
	program, library := copyOf(t, "target-pie"), copyOf(t, "libtarget.so")
	var c changed
	w := watchProbes(t, s, &watch.Options{Filter: only(program), Linger: time.Millisecond}, c.tell(t),
		"gousdt_test:three")
	ran := make(chan error, 1)
	go func() { ran <- w.Run(t.Context(), 50*time.Millisecond) }()

	process := startFile(t, program)
	first := await(t, c.attached)
	qt.Assert(t, qt.Equals(first.Path(), program))
	process.fires(t, s)

	process.Do("load " + library)
	second := await(t, c.attached)
	qt.Assert(t, qt.Equals(second.Path(), library))
	qt.Assert(t, qt.Equals(second.Sites()[0].File, library))
	process.Do("unload")
	awaitThat(t, c.detached, func(a *trace.Attachment) bool { return a == second })

	process.Kill()
	awaitThat(t, c.detached, func(a *trace.Attachment) bool { return a == first })
	qt.Assert(t, qt.IsNil(w.Close()))
	qt.Assert(t, qt.ErrorIs(await(t, ran), os.ErrClosed))
}

func TestWatchLeavesAFileAttachedBetweenItsProcesses(t *testing.T) {
	s := newSession(t, nil)
	process := start(t, "target-static")
	var c changed
	w := watchProbes(t, s, &watch.Options{Filter: only(process.path), Linger: time.Hour}, c.tell(t),
		"gousdt_test:three")
	qt.Assert(t, qt.IsNil(w.Sync(t.Context(), process.PID)))
	first := await(t, c.attached)
	for range 2 {
		process.Kill()
		qt.Assert(t, qt.IsNil(w.SyncAll(t.Context())))
		qt.Assert(t, qt.HasLen(s.Attachments(), 1))

		process = process.again(t)
		process.fires(t, s) // before it is scanned
		qt.Assert(t, qt.IsNil(w.Sync(t.Context(), process.PID)))
		qt.Assert(t, qt.Equals(s.Attachments()[0], first))
	}
	process.Kill()
	qt.Assert(t, qt.IsNil(w.SyncAll(t.Context())))
	qt.Assert(t, qt.HasLen(c.detached, 0))
	qt.Assert(t, qt.IsNil(w.Close()))
	qt.Assert(t, qt.Equals(await(t, c.detached), first))
	qt.Assert(t, qt.HasLen(c.attached, 0))
}

// spoil makes a copy of a program whose probe cannot be attached to.
func spoil(t *testing.T, program, probe string) string {
	t.Helper()
	path := copyOf(t, program)
	file, err := elfnote.Open(path)
	qt.Assert(t, qt.IsNil(err))
	defer file.Close()
	writer, err := os.OpenFile(path, os.O_WRONLY, 0)
	qt.Assert(t, qt.IsNil(err))
	defer writer.Close()
	for site, err := range file.Sites() {
		if err == nil && site.Name == probe {
			// No nop on any machine.
			_, err := writer.WriteAt([]byte{0, 0, 0, 0}, int64(site.Offset))
			qt.Assert(t, qt.IsNil(err))
		}
	}
	return path
}

func TestWatchGoesOnWhereAFileCannotBeAttached(t *testing.T) {
	for name, perProcess := range map[string]bool{"per file": false, "per process": true} {
		t.Run(name, func(t *testing.T) {
			s := newSession(t, nil)
			spoiled := startFile(t, spoil(t, "target-pie", "three"))
			fit := start(t, "target-pie")
			var changes watch.Changes[*trace.Attachment]
			w := watchProbes(t, s, &watch.Options{
				Filter: only(spoiled.path, fit.path), PerProcess: perProcess,
			}, func(c *watch.Changes[*trace.Attachment]) { changes = *c }, "gousdt_test:three")
			qt.Assert(t, qt.IsNil(w.SyncAll(t.Context())))
			qt.Assert(t, qt.HasLen(changes.Attached, 1))
			qt.Assert(t, qt.HasLen(changes.Errors, 1))
			var failed *watch.Error
			qt.Assert(t, qt.ErrorAs(changes.Errors[0], &failed))
			qt.Check(t, qt.Equals(failed.Path, spoiled.path))
			qt.Check(t, qt.Equals(failed.Process.PID, spoiled.PID))
			var site *usdt.SiteError
			qt.Check(t, qt.ErrorAs(changes.Errors[0], &site))
			fit.fires(t, s)
		})
	}
}

func TestWatchTellsWhichProcessesItMissed(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		s := newSession(t, &trace.SessionOptions{Mode: mode})
		process := start(t, "target-pie")
		var changes watch.Changes[*trace.Attachment]
		opts := &watch.Options{
			Filter: only(process.path), PerProcess: true,
		}
		optionsFor := func(*proc.ProcessFile) usdt.AttachOptions {
			// Called before anything is attached.
			process.Kill()
			return usdt.AttachOptions{}
		}
		w := watchFor(t, s, optionsFor, opts, func(c *watch.Changes[*trace.Attachment]) { changes = *c },
			"gousdt_test:three")
		qt.Assert(t, qt.IsNil(w.Sync(t.Context(), process.PID)))
		qt.Assert(t, qt.HasLen(failures(&changes), 0))
		qt.Assert(t, qt.HasLen(changes.Missed, 1))
		qt.Check(t, qt.Equals(changes.Missed[0].Path, process.path))
		qt.Check(t, qt.Equals(changes.Missed[0].Process.PID, process.PID))
	})
}

func TestWatchEndsWithTheSession(t *testing.T) {
	for name, end := range map[string]func(*trace.Session) error{
		"detach": (*trace.Session).Detach, "close": (*trace.Session).Close,
	} {
		t.Run(name, func(t *testing.T) {
			s := newSession(t, nil)
			process := start(t, "target-pie")
			var c changed
			w, err := s.Watch(&watch.Options{Filter: only(process.path), Linger: time.Hour}, c.tell(t))
			qt.Assert(t, qt.IsNil(err)) // only the session closes it
			ran := make(chan error, 1)
			go func() { ran <- w.Run(context.Background(), time.Hour) }()
			await(t, c.attached)

			qt.Assert(t, qt.IsNil(end(s)))
			qt.Assert(t, qt.ErrorIs(await(t, ran), os.ErrClosed))
			qt.Assert(t, qt.HasLen(s.Attachments(), 0))
			qt.Assert(t, qt.ErrorIs(w.Sync(t.Context(), process.PID), os.ErrClosed))
			_, err = s.Watch(nil, nil)
			qt.Assert(t, qt.ErrorIs(err, os.ErrClosed))
		})
	}
}

func TestWatchStop(t *testing.T) {
	s := newSession(t, nil)
	process := start(t, "target-pie")
	w := watchProbes(t, s, &watch.Options{Filter: only(process.path), PerProcess: true}, nil,
		"gousdt_test:three")
	qt.Assert(t, qt.IsNil(w.SyncAll(t.Context())))
	w.Stop()
	other := process.again(t)
	qt.Assert(t, qt.ErrorIs(w.Sync(t.Context(), other.PID), os.ErrClosed))
	qt.Assert(t, qt.ErrorIs(w.Run(t.Context(), time.Hour), os.ErrClosed))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	second := watchProbes(t, s, nil, nil, "gousdt_test:three")
	qt.Assert(t, qt.ErrorIs(second.Run(ended, time.Hour), context.Canceled))
	qt.Assert(t, qt.ErrorIs(second.SyncAll(ended), context.Canceled))
	qt.Assert(t, qt.ErrorIs(second.Sync(ended, os.Getpid()), context.Canceled))
	other.Fire("three", 1)
	process.fires(t, s)
}
