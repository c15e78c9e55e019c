// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package usdt_test

import (
	"os"
	"strconv"
	"testing"

	"github.com/cilium/ebpf/link"
	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/testbpf"
	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/proc"
	"github.com/gousdt/gousdt/usdt"
	"github.com/gousdt/gousdt/usdt/libbpf"
)

// A descriptor that has been closed may be that of another file by now.
func TestSelectionAttachesNothingAfterClose(t *testing.T) {
	c := newCollector(t, nil)
	process := testprog.Start(t, "target-static")
	sel, err := usdt.Select(usdt.Target{Path: testprog.Path(t, "target-static")},
		elfnote.Exact(provider, "three"))
	qt.Assert(t, qt.IsNil(err))
	other := sel.ForPID(process.PID)
	qt.Assert(t, qt.IsNil(other.Close()))
	lnk, err := c.Attach(c.Collect, usdt.Target{Selection: other}, nil)
	qt.Assert(t, qt.IsNil(err)) // closing a derived selection closes nothing
	qt.Assert(t, qt.IsNil(lnk.Close()))

	qt.Assert(t, qt.IsNil(sel.Close()))
	for _, closed := range []*usdt.Selection{sel, other, sel.Subset([]int{0})} {
		_, err = c.Attach(c.Collect, usdt.Target{Selection: closed}, nil)
		qt.Assert(t, qt.ErrorIs(err, os.ErrClosed))
	}
}

// A wrong PID attaches nothing: neither to more than was meant, nor without
// effect.
func TestSelectionRefusesPIDsThatAreNone(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		c := newCollector(t, &usdt.ManagerOptions{Mode: mode})
		process := testprog.Start(t, "target-static")
		sel, err := usdt.Select(usdt.Target{Path: testprog.Path(t, "target-static")},
			elfnote.Exact(provider, "three"))
		qt.Assert(t, qt.IsNil(err))
		defer sel.Close()
		pids := []int{-1}
		if beyond := 32; strconv.IntSize > beyond { // where it would be lost
			pids = append(pids, process.PID+1<<beyond, 1<<beyond)
		}
		for _, pid := range pids {
			_, err := c.Attach(c.Collect, usdt.Target{Selection: sel.ForPID(pid)}, nil)
			qt.Check(t, qt.ErrorMatches(err, `-?\d+ is no PID: .*`))
		}
		_, err = c.Attach(c.Collect, usdt.Target{Selection: sel.Subset(nil)}, nil)
		qt.Check(t,
			qt.ErrorMatches(err, `.*target-static: there is no site to attach to in the selection`))
		_, err = sel.AttachRaw(nil, nil)
		qt.Check(t, qt.ErrorMatches(err, "there is no program to attach: .*"))
	})
}

func TestAttachToAProcessWithoutMainThread(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		c := newCollector(t, &usdt.ManagerOptions{Mode: mode})
		process := testprog.Start(t, "target-static")
		target := usdt.Target{Path: testprog.Path(t, "target-static"), PID: process.PID}
		if mode == usdt.ModeMulti { // others are silent then
			lnk := c.attach(t, c.Collect, target, "three", nil)
			process.Do("leave")
			process.Fire("three", 1)
			c.next(t, 1)
			qt.Assert(t, qt.IsNil(lnk.Close()))
		} else {
			process.Do("leave")
		}

		_, err := c.Attach(c.Collect, target, nil, elfnote.Exact(provider, "three"))
		qt.Check(t, qt.ErrorMatches(err, `process \d+: its main thread has exited, .*`))
		qt.Check(t, qt.Not(qt.ErrorIs(err, proc.ErrGone)))
		target.PID = 0
		sel, err := usdt.Select(target, elfnote.Exact(provider, "three"))
		qt.Assert(t, qt.IsNil(err))
		defer sel.Close()
		_, err = c.Attach(c.Collect, usdt.Target{Selection: sel.ForPID(process.PID)}, nil)
		qt.Check(t, qt.ErrorMatches(err, `process \d+: its main thread has exited, .*`))

		lnk, err := c.Attach(c.Collect, usdt.Target{Selection: sel}, nil)
		qt.Assert(t, qt.IsNil(err))
		process.Fire("three", 1)
		qt.Check(t, qt.Equals(int(c.next(t, 1)[0].Pid), process.PID))
		qt.Assert(t, qt.IsNil(lnk.Close()))
	})
}

