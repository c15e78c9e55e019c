// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
	"github.com/google/pprof/profile"

	"github.com/gousdt/gousdt/internal/commandline"
	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/stack"
	"github.com/gousdt/gousdt/trace"
)

func TestMain(m *testing.M) {
	if err := testprog.AllowLockedMemory(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// python starts a program that passes python:gc__start all the time.
func python(t *testing.T) (pid string) {
	t.Helper()
	testprog.RequireBPF(t)
	testneeds.Tracefs(t)
	cmd := exec.Command(testneeds.Tool(t, "/usr/bin/python3.11", "python3.11"), "-c", `
import gc, time
def collect():
    gc.collect(0)
def serve():
    while True:
        collect()
        time.sleep(0.001)
serve()
`)
	qt.Assert(t, qt.IsNil(cmd.Start()))
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	return fmt.Sprint(cmd.Process.Pid)
}

// profiled runs the command line for three seconds and returns the path of what
// it writes, with this name.
func profiled(t *testing.T, name string, args ...string) (path, said string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	o, err := parse(append(args, "-o", file, "--duration", "3"))
	qt.Assert(t, qt.IsNil(err))
	var messages strings.Builder
	ctx, stop := context.WithTimeout(t.Context(), 30*time.Second)
	defer stop()
	qt.Assert(t, qt.IsNil(run(ctx, o, &messages)))
	t.Log(messages.String())
	return file, messages.String()
}

func TestProfile(t *testing.T) {
	pid := python(t)
	for _, test := range []struct {
		name string
		args []string
	}{
		{"hits.folded", []string{"python:gc__start"}},
		{"slow.folded", []string{"--slow", "1ns", "python:gc"}},
	} {
		path, _ := profiled(t, test.name, append(test.args, "-p", pid)...)
		written, err := os.ReadFile(path)
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.StringContains(string(written), ";<module>;serve;collect;"))
		t.Logf("%s", written)
	}
	path, _ := profiled(t, "hits.pb.gz", "-p", pid, "--where", "arg0 == 0", "--every", "10",
		"python:gc__start")
	file, err := os.Open(path)
	qt.Assert(t, qt.IsNil(err))
	defer file.Close()
	p, err := profile.Parse(file)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(p.SampleType[0].Type, "hits"))
	qt.Check(t, qt.IsTrue(len(p.Sample) > 0))

	_, said := profiled(t, "none.folded", "-p", pid, "--value", "arg7", "python:gc__start")
	qt.Check(t, qt.Matches(said, "(?s).*count 0: their probe has no argument arg7 .*"))
}

// TestNothing states that it is said that no process has the probe.
func TestNothing(t *testing.T) {
	testprog.RequireBPF(t)
	testneeds.Tracefs(t)
	for line, want := range map[string]string{
		"-p 1 python:gc__start": "no probe matches python:gc__start in process 1; usdtlist -p 1 .*",
		"-p 1 --memory":         "no probe matches otel_memory:alloc in process 1; .*",
		"-a nobody:has__this":   "no probe matches nobody:has__this in any process; .*",
	} {
		file := filepath.Join(t.TempDir(), "x.folded")
		o, err := parse(append(strings.Fields(line), "--duration", "1ms", "-o", file))
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.ErrorMatches(run(t.Context(), o, io.Discard), want))
		_, err = os.Stat(file)
		qt.Check(t, qt.ErrorIs(err, os.ErrNotExist))
	}
}

// What a process maps later is profiled, and all ends with the process.
func TestProbesThatComeLater(t *testing.T) {
	testprog.RequireBPF(t)
	testneeds.Tracefs(t)
	python := testneeds.Tool(t, "/usr/bin/python3.11", "python3.11")
	cmd := exec.Command("sh", "-c", "read go; exec "+python+` -c '
import gc, sys
def collect():
    gc.collect(0)
for line in sys.stdin:
    collect()
'`)
	in, err := cmd.StdinPipe()
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(cmd.Start()))
	file := filepath.Join(t.TempDir(), "later.folded")
	o, err := parse([]string{"-p", fmt.Sprint(cmd.Process.Pid), "-o", file, "python:gc__start"})
	qt.Assert(t, qt.IsNil(err))
	said, says := io.Pipe()
	failed := make(chan error, 1)
	go func() {
		failed <- run(t.Context(), o, says)
		says.Close()
	}()
	lines := bufio.NewScanner(said)
	for lines.Scan() {
		if strings.Contains(lines.Text(), "there is no matching probe yet") {
			go func() {
				defer cmd.Wait()
				defer in.Close()
				fmt.Fprintln(in, "go")
				testneeds.Await(t, 10*time.Second, "it is attached",
					func() bool { return o.attached.Load() > 0 })
				for range 30 { // the unwinder reads the process meanwhile
					fmt.Fprintln(in, "hit")
					time.Sleep(100 * time.Millisecond)
				}
			}()
		}
		t.Log(lines.Text())
	}
	qt.Assert(t, qt.IsNil(<-failed))
	written, err := os.ReadFile(file)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.StringContains(string(written), ";<module>;collect;"))
}

