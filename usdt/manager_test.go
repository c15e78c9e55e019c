// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package usdt_test

import (
	"os"
	"runtime"
	"slices"
	"testing"
	"time"
	"weak"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/testbpf"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/usdt"
)

// withCapabilities runs a function on a thread that has these capabilities
// alone. So have the processes that it starts.
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
		for c := range unix.CAP_LAST_CAP + 1 {
			if !slices.Contains(capabilities, c) {
				// EINVAL is of one that the kernel does not know.
				_ = unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0)
			}
		}
		if err := unix.Capset(&header, &data[0]); err != nil {
			done <- err
			return
		}
		run()
	}()
	qt.Assert(t, qt.IsNil(<-done))
}

func TestCollectionOptionsTakeMoreReplacements(t *testing.T) {
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
	options := mgr.CollectionOptions()
	options.MapReplacements["events"] = events
	qt.Assert(t, qt.IsNil(spec.LoadAndAssign(&objs, options)))
	defer objs.Close()
	want, err := events.Info()
	qt.Assert(t, qt.IsNil(err))
	got, err := objs.Events.Info()
	qt.Assert(t, qt.IsNil(err))
	wantID, _ := want.ID()
	gotID, _ := got.ID()
	qt.Check(t, qt.Equals(gotID, wantID))
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
		qt.Assert(t, qt.IsNil(c.spec.LoadAndAssign(&more, c.CollectionOptions())))
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

func TestAttachWithAFullSpecMap(t *testing.T) {
	c := newCollector(t, nil) // 256 specs, the default
	process := testprog.Start(t, "target-pie")
	target := usdt.Target{Path: testprog.Path(t, "target-pie"), PID: process.PID}
	c.attach(t, c.Collect, target, "three", nil)

	_, err := c.Attach(c.Collect, target, nil, elfnote.Exact(provider, "specs"))
	var full *usdt.LimitError
	qt.Assert(t, qt.ErrorAs(err, &full))
	qt.Assert(t, qt.Equals(*full, usdt.LimitError{Limit: "specs", Option: "ManagerOptions.MaxSpecs",
		Capacity: 256, InUse: 1, Needed: 300}))
	qt.Assert(t,
		qt.ErrorMatches(err, `there is room for 256 specs, 1 are in use, and 300 more are needed: `+
			`set ManagerOptions.MaxSpecs to 301 or more`))
	used, capacity := c.SpecsInUse()
	qt.Assert(t, qt.Equals(used, 1))
	qt.Assert(t, qt.Equals(capacity, 256))
	process.Fire("specs", 1)
	c.silent(t)

	// The 400 sites of another probe share one.
	if c.Mode() == usdt.ModeMulti {
		c.attach(t, c.Collect, target, "many", nil)
		used, _ = c.SpecsInUse()
		qt.Assert(t, qt.Equals(used, 2))
	}

	larger := newCollector(t, &usdt.ManagerOptions{MaxSpecs: 300})
	if larger.Mode() == usdt.ModeMulti {
		larger.attach(t, larger.Collect, target, "specs", nil)
		used, capacity = larger.SpecsInUse()
		qt.Assert(t, qt.Equals(used, 300))
		qt.Assert(t, qt.Equals(capacity, 300))
		process.Fire("specs", 1)
		for i, event := range larger.next(t, 300) {
			qt.Assert(t, qt.Equals(event.Val[0], int64(i)))
		}
	}
}

func TestAttachSharesAndRecyclesSpecs(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		c := newCollector(t, &usdt.ManagerOptions{Mode: mode, MaxSpecs: 2})
		process := testprog.Start(t, "target-pie")
		target := usdt.Target{Path: testprog.Path(t, "target-pie"), PID: process.PID}
		inUse := func() int { used, _ := c.SpecsInUse(); return used }

		one := c.attach(t, c.Collect, target, "three", nil)
		same := c.attach(t, c.Collect, target, "three", nil)
		qt.Assert(t, qt.Equals(inUse(), 1))
		other := c.attach(t, c.Collect, target, "guarded", &usdt.AttachOptions{Cookie: 1})
		qt.Assert(t, qt.Equals(inUse(), 2))
		_, err := c.Attach(c.Collect, target, nil, elfnote.Exact(provider, "sizes"))
		qt.Assert(t, qt.ErrorAs(err, new(*usdt.LimitError)))

		qt.Assert(t, qt.IsNil(one.Close()))
		qt.Assert(t, qt.Equals(inUse(), 2))
		qt.Assert(t, qt.IsNil(same.Close()))
		qt.Assert(t, qt.Equals(inUse(), 1))
		// An attachment that fails after it has taken its specs gives them
		// back.
		_, err = c.Attach(wrongProgram(t), target, nil, elfnote.Exact(provider, "sizes"))
		qt.Assert(t, qt.IsNotNil(err))
		qt.Assert(t, qt.Equals(inUse(), 1))

		c.attach(t, c.Collect, target, "sizes", nil)
		process.Fire("sizes", 1)
		qt.Assert(t, qt.Equals(c.next(t, 1)[0].Val[0], -100))
		qt.Assert(t, qt.IsNil(other.Close()))
		qt.Assert(t, qt.Equals(inUse(), 1))
	})
}

