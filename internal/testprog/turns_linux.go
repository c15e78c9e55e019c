// SPDX-License-Identifier: BSD-2-Clause

package testprog

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"
)

// What the tests of two packages cannot use at the same time, as both see it.
const (
	SystemSoftware = "software" // a semaphore in a system's file counts the tracers of all
	HostileUsers   = "hostile"  // they have the same user IDs, and share what one user may take
	tracefsEvents  = "tracefs"  // those of killed tracers belong to nobody
)

// TakeTurn waits until no test of another package uses something, and keeps
// others waiting until the end of the test. What starts software of the system
// does that too.
func TakeTurn(t testing.TB, what string) {
	t.Helper()
	if os.Getenv(prebuiltVariable) != "" {
		return // guests run one package at a time
	}
	turns.Lock()
	defer turns.Unlock()
	if turns.users[what] == 0 {
		build := filepath.Join(testdata(t), "build")
		qt.Assert(t, qt.IsNil(os.MkdirAll(build, 0o777)))
		file, err := os.OpenFile(filepath.Join(build, "lock-"+what), os.O_CREATE|os.O_RDONLY, 0o666)
		qt.Assert(t, qt.IsNil(err))
		for err = unix.EINTR; errors.Is(err, unix.EINTR); {
			err = unix.Flock(int(file.Fd()), unix.LOCK_EX)
		}
		qt.Assert(t, qt.IsNil(err))
		turns.files[what] = file
	}
	turns.users[what]++
	t.Cleanup(func() {
		turns.Lock()
		defer turns.Unlock()
		if turns.users[what]--; turns.users[what] == 0 {
			turns.files[what].Close()
		}
	})
}

// turns are those of this process.
var turns = struct {
	sync.Mutex
	users map[string]int
	files map[string]*os.File
}{users: make(map[string]int), files: make(map[string]*os.File)}
