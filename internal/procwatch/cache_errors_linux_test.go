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
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/internal/elffile"
)

func TestCacheRemembersWhatIsWrongWithAFile(t *testing.T) {
	f, c := newFixture(t), newCache()
	dir := t.TempDir()
	truncated := filepath.Join(dir, "truncated.so")
	qt.Assert(t, qt.IsNil(os.WriteFile(truncated, memoryProbes.bytes()[:0x1010], 0o755)))
	malformed := testELF{probes: [][2]string{{"p", "n"}}, broken: true}.write(t, dir,
		"malformed.so")
	openings := countOpenings(t, dir)
	for range 2 {
		_, ok, err := c.acquire(&request{mounts: new(Mounts), MappedFile: mapped(t, f, 1, truncated)})
		qt.Check(t, qt.IsFalse(ok))
		qt.Check(t, qt.ErrorIs(err, elffile.ErrMalformed))
		qt.Check(t, qt.ErrorMatches(err, `process 1: read probes ".*/truncated.so": .*`))

		_, ok, err = c.acquire(&request{mounts: new(Mounts), MappedFile: mapped(t, f, 2, malformed)})
		qt.Check(t, qt.IsFalse(ok))
		qt.Check(t,
			qt.ErrorMatches(err,
				`process 2: read probes ".*/malformed.so": none of the 1 probes can be used: note 0: location is not in .*`))
	}
	qt.Check(t, qt.Equals(openings(), 2))
	qt.Check(t, qt.HasLen(c.files, 0))
}

func TestCacheDoesNotRememberThatOpeningFailed(t *testing.T) {
	f, c := newFixture(t), newCache()
	lib := memoryProbes.write(t, t.TempDir(), "lib.so")
	var before unix.Rlimit
	qt.Assert(t, qt.IsNil(unix.Getrlimit(unix.RLIMIT_NOFILE, &before)))
	for range 2 { // the second time, the file is known to have probes
		m := mapped(t, f, 1, lib)
		qt.Assert(t, qt.IsNil(unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Max: before.Max})))
		_, ok, err := c.acquire(&request{mounts: new(Mounts), MappedFile: m})
		qt.Assert(t, qt.IsNil(unix.Setrlimit(unix.RLIMIT_NOFILE, &before)))
		qt.Check(t, qt.ErrorIs(err, syscall.EMFILE))
		qt.Check(t, qt.IsFalse(ok))
		qt.Check(t, qt.HasLen(c.files, 0))
		acquire(t, c, mapped(t, f, 1, lib)).Release()
	}
}

// failingReader is a file on a failing disk, or on a host that does not answer
// any more.
type failingReader struct {
	io.ReaderAt
	err  error
	good int // how many reads succeed first
}

func (r *failingReader) ReadAt(p []byte, offset int64) (int, error) {
	if r.good == 0 {
		return 0, r.err
	}
	r.good--
	return r.ReaderAt.ReadAt(p, offset)
}

// A read that fails says nothing about the contents of the file, whichever read
// it is.
func TestCacheDoesNotRememberThatReadingFailed(t *testing.T) {
	for _, failure := range []error{syscall.EIO, errors.New("remote: deadline exceeded"),
		io.ErrUnexpectedEOF} {
		for good := 0; ; good++ {
			r := &failingReader{bytes.NewReader(memoryProbes.bytes()), failure, good}
			_, notes, err := newCache().read(r, maxKeptOfFile)
			if err == nil {
				qt.Check(t, qt.IsTrue(notes.matches))
				qt.Check(t, qt.IsTrue(good > 1), qt.Commentf("failed %d times", good))
				break
			}
			qt.Assert(t, qt.ErrorIs(err, failure))
			qt.Assert(t, qt.IsNil(notes.err))
		}
	}
	// The memory of a process is a file that gives EIO where there is none.
	f, c := newFixture(t), newCache()
	before := openDescriptors(t)
	for range 2 {
		_, _, err := c.acquire(&request{mounts: new(Mounts), MappedFile: mapped(t, f, 1, "/proc/self/mem")})
		qt.Assert(t, qt.ErrorIs(err, syscall.EIO))
		qt.Assert(t, qt.ErrorMatches(err, `process 1: read probes "/proc/self/mem": .*`))
		qt.Assert(t, qt.HasLen(c.files, 0))
		checkDescriptors(t, before)
	}
}
