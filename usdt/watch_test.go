// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package usdt_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/procwatch"
	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/usdt"
	"github.com/gousdt/gousdt/usdt/proc"
	"github.com/gousdt/gousdt/watch"
)

func patterns(t *testing.T, all ...string) []elfnote.Pattern {
	t.Helper()
	var parsed []elfnote.Pattern
	for _, s := range all {
		p, err := elfnote.ParsePattern(s)
		qt.Assert(t, qt.IsNil(err))
		parsed = append(parsed, p)
	}
	return parsed
}

// watching has one program watch for probes.
func watching(t *testing.T, prog *ebpf.Program, probes ...string) []watchProgram {
	t.Helper()
	return []watchProgram{{Program: prog, Patterns: patterns(t, probes...)}}
}

// copies makes two copies of a program, which no other process runs.
func copies(t *testing.T, program string) (one, two string) {
	t.Helper()
	one, two = filepath.Join(t.TempDir(), program), filepath.Join(t.TempDir(), program)
	copyFile(t, one, testprog.Path(t, program))
	copyFile(t, two, testprog.Path(t, program))
	return one, two
}

// only returns a filter for processes that run these files.
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

func TestWatchFollowsProcesses(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		for name, perProcess := range map[string]bool{"per file": false, "per process": true} {
			t.Run(name, func(t *testing.T) {
				c := newCollector(t, &usdt.ManagerOptions{Mode: mode})
				one, two := copies(t, "target-pie")
				process := testprog.Start(t, one)

				var changes watch.Changes[*watchAttachment]
				w, err := c.Watch(&watch.Options{
					PerProcess: perProcess,
					Linger:     -1,
					Filter:     only(one, two),
				}, func(c *watch.Changes[*watchAttachment]) { changes = *c },
					watching(t, c.Collect, "gousdt_test:three", "gousdt_test:guarded")...)
				qt.Assert(t, qt.IsNil(err))
				defer w.Close()
				qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 0)))
				qt.Assert(t, qt.HasLen(failures(&changes), 0))
				qt.Assert(t, qt.HasLen(changes.Attached, 1))
				qt.Assert(t, qt.Equals(changes.Attached[0].Path, one))
				process.Fire("three", 1)
				qt.Assert(t, qt.Equals(int(c.next(t, 1)[0].Pid), process.PID))
				qt.Assert(t, qt.Equals(process.Semaphore("guarded"), 1))

				// Another process of the same file, and one of another.
				same, other := testprog.Start(t, one), testprog.Start(t, two)
				qt.Assert(t, qt.IsNil(w.Sync(t.Context(), same.PID)))
				qt.Assert(t, qt.IsNil(w.Sync(t.Context(), other.PID)))
				want := 2
				if perProcess {
					want = 3
				}
				qt.Assert(t, qt.HasLen(w.Attachments(), want))
				for _, p := range []*testprog.Process{process, same, other} {
					p.Fire("three", 1)
					qt.Assert(t, qt.Equals(int(c.next(t, 1)[0].Pid), p.PID))
					c.silent(t)
				}

				same.Exec()
				qt.Assert(t, qt.IsNil(w.Sync(t.Context(), same.PID)))
				same.Fire("three", 1)
				qt.Assert(t, qt.Equals(int(c.next(t, 1)[0].Pid), same.PID))

				other.Kill()
				same.Kill()
				qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 0)))
				qt.Assert(t, qt.HasLen(w.Attachments(), 1))
				qt.Assert(t, qt.IsTrue(len(changes.Detached) > 0))

				qt.Assert(t, qt.IsNil(w.Close()))
				qt.Assert(t, qt.HasLen(w.Attachments(), 0))
				process.Fire("three", 1)
				c.silent(t)
				qt.Assert(t, qt.Equals(process.Semaphore("guarded"), 0))
				used, _ := c.SpecsInUse()
				qt.Assert(t, qt.Equals(used, 0))
			})
		}
	})
}

