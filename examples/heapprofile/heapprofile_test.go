// SPDX-License-Identifier: BSD-2-Clause

//go:build linux && (386 || amd64 || arm64)

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
	"github.com/google/pprof/profile"

	"github.com/gousdt/gousdt/internal/testprog"
)

// What testdata/heap.c does for each request.
const (
	headersPerRequest, headerSize = 100, 100
	pictureSize                   = 64 << 10
	maxPictures                   = 1000
)

// profiling is a run that goes on beside the test.
type profiling struct {
	t        *testing.T
	pids     []int
	output   string
	messages *bufio.Scanner
	stop     context.CancelFunc
	done     chan error
}

func startProfiling(t *testing.T, period uint64, pids ...int) *profiling {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	reader, writer := io.Pipe()
	p := &profiling{
		t: t, pids: pids, output: filepath.Join(t.TempDir(), "heap.pb.gz"),
		messages: bufio.NewScanner(reader), stop: stop, done: make(chan error, 1),
	}
	go func() {
		err := run(ctx, writer, &options{pids: pids, period: period, output: p.output})
		writer.CloseWithError(io.EOF)
		p.done <- err
	}()
	t.Cleanup(func() { stop(); io.Copy(io.Discard, reader) })
	return p
}

// awaitAttached waits until both probes of a library are attached, first that
// of what must not be missed.
func (p *profiling) awaitAttached(library string) {
	p.t.Helper()
	for probes := []string{"free", "alloc"}; len(probes) > 0; {
		if !p.messages.Scan() {
			p.t.Fatalf("ended before it was attached: %v", <-p.done)
		}
		if strings.Contains(p.messages.Text(), library) {
			qt.Assert(p.t,
				qt.Matches(p.messages.Text(), "attached to otel_memory:"+probes[0]+" in .*"))
			probes = probes[1:]
		}
	}
}

// finish ends the run and returns the profile of a process: the whole of it, if
// processes were asked for.
func (p *profiling) finish(pid int) *profile.Profile {
	p.t.Helper()
	p.stop()
	for p.messages.Scan() {
		p.t.Log(p.messages.Text())
	}
	qt.Assert(p.t, qt.IsNil(<-p.done))
	file, err := os.Open(p.output)
	qt.Assert(p.t, qt.IsNil(err))
	defer file.Close()
	read, err := profile.Parse(file)
	qt.Assert(p.t, qt.IsNil(err))
	label := fmt.Sprintf("heap (%d)", pid)
	if len(p.pids) == 0 {
		read.FilterSamplesByTag(func(s *profile.Sample) bool {
			return s.HasLabel("process", label)
		}, nil)
	}
	for _, s := range read.Sample {
		qt.Assert(p.t, qt.IsTrue(s.HasLabel("process", label)))
		stack := strings.Join(functions(s), " ")
		qt.Assert(p.t, qt.Matches(stack, `(load_picture|copy_header parse_request) serve main.*`))
	}
	return read
}

// functions of a stack, the innermost first.
func functions(s *profile.Sample) []string {
	var names []string
	for _, location := range s.Location {
		for _, line := range location.Line {
			names = append(names, line.Function.Name)
		}
	}
	return names
}

// perFunction returns a column of the samples by the function that allocated.
func perFunction(t *testing.T, p *profile.Profile, kind string) map[string]int64 {
	t.Helper()
	for i, sampleType := range p.SampleType {
		if sampleType.Type != kind {
			continue
		}
		values := make(map[string]int64)
		for _, s := range p.Sample {
			values[functions(s)[0]] += s.Value[i]
		}
		return values
	}
	t.Fatalf("no values of type %s", kind)
	return nil
}

func putHeap(t *testing.T) (program, library string) {
	t.Helper()
	dir := t.TempDir()
	var paths []string
	for _, name := range []string{"heap", "libheap.so"} {
		content, err := os.ReadFile(filepath.Join(filepath.Dir(testprog.Path(t, "heap")), name))
		qt.Assert(t, qt.IsNil(err))
		paths = append(paths, filepath.Join(dir, name))
		qt.Assert(t, qt.IsNil(os.WriteFile(paths[len(paths)-1], content, 0o755)))
	}
	return paths[0], paths[1]
}

func serve(t *testing.T, p *testprog.Process, requests int) {
	t.Helper()
	_, err := p.Command(fmt.Sprintf("serve %d", requests))
	qt.Assert(t, qt.IsNil(err))
}

