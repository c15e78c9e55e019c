// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package usdt

import (
	"testing"

	"github.com/cilium/ebpf"
	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/follow"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/usdt/internal/sitespec"
)

// forEachWrite runs a test with a table of four places, written by one call, if
// the kernel can, and one by one.
func forEachWrite(t *testing.T, test func(t *testing.T, table *specTable)) {
	testprog.RequireBPF(t)
	for name, oneByOne := range map[string]bool{"by one call": false, "one by one": true} {
		t.Run(name, func(t *testing.T) {
			specs, err := ebpf.NewMap(&ebpf.MapSpec{
				Type: ebpf.Array, KeySize: 4, ValueSize: sitespec.Size, MaxEntries: 4 + firstSpecID,
			})
			qt.Assert(t, qt.IsNil(err))
			layout, err := sitespec.LayoutOf(sitespec.Size, nil)
			qt.Assert(t, qt.IsNil(err))
			table := newSpecTable(specs, layout)
			table.oneByOne = oneByOne
			defer table.close()
			test(t, table)
		})
	}
}

// specsOf returns specs that begin with these bytes, one behind the other.
func specsOf(first ...byte) []byte {
	specs := make([]byte, len(first)*sitespec.Size)
	for i, b := range first {
		specs[i*sitespec.Size] = b
	}
	return specs
}

func assertWritten(t *testing.T, table *specTable, acquired []*sharedSpec, want []byte) {
	t.Helper()
	qt.Assert(t, qt.HasLen(acquired, len(want)/sitespec.Size))
	for i := range acquired {
		var got [sitespec.Size]byte
		qt.Assert(t, qt.IsNil(table.specs.Lookup(acquired[i].id, &got)))
		qt.Assert(t, qt.DeepEquals(got[:], want[i*sitespec.Size:][:sitespec.Size]))
		qt.Assert(t, qt.IsTrue(acquired[i].id >= firstSpecID))
	}
}

func TestSpecTableSharesEqualSpecs(t *testing.T) {
	forEachWrite(t, func(t *testing.T, table *specTable) {
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
	})
}

func TestSpecTableWithoutRoom(t *testing.T) {
	forEachWrite(t, func(t *testing.T, table *specTable) {
		held, err := table.acquire(specsOf(1, 2))
		qt.Assert(t, qt.IsNil(err))

		_, err = table.acquire(specsOf(2, 3, 3, 4, 5))
		var full *follow.LimitError
		qt.Assert(t, qt.ErrorAs(err, &full))
		qt.Assert(t, qt.Equals(*full, follow.LimitError{Limit: "specs", Option: "ManagerOptions.MaxSpecs",
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
	})
}

// The kernel's refusal of a whole batch is none of the specs that are held.
func TestSpecTableThatCannotBeWritten(t *testing.T) {
	forEachWrite(t, func(t *testing.T, table *specTable) {
		held, err := table.acquire(specsOf(1))
		qt.Assert(t, qt.IsNil(err))
		qt.Assert(t, qt.IsNil(table.specs.Freeze())) // for programs, and so for nobody else
		_, err = table.acquire(specsOf(1, 2, 3))
		qt.Assert(t, qt.ErrorMatches(err, "writing the spec map.*"))
		qt.Assert(t, qt.Equals(table.inUse(), 1))
		assertWritten(t, table, held, specsOf(1))
	})
}
