// SPDX-License-Identifier: BSD-2-Clause

package procwatch

import (
	"encoding/binary"
	"reflect"
	"slices"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/procfs"
)

// key is a file of a device with minor number 1.
func key(major uint32, inode uint64) procfs.FileKey {
	return procfs.FileKey{Major: major, Minor: 1, Inode: inode}
}

// testRecord makes a record of a type with words of 32 bits, padding and the
// time 5.
func testRecord(kind uint32, misc uint16, words ...uint32) []byte {
	return timed(untimed(kind, misc, words...), "", 5)
}

// untimed is testRecord without the time.
func untimed(kind uint32, misc uint16, words ...uint32) []byte {
	size := recordHeader + (4*len(words)+7)&^7
	b := binary.NativeEndian.AppendUint32(nil, kind)
	b = binary.NativeEndian.AppendUint16(b, misc)
	b = binary.NativeEndian.AppendUint16(b, uint16(size))
	for _, word := range words {
		b = binary.NativeEndian.AppendUint32(b, word)
	}
	return append(b, make([]byte, size-len(b))...)
}

// timed adds a path and the time to a record.
func timed(record []byte, path string, at int64) []byte {
	if path != "" {
		record = append(record, path...)
		record = append(record, make([]byte, 8-len(path)%8)...)
	}
	record = binary.NativeEndian.AppendUint64(record, uint64(at))
	binary.NativeEndian.PutUint16(record[6:], uint16(len(record)))
	return record
}

func TestHappeningsNameProcessesToLookAt(t *testing.T) {
	mmap := func(pid, major, minor, inode uint32) []byte {
		record := untimed(recordMmap2, 2, pid, pid, 0, 0, 0, 0, 0, 0, major, minor, inode, inode, 7,
			0, 5, 2)
		binary.NativeEndian.PutUint64(record[recordHeader+16:], 0x1000) // length
		return timed(record, "/lib.so", 5)
	}
	tests := []struct {
		name   string
		record []byte
		pids   map[int]*told
		lost   uint64
	}{
		{"fork of a process", testRecord(recordFork, 0, 100, 1, 100, 1, 0, 0),
			map[int]*told{100: {parent: 1}}, 0},
		{"start of a thread", testRecord(recordFork, 0, 100, 100, 101, 100, 0, 0), nil, 0},
		{"exec", timed(untimed(recordComm, commIsExec, 100, 100), "ab", 5),
			map[int]*told{100: {executed: true, command: "ab", since: 5}}, 0},
		{"change of a name", testRecord(recordComm, 0, 100, 101, 0x6261), nil, 0},
		{"exit of a process", testRecord(recordExit, 0, 100, 1, 100, 1, 0, 0),
			map[int]*told{100: {ended: true}}, 0},
		{"exit of a thread", testRecord(recordExit, 0, 100, 1, 101, 1, 0, 0),
			map[int]*told{100: {threadEnded: true}}, 0},
		{"mapping of a file", mmap(100, 8, 1, 77),
			map[int]*told{100: {mapped: []mappedFile{{key(8, 77|77<<32), 7}},
				paths: []string{"/lib.so"}}}, 0},
		{"mapping of a memfd", mmap(100, 0, 1, 77),
			map[int]*told{100: {mapped: []mappedFile{{key(0, 77|77<<32), 7}},
				paths: []string{"/lib.so"}}}, 0},
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
			qt.Check(t, qt.IsTrue(reflect.DeepEqual(h.pids, test.pids)), qt.Commentf("%+v", h.pids))
			qt.Check(t, qt.Equals(h.lost, test.lost))
		})
	}
}

func TestHappeningsOfAThreadDoNotHideThoseOfItsProcess(t *testing.T) {
	var h happenings
	h.add(testRecord(recordExit, 0, 100, 1, 101, 1, 0, 0))
	h.add(testRecord(recordExit, 0, 100, 1, 100, 1, 0, 0))
	h.add(testRecord(recordExit, 0, 100, 1, 102, 1, 0, 0))
	qt.Check(t, qt.IsTrue(reflect.DeepEqual(h.pids,
		map[int]*told{100: {ended: true, threadEnded: true}})))
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

// A process that starts is scanned unless all files that it maps are known to
// be unwanted.
func TestProcessesThatAreScannedForWhatTheKernelTells(t *testing.T) {
	file := func(inode uint64) mappedFile { return mappedFile{key(8, inode), 3} }
	other := file(5)
	other.generation++
	w := &Watcher{unwanted: make(map[mappedFile]bool)}
	w.processes = map[int]*watched{
		1: {pairs: []*ProcessFile{nil}, known: new(known)},
		2: {known: new(known)},
		3: {known: &known{leaderless: true}},
	}
	w.told = map[int]*told{20: {mapped: []mappedFile{file(5), file(6), file(7)}}}
	w.learn(20, []procfs.FileKey{key(8, 5), key(8, 6), key(9, 7)})
	known := []mappedFile{file(5), file(6)}
	for name, test := range map[string]struct {
		pid  int
		told told
		want bool
	}{
		"starts with files that are known":    {10, told{parent: 2, executed: true, mapped: known}, false},
		"maps another file":                   {10, told{mapped: []mappedFile{file(5), file(8)}}, true},
		"maps one that was gone already":      {10, told{mapped: []mappedFile{file(7)}}, true},
		"maps one with the inode of another":  {10, told{mapped: []mappedFile{other}}, true},
		"maps more than was noted":            {10, told{many: true}, true},
		"is a fork of one that is wanted":     {10, told{parent: 1}, true},
		"is a fork of one that is not wanted": {10, told{parent: 2}, false},
		"is a fork of one that just mapped":   {10, told{parent: 30}, true},
		"is a fork of a fork":                 {10, told{parent: 31}, true},
		"is a fork of a fork, none wanted":    {10, told{parent: 32}, false},
		"ends, and was never scanned":         {10, told{ended: true}, false},
		"ends":                                {2, told{ended: true}, true},
		"executes, and was wanted":            {1, told{executed: true}, true},
		"executes, and was not wanted":        {2, told{executed: true}, false},
		"has a thread less":                   {2, told{threadEnded: true}, false},
		"has the last thread less, maybe":     {3, told{threadEnded: true}, true},
	} {
		all := map[int]*told{test.pid: &test.told, 30: {mapped: []mappedFile{file(8)}},
			31: {parent: 1, ended: true}, 32: {parent: 2, ended: true}}
		qt.Check(t, qt.Equals(w.isNeeded(test.pid, all), test.want), qt.Commentf("%s", name))
	}
}
