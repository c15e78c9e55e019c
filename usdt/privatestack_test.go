// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package usdt_test

import (
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/usdt"
)

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
