// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
)

// deepSource passes a probe from two places all the time.
const deepSource = `
#include <sys/sdt.h>
#include <unistd.h>
static __attribute__((noipa)) void fire(int n) { STAP_PROBE1(deep, fire, n); }
static __attribute__((noipa)) int deeper(int n)
{
	volatile char room[300];
	room[n] = 1;
	if (n > 0)
		return deeper(n - 1) + room[n];
	fire(n);
	return room[n];
}
int main(void)
{
	for (;;) {
		deeper(3);
		fire(1);
		usleep(2000);
	}
}
`

// perfCase is a program whose stacks perf and usdttrace are asked for.
type perfCase struct {
	pid   int
	file  string // with the probe, by a path of this test's
	probe string
	work  func() // has the probe passed; nil if it always is
}

// The stacks of both are the same, function by function.
func TestStacksAreThoseOfPerf(t *testing.T) {
	testneeds.Tool(t, "perf", "linux-perf")
	if !testprog.InPrivateMounts(t) {
		return
	}
	testprog.RequireStacks(t)
	type preparation func(t *testing.T, program string) *exec.Cmd
	compiled := func(flags string, prepare preparation) func(*testing.T) perfCase {
		return func(t *testing.T) perfCase {
			dir := t.TempDir()
			source, program := filepath.Join(dir, "deep.c"), filepath.Join(dir, "deep")
			qt.Assert(t, qt.IsNil(os.WriteFile(source, []byte(deepSource), 0o644)))
			arguments := append(strings.Fields(flags), "-I",
				filepath.Join(filepath.Dir(testprog.Path(t, "target-pie")), "include"), "-o", program, source)
			out, err := exec.Command("gcc", arguments...).CombinedOutput()
			qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", out))
			cmd := exec.Command(program)
			if prepare != nil {
				cmd = prepare(t, program)
			}
			qt.Assert(t, qt.IsNil(cmd.Start()))
			t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
			exe := fmt.Sprintf("/proc/%d/exe", cmd.Process.Pid)
			testneeds.Await(t, 5*time.Second, "the program runs", func() bool {
				path, _ := os.Readlink(exe)
				return filepath.Base(path) == "deep" || filepath.Base(path) == "inside"
			})
			return perfCase{cmd.Process.Pid, exe, "deep:fire", nil}
		}
	}
	inside := func(t *testing.T, program string) *exec.Cmd {
		return exec.Command("unshare", "-m", "sh", "-ec",
			`mount -t tmpfs none "$1" && cp "$0" "$1/inside" && exec "$1/inside"`, program, t.TempDir())
	}
	deleted := func(t *testing.T, program string) *exec.Cmd {
		return exec.Command("sh", "-ec",
			`cp "$0" "$1/inside"; (sleep 0.2; rm "$1/inside") & exec "$1/inside"`, program, t.TempDir())
	}
	tests := []struct {
		name  string
		start func(*testing.T) perfCase
		less  bool // perf has less of the stacks: docs/comparison.md says why
	}{
		{"without frame pointers", compiled("-O2", nil), false},
		{"deleted", compiled("-O2", deleted), true},
		{"with frame pointers", compiled("-O2 -fno-omit-frame-pointer", nil), false},
		{"not optimized", compiled("-O0", nil), false},
		{"static", compiled("-O2 -static", nil), true},
		{"at a fixed address", compiled("-O2 -no-pie", nil), false},
		{"linked by gold", compiled("-O2 -fuse-ld=gold", nil), false},
		{"with debugging information", compiled("-O2 -g", nil), false},
		{"stripped", compiled("-O2 -s", nil), false},
		{"in a container", compiled("-O2", inside), false},
		{"C++", func(t *testing.T) perfCase {
			p := testprog.StartThrow(t)
			return perfCase{p.PID, p.File, "libstdcxx:throw", func() { p.Do("3") }}
		}, false},
		{"Python", func(t *testing.T) perfCase {
			p := testprog.StartPython(t)
			return perfCase{p.PID, p.File, "python:gc__start", func() { p.Do("collect") }}
		}, false},
		{"PostgreSQL", func(t *testing.T) perfCase {
			p := testprog.StartPostgres(t)
			return perfCase{0, p.File, "postgresql:query__start", func() { p.Query("SELECT 1") }}
		}, false},
	}
	for _, test := range tests[:testprog.Soak(2, len(tests))] {
		t.Run(test.name, func(t *testing.T) {
			c := test.start(t)
			place := placeOf(t, c.file, c.probe)
			const events = "/sys/kernel/tracing/uprobe_events"
			name := fmt.Sprintf("gousdt_perf_%d/hit", os.Getpid())
			define := func(line string) error {
				file, err := os.OpenFile(events, os.O_WRONLY|os.O_APPEND, 0)
				qt.Assert(t, qt.IsNil(err))
				defer file.Close()
				_, err = file.WriteString(line + "\n")
				return err
			}
			qt.Assert(t, qt.IsNil(define(fmt.Sprintf("p:%s %s:%s", name, c.file, place))))
			defer func() { qt.Check(t, qt.IsNil(define("-:"+name))) }()

			data := filepath.Join(t.TempDir(), "perf.data")
			arguments := []string{"record", "-q", "-N", "-o", data, "-e", strings.Replace(name, "/", ":", 1),
				"--call-graph", "dwarf,16384", "-a"}
			ours := []string{"-a", "--json", "--stack"}
			if c.pid != 0 {
				arguments[len(arguments)-1] = "-p"
				arguments = append(arguments, decimal(c.pid))
				ours = []string{"-p", decimal(c.pid), "--json", "--stack"}
			}
			r := watching(t, append(ours, c.probe)...)
			perf := exec.Command("perf", append(arguments, "--", "sleep", "1")...)
			perf.Stderr = os.Stderr
			qt.Assert(t, qt.IsNil(perf.Start()))
			ended := make(chan error, 1)
			go func() { ended <- perf.Wait() }()
			for done := false; !done; {
				if c.work != nil {
					c.work()
				}
				select {
				case err := <-ended:
					qt.Assert(t, qt.IsNil(err))
					done = true
				case <-time.After(10 * time.Millisecond):
				}
			}
			own := make(map[string]bool)
			for _, e := range r.interrupt().objects("event") {
				var names []string
				for _, f := range e.Stack {
					names = append(names, f.Function)
				}
				own[strings.Join(names, " ")] = true
			}
			theirs := perfStacks(t, data)
			qt.Assert(t, qt.Not(qt.HasLen(theirs, 0)))
			if !test.less {
				qt.Check(t, qt.DeepEquals(own, theirs))
				return
			}
			for stack := range own {
				qt.Check(t, qt.IsTrue(strings.Contains(stack, " main ")), qt.Commentf("%s", stack))
			}
			for stack := range theirs {
				qt.Check(t, qt.IsFalse(strings.Contains(stack, " ")), qt.Commentf("%s", stack))
			}
		})
	}
}

