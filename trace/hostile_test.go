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
	keys := &trace.Aggregation{By: []string{"tid", "arg0"}, MaxKeys: 4096}
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
		{Provider: "gousdt", Name: "call__start"}, {Provider: "gousdt", Name: "call__done", Apart: true},
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
			Spans: []trace.Latency{{Pair: "gousdt:*"}}},
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
	// Nearly all notes are at one instruction, whose probes are named.
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
		qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 0)))
	}
	costs.Report(4, fmt.Sprintf("%d users, each with a file of %d sites with arguments of their own",
		users, sites), "550 to 1,200 us a site; attached after 4.2 s to never",
		fmt.Sprintf("%d us a site", each.Microseconds()), late)
	stop()
	qt.Check(t, qt.ErrorIs(<-ended, context.Canceled))
}

// Users map one legal file each, with as many sites as there may be, whose
// arguments all differ. Programs of other users are attached within two
// seconds, those that run already and those that start meanwhile.
func TestHostileUsersWithSitesThatAllDiffer(t *testing.T) {
	testneeds.Only(t, "the argument strings of their files are those of x86-64", "amd64")
	for _, users := range []int{1, 10} {
		t.Run(fmt.Sprint(users, " users"), func(t *testing.T) {
			sites, settle := 2_000, time.Second/2
			if testprog.IsComplete() {
				sites, settle = 9_900, 15*time.Second
			}
			dir := hostileDirectory(t)
			for user := range users {
				of := filepath.Join(dir, fmt.Sprint("user", user))
				qt.Assert(t, qt.IsNil(os.Mkdir(of, 0o755)))
				notes := make([]testprog.Note, sites)
				for n := range notes {
					k := 4 * (user*sites + n)
					notes[n] = testprog.Note{Provider: "hostile", Name: fmt.Sprint("probe", n),
						Arguments: fmt.Sprintf("8@%d(%%rsp) 8@%d(%%rsp) -4@%d(%%rax) 8@%d(%%rbx)", k, k+1, k+2, k+3)}
				}
				testprog.WriteNotes(t, filepath.Join(of, "file"), notes)
				testprog.StartMapper(t, testprog.Nobody-user, 0, of)
			}
			w := besiege(t)
			w.startInnocent()
			w.run()
			w.awaitInnocent()
			for began := time.Now(); time.Since(began) < settle; {
				w.startInnocent()
				w.awaitInnocent()
			}
			w.costs.Report(2, fmt.Sprintf("%d users with a file of %d sites of 4 arguments that all differ",
				users, sites), "1 user: attached after 5.8 s; 10 users: after 72 s",
				fmt.Sprintf("%d innocents attached, and %d sites", w.innocents, w.Stats().Sites), w.late)
			w.end()
		})
	}
}

// Users map very many files of very many probes, before the watch begins.
// Programs of other users are attached within two seconds, from the start, and
// somewhat later where there are many such users.
func TestHostileUsersWithManyFilesAtTheStart(t *testing.T) {
	for _, users := range []int{1, 20} {
		t.Run(fmt.Sprint(users, " users"), func(t *testing.T) {
			files, sites := 40, 1_000
			if testprog.IsComplete() {
				files, sites = 1_000, 9_900
			}
			notes := make([]testprog.Note, sites)
			for n := range notes {
				notes[n] = testprog.Note{Provider: "hostile", Name: fmt.Sprint("probe", n)}
			}
			dir := hostileDirectory(t)
			for user := range users {
				of := filepath.Join(dir, fmt.Sprint("user", user))
				qt.Assert(t, qt.IsNil(os.Mkdir(of, 0o755)))
				for i := range max(1, files/users) {
					testprog.WriteNotes(t, filepath.Join(of, fmt.Sprint("file", i)), notes)
				}
				testprog.StartMapper(t, testprog.Nobody-user, 0, of)
			}
			w := besiege(t)
			if users > 1 {
				w.inTime = 10 * time.Second // each has a share
			}
			w.startInnocent()
			w.run()
			w.awaitInnocent()
			for range 5 {
				w.startInnocent()
				w.awaitInnocent()
			}
			w.costs.Report(4, fmt.Sprintf("%d files of %d users with %d probes each, from the start",
				files, users, sites), "2.7 s with one user, 2.1 to 6.4 s with 20",
				fmt.Sprintf("%d sites attached", w.Stats().Sites), w.late)
			w.end()
		})
	}
}

