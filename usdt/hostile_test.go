// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package usdt_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/usdt"
	"github.com/gousdt/gousdt/usdt/proc"
	"github.com/gousdt/gousdt/watch"
)

// A user maps more files with more probes than can be attached. Attachments
// stay within the limits, and a program of another user is attached within two
// seconds all the same.
func TestHostileUserWithTooManyProbes(t *testing.T) {
	testneeds.Root(t)
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		many := flood{
			mode: mode, files: atMost(40, 500), sites: atMost(2_000, 9_000),
			limits: watch.Limits{Sites: atMost(20_000, 0), OwnerSites: atMost(20_000, -1)},
		}
		if mode == usdt.ModeMulti {
			many.run(t)
			t.Run("with semaphores that nobody maps", (&flood{
				mode: mode, files: atMost(4, 20), sites: 1_250,
				note: func(int) testprog.Note { return testprog.Note{Semaphore: true} },
			}).run)
			t.Run("with very many arguments", (&flood{
				mode: mode, files: atMost(2, 4), sites: atMost(20_000, 130_000),
				limits: watch.Limits{FileSites: -1, OwnerSites: -1},
				note: func(n int) testprog.Note {
					return testprog.Note{Arguments: fmt.Sprintf("8@$%d 4@$%d -4@$%d 8@$%d", n,
						n+1, n+2, n+3)}
				},
			}).run)
			return
		}
		many.refused = true
		t.Run("files with too many are refused", many.run)
		// The sites are all at one place, so that each takes a perf event.
		apart := flood{
			mode: mode, files: atMost(10, 100), sites: 20,
			limits: watch.Limits{OwnerDescriptors: -1, Descriptors: atMost(40, 200)},
		}
		t.Run("each with a perf event", apart.run)
	})
}

// A flood is files with probes that a hostile user maps.
type flood struct {
	mode         usdt.Mode
	files, sites int
	limits       watch.Limits
	note         func(n int) testprog.Note // nil: with nothing but names
	refused      bool                      // they have more probes than a file may have
}

func (h *flood) run(t *testing.T) {
	files, sites, limits := h.files, h.sites, h.limits
	c := newCollector(t, &usdt.ManagerOptions{Mode: h.mode})
	dir, err := os.MkdirTemp("", "hostile")
	qt.Assert(t, qt.IsNil(err))
	defer os.RemoveAll(dir)
	notes := make([]testprog.Note, sites)
	for i := range notes {
		if h.note != nil {
			notes[i] = h.note(i)
		}
		notes[i].Provider, notes[i].Name = "hostile", fmt.Sprint("probe", i)
	}
	for i := range files {
		testprog.WriteNotes(t, filepath.Join(dir, fmt.Sprint("file", i)), notes)
	}
	testprog.StartMapper(t, testprog.Nobody, 0, dir)

	b := besiege(t, c, dir, limits)
	b.attachInnocent()

	testneeds.Await(t, 20*time.Second, "a file is attached, or refused", func() bool {
		if h.refused {
			return len(b.said()) > 0
		}
		return b.Stats().Sites > 1
	})
	// The attachments made meanwhile are measured.
	time.Sleep(time.Duration(atMost(300, 3000)) * time.Millisecond)
	stats := b.Stats()
	most := limits.Sites
	if most == 0 {
		most = 200_000
	}
	qt.Check(t, qt.IsTrue(stats.Sites <= most), qt.Commentf("%+v", stats))
	if limits.Descriptors > 0 {
		// The number that a file takes is known only when it has been attached.
		qt.Check(t, qt.IsTrue(stats.Descriptors <= limits.Descriptors+2*sites),
			qt.Commentf("%+v", stats))
	}
	b.costs.Report(4, fmt.Sprintf("%d files with %d probes each (%s)", files, sites, h.mode),
		"1,000 files with 10,000: 6.1 GB, 56 s of CPU",
		fmt.Sprintf("%d sites of them attached", stats.Sites), b.late)
	b.end()
	qt.Check(t, qt.IsTrue(len(b.said()) <= 3*files), qt.Commentf("%d errors", len(b.said())))
}

// atMost returns the size of a test: complete in make test-hostile.
func atMost(short, complete int) int {
	if testprog.IsComplete() {
		return complete
	}
	return short
}

// besieged is a Watch on a host where a hostile user maps the files of a
// directory.
type besieged struct {
	*watched
	t     *testing.T
	c     *collector
	costs *testprog.Costs
	stop  func()
	ended chan error
	late  time.Duration // how late another user's program was attached

	mu       sync.Mutex
	innocent string        // the program
	attached chan struct{} // closed when it is attached
	errs     []error       // about files of the directory
}

