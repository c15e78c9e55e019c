// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package usdt

import (
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/usdt/internal/sitespec"
)

// newTable returns a table of four places.
func newTable(t *testing.T) *specTable {
	testprog.RequireBPF(t)
	layout, err := sitespec.LayoutOf(sitespec.Size, nil)
	qt.Assert(t, qt.IsNil(err))
	table, err := newSpecTable(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: sitespec.Size,
		MaxEntries: 4 + firstSpecID}, layout)
	qt.Assert(t, qt.IsNil(err))
	t.Cleanup(func() { table.close() })
	return table
}

// specsOf returns specs that begin with these bytes.
func specsOf(first ...byte) (specs []string) {
	for _, b := range first {
		specs = append(specs, string(b)+strings.Repeat("\x00", sitespec.Size-1))
	}
	return specs
}

func assertWritten(t *testing.T, table *specTable, acquired []*entry, want []string) {
	t.Helper()
	qt.Assert(t, qt.HasLen(acquired, len(want)))
	for i := range acquired {
		var got [sitespec.Size]byte
		qt.Assert(t, qt.IsNil(table.entries.Lookup(acquired[i].id, &got)))
		qt.Assert(t, qt.Equals(string(got[:]), want[i]))
		qt.Assert(t, qt.IsTrue(acquired[i].id >= firstSpecID))
	}
}

func TestSpecTableSharesEqualSpecs(t *testing.T) {
	table := newTable(t)
	first, err := table.acquire(specsOf(1, 2, 1))
	qt.Assert(t, qt.IsNil(err))
	assertWritten(t, table, first, specsOf(1, 2, 1))
	qt.Assert(t, qt.Equals(first[0].id, first[2].id))
	qt.Assert(t, qt.Equals(table.inUse(), 2))

	second, err := table.acquire(specsOf(3, 2))
	qt.Assert(t, qt.IsNil(err))
	assertWritten(t, table, second, specsOf(3, 2))
	qt.Assert(t, qt.Equals(second[1].id, first[1].id))
	qt.Assert(t, qt.Equals(table.inUse(), 3))

	table.release(first)
	qt.Assert(t, qt.Equals(table.inUse(), 2))
	assertWritten(t, table, second, specsOf(3, 2))
	table.release(second)
	qt.Assert(t, qt.Equals(table.inUse(), 0))
}

func TestSpecTableWithoutRoom(t *testing.T) {
	table := newTable(t)
	held, err := table.acquire(specsOf(1, 2))
	qt.Assert(t, qt.IsNil(err))

	_, err = table.acquire(specsOf(2, 3, 3, 4, 5))
	var full *LimitError
	qt.Assert(t, qt.ErrorAs(err, &full))
	qt.Assert(t, qt.Equals(*full, LimitError{Limit: "specs", Option: "ManagerOptions.MaxSpecs",
		Capacity: 4, InUse: 2, Needed: 3}))
	qt.Assert(t, qt.Equals(table.inUse(), 2))

	more, err := table.acquire(specsOf(6, 7))
	qt.Assert(t, qt.IsNil(err))
	assertWritten(t, table, append(held, more...), specsOf(1, 2, 6, 7))
	table.release(held)
	table.release(more)

	all, err := table.acquire(specsOf(8, 9, 10, 11)) // every place was given back, once
	qt.Assert(t, qt.IsNil(err))
	assertWritten(t, table, all, specsOf(8, 9, 10, 11))
}

// A refusal by the kernel does not affect the specs that are held.
func TestSpecTableThatCannotBeWritten(t *testing.T) {
	table := newTable(t)
	held, err := table.acquire(specsOf(1))
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(table.entries.Freeze())) // later writes fail
	_, err = table.acquire(specsOf(1, 2, 3))
	qt.Assert(t, qt.ErrorMatches(err, "writing the map of specs.*"))
	qt.Assert(t, qt.Equals(table.inUse(), 1))
	assertWritten(t, table, held, specsOf(1))
}

// Sites share a perf event if they have the same cookie and different places.
func TestGroups(t *testing.T) {
	var s Selection
	for _, offset := range []uint64{1, 2, 1, 3, 2} {
		s.sites = append(s.sites, Site{Site: elfnote.Site{Offset: offset}})
	}
	qt.Check(t, qt.DeepEquals(s.groups(nil, nil), [][]int{{0, 1, 3}, {2, 4}}))
	qt.Check(t, qt.DeepEquals(s.groups([]uint64{7, 8, 7, 7, 9}, nil), [][]int{{0, 3}, {1}, {2}, {4}}))
}

// Sites share a dispatcher if the low bits of their addresses tell their specs.
func TestDispatchedGroups(t *testing.T) {
	var s Selection
	for _, address := range []uint64{0x1010, 0x2010, 0x3010, 0x1020, 0x1010, 0x1010} {
		s.sites = append(s.sites, Site{Site: elfnote.Site{Offset: address, Location: address},
			Instruction: address})
	}
	groups := s.groups(nil, []uint64{1, 2, 1, 3, 1, 4})
	qt.Check(t, qt.DeepEquals(groups, [][]int{{0, 2, 3}, {1}, {4}, {5}}))
}

// Jumps over what takes the place of a call reach the same instruction.
func TestFindInKeepsJumps(t *testing.T) {
	jump := func(op asm.JumpOp, offset int16) asm.Instruction {
		return asm.Instruction{OpCode: op.Op(asm.ImmSource), Dst: asm.R6, Offset: offset}
	}
	long := asm.Instruction{OpCode: jump(asm.Ja, 0).OpCode&^asm.OpCode(asm.JumpClass) |
		asm.OpCode(asm.Jump32Class), Constant: 3}
	program := asm.Instructions{
		jump(asm.JEq, 6), // to the mark
		asm.LoadImm(asm.R1, 1, asm.DWord),
		long, // to the mark
		asm.FnGetAttachCookie.Call(),
		jump(asm.Ja, -2),        // to the call
		jump(asm.JNE, -4),       // to the long jump
		asm.Mov.Imm(asm.R0, 77), // the mark
		asm.Return(),
	}
	for _, byThread := range []bool{false, true} {
		s := &slots{count: 4096, byThread: byThread}
		found, err := s.findIn(program)
		qt.Assert(t, qt.IsNil(err))
		size := int64(s.find().Size()/asm.InstructionSize) - 1 // more than a call
		qt.Check(t, qt.Equals(int64(found[0].Offset), 6+size))
		qt.Check(t, qt.Equals(found[2].Constant, 3+size))
		last := found[len(found)-4:]
		qt.Check(t, qt.Equals(int64(last[0].Offset), -2-size))
		qt.Check(t, qt.Equals(int64(last[1].Offset), -4-size))
		_, err = s.findIn(append(slices.Clone(program[:4]), jump(asm.Ja, 1)))
		qt.Check(t, qt.ErrorMatches(err, "instruction 0 jumps out of the program"))
	}
}