// Processes of a user change their mappings all the time, without anything to
// attach. Scanning them takes a tenth of a processor, and programs of other
// users are attached meanwhile.
func TestHostileUserWhoseManyProcessesMakeNoise(t *testing.T) {
	processes, mappings, settle := 10, 100, time.Second
	if testprog.IsComplete() {
		processes, mappings, settle = 40, 1_000, 20*time.Second
	}
	dir := hostileDirectory(t)
	file := filepath.Join(dir, "file")
	testprog.WriteNotes(t, file, []testprog.Note{{Provider: "other", Name: "probe"}})
	mapped := filepath.Join(dir, "links")
	qt.Assert(t, qt.IsNil(os.Mkdir(mapped, 0o755)))
	for i := range mappings {
		qt.Assert(t, qt.IsNil(os.Link(file, filepath.Join(mapped, fmt.Sprint("link", i)))))
	}
	for range processes {
		testprog.StartMapper(t, testprog.Nobody, 20*time.Millisecond, mapped)
	}
	w := besiege(t)
	w.startInnocent()
	w.run()
	w.awaitInnocent()
	time.Sleep(settle / 4) // they have spent what they may at once
	w.costs = testprog.StartCosts(t)
	time.Sleep(settle) // what that takes is measured
	took := w.costs.CPU()
	w.startInnocent()
	w.awaitInnocent()
	if testprog.IsComplete() {
		qt.Check(t, qt.IsTrue(took < settle/4), qt.Commentf("%v in %v", took, settle))
	}
	w.costs.Report(5, fmt.Sprintf("%d processes of %d mappings, one changed 50 times a second",
		processes, mappings), "70 to 77 % of a processor",
		fmt.Sprintf("%.0f %% of a processor", 100*took.Seconds()/settle.Seconds()), w.late)
	w.end()
}

func hostileDirectory(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "hostile")
	qt.Assert(t, qt.IsNil(err))
	t.Cleanup(func() { qt.Check(t, qt.IsNil(os.RemoveAll(dir))) })
	qt.Assert(t, qt.IsNil(os.Chmod(dir, 0o755)))
	return dir
}

// besieged is a Watch on a host where hostile users map files.
type besieged struct {
	*watch.Watch
	t         *testing.T
	costs     *testprog.Costs
	stop      func()
	ended     chan error
	dir       string // of innocents' programs
	attached  chan string
	innocents int
	expected  string // the innocent's program
	started   time.Time
	inTime    time.Duration // in which an innocent's program is attached
	late      time.Duration // how late an innocent's program was attached at most
}

func besiege(t *testing.T) *besieged {
	t.Helper()
	testneeds.Root(t)
	b := &besieged{t: t, ended: make(chan error, 1), dir: t.TempDir(), inTime: 2 * time.Second,
		attached: make(chan string, 100_000)}
	var err error
	b.Watch, err = watch.New(nil, func(changes *watch.Changes[*trace.Attachment]) {
		for _, a := range changes.Attached {
			b.attached <- a.Path()
		}
	}, newSession(t, nil).Part(
		elfnote.MustParsePattern("hostile:*"), elfnote.Exact("gousdt_test", "three")))
	qt.Assert(t, qt.IsNil(err))
	b.costs = testprog.StartCosts(t)
	return b
}

func (b *besieged) run() {
	ctx, stop := context.WithCancel(context.Background())
	b.stop = stop
	b.t.Cleanup(func() { // of a test that has failed
		stop()
		_ = b.Close()
	})
	b.started = time.Now()
	go func() { b.ended <- b.Run(ctx, time.Second) }()
}

func (b *besieged) startInnocent() {
	b.t.Helper()
	b.expected = filepath.Join(b.dir, fmt.Sprint("innocent", b.innocents))
	program, err := os.ReadFile(testprog.Path(b.t, "target-static"))
	qt.Assert(b.t, qt.IsNil(err))
	qt.Assert(b.t, qt.IsNil(os.WriteFile(b.expected, program, 0o755)))
	b.started = time.Now()
	testprog.Start(b.t, b.expected)
	b.innocents++
}

// awaitInnocent waits until it is attached, which must be soon.
func (b *besieged) awaitInnocent() {
	b.t.Helper()
	deadline := time.After(testneeds.Patience(60 * time.Second))
	for path := ""; path != b.expected; {
		select {
		case path = <-b.attached:
		case <-deadline:
			b.t.Fatalf("not attached: %+v", b.Stats())
		}
	}
	late := time.Since(b.started)
	b.t.Logf("attached after %v", late)
	qt.Check(b.t, qt.IsTrue(late < testprog.InTime(b.inTime)),
		qt.Commentf("attached after %v", late))
	b.late = max(b.late, late)
}

func (b *besieged) end() {
	b.t.Helper()
	b.stop()
	qt.Check(b.t, qt.ErrorIs(<-b.ended, context.Canceled))
	qt.Check(b.t, qt.IsNil(b.Close()))
}
