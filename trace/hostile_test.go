// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package trace_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
)

// A user's program passes a text in a page that his FUSE server does not send,
// to a session with PageIn. Events of others come, and an iteration ends with
// its context.
func TestHostileUserWhosePageDoesNotCome(t *testing.T) {
	testneeds.Kernel(t, "6.6", "programs that may sleep, without a lock of their processor (see SessionOptions.PageIn)")
	path := copyOf(t, "target-static")
	qt.Assert(t, qt.IsNil(os.Chmod(filepath.Dir(filepath.Dir(path)), 0o755))) // for another user
	hostile := testprog.StartHostile(t, 1000, path, "COLD_FILE=fuse/program")
	hostile.Do(fmt.Sprint("stop ", testprog.FUSERead), "exec "+path, "pid")
	s := newSession(t, &trace.SessionOptions{PageIn: true, Captures: []trace.Capture{{Arg: "arg0"}}})
	attach(t, s, usdt.Target{Path: path}, "gousdt_test:cold", nil)
	other := start(t, "target-pie")
	attach(t, s, usdt.Target{Path: other.path}, "gousdt_test:three", nil)
	attach(t, s, usdt.Target{Path: other.path}, "gousdt_test:strings", nil)

	costs := testprog.StartCosts(t)
	fired := make(chan error, 1)
	go func() {
		_, err := hostile.Command("fire cold")
		fired <- err
	}()
	testprog.AwaitFault(t, hostile.PID)
	const hits = 10
	began := time.Now()
	other.Fire("three", hits)
	for _, event := range next(t, s, hits) {
		qt.Assert(t, qt.Equals(event.PID, other.PID))
	}
	late := time.Since(began)
	qt.Check(t, qt.IsTrue(late < testneeds.Patience(2*time.Second)), qt.Commentf("after %v", late))
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	for event, err := range s.Events(ctx) {
		t.Errorf("%v, %v", event, err)
	}
	costs.Report(7, "PageIn, for a page that does not come", "no event of anybody", "all events", late)

	// Nothing is detached before: that waits for the page.
	qt.Assert(t, qt.IsNil(unix.Kill(hostile.Server, unix.SIGKILL)))
	qt.Assert(t, qt.IsNil(<-fired))
	event := next(t, s, 1)[0]
	qt.Check(t, qt.Equals(event.PID, hostile.PID))
	_, all := event.Args[0].Data()
	qt.Check(t, qt.IsFalse(all))
}
