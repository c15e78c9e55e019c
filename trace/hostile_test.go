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
	testneeds.Kernel(t, "6.6",
		"programs that may sleep, without a lock of their processor (see SessionOptions.PageIn)")
	path := copyOf(t, "target-static")
	qt.Assert(t, qt.IsNil(os.Chmod(filepath.Dir(filepath.Dir(path)), 0o755))) // for another user
	hostile := testprog.StartHostile(t, 1000, path, "COLD_FILE=fuse/program")
	hostile.Do(fmt.Sprint("stop ", testprog.FUSERead), "exec "+path, "pid")
	s := newSession(t,
		&trace.SessionOptions{PageIn: true, Captures: []trace.Capture{{Arg: "arg0"}}})
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
	qt.Check(t, qt.IsTrue(late < testprog.InTime(2*time.Second)), qt.Commentf("after %v", late))
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	for event, err := range s.Events(ctx) {
		t.Errorf("%v, %v", event, err)
	}
	costs.Report(7, "PageIn, for a page that does not come", "no event of anybody",
		"all events", late)

	// Nothing is detached before: that waits for the page.
	qt.Assert(t, qt.IsNil(unix.Kill(hostile.Server, unix.SIGKILL)))
	qt.Assert(t, qt.IsNil(<-fired))
	event := next(t, s, 1)[0]
	qt.Check(t, qt.Equals(event.PID, hostile.PID))
	_, all := event.Args[0].Data()
	qt.Check(t, qt.IsFalse(all))
}

// A container passes its probes in processes and threads that are new again and
// again, each of which is a key, and more often than others do. Others have
// their rows all the same, and no hit is missing.
func TestHostileContainerThatMakesUpKeys(t *testing.T) {
	dir, _ := newControlGroup(t)
	noisy := start(t, "target-pie")
	modest := noisy.again(t)
	keys := trace.NewAggregator(trace.Aggregation{By: []string{"tid", "arg0"}, MaxKeys: 4096})
	open(t, noisy, "gousdt_test:*", aggregating(keys))
	group := filepath.Join(dir, "cgroup.procs")
	qt.Assert(t, qt.IsNil(os.WriteFile(group, fmt.Append(nil, noisy.PID), 0)))
	// The group can be removed when the process has left it.
	defer func() {
		group := filepath.Join(filepath.Dir(dir), "cgroup.procs")
		qt.Check(t, qt.IsNil(os.WriteFile(group, fmt.Append(nil, noisy.PID), 0)))
	}()

	costs := testprog.StartCosts(t)
	const few, specs, times, threads, rounds = 20, 300, 5, 32, 10
	began := time.Now()
	var late time.Duration
	for i := range few {
		done := make(chan error, 1)
		go func() {
			_, err := noisy.Command("thread specs " + decimal(threads))
			for range rounds {
				if err == nil {
					_, err = noisy.Command(fmt.Sprint("fork specs ", times))
				}
			}
			done <- err
		}()
		_, err := modest.Command("thread three 1")
		qt.Assert(t, qt.IsNil(err))
		if i == 0 {
			late = time.Since(began)
		}
		qt.Assert(t, qt.IsNil(<-done))
	}
	s := snapshot(t, keys)
	inRows, others := counted(s)
	qt.Check(t, qt.Equals(inRows+others, few*(1+specs*(threads+rounds*times))))
	qt.Check(t, qt.IsTrue(len(s.Rows) <= 4096))
	// The probe named three has an argument that no specs has.
	named := 0
	for i := range s.Rows {
		if s.Rows[i].Count == 1 && s.Rows[i].Keys[1].Uint() >= specs {
			named++
		}
	}
	qt.Check(t, qt.Equals(named, few))
	costs.Report(4, "a container makes up keys of an aggregation, of which there may be 4096",
		"0 of 20 rows of others",
		fmt.Sprintf("%d of %d; %d of its own hits in (other)", named, few, others), late)
}
