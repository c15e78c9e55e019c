// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/cmd/internal/testschema"
	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
)

// runDeadline is how long one run of usdttrace may take: an emulated or busy
// machine is slow.
const runDeadline = 60 * time.Second

// running is usdttrace in a process of its own, as people run it.
type running struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdout watched
	stderr watched
	ended  chan struct{}
}

// watched collects output, and says when a text has come.
type watched struct {
	mu      sync.Mutex
	text    bytes.Buffer
	changed chan struct{}
}

func (w *watched) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text.Write(b)
	select {
	case w.changed <- struct{}{}:
	default:
	}
	return len(b), nil
}

func (w *watched) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

// forget drops what has been written so far.
func (w *watched) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text.Reset()
}

// start starts usdttrace. The end of the test ends it.
func start(t *testing.T, args ...string) *running {
	t.Helper()
	return startPrepared(t, func(*exec.Cmd) {}, args...)
}

// startWith starts usdttrace with a standard input.
func startWith(t *testing.T, stdin string, args ...string) *running {
	t.Helper()
	return startPrepared(t, func(cmd *exec.Cmd) { cmd.Stdin = strings.NewReader(stdin) }, args...)
}

// startPrepared starts usdttrace as a function prepares it.
func startPrepared(t *testing.T, prepare func(*exec.Cmd), args ...string) *running {
	t.Helper()
	testprog.RequireBPF(t)
	testprog.LeakCheck(t)
	if slices.Contains(args, "-a") { // and finds processes that do not answer
		testprog.TakeTurn(t, testprog.HostileUsers)
	}
	ctx, cancel := context.WithTimeout(context.Background(),
		testneeds.Patience(testprog.Soak(runDeadline, 3*time.Hour)))
	r := &running{t: t, ended: make(chan struct{})}
	r.stdout.changed, r.stderr.changed = make(chan struct{}, 1), make(chan struct{}, 1)
	r.cmd = exec.CommandContext(ctx, "/proc/self/exe", args...)
	r.cmd.Env = append(os.Environ(), runVariable+"=1", "TERM=xterm")
	r.cmd.Stdout, r.cmd.Stderr = &r.stdout, &r.stderr
	prepare(r.cmd)
	// Processes that it has started may still hold the pipes.
	r.cmd.WaitDelay = 5 * time.Second
	qt.Assert(t, qt.IsNil(r.cmd.Start()))
	go func() {
		defer close(r.ended)
		r.cmd.Wait()
	}()
	t.Cleanup(func() {
		cancel()
		<-r.ended
		if t.Failed() {
			t.Logf("usdttrace %s\n%s\n%s", strings.Join(args, " "), &r.stdout, &r.stderr)
		}
	})
	return r
}

// watching starts usdttrace and returns when nothing is missed any more.
func watching(t *testing.T, args ...string) *running {
	t.Helper()
	r := start(t, args...)
	r.await(&r.stderr, "(Ctrl-C ends)")
	return r
}

// await waits until a text has come.
func (r *running) await(w *watched, text string) {
	r.t.Helper()
	r.awaitCount(w, text, 1)
}

// awaitCount waits until a text has come several times.
func (r *running) awaitCount(w *watched, text string, times int) {
	r.t.Helper()
	for strings.Count(w.String(), text) < times {
		select {
		case <-w.changed:
		case <-r.ended:
			if strings.Count(w.String(), text) < times {
				r.t.Fatalf("it ended without %q", text)
			}
		}
	}
}

// runs reports whether it still runs.
func (r *running) runs() bool {
	select {
	case <-r.ended:
		return false
	default:
		return true
	}
}

// interrupt ends it as Ctrl-C does, and returns what it printed.
func (r *running) interrupt() result {
	r.t.Helper()
	qt.Assert(r.t, qt.IsNil(r.cmd.Process.Signal(syscall.SIGINT)))
	return r.wait()
}

// wait waits until it ends without a signal.
func (r *running) wait() result {
	r.t.Helper()
	<-r.ended
	return result{r.t, r.cmd.ProcessState.ExitCode(), r.stdout.String(), r.stderr.String()}
}

