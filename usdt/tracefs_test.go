// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package usdt_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/attaching"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/usdt"
)

// Kernels without perf events for uprobes make them through tracefs. This
// kernel has them, so a private mount namespace hides that.
func TestAttachThroughTracefs(t *testing.T) {
	if !testprog.InPrivateMounts(t) {
		return
	}
	qt.Assert(t, qt.IsNil(unix.Mount("none", "/sys/bus/event_source/devices", "tmpfs", 0, "")))
	_, err := os.Stat("/sys/bus/event_source/devices/uprobe/type")
	qt.Assert(t, qt.ErrorIs(err, os.ErrNotExist))

	process := testprog.Start(t, "target-pie")
	target := usdt.Target{Path: testprog.Path(t, "target-pie"), PID: process.PID}
	for _, mode := range singleModes {
		if _, err := mode.Resolve(); errors.Is(err, errors.ErrUnsupported) {
			continue
		}
		c := newCollector(t, &usdt.ManagerOptions{Mode: mode})
		lnk := c.attach(t, c.Collect, target, "three", &usdt.AttachOptions{Cookie: 5})
		process.Fire("three", 1)
		qt.Assert(t, qt.Equals(c.next(t, 1)[0].Cookie, 5))
		qt.Assert(t, qt.IsNil(lnk.Close()))
		process.Fire("three", 1)
		c.silent(t)

		// Nobody could count the semaphore.
		_, err = c.Attach(c.Collect, target, nil, elfnote.Exact(provider, "guarded"))
		qt.Assert(t, qt.ErrorIs(err, errors.ErrUnsupported))
		qt.Assert(t,
			qt.ErrorMatches(err,
				`.*probe gousdt_test:guarded at 0x[0-9a-f]+: the kernel has no counting of semaphores .*`))
		qt.Assert(t, qt.Equals(process.Semaphore("guarded"), 0))
	}
}

// singleModes attach by perf events.
var singleModes = []usdt.Mode{usdt.ModeSingle, usdt.ModeSingleIPMap}

func TestSitesSharePerfEvents(t *testing.T) {
	if !testprog.InPrivateMounts(t) {
		return
	}
	forEach(t, singleModes, func(t *testing.T, mode usdt.Mode) {
		// Characters that have a meaning to tracefs.
		path := filepath.Join(t.TempDir(), "a b:0x1(2)%return")
		copyFile(t, path, testprog.Path(t, "target-static"))
		process, other := testprog.StartCommand(t, exec.Command(path)), testprog.StartCommand(t,
			exec.Command(path))

		t.Run("one probe of many sites", func(t *testing.T) {
			c := newCollector(t, &usdt.ManagerOptions{Mode: mode, MaxSpecs: 1024})
			lnk := c.attach(t, c.Collect3, usdt.Target{Path: path}, "many", nil)
			sites := len(lnk.Selection().Sites())
			qt.Assert(t, qt.Equals(sites, 400))
			events := testprog.SharedEvents(t)
			qt.Check(t, qt.Equals(len(events), 1))
			for _, places := range events {
				qt.Check(t, qt.Equals(len(places), sites))
			}
			process.Fire("many", 1)
			qt.Check(t, qt.Equals(int(c.next(t, sites)[sites-1].Pid), process.PID))
			other.Fire("many", 1)
			qt.Check(t, qt.Equals(int(c.next(t, sites)[sites-1].Pid), other.PID))
			c.silent(t)
			qt.Check(t, qt.IsNil(lnk.Close()))
			process.Fire("many", 1)
			c.silent(t)
			qt.Check(t, qt.HasLen(testprog.SharedEvents(t), 0))
		})

		t.Run("of one process, with semaphores", func(t *testing.T) {
			c := newCollector(t, &usdt.ManagerOptions{Mode: mode})
			sel, err := usdt.Select(usdt.Target{Path: path, PID: process.PID},
				elfnote.Exact(provider, "split"))
			qt.Assert(t, qt.IsNil(err))
			defer sel.Close()
			lnk, err := sel.AttachRaw(c.Collect3, nil)
			qt.Assert(t, qt.IsNil(err))
			qt.Check(t, qt.Equals(len(testprog.SharedEvents(t)), 1))
			qt.Check(t, qt.DeepEquals(process.Semaphores("split"),
				semaphoresWhenAttached(t, process, lnk)))
			qt.Check(t, qt.DeepEquals(other.Semaphores("split"), []int{0, 0}))
			process.Fire("split", 1)
			other.Fire("split", 1)
			for _, event := range c.next(t, len(lnk.Selection().Sites())) {
				qt.Check(t, qt.Equals(int(event.Pid), process.PID))
			}
			child := process.Fork("split", 1)
			c.silent(t)
			qt.Check(t, qt.Not(qt.Equals(child, 0)))
			qt.Check(t, qt.IsNil(lnk.Close()))
			qt.Check(t, qt.DeepEquals(process.Semaphores("split"), []int{0, 0}))
		})

		t.Run("sites with different cookies", func(t *testing.T) {
			c := newCollector(t, &usdt.ManagerOptions{Mode: mode, MaxSpecs: 1024})
			n := uint64(0)
			lnk := c.attach(t, c.Collect3, usdt.Target{Path: path}, "many", &usdt.AttachOptions{
				SiteCookie: func(usdt.Site) uint64 { n++; return n % 2 },
			})
			events := map[usdt.Mode]int{usdt.ModeSingle: 2, usdt.ModeSingleIPMap: 1}[mode]
			qt.Check(t, qt.Equals(len(testprog.SharedEvents(t)), events))
			process.Fire("many", 1)
			ones := 0
			for _, event := range c.next(t, len(lnk.Selection().Sites())) {
				ones += int(event.Cookie)
			}
			qt.Check(t, qt.Equals(ones, len(lnk.Selection().Sites())/2))
			c.silent(t)
		})
	})
	qt.Check(t, qt.HasLen(testprog.SharedEvents(t), 0))
}

