// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package trace_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/procfs"
	"github.com/gousdt/gousdt/internal/procwatch"
	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/tracing"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
	"github.com/gousdt/gousdt/usdt/proc"
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
	part := s.Part(parsed...)
	part.OptionsFor = optionsFor
	w, err := watch.New(opts, changed, part)
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
		return errors.Is(err, procwatch.ErrPostponed) || errors.Is(err, procfs.ErrBlocked)
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
				qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 0)))
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
				qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 0)))
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
				qt.Assert(t, qt.ErrorIs(w.Sync(t.Context(), 0), os.ErrClosed))
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
		qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 0)))
		qt.Assert(t, qt.HasLen(s.Attachments(), 1))

		process = process.again(t)
		process.fires(t, s) // before it is scanned
		qt.Assert(t, qt.IsNil(w.Sync(t.Context(), process.PID)))
		qt.Assert(t, qt.Equals(s.Attachments()[0], first))
	}
	process.Kill()
	qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 0)))
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
			qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 0)))
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
	qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 0)))
	w.Stop()
	other := process.again(t)
	qt.Assert(t, qt.ErrorIs(w.Sync(t.Context(), other.PID), os.ErrClosed))
	qt.Assert(t, qt.ErrorIs(w.Run(t.Context(), time.Hour), os.ErrClosed))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	second := watchProbes(t, s, nil, nil, "gousdt_test:three")
	qt.Assert(t, qt.ErrorIs(second.Run(ended, time.Hour), context.Canceled))
	qt.Assert(t, qt.ErrorIs(second.Sync(ended, 0), context.Canceled))
	qt.Assert(t, qt.ErrorIs(second.Sync(ended, os.Getpid()), context.Canceled))
	other.Fire("three", 1)
	process.fires(t, s)
}

func TestWatchTellsAttachmentsApartByCookies(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		for name, perProcess := range map[string]bool{"per file": false, "per process": true} {
			t.Run(name, func(t *testing.T) {
				s := newSession(t, &trace.SessionOptions{Mode: mode})
				one, other := start(t, "target-pie"), start(t, "target-pie")
				same := one.again(t)
				numbers := map[string]uint64{one.path: 1 << 40, other.path: 2 << 40}
				asked := 0
				w := watchFor(t, s, func(pair *proc.ProcessFile) usdt.AttachOptions {
					asked++
					if perProcess {
						return usdt.AttachOptions{Cookie: uint64(pair.Process.PID)}
					}
					return usdt.AttachOptions{Cookie: numbers[pair.Path]}
				}, &watch.Options{
					Filter: only(one.path, other.path), PerProcess: perProcess,
				}, nil, "gousdt_test:three")
				qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 0)))
				qt.Assert(t, qt.Equals(asked, len(s.Attachments())))
				for _, process := range []*traced{one, same, other} {
					want := numbers[process.path]
					if perProcess {
						want = uint64(process.PID)
					}
					process.Fire("three", 1)
					event := next(t, s, 1)[0]
					qt.Assert(t, qt.Equals(event.PID, process.PID))
					qt.Assert(t, qt.Equals(event.Site.Cookie, want))
				}
			})
		}
	})
}

// watchTogether has sessions share a watch, each for a probe of its own.
func watchTogether(
	t *testing.T, opts *watch.Options, changed func(*watch.Changes[*trace.Attachment]),
	sessions map[string]*trace.Session,
) *watch.Watch {
	t.Helper()
	var all []watch.Part[*trace.Attachment]
	for name, s := range sessions {
		part := s.Part(elfnote.Exact("gousdt_test", name))
		part.Name = name
		all = append(all, part)
	}
	w, err := watch.New(opts, changed, all...)
	qt.Assert(t, qt.IsNil(err))
	t.Cleanup(func() { qt.Check(t, qt.IsNil(w.Close())) })
	return w
}

func TestWatchOfSessionsFeedsEachWithItsProbes(t *testing.T) {
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
				qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 0)))
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

func TestWatchOfSessionsGoesOnWhereOneCannotBeAttached(t *testing.T) {
	three := newSession(t, nil)
	none := newSession(t, &trace.SessionOptions{Filter: "arg0 == 1"}) // it has no argument
	process := start(t, "target-pie")
	var changes watch.Changes[*trace.Attachment]
	w := watchTogether(t, &watch.Options{
		Filter: only(process.path),
	}, func(c *watch.Changes[*trace.Attachment]) { changes = *c },
		map[string]*trace.Session{"three": three, "none": none})
	qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 0)))
	qt.Assert(t, qt.HasLen(changes.Attached, 1))
	qt.Assert(t, qt.HasLen(changes.Errors, 1))
	qt.Check(t, qt.ErrorMatches(changes.Errors[0], "none: attaching to .*/target-pie .*"))
	var filtered *tracing.FilteredError
	qt.Check(t, qt.ErrorAs(changes.Errors[0], &filtered))
	process.fires(t, three)
}

