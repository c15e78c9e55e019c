// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package usdt_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/ebpf/link"
	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/elffile"
	"github.com/gousdt/gousdt/internal/procwatch"
	"github.com/gousdt/gousdt/internal/testbpf"
	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/usdt"
	"github.com/gousdt/gousdt/usdt/libbpf"
	"github.com/gousdt/gousdt/usdt/proc"
	"github.com/gousdt/gousdt/watch"
)

// A caller with a watcher of its own selects in the files that it finds.
func TestSelectOfAProcessFile(t *testing.T) {
	c := newCollector(t, nil)
	program, _ := copies(t, "target-static")
	process := testprog.Start(t, program)
	w := procwatch.NewWatcher(&procwatch.WatcherOptions{Filter: only(program)},
		patterns(t, "gousdt_test:three")...)
	defer w.Close()
	qt.Assert(t, qt.IsNil(w.Sync(t.Context(), process.PID)))
	pair := w.ProcessFiles()[0]

	all, err := usdt.Select(usdt.Target{ELF: pair.ELF()})
	qt.Assert(t, qt.IsNil(err))
	defer all.Close()
	sel, err := usdt.Select(usdt.Target{ELF: pair.ELF()},
		elfnote.Exact("gousdt_test", "three"))
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.IsTrue(len(all.Sites()) > len(sel.Sites())))
	qt.Check(t, qt.Equals(sel.Sites()[0].Name, "three"))
	qt.Check(t, qt.Equals(sel.PID(), 0))
	lnk, err := c.Attach(c.Collect, usdt.Target{Selection: sel}, nil)
	qt.Assert(t, qt.IsNil(err))
	defer lnk.Close()
	qt.Check(t, qt.IsNil(sel.Close()))
	process.Fire("three", 1)
	qt.Check(t, qt.Equals(int(c.next(t, 1)[0].Pid), process.PID))

	_, err = usdt.Select(usdt.Target{ELF: pair.ELF()},
		elfnote.Exact("gousdt_test", "missing"))
	qt.Check(t, qt.ErrorAs(err, new(*usdt.NotFoundError)))
}

func TestSelectOfAProcessFileWhoseFileHasGone(t *testing.T) {
	testneeds.Root(t)
	program, _ := copies(t, "target-static")
	process := testprog.Start(t, program)
	w := procwatch.NewWatcher(&procwatch.WatcherOptions{Filter: only(program)},
		patterns(t, "gousdt_test:three")...)
	defer w.Close()
	qt.Assert(t, qt.IsNil(w.Sync(t.Context(), process.PID)))
	pair := w.ProcessFiles()[0]
	process.Kill()
	qt.Assert(t, qt.IsNil(w.Sync(t.Context(), process.PID)))
	_, err := usdt.Select(usdt.Target{ELF: pair.ELF()})
	qt.Check(t, qt.ErrorIs(err, os.ErrClosed))
}

func TestSelectAmongTheSitesOfASelection(t *testing.T) {
	path := testprog.Path(t, "target-pie")
	all, err := usdt.Select(usdt.Target{Path: path}, patterns(t, "*:three", "*:many", "*:no_nop")...)
	qt.Assert(t, qt.IsNil(err))
	defer all.Close()
	one, err := usdt.Select(usdt.Target{Selection: all}, patterns(t, "*:three")...)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(one.Sites()[0].Name, "three"))
	qt.Check(t, qt.Equals(len(one.Sites()), 1))
	_, skipped := one.Skipped()
	qt.Check(t, qt.Equals(skipped, 0))
	again, err := usdt.Select(usdt.Target{Selection: all})
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(len(again.Sites()), len(all.Sites())))
	_, skipped = again.Skipped()
	qt.Check(t, qt.Equals(skipped, 1))

	_, err = usdt.Select(usdt.Target{Selection: all}, patterns(t, "*:no_nop")...)
	qt.Check(t, qt.ErrorAs(err, new(*usdt.SiteError)))
	_, err = usdt.Select(usdt.Target{Selection: all}, patterns(t, "*:twelve")...)
	qt.Check(t, qt.ErrorAs(err, new(*usdt.NotFoundError)))
	_, err = usdt.Select(usdt.Target{Selection: all, MaxSites: 10})
	qt.Check(t, qt.ErrorAs(err, new(*usdt.LimitError)))
	_, err = usdt.Select(usdt.Target{Selection: all, PID: 1})
	qt.Check(t, qt.ErrorMatches(err, ".* has its own PID: .*"))
	_, err = usdt.Select(usdt.Target{Selection: all, Path: path})
	qt.Check(t, qt.ErrorMatches(err, "a target needs exactly one of .*"))
}

