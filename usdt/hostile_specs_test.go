// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package usdt_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/usdt"
	"github.com/gousdt/gousdt/watch"
)

// A user maps files that take all specs of the Manager. Another one's program
// gets some of them.
func TestHostileUserThatTakesAllSpecs(t *testing.T) {
	testneeds.Only(t, "the argument strings of its file are those of x86-64", "amd64")
	testneeds.Root(t)
	const specs, files = 24, 8
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		c := newCollector(t, &usdt.ManagerOptions{Mode: mode, MaxSpecs: specs})
		dir := t.TempDir()
		for i := range files {
			var notes []testprog.Note
			for n := range specs / files {
				notes = append(notes, testprog.Note{
					Provider:  "hostile",
					Name:      fmt.Sprint("probe", n),
					Arguments: fmt.Sprintf("8@$%d", i*specs+n),
				})
			}
			testprog.WriteNotes(t, filepath.Join(dir, fmt.Sprint("file", i)), notes)
		}
		testprog.StartMapper(t, testprog.Nobody, 0, dir)
		innocent := filepath.Join(t.TempDir(), "innocent")
		copyFile(t, innocent, testprog.Path(t, "target-static"))
		self, err := os.Executable()
		qt.Assert(t, qt.IsNil(err))
		var mu sync.Mutex // detaching goes on after SyncAll, and is reported
		var told []string
		w, err := c.Watch(&watch.Options{
			Filter: only(self, innocent),
		}, func(changes *watch.Changes[*watch.Attachment]) {
			mu.Lock()
			defer mu.Unlock()
			for _, err := range changes.Errors {
				told = append(told, err.Error())
			}
		}, watching(t, c.Collect, "hostile:*", "gousdt_test:twelve")...)
		qt.Assert(t, qt.IsNil(err))
		defer w.Close()
		allTold := func() string {
			mu.Lock()
			defer mu.Unlock()
			return strings.Join(told, "\n")
		}
		qt.Assert(t, qt.IsNil(w.SyncAll(t.Context())))
		if mode != usdt.ModeSingleIPMap { // in which each site needs an address of its own
			qt.Assert(t, qt.HasLen(w.Attachments(), files), qt.Commentf("%v", allTold()))
			inUse, _ := c.SpecsInUse()
			qt.Assert(t, qt.Equals(inUse, specs))
		}

		process := testprog.Start(t, innocent)
		qt.Assert(t, qt.IsNil(w.SyncAll(t.Context())))
		process.Fire("twelve", 1)
		qt.Assert(t, qt.Equals(int(c.next(t, 1)[0].Pid), process.PID))
		if mode != usdt.ModeSingleIPMap {
			qt.Assert(t,
				qt.StringContains(allTold(), "detached to make room for others that have less"))
		}
	})
}
