// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package trace_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
)

// A hit that waits for a page that does not come keeps back neither the events
// of others nor the end of an iteration.
func TestPageThatDoesNotComeKeepsNothingBack(t *testing.T) {
	testneeds.Kernel(t, "6.0", "sleepable programs on uprobes")
	const name = "text"
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		if mode != usdt.ModeMulti {
			testneeds.Kernel(t, "6.10", "perf events whose programs sleep without a lock of their "+
				"processor (see SessionOptions.PageIn)")
		}
		server := testprog.MountFUSE(t, map[string][]byte{name: append([]byte("served"),
			make([]byte, 1<<16)...)})
		path := copyOf(t, "target-pie")
		command := exec.Command(path)
		command.Env = append(os.Environ(), "COLD_FILE="+filepath.Join(server.Dir, name))
		waits := testprog.StartCommand(t, command)
		s := newSession(t, &trace.SessionOptions{Mode: mode, PageIn: true,
			Captures: []trace.Capture{{Arg: "arg0"}}})
		attach(t, s, usdt.Target{Path: path}, "gousdt_test:cold", nil)
		other := start(t, "target-pie")
		attach(t, s, usdt.Target{Path: other.path}, "gousdt_test:three", nil)
		attach(t, s, usdt.Target{Path: other.path}, "gousdt_test:strings", nil)

		server.Stop(testprog.FUSERead)
		answered := make(chan error, 1)
		go func() {
			_, err := waits.Command("fire cold")
			answered <- err
		}()
		server.AwaitStopped(testprog.FUSERead)
		other.Fire("three", 2)
		for _, event := range next(t, s, 2) {
			qt.Assert(t, qt.Equals(event.PID, other.PID))
		}
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		cancelled := false
		other.Fire("strings", 1)
		for event, err := range s.Events(ctx) {
			qt.Assert(t, qt.IsNil(err))
			qt.Assert(t, qt.Equals(event.PID, other.PID))
			cancelled = true
			cancel()
		}
		qt.Assert(t, qt.IsTrue(cancelled))

		server.Resume()
		qt.Assert(t, qt.IsNil(<-answered))
		late := next(t, s, 1)[0]
		qt.Assert(t, qt.Equals(late.PID, waits.PID))
		data, all := late.Args[0].Data()
		qt.Assert(t, qt.IsTrue(all))
		qt.Assert(t, qt.Equals(string(data), "served"))
	})
}

// Files whose pages come from a server are not attached with PageIn, unless
// that is asked for.
func TestPageInRefusesFilesOnServers(t *testing.T) {
	testneeds.Kernel(t, "6.0", "sleepable programs on uprobes")
	testprog.RequireBPF(t)
	const name = "program"
	contents, err := os.ReadFile(testprog.Path(t, "target-pie"))
	qt.Assert(t, qt.IsNil(err))
	server := testprog.MountFUSE(t, map[string][]byte{name: contents})
	target := usdt.Target{Path: filepath.Join(server.Dir, name)}
	probe := elfnote.Exact("gousdt_test", "cold")

	_, err = trace.Open(target, &trace.SessionOptions{PageIn: true}, probe)
	qt.Assert(t,
		qt.ErrorMatches(err,
			".*: PageIn: the file is on FUSE: a page that does not come .*set PageInRemote"))
	for _, opts := range []*trace.SessionOptions{{}, {PageIn: true, PageInRemote: true}} {
		s, err := trace.Open(target, opts, probe)
		qt.Assert(t, qt.IsNil(err))
		qt.Assert(t, qt.IsNil(s.Close()))
	}

	// A server that does not even say what it is, is not waited for.
	sel, err := usdt.Select(target, nil, probe)
	qt.Assert(t, qt.IsNil(err))
	defer sel.Close()
	s := newSession(t, &trace.SessionOptions{PageIn: true})
	server.Stop(testprog.FUSEStatfs)
	defer server.Resume()
	_, err = s.AttachSelection(sel, nil)
	qt.Assert(t,
		qt.ErrorMatches(err,
			".*: PageIn: the file's file system has not said within 1s what it is: .*"))
}