// hostile writes a file whose notes, of some megabytes, have millions of
// arguments.
func hostile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "hostile.so")
	var notes []testprog.Note
	for i := range 10_000 {
		notes = append(notes, testprog.Note{Provider: "p", Name: "n",
			Arguments: strings.Repeat("1 ", 255) + fmt.Sprint(i)})
	}
	testprog.WriteNotes(t, path, notes)
	return path
}

func allocated() uint64 {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.TotalAlloc
}

func TestSelectRefusesTooManyArguments(t *testing.T) {
	path := hostile(t)
	before := allocated()
	_, err := usdt.Select(usdt.Target{Path: path}, elfnote.Exact("p", "n"))
	qt.Assert(t, qt.ErrorIs(err, elffile.ErrTooLarge))
	qt.Check(t, qt.ErrorMatches(err, `/.*/hostile.so: more than 524288 arguments of probes: .*`))
	took := allocated() - before
	qt.Check(t, qt.IsTrue(took < 450<<19), qt.Commentf("%d MB", took>>20))
}

func TestSelectTakesManySites(t *testing.T) {
	const sites = 100_000
	path := filepath.Join(t.TempDir(), "many.so")
	var notes []testprog.Note
	for i := range sites {
		// Equal strings count once, and some are different at each site.
		args := strings.Repeat("1 ", 200)
		if i%100 != 0 {
			args = fmt.Sprintf("8@%d 4@%d 1 2", i, -i)
		}
		notes = append(notes, testprog.Note{Provider: "p", Name: fmt.Sprint(i), Arguments: args})
	}
	testprog.WriteNotes(t, path, notes)
	sel, err := usdt.Select(usdt.Target{Path: path})
	qt.Assert(t, qt.IsNil(err))
	defer sel.Close()
	qt.Check(t, qt.Equals(len(sel.Sites()), sites))
}

func TestSelectionListsTheFirstSkippedSites(t *testing.T) {
	path := filepath.Join(t.TempDir(), "unfit.so")
	notes := []testprog.Note{{Provider: "p", Name: "fit"}}
	for i := range 3 * 1024 {
		notes = append(notes,
			testprog.Note{Provider: "p", Name: fmt.Sprint("unfit", i), NoNop: true})
	}
	testprog.WriteNotes(t, path, notes)
	sel, err := usdt.Select(usdt.Target{Path: path})
	qt.Assert(t, qt.IsNil(err))
	defer sel.Close()
	qt.Check(t, qt.Equals(len(sel.Sites()), 1))
	qt.Check(t, qt.Equals(sel.Sites()[0].Name, "fit"))
	skipped, count := sel.Skipped()
	qt.Check(t, qt.HasLen(skipped, 1024))
	qt.Check(t, qt.Equals(count, 3*1024))
}

// If no probe can be used, the error does not say that there is none.
func TestSelectWithNothingButMalformedNotes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "broken.so")
	testprog.WriteNotes(t, path, []testprog.Note{{Provider: "p", Name: "n", Broken: true}})
	for _, name := range []string{"n", "another"} {
		_, err := usdt.Select(usdt.Target{Path: path}, elfnote.Exact("p", name))
		qt.Check(t, qt.ErrorAs(err, new(*elffile.NoteError)))
		qt.Check(t, qt.Not(qt.ErrorAs(err, new(*usdt.NotFoundError))))
	}
}

