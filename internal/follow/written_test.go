// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package follow

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/testprog"
)

// overwrite puts other probes into a file, or only touches it.
func (w *world) overwrite(name, provider string) {
	w.t.Helper()
	path := filepath.Join(w.files, name)
	testprog.WriteNotes(w.t, path+".new", []testprog.Note{{Provider: provider, Name: name}})
	text, err := os.ReadFile(path + ".new")
	qt.Assert(w.t, qt.IsNil(err))
	qt.Assert(w.t, qt.IsNil(os.WriteFile(path, text, 0o644)))
	qt.Assert(w.t, qt.IsNil(os.Chtimes(path, time.Time{}, time.Now().Add(time.Hour))))
}

func TestFollowerAttachesAFileAnewThatWasWrittenTo(t *testing.T) {
	t.Run("in every process", func(t *testing.T) {
		w := newWorld(t).everywhere()
		f := w.follower(Options{})
		w.start(1, "a")
		w.start(2, "a")
		pass(t, f)
		w.tells("+0 a")
		w.overwrite("a", "p")
		qt.Assert(t, qt.IsNil(f.Sync(1)))
		w.tells()
		w.overwrite("a", "q")
		qt.Assert(t, qt.IsNil(f.Sync(1)))
		w.tellsInOrder("-0 a", "+0 a")
		qt.Assert(t, qt.IsNil(f.Sync(2)))
		w.tells()
		qt.Check(t, qt.HasLen(f.attachments(), 1))
		qt.Check(t, qt.Equals(w.opened, 1))
	})
	t.Run("in each process", func(t *testing.T) {
		w := newWorld(t)
		f := w.follower(Options{})
		w.start(1, "a")
		w.start(2, "a")
		pass(t, f)
		w.tells("+0 a 1", "+0 a 2")
		w.overwrite("a", "q")
		qt.Assert(t, qt.IsNil(f.Sync(1)))
		w.tells("-0 a 1", "-0 a 2", "+0 a 1", "+0 a 2")
		qt.Assert(t, qt.IsNil(f.Sync(2)))
		w.tells()
		qt.Check(t, qt.HasLen(f.attachments(), 2))
		w.end(2)
		pass(t, f)
		w.tells("-0 a 2")
	})
}
