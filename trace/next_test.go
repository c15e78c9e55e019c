// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package trace_test

import (
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
)

// A program that follows runs once for each event, and for no other hit.
func TestNext(t *testing.T) {
	testprog.RequireBPF(t)
	runs, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	qt.Assert(t, qt.IsNil(err))
	defer runs.Close()
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.Kprobe, License: "GPL",
		Instructions: asm.Instructions{
			asm.LoadMapValue(asm.R1, runs.FD(), 0),
			asm.Mov.Imm(asm.R2, 1),
			asm.AddAtomic.Mem(asm.R1, asm.R2, asm.DWord, 0),
			asm.Mov.Imm(asm.R0, 0),
			asm.Return(),
		}})
	qt.Assert(t, qt.IsNil(err))
	defer program.Close()

	p := start(t, "target-pie")
	s := open(t, p, "gousdt_test:specs", &trace.SessionOptions{Filter: "arg0 < 10",
		Events: &trace.EventOptions{Next: program}})
	p.Fire("specs", 3)
	qt.Check(t, qt.HasLen(next(t, s, 30), 30))
	var count uint64
	qt.Assert(t, qt.IsNil(runs.Lookup(uint32(0), &count)))
	qt.Check(t, qt.Equals(count, 30))

	_, err = trace.New(&trace.SessionOptions{Mode: usdt.ModeMulti,
		Events: &trace.EventOptions{Next: program}})
	qt.Check(t, qt.ErrorMatches(err, "option Next: .*another mode than ModeMulti.*"))
}
