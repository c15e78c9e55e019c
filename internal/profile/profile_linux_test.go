// SPDX-License-Identifier: BSD-2-Clause

package profile_test

import (
	"bytes"
	"os"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
	pprof "github.com/google/pprof/profile"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/profile"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/proc"
)

// target is a running program, and where its function main begins.
type target struct {
	*testprog.Process
	path string
	main uint64
}

func start(t *testing.T) target {
	t.Helper()
	return startFile(t, testprog.Path(t, "target-pie"))
}

func startFile(t *testing.T, path string) target {
	t.Helper()
	p := target{Process: testprog.Start(t, path), path: path}
	p.Groups() // it runs
	file, err := elfnote.Open(p.path)
	qt.Assert(t, qt.IsNil(err))
	defer file.Close()
	address, err := file.Symbol("main")
	qt.Assert(t, qt.IsNil(err))
	offset, err := file.Offset(address)
	qt.Assert(t, qt.IsNil(err))
	files, err := proc.NewFS("").Files(p.PID)
	qt.Assert(t, qt.IsNil(err))
	for _, f := range files {
		for _, m := range f.Mappings {
			if at, ok := m.Address(offset); ok && f.Path == p.path {
				p.main = at
			}
		}
	}
	qt.Assert(t, qt.Not(qt.Equals(p.main, 0)))
	return p
}

func TestFunctionsAreNamed(t *testing.T) {
	testprog.LeakCheck(t)
	target := start(t)
	p := profile.NewProcesses(proc.NewFS(""))
	defer p.Close()
	frames := p.Frames(target.PID, []uint64{target.main, target.main + 1, target.main})
	qt.Assert(t, qt.HasLen(frames, 3))
	qt.Check(t, qt.Equals(frames[0].Function, "main"))
	qt.Check(t, qt.Equals(frames[0].Offset, 0))
	qt.Check(t, qt.Equals(frames[0].File, target.path))
	qt.Check(t, qt.Equals(frames[1].Function, "main"))
	qt.Check(t, qt.Equals(frames[1].Offset, 1))
	qt.Check(t, qt.Equals(frames[1].Address, target.main+1))
	qt.Check(t, qt.Not(qt.Equals(frames[2].Function, "main")), qt.Commentf("the call is before a return address"))
}

func TestAddressesInNoFileHaveNoName(t *testing.T) {
	testprog.LeakCheck(t)
	p := profile.NewProcesses(proc.NewFS(""))
	defer p.Close()
	frames := p.Frames(os.Getpid(), []uint64{1, 0, 1 << 63})
	qt.Check(t, qt.DeepEquals(frames, []profile.Frame{{Address: 1}, {Address: 0}, {Address: 1 << 63}}))
	// No process can have that number.
	qt.Check(t, qt.DeepEquals(p.Frames(1<<30, []uint64{4096}), []profile.Frame{{Address: 4096}}))
}

func TestEndedProcessesAreRemembered(t *testing.T) {
	testprog.LeakCheck(t)
	target := start(t)
	p := profile.NewProcesses(proc.NewFS(""))
	defer p.Close()
	p.Look(target.PID)
	target.Kill()
	p.Look(target.PID)
	p.Refresh()
	qt.Check(t, qt.Equals(p.Frames(target.PID, []uint64{target.main})[0].Function, "main"))
}

func TestProfileHasStacksValuesAndLabels(t *testing.T) {
	testprog.LeakCheck(t)
	p := profile.NewProcesses(proc.NewFS(""))
	defer p.Close()
	target := start(t)
	stack := []uint64{target.main, target.main + 8}
	b := profile.NewBuilder(p, profile.ValueType{Type: "hits", Unit: "count"}, profile.ValueType{Type: "time", Unit: "nanoseconds"})
	b.Add(target.PID, stack, []int64{3, 300}, map[string]string{"comm": "x"})
	b.Add(target.PID, stack[:1], []int64{1, 100}, nil)
	b.Add(target.PID, nil, []int64{2, 200}, nil)

	var file bytes.Buffer
	start := time.Unix(1000, 0)
	qt.Assert(t, qt.IsNil(b.Write(&file, start, time.Minute)))
	read, err := pprof.Parse(&file)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(read.TimeNanos, start.UnixNano()))
	qt.Check(t, qt.Equals(read.DurationNanos, int64(time.Minute)))
	qt.Check(t, qt.Equals(read.DefaultSampleType, "time"))
	qt.Assert(t, qt.HasLen(read.Sample, 3))
	sample := read.Sample[0]
	qt.Check(t, qt.DeepEquals(sample.Value, []int64{3, 300}))
	qt.Check(t, qt.DeepEquals(sample.Label["comm"], []string{"x"}))
	qt.Check(t, qt.HasLen(sample.Label["process"], 1))
	qt.Assert(t, qt.HasLen(sample.Location, 2))
	qt.Check(t, qt.Equals(sample.Location[0].Line[0].Function.Name, "main"))
	qt.Check(t, qt.Equals(sample.Location[0].Line[0].Function, sample.Location[1].Line[0].Function))
	qt.Check(t, qt.Equals(sample.Location[1].Address, stack[1]-1))
	qt.Check(t, qt.Equals(read.Sample[1].Location[0], sample.Location[0]), qt.Commentf("a place is there once"))
}
