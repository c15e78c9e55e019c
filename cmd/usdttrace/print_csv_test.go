// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"encoding/csv"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/trace"
)

func TestCSVHasTextsAsTheyAre(t *testing.T) {
	for _, text := range []string{`SELECT "a" FROM b`, `C:\temp`, "two\nlines", `"quoted"`} {
		qt.Check(t, qt.Equals(csvValue(trace.ValueOf(text)), text))
	}
	qt.Check(t, qt.Equals(csvValue(trace.ValueOf(int64(-1))), "-1"))
}

// Programs name themselves, and people look at CSV on a terminal.
func TestCSVDoesNotDriveATerminal(t *testing.T) {
	print := func(escapes bool) string {
		var out strings.Builder
		p := &csvPrinter{out: csv.NewWriter(&out), escapes: escapes}
		p.record([]string{"command"}, []string{"\x1b[2J"})
		return out.String()
	}
	qt.Check(t, qt.Equals(print(false), "command\n\x1b[2J\n"))
	qt.Check(t, qt.Equals(print(true), "command\n"+`\x1b[2J`+"\n"))
}
