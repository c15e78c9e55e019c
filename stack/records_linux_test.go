// SPDX-License-Identifier: BSD-2-Clause

package stack

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/debuginfo"
	"github.com/gousdt/gousdt/internal/procfs"
	"github.com/gousdt/gousdt/internal/procwatch"
	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
)

// ended is the number of a process that has ended: none can have it.
const ended = 1 << 30

func mapsAt(pid int, time int64, path, buildID string) *procwatch.Record {
	return &procwatch.Record{Kind: procwatch.FileMapped, PID: pid, Time: time, Path: path,
		BuildID: buildID, Mapping: procfs.Mapping{Start: mappedAt, End: mappedAt + 1<<30}}
}

func TestRecordsAreBounded(t *testing.T) {
	s := NewSymbolizer("")
	path := "/" + strings.Repeat("x", 4000)
	for n := range 2 * maxRecords {
		s.note(mapsAt(1, int64(n), path, "ab"))
	}
	qt.Check(t, qt.HasLen(s.processes[1].records, maxRecords))
	for pid := range 3 * maxRecorded {
		s.note(&procwatch.Record{Kind: procwatch.ProcessForked, PID: pid + 2, Parent: 1})
		qt.Assert(t, qt.IsTrue(s.records.held.bytes <= maxRecordBytes))
		qt.Assert(t, qt.Equals(s.memory.bytes, s.records.held.bytes))
	}
	for pid := range 2 * maxRecorded {
		s.note(&procwatch.Record{Kind: procwatch.ProcessExecuted, PID: 7, Time: int64(pid)})
	}
	qt.Check(t, qt.IsTrue(len(s.records.order) <= maxRecorded && len(s.processes) <= maxRecorded))
	qt.Check(t, qt.Equals(s.unnamed, len(s.processes)))
	qt.Check(t, qt.Equals(s.memory.bytes, 0), qt.Commentf("all others have gone"))
	s.note(mapsAt(7, 1<<40, path, "ab"))
	s.memory.most = 1
	s.note(mapsAt(8, 1<<40, path, "ab"))
	qt.Check(t, qt.Equals(s.memory.bytes, 0), qt.Commentf("records share the room with tables"))
	qt.Check(t, qt.HasLen(s.processes[7].records, 0))
}

// Processors have buffers of their own: what comes first may have happened
// later.
func TestRecordsInAnotherOrder(t *testing.T) {
	s := NewSymbolizer("")
	s.note(mapsAt(5, 30, "/new", "ab"))
	s.note(mapsAt(5, 10, "/old", "ab"))
	s.note(&procwatch.Record{Kind: procwatch.ProcessExecuted, PID: 5, Time: 20})
	s.note(mapsAt(5, 15, "/old", "ab"))
	qt.Assert(t, qt.HasLen(s.processes[5].records, 1))
	qt.Check(t, qt.Equals(s.processes[5].records[0].Path, "/new"))
	qt.Check(t, qt.IsTrue(s.processes[5].isWhole))

	s.note(&procwatch.Record{Kind: procwatch.ProcessForked, PID: 6, Parent: 5, Time: 40})
	s.note(&procwatch.Record{Kind: procwatch.ProcessForked, PID: 7, Parent: 6, Time: 50})
	s.note(&procwatch.Record{Kind: procwatch.ProcessExecuted, PID: 6, Time: 60})
	qt.Check(t, qt.HasLen(s.processes[6].records, 0))
	qt.Assert(t, qt.HasLen(s.processes[7].records, 1), qt.Commentf("its parent has executed it later"))
	qt.Check(t, qt.DeepEquals(s.processes[7].ancestors, []int{6, 5}))
}

