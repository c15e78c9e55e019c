// SPDX-License-Identifier: BSD-2-Clause

package profiler

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-quicktest/qt"
	"go.opentelemetry.io/ebpf-profiler/process"
	"go.opentelemetry.io/ebpf-profiler/reporter"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/stack"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt/proc"
	"github.com/gousdt/gousdt/watch"
)

func TestMain(m *testing.M) {
	if err := testprog.AllowLockedMemory(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// target is a program that passes probes as often as it is told.
type target struct {
	*exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
	hits uint64
}

func run(t testing.TB, command ...string) *target {
	t.Helper()
	testprog.RequireBPF(t)
	testneeds.Tracefs(t)
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	qt.Assert(t, qt.IsNil(err))
	out, err := cmd.StdoutPipe()
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(cmd.Start()))
	t.Cleanup(func() {
		in.Close()
		cmd.Wait()
	})
	return &target{Cmd: cmd, in: in, out: bufio.NewReader(out)}
}

// hit makes the program pass its probe in four threads, n times in each.
func (p *target) hit(t *testing.T, n int) {
	t.Helper()
	fmt.Fprintln(p.in, n)
	p.hits += 4 * uint64(n)
	line, err := p.out.ReadString('\n')
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.Equals(line, "done\n"))
}

// end ends the program, and returns how often it says that it was hit.
func (p *target) end(t *testing.T) (hits uint64) {
	t.Helper()
	p.in.Close()
	_, err := fmt.Fscan(p.out, &hits)
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(p.Wait()))
	return hits
}

// collected are the samples of a Profiler.
type collected struct {
	*Profiler
	mu      sync.Mutex
	samples []*Sample
	stop    context.CancelFunc
	ended   chan error
}

func start(t testing.TB, opts *Options, patterns ...elfnote.Pattern) *collected {
	t.Helper()
	return startWith(t, "", opts, patterns...)
}

func startWith(
	t testing.TB, otlp string, opts *Options, patterns ...elfnote.Pattern,
) *collected {
	t.Helper()
	c := &collected{ended: make(chan error, 1)}
	var err error
	handle := func(s *Sample) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.samples = append(c.samples, s)
	}
	c.Profiler, err = Start(t.Context(), USDT(opts, patterns...),
		&StartOptions{Handler: handle, OTLP: otlp})
	qt.Assert(t, qt.IsNil(err))
	ctx, stop := context.WithCancel(context.Background())
	c.stop = stop
	go func() { c.ended <- c.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		c.Close()
	})
	return c
}

// warm hits a process until the unwinder knows it, and returns when that was.
// What is hit after that time has a stack.
func (c *collected) warm(t *testing.T, p *target, pid int, outer string) time.Duration {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for !strings.Contains(strings.Join(c.stacks(pid, 0), "\n"), outer) {
		if time.Now().After(deadline) {
			stats, err := c.probe.Stats()
			t.Fatalf("no stack with %s; %+v, %v; %q", outer, stats, err, c.stacks(pid, 0))
		}
		p.hit(t, 1)
		time.Sleep(100 * time.Millisecond) // the unwinder reads of new processes now and then
	}
	var now unix.Timespec
	qt.Assert(t, qt.IsNil(unix.ClockGettime(unix.CLOCK_MONOTONIC, &now)))
	return time.Duration(now.Nano())
}

// stacks returns the functions of a process's samples since a time, the
// innermost first.
func (c *collected) stacks(pid int, since time.Duration) (all []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.samples {
		var names []string
		for _, f := range s.Frames {
			names = append(names, f.Function)
		}
		if s.Event.PID == pid && s.Event.Monotonic > since {
			all = append(all, strings.Join(names, " < "))
		}
	}
	return all
}

// check states that each of the hits since a time has these functions.
func (c *collected) check(t *testing.T, pid int, since time.Duration, hits int, want string) {
	t.Helper()
	all := c.stacks(pid, since)
	qt.Check(t, qt.Equals(len(all), hits))
	for _, stack := range all {
		qt.Assert(t, qt.StringContains(stack, want))
	}
}

