// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package usdt

import (
	"strings"
	"testing"

	"github.com/cilium/ebpf"
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

func assertWritten(t *testing.T, table *specTable, acquired []*entry[string], want []string) {
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
	first, err := table.acquire(specsOf(1, 2, 1), nil)
	qt.Assert(t, qt.IsNil(err))
	assertWritten(t, table, first, specsOf(1, 2, 1))
	qt.Assert(t, qt.Equals(first[0].id, first[2].id))
	qt.Assert(t, qt.Equals(table.inUse(), 2))

	second, err := table.acquire(specsOf(3, 2), nil)
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
	held, err := table.acquire(specsOf(1, 2), nil)
	qt.Assert(t, qt.IsNil(err))

	_, err = table.acquire(specsOf(2, 3, 3, 4, 5), nil)
	var full *LimitError
	qt.Assert(t, qt.ErrorAs(err, &full))
	qt.Assert(t, qt.Equals(*full, LimitError{Limit: "specs", Option: "ManagerOptions.MaxSpecs",
		Capacity: 4, InUse: 2, Needed: 3}))
	qt.Assert(t, qt.Equals(table.inUse(), 2))

	more, err := table.acquire(specsOf(6, 7), nil)
	qt.Assert(t, qt.IsNil(err))
	assertWritten(t, table, append(held, more...), specsOf(1, 2, 6, 7))
	table.release(held)
	table.release(more)

	all, err := table.acquire(specsOf(8, 9, 10, 11), nil) // every place was given back, once
	qt.Assert(t, qt.IsNil(err))
	assertWritten(t, table, all, specsOf(8, 9, 10, 11))
}

// A refusal by the kernel does not affect the specs that are held.
func TestSpecTableThatCannotBeWritten(t *testing.T) {
	table := newTable(t)
	held, err := table.acquire(specsOf(1), nil)
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(table.entries.Freeze())) // later writes fail
	_, err = table.acquire(specsOf(1, 2, 3), nil)
	qt.Assert(t, qt.ErrorMatches(err, "writing the map of specs.*"))
	qt.Assert(t, qt.Equals(table.inUse(), 1))
	assertWritten(t, table, held, specsOf(1))
}

// Without BPF cookies an address has one spec.
func TestAddressTable(t *testing.T) {
	testprog.RequireBPF(t)
	table, err := newAddressTable(&ebpf.MapSpec{Type: ebpf.Hash, KeySize: 8, ValueSize: 4,
		MaxEntries: 3})
	qt.Assert(t, qt.IsNil(err))
	defer table.close()
	lookup := func(address uint64) (id uint32) {
		_ = table.entries.Lookup(address, &id) // or it is 0
		return id
	}
	first, err := table.acquire([]uint64{10, 20, 10}, []uint32{1, 2, 1})
	qt.Assert(t, qt.IsNil(err))
	again, err := table.acquire([]uint64{20}, []uint32{2})
	qt.Assert(t, qt.IsNil(err))

	_, err = table.acquire([]uint64{30, 20}, []uint32{3, 4})
	qt.Check(t, qt.ErrorIs(err, errAddressInUse))
	_, err = table.acquire([]uint64{20, 30, 40}, []uint32{2, 3, 3})
	var full *LimitError
	qt.Assert(t, qt.ErrorAs(err, &full))
	qt.Check(t, qt.Equals(*full, LimitError{Limit: "addresses", Option: "ManagerOptions.MaxSpecs",
		Capacity: 3, InUse: 2, Needed: 2}))
	qt.Check(t, qt.Equals(lookup(30), 0))
	qt.Check(t, qt.HasLen(table.used, 2))

	table.release(first)
	qt.Check(t, qt.Equals(lookup(10), 0))
	qt.Check(t, qt.Equals(lookup(20), 2))
	table.release(again)
	qt.Check(t, qt.Equals(lookup(20), 0))
	qt.Check(t, qt.HasLen(table.used, 0))
}

// Sites share a perf event if they have the same cookie and different places.
func TestGroups(t *testing.T) {
	var s Selection
	for _, offset := range []uint64{1, 2, 1, 3, 2} {
		s.sites = append(s.sites, Site{Site: elfnote.Site{Offset: offset}})
	}
	qt.Check(t, qt.DeepEquals(s.groups(nil), [][]int{{0, 1, 3}, {2, 4}}))
	qt.Check(t, qt.DeepEquals(s.groups([]uint64{7, 8, 7, 7, 9}), [][]int{{0, 3}, {1}, {2}, {4}}))
}
