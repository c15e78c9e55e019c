// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
)

// Where a probe fires only with a variable of the environment, it is said who
// was started with it.
func TestWhoHasTheVariableIsSaid(t *testing.T) {
	testprog.Parallel(t)
	names := filepath.Join(t.TempDir(), "names.d")
	qt.Assert(t, qt.IsNil(os.WriteFile(names, []byte(
		"#pragma gousdt fires gousdt_test:three only with the environment variable GOUSDT_TEST=1\n"), 0o644)))
	path := copyOf(t, "target-pie")
	why := func() string {
		t.Helper()
		stderr := start(t, "--names", names, "--duration", "0.1", path, "gousdt_test:three").wait().stderr
		_, why, _ := strings.Cut(stderr, "three fires only with the environment variable GOUSDT_TEST=1")
		return why
	}
	testprog.Start(t, path)
	qt.Check(t, qt.Equals(why(), " (without it: 1 process)\n"))
	for range 2 {
		with := exec.Command(path)
		with.Env = append(os.Environ(), "GOUSDT_TEST=1")
		testprog.StartCommand(t, with)
	}
	qt.Check(t, qt.Equals(why(), " (started with it: 2 processes; without it: 1 process)\n"))
}

// php-fpm writes its title over its environment. Its memory shows whether it
// was started with the variable.
func TestWhoHasTheVariableIsReadFromMemory(t *testing.T) {
	testprog.TakeTurn(t, testprog.SystemSoftware)
	fpm := testneeds.Tool(t, "php-fpm8.2", "php8.2-fpm")
	for value, want := range map[string]string{"1": "started with it", "0": "without it"} {
		dir := t.TempDir()
		config := filepath.Join(dir, "fpm.conf")
		qt.Assert(t, qt.IsNil(os.WriteFile(config, []byte("[global]\nerror_log = "+dir+"/log\n[www]\n"+
			"listen = "+dir+"/socket\npm = static\npm.max_children = 1\nuser = nobody\n"), 0o644)))
		cmd := exec.Command(fpm, "-n", "-F", "-R", "-y", config)
		cmd.Env = append(os.Environ(), "USE_ZEND_DTRACE="+value)
		qt.Assert(t, qt.IsNil(cmd.Start()))
		t.Cleanup(func() { _ = cmd.Process.Signal(syscall.SIGTERM); _ = cmd.Wait() })
		testneeds.Await(t, 10*time.Second, "php-fpm", func() bool {
			_, err := os.Stat(filepath.Join(dir, "socket"))
			return err == nil
		})
		r := start(t, "--duration", "0.1", "-p", decimal(cmd.Process.Pid), "-f", "php:function__entry").wait()
		qt.Check(t, qt.StringContains(r.stderr,
			"USE_ZEND_DTRACE=1, which sets zend_dtrace_enabled ("+want+": 2 processes)\n"))
	}
}

// Where nothing came, the summary says why, for each pattern.
func TestZeroIsExplained(t *testing.T) {
	testprog.Parallel(t)
	p, idle := startTarget(t, "target-pie"), copyOf(t, "target-static")
	c := startTarget(t, "calls")
	for name, test := range map[string]struct {
		args []string
		why  string
	}{
		"a process": {[]string{"-p", decimal(p.PID), "gousdt_test:three"},
			"gousdt_test:three: 1 process contains it, but it did not fire\n"},
		"a file": {[]string{p.path, "gousdt_test:three,gousdt_test:inlined"},
			"gousdt_test:three, gousdt_test:inlined: 1 process contains it, but it did not fire\n"},
		"a file that nobody runs": {[]string{idle, "gousdt_test:three"},
			"gousdt_test:three: no process runs a file that contains it\n"},
		"a file that another process runs": {
			[]string{"-p", decimal(os.Getpid()), p.path, "gousdt_test:three"},
			"gousdt_test:three: process " + decimal(os.Getpid()) + " runs no file that contains it\n"},
		"one of two probes": {[]string{p.path, "gousdt_test:three", "gousdt_test:nothing"},
			"gousdt_test:nothing: no process has such a probe\n"},
		"calls of a process": {[]string{"--slow", "1s", "-p", decimal(c.PID), "gousdt_calls:outer"},
			"\ncalls that had begun before are not seen\n"},
		"times of calls": {[]string{"--latency", "gousdt_calls:outer", c.path},
			"\ncalls that had begun before are not seen\n"},
		"a process without the probe": {
			[]string{"-p", decimal(p.PID), "gousdt_test:three", "gousdt_test:nothing"},
			"gousdt_test:nothing: process " + decimal(p.PID) + " has no such probe\n"},
		"a command that does not run it": {
			[]string{idle, "gousdt_test:three", "--", testprog.Path(t, "launcher")},
			"gousdt_test:three: the command executed no file that contains it"},
		"a command that runs it, with a FILE": {[]string{idle, "gousdt_test:three", "--", idle},
			"gousdt_test:three: the command ran a file that contains it, but it did not fire\n"},
		"a command": {[]string{"gousdt_test:three", "--", idle},
			"gousdt_test:three: the command ran a file that contains it, but it did not fire\n"},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, append([]string{"--duration", "0.1"}, test.args...)...).wait()
			qt.Check(t, qt.StringContains(r.stderr, test.why))
		})
	}
	for name, test := range map[string]struct {
		flags []string
		input string
		why   string
	}{
		"a condition": {[]string{"--where", "arg0 == 12345678", "gousdt_test:three"},
			"fire three 3\nquit\n", "probes fired, but --where holds for no hit\n"},
		"slow calls": {[]string{"--slow", "1h", "gousdt_calls:outer"}, "nested\n",
			"of the calls that began and ended meanwhile, none was as long as --slow 1h0m0s\n"},
		"slow calls that fail": {[]string{"--slow", "0", "--where", "failed", "gousdt_calls:outer"},
			"nested\n", "no probe is known at which they end if they fail: PAIR|PROBE names one\n"},
	} {
		t.Run(name, func(t *testing.T) {
			program := "target-pie"
			if strings.HasPrefix(name, "slow calls") {
				program = "calls"
			}
			r := startWith(t, test.input, append(test.flags, "--", copyOf(t, program))...).wait()
			qt.Check(t, qt.StringContains(r.stderr, test.why))
		})
	}
}