// What a process tells of its files is only believed if it is so.
func TestRecordsOfAProcessThatHasEnded(t *testing.T) {
	testneeds.Root(t)
	path := testprog.Path(t, "target-static")
	file, err := debuginfo.Open(path)
	qt.Assert(t, qt.IsNil(err))
	defer file.Close()
	main, err := file.Symbol("main")
	qt.Assert(t, qt.IsNil(err))
	code := file.Segment(main.Value, 1, 0)
	qt.Assert(t, qt.IsNotNil(code))
	offset := main.Value - code.Address + code.Offset
	buildID, err := file.BuildID()
	qt.Assert(t, qt.IsNil(err))
	for _, test := range []struct{ path, buildID, name string }{
		{path, buildID, "main"},
		{path, strings.Repeat("0", len(buildID)), ""},
		{"/dev/zero", buildID, ""},
		{"/proc/kmsg", buildID, ""},
		{path + " (deleted)", buildID, ""},
	} {
		s := NewSymbolizer("")
		s.note(&procwatch.Record{Kind: procwatch.ProcessExecuted, PID: ended, Time: 1})
		s.note(mapsAt(ended, 2, test.path, test.buildID))
		frame := s.Frames(t.Context(), ended, []uint64{mappedAt + offset})[0]
		qt.Check(t, qt.Equals(frame.Function, test.name), qt.Commentf(fmt.Sprint(test)))
		qt.Check(t, qt.Equals(len(s.files.known), len(test.name)/len("main")),
			qt.Commentf("others are not held"))
		qt.Check(t, qt.IsNil(s.Close()))
	}
}

// A process that maps a file where it had another one has only the new one.
func TestRecordsThatReplaceOthers(t *testing.T) {
	s := NewSymbolizer("")
	defer s.Close()
	s.note(&procwatch.Record{Kind: procwatch.ProcessExecuted, PID: ended, Time: 1})
	path := ""
	for n, name := range []string{"target-pie", "target-static"} {
		path = testprog.Path(t, name)
		file, err := debuginfo.Open(path)
		qt.Assert(t, qt.IsNil(err))
		buildID, err := file.BuildID()
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.IsNil(file.Close()))
		s.note(mapsAt(ended, int64(2+n), path, buildID))
	}
	frame := s.Frames(t.Context(), ended, []uint64{mappedAt})[0]
	qt.Check(t, qt.Equals(frame.File, path))
	qt.Check(t, qt.HasLen(s.files.known, 1))
	qt.Check(t, qt.HasLen(s.files.open, 1))
	s.forget(ended)
	qt.Check(t, qt.HasLen(s.files.known, 0))
	qt.Check(t, qt.HasLen(s.files.open, 0))
}

// Where records are lost, those of a process remain when it has ended, and
// another one has its number.
func TestRecordsBeforeAScan(t *testing.T) {
	s := NewSymbolizer("")
	defer s.Close()
	pid := os.Getpid()
	s.Remember(pid)
	has := s.processes[pid].mapped[0]
	path := testprog.Path(t, "target-pie")
	file, err := debuginfo.Open(path)
	qt.Assert(t, qt.IsNil(err))
	defer file.Close()
	buildID, err := file.BuildID()
	qt.Assert(t, qt.IsNil(err))
	for _, when := range []time.Time{time.Unix(1, 0), time.Now()} {
		want := has.path
		if when.Unix() > 1 {
			want = path
		}
		record := mapsAt(pid, when.UnixNano(), path, buildID)
		record.Mapping = procfs.Mapping{Start: has.Start, End: has.End + 1}
		s.note(record)
		s.mutex.Lock()
		s.recall(pid)
		s.unlock()
		qt.Check(t, qt.Equals(s.processes[pid].find(has.Start).path, want), qt.Commentf("%v", when))
	}
}

// Each call of Record has buffers of its own.
func TestRecordTwice(t *testing.T) {
	testneeds.Root(t)
	testprog.LeakCheck(t)
	s := NewSymbolizer("")
	for range 2 {
		qt.Assert(t, qt.IsNil(s.Record(0)))
	}
	qt.Check(t, qt.IsNil(s.Close()))
	qt.Check(t, qt.ErrorIs(s.Record(0), os.ErrClosed))
	qt.Check(t, qt.IsNil(s.Close()))
}
