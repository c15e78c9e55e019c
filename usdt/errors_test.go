// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package usdt_test

import (
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/elffile"
	"github.com/gousdt/gousdt/internal/testbpf"
	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/usdt"
	"github.com/gousdt/gousdt/usdt/proc"
	"github.com/gousdt/gousdt/watch"
)

func machineOf(t *testing.T, program string) elf.Machine {
	t.Helper()
	file, err := elfnote.Open(testprog.Path(t, program))
	qt.Assert(t, qt.IsNil(err))
	defer file.Close()
	return file.Header().Machine
}

func TestAttachToWrongTargets(t *testing.T) {
	c := newCollector(t, nil)
	pie := testprog.Path(t, "target-pie")
	directory := t.TempDir()
	text := filepath.Join(directory, "text")
	qt.Assert(t,
		qt.IsNil(os.WriteFile(text,
			[]byte("no program, but long enough to be one: "+string(make([]byte, 200))), 0o600)))
	self, err := os.Executable()
	qt.Assert(t, qt.IsNil(err))
	huge := math.MaxInt32
	huge++ // more than the kernel takes, or negative
	// One that lasts: those of the runtime and of leases come and go.
	threads, stop := make(chan int), make(chan struct{})
	defer close(stop)
	thread := os.Getpid()
	for thread == os.Getpid() {
		go func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			threads <- unix.Gettid()
			<-stop
		}()
		thread = <-threads
	}

	for _, tc := range []struct {
		name            string
		target          usdt.Target
		provider, probe string
		want            string
		is              error
	}{
		{"nothing", usdt.Target{}, provider, "three",
			`a target needs exactly one of Path, ELF and Selection, not 0 of them`, nil},
		{"a PID alone", usdt.Target{PID: 1}, provider, "three",
			`the target has a PID but no file: .*`, nil},
		{"missing", usdt.Target{Path: "/nowhere/at/all"}, provider, "three",
			`.*/nowhere/at/all.*no such file.*`, fs.ErrNotExist},
		{"a bare name", usdt.Target{Path: "libc.so.6"}, provider, "three",
			`libc\.so\.6: a bare name needs the PID of .*: give the path \(libbpf.FindFile looks it up; .*`, nil},
		{"directory", usdt.Target{Path: directory}, provider, "three", `.*`, nil},
		{"text", usdt.Target{Path: text}, provider, "three", `.*text.*not an ELF file.*`,
			elfnote.ErrNotELF},
		{"no probes", usdt.Target{Path: self}, provider, "three", `.*: the file has no USDT probes`,
			nil},
		{"typo", usdt.Target{Path: pie}, provider, "thre",
			`.*target-pie: no probe matches gousdt_test:thre`,
			nil},
		{"wrong provider", usdt.Target{Path: pie}, "other", "zzzzzzzzzzz",
			`.*target-pie: no probe matches other:zzzzzzzzzzz`, nil},
		{"negative PID", usdt.Target{Path: pie, PID: -1}, provider, "three",
			`-1 is no PID: .*`, nil},
		{"huge PID", usdt.Target{Path: pie, PID: huge}, provider, "three",
			`-?\d+ is no PID: .*`, nil},
		{"no such process", usdt.Target{Path: pie, PID: 1 << 22}, provider, "three",
			`process 4194304: no such process`, proc.ErrGone},
		{"thread", usdt.Target{Path: pie, PID: thread}, provider, "three",
			`process \d+: this is a thread: give the PID of its process, \d+`, nil},
		{"no nop", usdt.Target{Path: pie}, "gousdt_broken", "no_nop",
			`.*target-pie: probe gousdt_broken:no_nop at 0x[0-9a-f]+: no nop there but .*`, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			lnk, err := c.Attach(c.Collect, tc.target, nil, elfnote.Exact(tc.provider, tc.probe))
			qt.Assert(t, qt.IsNil(lnk))
			qt.Assert(t, qt.ErrorMatches(err, tc.want))
			if tc.is != nil {
				qt.Assert(t, qt.ErrorIs(err, tc.is))
			}
		})
	}
	used, _ := c.SpecsInUse()
	qt.Assert(t, qt.Equals(used, 0))
}

