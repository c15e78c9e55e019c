// SPDX-License-Identifier: BSD-2-Clause

package procwatch

import (
	"errors"
	"os"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/procfs"
	"github.com/gousdt/gousdt/internal/testneeds"
)

func TestQueryAndTextOfMapsAgree(t *testing.T) {
	lib := noProbes.write(t, t.TempDir(), "lib.so")
	h := startHelper(t, 0)
	for range 3 {
		h.do("map", lib)
		h.do("memfd", lib)
	}
	var queried, read [][7]any
	err := queryMaps("/proc", h.pid, func(l *mapLine) { queried = append(queried, fields(*l)) })
	if errors.Is(err, errNoQuery) {
		testneeds.Kernel(t, "6.11", "a query of a process's mappings")
	}
	qt.Assert(t, qt.IsNil(err))
	var lines lineReader
	qt.Assert(t, qt.IsNil(readMaps("/proc", h.pid, &lines,
		func(l *mapLine) { read = append(read, fields(*l)) })))
	qt.Check(t, qt.DeepEquals(queried, read))
	qt.Check(t, qt.IsTrue(len(read) >= 7))

	w := NewWatcher(nil)
	defer w.Close()
	b := newBuffers().(*buffers)
	byQuery, err := w.fingerprint(h.pid, b)
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsFalse(w.noQuery.Load()))
	w.noQuery.Store(true)
	byText, err := w.fingerprint(h.pid, b)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(byQuery, byText))
	h.do("unmap")
	later, err := w.fingerprint(h.pid, b)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Not(qt.Equals(later, byText)))
}

func TestQueryOfWhatIsNoMapsSaysSo(t *testing.T) {
	f := newFixture(t)
	f.put(fakeProcess{pid: 1})
	err := queryMaps(f.root, 1, func(*mapLine) {})
	qt.Check(t, qt.ErrorIs(err, errNoQuery))
	err = queryMaps(f.root, 2, func(*mapLine) {})
	qt.Check(t, qt.ErrorIs(err, procfs.ErrGone))
	qt.Check(t, qt.ErrorIs(err, os.ErrNotExist))
}