// placeOf returns where the first site of a probe is in the file, and its
// semaphore, as tracefs takes it.
func placeOf(t *testing.T, path, probe string) string {
	t.Helper()
	file, err := elfnote.Open(path)
	qt.Assert(t, qt.IsNil(err))
	defer file.Close()
	pattern := elfnote.MustParsePattern(probe)
	for site, err := range file.Sites() {
		if err != nil || !pattern.Match(site.Provider, site.Name) {
			continue
		}
		if site.Semaphore == 0 {
			return fmt.Sprintf("%#x", site.Offset)
		}
		return fmt.Sprintf("%#x(%#x)", site.Offset, site.SemaphoreOffset)
	}
	t.Fatalf("%s has no %s", path, probe)
	return ""
}

// perfStacks returns the functions of the stacks that perf has recorded, the
// innermost first, with "" for those that it has no name for.
func perfStacks(t *testing.T, data string) map[string]bool {
	t.Helper()
	out, err := exec.Command("perf", "script", "-i", data, "-F", "comm,ip,sym", "--no-inline",
		"--no-demangle").Output()
	qt.Assert(t, qt.IsNil(err))
	stacks := make(map[string]bool)
	for stack := range strings.SplitSeq(string(out), "\n\n") {
		var names []string
		for line := range strings.Lines(stack) {
			if fields := strings.Fields(line); len(fields) > 1 && (line[0] == ' ' || line[0] == '\t') {
				name, _, _ := strings.Cut(fields[1], "@")
				names = append(names, strings.Replace(name, "[unknown]", "", 1))
			}
		}
		if names != nil {
			stacks[strings.Join(names, " ")] = true
		}
	}
	return stacks
}