// A profile takes the place of the one before as a whole: what has that open
// still reads all of it.
func TestProfilesAreReplacedWhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hits.folded")
	qt.Assert(t, qt.IsNil(os.WriteFile(path, []byte("the one before"), 0o666)))
	before, err := os.Open(path)
	qt.Assert(t, qt.IsNil(err))
	defer before.Close()
	output, err := commandline.CreateOutput(path)
	qt.Assert(t, qt.IsNil(err))
	defer output.Abandon()
	p := stack.NewProfile(nil, profile.ValueType{Type: "hits", Unit: "count"})
	p.AddFrames(1, nil, []int64{1}, nil)
	qt.Assert(t, qt.IsNil(write(p, output, path, "")))
	text, err := io.ReadAll(before)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(string(text), "the one before"))
	text, err = os.ReadFile(path)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Not(qt.Equals(string(text), "the one before")))
}

// That a process has ended is not said of its probes.
func TestNothingOfProcessesThatHaveEnded(t *testing.T) {
	const ended = 1 << 30 // no process has that number
	for want, pids := range map[string][]int{
		"process 1073741824 ended before a probe was found in it": {ended},
		"these processes ended before a probe was found in them":  {ended, ended + 1},
		"no probe matches otel_memory:alloc in these processes.*": {ended, os.Getpid()},
	} {
		o := &options{pids: pids, memory: true}
		qt.Check(t, qt.ErrorMatches(o.nothing(), want))
	}
}

// TestRefused states what is said before anything is collected.
func TestRefused(t *testing.T) {
	for line, want := range map[string]string{
		"-p 99999999 -o " + t.TempDir() + "/x a:b": "there is no process 99999999",
		"-a -o /nonexistent/x a:b":                 "open /nonexistent/x: no such file or directory",
	} {
		o, err := parse(strings.Fields(line))
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.ErrorMatches(run(t.Context(), o, io.Discard), want))
	}
}

func TestParse(t *testing.T) {
	for line, want := range map[string]string{
		"python:gc__start":                         "give -a .*",
		"-a python:gc__start":                      "give -o .*",
		"-a -o x":                                  "give a pattern .*",
		"-a -o x --memory python:gc__start":        "--memory has its own .*",
		"-a -o x --slow 1ms a:b c:d":               "--slow takes one pair .*",
		"-a -p 1 -o x python:gc__start":            "give -a .*",
		"-p 1 -f -o x python:gc__start":            `-f: no such flag: -p takes several processes, .*`,
		"-a -o x --every 0 python:gc__start":       ".*want a number from 1 on",
		"-a -o x --slow fast postgresql:statement": ".*want seconds, or a number with its unit, .*",
	} {
		_, err := parse(strings.Fields(line))
		qt.Check(t, qt.ErrorMatches(err, want), qt.Commentf("%s", line))
	}
}

// What is no integer of 64 bits with a sign is not added up, and counted.
func TestValuesAreIntegers(t *testing.T) {
	o := &options{value: "arg0"}
	for _, test := range []struct {
		value trace.Value
		want  int64
	}{
		{trace.ValueOf(int64(-3)), -3},
		{trace.ValueOf(uint64(7)), 7},
		{trace.ValueOf(uint64(1 << 63)), 0},
	} {
		e := &trace.Event{Args: []trace.Value{test.value}, Site: &trace.Site{}}
		qt.Check(t, qt.Equals(o.argument(e), test.want), qt.Commentf("%v", test.value))
	}
	qt.Check(t, qt.Equals(o.without.Load(), 1))
}
