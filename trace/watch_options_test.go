// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package trace_test

import (
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/proc"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
	"github.com/gousdt/gousdt/watch"
)

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
				qt.Assert(t, qt.IsNil(w.SyncAll(t.Context())))
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