func TestSelectionOutlivesTheCallersFile(t *testing.T) {
	c := newCollector(t, nil)
	process := testprog.Start(t, "target-static")
	file, err := os.Open(testprog.Path(t, "target-static"))
	qt.Assert(t, qt.IsNil(err))
	elf, err := elfnote.NewFile(file)
	qt.Assert(t, qt.IsNil(err))
	sel, err := usdt.Select(usdt.Target{ELF: elf, PID: process.PID},
		elfnote.Exact(provider, "three"))
	qt.Assert(t, qt.IsNil(err))
	defer sel.Close()
	qt.Assert(t, qt.IsNil(file.Close()))
	another, err := os.Open("/proc/self/exe") // gets the number of the one that was closed
	qt.Assert(t, qt.IsNil(err))
	defer another.Close()

	lnk, err := c.Attach(c.Collect, usdt.Target{Selection: sel}, nil)
	qt.Assert(t, qt.IsNil(err))
	process.Fire("three", 1)
	c.next(t, 1)
	qt.Assert(t, qt.IsNil(lnk.Close()))
}

func TestAttachWithoutTheManagerFindsNoSpec(t *testing.T) {
	testneeds.Kernel(t, "5.15", "BPF cookies")
	c := newCollector(t, &usdt.ManagerOptions{Mode: usdt.ModeSingle})
	process := testprog.Start(t, "target-static")
	path := testprog.Path(t, "target-static")
	target := usdt.Target{Path: path, PID: process.PID}
	c.attach(t, c.Collect, target, "three", &usdt.AttachOptions{Cookie: 77})

	sel, err := usdt.Select(target, elfnote.Exact(provider, "guarded"))
	qt.Assert(t, qt.IsNil(err))
	defer sel.Close()
	site := sitesOf(sel)[0]
	executable, err := link.OpenExecutable(path)
	qt.Assert(t, qt.IsNil(err))
	plain, err := executable.Uprobe("x", c.Collect, &link.UprobeOptions{
		Address: site.Offset, RefCtrOffset: site.SemaphoreOffset, PID: process.PID,
	})
	qt.Assert(t, qt.IsNil(err))
	defer plain.Close()
	process.Fire("guarded", 1)
	event := c.next(t, 1)[0]
	qt.Assert(t, qt.Equals(unix.Errno(-event.ArgCnt), unix.ESRCH))
	qt.Assert(t, qt.Equals(unix.Errno(-event.Err[0]), unix.ESRCH))
	qt.Assert(t, qt.Equals(event.Cookie, 0))
}

func TestAttachSectionsThatNameNothing(t *testing.T) {
	testprog.RequireBPF(t)
	spec, err := testbpf.LoadCounts()
	qt.Assert(t, qt.IsNil(err))
	mgr, err := usdt.NewManager(spec, nil)
	qt.Assert(t, qt.IsNil(err))
	defer mgr.Close()
	_, err = libbpf.AttachSections(mgr, spec, &testbpf.CountsObjects{}, usdt.Target{}, nil)
	qt.Assert(t, qt.ErrorMatches(err, `no loaded program says in its section where to attach: .*`))
}

func TestSelectWithoutPatternsFindsAllProbes(t *testing.T) {
	sel, err := usdt.Select(usdt.Target{Path: testprog.Path(t, "throw")})
	if err == nil {
		sel.Close()
	}
	var notFound *usdt.NotFoundError
	qt.Assert(t, qt.ErrorAs(err, &notFound)) // its probes are in the library
	qt.Assert(t, qt.ErrorMatches(err, ".*/throw: the file has no USDT probes"))

	sel, err = usdt.Select(usdt.Target{Path: testprog.Path(t, "demo")})
	qt.Assert(t, qt.IsNil(err))
	defer sel.Close()
	qt.Assert(t, qt.IsTrue(sel.Len() > 0))
}