func TestAttachRefusesSitesWithoutNop(t *testing.T) {
	c := newCollector(t, nil)
	_, err := c.Attach(c.Collect, usdt.Target{Path: testprog.Path(t, "target-pie")}, nil,
		elfnote.Exact("gousdt_broken", "no_nop"))
	qt.Assert(t, qt.ErrorAs(err, new(*usdt.SiteError)))
	qt.Assert(t, qt.ErrorMatches(err, `.*: no nop there but [0-9a-f]{2} .*`))
}

// The kernel decides which instructions it can step over, and does not say
// which of many sites it refuses.
func TestAttachNamesTheSiteThatTheKernelRefuses(t *testing.T) {
	testneeds.Only(t, "no other machine has prefixes of instructions", "amd64")
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		c := newCollector(t, &usdt.ManagerOptions{Mode: mode})
		library := filepath.Join(t.TempDir(), "libpatched.so")
		copyFile(t, library, testprog.Path(t, "libtarget.so"))
		process := testprog.Start(t, "target-pie")
		process.Do("load " + library)
		// Only what a mapping writes is not noticed.
		file, err := os.OpenFile(library, os.O_RDWR, 0)
		qt.Assert(t, qt.IsNil(err))
		defer file.Close()
		info, err := file.Stat()
		qt.Assert(t, qt.IsNil(err))
		contents, err := unix.Mmap(int(file.Fd()), 0, int(info.Size()), unix.PROT_WRITE, unix.MAP_SHARED)
		qt.Assert(t, qt.IsNil(err))
		defer unix.Munmap(contents)
		target := usdt.Target{Path: library, PID: process.PID}
		sel, err := usdt.Select(target, patterns(t, "*:three", "*:nop5", "*:nop10")...)
		qt.Assert(t, qt.IsNil(err))
		defer sel.Close()

		// After it was found to be fit.
		for _, site := range sel.Sites() {
			if site.Name == "nop5" {
				copy(contents[site.Offset:], []byte{0x2e, 0x0f, 0x1f, 0x40, 0x00, 0x90})
			}
		}
		_, err = c.Attach(c.Collect3, usdt.Target{Selection: sel}, nil)
		var site *usdt.SiteError
		qt.Assert(t, qt.ErrorAs(err, &site))
		qt.Assert(t, qt.Equals(site.Name, "nop5"))

		_, err = c.Attach(c.Collect3, target, nil, elfnote.Exact(provider, "nop5"))
		qt.Assert(t, qt.ErrorMatches(err, `.*: a nop with a segment or lock prefix, .*`))
		used, _ := c.SpecsInUse()
		qt.Assert(t, qt.Equals(used, 0))
	})
}

func TestAttachRefusesFilesOfOtherMachines(t *testing.T) {
	c := newCollector(t, nil)
	arch := "s390x"
	if machineOf(t, "target-pie") == elf.EM_S390 {
		arch = "amd64"
	}
	_, err := c.Attach(c.Collect, usdt.Target{Path: testprog.CrossPath(t, arch, "target-pie")}, nil,
		elfnote.Exact(provider, "three"))
	qt.Assert(t,
		qt.ErrorMatches(err,
			`.*target-pie: the file is for \S+, this kernel attaches to programs for \S+`))
}

