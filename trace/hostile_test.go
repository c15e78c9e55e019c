// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package trace_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/internal/tracing"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
	"github.com/gousdt/gousdt/watch"
)

// A container passes its probes in ever new processes and threads, each of
// which is a key, and more often than others do. Others have their rows all the
// same, and no hit is missing.
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
		Events: &trace.EventOptions{
			Spans: []trace.Latency{{Pair: elfnote.MustParsePairPattern("gousdt:*")}}},
	})
	limited := usdt.Target{Path: path, MaxSites: 10_000}

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
		attach(t, s, limited, "gousdt:call__*", nil)
	})
	took := time.Since(began)
	// All notes are at one instruction, whose probes are named.
	qt.Check(t, qt.IsTrue(taken < 4*size.Size()), qt.Commentf("%d of %d bytes", taken, size.Size()))
	taken = allocated(func() {
		_, err := s.Attach(limited, nil, elfnote.Exact("gousdt", "single__start"))
		qt.Check(t, qt.ErrorAs(err, new(*tracing.FilteredError)))
	})
	qt.Check(t, qt.IsTrue(taken < 6*size.Size()), qt.Commentf("%d of %d bytes", taken, size.Size()))
	costs.Report(3, fmt.Sprintf("a file with a pair to measure and %d MiB of other notes",
		size.Size()>>20), "358 MB, 1.2 s", fmt.Sprintf("%.2f s", took.Seconds()), took)
}

// What a session holds of a site that is attached is small, also where all
// sites of a file differ: their names, or their arguments.
func TestHostileSitesTakeLittleMemory(t *testing.T) {
	testneeds.Root(t)
	testneeds.Only(t, "the argument strings of the files are those of x86-64", "amd64")
	_, err := usdt.ModeMulti.Resolve() // all sites have one address: no two share a perf event
	testneeds.Feature(t, since[usdt.ModeMulti], usdt.ModeMulti.String(), err)
	const sites = 1_000
	for most, note := range map[int]func(n int) testprog.Note{
		700: func(n int) testprog.Note { return testprog.Note{Name: fmt.Sprint("probe", n)} },
		1_800: func(n int) testprog.Note {
			return testprog.Note{Name: fmt.Sprint("probe", n), Arguments: fmt.Sprintf(
				"8@%d(%%rsp) 8@%d(%%rax) -4@%d(%%rbx) 8@%d(%%rsp)", 4*n, 4*n+1, 4*n+2, 4*n+3)}
		},
		// As much as counts for one site of usdt.Limits.
		6_500: func(n int) testprog.Note {
			arguments := ""
			for i := range 12 {
				arguments += fmt.Sprintf(" 8@symbol%06d", 12*n+i) // without an address
			}
			return testprog.Note{Name: fmt.Sprintf("%0800d", n), Arguments: arguments[1:]}
		},
	} {
		path := filepath.Join(t.TempDir(), "file")
		var notes []testprog.Note
		for n := range sites {
			notes = append(notes, note(n))
			notes[n].Provider = "hostile"
		}
		testprog.WriteNotes(t, path, notes)
		s := newSession(t, nil)
		before := heap()
		a := attach(t, s, usdt.Target{Path: path}, "hostile:*", nil)
		held := int(heap()-before) / sites
		qt.Assert(t, qt.HasLen(a.Sites(), sites))
		t.Logf("%d bytes a site", held)
		qt.Check(t, qt.IsTrue(held <= most), qt.Commentf("%d bytes a site", held))
	}
}