func TestSelectionListsTheFirstMalformedNotes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "broken.so")
	notes := []testprog.Note{{Provider: "p", Name: "n"}}
	for range 40 {
		notes = append(notes, testprog.Note{Provider: "p", Name: "n", Broken: true})
	}
	notes = append(notes, testprog.Note{Provider: "p", Name: "n", NoNop: true})
	testprog.WriteNotes(t, path, notes)
	sel, err := usdt.Select(usdt.Target{Path: path}, elfnote.Exact("p", "n"))
	qt.Assert(t, qt.IsNil(err))
	defer sel.Close()
	qt.Check(t, qt.Equals(len(sel.Sites()), 1))
	skipped, count := sel.Skipped()
	qt.Check(t, qt.HasLen(skipped, 16+1))
	qt.Check(t, qt.Equals(count, 40+1))
	qt.Check(t, qt.ErrorAs(error(skipped[0]), new(*elffile.NoteError)))
	qt.Check(t, qt.ErrorMatches(skipped[16], ".*: no nop there but .*"))
}

func TestWatchRemembersRefusedFiles(t *testing.T) {
	testneeds.NoGuest(t, "to read that many notes takes longer there than a process has to answer")
	testprog.RequireBPF(t)
	testprog.LeakCheck(t)
	c := newCollector(t, nil)
	path := hostile(t)
	told, handled := make(chan error, 16), make(chan struct{}, 16)
	w, err := c.Watch(&watch.Options{
		Mapped: func(_, _ []*proc.ProcessFile) { handled <- struct{}{} },
	}, func(changes *watch.Changes[*watchAttachment]) {
		for _, err := range failures(changes) {
			if errors.Is(err, elffile.ErrTooLarge) {
				told <- err
			}
		}
	}, watching(t, c.Collect12, "p:n")...)
	qt.Assert(t, qt.IsNil(err))
	defer w.Close()
	// On a loaded machine the scan may outlast what a process has to answer. It
	// is then set aside, and handled when the scan has ended.
	scan := func() {
		if err := w.Sync(t.Context(), os.Getpid()); !errors.Is(err, proc.ErrBlocked) {
			qt.Assert(t, qt.IsNil(err))
		}
		await(t, handled)
	}

	file, err := os.Open(path)
	qt.Assert(t, qt.IsNil(err))
	defer file.Close()
	for range 3 {
		code, err := unix.Mmap(int(file.Fd()), 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_EXEC,
			unix.MAP_PRIVATE)
		qt.Assert(t, qt.IsNil(err))
		scan()
		qt.Assert(t, qt.IsNil(unix.Munmap(code)))
		scan()
	}
	await(t, told)
	qt.Assert(t, qt.IsNil(w.Close()))
	qt.Assert(t, qt.HasLen(told, 0))
}

// Symbols are found all at once: one by one, each would take a search through
// the file.
func TestSelectFindsManySymbolsAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "symbols.so")
	var notes []testprog.Note
	const count = 100_000
	for i := 0; i < count; i += 200 {
		var arguments strings.Builder
		for j := range 200 {
			fmt.Fprintf(&arguments, "8@symbol_%d ", i+j)
		}
		notes = append(notes,
			testprog.Note{Provider: "p", Name: "n", Arguments: arguments.String()})
	}
	testprog.WriteNotes(t, path, notes)
	before := allocated()
	sel, err := usdt.Select(usdt.Target{Path: path}, elfnote.Exact("p", "n"))
	qt.Assert(t, qt.IsNil(err))
	defer sel.Close()
	took := allocated() - before
	qt.Check(t, qt.IsTrue(took < 2000*count), qt.Commentf("%d MB", took>>20))
	for _, site := range sel.Sites() {
		for _, arg := range site.Args {
			qt.Assert(t, qt.ErrorIs(arg.Err, elffile.ErrSymbolNotFound))
		}
	}
}

