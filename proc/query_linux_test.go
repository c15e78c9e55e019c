// SPDX-License-Identifier: BSD-2-Clause

package proc

import (
	"errors"
	"os"
	"testing"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"
)

// kernelIs tells whether the kernel is at least of a version.
func kernelIs(t testing.TB, major, minor int) bool {
	t.Helper()
	var name unix.Utsname
	qt.Assert(t, qt.IsNil(unix.Uname(&name)))
	var got [2]int
	i := 0
	for _, c := range name.Release {
		if c < '0' || c > '9' {
			if i++; i == len(got) {
				break
			}
			continue
		}
		got[i] = got[i]*10 + int(c-'0')
	}
	return got[0] > major || got[0] == major && got[1] >= minor
}

func TestQueryAndTextOfMapsAgree(t *testing.T) {
	lib := noProbes.write(t, t.TempDir(), "lib.so")
	h := startHelper(t, 0)
	for range 3 {
		h.do("map", lib)
		h.do("memfd", lib)
	}
	var queried, read [][7]any
	err := NewFS("").queryMaps(h.pid, func(l *mapLine) { queried = append(queried, fields(*l)) })
	if errors.Is(err, errNoQuery) && !kernelIs(t, 6, 11) {
		t.Skipf("needs Linux 6.11: %v", err)
	}
	qt.Assert(t, qt.IsNil(err))
	var lines lineReader
	qt.Assert(t, qt.IsNil(NewFS("").readMaps(h.pid, &lines, func(l *mapLine) { read = append(read, fields(*l)) })))
	qt.Check(t, qt.DeepEquals(queried, read))
	qt.Check(t, qt.IsTrue(len(read) >= 7))

	w := NewWatcher(nil)
	defer w.Close()
	byQuery, err := w.fingerprint(h.pid)
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsFalse(w.noQuery))
	w.noQuery = true
	byText, err := w.fingerprint(h.pid)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(byQuery, byText))
	h.do("unmap")
	later, err := w.fingerprint(h.pid)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Not(qt.Equals(later, byText)))
}

func TestQueryOfWhatIsNoMapsSaysSo(t *testing.T) {
	f := newFixture(t)
	f.put(fakeProcess{pid: 1})
	err := f.fs().queryMaps(1, func(*mapLine) {})
	qt.Check(t, qt.ErrorIs(err, errNoQuery))
	err = f.fs().queryMaps(2, func(*mapLine) {})
	qt.Check(t, qt.ErrorIs(err, ErrGone))
	qt.Check(t, qt.ErrorIs(err, os.ErrNotExist))
}
