// SPDX-License-Identifier: BSD-2-Clause

package profiler

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/proc"
	"github.com/gousdt/gousdt/profiler/internal/memlock"
	"github.com/gousdt/gousdt/usdt"
)

func TestMain(m *testing.M) {
	if err := memlock.Answer(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// target is a program that passes probes as often as it is told.
type target struct {
	*exec.Cmd
	in  io.Writer
	out *bufio.Reader
}

func run(t *testing.T, name string, args ...string) *target {
	t.Helper()
	testprog.RequireBPF(t)
	cmd := exec.Command(name, args...)
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
	return &target{cmd, in, bufio.NewReader(out)}
}

// hit makes the program pass its probe in four threads, n times in each.
func (p *target) hit(t *testing.T, n int) {
	t.Helper()
	fmt.Fprintln(p.in, n)
	line, err := p.out.ReadString('\n')
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.Equals(line, "done\n"))
}

// collected are the samples of a Profiler.
type collected struct {
	*Profiler
	mu      sync.Mutex
	samples []*Sample
	stop    context.CancelFunc
	ended   chan error
}

func start(t *testing.T, opts *Options, patterns ...elfnote.Pattern) *collected {
	t.Helper()
	c := &collected{ended: make(chan error, 1)}
	var err error
	c.Profiler, err = Start(t.Context(), USDT(opts, patterns...), &StartOptions{Handler: func(s *Sample) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.samples = append(c.samples, s)
	}})
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

// warm hits a process until the unwinder knows it, and forgets the samples.
func (c *collected) warm(t *testing.T, p *target, outer string) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for !strings.Contains(strings.Join(c.stacks(p.Process.Pid), "\n"), outer) {
		if time.Now().After(deadline) {
			stats, err := c.probe.Stats()
			t.Fatalf("no stack with %s; %+v, %v; %q", outer, stats, err, c.stacks(p.Process.Pid))
		}
		p.hit(t, 1)
		time.Sleep(100 * time.Millisecond) // the unwinder reads of new processes now and then
	}
}

// stacks returns the functions of a process's samples, the innermost first.
func (c *collected) stacks(pid int) (all []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.samples {
		var names []string
		for _, f := range s.Frames {
			names = append(names, f.Function)
		}
		if s.Event.PID == pid {
			all = append(all, strings.Join(names, " < "))
		}
	}
	return all
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

func only(pids ...int) usdt.WatchOptions {
	return usdt.WatchOptions{PerProcess: true,
		Filter: func(p proc.Process) bool { return slices.Contains(pids, p.PID) }}
}

func java(t *testing.T) *target {
	t.Helper()
	dir := t.TempDir()
	javac := testneeds.Tool(t, "javac", "default-jdk-headless")
	out, err := exec.Command(javac, "-d", dir, "testdata/Hits.java").CombinedOutput()
	qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", out))
	return run(t, "java", "-XX:+ExtendedDTraceProbes", "-cp", dir, "Hits")
}

// TestFunctions states that each of 1,000 hits in four threads has the
// functions of its runtime in order.
func TestFunctions(t *testing.T) {
	for _, test := range []struct {
		name, pattern, want, outer string
		run                        func() *target
	}{
		{name: "Python", pattern: "python:gc__start",
			want: "deep_collect < handle_request < main_loop < ", outer: "main_loop",
			run: func() *target {
				return run(t, testneeds.Tool(t, "/usr/bin/python3.11", "python3.11"),
					"testdata/hits.py")
			}},
		{name: "Java", pattern: "hotspot:thread__sleep__begin",
			want: "Hits.pause() < void Hits.handleOrder() < void Hits.mainLoop(int)", outer: "mainLoop",
			run: func() *target { return java(t) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := test.run()
			c := start(t, &Options{Watch: only(p.Process.Pid)},
				elfnote.MustParsePattern(test.pattern))
			c.warm(t, p, test.outer)
			before := c.finishWarm(p)
			p.hit(t, 250)
			stats := c.finish(t)
			all := c.stacks(p.Process.Pid)[before:]
			qt.Check(t, qt.Equals(len(all), 1000), qt.Commentf("%+v", stats))
			wrong := 0
			for _, stack := range all {
				if !strings.Contains(stack, test.want) {
					if wrong++; wrong < 5 {
						t.Errorf("%s is not in %s", test.want, stack)
					}
				}
			}
			t.Logf("%d wrong, %+v, such as %s", wrong, stats, all[len(all)-1])
		})
	}
}

// finishWarm waits for the last traces of what was hit before, and returns how
// many there are.
func (c *collected) finishWarm(p *target) int {
	for last := -1; ; {
		if n := len(c.stacks(p.Process.Pid)); n == last {
			return n
		} else {
			last = n
		}
		time.Sleep(500 * time.Millisecond)
	}
}