// A pattern leaves out the site, a selection is attached as a whole or not at
// all.
func TestAttachWhereAnotherTracerHasAnotherSemaphore(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		c := newCollector(t, &usdt.ManagerOptions{Mode: mode})
		path, _ := copies(t, "target-pie")
		process := testprog.Start(t, path)
		target := usdt.Target{Path: path, PID: process.PID}
		both := patterns(t, "*:split", "*:three")
		sel, err := usdt.Select(target, both...)
		qt.Assert(t, qt.IsNil(err))
		defer sel.Close()
		index, second := -1, usdt.Site{}
		for i, site := range sel.Sites() {
			if site.Name == "split" {
				index, second = i, site
			}
		}
		held := testprog.HoldSite(t, path, second.Offset)
		check := func(sel *usdt.Selection) {
			t.Helper()
			qt.Assert(t, qt.Equals(len(sel.Sites()), 2))
			skipped, count := sel.Skipped()
			qt.Assert(t, qt.Equals(count, 1))
			qt.Assert(t, qt.HasLen(skipped, 1))
			qt.Assert(t, qt.Equals(skipped[0].Location, second.Location))
		}

		lnk, err := c.Attach(c.Collect, target, nil, both...)
		qt.Assert(t, qt.IsNil(err))
		check(lnk.Selection())
		process.Fire("three", 1)
		qt.Check(t, qt.Equals(c.next(t, 1)[0].Val[0], -2000000000))
		process.Fire("split", 1)
		c.next(t, 1)
		c.silent(t)
		qt.Assert(t, qt.IsNil(lnk.Close()))

		w, err := c.Watch(&watch.Options{Filter: only(path)}, nil,
			watching(t, c.Collect, "*:split", "*:three")...)
		qt.Assert(t, qt.IsNil(err))
		qt.Assert(t, qt.IsNil(w.Sync(t.Context(), process.PID)))
		qt.Assert(t, qt.HasLen(w.Attachments(), 1))
		check(w.Attachments()[0].Link.Selection())
		qt.Assert(t, qt.IsNil(w.Close()))

		refused := func(err error) {
			t.Helper()
			var site *usdt.SiteError
			qt.Assert(t, qt.ErrorAs(err, &site))
			qt.Assert(t, qt.Equals(site.Location, second.Location))
			qt.Assert(t,
				qt.ErrorMatches(err, fmt.Sprintf(
					".*with another semaphore or none .the file has the one at offset %#x.: detach it first",
					second.SemaphoreOffset)))
			qt.Assert(t, qt.ErrorIs(err, unix.EINVAL))
			qt.Assert(t, qt.DeepEquals(process.Semaphores("split"), []int{0, 0}))
			used, _ := c.SpecsInUse()
			qt.Assert(t, qt.Equals(used, 0))
		}
		_, err = c.Attach(c.Collect, usdt.Target{Selection: sel}, nil)
		refused(err)
		rest, ok := sel.WithoutRefused(err)
		qt.Assert(t, qt.IsTrue(ok))
		check(rest)
		_, err = sel.AttachRaw(c.Collect, nil, index)
		refused(err)
		rest, ok = sel.WithoutRefused(err)
		qt.Assert(t, qt.IsTrue(ok))
		check(rest)
		alone := sel.Subset([]int{index})
		_, err = c.Attach(c.Collect, usdt.Target{Selection: alone}, nil)
		refused(err)
		_, ok = alone.WithoutRefused(err)
		qt.Assert(t, qt.IsFalse(ok)) // none is left

		qt.Assert(t, qt.IsNil(held.Close()))
		c.attach(t, c.Collect, target, "split", nil)
		_, ok = sel.WithoutRefused(nil)
		qt.Assert(t, qt.IsFalse(ok))
	})
}

func TestAttachRefusesProgramsLoadedWithoutTheManager(t *testing.T) {
	testprog.RequireBPF(t)
	c := newCollector(t, nil)
	target := usdt.Target{Path: testprog.Path(t, "target-static")}

	_, err := c.Attach(nil, target, nil, elfnote.Exact(provider, "three"))
	qt.Assert(t, qt.ErrorMatches(err, "there is no program to attach: .*"))

	other := newCollector(t, nil)
	_, err = c.Attach(other.Collect, target, nil, elfnote.Exact(provider, "three"))
	qt.Assert(t,
		qt.ErrorMatches(err,
			`program collect was loaded without this Manager's maps: pass Manager\.CollectionOptions\(\).*`))

	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		c := newCollector(t, &usdt.ManagerOptions{Mode: mode})
		_, err := c.Attach(wrongProgram(t), target, nil, elfnote.Exact(provider, "three"))
		qt.Assert(t,
			qt.ErrorMatches(err,
				`program .*wrong.* was not loaded for a (uprobe_multi link|perf event): make the Manager before .*`))
	})
}