type result struct {
	t              *testing.T
	status         int
	stdout, stderr string
}

// ok asserts that it went well, and returns the lines.
func (r result) ok() []string {
	r.t.Helper()
	qt.Assert(r.t, qt.Equals(r.status, exitWatched), qt.Commentf("%s", r.stderr))
	return strings.Split(strings.TrimSuffix(r.stdout, "\n"), "\n")
}

// object is a line of JSON, of any kind.
type object struct {
	Type, Command, Provider, Name, File, Mode, Aggregation string
	Pair                                                   string
	Failed                                                 bool
	Ended                                                  string
	Now                                                    json.RawMessage
	Killed, Exited                                         uint64
	Start                                                  json.RawMessage // of a span an object, of a row a time

	Time      time.Time
	Monotonic int64 `json:"monotonic_ns"`
	PID, TID  int
	Location  uint64
	Args      []argument
	Stack     []frame

	Keys     map[string]any
	Other    any // true for a row, a number for the summary
	Count    uint64
	Sum      json.Number
	Min, Max json.Number
	Average  float64
	Buckets  []struct {
		Low, High json.Number
		Count     uint64
	}

	Exponential struct {
		Scale    int
		Positive struct {
			Offset int
			Counts []uint64 `json:"bucket_counts"`
		}
	}

	Events, Lost, Unmatched, Unsearched uint64
	Left, Overlapped                    uint64
	Duration                            time.Duration `json:"duration_ns"`
	Late                                []struct{ PID int }
	Replaced, Unfinished                uint64
	NotSampled                          uint64 `json:"not_sampled"`
	Unrepresented                       uint64 `json:"unrepresented"`
	Frames                              uint64
	UnnamedFrames                       uint64 `json:"unnamed_frames"`
	Sites                               int
	LimitedSites                        int `json:"limited_sites"`
	LimitedDescriptors                  int `json:"limited_descriptors"`
	Seconds                             float64
	Programs                            []struct {
		Name string
		Runs uint64
	}
}

type argument struct {
	Value                              json.Number
	Text, Bytes                        *string
	Truncated, Unavailable, Unreadable bool
	DataUnreadable                     bool `json:"data_unreadable"`
}

type frame struct {
	Address, Offset uint64
	Function, File  string
	Source          string
}

// objects asserts that it went well and that the lines are as the schema says,
// and returns those of one kind.
func (r result) objects(kind string) []object {
	r.t.Helper()
	schema := testschema.Load(r.t, "usdttrace")
	var all []object
	for _, line := range r.ok() {
		schema.Check(r.t, []byte(line))
		var o object
		qt.Assert(r.t, qt.IsNil(json.Unmarshal([]byte(line), &o)), qt.Commentf("%s", line))
		if o.Type == kind {
			all = append(all, o)
		}
	}
	return all
}

// traced is a running program. Its file is a copy that nobody else traces or
// runs.
type traced struct {
	*testprog.Process
	path string
}

func startTarget(t *testing.T, name string) *traced {
	t.Helper()
	return startProgram(t, copyOf(t, name))
}

func startProgram(t *testing.T, path string) *traced {
	t.Helper()
	return &traced{Process: testprog.Start(t, path), path: path}
}

func copyOf(t *testing.T, name string) string {
	t.Helper()
	contents, err := os.ReadFile(testprog.Path(t, name))
	qt.Assert(t, qt.IsNil(err))
	path := filepath.Join(t.TempDir(), name)
	testprog.WriteProgram(t, path, contents)
	return path
}

// copyBeside puts a copy of a library where a program looks first, and returns
// the program.
func copyBeside(t *testing.T, program, library string) string {
	t.Helper()
	contents, err := os.ReadFile(testprog.Path(t, library))
	qt.Assert(t, qt.IsNil(err))
	testprog.WriteProgram(t, filepath.Join(filepath.Dir(program), library), contents)
	return program
}

// mountProc mounts a proc file system of the own PID namespace.
func mountProc() error {
	return errors.Join(
		unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount("proc", "/proc", "proc", 0, ""))
}
