// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
)

func TestCommands(t *testing.T) {
	var got [][2]string
	for _, c := range commands("$ one\nout\nmore\n$ two \\\n\tmore\n$ echo $?\n2\n") {
		got = append(got, [2]string{c.line, c.output})
	}
	qt.Check(t, qt.DeepEquals(got, [][2]string{{"one", "out\nmore\n"}, {"two \\\n\tmore", ""},
		{"echo $?", "2\n"}}))
}

func TestLinesAreComparedButForNumbers(t *testing.T) {
	const printed = "usdttrace: watching 12 sites\nNAME  SITES  0x4711\nquery  3.5ms  ####\n"
	for line, want := range map[string]bool{
		"usdttrace: watching 1 sites": true,
		"usdttrace: watching one":     false,
		"usdttrace: wat...":           true,
		"NAME SITES 0x12ab":           true,
		"query  17us  #":              true,
		"query  17 rows  #":           false,
		"query":                       false,
	} {
		qt.Check(t, qt.Equals(hasLine(printed, line), want), qt.Commentf("%s", line))
	}
}

func TestHeaders(t *testing.T) {
	for line, want := range map[string]bool{
		"PROVIDER    NAME   SITES":           true,
		"STR(QUERY, 40)  COUNT   RATE     %": true,
		"  FROM      TO  COUNT      %":       true,
		"END   1215  404.9/s":                false,
		"12:00:01  7":                        false,
		"File: x":                            false,
	} {
		qt.Check(t, qt.Equals(header.MatchString(line), want), qt.Commentf("%s", line))
	}
}

func TestOutputIsCut(t *testing.T) {
	long := cut(strings.Repeat("line\n", 20)+"last\n", maxLines)
	lines := strings.Split(strings.TrimSuffix(long, "\n"), "\n")
	qt.Check(t, qt.HasLen(lines, maxLines))
	qt.Check(t, qt.Equals(lines[maxLines-2], "..."))
	qt.Check(t, qt.Equals(lines[maxLines-1], "last"))
	qt.Check(t, qt.Equals(cut("", maxLines), ""))
	qt.Check(t, qt.Equals(cut("usdttrace: left out: process 1: x\nb  \n", maxLines), "b\n"))
	qt.Check(t, qt.Equals(cut(strings.Repeat("x", maxWidth+1), maxLines),
		strings.Repeat("x", maxWidth)+"...\n"))
}

func TestWhatIsCompared(t *testing.T) {
	const output = "watching\nTIME  PID\n12  3\nDONE\n"
	for _, test := range []struct {
		line, output, how string
		want              []string
	}{
		{"a", output, "", []string{"watching", "TIME  PID", "DONE"}},
		{"a", output, exactly, []string{"watching", "TIME  PID", "12  3", "DONE"}},
		{"a -c b", output, "", []string{"TIME  PID", "DONE"}},
		{"a -c b", "hello\nyou\n", "", []string{"hello"}},
		{"a", "", exactly, nil},
	} {
		qt.Check(t, qt.DeepEquals(command{test.line, test.output}.compared(test.how), test.want))
	}
}

// A busy machine may print a line after more lines than are shown.
func TestWhatIsMissing(t *testing.T) {
	c := command{line: "a", output: "watching\nTIME  PID\n"}
	printed := "watching\n" + strings.Repeat("once more\n", 2*maxLines)
	qt.Check(t, qt.DeepEquals(c.missing(printed, ""), []string{"TIME  PID"}))
	qt.Check(t, qt.HasLen(c.missing(printed+"TIME    PID\nend\n", ""), 0))

	list := command{line: "usdtlist -v FILE", output: "File: a\n  Location: 0x12\n"}
	now := "File: a\n  Location: 0x34\n  Fires when it is time\n"
	qt.Check(t, qt.DeepEquals(list.unknown(now, exactly), []string{"  Fires when it is time"}))
	qt.Check(t, qt.HasLen(list.unknown(now, ""), 0))
}
