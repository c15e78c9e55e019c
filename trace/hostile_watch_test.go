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

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/watch"
)

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
	b.Watch, err = trace.WatchSessions(nil, func(changes *watch.Changes[*trace.Attachment]) {
		for _, a := range changes.Attached {
			b.attached <- a.Path()
		}
	}, trace.WatchSession{Session: newSession(t, nil), Patterns: []elfnote.Pattern{
		elfnote.MustParsePattern("hostile:*"), elfnote.Exact("gousdt_test", "three")}})
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