// A descriptor that has been closed may be that of another file by now.
func TestSelectionAttachesNothingAfterClose(t *testing.T) {
	c := newCollector(t, nil)
	process := testprog.Start(t, "target-static")
	sel, err := usdt.Select(usdt.Target{Path: testprog.Path(t, "target-static")},
		elfnote.Exact(provider, "three"))
	qt.Assert(t, qt.IsNil(err))
	other := sel.ForPID(process.PID, "")
	qt.Assert(t, qt.IsNil(other.Close()))
	lnk, err := c.Attach(c.Collect, usdt.Target{Selection: other}, nil)
	qt.Assert(t, qt.IsNil(err)) // closing a derived selection closes nothing
	qt.Assert(t, qt.IsNil(lnk.Close()))

	qt.Assert(t, qt.IsNil(sel.Close()))
	for _, closed := range []*usdt.Selection{sel, other, sel.Subset([]int{0})} {
		_, err = c.Attach(c.Collect, usdt.Target{Selection: closed}, nil)
		qt.Assert(t, qt.ErrorIs(err, os.ErrClosed))
	}
}

// A wrong PID attaches nothing: neither to more than was meant, nor without
// effect.
func TestSelectionRefusesPIDsThatAreNone(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		c := newCollector(t, &usdt.ManagerOptions{Mode: mode})
		process := testprog.Start(t, "target-static")
		sel, err := usdt.Select(usdt.Target{Path: testprog.Path(t, "target-static")},
			elfnote.Exact(provider, "three"))
		qt.Assert(t, qt.IsNil(err))
		defer sel.Close()
		pids := []int{-1}
		if beyond := 32; strconv.IntSize > beyond { // where it would be lost
			pids = append(pids, process.PID+1<<beyond, 1<<beyond)
		}
		for _, pid := range pids {
			_, err := c.Attach(c.Collect, usdt.Target{Selection: sel.ForPID(pid, "")}, nil)
			qt.Check(t, qt.ErrorMatches(err, `-?\d+ is no PID: .*`))
		}
		_, err = c.Attach(c.Collect, usdt.Target{Selection: sel.Subset(nil)}, nil)
		qt.Check(t,
			qt.ErrorMatches(err, `.*target-static: there is no site to attach to in the selection`))
		_, err = sel.AttachRaw(nil, nil)
		qt.Check(t, qt.ErrorMatches(err, "there is no program to attach: .*"))
	})
}

func TestAttachToAProcessWithoutMainThread(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		c := newCollector(t, &usdt.ManagerOptions{Mode: mode})
		process := testprog.Start(t, "target-static")
		target := usdt.Target{Path: testprog.Path(t, "target-static"), PID: process.PID}
		if mode == usdt.ModeMulti { // others are silent then
			lnk := c.attach(t, c.Collect, target, "three", nil)
			process.Do("leave")
			process.Fire("three", 1)
			c.next(t, 1)
			qt.Assert(t, qt.IsNil(lnk.Close()))
		} else {
			process.Do("leave")
		}

		_, err := c.Attach(c.Collect, target, nil, elfnote.Exact(provider, "three"))
		qt.Check(t, qt.ErrorMatches(err, `process \d+: its main thread has exited, .*`))
		qt.Check(t, qt.Not(qt.ErrorIs(err, proc.ErrGone)))
		target.PID = 0
		sel, err := usdt.Select(target, elfnote.Exact(provider, "three"))
		qt.Assert(t, qt.IsNil(err))
		defer sel.Close()
		_, err = c.Attach(c.Collect, usdt.Target{Selection: sel.ForPID(process.PID, "")}, nil)
		qt.Check(t, qt.ErrorMatches(err, `process \d+: its main thread has exited, .*`))

		lnk, err := c.Attach(c.Collect, usdt.Target{Selection: sel}, nil)
		qt.Assert(t, qt.IsNil(err))
		process.Fire("three", 1)
		qt.Check(t, qt.Equals(int(c.next(t, 1)[0].Pid), process.PID))
		qt.Assert(t, qt.IsNil(lnk.Close()))
	})
}

