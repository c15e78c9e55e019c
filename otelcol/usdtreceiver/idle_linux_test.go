// SPDX-License-Identifier: BSD-2-Clause

package usdtreceiver_test

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/internal/testneeds"
)

// crowd are processes of containers, which wait until they are to pass their
// probe and to end.
type crowd struct {
	t     testing.TB
	boxes []*box
	all   []*exec.Cmd
	in    []io.WriteCloser
}

func (n *node) crowd(containers, processes int) *crowd {
	n.t.Helper()
	c := &crowd{t: n.t}
	for i := range containers {
		c.boxes = append(c.boxes, n.box(n.images[i%len(n.images)]))
	}
	n.t.Cleanup(func() { c.end(0) })
	for i := range processes {
		cmd := c.boxes[i%containers].command()
		in, err := cmd.StdinPipe()
		qt.Assert(n.t, qt.IsNil(err))
		qt.Assert(n.t, qt.IsNil(cmd.Start()))
		c.all, c.in = append(c.all, cmd), append(c.in, in)
	}
	return c
}

// end has each process pass its probe that many times and end.
func (c *crowd) end(hits int) {
	c.t.Helper()
	for i, in := range c.in {
		_, err := fmt.Fprintf(in, "fire three %d\n", hits)
		qt.Check(c.t, qt.IsNil(err))
		qt.Check(c.t, qt.IsNil(in.Close()))
		c.boxes[i%len(c.boxes)].hits += uint64(hits)
	}
	var waiting sync.WaitGroup
	for _, cmd := range c.all {
		waiting.Go(func() { qt.Check(c.t, qt.IsNil(cmd.Wait())) })
	}
	waiting.Wait()
	c.all, c.in = nil, nil
}

// processorTime is what this process has taken so far, whatever others do.
func processorTime(t testing.TB) time.Duration {
	var used unix.Rusage
	qt.Assert(t, qt.IsNil(unix.Getrusage(unix.RUSAGE_SELF, &used)))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// everything is a configuration with each kind of data.
func everything() map[string]any {
	const event = "gousdt_test:three"
	return map[string]any{
		"resource": "container", "temporality": "delta",
		"metrics":  []any{map[string]any{"name": "hits", "count": event}},
		"spans":    []any{map[string]any{"pair": "gousdt_test:none..gousdt_test:three"}},
		"logs":     []any{map[string]any{"event": "gousdt_test:none", "rate_limit": 10}},
		"profiles": []any{map[string]any{"event": "gousdt_test:none"}},
	}
}

// alone runs a test again in a PID namespace of its own, and reports whether
// this is that run: other processes of the machine come and go, and each is
// scanned.
func alone(t *testing.T) bool {
	t.Helper()
	testneeds.Root(t)
	if os.Getpid() == 1 {
		qt.Assert(t, qt.IsNil(unix.Mount("proc", "/proc", "proc", 0, "")))
		return true
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID,
		Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	qt.Check(t, qt.IsNil(err))
	return false
}

// With thousands of processes that do nothing, the receiver takes less than a
// hundredth of a processor; and it counts what they do in the end.
func TestManyProcesses(t *testing.T) {
	if !alone(t) {
		return
	}
	processes, idle := sizeOf(100, 2000), time.Duration(sizeOf(100, 60_000))*time.Millisecond
	n := newNode(t, 10)
	s, end := started(t, everything())
	crowd := n.crowd(sizeOf(20, 200), processes)
	for _, image := range n.images {
		s.awaitAttached(image.program, "metrics")
	}
	time.Sleep(min(idle, time.Second)) // all of them have been seen once, which is no idle time
	before := processorTime(t)
	time.Sleep(idle)
	share := 100 * (processorTime(t) - before).Seconds() / idle.Seconds()
	t.Logf("%d processes idle for %v: %.2f %% of a processor", processes, idle, share)
	crowd.end(5)
	end()
	got, _ := s.hitsOfContainers("hits")
	for _, b := range crowd.boxes {
		qt.Check(t, qt.Equals(got[b.id], b.hits))
	}
	if idle >= time.Minute { // a shorter one may be a scan of all and nothing else
		qt.Check(t, qt.IsTrue(share < 1), qt.Commentf("%.2f %%", share))
	}
}

// sources is a configuration with n sources, which have nothing to do.
func sources(n int) map[string]any {
	const event = "gousdt_test:none"
	settings := map[string]any{
		"scan_interval": "50ms",
		"metrics":       []any{map[string]any{"name": "hits", "count": event}},
	}
	var logs []any
	for range n - 1 {
		logs = append(logs, map[string]any{"event": event, "rate_limit": 10})
	}
	if len(logs) > 0 {
		settings["logs"] = logs
	}
	return settings
}

// With ten sources, processes are scanned once for all of them: that takes
// about as much as with one.
func TestSourcesShareScans(t *testing.T) {
	if !alone(t) {
		return
	}
	processes, idle := sizeOf(100, 600), time.Duration(sizeOf(100, 20_000))*time.Millisecond
	n := newNode(t, 1)
	n.crowd(sizeOf(5, 50), processes)
	took := make(map[int]time.Duration)
	for _, count := range []int{1, 10} {
		runtime.GC()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		s, end := started(t, sources(count))
		s.awaitAttached(n.images[0].program, "metrics")
		time.Sleep(min(idle, 2*time.Second)) // all have been seen
		began := processorTime(t)
		time.Sleep(idle)
		took[count] = processorTime(t) - began
		runtime.GC()
		runtime.ReadMemStats(&after)
		t.Logf("%d sources, %d processes: %.1f %% of a processor when scanning each 50 ms, %d kB of memory",
			count, processes, 100*took[count].Seconds()/idle.Seconds(),
			(int64(after.HeapInuse)-int64(before.HeapInuse))/1024)
		end()
	}
	if idle >= 10*time.Second { // a shorter one says too little
		qt.Check(t, qt.IsTrue(took[10] < 2*took[1]),
			qt.Commentf("%v of one, %v of ten", took[1], took[10]))
	}
}