// besiege starts a Watch, and returns when it has seen something.
func besiege(t *testing.T, c *collector, dir string, limits watch.Limits) *besieged {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	b := &besieged{t: t, c: c, stop: stop, ended: make(chan error, 1)}
	some := make(chan struct{}, 1)
	self, err := os.Executable()
	qt.Assert(t, qt.IsNil(err))
	b.watched, err = c.Watch(&watch.Options{
		Limits: limits,
		// Programs of other tests would take part of root's share.
		Filter: func(p proc.Process) bool {
			exe, err := p.Executable()
			return err == nil && (exe == self || filepath.Base(exe) == "innocent")
		},
	}, func(changes *watch.Changes[*watchAttachment]) {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, err := range changes.Errors { // of others there may be any
			switch text := err.Error(); {
			case strings.Contains(text, dir):
				b.errs = append(b.errs, err)
			case errors.Is(err, proc.ErrBlocked): // attached late, which is measured
			case b.innocent != "" && strings.Contains(text, b.innocent):
				t.Error(err)
			}
		}
		for _, a := range changes.Attached {
			if b.attached != nil && a.Path == b.innocent {
				close(b.attached)
				b.attached = nil
			}
		}
		select {
		case some <- struct{}{}:
		default:
		}
	}, watching(t, c.Collect3, "hostile:*", "gousdt_test:three")...)
	qt.Assert(t, qt.IsNil(err))
	t.Cleanup(func() { // of a test that has failed
		stop()
		_ = b.Close()
	})
	b.costs = testprog.StartCosts(t)
	go func() { b.ended <- b.Run(ctx, time.Second) }()
	<-some
	return b
}

// attachInnocent starts a program of another user, which must be attached
// within two seconds, and gets its event.
func (b *besieged) attachInnocent() {
	b.t.Helper()
	path := filepath.Join(b.t.TempDir(), "innocent")
	copyFile(b.t, path, testprog.Path(b.t, "target-static"))
	attached := make(chan struct{})
	b.mu.Lock()
	b.innocent, b.attached = path, attached
	b.mu.Unlock()
	started := time.Now()
	process := testprog.Start(b.t, path)
	select {
	case <-attached:
	case <-time.After(testneeds.Patience(30 * time.Second)):
		b.t.Fatalf("not attached: %+v", b.Stats())
	}
	late := time.Since(started)
	process.Fire("three", 1)
	for int(b.c.next(b.t, 1)[0].Pid) != process.PID {
		// Others may run the same program.
	}
	qt.Check(b.t, qt.IsTrue(late < testprog.InTime(2*time.Second)),
		qt.Commentf("attached after %v", late))
	b.late = max(b.late, late)
}

// said returns the errors about files of the directory.
func (b *besieged) said() []error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.errs)
}

// end closes the Watch.
func (b *besieged) end() {
	b.t.Helper()
	b.stop()
	qt.Check(b.t, qt.ErrorIs(<-b.ended, context.Canceled))
	closing := time.Now()
	qt.Check(b.t, qt.IsNil(b.Close()))
	b.t.Logf("closed in %v", time.Since(closing).Round(time.Millisecond))
}

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
		qt.Assert(t, qt.IsNil(b.Sync(t.Context(), 0)))
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
	// Theirs linger, and until then a program of an owner who has as many as
	// are left is refused.
	testneeds.Await(t, 20*time.Second, "their files are detached", func() bool {
		return !slices.ContainsFunc(b.Attachments(), func(a *watchAttachment) bool {
			return strings.HasPrefix(a.Path, dir)
		})
	})
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
	qt.Check(t, qt.HasLen(said, 0))
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
		qt.Assert(t, qt.IsNil(b.Sync(t.Context(), 0)))
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

// mountImage mounts overlayfs as a container runtime does, and returns the
// paths of a program in the layer below and in the container.
func mountImage(t *testing.T, program string) (layer, contained string) {
	t.Helper()
	testneeds.Root(t)
	dir := t.TempDir()
	for _, sub := range []string{"layer", "upper", "work", "merged"} {
		qt.Assert(t, qt.IsNil(os.Mkdir(filepath.Join(dir, sub), 0o755)))
	}
	layer, contained = filepath.Join(dir, "layer", "program"),
		filepath.Join(dir, "merged", "program")
	copyFile(t, layer, program)
	err := unix.Mount("overlay", filepath.Join(dir, "merged"), "overlay", 0,
		fmt.Sprintf("lowerdir=%s/layer,upperdir=%[1]s/upper,workdir=%[1]s/work", dir))
	if errors.Is(err, unix.ENODEV) {
		testneeds.Missing(t, "needs overlayfs in the kernel")
	}
	qt.Assert(t, qt.IsNil(err))
	t.Cleanup(func() {
		qt.Check(t, qt.IsNil(unix.Unmount(filepath.Join(dir, "merged"), unix.MNT_DETACH)))
	})
	return layer, contained
}

