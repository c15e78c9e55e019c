// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package trace_test

import (
	"os"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/proc"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
)

func attachAhead(t *testing.T, w *trace.Watch, p *traced, path string) {
	t.Helper()
	process, err := proc.NewFS("").Process(p.PID)
	qt.Assert(t, qt.IsNil(err))
	file, err := os.Open(path)
	qt.Assert(t, qt.IsNil(err))
	defer file.Close()
	qt.Assert(t, qt.IsNil(w.AttachAhead(process, file)))
}

func TestAttachAheadStaysUntilTheProcessEnds(t *testing.T) {
	s := newSession(t, nil)
	process, library := start(t, "target-pie"), copyOf(t, "libtarget.so")
	var c changed
	w := watch(t, s, &usdt.WatchOptions{Proc: only(process.path), PerProcess: true}, c.tell(t),
		"gousdt_test:three")
	attachAhead(t, w, process, library)
	attachAhead(t, w, process, process.path)
	process.fires(t, s)
	qt.Assert(t, qt.HasLen(c.attached, 2))

	// It is not attached once more, nor detached with the mapping.
	for _, change := range []func(){func() {}, process.Exec, func() { process.Load(library) },
		process.Unload} {
		change()
		qt.Assert(t, qt.IsNil(w.Sync(process.PID)))
		process.fires(t, s)
	}
	attachAhead(t, w, process, library)
	qt.Assert(t, qt.HasLen(c.attached, 2))
	qt.Assert(t, qt.HasLen(c.detached, 0))

	process.Kill()
	qt.Assert(t, qt.IsNil(w.SyncAll()))
	qt.Assert(t, qt.HasLen(c.detached, 2))
	qt.Assert(t, qt.HasLen(w.Attachments(), 0))
	silent(t, s)
}

func TestAttachAheadNeedsPerProcess(t *testing.T) {
	s := newSession(t, nil)
	w := watch(t, s, nil, nil)
	file, err := os.Open(testprog.Path(t, "target-pie"))
	qt.Assert(t, qt.IsNil(err))
	defer file.Close()
	qt.Assert(t, qt.ErrorMatches(w.AttachAhead(proc.Process{}, file),
		".*/target-pie: attaching ahead needs WatchOptions.PerProcess: .*"))
}