func TestSitesHavePerfEventsOfTheirOwnWithoutTracefs(t *testing.T) {
	if !testprog.InPrivateMounts(t) {
		return
	}
	for _, dir := range []string{testprog.Tracefs, "/sys/kernel/debug"} {
		qt.Assert(t, qt.IsNil(unix.Mount("none", dir, "tmpfs", 0, "")))
	}
	forEach(t, singleModes, func(t *testing.T, mode usdt.Mode) {
		c := newCollector(t, &usdt.ManagerOptions{Mode: mode})
		process := testprog.Start(t, "target-static")
		lnk := c.attach(t, c.Collect3, usdt.Target{Path: testprog.Path(t, "target-static")},
			"split", nil)
		process.Fire("split", 1)
		c.next(t, len(lnk.Selection().Sites()))
		c.silent(t)
	})
}

// A program that is refused for a group of sites is then tried for each of
// them.
func TestProgramThatIsNotForPerfEvents(t *testing.T) {
	testprog.RequireBPF(t)
	needsMode(t, usdt.ModeMulti)
	if !testprog.InPrivateMounts(t) {
		return
	}
	c := newCollector(t, &usdt.ManagerOptions{Mode: usdt.ModeSingle})
	other, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.Kprobe,
		AttachType:   ebpf.AttachTraceUprobeMulti,
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}})
	qt.Assert(t, qt.IsNil(err))
	defer other.Close()
	_, err = c.Attach(other, usdt.Target{Path: testprog.Path(t, "target-static")}, nil,
		elfnote.Exact(provider, "split"))
	qt.Check(t, qt.ErrorMatches(err, `.*was not loaded for a perf event.*`))
	qt.Check(t, qt.HasLen(testprog.SharedEvents(t), 0))
}

// A tracer that is killed leaves its events in tracefs. The next program
// removes them, and leaves those of tracers that run.
func TestEventsOfKilledTracersAreRemoved(t *testing.T) {
	if !testprog.InPrivateMounts(t) {
		return
	}
	forEach(t, singleModes, func(t *testing.T, mode usdt.Mode) {
		running, _ := startTracer(t, mode, "many")
		killed, kill := startTracer(t, mode, "many")
		_, err := attaching.RemoveEnded()
		qt.Assert(t, qt.IsNil(err))
		qt.Assert(t, qt.HasLen(testprog.SharedEvents(t), 2), qt.Commentf("both run"))

		kill()
		stale := testprog.SharedEvents(t)
		qt.Assert(t, qt.HasLen(stale, 2), qt.Commentf("the kernel does not remove them"))
		removed, err := attaching.RemoveEnded()
		qt.Assert(t, qt.IsNil(err))
		qt.Assert(t, qt.HasLen(removed, 1))
		qt.Check(t, qt.IsTrue(strings.HasPrefix(removed[0], fmt.Sprintf("p%d_", killed))))
		for name := range testprog.SharedEvents(t) {
			qt.Check(t, qt.IsTrue(strings.HasPrefix(name, fmt.Sprintf("p%d_", running))))
		}
	})
	_, err := attaching.RemoveEnded()
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.HasLen(testprog.SharedEvents(t), 0))
}

// startTracer starts a process that attaches to a probe and waits to be killed.
func startTracer(t *testing.T, mode usdt.Mode, probe string) (pid int, kill func()) {
	t.Helper()
	self, err := os.Executable()
	qt.Assert(t, qt.IsNil(err))
	tracer := exec.Command(self)
	tracer.Env = append(os.Environ(), fmt.Sprintf("%s=%d %s %d %s", tracerVariable, mode,
		testprog.Path(t, "target-static"), 0, probe))
	tracer.Stderr = os.Stderr
	stdout, err := tracer.StdoutPipe()
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(tracer.Start()))
	kill = func() {
		_ = tracer.Process.Kill() // it may have been killed
		_ = tracer.Wait()
	}
	t.Cleanup(kill)
	line, err := bufio.NewReader(stdout).ReadString('\n')
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.Equals(line, "attached\n"))
	return tracer.Process.Pid, kill
}

// A hundred sites that share a perf event are detached in a fraction of the
// time that they take one by one.
func TestDetachingManySitesIsFast(t *testing.T) {
	if !testprog.InPrivateMounts(t) {
		return
	}
	forEach(t, singleModes, func(t *testing.T, mode usdt.Mode) {
		c := newCollector(t, &usdt.ManagerOptions{Mode: mode, MaxSpecs: 1024})
		detaching := func(probe string, cookie func(usdt.Site) uint64) time.Duration {
			lnk, err := c.Attach(c.Collect3, usdt.Target{Path: testprog.Path(t, "target-static")},
				&usdt.AttachOptions{SiteCookie: cookie}, elfnote.Exact(provider, probe))
			qt.Assert(t, qt.IsNil(err))
			start := time.Now()
			qt.Assert(t, qt.IsNil(lnk.Close()))
			return time.Since(start)
		}
		// Other work of the machine may interfere, but not each time.
		for try := 1; ; try++ {
			one := detaching("three", nil)
			many := detaching("many", nil)
			t.Logf("one site: %v; 400 sites: %v", one, many)
			if many < 20*one+time.Second {
				break
			}
			qt.Assert(t, qt.IsTrue(try < 5))
		}
	})
}