// forge makes the file of a hostile user claim to be another one.
func forge(t *testing.T, hostile *testprog.Hostile, path string) {
	t.Helper()
	var st unix.Statx_t
	qt.Assert(t, qt.IsNil(unix.Statx(unix.AT_FDCWD, path, 0,
		unix.STATX_BASIC_STATS|unix.STATX_BTIME, &st)))
	command := fmt.Sprintf("forge %d %d", st.Ino, st.Size)
	for _, at := range []unix.StatxTimestamp{st.Btime, st.Mtime, st.Ctime} {
		command += fmt.Sprintf(" %d", at.Sec*1e9+int64(at.Nsec))
	}
	hostile.Do(command)
}

// A user's file that claims to be another file does not hide the probes of that
// file, although it was seen first and has none.
func TestHostileUserWhoForgesAFile(t *testing.T) {
	_, contained := mountImage(t, testprog.Path(t, "target-static"))
	onHost := filepath.Join(t.TempDir(), "program")
	copyFile(t, onHost, testprog.Path(t, "target-static"))
	for name, path := range map[string]string{"of a container": contained, "of the host": onHost} {
		t.Run(name, func(t *testing.T) {
			hostile := testprog.StartHostile(t, 1000, testprog.Path(t, "launcher"))
			forge(t, hostile, path)
			hostile.Do("map " + hostile.File)
			c := newCollector(t, nil)
			w, err := c.Watch(nil, nil, watching(t, c.Collect3, "gousdt_test:three")...)
			qt.Assert(t, qt.IsNil(err))
			defer w.Close()
			// This makes it the first.
			qt.Assert(t, qt.IsNil(w.Sync(t.Context(), hostile.PID)))
			qt.Assert(t, qt.HasLen(w.Attachments(), 0))

			const hits = 55
			costs := testprog.StartCosts(t)
			victim := testprog.Start(t, path)
			started := time.Now()
			qt.Assert(t, qt.IsNil(w.Sync(t.Context(), victim.PID)))
			late := time.Since(started)
			victim.Fire("three", hits)
			for _, event := range c.next(t, hits) {
				qt.Assert(t, qt.Equals(int(event.Pid), victim.PID))
			}
			c.silent(t)
			costs.Report(1, "a file says that it is one "+name, "0 of 55 hits seen",
				"55 of 55", late)
		})
	}
}

// A program of an image that is run by a container and on the host as well is
// traced in both.
func TestFileOfALayerIsSeenThroughOverlayfsAndWithout(t *testing.T) {
	for name, first := range map[string]int{"container first": 1, "host first": 0} {
		t.Run(name, func(t *testing.T) {
			layer, contained := mountImage(t, testprog.Path(t, "target-static"))
			processes := []*testprog.Process{testprog.Start(t, layer), testprog.Start(t, contained)}
			c := newCollector(t, nil)
			w, err := c.Watch(nil, nil, watching(t, c.Collect3, "gousdt_test:three")...)
			qt.Assert(t, qt.IsNil(err))
			defer w.Close()
			for _, i := range []int{first, 1 - first} {
				qt.Assert(t, qt.IsNil(w.Sync(t.Context(), processes[i].PID)))
			}
			for _, process := range processes {
				process.Fire("three", 1)
				// A hit of the one before may come twice.
				for int(c.next(t, 1)[0].Pid) != process.PID {
				}
			}
		})
	}
}