// heap returns the bytes that are in use, without garbage.
func heap() int64 {
	var stats runtime.MemStats
	for range 2 { // pools are emptied by the second
		runtime.GC()
	}
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// Users map files of which each site has arguments of its own: as many as a
// file may have. Attaching them takes no more than 50 us a site, and another
// user's program is attached meanwhile.
func TestHostileFilesOfDistinctArguments(t *testing.T) {
	testneeds.Root(t)
	testneeds.Only(t, "the argument strings of the files are those of x86-64", "amd64")
	_, err := usdt.ModeMulti.Resolve() // all sites have one address: no two share a perf event
	testneeds.Feature(t, since[usdt.ModeMulti], usdt.ModeMulti.String(), err)
	sites := 3_000
	if testprog.IsComplete() {
		sites = 9_900
	}
	for _, users := range []int{1, 10} {
		t.Run(fmt.Sprint(users, " users"), func(t *testing.T) {
			distinctArguments(t, users, sites)
		})
	}
}

func distinctArguments(t *testing.T, users, sites int) {
	dir := t.TempDir()
	qt.Assert(t, qt.IsNil(os.Chmod(filepath.Dir(dir), 0o755)))
	file := func(user int) string { return filepath.Join(dir, fmt.Sprint(user), "file") }
	self, err := os.Executable()
	qt.Assert(t, qt.IsNil(err))
	for user := range users {
		var notes []testprog.Note
		for n := range sites {
			arguments := ""
			for a := range 4 {
				arguments += fmt.Sprintf("-4@%d(%%rsp) ", 16*n+4*a+user)
			}
			notes = append(notes, testprog.Note{Provider: "hostile", Name: "probe",
				Arguments: arguments})
		}
		qt.Assert(t, qt.IsNil(os.Mkdir(filepath.Dir(file(user)), 0o755)))
		testprog.WriteNotes(t, file(user), notes)
		testprog.StartMapper(t, testprog.Nobody-user, 0, filepath.Dir(file(user)))
	}
	innocent := filepath.Join(t.TempDir(), "innocent")
	content, err := os.ReadFile(testprog.Path(t, "target-static"))
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(os.WriteFile(innocent, content, 0o755)))

	s := newSession(t, &trace.SessionOptions{})
	began := time.Now()
	a, err := s.Attach(usdt.Target{Path: file(0)}, nil, elfnote.MustParsePattern("hostile:*"))
	qt.Assert(t, qt.IsNil(err))
	took := time.Since(began)
	qt.Assert(t, qt.HasLen(a.Sites(), sites))
	qt.Assert(t, qt.IsNil(a.Close()))
	each := took / time.Duration(sites)
	qt.Check(t, qt.IsTrue(took < testprog.InTime(time.Duration(sites)*50*time.Microsecond)),
		qt.Commentf("%v a site", each))

	costs := testprog.StartCosts(t)
	opts := watch.Options{Filter: only(self, innocent)}
	attached := make(chan bool, 1)
	changed := func(c *watch.Changes[*trace.Attachment]) {
		for _, err := range c.Errors {
			t.Error(err)
		}
		for _, a := range c.Attached {
			if a.Path() == innocent {
				attached <- true
			}
		}
	}
	w := watchProbes(t, s, &opts, changed, "hostile:*", "gousdt_test:three")
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx, time.Second) }()
	process := testprog.Start(t, innocent)
	began = time.Now()
	select {
	case <-attached:
	case <-time.After(testneeds.Patience(30 * time.Second)):
		t.Fatalf("not attached: %+v", w.Stats())
	}
	late := time.Since(began)
	process.Fire("three", 1)
	qt.Check(t, qt.Equals(int(next(t, s, 1)[0].PID), process.PID))
	qt.Check(t, qt.IsTrue(late < testprog.InTime(2*time.Second)), qt.Commentf("after %v", late))
	for deadline := time.Now().Add(testneeds.Patience(30 * time.Second)); len(s.Attachments()) <
		min(users, 5)+1 && time.Now().Before(deadline); {
		qt.Assert(t, qt.IsNil(w.SyncAll(t.Context())))
	}
	costs.Report(4, fmt.Sprintf("%d users, each with a file of %d sites with arguments of their own",
		users, sites), "550 to 1,200 us a site; attached after 4.2 s to never",
		fmt.Sprintf("%d us a site", each.Microseconds()), late)
	stop()
	qt.Check(t, qt.ErrorIs(<-ended, context.Canceled))
}
