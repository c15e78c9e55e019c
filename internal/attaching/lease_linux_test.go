// SPDX-License-Identifier: BSD-2-Clause

package attaching_test

import (
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/attaching"
	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
)

func newFile(t *testing.T) string {
	testneeds.Root(t)
	path := filepath.Join(t.TempDir(), "file")
	qt.Assert(t, qt.IsNil(os.WriteFile(path, []byte("contents"), 0o600)))
	return path
}

// descriptor opens a file for a lease.
func descriptor(t *testing.T, path string) int {
	file, err := os.Open(path)
	qt.Assert(t, qt.IsNil(err))
	t.Cleanup(func() { file.Close() })
	return int(file.Fd())
}

func TestWriterWaitsUntilTheLeaseIsReturned(t *testing.T) {
	path := newFile(t)
	// No handler of the program's own must get the signal.
	signals := make(chan os.Signal, 10)
	signal.Notify(signals)
	defer signal.Stop(signals)
	testprog.LeakCheck(t) // after Notify, whose goroutine stays
	fd := descriptor(t, path)
	for _, write := range []func() error{
		func() error { return os.WriteFile(path, []byte("other"), 0o600) },
		func() error { return os.Truncate(path, 3) },
	} {
		broken, wrote := make(chan struct{}), make(chan error)
		l := attaching.Take(fd, true, func() { close(broken) })
		qt.Assert(t, qt.IsNil(l.Reason()))
		before, err := os.Stat(path)
		qt.Assert(t, qt.IsNil(err))
		go func() { wrote <- write() }()
		<-broken
		time.Sleep(20 * time.Millisecond) // the writer could be faster than this
		now, err := os.Stat(path)
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.Equals(now.ModTime(), before.ModTime()))
		l.Return()
		qt.Check(t, qt.IsNil(<-wrote))
	}
	for len(signals) > 0 {
		if s := <-signals; s != syscall.SIGURG { // of the runtime
			t.Error("the program got", s)
		}
	}
}

// Leases of two owners are independent: the writer waits for both.
func TestEveryLeaseOfAFileIsBroken(t *testing.T) {
	path := newFile(t)
	testprog.LeakCheck(t)
	broken := make(chan int, 3)
	leases := make([]*attaching.Lease, 3)
	first, second := descriptor(t, path), descriptor(t, path)
	for i, fd := range []int{first, second, second} {
		leases[i] = attaching.Take(fd, true, func() { broken <- i })
	}
	wrote := make(chan error)
	go func() { wrote <- os.WriteFile(path, nil, 0o600) }()
	for range leases {
		leases[<-broken].Return()
	}
	qt.Check(t, qt.IsNil(<-wrote))
}

func TestWriteIsNoticedWithoutALease(t *testing.T) {
	path := newFile(t)
	testprog.LeakCheck(t)
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	qt.Assert(t, qt.IsNil(err))
	defer file.Close()
	fd := descriptor(t, path)
	for name, hold := range map[string]bool{"open for writing": true, "not wanted": false} {
		written := make(chan struct{})
		l := attaching.Take(fd, hold, func() { close(written) })
		qt.Check(t, qt.IsNotNil(l.Reason()), qt.Commentf(name))
		_, err := file.WriteString("new")
		qt.Assert(t, qt.IsNil(err))
		<-written
		l.Return()
	}
}