// Files and processes that do not answer are set aside, and named. Others are
// seen and attached within two seconds, and closing takes no more than four.
func TestHostileUsersWhoseFilesDoNotAnswer(t *testing.T) {
	c := newCollector(t, nil) // and closed after the servers have ended
	hostile := testprog.StartUnanswering(t, testprog.Path(t, "target-static"))
	dir := t.TempDir()
	innocent, library := filepath.Join(dir, "innocent"), filepath.Join(dir, "library.so")
	copyFile(t, innocent, testprog.Path(t, "target-pie"))
	copyFile(t, library, testprog.Path(t, "libtarget.so"))
	var mu sync.Mutex
	var told strings.Builder
	attached, changed := make(chan string, 10), make(chan struct{}, 1)
	w, err := c.Watch(&watch.Options{
		Filter: func(p proc.Process) bool {
			exe, err := p.Executable()
			return hostile[p.PID] != "" || err == nil && filepath.Dir(exe) == dir
		},
	}, func(changes *watch.Changes[*watchAttachment]) {
		mu.Lock()
		defer mu.Unlock()
		for _, err := range changes.Errors {
			fmt.Fprintln(&told, err)
		}
		for _, a := range changes.Attached {
			attached <- a.Path
		}
		select {
		case changed <- struct{}{}:
		default:
		}
	}, watching(t, c.Collect3, "gousdt_test:three")...)
	qt.Assert(t, qt.IsNil(err))
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	ended := make(chan error, 1)
	costs := testprog.StartCosts(t)
	process := testprog.Start(t, innocent)
	began := time.Now()
	go func() { ended <- w.Run(ctx, time.Second) }()
	for <-attached != innocent {
	}
	late := time.Since(began)
	process.Fire("three", 1)
	qt.Check(t, qt.Equals(int(c.next(t, 1)[0].Pid), process.PID))
	began = time.Now()
	process.Do("load " + library) // while the others are set aside
	for <-attached != library {
	}
	late = max(late, time.Since(began))
	qt.Check(t, qt.IsTrue(late < testprog.InTime(2*time.Second)),
		qt.Commentf("attached after %v", late))

	isNamed := func(pid int) bool {
		mu.Lock()
		defer mu.Unlock()
		return strings.Contains(told.String(), fmt.Sprintf("process %d", pid))
	}
	deadline := time.After(testneeds.Patience(10 * time.Second))
	for pid, what := range hostile {
		for what != testprog.CanBeAttached && !isNamed(pid) {
			select {
			case <-changed:
			case <-deadline:
				t.Fatalf("%s, of process %d, is not named", what, pid)
			}
		}
	}
	blocked := w.Stats().Blocked
	qt.Check(t, qt.IsTrue(blocked >= 3), qt.Commentf("%d", blocked))
	stop()
	closing := time.Now()
	qt.Check(t, qt.ErrorIs(<-ended, context.Canceled))
	// What the kernel may attach yet is named.
	err = w.Close()
	qt.Check(t, qt.IsTrue(err == nil || errors.Is(err, proc.ErrBlocked)), qt.Commentf("%v", err))
	took := time.Since(closing)
	qt.Check(t, qt.IsTrue(took < testprog.InTime(4*time.Second)),
		qt.Commentf("closed after %v", took))
	costs.Report(2, fmt.Sprintf("%d files and processes that do not answer", len(hostile)),
		"nothing seen any more, nor ended by SIGTERM",
		fmt.Sprintf("set aside, closed in %.2f s", took.Seconds()), late)
}

// A user maps files that take all specs of the Manager. Another one's program
// gets some of them.
func TestHostileUserThatTakesAllSpecs(t *testing.T) {
	testneeds.Only(t, "the argument strings of its file are those of x86-64", "amd64")
	testneeds.Root(t)
	const specs, files = 24, 8
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		c := newCollector(t, &usdt.ManagerOptions{Mode: mode, MaxSpecs: specs})
		dir := t.TempDir()
		for i := range files {
			var notes []testprog.Note
			for n := range specs / files {
				notes = append(notes, testprog.Note{
					Provider:  "hostile",
					Name:      fmt.Sprint("probe", n),
					Arguments: fmt.Sprintf("8@$%d", i*specs+n),
				})
			}
			testprog.WriteNotes(t, filepath.Join(dir, fmt.Sprint("file", i)), notes)
		}
		testprog.StartMapper(t, testprog.Nobody, 0, dir)
		innocent := filepath.Join(t.TempDir(), "innocent")
		copyFile(t, innocent, testprog.Path(t, "target-static"))
		self, err := os.Executable()
		qt.Assert(t, qt.IsNil(err))
		var mu sync.Mutex // detaching goes on after Sync, and is reported
		var told []string
		w, err := c.Watch(&watch.Options{
			Filter: only(self, innocent),
		}, func(changes *watch.Changes[*watchAttachment]) {
			mu.Lock()
			defer mu.Unlock()
			for _, err := range changes.Errors {
				told = append(told, err.Error())
			}
		}, watching(t, c.Collect, "hostile:*", "gousdt_test:twelve")...)
		qt.Assert(t, qt.IsNil(err))
		defer w.Close()
		allTold := func() string {
			mu.Lock()
			defer mu.Unlock()
			return strings.Join(told, "\n")
		}
		qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 0)))
		qt.Assert(t, qt.HasLen(w.Attachments(), files), qt.Commentf("%v", allTold()))
		inUse, _ := c.SpecsInUse()
		qt.Assert(t, qt.Equals(inUse, specs))

		process := testprog.Start(t, innocent)
		qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 0)))
		process.Fire("twelve", 1)
		qt.Assert(t, qt.Equals(int(c.next(t, 1)[0].Pid), process.PID))
		qt.Assert(t,
			qt.StringContains(allTold(), "detached to make room for others that have less"))
	})
}
