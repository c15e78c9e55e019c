// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package trace_test

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/debuginfo"
	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
)

// modes are all ways to attach. Each is tested wherever the kernel has it, by
// force.
var modes = []usdt.Mode{usdt.ModeMulti, usdt.ModeSingle, usdt.ModeSingleIPMap}

// since has the version of Linux that has a mode.
var since = map[usdt.Mode]string{
	usdt.ModeMulti: "6.6", usdt.ModeSingle: "5.15", usdt.ModeSingleIPMap: "4.17",
}

// forEachMode runs a test in every mode that this kernel has.
func forEachMode(t *testing.T, test func(t *testing.T, mode usdt.Mode)) {
	testprog.RequireBPF(t)
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			_, err := mode.Resolve()
			testneeds.Feature(t, since[mode], mode.String(), err)
			test(t, mode)
		})
	}
}

// traced is a running program. No other test traces or runs its file: tests of
// other packages use the same files, and an attachment without a PID is to all
// processes.
type traced struct {
	*testprog.Process
	path string
}

func start(t testing.TB, program string) *traced {
	t.Helper()
	path := copyOf(t, program)
	return startFile(t, path)
}

// again starts another process of the same file.
func (p *traced) again(t testing.TB) *traced {
	t.Helper()
	return startFile(t, p.path)
}

func startFile(t testing.TB, path string) *traced {
	t.Helper()
	p := &traced{Process: testprog.Start(t, path), path: path}
	warm(t, p.PID)
	return p
}

// warm brings the files that a process maps into its memory: a program can only
// read what is there, and on some kernels constants are not until the process
// has touched them.
func warm(t testing.TB, pid int) {
	t.Helper()
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	qt.Assert(t, qt.IsNil(err))
	memory, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	qt.Assert(t, qt.IsNil(err))
	defer memory.Close()
	for line := range strings.Lines(string(maps)) {
		var from, to int64
		var mode string
		if _, err := fmt.Sscanf(line, "%x-%x %s", &from, &to,
			&mode); err != nil || mode[0] != 'r' || !strings.Contains(line, "/") {
			continue
		}
		for ; from < to; from += int64(os.Getpagesize()) {
			// Memory past the end of the file cannot be read.
			_, _ = memory.ReadAt(make([]byte, 1), from)
		}
	}
}

func copyOf(t testing.TB, program string) string {
	t.Helper()
	contents, err := os.ReadFile(testprog.Path(t, program))
	qt.Assert(t, qt.IsNil(err))
	path := filepath.Join(t.TempDir(), program)
	qt.Assert(t, qt.IsNil(os.WriteFile(path, contents, 0o755)))
	return path
}

// copyWithProbes copies a program, and the library that has its probes.
func copyWithProbes(t testing.TB, program string) (path, file string) {
	t.Helper()
	path = copyOf(t, program)
	if program != "target-shared" {
		return path, path
	}
	// The program finds the library beside itself.
	file = filepath.Join(filepath.Dir(path), "libtarget.so")
	qt.Assert(t, qt.IsNil(os.Rename(copyOf(t, "libtarget.so"), file)))
	return path, file
}

// open opens a session on a traced program, and closes it at the end of the
// test, after which nothing may be left.
func open(t testing.TB, p *traced, pattern string, opts *trace.SessionOptions) *trace.Session {
	t.Helper()
	s := newSession(t, opts)
	attach(t, s, usdt.Target{Path: p.path, Symbols: debuginfo.AddInstalled}, pattern, nil)
	return s
}

// aggregating are options of a session that only aggregates.
func aggregating(all ...*trace.Aggregation) *trace.SessionOptions {
	return &trace.SessionOptions{Aggregations: all}
}

func snapshot(t testing.TB, a *trace.Aggregation) *trace.Snapshot {
	t.Helper()
	s, err := sessionOf(a).Snapshot(a)
	qt.Assert(t, qt.IsNil(err))
	return s
}

// sessionOf returns the last session of newSession that computes an
// aggregation.
func sessionOf(a *trace.Aggregation) *trace.Session {
	s, _ := sessions.Load(a)
	return s.(*trace.Session)
}

var sessions sync.Map // by aggregation

func newSession(t testing.TB, opts *trace.SessionOptions) *trace.Session {
	t.Helper()
	testprog.RequireBPF(t)
	testprog.LeakCheck(t)
	s, err := trace.New(opts)
	qt.Assert(t, qt.IsNil(err))
	t.Cleanup(func() { qt.Check(t, qt.IsNil(s.Close())) })
	if opts != nil {
		for _, a := range opts.Aggregations {
			sessions.Store(a, s)
		}
	}
	return s
}

func attach(t testing.TB, s *trace.Session, target usdt.Target, pattern string,
	opts *usdt.AttachOptions) *trace.Attachment {
	t.Helper()
	a, err := s.Attach(target, opts, elfnote.MustParsePattern(pattern))
	qt.Assert(t, qt.IsNil(err))
	return a
}

// patience is how long a test waits for events that must have been sent
// already: an emulated machine is slow.
const patience = 30 * time.Second

// next returns the next n events. A hit is reported before the traced program
// goes on, so the events are there already.
func next(t testing.TB, s *trace.Session, n int) []*trace.Event {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testneeds.Patience(patience))
	defer cancel()
	var events []*trace.Event
	if n == 0 {
		return nil
	}
	for event, err := range s.Events(ctx) {
		qt.Assert(t, qt.IsNil(err))
		events = append(events, event)
		if len(events) == n {
			return events
		}
	}
	t.Fatalf("%d events came, not %d", len(events), n)
	return nil
}

// rest detaches and returns all events that are still to come, and how many
// were lost.
func rest(t testing.TB, s *trace.Session) (events []*trace.Event, lost uint64) {
	t.Helper()
	qt.Assert(t, qt.IsNil(s.Detach()))
	for event, err := range s.Events(context.Background()) {
		var l trace.LostError
		if errors.As(err, &l) {
			lost += uint64(l)
			continue
		}
		qt.Assert(t, qt.IsNil(err))
		events = append(events, event)
	}
	return events, lost
}

// silent asserts that no further event has been sent. The session is of no use
// afterwards.
func silent(t testing.TB, s *trace.Session) {
	t.Helper()
	events, lost := rest(t, s)
	qt.Assert(t, qt.HasLen(events, 0))
	qt.Assert(t, qt.Equals(lost, 0))
}

// texts returns the arguments of an event as they are shown.
func texts(event *trace.Event) []string {
	var all []string
	for _, arg := range event.Args {
		all = append(all, arg.String())
	}
	return all
}

func machine(t testing.TB, path string) elf.Machine {
	t.Helper()
	file, err := elfnote.Open(path)
	qt.Assert(t, qt.IsNil(err))
	defer file.Close()
	return file.Header().Machine
}

func decimal(n int) string { return strconv.Itoa(n) }

func TestMain(m *testing.M) {
	testprog.BeMapper()
	os.Exit(m.Run())
}

// patternsOf returns patterns of the probes of a pair.
func patternsOf(t testing.TB, definitions *trace.Definitions, pair string) []elfnote.Pattern {
	patterns, err := definitions.Patterns(pair)
	qt.Assert(t, qt.IsNil(err))
	return patterns
}