// compile makes a program of a C source.
func compile(t *testing.T, source string, flags ...string) string {
	t.Helper()
	gcc := testneeds.Tool(t, "gcc", "gcc")
	path := filepath.Join(t.TempDir(), "program")
	qt.Assert(t, qt.IsNil(os.WriteFile(path+".c", []byte(source), 0o644)))
	include := filepath.Join(filepath.Dir(testprog.Path(t, "target-pie")), "include")
	out, err := exec.Command(gcc, append(flags, "-O2", "-I", include, "-o", path, path+".c")...).
		CombinedOutput()
	qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", out))
	return path
}

// mover puts a copy of its code in its place, as programs do for huge pages.
// The functions that it calls meanwhile are in the C library.
const mover = `
#define _GNU_SOURCE
#include <sys/sdt.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
extern char __executable_start, etext;
__attribute__((section(".mover"), noinline)) static void move(char *to, char *from, size_t n)
{
	mmap(to, n, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	memcpy(to, from, n);
	__builtin___clear_cache(to, to + n);
}
__attribute__((noinline)) static void tick(int n) { DTRACE_PROBE1(moved, tick, n); }
int main(int count, char **arguments)
{
	char *begin = (char *)((size_t)tick & -4096), *end = (char *)(((size_t)&etext + 4095) & -4096);
	char *copy = mmap(0, end - begin, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memcpy(copy, begin, end - begin);
	move(begin, copy, end - begin);
	puts("moved");
	fflush(stdout);
	while (getchar() != EOF)
		tick(count);
	return 0;
}
`

var moverFlags = []string{"-no-pie", "-fno-pie", "-fno-plt", "-Wl,-z,now",
	"-Wl,--section-start=.mover=0x10000000"}

