// SPDX-License-Identifier: BSD-2-Clause

package procwatch

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/procfs"
)

// testRecord makes a record of a type with words of 32 bits and padding.
func testRecord(kind uint32, misc uint16, words ...uint32) []byte {
	size := recordHeader + (4*len(words)+7)&^7
	b := binary.NativeEndian.AppendUint32(nil, kind)
	b = binary.NativeEndian.AppendUint16(b, misc)
	b = binary.NativeEndian.AppendUint16(b, uint16(size))
	for _, word := range words {
		b = binary.NativeEndian.AppendUint32(b, word)
	}
	return append(b, make([]byte, size-len(b))...)
}

func TestHappeningsNameProcessesToLookAt(t *testing.T) {
	mmap := func(pid, major, minor, inode uint32) []byte {
		return testRecord(recordMmap2, 2, pid, pid, 0, 0, 0, 0, 0, 0, major, minor, inode, inode, 7,
			0, 5, 2)
	}
	tests := []struct {
		name   string
		record []byte
		pids   map[int]bool
		lost   uint64
	}{
		{"fork of a process", testRecord(recordFork, 0, 100, 1, 100, 1, 0, 0),
			map[int]bool{100: true}, 0},
		{"start of a thread", testRecord(recordFork, 0, 100, 100, 101, 100, 0, 0), nil, 0},
		{"exec", testRecord(recordComm, commIsExec, 100, 100, 0x6261), map[int]bool{100: true}, 0},
		{"change of a name", testRecord(recordComm, 0, 100, 101, 0x6261), nil, 0},
		{"exit of a process", testRecord(recordExit, 0, 100, 1, 100, 1, 0, 0),
			map[int]bool{100: true}, 0},
		{"exit of a thread", testRecord(recordExit, 0, 100, 1, 101, 1, 0, 0),
			map[int]bool{100: false}, 0},
		{"mapping of a file", mmap(100, 8, 1, 77), map[int]bool{100: true}, 0},
		{"mapping of a memfd", mmap(100, 0, 1, 77), map[int]bool{100: true}, 0},
		{"anonymous memory of a JIT compiler", mmap(100, 0, 0, 0), nil, 0},
		{"process of another namespace", mmap(0, 8, 1, 77), nil, 0},
		{"process that is gone", mmap(1<<32-1, 8, 1, 77), nil, 0},
		{"lost records", testRecord(recordLost, 0, 1, 0, 5, 0), nil, 1},
		{"unknown record", testRecord(99, 0, 100, 1, 100, 1), nil, 0},
		{"record without a body", testRecord(recordExit, 0), nil, 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var h happenings
			h.add(test.record)
			qt.Check(t, qt.DeepEquals(h.pids, test.pids))
			qt.Check(t, qt.Equals(h.lost, test.lost))
		})
	}
}

func TestHappeningsOfAThreadDoNotHideThoseOfItsProcess(t *testing.T) {
	var h happenings
	h.add(testRecord(recordExit, 0, 100, 1, 101, 1, 0, 0))
	h.add(testRecord(recordExit, 0, 100, 1, 100, 1, 0, 0))
	h.add(testRecord(recordExit, 0, 100, 1, 102, 1, 0, 0))
	qt.Check(t, qt.DeepEquals(h.pids, map[int]bool{100: true}))
}

func TestDrainRecordsGoesAroundTheEnd(t *testing.T) {
	data := make([]byte, 128)
	var tail uint64
	var scratch []byte
	for i := range 50 { // sizes that do not divide 128
		record := testRecord(recordExit, 0, uint32(i), 1, uint32(i), 1, 0, uint32(i)*3)
		head := tail
		for _, b := range record {
			data[head&127] = b
			head++
		}
		var got [][]byte
		tail = drainRecords(data, head, tail, &scratch,
			func(r []byte) { got = append(got, slices.Clone(r)) })
		qt.Assert(t, qt.Equals(tail, head))
		qt.Assert(t, qt.DeepEquals(got, [][]byte{record}))
	}
}

func FuzzDrainRecords(f *testing.F) {
	f.Add(testRecord(recordExit, 0, 1, 2, 3, 4), uint16(0), uint16(24))
	f.Add(testRecord(recordFork, 0, 1, 2, 3, 4), uint16(64), uint16(100))
	f.Fuzz(func(t *testing.T, content []byte, start, length uint16) {
		data := make([]byte, 256)
		copy(data, content)
		tail := uint64(start) &^ 7
		head := tail + uint64(length)%257&^7
		var scratch []byte
		var h happenings
		total := 0
		got := drainRecords(data, head, tail, &scratch, func(r []byte) {
			total += len(r)
			h.add(r)
		})
		qt.Assert(t, qt.Equals(got, head))
		qt.Assert(t, qt.IsTrue(uint64(total) <= head-tail))
	})
}

func TestParseCPUs(t *testing.T) {
	for list, want := range map[string][]int{"0": {0}, "0-1\n": {0, 1},
		"0,2-4,7\n": {0, 2, 3, 4, 7}} {
		cpus, err := parseCPUs(list)
		qt.Check(t, qt.IsNil(err))
		qt.Check(t, qt.DeepEquals(cpus, want))
	}
	for _, list := range []string{"", "\n", "a", "1-", "-1", "2-1", "0,", "0-99999999"} {
		_, err := parseCPUs(list)
		qt.Check(t, qt.ErrorIs(err, procfs.ErrMalformed), qt.Commentf("%q", list))
	}
}