func TestSelectionOutlivesTheCallersFile(t *testing.T) {
	c := newCollector(t, nil)
	process := testprog.Start(t, "target-static")
	file, err := os.Open(testprog.Path(t, "target-static"))
	qt.Assert(t, qt.IsNil(err))
	elf, err := elfnote.NewFile(file)
	qt.Assert(t, qt.IsNil(err))
	sel, err := usdt.Select(usdt.Target{ELF: elf, PID: process.PID},
		elfnote.Exact(provider, "three"))
	qt.Assert(t, qt.IsNil(err))
	defer sel.Close()
	qt.Assert(t, qt.IsNil(file.Close()))
	another, err := os.Open("/proc/self/exe") // gets the number of the one that was closed
	qt.Assert(t, qt.IsNil(err))
	defer another.Close()

	lnk, err := c.Attach(c.Collect, usdt.Target{Selection: sel}, nil)
	qt.Assert(t, qt.IsNil(err))
	process.Fire("three", 1)
	c.next(t, 1)
	qt.Assert(t, qt.IsNil(lnk.Close()))
}

func TestAttachWithoutTheManagerFindsNoSpec(t *testing.T) {
	testneeds.Kernel(t, "5.15", "BPF cookies")
	c := newCollector(t, &usdt.ManagerOptions{Mode: usdt.ModeSingle})
	process := testprog.Start(t, "target-static")
	path := testprog.Path(t, "target-static")
	target := usdt.Target{Path: path, PID: process.PID}
	c.attach(t, c.Collect, target, "three", &usdt.AttachOptions{Cookie: 77})

	sel, err := usdt.Select(target, elfnote.Exact(provider, "guarded"))
	qt.Assert(t, qt.IsNil(err))
	defer sel.Close()
	site := sel.Sites()[0]
	executable, err := link.OpenExecutable(path)
	qt.Assert(t, qt.IsNil(err))
	plain, err := executable.Uprobe("x", c.Collect, &link.UprobeOptions{
		Address: site.Offset, RefCtrOffset: site.SemaphoreOffset, PID: process.PID,
	})
	qt.Assert(t, qt.IsNil(err))
	defer plain.Close()
	process.Fire("guarded", 1)
	event := c.next(t, 1)[0]
	qt.Assert(t, qt.Equals(unix.Errno(-event.ArgCnt), unix.ESRCH))
	qt.Assert(t, qt.Equals(unix.Errno(-event.Err[0]), unix.ESRCH))
	qt.Assert(t, qt.Equals(event.Cookie, 0))
}

func TestAttachSectionsThatNameNothing(t *testing.T) {
	testprog.RequireBPF(t)
	spec, err := testbpf.LoadCounts()
	qt.Assert(t, qt.IsNil(err))
	mgr, err := usdt.NewManager(spec, nil)
	qt.Assert(t, qt.IsNil(err))
	defer mgr.Close()
	_, err = libbpf.AttachSections(mgr, spec, &testbpf.CountsObjects{}, usdt.Target{}, nil)
	qt.Assert(t, qt.ErrorMatches(err, `no loaded program says in its section where to attach: .*`))
}

func TestSelectWithoutPatternsFindsAllProbes(t *testing.T) {
	sel, err := usdt.Select(usdt.Target{Path: testprog.Path(t, "throw")})
	if err == nil {
		sel.Close()
	}
	var notFound *usdt.NotFoundError
	qt.Assert(t, qt.ErrorAs(err, &notFound)) // its probes are in the library
	qt.Assert(t, qt.ErrorMatches(err, ".*/throw: the file has no USDT probes"))

	sel, err = usdt.Select(usdt.Target{Path: testprog.Path(t, "demo")})
	qt.Assert(t, qt.IsNil(err))
	defer sel.Close()
	qt.Assert(t, qt.IsTrue(len(sel.Sites()) > 0))
}