// A library that is loaded after the watch has begun, deleted, and replaced by
// another file of the same name.
func TestWatchSeesLibrariesComeAndGo(t *testing.T) {
	c := newCollector(t, nil)
	loader, _ := copies(t, "target-pie")
	process := testprog.Start(t, loader)
	library := filepath.Join(t.TempDir(), "libcome.so")
	copyFile(t, library, testprog.Path(t, "libtarget.so"))

	attached := make(chan *watchAttachment, 100)
	detached := make(chan *watchAttachment, 100)
	w, err := c.Watch(&watch.Options{
		Filter: only(loader),
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
	}, watching(t, c.Collect, "gousdt_test:three")...)
	qt.Assert(t, qt.IsNil(err))
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := w.Run(ctx, 50*time.Millisecond); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	defer func() {
		stop()
		running.Wait()
		qt.Check(t, qt.IsNil(w.Close()))
	}()

	qt.Assert(t, qt.Equals(await(t, attached).Path, loader))
	process.Do("load " + library)
	first := await(t, attached)
	qt.Assert(t, qt.Equals(first.Path, library))

	// Deleted, replaced and loaded again: another file, and the old one still
	// in use.
	qt.Assert(t, qt.IsNil(os.Remove(library)))
	copyFile(t, library, testprog.Path(t, "libtarget.so"))
	// Spelled otherwise, or the loader takes it for the same.
	process.Do("load " + filepath.Dir(library) + "/./libcome.so")
	awaitThat(t, attached, func(lnk *watchAttachment) bool {
		return lnk != first && lnk.Path == library
	})

	process.Do("unload")
	awaitThat(t, detached,
		func(lnk *watchAttachment) bool { return lnk != first && lnk.Path == library })
	process.Kill()
	awaitThat(t, detached, func(*watchAttachment) bool { return len(w.Attachments()) == 0 })
}

func awaitThat[T any](t *testing.T, c <-chan T, is func(T) bool) T {
	t.Helper()
	for {
		if v := await(t, c); is(v) {
			return v
		}
	}
}

func await[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(testneeds.Patience(20 * time.Second)):
		t.Fatal("nothing happened")
		panic("unreachable")
	}
}

func TestWatchStopsWithTheManager(t *testing.T) {
	c := newCollector(t, nil)
	program, _ := copies(t, "target-static")
	process := testprog.Start(t, program)
	var told []*watchAttachment
	attached := make(chan *watchAttachment, 1)
	w, err := c.Watch(&watch.Options{
		Linger: time.Hour,
		Filter: only(program),
	}, func(changes *watch.Changes[*watchAttachment]) {
		for _, a := range changes.Attached {
			attached <- a
		}
		told = append(told, changes.Detached...)
	}, watching(t, c.Collect, "gousdt_test:three", "gousdt_test:guarded")...)
	qt.Assert(t, qt.IsNil(err))
	defer w.Close()
	ran := make(chan error, 1)
	go func() { ran <- w.Run(context.Background(), time.Hour) }()
	a := await(t, attached)

	qt.Assert(t, qt.IsNil(c.Manager.Close()))
	qt.Assert(t, qt.ErrorIs(await(t, ran), os.ErrClosed))
	qt.Assert(t, qt.ErrorIs(a.Link.Err(), os.ErrClosed))
	qt.Assert(t, qt.Equals(process.Semaphore("guarded"), 0))
	qt.Assert(t, qt.ErrorIs(w.Sync(t.Context(), process.PID), os.ErrClosed))
	qt.Assert(t, qt.IsNil(w.Close()))
	qt.Assert(t, qt.HasLen(w.Attachments(), 0))
	qt.Assert(t, qt.IsTrue(slices.Equal(told, []*watchAttachment{a})))
	_, err = c.Watch(nil, nil, watching(t, c.Collect, "gousdt_test:three")...)
	qt.Assert(t, qt.ErrorIs(err, os.ErrClosed))
}

// failures returns the errors of a Watch without those of processes that are
// scanned or attached later, which happens on a slow machine.
func failures(changes *watch.Changes[*watchAttachment]) []error {
	return slices.DeleteFunc(slices.Clone(changes.Errors), func(err error) bool {
		return errors.Is(err, procwatch.ErrPostponed) || errors.Is(err, proc.ErrBlocked)
	})
}