// The kernel keeps the beginning of a long name, cilium/ebpf finds the whole:
// neither matters.
func TestAttachRefusesLongNamedProgramsLoadedWithoutTheManager(t *testing.T) {
	testprog.RequireBPF(t)
	const name = "a_name_that_is_longer_than_the_kernel_keeps"
	spec, err := testbpf.LoadArgs()
	qt.Assert(t, qt.IsNil(err))
	long := spec.Programs["collect"].Copy()
	long.Name = name
	btf.FuncMetadata(&long.Instructions[0]).Name = name
	spec.Programs = map[string]*ebpf.ProgramSpec{name: long}
	mgr, err := usdt.NewManager(spec, nil)
	qt.Assert(t, qt.IsNil(err))
	defer mgr.Close()
	target := usdt.Target{Path: testprog.Path(t, "target-static")}

	forgotten, err := ebpf.NewCollection(spec)
	qt.Assert(t, qt.IsNil(err))
	defer forgotten.Close()
	_, err = mgr.Attach(forgotten.Programs[name], target, nil, elfnote.Exact(provider, "three"))
	qt.Assert(t,
		qt.ErrorMatches(err,
			`program a_name_that_is_\w* was loaded without this Manager's maps: .*`))

	right, err := ebpf.NewCollectionWithOptions(spec, *mgr.CollectionOptions())
	qt.Assert(t, qt.IsNil(err))
	defer right.Close()
	lnk, err := mgr.Attach(right.Programs[name], target, nil, elfnote.Exact(provider, "three"))
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(lnk.Close()))
}

// wrongProgram is of a type that no mode attaches.
func wrongProgram(t *testing.T) *ebpf.Program {
	t.Helper()
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name:         "wrong",
		Type:         ebpf.SocketFilter,
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
		License:      "Dual BSD/GPL",
	})
	qt.Assert(t, qt.IsNil(err))
	t.Cleanup(func() { prog.Close() })
	return prog
}

func TestManagerAttachesNothingAfterClose(t *testing.T) {
	c := newCollector(t, nil)
	process := testprog.Start(t, "target-pie")
	target := usdt.Target{Path: testprog.Path(t, "target-pie"), PID: process.PID}
	lnk := c.attach(t, c.Collect, target, "guarded", nil)
	qt.Assert(t, qt.Equals(process.Semaphore("guarded"), 1))
	qt.Assert(t, qt.IsNil(c.Manager.Close()))
	qt.Assert(t, qt.Equals(process.Semaphore("guarded"), 0))
	qt.Assert(t, qt.IsNil(lnk.Close()))
	_, err := c.Attach(c.Collect, target, nil, elfnote.Exact(provider, "guarded"))
	qt.Assert(t, qt.ErrorIs(err, os.ErrClosed))
	qt.Assert(t, qt.Equals(process.Semaphore("guarded"), 0))
}

func TestAttachToAProcessThatHasExited(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		c := newCollector(t, &usdt.ManagerOptions{Mode: mode})
		process := testprog.Start(t, "target-static")
		// Selected while it lived, attached when it is gone.
		sel, err := usdt.Select(usdt.Target{Path: testprog.Path(t, "target-static"),
			PID: process.PID}, elfnote.Exact(provider, "three"))
		qt.Assert(t, qt.IsNil(err))
		defer sel.Close()
		process.Kill()
		_, err = c.Attach(c.Collect, usdt.Target{Selection: sel}, nil)
		qt.Assert(t, qt.ErrorIs(err, proc.ErrGone))
		qt.Assert(t, qt.ErrorMatches(err, fmt.Sprintf("process %d: no such process", process.PID)))
	})
}

// many has 400 sites of one spec, guarded a site with a semaphore.
func TestSelectRefusesMoreSitesThanItMay(t *testing.T) {
	target := usdt.Target{Path: testprog.Path(t, "target-pie")}
	for _, test := range []struct {
		probe    string
		max      int
		limit    string
		capacity int
		needed   int
	}{
		{"many", 0, "", 0, 0},
		{"many", 400, "", 0, 0},
		{"many", 399, "sites", 399, 400},
		{"fourteen", 2, "different arguments", 8, 14},
	} {
		target.MaxSites = test.max
		sel, err := usdt.Select(target, elfnote.Exact(provider, test.probe))
		if test.limit == "" {
			qt.Check(t, qt.IsNil(err), qt.Commentf("%s", test.probe))
			if err == nil {
				sel.Close()
			}
			continue
		}
		qt.Check(t, qt.ErrorIs(err, elffile.ErrTooLarge))
		// The limit may be less than any real file's.
		qt.Check(t, qt.ErrorMatches(err, `.*: there is room for .*`))
		var full *usdt.LimitError
		qt.Assert(t, qt.IsTrue(errors.As(err, &full)), qt.Commentf("%s: %v", test.probe, err))
		qt.Check(t, qt.Equals(*full, usdt.LimitError{
			Limit:    test.limit,
			Option:   "Target.MaxSites",
			Capacity: test.capacity,
			Needed:   test.needed,
		}))
	}
}

