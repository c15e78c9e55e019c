// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package trace_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
)

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

// A user's file has one pair of probes that a session measures, and others
// without end. The session takes time and memory for the one.
func TestHostileFileOfManyOtherProbes(t *testing.T) {
	others := 60_000
	if testprog.IsComplete() {
		others = 600_000 // 58 MiB
	}
	notes := []testprog.Note{
		{Provider: "gousdt", Name: "call__start"}, {Provider: "gousdt", Name: "call__done"},
		{Provider: "gousdt", Name: "single__start"},
	}
	for n := range others {
		notes = append(notes, testprog.Note{Provider: "hostile", Arguments: "8@$1",
			Name: fmt.Sprintf("%032d", n)})
	}
	path := filepath.Join(t.TempDir(), "file")
	testprog.WriteNotes(t, path, notes)
	notes = nil
	size, err := os.Stat(path)
	qt.Assert(t, qt.IsNil(err))
	s := newSession(t, &trace.SessionOptions{
		Spans: []trace.Latency{{Pair: elfnote.MustParsePairPattern("gousdt:*")}}})
	limited := &usdt.AttachOptions{SelectOptions: usdt.SelectOptions{MaxSites: 10_000}}

	costs := testprog.StartCosts(t)
	allocated := func(attach func()) int64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		attach()
		runtime.ReadMemStats(&after)
		return int64(after.TotalAlloc - before.TotalAlloc)
	}
	began := time.Now()
	taken := allocated(func() {
		attach(t, s, usdt.Target{Path: path}, "gousdt:call__*", limited)
	})
	took := time.Since(began)
	qt.Check(t, qt.IsTrue(taken < 2*size.Size()), qt.Commentf("%d of %d bytes", taken, size.Size()))
	taken = allocated(func() {
		_, err := s.Attach(usdt.Target{Path: path}, limited, elfnote.Exact("gousdt", "single__start"))
		qt.Check(t, qt.ErrorAs(err, new(*trace.FilteredError)))
	})
	qt.Check(t, qt.IsTrue(taken < 4*size.Size()), qt.Commentf("%d of %d bytes", taken, size.Size()))
	costs.Report(3, fmt.Sprintf("a file with a pair to measure and %d MiB of other notes",
		size.Size()>>20), "358 MB, 1.2 s", fmt.Sprintf("%.2f s", took.Seconds()), took)
}
