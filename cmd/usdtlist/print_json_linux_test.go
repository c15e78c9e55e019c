// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"fmt"
	"io"
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

// A stranger's file can have one probe with millions of arguments.
func TestJSONIsPrintedAsItGoes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hostile.so")
	var notes []testprog.Note
	for i := range 100 {
		notes = append(notes, testprog.Note{Provider: "p", Name: "n", Arguments: strings.Repeat("1 ", 255) + fmt.Sprint(i)})
	}
	testprog.WriteNotes(t, path, notes)
	var stdout largest
	qt.Assert(t, qt.Equals(run([]string{"--json", path}, &stdout, io.Discard), 0))
	qt.Check(t, qt.IsTrue(stdout < 100_000), qt.Commentf("%d bytes at once", stdout))
}
