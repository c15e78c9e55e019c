// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/testprog"
)

// largest remembers the largest piece that is written.
type largest int

func (l *largest) Write(p []byte) (int, error) {
	*l = max(*l, largest(len(p)))
	return len(p), nil
}

// An untrusted file can have one probe with millions of arguments.
func TestJSONIsPrintedAsItGoes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hostile.so")
	var notes []testprog.Note
	for i := range 100 {
		notes = append(notes, testprog.Note{Provider: "p", Name: "n",
			Arguments: strings.Repeat("1 ", 255) + fmt.Sprint(i)})
	}
	testprog.WriteNotes(t, path, notes)
	var stdout largest
	qt.Assert(t, qt.Equals(run([]string{"--json", path}, &stdout, io.Discard), 0))
	qt.Check(t, qt.IsTrue(stdout < 100_000), qt.Commentf("%d bytes at once", stdout))
}

// Each line of a table is as wide as the longest name. A line for another tool
// is whole, or there is none.
func TestLongNamesAreCut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hostile.so")
	long := strings.Repeat("n", 1<<20)
	testprog.WriteNotes(t, path, []testprog.Note{{Provider: long, Name: long, Arguments: long},
		{Provider: "p", Name: "n"}})
	for _, args := range [][]string{{path}, {"-v", path}, {"--json", path}} {
		r := usdtlist(args...)
		qt.Check(t, qt.Equals(r.status, exitFound))
		qt.Check(t, qt.IsTrue(len(r.stdout) < 40_000), qt.Commentf("%d bytes", len(r.stdout)))
		qt.Check(t, qt.StringContains(r.stdout, "nnn..."))
	}
	r := usdtlist("--format", "bpftrace", path)
	qt.Check(t, qt.Equals(r.stdout, "usdt:"+path+":p:n\n"))
	qt.Check(t, qt.StringContains(r.stderr, "name of more than 4096 bytes"))
}

// Linkers make one of equal functions, with the probes in them.
func TestProbesAtOneInstructionAreNamed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "folded.so")
	testprog.WriteNotes(t, path, []testprog.Note{{Provider: "p", Name: "opened"},
		{Provider: "p", Name: "closed"}, {Provider: "p", Name: "alone", Apart: true}})
	const line = "  Same instruction: p:opened, p:closed, which each have the hits of all\n"
	for pattern, count := range map[string]int{"p:*": 2, "p:closed": 1, "p:alone": 0} {
		r := usdtlist("-v", path, pattern)
		qt.Check(t, qt.Equals(strings.Count(r.stdout, line), count), qt.Commentf("%s", r.stdout))
	}
}

func TestWritableCodeIsNamed(t *testing.T) {
	contents, err := os.ReadFile(testprog.Path(t, "target-pie"))
	qt.Assert(t, qt.IsNil(err))
	path := filepath.Join(t.TempDir(), "writable")
	qt.Assert(t, qt.IsNil(os.WriteFile(path, contents, 0o755)))
	r := usdtlist("-v", path, "*:three")
	qt.Check(t, qt.Not(qt.StringContains(r.stdout+r.stderr, "writable segment")))
	testprog.MakeCodeWritable(t, path)
	r = usdtlist("-v", path, "*:three")
	qt.Check(t, qt.StringContains(r.stdout, ", in a writable segment (RWX)\n"))
	qt.Check(t, qt.StringContains(r.stderr,
		"1 of the sites cannot be traced: their code is in a writable segment"))
}
