// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package usdt_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/usdt"
	"github.com/gousdt/gousdt/watch"
)

// Users map more files than this process may have descriptors. Those beyond
// their share are refused by name, and a program of another user is attached
// meanwhile, and another one when the users' processes have ended.
func TestHostileUsersWithMoreFilesThanDescriptors(t *testing.T) {
	testneeds.Root(t)
	forEachMode(t, starveByDescriptors)
}

func starveByDescriptors(t *testing.T, mode usdt.Mode) {
	// Their processes are started, and their files written, before.
	const users = 2
	files, descriptors := atMost(100, 1500), atMost(160, 1024)
	var mappers []*testprog.Process
	dir := t.TempDir()
	qt.Assert(t, qt.IsNil(os.Chmod(filepath.Dir(dir), 0o755)))
	for user := range users {
		of := filepath.Join(dir, fmt.Sprint("user", user))
		qt.Assert(t, qt.IsNil(os.Mkdir(of, 0o755)))
		for i := range files {
			testprog.WriteNotes(t, filepath.Join(of, fmt.Sprint("file", i)),
				[]testprog.Note{{Provider: "hostile", Name: "probe"}})
		}
		mappers = append(mappers, testprog.StartMapper(t, testprog.Nobody-user, 0, of))
	}

	c := newCollector(t, &usdt.ManagerOptions{Mode: mode})
	var limit unix.Rlimit
	qt.Assert(t, qt.IsNil(unix.Getrlimit(unix.RLIMIT_NOFILE, &limit)))
	qt.Assert(t,
		qt.IsNil(unix.Setrlimit(unix.RLIMIT_NOFILE,
			&unix.Rlimit{Cur: uint64(descriptors), Max: limit.Max})))
	defer func() { qt.Check(t, qt.IsNil(unix.Setrlimit(unix.RLIMIT_NOFILE, &limit))) }()
	b := besiege(t, c, dir, watch.Limits{})
	b.attachInnocent()
	// A slow machine comes to their files late, because the time of scanning is
	// shared out.
	for deadline := time.Now().Add(testneeds.Patience(20 * time.Second)); len(b.said()) == 0; {
		if time.Now().After(deadline) {
			t.Fatalf("no file is refused: %+v", b.Stats())
		}
		qt.Assert(t, qt.IsNil(b.SyncAll(t.Context())))
	}
	for _, err := range b.said() {
		qt.Check(t, qt.ErrorMatches(err, `(?s).*/user[01]/file.*`))
	}
	refused := len(b.said())
	qt.Check(t, qt.IsTrue(refused > 0))
	qt.Check(t, qt.IsTrue(refused <= users*files),
		qt.Commentf("%d errors: none is repeated", refused))
	attached := len(b.Attachments())
	b.costs.Report(3, fmt.Sprintf("%d files of %d users, with %d descriptors (%s)", users*files,
		users, descriptors, mode),
		"usdttrace ended, or could not open /proc any more",
		fmt.Sprintf("%d files attached, others refused by name", attached), b.late)

	for _, mapper := range mappers {
		mapper.Kill()
	}
	b.attachInnocent()
	b.end()
}

// A process maps very many hard links of a file, one of them anew all the time:
// its mappings are many, and never the same. It is scanned more and more
// seldom, and a program of another user is attached meanwhile.
func TestHostileUserWhoseMappingsChangeAllTheTime(t *testing.T) {
	testneeds.Root(t)
	links := atMost(2_000, 60_000)
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	testprog.WriteNotes(t, file, []testprog.Note{{Provider: "hostile", Name: "probe"}})
	mapped := filepath.Join(dir, "links")
	qt.Assert(t, qt.IsNil(os.Mkdir(mapped, 0o755)))
	for i := range links {
		qt.Assert(t, qt.IsNil(os.Link(file, filepath.Join(mapped, fmt.Sprint("link", i)))))
	}
	testprog.StartMapper(t, testprog.Nobody, 20*time.Millisecond, mapped)

	c := newCollector(t, nil)
	b := besiege(t, c, dir, watch.Limits{})
	b.attachInnocent()
	settle := time.Duration(atMost(1, 5)) * time.Second
	time.Sleep(settle) // the CPU time of this is measured
	said := b.said()
	if c.Mode() == usdt.ModeSingleIPMap {
		// Each mapping takes an entry, and there are fewer. A retry with other
		// entries in use is reported again.
		qt.Check(t, qt.IsTrue(len(said) <= 3))
		for _, err := range said {
			qt.Check(t, qt.ErrorAs(err, new(*usdt.LimitError)))
		}
	} else {
		qt.Check(t, qt.HasLen(said, 0))
	}
	b.costs.Report(5,
		fmt.Sprintf("%d mappings of hard links, one changed 50 times a second", links),
		"25 s for each scan; 11 s of CPU in 20 s", fmt.Sprintf("in %v: see CPU", settle), b.late)
	b.end()
}

// Files have names of megabytes, and thousands of sites that cannot be
// attached. The errors about them are short.
func TestHostileUserWithLongNamesAndManyErrors(t *testing.T) {
	testneeds.Root(t)
	dir := t.TempDir()
	long := strings.Repeat("long", atMost(1<<10, 2<<20))
	for i := range atMost(3, 10) {
		notes := []testprog.Note{{Provider: "hostile", Name: long, NoNop: true}}
		if i%2 == 0 { // others have none that can be attached
			notes = append(notes, testprog.Note{Provider: "hostile", Name: long})
		}
		for n := range 9_000 {
			notes = append(notes, testprog.Note{Provider: "hostile", Name: fmt.Sprint("probe", n),
				Broken: n%2 == 0, NoNop: n%2 == 1})
		}
		testprog.WriteNotes(t, filepath.Join(dir, fmt.Sprint("file", i)), notes)
	}
	testprog.StartMapper(t, testprog.Nobody, 0, dir)
	c := newCollector(t, nil)
	b := besiege(t, c, dir, watch.Limits{})
	b.attachInnocent()
	for range 3 {
		qt.Assert(t, qt.IsNil(b.SyncAll(t.Context())))
	}
	const maxSaid = 64 << 10
	said := 0
	for _, err := range b.said() {
		said += len(err.Error())
	}
	qt.Check(t, qt.IsTrue(said < maxSaid), qt.Commentf("%d bytes", said))
	b.costs.Report(5, fmt.Sprintf("names of %d kB, sites without a nop", len(long)>>10),
		"10 MB at each hit; 175,000 errors in 20 s",
		fmt.Sprintf("%d errors of %d bytes", len(b.said()), said), b.late)
	b.end()
}