// A watch attaches as much as its limits allow, reports the rest, and attaches
// that when there is room.
func TestWatchLimits(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		c := newCollector(t, &usdt.ManagerOptions{Mode: mode})
		one, two := copies(t, "target-pie")
		processes := []*testprog.Process{testprog.Start(t, one), testprog.Start(t, two)}
		var mu sync.Mutex // what takes long on a busy machine is attached later
		var changes watch.Changes[*watchAttachment]
		failed := func() []error {
			mu.Lock()
			defer mu.Unlock()
			return failures(&changes)
		}
		w, err := c.Watch(&watch.Options{
			PerProcess: true,
			Filter:     only(one, two),
			Limits:     watch.Limits{OwnerSites: 3},
		}, func(c *watch.Changes[*watchAttachment]) {
			mu.Lock()
			defer mu.Unlock()
			changes.Errors = append(changes.Errors, c.Errors...)
		}, watching(t, c.Collect, "gousdt_test:three", "gousdt_test:twelve")...)
		qt.Assert(t, qt.IsNil(err))
		defer w.Close()
		testneeds.Await(t, 20*time.Second, "one is attached, the other over the limit", func() bool {
			qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 0)))
			return len(w.Attachments()) == 1 && w.Stats().OverLimit == 1
		})
		var full *usdt.LimitError
		qt.Assert(t, qt.HasLen(failed(), 1))
		qt.Assert(t, qt.IsTrue(errors.As(failed()[0], &full)), qt.Commentf("%v", failed()))
		qt.Assert(t, qt.Equals(full.Option, "Limits.OwnerSites"))
		qt.Assert(t, qt.Equals([3]int{full.Capacity, full.InUse, full.Needed}, [3]int{3, 2, 2}))
		stats := w.Stats()
		qt.Assert(t,
			qt.Equals([3]int{stats.Sites, stats.OverLimit, stats.Waiting}, [3]int{2, 1, 0}))
		qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 0)))
		qt.Assert(t, qt.HasLen(failed(), 1)) // it is not reported again

		for _, process := range processes {
			if process.PID == w.Attachments()[0].Process.PID {
				process.Kill()
			}
		}
		qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 0)))
		testneeds.Await(t, 20*time.Second, "nothing is over the limit",
			func() bool { return w.Stats().OverLimit == 0 && len(w.Attachments()) == 1 })
	})
}

// A file with more sites than one may have is reported, and does not affect
// others.
func TestWatchRefusesFilesWithTooManySites(t *testing.T) {
	c := newCollector(t, nil)
	one, _ := copies(t, "target-pie")
	testprog.Start(t, one)
	var failed []error
	w, err := c.Watch(&watch.Options{
		Filter: only(one),
		Limits: watch.Limits{FileSites: 399},
	}, func(c *watch.Changes[*watchAttachment]) { failed = append(failed, c.Errors...) },
		watching(t, c.Collect, "gousdt_test:many")...)
	qt.Assert(t, qt.IsNil(err))
	defer w.Close()
	qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 0)))
	qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 0)))
	qt.Assert(t, qt.HasLen(failed, 1))
	qt.Assert(t,
		qt.ErrorMatches(failed[0],
			`.*there is room for 399 sites, 0 are in use, and 400 more are needed: set Limits.FileSites to 400 or more`))
	stats := w.Stats()
	qt.Assert(t, qt.Equals([4]int{stats.Sites, stats.Descriptors, stats.OverLimit, stats.Waiting},
		[4]int{0, 0, 1, 0}))
}
