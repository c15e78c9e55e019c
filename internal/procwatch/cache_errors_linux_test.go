// SPDX-License-Identifier: BSD-2-Clause

package procwatch

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/elffile"
)

func TestCacheRemembersWhatIsWrongWithAFile(t *testing.T) {
	f, c := newFixture(t), NewCache()
	dir := t.TempDir()
	truncated := filepath.Join(dir, "truncated.so")
	qt.Assert(t, qt.IsNil(os.WriteFile(truncated, memoryProbes.bytes()[:0x1010], 0o755)))
	malformed := testELF{probes: [][2]string{{"p", "n"}}, broken: true}.write(t, dir,
		"malformed.so")
	openings := countOpenings(c)
	for range 2 {
		_, ok, err := c.Acquire(mapped(t, f, 1, truncated))
		qt.Check(t, qt.IsFalse(ok))
		qt.Check(t, qt.ErrorIs(err, elffile.ErrMalformed))
		qt.Check(t, qt.ErrorMatches(err, `process 1: read probes ".*/truncated.so": .*`))

		_, ok, err = c.Acquire(mapped(t, f, 2, malformed))
		qt.Check(t, qt.IsFalse(ok))
		qt.Check(t,
			qt.ErrorMatches(err,
				`process 2: read probes ".*/malformed.so": none of the 1 probes can be used: note 0: location is not in .*`))
	}
	qt.Check(t, qt.Equals(openings.Load(), 2))
	qt.Check(t, qt.HasLen(c.files, 0))
}

func TestCacheDoesNotRememberThatOpeningFailed(t *testing.T) {
	f := newFixture(t)
	fail := error(syscall.EMFILE)
	c := NewCache()
	c.open = func(m *MappedFile) (io.ReaderAt, error) {
		if fail != nil {
			return nil, fail
		}
		return openMapped(m)
	}
	lib := memoryProbes.write(t, t.TempDir(), "lib.so")
	_, ok, err := c.Acquire(mapped(t, f, 1, lib))
	qt.Check(t, qt.ErrorIs(err, fail))
	qt.Check(t, qt.IsFalse(ok))
	qt.Check(t, qt.HasLen(c.files, 0))

	fail = nil
	acquire(t, c, mapped(t, f, 1, lib)).Release()

	fail = syscall.ENFILE // at the second opening, of a file that is known to have probes
	_, _, err = c.Acquire(mapped(t, f, 1, lib))
	qt.Check(t, qt.ErrorIs(err, fail))
	qt.Check(t, qt.HasLen(c.files, 0))
}

// failingReader is a file on a disk that is going, or on a host that does not
// answer any more.
type failingReader struct {
	io.ReaderAt
	err    error
	good   int // how many reads succeed first
	closed *int
}

func (r *failingReader) ReadAt(p []byte, offset int64) (int, error) {
	if r.good == 0 {
		return 0, r.err
	}
	r.good--
	return r.ReaderAt.ReadAt(p, offset)
}

func (r *failingReader) Close() error { *r.closed++; return nil }

// Whichever read it is that fails, the next caller finds the probes.
func TestCacheDoesNotRememberThatReadingFailed(t *testing.T) {
	for _, failure := range []error{syscall.EIO, errors.New("remote: deadline exceeded"),
		io.ErrUnexpectedEOF} {
		f := newFixture(t)
		opened, closed := 0, 0
		c := NewCache()
		c.open = func(*MappedFile) (io.ReaderAt, error) {
			opened++
			return &failingReader{bytes.NewReader(memoryProbes.bytes()), failure, opened - 1,
				&closed}, nil
		}
		lib := memoryProbes.write(t, t.TempDir(), "lib.so")
		for {
			file, ok, err := c.Acquire(mapped(t, f, 1, lib))
			if err == nil {
				qt.Check(t, qt.IsTrue(ok))
				file.Release()
				break
			}
			qt.Assert(t, qt.ErrorIs(err, failure))
			qt.Assert(t, qt.ErrorMatches(err, `process 1: read probes ".*/lib.so": .*`))
			qt.Assert(t, qt.Equals(closed, opened))
			qt.Assert(t, qt.HasLen(c.files, 0))
		}
		qt.Check(t, qt.IsTrue(opened > 2), qt.Commentf("opened %d times", opened))
	}
}