func TestWatchOfSessionsEndsWithTheFirst(t *testing.T) {
	for name, end := range map[string]func(*trace.Session) error{
		"detach": (*trace.Session).Detach, "close": (*trace.Session).Close,
	} {
		t.Run(name, func(t *testing.T) {
			three, none := newSession(t, nil), newSession(t, nil)
			process := start(t, "target-pie")
			sessions := map[string]*trace.Session{"three": three, "none": none}
			w := watchTogether(t, &watch.Options{Filter: only(process.path)}, nil, sessions)
			qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 0)))
			qt.Assert(t, qt.IsNil(end(none)))
			qt.Check(t, qt.ErrorIs(w.Sync(t.Context(), process.PID), os.ErrClosed))
			_, err := watch.New(nil, nil, three.Part(), none.Part())
			qt.Check(t, qt.ErrorIs(err, os.ErrClosed))
			// The other session can be used, and be ended, as before.
			again := watchProbes(t, three, &watch.Options{Filter: only(process.path)}, nil,
				"gousdt_test:three")
			qt.Check(t, qt.IsNil(again.Sync(t.Context(), 0)))
			qt.Check(t, qt.IsNil(w.Close()))
			qt.Check(t, qt.HasLen(three.Attachments(), 1))
		})
	}
}

func TestWatchOfSessionsRefusesWithoutASession(t *testing.T) {
	_, err := watch.New[*trace.Attachment](nil, nil)
	qt.Assert(t, qt.ErrorMatches(err, "a watch needs a part to attach with: .*"))
}

func TestWatchOfSessionsWithoutASession(t *testing.T) {
	_, err := watch.New(nil, nil, watch.Part[*trace.Attachment]{})
	qt.Check(t, qt.ErrorMatches(err, "part 0 of the watch has nothing to attach with: .*"))
	for _, s := range []*trace.Session{nil, {}} {
		_, err := watch.New(nil, nil, s.Part())
		qt.Check(t, qt.ErrorMatches(err, "there is no session to watch with: .*"))
	}
}

// noDescriptors lets this process open no descriptor until restore is called.
func noDescriptors(t *testing.T) (restore func()) {
	t.Helper()
	var limit syscall.Rlimit
	qt.Assert(t, qt.IsNil(syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit)))
	restore = func() { qt.Check(t, qt.IsNil(syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit))) }
	t.Cleanup(restore)
	qt.Assert(t, qt.IsNil(syscall.Setrlimit(syscall.RLIMIT_NOFILE,
		&syscall.Rlimit{Cur: 0, Max: limit.Max})))
	return restore
}

func TestWatchTriesAgainWhatTheSystemRefused(t *testing.T) {
	for name, perProcess := range map[string]bool{"per file": false, "per process": true} {
		t.Run(name, func(t *testing.T) {
			s := newSession(t, nil)
			process := start(t, "target-pie")
			var attached []*trace.Attachment
			var failed []error
			tries := 0
			opts := &watch.Options{
				Filter: only(process.path), PerProcess: perProcess,
			}
			changed := func(changes *watch.Changes[*trace.Attachment]) {
				attached = append(attached, changes.Attached...)
				failed = append(failed, failures(changes)...)
			}
			var restore func()
			optionsFor := func(*proc.ProcessFile) usdt.AttachOptions {
				// Called before the attachment.
				if tries++; tries <= 3 {
					restore = noDescriptors(t)
				}
				return usdt.AttachOptions{}
			}
			w := watchFor(t, s, optionsFor, opts, changed, "gousdt_test:three")
			for range 3 {
				_ = w.Sync(t.Context(), 0) // it may lack descriptors, too
				restore()
			}
			qt.Assert(t, qt.Equals(tries, 3))
			qt.Assert(t, qt.HasLen(failed, 1), qt.Commentf("told once"))
			qt.Assert(t, qt.ErrorIs(failed[0], syscall.EMFILE))
			qt.Assert(t, qt.HasLen(attached, 0))

			qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 0)))
			qt.Assert(t, qt.HasLen(attached, 1))
			process.fires(t, s)
			qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 0)))
			qt.Assert(t, qt.Equals(tries, 4))
			qt.Assert(t, qt.HasLen(failed, 1))
		})
	}
}

func TestWatchLingeringFilesMakeRoom(t *testing.T) {
	s := newSession(t, nil)
	process, another := start(t, "target-static"), copyOf(t, "target-static")
	var c changed
	opts := &watch.Options{Filter: only(process.path, another), Linger: time.Hour}
	tell := c.tell(t)
	restore := func() {}
	changed := func(changes *watch.Changes[*trace.Attachment]) {
		if len(changes.Detached) > 0 {
			restore() // as if those of what is detached were enough
		}
		tell(changes)
	}
	lacking := false
	optionsFor := func(*proc.ProcessFile) usdt.AttachOptions {
		if lacking {
			lacking, restore = false, noDescriptors(t)
		}
		return usdt.AttachOptions{}
	}
	w := watchFor(t, s, optionsFor, opts, changed, "gousdt_test:three")
	qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 0)))
	first := await(t, c.attached)
	lacking = true
	process.Kill()
	other := startFile(t, another)
	qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 0)))
	qt.Assert(t, qt.Equals(await(t, c.detached), first))
	qt.Assert(t, qt.Equals(await(t, c.attached).Path(), another))
	other.fires(t, s)
}

func TestWatchDoesNotTryAgainInVain(t *testing.T) {
	s := newSession(t, &trace.SessionOptions{Filter: "arg0 == 1 && arg0 == 2"})
	process := start(t, "target-static")
	tries, failed := 0, 0
	w := watchFor(t, s, func(*proc.ProcessFile) usdt.AttachOptions {
		tries++
		return usdt.AttachOptions{}
	}, &watch.Options{
		Filter: only(process.path),
	}, func(changes *watch.Changes[*trace.Attachment]) {
		failed += len(failures(changes))
	}, "gousdt_test:none")
	for range 3 {
		qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 0)))
	}
	qt.Assert(t, qt.Equals(tries, 1))
	qt.Assert(t, qt.Equals(failed, 1))
}
