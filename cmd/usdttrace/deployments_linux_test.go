// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/usdt"
)

// reportedHits takes the events of usdttrace --json.
type reportedHits struct {
	testprog.Hits
	t    *testing.T
	part []byte // of a line
}

func (h *reportedHits) Write(b []byte) (int, error) {
	h.part = append(h.part, b...)
	for {
		line, rest, whole := bytes.Cut(h.part, []byte{'\n'})
		if !whole {
			return len(b), nil
		}
		h.part = rest
		var event object
		err := json.Unmarshal(line, &event)
		if err == nil && event.Type == "event" && len(event.Args) == 2 {
			var n, run int64
			n, err = event.Args[0].Value.Int64()
			if err == nil {
				run, err = event.Args[1].Value.Int64()
			}
			h.Add(int(run), int(n))
		}
		if err != nil {
			h.t.Errorf("%v: %s", err, line)
		}
	}
}

// deployments are long in make test-soak.
func deployments(t *testing.T) (d *testprog.Deployments, count int) {
	d = testprog.NewDeployments(t, testprog.Soak(2, 3))
	d.Pause = testprog.Soak(50*time.Millisecond, d.Pause)
	return d, testprog.Soak(8, 1000)
}

// No program dies because it is traced while it is deployed, none is silent,
// and from the first hit on all are counted.
func TestDeployments(t *testing.T) {
	testprog.Parallel(t)
	if !testprog.InPrivateMounts(t) {
		return
	}
	d, count := deployments(t)
	d.Run(t, "no tracer", count, 0)
	for _, mode := range []string{"multi", "single"} {
		trace := func(name string, args ...string) {
			t.Run(name+" "+mode, func(t *testing.T) {
				d.Counted = traceDeployed(t, append(args, "--mode", mode)...).Counted
				d.Run(t, name+" "+mode, count, 0)
			})
		}
		trace("FILE", d.Paths()...)
		trace("-a", "-a")
		trace("-p -f", "-f", "-p", decimal(os.Getpid()))
		t.Run("COMMAND "+mode, func(t *testing.T) {
			hits := filepath.Join(t.TempDir(), "hits")
			self, err := os.Executable()
			qt.Assert(t, qt.IsNil(err))
			r := startPrepared(t, func(cmd *exec.Cmd) {
				cmd.Env = append(cmd.Env, deployerVariable+"="+hits)
			}, "--json", "-o", hits, "--mode", mode,
				testprog.DeployedProbe, "--", self, "-test.run=^TestDeployer$", "-test.v")
			qt.Check(t, qt.Equals(r.wait().status, 0))
			t.Logf("%s%s", &r.stdout, &r.stderr)
		})
	}
}

// Programs are replaced in every way, also while they run, and all their hits
// are counted from the first one on.
func TestFilesThatChange(t *testing.T) {
	testprog.Parallel(t)
	if !testprog.InPrivateMounts(t) {
		return
	}
	d := testprog.NewDeployments(t, testprog.Soak(2, 5))
	d.Ways = []testprog.Deployment{testprog.ByRename, testprog.InPlace, testprog.ByLinker}
	d.Pause = testprog.Soak(50*time.Millisecond, time.Second) // each second, one of each
	long, err := time.ParseDuration(os.Getenv("GOUSDT_SOAK"))
	if err != nil {
		long = testprog.Soak(0, 30*time.Minute)
	}
	for name, args := range map[string][]string{"-a": {"-a"}, "FILE": d.Paths()} {
		t.Run(name, func(t *testing.T) {
			hits := traceDeployed(t, args...)
			d.Counted = hits.Counted
			d.Run(t, name, testprog.Soak(24, 0), long)
		})
	}
}

// A file of overlayfs that is copied up is another one to the kernel, though
// not to stat. Where only the metadata is copied, it is the same one.
func TestFileIsCopiedUp(t *testing.T) {
	if !testprog.InPrivateMounts(t) {
		return
	}
	below, ok := testprog.NewDeployments(t, 0).Dirs["btrfs"] // which keeps when a file was made
	if !ok {
		return // see the log
	}
	for name, test := range map[string]struct {
		metacopy string
		all      bool
		first    string
	}{
		"FILE":                     {"off", false, "merged"},
		"FILE without its data":    {"on", false, "merged"},
		"-a":                       {"off", true, "merged"},
		"-a and that of its layer": {"on", true, "lower"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := mountOverlay(t, filepath.Join(below, name), test.metacopy)
			path := filepath.Join(dir, "merged/target")
			first := startProgram(t, filepath.Join(dir, test.first, "target"))
			what := path
			if test.all {
				what = "-a"
			}
			r := watching(t, "--json", what, "gousdt_test:three")
			qt.Assert(t, qt.IsNil(os.Chmod(path, 0o700)))
			if !test.all && test.metacopy == "off" {
				r.await(&r.stderr, "is another file now: also watching")
			}
			second := startProgram(t, path)
			before := make(map[int]int) // under -a a program is attached a moment later
			for _, p := range []*traced{first, second} {
				testneeds.Await(t, 10*time.Second, "a hit is counted", func() bool {
					p.Fire("three", 1)
					before[p.PID]++
					return strings.Contains(r.stdout.String(), fmt.Sprint(`"pid":`, p.PID))
				})
			}
			first.Fire("three", 3)
			second.Fire("three", 4)
			hits := make(map[int]int)
			result := r.interrupt()
			qt.Check(t, qt.Not(qt.StringContains(result.stderr, "runs another file")))
			for _, event := range result.objects("event") {
				hits[event.PID]++
			}
			for p, fired := range map[*traced]int{first: 3, second: 4} {
				missed := before[p.PID] + fired - hits[p.PID]
				qt.Check(t, qt.IsTrue(missed == 0 || test.all && missed < before[p.PID]),
					qt.Commentf("%v", hits))
			}
		})
	}
}