func TestEveryAllocationIsCountedWhereItWasMade(t *testing.T) {
	testprog.RequireBPF(t)
	testprog.LeakCheck(t)
	program, library := putHeap(t)
	profiled, other := testprog.Start(t, program), testprog.Start(t, program)
	serve(t, profiled, 1) // it has loaded its libraries; seen by nobody
	running := startProfiling(t, 1, profiled.PID)
	running.awaitAttached(library)
	serve(t, profiled, 10)
	serve(t, other, 10)
	p := running.finish(profiled.PID)

	qt.Check(t, qt.DeepEquals(perFunction(t, p, "alloc_space"), map[string]int64{
		"load_picture": 10 * pictureSize, "copy_header": 10 * headersPerRequest * headerSize,
	}))
	qt.Check(t, qt.DeepEquals(perFunction(t, p, "alloc_objects"), map[string]int64{
		"load_picture": 10, "copy_header": 10 * headersPerRequest,
	}))
	qt.Check(t, qt.DeepEquals(perFunction(t, p, "inuse_space"), map[string]int64{
		"load_picture": 10 * pictureSize, "copy_header": 0,
	}))
	qt.Check(t, qt.DeepEquals(perFunction(t, p, "inuse_objects"), map[string]int64{
		"load_picture": 10, "copy_header": 0,
	}))
	for _, s := range p.Sample {
		qt.Check(t, qt.Equals(s.Location[0].Mapping.File, program))
		qt.Check(t, qt.Matches(s.Location[0].Mapping.BuildID, "[0-9a-f]{40}"))
	}
	checkTop(t, running.output)
}

// checkTop reads the profile as people do.
func checkTop(t *testing.T, path string) {
	t.Helper()
	if _, err := exec.LookPath("go"); err != nil {
		t.Log(err) // in a guest
		return
	}
	out, err := exec.Command("go", "tool", "pprof", "-top", "-unit=B", "-sample_index=alloc_space",
		path).CombinedOutput()
	qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", out))
	top := regexp.MustCompile(`flat%.*\n +(\d+B) .* (\w+)\n`).FindStringSubmatch(string(out))
	qt.Assert(t, qt.HasLen(top, 3), qt.Commentf("%s", out))
	qt.Check(t, qt.Equals(top[1], fmt.Sprintf("%dB", 10*pictureSize)))
	qt.Check(t, qt.Equals(top[2], "load_picture"))
}

// One process that is there already, and one that comes and goes while the
// profiler runs.
func TestProcessesOfTheWholeSystemComeAndGo(t *testing.T) {
	testprog.RequireBPF(t)
	testprog.LeakCheck(t)
	program, library := putHeap(t)
	running := startProfiling(t, 1)
	late := testprog.Start(t, program)
	serve(t, late, 1)
	running.awaitAttached(library)
	serve(t, late, 3)
	late.Stop()
	p := running.finish(late.PID)
	got := perFunction(t, p, "alloc_objects")
	// The first request was served while the profiler may have been attaching.
	qt.Check(t, qt.IsTrue(got["load_picture"] == 3 || got["load_picture"] == 4),
		qt.Commentf("%v", got))
}

func TestSamplesStandForAllAllocations(t *testing.T) {
	testprog.RequireBPF(t)
	program, library := putHeap(t)
	profiled := testprog.Start(t, program)
	serve(t, profiled, 1)
	const period, requests = 100_000, 2000
	running := startProfiling(t, period, profiled.PID)
	running.awaitAttached(library)
	for range 10 { // an emulated machine takes a while
		serve(t, profiled, requests/10)
	}
	p := running.finish(profiled.PID)
	qt.Check(t, qt.Equals(p.Period, period))

	// The standard deviations are about 1, 7 and 2 percent.
	near(t, perFunction(t, p, "alloc_space")["load_picture"], requests*pictureSize, 0.1)
	near(t, perFunction(t, p, "alloc_space")["copy_header"],
		requests*headersPerRequest*headerSize, 0.5)
	near(t, perFunction(t, p, "inuse_space")["load_picture"], maxPictures*pictureSize, 0.15)
	qt.Check(t, qt.Equals(perFunction(t, p, "inuse_space")["copy_header"], 0))
}

func near(t *testing.T, got, want int64, tolerance float64) {
	t.Helper()
	off := float64(got-want) / float64(want)
	t.Logf("got %d, want %d: off by %.1f %%", got, want, 100*off)
	qt.Check(t, qt.IsTrue(-tolerance < off && off < tolerance))
}
