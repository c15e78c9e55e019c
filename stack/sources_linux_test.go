// SPDX-License-Identifier: BSD-2-Clause

package stack

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/debuginfo"
	"github.com/gousdt/gousdt/internal/testneeds"
)

// waiting has processes of a program with lines, at fixed addresses.
type waiting struct {
	*Symbolizer
	t    *testing.T
	path string
	main uint64
}

func newWaiting(t *testing.T) waiting {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	qt.Assert(t, qt.IsNil(os.WriteFile(path+".c",
		[]byte("#include <unistd.h>\nint main(void) { for (;;) pause(); }\n"), 0o644)))
	out, err := exec.Command(testneeds.Tool(t, "gcc", "gcc"), "-g", "-no-pie", "-o", path,
		path+".c").CombinedOutput()
	qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", out))
	file, err := debuginfo.Open(path)
	qt.Assert(t, qt.IsNil(err))
	defer file.Close()
	main, err := file.Symbol("main")
	qt.Assert(t, qt.IsNil(err))
	s := NewSymbolizer("")
	s.Lines = true
	t.Cleanup(func() { qt.Check(t, qt.IsNil(s.Close())) })
	return waiting{s, t, path, main.Value}
}

// start starts a process, and waits until it has mapped the program.
func (w waiting) start() int {
	w.t.Helper()
	program := exec.Command(w.path)
	qt.Assert(w.t, qt.IsNil(program.Start()))
	w.t.Cleanup(func() { _ = program.Process.Kill(); _ = program.Wait() })
	pid := program.Process.Pid
	for range 100 {
		if w.Remember(pid); w.processes[pid].find(w.main) != nil {
			return pid
		}
		time.Sleep(10 * time.Millisecond)
	}
	w.t.Fatal("the program is not mapped")
	return 0
}

// checkLines checks that the lines of a process are known.
func (w waiting) checkLines(pid int) {
	w.t.Helper()
	w.Want(w.t.Context(), pid, []uint64{w.main})
	frame := w.Frames(w.t.Context(), pid, []uint64{w.main})[0]
	qt.Check(w.t, qt.Equals(frame.Source, w.path+".c:2"))
}

// Only some files are held open: the others are opened again for their lines.
func TestLinesOfAFileThatWasClosed(t *testing.T) {
	w := newWaiting(t)
	pid := w.start()
	w.mutex.Lock()
	for _, f := range slices.Clone(w.files.open) {
		if w.closeWhenRead(w.processes[pid], f); f.reading != nil {
			w.await(t.Context(), "", f.reading)
		}
	}
	w.unlock()
	w.checkLines(pid)
	qt.Check(t, qt.HasLen(w.files.open, 0))
}

// Lines of files that nobody maps any more do not count.
func TestLinesOfAFileThatWasForgotten(t *testing.T) {
	w := newWaiting(t)
	for range 2 {
		pid := w.start()
		w.checkLines(pid)
		holdings := map[bool]int{}
		for h := range w.memory.held {
			holdings[h.bytes > 0]++
		}
		qt.Check(t, qt.IsTrue(holdings[true] >= 3), qt.Commentf("tables, lines that are known, and all"))
		w.forget(pid)
		qt.Check(t, qt.HasLen(w.memory.held, 0))
		qt.Check(t, qt.Equals(w.memory.bytes, 0))
	}
}

// A process that has used up its share of memory takes no lines from others.
func TestLinesThatAnotherProcessMayNotHave(t *testing.T) {
	w := newWaiting(t)
	poor, rich := w.start(), w.start()
	w.processes[poor].bytes = budget{}
	w.Want(t.Context(), poor, []uint64{w.main})
	w.checkLines(rich)
	w.checkLines(poor)
}

// A file system can hold a read back until others have been read.
func TestLinesThatComeTooLate(t *testing.T) {
	w := newWaiting(t)
	synctest.Test(t, func(t *testing.T) {
		s := NewSymbolizer("")
		answer := make(chan struct{})
		f := &lineFile{open: func() *debuginfo.File {
			<-answer
			file, err := debuginfo.Open(w.path)
			qt.Check(t, qt.IsNil(err))
			return file
		}}
		payer := &process{lineTime: time.Second, bytes: budget{processBytes}}
		s.mutex.Lock()
		s.want(f, w.main, payer)
		s.unlock()
		s.awaitLines(t.Context())
		close(answer)
		synctest.Wait()
		qt.Check(t, qt.IsNil(f.info))
		s.mutex.Lock()
		defer s.unlock()
		found, isKnown := s.want(f, w.main, payer)
		qt.Check(t, qt.IsTrue(isKnown))
		qt.Check(t, qt.HasLen(found, 0))
	})
}