// What one file of an overlay has, its layer has, too. It is attached once. A
// write to the one does not end what is seen of the other.
func TestFileAndThatOfItsLayer(t *testing.T) {
	if !testprog.InPrivateMounts(t) {
		return
	}
	dir := mountOverlay(t, t.TempDir(), "off")
	r := watching(t, "--json", "-a", "gousdt_test:three")
	seen := func(p *traced) bool {
		p.Fire("three", 1)
		return strings.Contains(r.stdout.String(), fmt.Sprint(`"pid":`, p.PID))
	}
	above := startProgram(t, filepath.Join(dir, "merged/target"))
	testneeds.Await(t, 10*time.Second, "a hit above is seen", func() bool { return seen(above) })
	below := startProgram(t, filepath.Join(dir, "lower/target"))
	testneeds.Await(t, 10*time.Second, "a hit of below", func() bool { return seen(below) })
	above.Stop()
	file, err := os.OpenFile(filepath.Join(dir, "merged/target"), os.O_RDWR, 0)
	qt.Assert(t, qt.IsNil(err))
	_, err = file.WriteString("#!/bin/no")
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(file.Close()))
	count := func() int { return strings.Count(r.stdout.String(), fmt.Sprint(`"pid":`, below.PID)) }
	before := count()
	testneeds.Await(t, 10*time.Second, "hits below are seen", func() bool {
		below.Fire("three", 1)
		return count() > before+20
	})
	r.interrupt()
}

// mountOverlay mounts an overlay at dir/merged, of dir/lower with a target.
func mountOverlay(t *testing.T, dir, metacopy string) string {
	for _, sub := range []string{"lower", "upper", "work", "merged"} {
		qt.Assert(t, qt.IsNil(os.MkdirAll(filepath.Join(dir, sub), 0o755)))
	}
	contents, err := os.ReadFile(testprog.Path(t, "target-pie"))
	qt.Assert(t, qt.IsNil(err))
	testprog.WriteProgram(t, filepath.Join(dir, "lower/target"), contents)
	merged := filepath.Join(dir, "merged")
	qt.Assert(t, qt.IsNil(unix.Mount("overlay", merged, "overlay", 0, fmt.Sprintf(
		"lowerdir=%s/lower,upperdir=%[1]s/upper,workdir=%[1]s/work,metacopy=%s", dir, metacopy))))
	t.Cleanup(func() { qt.Check(t, qt.IsNil(unix.Unmount(merged, unix.MNT_DETACH))) })
	return dir
}

// traceDeployed runs usdttrace until the end of the test.
func traceDeployed(t *testing.T, args ...string) *reportedHits {
	hits := &reportedHits{t: t}
	r := startPrepared(t, func(cmd *exec.Cmd) { cmd.Stdout = hits },
		append([]string{"--json", testprog.DeployedProbe}, args...)...)
	r.await(&r.stderr, "(Ctrl-C ends)")
	t.Cleanup(func() { qt.Check(t, qt.Equals(r.interrupt().status, exitWatched)) })
	return hits
}

// deployerVariable makes TestDeployer the command of usdttrace, and names the
// file that this prints into.
const deployerVariable = "USDTTRACE_TEST_DEPLOYER"

func TestDeployer(t *testing.T) {
	testprog.Parallel(t)
	path := os.Getenv(deployerVariable)
	if path == "" {
		return // see TestDeployments
	}
	file, err := os.Open(path)
	qt.Assert(t, qt.IsNil(err))
	defer file.Close()
	d, count := deployments(t)
	hits := &reportedHits{t: t}
	d.Counted = hits.Counted
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		for {
			select {
			case <-ended:
				return
			case <-time.After(time.Millisecond): // nothing tells what is printed
				if _, err := io.Copy(hits, file); err != nil && !errors.Is(err, os.ErrClosed) {
					t.Error(err)
					return
				}
			}
		}
	}()
	d.Run(t, "COMMAND", count, 0)
}

// A pipe that has taken the place of a file that was written to is not waited
// for: nothing would end the run.
func TestPipeInPlaceOfAFileIsNotOpened(t *testing.T) {
	testprog.Parallel(t)
	path := copyOf(t, "target-pie")
	sel, err := usdt.Select(usdt.Target{Path: path})
	qt.Assert(t, qt.IsNil(err))
	defer sel.Close()
	qt.Assert(t, qt.IsNil(os.Remove(path)))
	qt.Assert(t, qt.IsNil(unix.Mkfifo(path, 0o600)))
	of := newAttachedFile(nil, sel)
	tr := &tracer{prepared: prepared{options: &options{}}}
	_, err = tr.attachWritten(&namedFile{path: path, now: of}, of)
	qt.Assert(t, qt.ErrorIs(err, errReplaced))
}