// finish ends the profile.
func (c *collected) finish(t *testing.T) Stats {
	t.Helper()
	c.stop()
	qt.Assert(t, qt.IsNil(<-c.ended))
	stats, err := c.probe.Stats()
	qt.Assert(t, qt.IsNil(err))
	return stats
}

func only(pids ...int) watch.Options {
	return watch.Options{PerProcess: true,
		Filter: func(p proc.Process) bool { return slices.Contains(pids, p.PID) }}
}

const (
	pythonProbe, pythonWant = "python:gc__start", "deep_collect < handle_request < main_loop < "
	javaProbe               = "hotspot:thread__sleep__begin"
	javaWant                = "Hits.pause() < void Hits.handleOrder() < void Hits.mainLoop(int)"
	rubyProbe               = "ruby:raise"
	rubyWant                = "charge_card < handle_request < main_loop < "
)

func python(t *testing.T, args ...string) []string {
	return append([]string{testneeds.Tool(t, "/usr/bin/python3.11", "python3.11"),
		"testdata/hits.py"}, args...)
}

func java(t *testing.T) []string {
	t.Helper()
	dir := t.TempDir()
	javac := testneeds.Tool(t, "javac", "default-jdk-headless")
	out, err := exec.Command(javac, "-d", dir, "testdata/Hits.java").CombinedOutput()
	qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", out))
	return []string{"java", "-XX:+ExtendedDTraceProbes", "-cp", dir, "Hits"}
}

func ruby(t *testing.T) []string {
	return []string{testneeds.Tool(t, "testdata/build/ruby/ruby", "what internal/setup/interpreter builds"),
		"testdata/hits.rb"}
}

// TestFunctions states that each of 1,000 hits in four threads has the
// functions of its runtime in order.
func TestFunctions(t *testing.T) {
	for _, test := range []struct {
		name, probe, want, outer string
		command                  func(*testing.T) []string
	}{
		{"Python", pythonProbe, pythonWant, "main_loop",
			func(t *testing.T) []string { return python(t) }},
		{"Java", javaProbe, javaWant, "mainLoop", java},
		{"Ruby", rubyProbe, rubyWant, "main_loop", ruby},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := run(t, test.command(t)...)
			pid := p.Process.Pid
			c := start(t, &Options{Watch: only(pid)}, elfnote.MustParsePattern(test.probe))
			known := c.warm(t, p, pid, test.outer)
			p.hit(t, 250)
			stats := c.finish(t)
			c.check(t, pid, known, 1000, test.want)
			t.Logf("%+v", stats)
		})
	}
}

// TestFirstHits states that the hits right after attaching have a stack.
func TestFirstHits(t *testing.T) {
	p := run(t, python(t)...)
	p.hit(t, 1)
	pid := p.Process.Pid
	c := start(t, &Options{Watch: only(pid)}, elfnote.MustParsePattern(pythonProbe))
	p.hit(t, 250)
	stats := c.finish(t)
	c.check(t, pid, 0, 1000, pythonWant)
	qt.Check(t, qt.Equals(stats, Stats{Matched: 1000}))
}

// TestTree states the same of a Python program and of the Java program that it
// has started, while both run.
func TestTree(t *testing.T) {
	p := run(t, python(t, java(t)...)...)
	p.hit(t, 1)
	parent, child := p.Process.Pid, child(t, p.Process.Pid)
	c := start(t, &Options{Watch: only(parent, child)},
		elfnote.MustParsePattern(pythonProbe), elfnote.MustParsePattern(javaProbe))
	c.warm(t, p, parent, "main_loop")
	known := c.warm(t, p, child, "mainLoop")
	p.hit(t, 250)
	stats := c.finish(t)
	c.check(t, parent, known, 1000, pythonWant)
	c.check(t, child, known, 1000, javaWant)
	qt.Check(t, qt.Equals(stats.NoHit+stats.Lost, 0))
}

