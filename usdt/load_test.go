// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package usdt_test

import (
	"os"
	"runtime"
	"testing"
	"time"
	"weak"

	"github.com/cilium/ebpf"
	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/testbpf"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/usdt"
)

// withCapabilities runs a function on a thread that has these capabilities
// alone.
func withCapabilities(t *testing.T, capabilities []int, run func()) {
	t.Helper()
	done := make(chan error)
	go func() {
		defer close(done)
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var data [2]unix.CapUserData
		for _, c := range capabilities {
			data[c/32].Effective |= 1 << (c % 32)
			data[c/32].Permitted |= 1 << (c % 32)
		}
		if err := unix.Capset(&header, &data[0]); err != nil {
			done <- err
			return
		}
		run()
	}()
	qt.Assert(t, qt.IsNil(<-done))
}

func TestLoadAndAssignTakesOptions(t *testing.T) {
	testprog.RequireBPF(t)
	testprog.LeakCheck(t)
	spec, err := testbpf.LoadArgs()
	qt.Assert(t, qt.IsNil(err))
	events, err := ebpf.NewMap(spec.Maps["events"])
	qt.Assert(t, qt.IsNil(err))
	defer events.Close()
	mgr, err := usdt.NewManager(spec, nil)
	qt.Assert(t, qt.IsNil(err))
	defer mgr.Close()
	var objs testbpf.ArgsObjects
	qt.Assert(t, qt.IsNil(mgr.LoadAndAssign(&objs, &ebpf.CollectionOptions{
		MapReplacements: map[string]*ebpf.Map{"events": events},
	})))
	defer objs.Close()
	want, err := events.Info()
	qt.Assert(t, qt.IsNil(err))
	got, err := objs.Events.Info()
	qt.Assert(t, qt.IsNil(err))
	wantID, _ := want.ID()
	gotID, _ := got.ID()
	qt.Check(t, qt.Equals(gotID, wantID))

	// The Manager's maps cannot be replaced.
	err = mgr.LoadAndAssign(&objs, &ebpf.CollectionOptions{
		MapReplacements: map[string]*ebpf.Map{"__bpf_usdt_specs": events},
	})
	qt.Check(t,
		qt.ErrorMatches(err, "map __bpf_usdt_specs is the Manager's, and cannot be replaced"))
	qt.Check(t, qt.IsNotNil(mgr.LoadAndAssign(struct{}{}, nil)))
}

// A process that loads and closes programs for months does not gather them, nor
// their maps.
func TestManagerForgetsProgramsThatNothingRefersTo(t *testing.T) {
	process := testprog.Start(t, "target-pie")
	c := newCollector(t, nil)
	target := usdt.Target{Path: testprog.Path(t, "target-pie"), PID: process.PID}
	descriptors := func() int {
		open, err := os.ReadDir("/proc/self/fd")
		qt.Assert(t, qt.IsNil(err))
		return len(open)
	}
	before := descriptors()
	var programs []weak.Pointer[ebpf.Program]
	for range 3 {
		var more testbpf.ArgsObjects
		qt.Assert(t, qt.IsNil(c.LoadAndAssign(&more, nil)))
		lnk, err := c.Manager.Attach(more.Collect, target, nil, elfnote.Exact(provider, "three"))
		qt.Assert(t, qt.IsNil(err))
		qt.Assert(t, qt.IsNil(lnk.Close()))
		qt.Assert(t, qt.IsNil(more.Close()))
		programs = append(programs, weak.Make(more.Collect))
	}
	runtime.GC()
	for _, program := range programs {
		qt.Check(t, qt.IsNil(program.Value()))
	}
	lnk := c.attach(t, c.Collect, target, "three", nil)
	qt.Check(t, qt.Equals(c.Programs(), 1))
	qt.Assert(t, qt.IsNil(lnk.Close()))
	for deadline := time.Now().Add(10 * time.Second); descriptors() > before; {
		qt.Assert(t, qt.IsTrue(time.Now().Before(deadline)), qt.Commentf("%d descriptors, %d before",
			descriptors(), before))
		runtime.GC() // a map is closed some time after it
		time.Sleep(time.Millisecond)
	}
}