// A process is said not to have passed a probe only if it executes the code of
// the file where the probe is, and its semaphore is above 0.
func TestUnseenHitsAreExplained(t *testing.T) {
	testprog.Parallel(t)
	why := func(t *testing.T, args ...string) string {
		t.Helper()
		return start(t, append([]string{"--duration", "0.1"}, args...)...).wait().stderr
	}
	t.Run("moved code", func(t *testing.T) {
		testneeds.Only(t, "the program is linked for it", "amd64", "arm64")
		path := compile(t, mover, moverFlags...)
		cmd := exec.Command(path)
		stdin := stdinOf(t, cmd)
		out, err := cmd.StdoutPipe()
		qt.Assert(t, qt.IsNil(err))
		qt.Assert(t, qt.IsNil(cmd.Start()))
		line, _ := bufio.NewReader(out).ReadString('\n')
		qt.Assert(t, qt.Equals(line, "moved\n"))
		for _, args := range [][]string{{"-p", decimal(cmd.Process.Pid)}, {path}} {
			qt.Check(t, qt.StringContains(why(t, append(args, "moved:tick")...),
				"moved:tick: process "+decimal(cmd.Process.Pid)+
					" (program) executes other code in the probe's place"))
		}
		stdin.Close()
		qt.Check(t, qt.IsNil(cmd.Wait()))

		// Watched from its start, it executes the breakpoint.
		r := startWith(t, "x", "moved:tick", "--", path).wait()
		qt.Check(t, qt.Equals(r.status, 128+int(syscall.SIGTRAP)))
		qt.Check(t, qt.StringContains(r.stderr, "docs/troubleshooting.md#sigtrap"))
		qt.Check(t, qt.StringContains(r.stderr,
			"moved:tick: the command executes other code in the probe's place"))
		testneeds.NoGuest(t, "the process connector may not be there")
		watch := watching(t, path, "moved:tick")
		other := exec.Command("sh", "-c", "kill -TRAP $$")
		qt.Assert(t, qt.IsNotNil(other.Run()))
		// One that its parent reaps at once may be gone before it is looked at.
		named := func(pid int) bool {
			return strings.Contains(watch.stderr.String(), "process "+decimal(pid))
		}
		var pids []int
		testneeds.Await(t, time.Minute, "a process that SIGTRAP has ended is named", func() bool {
			cmd := exec.Command(path)
			io := stdinOf(t, cmd)
			qt.Assert(t, qt.IsNil(cmd.Start()))
			_, err := io.Write([]byte("x"))
			qt.Check(t, qt.IsNil(err))
			cmd.Wait()
			pids = append(pids, cmd.Process.Pid)
			return slices.ContainsFunc(pids, named)
		})
		watch.await(&watch.stderr, "docs/troubleshooting.md#sigtrap")
		// It may run the file as far as is known, if its name is not.
		qt.Check(t, qt.Not(qt.StringContains(watch.interrupt().stderr,
			"process "+decimal(other.Process.Pid)+" (sh)")))
	})
	t.Run("moved code, attached later", func(t *testing.T) {
		testneeds.Only(t, "the program is linked for it", "amd64", "arm64")
		path := compile(t, mover, moverFlags...)
		watch := watching(t, "-a", "--after", testneeds.Patience(500*time.Millisecond).String(), "moved:tick")
		var all []*exec.Cmd
		var inputs []io.WriteCloser
		var outputs []*bufio.Reader
		for range 20 {
			cmd := exec.Command(path)
			inputs = append(inputs, stdinOf(t, cmd))
			out, err := cmd.StdoutPipe()
			qt.Assert(t, qt.IsNil(err))
			qt.Assert(t, qt.IsNil(cmd.Start()))
			all, outputs = append(all, cmd), append(outputs, bufio.NewReader(out))
		}
		for i := range all {
			line, _ := outputs[i].ReadString('\n')
			qt.Check(t, qt.Equals(line, "moved\n"))
		}
		watch.await(&watch.stderr, "also watching 1 site in "+path)
		for _, input := range inputs {
			_, err := io.WriteString(input, "x")
			qt.Check(t, qt.IsNil(err))
		}
		qt.Check(t, qt.StringContains(watch.interrupt().stderr, " executes other code in the probe's place"))
		for i, cmd := range all {
			inputs[i].Close()
			qt.Check(t, qt.IsNil(cmd.Wait()))
		}
	})
	t.Run("writable code", func(t *testing.T) {
		path := copyOf(t, "target-pie")
		testprog.MakeCodeWritable(t, path)
		qt.Check(t, qt.StringContains(why(t, path, "gousdt_test:three"), "writable segment"))
	})
	t.Run("semaphore", func(t *testing.T) {
		p, pattern := startTarget(t, "target-pie"), elfnote.Exact("gousdt_test", "guarded")
		o := &options{scopeFlags: scopeFlags{patterns: []elfnote.Pattern{pattern}, pid: p.PID}}
		tracer := &tracer{prepared: prepared{options: o}}
		qt.Check(t, qt.IsTrue(tracer.clearedSemaphores()[silence{p.PID, 0}]))
		r := watching(t, p.path, pattern.String())
		qt.Check(t, qt.HasLen(tracer.clearedSemaphores(), 0))
		r.interrupt()
	})
	t.Run("another file of the name", func(t *testing.T) {
		// Three others only have its name, and are said after it.
		for range 3 {
			startTarget(t, "target-pie")
		}
		p := startTarget(t, "target-pie")
		qt.Assert(t, qt.IsNil(os.Remove(p.path)))
		contents, err := os.ReadFile(testprog.Path(t, "target-pie"))
		qt.Assert(t, qt.IsNil(err))
		testprog.WriteProgram(t, p.path, contents)
		qt.Check(t, qt.StringContains(why(t, p.path, "gousdt_test:three"),
			p.path+": process "+decimal(p.PID)+" (target-pie) runs another file of that name: "+
				p.path+" (deleted)\n"))
	})
	t.Run("the file of a container", func(t *testing.T) {
		path, root := copyOf(t, "target-pie"), t.TempDir()
		qt.Assert(t, qt.IsNil(os.MkdirAll(root+filepath.Dir(path), 0o755)))
		qt.Assert(t, qt.IsNil(os.Rename(copyOf(t, "target-static"), root+path)))
		cmd := exec.Command(path)
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
		io := stdinOf(t, cmd)
		qt.Assert(t, qt.IsNil(cmd.Start())) // it has been executed then
		its := "/proc/" + decimal(cmd.Process.Pid) + "/root" + path
		// Programs of other tests have the name, too.
		said := why(t, path, "gousdt_test:three")
		qt.Check(t, qt.StringContains(said, "runs another file of that name: "+its+"\n"))
		qt.Check(t, qt.StringContains(said,
			path+": a container has files of its own: name the path below /proc, or use -p or -a\n"))
		io.Close()
		cmd.Wait()
	})
	t.Run("late", func(t *testing.T) {
		testneeds.Tool(t, "sh", "dash")
		script := filepath.Join(t.TempDir(), "script")
		qt.Assert(t, qt.IsNil(os.WriteFile(script,
			[]byte("#!/bin/sh\n{ sleep 1; echo quit; } | "+copyOf(t, "target-pie")+"\n"), 0o755)))
		r := start(t, "--count", "gousdt_test:three", "--", script).wait()
		qt.Check(t, qt.StringContains(r.stderr, "not seen: hits in "))
		qt.Check(t, qt.StringContains(r.stderr, "hits may have been missed"))
		qt.Check(t, qt.Not(qt.StringContains(r.stderr, "it did not fire")))
	})
	t.Run("late because of where its semaphore is", func(t *testing.T) {
		testneeds.Tool(t, "ld.lld", "lld")
		r := start(t, "--count", "late:gated", "--", compile(t, `
#define _SDT_HAS_SEMAPHORES 1
#include <sys/sdt.h>
#include <unistd.h>
__extension__ unsigned short late_gated_semaphore __attribute__((section(".probes")));
int main(void)
{
	for (int i = 0; i < 60000; i++, usleep(1000))
		if (late_gated_semaphore) {
			DTRACE_PROBE(late, gated);
			return 0;
		}
	return 1;
}
`, "-fuse-ld=lld")).wait()
		qt.Check(t, qt.Equals(r.status, 0))
		qt.Check(t, qt.StringContains(r.stderr, "1 event, "))
		qt.Check(t, qt.Matches(r.stderr, `(?s).*not seen: hits in \S*program for up to .*`))
	})
}