// Without BPF cookies, too, a site can be attached twice, and what is attached
// covers processes that nobody has looked at.
func TestAttachEveryProcess(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		c := newCollector(t, &usdt.ManagerOptions{Mode: mode, MaxSpecs: 1024})
		target := usdt.Target{Path: testprog.Path(t, "target-pie")}
		before := testprog.Start(t, "target-pie")
		for cookie := range uint64(2) {
			c.attach(t, c.Collect, target, "three", &usdt.AttachOptions{Cookie: cookie + 1})
		}
		c.attach(t, c.Collect, target, "many", nil)
		after := testprog.Start(t, "target-pie")
		fork := func() int { return before.Fork("three", 1) }
		for _, fire := range []func() int{
			func() int { before.Fire("three", 1); return before.PID },
			func() int { after.Fire("three", 1); return after.PID },
			fork, fork,
		} {
			pid, cookies := fire(), uint64(0)
			for _, event := range c.next(t, 2) {
				qt.Check(t, qt.Equals(int(event.Pid), pid))
				qt.Check(t, qt.Equals(event.Val[0], -2000000000))
				cookies |= event.Cookie
			}
			qt.Check(t, qt.Equals(cookies, 3))
		}
		after.Fire("many", 1)
		for _, event := range c.next(t, 400) {
			qt.Assert(t, qt.Equals(event.Val[0], 42))
		}
	})
}

// A program's stack keeps its data, also if the program is preempted and
// another thread runs it meanwhile.
func TestThreadsShareNoStack(t *testing.T) {
	testprog.RequireBPF(t)
	testprog.LeakCheck(t)
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		counts, err := ebpf.NewMap(&ebpf.MapSpec{
			Name: "counts", Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 2,
		})
		qt.Assert(t, qt.IsNil(err))
		defer counts.Close()
		spec := &ebpf.CollectionSpec{Programs: map[string]*ebpf.ProgramSpec{"own_stack": {
			Name: "own_stack", Type: ebpf.Kprobe, SectionName: "usdt", License: "GPL",
			Instructions: stackChecker(counts.FD()),
		}}}
		manager, err := usdt.NewManager(spec, &usdt.ManagerOptions{Mode: mode})
		qt.Assert(t, qt.IsNil(err))
		defer manager.Close()
		var objects struct {
			Program *ebpf.Program `ebpf:"own_stack"`
		}
		load(t, spec, &objects, manager.CollectionOptions())
		defer objects.Program.Close()

		process := testprog.Start(t, "target-pie")
		lnk, err := manager.Attach(objects.Program,
			usdt.Target{Path: testprog.Path(t, "target-pie"), PID: process.PID}, nil,
			elfnote.Exact(provider, "specs"))
		qt.Assert(t, qt.IsNil(err))
		defer lnk.Close()
		const rounds, threads, specs = 10, 16, 300
		for range rounds {
			process.Thread("specs", threads)
		}
		var hits, changed uint64
		qt.Assert(t, qt.IsNil(counts.Lookup(uint32(0), &hits)))
		qt.Assert(t, qt.IsNil(counts.Lookup(uint32(1), &changed)))
		qt.Check(t, qt.Equals(hits, rounds*threads*specs))
		qt.Check(t, qt.Equals(changed, 0))
	})
}

// stackChecker returns a program that counts its runs, and those that find
// something else on their stack than they have put there.
func stackChecker(counts int) asm.Instructions {
	const (
		farthest = -128 // the kernel gives a private stack for this depth
		pause    = 200  // calls that take their time
	)
	program := asm.Instructions{
		asm.FnGetCurrentPidTgid.Call(),
		asm.StoreMem(asm.RFP, farthest, asm.R0, asm.DWord),
	}
	for range pause {
		program = append(program, asm.FnKtimeGetNs.Call())
	}
	count := func(index int32, end string) asm.Instructions {
		return asm.Instructions{
			asm.Mov.Imm(asm.R1, index),
			asm.StoreMem(asm.RFP, -4, asm.R1, asm.Word),
			asm.Mov.Reg(asm.R2, asm.RFP),
			asm.Add.Imm(asm.R2, -4),
			asm.LoadMapPtr(asm.R1, counts),
			asm.FnMapLookupElem.Call(),
			asm.JEq.Imm(asm.R0, 0, end),
			asm.Mov.Imm(asm.R1, 1),
			asm.AddAtomic.Mem(asm.R0, asm.R1, asm.DWord, 0),
		}
	}
	program = append(program, count(0, "end")...)
	program = append(program,
		asm.FnGetCurrentPidTgid.Call(),
		asm.LoadMem(asm.R1, asm.RFP, farthest, asm.DWord),
		asm.JEq.Reg(asm.R1, asm.R0, "end"))
	program = append(program, count(1, "end")...)
	return append(program, asm.Mov.Imm(asm.R0, 0).WithSymbol("end"), asm.Return())
}
