// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/usdt"
)

func TestPlacesThatCannotBeWatchedAreNamed(t *testing.T) {
	testprog.Parallel(t)
	p := startTarget(t, "target-pie")
	for name, target := range map[string][]string{"file": {p.path},
		"process": {"-p", strconv.Itoa(p.PID)}} {
		t.Run(name, func(t *testing.T) {
			r := watching(t, append(target, "*:three", "*:no_nop")...)
			// One that does not answer at once is attached a moment later.
			testneeds.Await(t, 10*time.Second, "a hit is seen", func() bool {
				p.Fire("three", 1)
				return strings.Contains(r.stdout.String(), "arg2=18000000000000000001\n")
			})
			result := r.interrupt()
			result.ok()
			qt.Check(t,
				qt.Matches(result.stderr,
					`(?s).*target-pie: skipped probe gousdt_broken:no_nop at 0x[0-9a-f]+: no nop there but .*`))
			qt.Check(t, qt.Equals(strings.Count(result.stderr, "skipped"), 1))
		})
	}
}

// Another tracer holds a site without its semaphore: the others are watched.
func TestSitesThatAnotherTracerHoldsAreNamed(t *testing.T) {
	p := startTarget(t, "target-pie")
	sel, err := usdt.Select(usdt.Target{Path: p.path}, elfnote.MustParsePattern("*:guarded"))
	qt.Assert(t, qt.IsNil(err))
	for _, site := range sel.Sites() {
		testprog.HoldSite(t, p.path, site.Offset)
	}
	qt.Assert(t, qt.IsNil(sel.Close()))
	for name, target := range map[string][]string{"file": {p.path},
		"process": {"-p", strconv.Itoa(p.PID)}, "all": {"-a"}} {
		t.Run(name, func(t *testing.T) {
			r := watching(t, append(target, "gousdt_test:three", "gousdt_test:guarded")...)
			r.await(&r.stderr, "skipped probe gousdt_test:guarded at ")
			p.Fire("three", 1)
			r.await(&r.stdout, "arg2=18000000000000000001\n")
			result := r.interrupt()
			result.ok()
			qt.Check(t, qt.StringContains(result.stderr, "another tracer has attached this site"))
			qt.Check(t, qt.Equals(strings.Count(result.stderr, "skipped"), 1))
		})
	}
	result := start(t, p.path, "gousdt_test:guarded").wait()
	qt.Check(t, qt.Equals(result.status, 2))
	qt.Check(t, qt.StringContains(result.stderr, "another tracer has attached this site"))
}

func TestNothingButPlacesThatCannotBeWatchedIsAnError(t *testing.T) {
	testprog.Parallel(t)
	p := startTarget(t, "target-pie")
	result := start(t, p.path, "*:no_nop").wait()
	qt.Check(t,
		qt.Matches(result.stderr,
			`(?s)usdttrace: .*target-pie: probe gousdt_broken:no_nop at 0x[0-9a-f]+: no nop there but .*`))
}

// Linkers make one of equal functions, with the probes in them.
func TestProbesAtOneInstructionAreNamed(t *testing.T) {
	testprog.Parallel(t)
	testprog.RequireBPF(t)
	path := filepath.Join(t.TempDir(), "folded.so")
	testprog.WriteNotes(t, path, []testprog.Note{{Provider: "p", Name: "opened"},
		{Provider: "p", Name: "closed"}, {Provider: "p", Name: "alone", Apart: true}})
	for _, pattern := range []string{"p:*", "p:closed", "p:alone"} {
		result := watching(t, path, pattern).interrupt()
		qt.Check(t, qt.Equals(strings.Count(result.stderr, "folded.so: the file has p:opened and p:closed "+
			"at one instruction: a hit of one is a hit of each\n") == 1, pattern != "p:alone"),
			qt.Commentf("%s", result.stderr))
	}
}

// The kernel counts the semaphores of one copy.
func TestFilesLoadedTwiceAreNamed(t *testing.T) {
	testprog.RequireBPF(t)
	path := copyOf(t, "libtarget.so")
	file, err := os.Open(path)
	qt.Assert(t, qt.IsNil(err))
	defer file.Close()
	for copies := 1; copies <= 2; copies++ {
		mapped, err := unix.Mmap(int(file.Fd()), 0, 1<<14, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE)
		qt.Assert(t, qt.IsNil(err))
		defer func() { qt.Check(t, qt.IsNil(unix.Munmap(mapped))) }()
		pid := strconv.Itoa(os.Getpid())
		for _, args := range [][]string{{"-p", pid}, {"-p", pid, path}, {"-a"}} {
			for probe, hasSemaphore := range map[string]bool{"guarded": true, "three": false} {
				result := watching(t, append(args, "gousdt_test:"+probe)...).interrupt()
				qt.Check(t, qt.Equals(strings.Contains(result.stderr, "process "+pid+" has loaded "+path+
					" 2 times: hits of gousdt_test:guarded and "), hasSemaphore && copies == 2),
					qt.Commentf("%v %s: %s", args, probe, result.stderr))
			}
		}
	}
}

func TestFilesThatACommandLoadsTwiceAreNamed(t *testing.T) {
	testprog.Parallel(t)
	testprog.RequireBPF(t)
	python := testprog.StartPython(t)
	python.Stop()
	program, err := filepath.EvalSymlinks(python.File)
	qt.Assert(t, qt.IsNil(err))
	path := copyOf(t, "libtarget.so")
	for copies := 1; copies <= 2; copies++ {
		script := fmt.Sprintf("import mmap\nf = open(%q)\nmapped = [mmap.mmap(f.fileno(), 1 << 14, "+
			"mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC) for i in range(%d)]", path, copies)
		for probe, hasSemaphore := range map[string]bool{"guarded": true, "three": false} {
			result := start(t, path, "gousdt_test:"+probe, "--", program, "-c", script).wait()
			qt.Check(t, qt.Equals(strings.Count(result.stderr, " has loaded "+path+" more than once: "),
				map[bool]int{true: 1}[hasSemaphore && copies == 2]), qt.Commentf("%s", result.stderr))
		}
	}
}

func TestTheFirstSkippedSitesAreNamed(t *testing.T) {
	testprog.Parallel(t)
	testprog.RequireBPF(t)
	path := filepath.Join(t.TempDir(), "hostile.so")
	notes := []testprog.Note{{Provider: "p", Name: "fit"}}
	for i := range 100 {
		notes = append(notes, testprog.Note{Provider: "p", Name: fmt.Sprint("n", i), NoNop: true})
	}
	testprog.WriteNotes(t, path, notes)
	result := watching(t, path, "p:*").interrupt()
	qt.Check(t, qt.Equals(strings.Count(result.stderr, "skipped probe p:n"), 16))
	qt.Check(t, qt.StringContains(result.stderr, "usdttrace: skipped sites: 84 more\n"))
}
