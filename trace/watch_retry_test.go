// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package trace_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/proc"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
	"github.com/gousdt/gousdt/watch"
)

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
				_ = w.SyncAll(t.Context()) // it may lack descriptors, too
				restore()
			}
			qt.Assert(t, qt.Equals(tries, 3))
			qt.Assert(t, qt.HasLen(failed, 1), qt.Commentf("told once"))
			qt.Assert(t, qt.ErrorIs(failed[0], syscall.EMFILE))
			qt.Assert(t, qt.HasLen(attached, 0))

			qt.Assert(t, qt.IsNil(w.SyncAll(t.Context())))
			qt.Assert(t, qt.HasLen(attached, 1))
			process.fires(t, s)
			qt.Assert(t, qt.IsNil(w.SyncAll(t.Context())))
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
	qt.Assert(t, qt.IsNil(w.SyncAll(t.Context())))
	first := await(t, c.attached)
	lacking = true
	process.Kill()
	other := startFile(t, another)
	qt.Assert(t, qt.IsNil(w.SyncAll(t.Context())))
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
		qt.Assert(t, qt.IsNil(w.SyncAll(t.Context())))
	}
	qt.Assert(t, qt.Equals(tries, 1))
	qt.Assert(t, qt.Equals(failed, 1))
}