func TestAttachSkipsSitesThatCannotBeAttached(t *testing.T) {
	check := func(t *testing.T, c *collector, lnk *usdt.Link, process *testprog.Process) {
		t.Helper()
		qt.Assert(t, qt.Equals(len(lnk.Selection().Sites()), 1))
		qt.Assert(t, qt.Equals(lnk.Selection().Sites()[0].Name, "three"))
		skipped, count := lnk.Selection().Skipped()
		qt.Assert(t, qt.Equals(count, 1))
		qt.Assert(t, qt.Equals(skipped[0].Name, "no_nop"))
		qt.Assert(t, qt.ErrorMatches(skipped[0], ".*: no nop there but .*"))
		process.Fire("three", 1)
		qt.Assert(t, qt.Equals(int(c.next(t, 1)[0].Pid), process.PID))
	}
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		c := newCollector(t, &usdt.ManagerOptions{Mode: mode})
		path, _ := copies(t, "target-pie")
		process := testprog.Start(t, path)

		lnk, err := c.Attach(c.Collect, usdt.Target{Path: path, PID: process.PID}, nil,
			patterns(t, "*:three", "*:no_nop")...)
		qt.Assert(t, qt.IsNil(err))
		check(t, c, lnk, process)
		qt.Assert(t, qt.IsNil(lnk.Close()))

		w, err := c.Watch(&watch.Options{
			Filter: only(path),
		}, nil, watching(t, c.Collect, "*:three", "*:no_nop")...)
		qt.Assert(t, qt.IsNil(err))
		defer w.Close()
		qt.Assert(t, qt.IsNil(w.Sync(t.Context(), process.PID)))
		qt.Assert(t, qt.HasLen(w.Attachments(), 1))
		check(t, c, w.Attachments()[0].Link, process)
	})
}

func TestSelectSkipsSitesWithoutNop(t *testing.T) {
	path, _ := copies(t, "target-pie")
	patch(t, path, "split", []byte{0xff, 0xff, 0xff, 0xff}) // the first of two
	_, err := usdt.Select(usdt.Target{Path: path}, patterns(t, "*:no_nop")...)
	qt.Assert(t, qt.ErrorMatches(err, ".*: no nop there but .*"))

	sel, err := usdt.Select(usdt.Target{Path: path}, elfnote.Exact(provider, "split"))
	qt.Assert(t, qt.IsNil(err))
	defer sel.Close()
	qt.Assert(t, qt.Equals(len(sel.Sites()), 1))
	_, count := sel.Skipped()
	qt.Assert(t, qt.Equals(count, 1))
}

// Attaching would succeed, and nothing would come.
func TestSelectRefusesWritableCode(t *testing.T) {
	path, _ := copies(t, "target-pie")
	testprog.MakeCodeWritable(t, path)
	_, err := usdt.Select(usdt.Target{Path: path}, patterns(t, "*:three")...)
	qt.Assert(t, qt.ErrorMatches(err, ".*: its code is in a writable segment .*"))
}

// The kernel takes one semaphore at an instruction.
func TestSelectSkipsASharedInstructionWithAnotherSemaphore(t *testing.T) {
	path, _ := copies(t, "target-pie")
	both := patterns(t, "*:guarded", "*:counted")
	sel, err := usdt.Select(usdt.Target{Path: path}, both...)
	qt.Assert(t, qt.IsNil(err))
	defer sel.Close()
	qt.Assert(t, qt.Equals(len(sel.Sites()), 2))

	// Its note says that the second is where the first is.
	word := func(address uint64) []byte {
		b := make([]byte, 8)
		sel.File().Header().ByteOrder.PutUint64(b, address)
		return b
	}
	content, err := os.ReadFile(path)
	qt.Assert(t, qt.IsNil(err))
	first, second := sel.Sites()[0], sel.Sites()[1]
	at := bytes.Index(content, append(word(second.Location), word(second.Base)...))
	qt.Assert(t, qt.IsTrue(at > 0))
	copy(content[at:], word(first.Location))
	qt.Assert(t, qt.IsNil(os.WriteFile(path, content, 0o755)))

	clash, err := usdt.Select(usdt.Target{Path: path}, both...)
	qt.Assert(t, qt.IsNil(err))
	defer clash.Close()
	qt.Assert(t, qt.Equals(len(clash.Sites()), 1))
	skipped, count := clash.Skipped()
	qt.Assert(t, qt.Equals(count, 1))
	qt.Assert(t,
		qt.ErrorMatches(skipped[0],
			".*: the file has another probe at the same instruction with another semaphore.*"))
}
