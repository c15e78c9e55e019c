// SPDX-License-Identifier: BSD-2-Clause

package stack_test

import (
	"context"
	"debug/elf"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
	"github.com/google/pprof/profile"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/debuginfo"
	"github.com/gousdt/gousdt/internal/procfs"
	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/stack"
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

// offsetOf returns the offset in the file of the code at an address.
func offsetOf(t *testing.T, file *debuginfo.File, address uint64) uint64 {
	t.Helper()
	code := file.Segment(address, 1, elf.PF_X)
	qt.Assert(t, qt.IsNotNil(code))
	return address - code.Address + code.Offset
}

func startFile(t *testing.T, path string) target {
	t.Helper()
	p := target{Process: testprog.Start(t, path), path: path}
	p.Do("list") // it runs
	file, err := debuginfo.Open(p.path)
	qt.Assert(t, qt.IsNil(err))
	defer file.Close()
	function, err := file.Symbol("main")
	qt.Assert(t, qt.IsNil(err))
	offset := offsetOf(t, file, function.Value)
	files, err := procfs.Files("", p.PID)
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

func TestFrames(t *testing.T) {
	testprog.LeakCheck(t)
	target := start(t)
	p := stack.NewSymbolizer("")
	defer p.Close()
	frames := p.Frames(t.Context(), target.PID, []uint64{target.main, target.main + 1, target.main})
	qt.Assert(t, qt.HasLen(frames, 3))
	qt.Check(t, qt.Equals(frames[0].Function, "main"))
	qt.Check(t, qt.Equals(frames[0].Offset, 0))
	qt.Check(t, qt.Equals(frames[0].File, target.path))
	file, err := elfnote.Open(target.path)
	qt.Assert(t, qt.IsNil(err))
	defer file.Close()
	build, err := file.BuildID()
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(frames[0].BuildID, build))
	qt.Check(t, qt.Equals(frames[1].Function, "main"))
	qt.Check(t, qt.Equals(frames[1].Offset, 1))
	qt.Check(t, qt.Equals(frames[1].Address, target.main+1))
	qt.Check(t, qt.Not(qt.Equals(frames[2].Function, "main")),
		qt.Commentf("the call is before a return address"))
}

func TestFramesInNoFileHaveNoName(t *testing.T) {
	testprog.LeakCheck(t)
	p := stack.NewSymbolizer("")
	defer p.Close()
	frames := p.Frames(t.Context(), os.Getpid(), []uint64{1, 0, 1 << 63})
	qt.Check(t,
		qt.DeepEquals(frames, []stack.Frame{{Address: 1}, {Address: 0}, {Address: 1 << 63}}))
	// No process can have that number.
	qt.Check(t, qt.DeepEquals(p.Frames(t.Context(), 1<<30, []uint64{4096}),
		[]stack.Frame{{Address: 4096}}))
}

func TestFramesOfEndedProcesses(t *testing.T) {
	testprog.LeakCheck(t)
	target := start(t)
	p := stack.NewSymbolizer("")
	defer p.Close()
	p.Remember(target.PID)
	target.Kill()
	p.Remember(target.PID)
	p.Remember()
	qt.Check(t, qt.Equals(p.Frames(t.Context(), target.PID, []uint64{target.main})[0].Function,
		"main"))
}

func TestFramesAreCounted(t *testing.T) {
	testprog.LeakCheck(t)
	target := start(t)
	s := stack.NewSymbolizer("")
	defer s.Close()
	beginning := target.main - target.main%4096 // of the program's code: before all functions
	s.Frames(t.Context(), target.PID, []uint64{target.main, 1, 1})
	qt.Check(t, qt.Equals(s.Counts(), stack.Counts{Frames: 3, NoFile: 2}))
	s.Frames(t.Context(), target.PID, []uint64{beginning + 1})
	qt.Check(t, qt.Equals(s.Counts(), stack.Counts{Frames: 4, NoFile: 2, NoFunction: 1}))
	qt.Check(t, qt.Equals(s.Counts().NoFile+s.Counts().NoFunction, 3))
}

// A context that has ended keeps files from being read, but not what is known
// from being told.
func TestFramesEndWithTheContext(t *testing.T) {
	testprog.LeakCheck(t)
	target := start(t)
	s := stack.NewSymbolizer("")
	defer s.Close()
	ended, end := context.WithCancel(t.Context())
	end()
	frame := s.Frames(ended, target.PID, []uint64{target.main})[0]
	qt.Check(t, qt.Equals(frame.Function, ""))
	qt.Check(t, qt.Equals(frame.File, target.path))
	qt.Check(t, qt.Equals(s.Frames(t.Context(), target.PID, []uint64{target.main})[0].Function,
		"main"))
	qt.Check(t, qt.Equals(s.Frames(ended, target.PID, []uint64{target.main})[0].Function, "main"))
}

// The kernel's code in each process has names, and tables to unwind by.
func TestFramesOfTheVDSO(t *testing.T) {
	testprog.LeakCheck(t)
	target := start(t)
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", target.PID))
	qt.Assert(t, qt.IsNil(err))
	var begins, ends uint64
	for line := range strings.Lines(string(maps)) {
		if strings.Contains(line, "[vdso]") {
			_, err = fmt.Sscanf(line, "%x-%x", &begins, &ends)
			qt.Assert(t, qt.IsNil(err))
		}
	}
	memory, err := os.Open(fmt.Sprintf("/proc/%d/mem", target.PID))
	qt.Assert(t, qt.IsNil(err))
	defer memory.Close()
	code, err := elf.NewFile(io.NewSectionReader(memory, int64(begins), int64(ends-begins)))
	qt.Assert(t, qt.IsNil(err))
	symbols, err := code.DynamicSymbols()
	qt.Assert(t, qt.IsNil(err))
	s := stack.NewSymbolizer("")
	defer s.Close()
	found := false
	for _, symbol := range symbols {
		if elf.ST_TYPE(symbol.Info) != elf.STT_FUNC || !strings.HasSuffix(symbol.Name, "clock_gettime") {
			continue
		}
		found = true
		frame := s.Frames(t.Context(), target.PID, []uint64{begins + symbol.Value + 1})[0]
		qt.Check(t, qt.Matches(frame.Function, `(__(vdso|kernel)_)?clock_gettime`))
		qt.Check(t, qt.Equals(frame.File, "[vdso]"))
		qt.Check(t, qt.Equals(frame.Offset, 1))
	}
	qt.Check(t, qt.IsTrue(found))
}

// The names of a file that was deleted, of a process that has ended.
func TestFramesOfADeletedFile(t *testing.T) {
	testprog.LeakCheck(t)
	contents, err := os.ReadFile(testprog.Path(t, "target-pie"))
	qt.Assert(t, qt.IsNil(err))
	path := filepath.Join(t.TempDir(), "program")
	qt.Assert(t, qt.IsNil(os.WriteFile(path, contents, 0o755)))
	target := startFile(t, path)
	s := stack.NewSymbolizer("")
	defer s.Close()
	s.Remember(target.PID)
	target.Kill()
	qt.Assert(t, qt.IsNil(os.Remove(path)))
	qt.Check(t, qt.Equals(s.Frames(t.Context(), target.PID, []uint64{target.main})[0].Function,
		"main"))
}

// A program is often copied over the one before, whose processes may still be
// remembered.
func TestFramesOfAFileThatIsWrittenAnew(t *testing.T) {
	testprog.LeakCheck(t)
	path := filepath.Join(t.TempDir(), "program")
	s := stack.NewSymbolizer("")
	defer s.Close()
	for _, name := range []string{"target-pie", "target-static"} {
		contents, err := os.ReadFile(testprog.Path(t, name))
		qt.Assert(t, qt.IsNil(err))
		qt.Assert(t, qt.IsNil(os.WriteFile(path, contents, 0o755)))
		target := startFile(t, path)
		frame := s.Frames(t.Context(), target.PID, []uint64{target.main})[0]
		qt.Check(t, qt.Equals(frame.Function, "main"), qt.Commentf("%s", name))
		target.Kill()
	}
}

func TestCloseForgets(t *testing.T) {
	testprog.LeakCheck(t)
	target := start(t)
	s := stack.NewSymbolizer("")
	s.Remember(target.PID)
	qt.Assert(t, qt.IsNil(s.Close()))
	qt.Assert(t, qt.IsNil(s.Close()))
	target.Kill()
	qt.Check(t, qt.Equals(s.Frames(t.Context(), target.PID, []uint64{target.main})[0].File, ""))
}

// A signal handler returns to the first byte of a function, which no call is
// before.
func TestFunctionThatSignalHandlersReturnTo(t *testing.T) {
	target := startFile(t, testprog.Path(t, "target-static"))
	file, err := debuginfo.Open(target.path)
	qt.Assert(t, qt.IsNil(err))
	defer file.Close()
	main, err := file.Symbol("main")
	qt.Assert(t, qt.IsNil(err))
	returns, err := file.Symbol("__restore_rt")
	if err != nil {
		testneeds.Missing(t, "the C library has no __restore_rt: %v", err)
	}
	stackOf := []uint64{target.main, target.main - main.Value + returns.Value}
	s := stack.NewSymbolizer("")
	defer s.Close()
	frames := s.Frames(t.Context(), target.PID, stackOf)
	qt.Check(t, qt.Equals(frames[1].Function, "__restore_rt"))
	qt.Check(t, qt.Equals(frames[1].Offset, 0))
	p := stack.NewProfile(s, profile.ValueType{Type: "hits", Unit: "count"})
	p.Add(t.Context(), target.PID, stackOf, []int64{1}, nil)
	var folded strings.Builder
	qt.Assert(t, qt.IsNil(p.WriteFolded(t.Context(), &folded)))
	qt.Check(t, qt.Equals(folded.String(), "__restore_rt;main 1\n"))
}