// The first program that everybody writes passes a text that it never reads.
func TestTextsThatAProgramHasNotTouched(t *testing.T) {
	testprog.Parallel(t)
	path := compile(t, `
#include <sys/sdt.h>
#include <stdio.h>
static const char text[4096] __attribute__((aligned(4096))) = "foo";
int main(void)
{
	while (getchar() != EOF)
		DTRACE_PROBE2(literal, passed, text, (char *)0);
	return 0;
}
`)
	for name, args := range map[string][]string{"a file": {path}, "a process": {"-p"}} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(path)
			stdin := stdinOf(t, cmd)
			qt.Assert(t, qt.IsNil(cmd.Start()))
			testneeds.Await(t, time.Second, "the program executes", func() bool {
				executable, _ := os.Readlink("/proc/" + decimal(cmd.Process.Pid) + "/exe")
				return executable == path
			})
			if name == "a process" {
				args = append(args, decimal(cmd.Process.Pid))
			}
			r := watching(t, append(args, "--str", "0", "--str", "1", "--max-events", "1",
				"literal:passed")...)
			_, err := stdin.Write([]byte("x"))
			qt.Assert(t, qt.IsNil(err))
			qt.Check(t, qt.StringContains(r.wait().stdout, `arg0="foo" arg1=null`))
			stdin.Close()
			cmd.Wait()
		})
	}
}

// With -p PID -f a process that SIGTRAP has ended is named if it is one of
// those.
func TestTrapsOfOtherFamiliesAreNotReported(t *testing.T) {
	testprog.Parallel(t)
	testneeds.NoGuest(t, "the process connector may not be there")
	testprog.RequireBPF(t)
	shell := exec.Command("sh", "-c", `read line; sh -c 'kill -TRAP $$'; read line`)
	stdin := stdinOf(t, shell)
	qt.Assert(t, qt.IsNil(shell.Start()))
	r := watching(t, "-p", decimal(shell.Process.Pid), "-f", "gousdt_test:three")
	other := exec.Command("sh", "-c", "kill -TRAP $$")
	qt.Assert(t, qt.IsNotNil(other.Run()))
	_, err := stdin.Write([]byte("\n"))
	qt.Assert(t, qt.IsNil(err))
	r.await(&r.stderr, " ended by SIGTRAP")
	qt.Check(t, qt.IsFalse(strings.Contains(r.interrupt().stderr, "process "+decimal(other.Process.Pid))))
	stdin.Close()
	_ = shell.Wait() // with the status of the other shell
}
