// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package usdt_test

import (
	"os"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/procwatch"
	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/usdt"
)

// A caller with a watcher of its own selects in the files that it finds.
func TestSelectOfAProcessFile(t *testing.T) {
	c := newCollector(t, nil)
	program, _ := copies(t, "target-static")
	process := testprog.Start(t, program)
	w := procwatch.NewWatcher(&procwatch.WatcherOptions{Filter: only(program)},
		patterns(t, "gousdt_test:three")...)
	defer w.Close()
	qt.Assert(t, qt.IsNil(w.Sync(t.Context(), process.PID)))
	pair := w.ProcessFiles()[0]

	all, err := usdt.Select(usdt.Target{Kept: pair.Kept()})
	qt.Assert(t, qt.IsNil(err))
	defer all.Close()
	sel, err := usdt.Select(usdt.Target{Kept: pair.Kept()},
		elfnote.Exact("gousdt_test", "three"))
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.IsTrue(all.Len() > sel.Len()))
	qt.Check(t, qt.Equals(sitesOf(sel)[0].Name, "three"))
	qt.Check(t, qt.Equals(sel.PID(), 0))
	lnk, err := c.Attach(c.Collect, usdt.Target{Selection: sel}, nil)
	qt.Assert(t, qt.IsNil(err))
	defer lnk.Close()
	qt.Check(t, qt.IsNil(sel.Close()))
	process.Fire("three", 1)
	qt.Check(t, qt.Equals(int(c.next(t, 1)[0].Pid), process.PID))

	_, err = usdt.Select(usdt.Target{Kept: pair.Kept()},
		elfnote.Exact("gousdt_test", "missing"))
	qt.Check(t, qt.ErrorAs(err, new(*usdt.NotFoundError)))
}

func TestSelectOfAProcessFileWhoseFileHasGone(t *testing.T) {
	testneeds.Root(t)
	program, _ := copies(t, "target-static")
	process := testprog.Start(t, program)
	w := procwatch.NewWatcher(&procwatch.WatcherOptions{Filter: only(program)},
		patterns(t, "gousdt_test:three")...)
	defer w.Close()
	qt.Assert(t, qt.IsNil(w.Sync(t.Context(), process.PID)))
	pair := w.ProcessFiles()[0]
	process.Kill()
	qt.Assert(t, qt.IsNil(w.Sync(t.Context(), process.PID)))
	_, err := usdt.Select(usdt.Target{Kept: pair.Kept()})
	qt.Check(t, qt.ErrorIs(err, os.ErrClosed))
}

func TestSelectAmongTheSitesOfASelection(t *testing.T) {
	path := testprog.Path(t, "target-pie")
	all, err := usdt.Select(usdt.Target{Path: path}, patterns(t, "*:three", "*:many", "*:no_nop")...)
	qt.Assert(t, qt.IsNil(err))
	defer all.Close()
	one, err := usdt.Select(usdt.Target{Selection: all}, patterns(t, "*:three")...)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(sitesOf(one)[0].Name, "three"))
	qt.Check(t, qt.Equals(one.Len(), 1))
	_, skipped := one.Skipped()
	qt.Check(t, qt.Equals(skipped, 0))
	again, err := usdt.Select(usdt.Target{Selection: all})
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(again.Len(), all.Len()))
	_, skipped = again.Skipped()
	qt.Check(t, qt.Equals(skipped, 1))

	_, err = usdt.Select(usdt.Target{Selection: all}, patterns(t, "*:no_nop")...)
	qt.Check(t, qt.ErrorAs(err, new(*usdt.SiteError)))
	_, err = usdt.Select(usdt.Target{Selection: all}, patterns(t, "*:twelve")...)
	qt.Check(t, qt.ErrorAs(err, new(*usdt.NotFoundError)))
	_, err = usdt.Select(usdt.Target{Selection: all, MaxSites: 10})
	qt.Check(t, qt.ErrorAs(err, new(*usdt.LimitError)))
	_, err = usdt.Select(usdt.Target{Selection: all, PID: 1})
	qt.Check(t, qt.ErrorMatches(err, ".* has its own PID: .*"))
	_, err = usdt.Select(usdt.Target{Selection: all, Path: path})
	qt.Check(t, qt.ErrorMatches(err, "a target needs exactly one of .*"))
}
