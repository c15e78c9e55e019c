// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package usdt_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/usdt"
	"github.com/gousdt/gousdt/watch"
)

// A user maps more files with more probes than can be attached. Attachments
// stay within the limits, and a program of another user is attached within two
// seconds all the same.
func TestHostileUserWithTooManyProbes(t *testing.T) {
	testneeds.Root(t)
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		many := flood{
			mode: mode, files: atMost(40, 500), sites: atMost(2_000, 9_000),
			limits: watch.Limits{Sites: atMost(20_000, 0), OwnerSites: atMost(20_000, -1)},
		}
		if mode == usdt.ModeMulti {
			many.run(t)
			t.Run("with semaphores that nobody maps", (&flood{
				mode: mode, files: atMost(4, 20), sites: 1_250,
				note: func(int) testprog.Note { return testprog.Note{Semaphore: true} },
			}).run)
			t.Run("with very many arguments", (&flood{
				mode: mode, files: atMost(2, 4), sites: atMost(20_000, 130_000),
				limits: watch.Limits{FileSites: -1, OwnerSites: -1},
				note: func(n int) testprog.Note {
					return testprog.Note{Arguments: fmt.Sprintf("8@$%d 4@$%d -4@$%d 8@$%d", n,
						n+1, n+2, n+3)}
				},
			}).run)
			return
		}
		many.refused = true
		t.Run("files with too many are refused", many.run)
		// The sites are all at one place, so that each takes a perf event.
		apart := flood{
			mode: mode, files: atMost(10, 100), sites: 20,
			limits: watch.Limits{OwnerDescriptors: -1, Descriptors: atMost(40, 200)},
		}
		t.Run("each with a perf event", apart.run)
	})
}

// A flood is files with probes that a hostile user maps.
type flood struct {
	mode         usdt.Mode
	files, sites int
	limits       watch.Limits
	note         func(n int) testprog.Note // nil: with nothing but names
	refused      bool                      // they have more probes than a file may have
}

func (h *flood) run(t *testing.T) {
	files, sites, limits := h.files, h.sites, h.limits
	c := newCollector(t, &usdt.ManagerOptions{Mode: h.mode})
	dir, err := os.MkdirTemp("", "hostile")
	qt.Assert(t, qt.IsNil(err))
	defer os.RemoveAll(dir)
	notes := make([]testprog.Note, sites)
	for i := range notes {
		if h.note != nil {
			notes[i] = h.note(i)
		}
		notes[i].Provider, notes[i].Name = "hostile", fmt.Sprint("probe", i)
	}
	for i := range files {
		testprog.WriteNotes(t, filepath.Join(dir, fmt.Sprint("file", i)), notes)
	}
	testprog.StartMapper(t, testprog.Nobody, 0, dir)

	b := besiege(t, c, dir, limits)
	b.attachInnocent()

	testneeds.Await(t, 20*time.Second, "a file is attached, or refused", func() bool {
		if h.refused {
			return len(b.said()) > 0
		}
		return b.Stats().Sites > 1
	})
	// The attachments made meanwhile are measured.
	time.Sleep(time.Duration(atMost(300, 3000)) * time.Millisecond)
	stats := b.Stats()
	most := limits.Sites
	if most == 0 {
		most = 200_000
	}
	qt.Check(t, qt.IsTrue(stats.Sites <= most), qt.Commentf("%+v", stats))
	if limits.Descriptors > 0 {
		// The number that a file takes is known only when it has been attached.
		qt.Check(t, qt.IsTrue(stats.Descriptors <= limits.Descriptors+2*sites),
			qt.Commentf("%+v", stats))
	}
	b.costs.Report(4, fmt.Sprintf("%d files with %d probes each (%s)", files, sites, h.mode),
		"1,000 files with 10,000: 6.1 GB, 56 s of CPU",
		fmt.Sprintf("%d sites of them attached", stats.Sites), b.late)
	b.end()
	qt.Check(t, qt.IsTrue(len(b.said()) <= 3*files), qt.Commentf("%d errors", len(b.said())))
}
