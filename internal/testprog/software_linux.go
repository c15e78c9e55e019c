// SPDX-License-Identifier: BSD-2-Clause

package testprog

import (
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gousdt/gousdt/internal/testneeds"
)

// Software is a running program of somebody else's making. [Process.Command] is
// what it understands; firing groups is not.
type Software struct {
	*Process
	// File has the probes: the program itself, or a library that it maps.
	File string
}

// Python is a running interpreter. [Python.Call] and [Python.Collect] make it
// pass its probes.
type Python struct {
	Software
	// What the probe function__entry passes when [Python.Call] is called: the
	// file, the function and the line where the function begins.
	Script   string
	Function string
	Line     int
}

// pythonScript obeys commands, one line at a time. Python 3.11 passes the
// probes of functions only while somebody profiles, so somebody does.
const pythonScript = `import gc
import sys

sys.setprofile(lambda frame, event, argument: None)


def traced_function():
    return 1


for line in sys.stdin:
    if line == "call\n":
        traced_function()
    elif line == "collect\n":
        gc.collect()
    print("ok", flush=True)
`

// StartPython runs the system's Python 3. It needs one that was configured with
// DTrace probes, as Debian's is: with function__entry, function__return, line,
// gc__start, gc__done and others, each with a semaphore.
func StartPython(t testing.TB) *Python {
	t.Helper()
	interpreter, file, err := findPython()
	if err != nil {
		testneeds.Missing(t, "%v", err)
	}
	script := filepath.Join(t.TempDir(), "traced.py")
	if err := os.WriteFile(script, []byte(pythonScript), 0o644); err != nil {
		t.Fatal(err)
	}
	before, _, _ := strings.Cut(pythonScript, "def ")
	// -I and -S: nothing of the user's runs before the script.
	process := StartCommand(t, exec.Command(interpreter, "-I", "-S", script))
	python := &Python{
		Software: Software{Process: process, File: file},
		Script:   script,
		Function: "traced_function",
		Line:     strings.Count(before, "\n") + 1,
	}
	process.must("ready")
	return python
}

// Call calls the script's function once.
func (p *Python) Call() {
	p.t.Helper()
	p.must("call")
}

// Collect collects garbage once.
func (p *Python) Collect() {
	p.t.Helper()
	p.must("collect")
}

// findPython returns an interpreter and the file with its probes, which is the
// interpreter itself or its library. Not the first python3 in PATH: that may be
// a script that starts another.
func findPython() (interpreter, file string, err error) {
	interpreters, _ := filepath.Glob("/usr/bin/python3.[0-9]*")
	slices.Reverse(interpreters)
	for _, interpreter := range interpreters {
		if hasProbes(interpreter) {
			return interpreter, interpreter, nil
		}
		libraries, _ := filepath.Glob("/usr/lib*/lib" + filepath.Base(interpreter) + ".so.*")
		for _, library := range libraries {
			if needs(interpreter, filepath.Base(library)) && hasProbes(library) {
				return interpreter, library, nil
			}
		}
	}
	return "", "", fmt.Errorf("needs a Python 3 with probes in /usr/bin (Debian: python3), found %q", interpreters)
}

// hasProbes looks for the section of the notes only.
func hasProbes(path string) bool {
	f, err := elf.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	return f.Section(".note.stapsdt") != nil
}

func needs(path, library string) bool {
	f, err := elf.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	libraries, err := f.ImportedLibraries()
	return err == nil && slices.Contains(libraries, library)
}

// Throw is a running C++ program.
type Throw struct{ Software }

// StartThrow runs a C++ program that passes libstdc++'s probes throw, catch and
// rethrow when [Throw.Throw] is called. File is the libstdc++ that it maps.
func StartThrow(t testing.TB) *Throw {
	t.Helper()
	process := Start(t, "throw")
	process.must("ready")
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", process.PID))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(maps)) {
		// The path is the last field and the only one with a slash.
		if i := strings.Index(line, "/"); i >= 0 && strings.Contains(line, "/libstdc++.so") {
			library := strings.TrimSpace(line[i:])
			if !hasProbes(library) {
				testneeds.Missing(t, "needs a libstdc++ with probes, %s has none", library)
			}
			return &Throw{Software{Process: process, File: library}}
		}
	}
	t.Fatalf("the program maps no libstdc++:\n%s", maps)
	return nil
}

// Throw throws one exception, catches it, rethrows it and catches it again: the
// probes pass as throw, catch, rethrow, catch.
func (p *Throw) Throw() {
	p.t.Helper()
	p.must("throw")
}

// ThrowFromSignal throws one exception and catches it within a signal's
// handler, handle, that interrupts what the function interrupted has called.
// Then it is [Throw.Throw].
func (p *Throw) ThrowFromSignal() {
	p.t.Helper()
	p.must("signal")
}

// ThrowFrom is [Throw.Throw] from so many calls deep of the function descend,
// which main has called through throw_again once already, and which calls
// throw_it.
func (p *Throw) ThrowFrom(levels int) {
	p.t.Helper()
	p.must("%d", levels)
}