// TestContainer states the same of a process with namespaces of its own, whose
// program is in a file system that no other process sees.
func TestContainer(t *testing.T) {
	command := python(t)
	p := run(t, testneeds.Tool(t, "unshare", "util-linux"), "--mount", "--pid", "--cgroup", "--ipc",
		"--uts", "--net", "--fork", "sh", "-c", "mount -t tmpfs none /mnt && cp "+command[0]+
			" /mnt/python3.11 && exec /mnt/python3.11 "+command[1])
	p.hit(t, 1)
	pid := child(t, p.Process.Pid)
	c := start(t, &Options{Watch: only(pid)}, elfnote.MustParsePattern(pythonProbe))
	known := c.warm(t, p, pid, "main_loop")
	p.hit(t, 250)
	c.finish(t)
	c.check(t, pid, known, 1000, pythonWant)
}

// TestShort states that each hit of processes that live for a few milliseconds
// has a stack, or is counted as without one, where their program is known.
func TestShort(t *testing.T) {
	command := python(t)
	program, err := os.ReadFile(command[0])
	qt.Assert(t, qt.IsNil(err))
	command[0] = filepath.Join(t.TempDir(), "python3.11") // what no other process runs
	qt.Assert(t, qt.IsNil(os.WriteFile(command[0], program, 0o755)))

	known := run(t, command...)
	known.hit(t, 0)
	c := start(t, &Options{Session: trace.SessionOptions{Filter: "arg0 == 0"}, // none at their ends
		Watch: watch.Options{Filter: func(p proc.Process) bool {
			name, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", p.PID))
			return name == command[0]
		}},
	}, elfnote.MustParsePattern(pythonProbe))
	c.warm(t, known, known.Process.Pid, "main_loop")
	var hits uint64
	for range 10 {
		p := run(t, command...)
		p.hit(t, 25)
		hits += p.end(t)
	}
	stats := c.finish(t)
	named := 0
	for _, s := range c.samples {
		if slices.ContainsFunc(s.Frames,
			func(f stack.Frame) bool { return f.Function == "deep_collect" }) {
			named++
		}
	}
	t.Logf("%d of %d have names, %+v", named, hits, stats)
	qt.Check(t, qt.Equals(stats.Matched+stats.NoStack, hits+known.hits))
	qt.Check(t, qt.Equals(stats.NoHit+stats.Lost, 0))
}

// child returns the only child of a process.
func child(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", pid))
	qt.Assert(t, qt.IsNil(err))
	child, err := strconv.Atoi(strings.TrimSpace(string(text)))
	qt.Assert(t, qt.IsNil(err))
	return child
}

// The unwinder's analysis of the kernel is tried again, other failures are not.
func TestAnalysisIsTriedAgain(t *testing.T) {
	raced := errors.New("system analysis helper failed at 0x20: bad address")
	refused := errors.New("operation not permitted")
	for _, test := range []struct {
		outcomes []error
		want     error
		tries    int
	}{
		{[]error{nil}, nil, 1},
		{[]error{raced, raced, nil}, nil, 3},
		{[]error{refused, nil}, refused, 1},
		{[]error{raced, raced, raced, raced, raced, nil}, raced, 5},
	} {
		tries := 0
		err := analysed(func() error { tries++; return test.outcomes[tries-1] })
		qt.Check(t, qt.Equals(err, test.want))
		qt.Check(t, qt.Equals(tries, test.tries))
	}
}

// stuck is a process whose files do not answer.
type stuck struct {
	process.Process
	answer chan struct{}
}

func (s stuck) OpenMappingFile(*process.RawMapping) (process.ReadAtCloser, error) { return s, nil }

func (s stuck) ReadAt([]byte, int64) (int, error) {
	<-s.answer
	return 0, io.EOF
}

func (s stuck) Close() error { return nil }

// The tracer goes on without the symbols of a file that does not answer.
func TestFilesThatDoNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := make(chan struct{})
		defer close(answer)
		executables{&Profiler{}}.ReportExecutable(
			&reporter.ExecutableMetadata{Process: stuck{answer: answer}})
	})
}
