// SPDX-License-Identifier: BSD-2-Clause

package proc

import (
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
)

// statOfBash is a real one.
const statOfBash = "6932 (bash) S 6931 6932 2382 34816 6962 4194304 1523 20456 3 17 1 2 45 12 20 0 2 0 5678901 8007680 1037 " +
	"18446744073709551615 94315812741120 94315813488725 140724603453440 0 0 0 65536 3686404 1266761467 1 0 0 17 1 0 0 0 0 0 " +
	"94315813725296 94315813773552 94316119908352 140724603460613 140724603460618 140724603460618 140724603465710 0\n"

func TestParseStat(t *testing.T) {
	s, err := parseStat([]byte(statOfBash))
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(string(s.command), "bash"))
	s.command = nil
	want := stat{
		state: 'S', parent: 6931, minorFaults: 1523, majorFaults: 3, threads: 2, startTime: 5678901,
		size: 8007680, startCode: 94315812741120, startStack: 140724603453440,
	}
	qt.Check(t, qt.IsTrue(equalStat(s, want)), qt.Commentf("%+v", s))
}

func equalStat(a, b stat) bool {
	return string(a.command) == string(b.command) && a.state == b.state && a.parent == b.parent &&
		a.minorFaults == b.minorFaults && a.majorFaults == b.majorFaults &&
		a.threads == b.threads &&
		a.startTime == b.startTime && a.size == b.size && a.startCode == b.startCode &&
		a.startStack == b.startStack
}

func TestParseStatWithAnyCommand(t *testing.T) {
	want, err := parseStat([]byte(statOfBash))
	qt.Assert(t, qt.IsNil(err))
	for _, command := range []string{"", ")", "(", "a b", ") R 1 1 (x", "tab\tnewline\n",
		"kworker/u8:3-events_unbound", "(sd-pam)"} {
		s, err := parseStat([]byte(strings.Replace(statOfBash, "(bash)", "("+command+")", 1)))
		qt.Assert(t, qt.IsNil(err), qt.Commentf("%q", command))
		qt.Check(t, qt.Equals(string(s.command), command))
		s.command = want.command
		qt.Check(t, qt.IsTrue(equalStat(s, want)), qt.Commentf("%q", command))
	}
}

func TestParseStatRefusesWhatTheKernelDoesNotWrite(t *testing.T) {
	short := strings.Join(strings.Fields(statOfBash)[:27], " ")
	for _, text := range []string{
		"", "1", "1 (", "1 )", ")1(", "1 (a)", "1 (a) S", short,
		strings.Replace(statOfBash, " 8007680 ", " -8007680 ", 1),
		strings.Replace(statOfBash, " 8007680 ", " 18446744073709551616 ", 1),
		strings.Replace(statOfBash, " 5678901 ", " x ", 1),
	} {
		_, err := parseStat([]byte(text))
		qt.Check(t, qt.ErrorIs(err, errMalformed), qt.Commentf("%q", text))
	}
}

func TestStatOfProcessesWithoutMemory(t *testing.T) {
	tests := []struct {
		name                  string
		stat                  stat
		hasNoMemory, headless bool
	}{
		{"program", stat{state: 'S', threads: 1, size: 4096}, false, false},
		{"thread of the kernel", stat{state: 'I', threads: 1}, true, false},
		{"zombie", stat{state: 'Z', threads: 1}, true, false},
		{"first thread has ended", stat{state: 'Z', threads: 3}, false, true},
	}
	for _, test := range tests {
		qt.Check(t, qt.Equals(test.stat.hasNoMemory(), test.hasNoMemory), qt.Commentf(test.name))
		qt.Check(t, qt.Equals(test.stat.isLeaderless(), test.headless), qt.Commentf(test.name))
	}
}

func TestParseDecimal(t *testing.T) {
	for text, want := range map[string]uint64{"0": 0, "7": 7, "18446744073709551615": 1<<64 - 1,
		"00012": 12} {
		got, ok := parseDecimal(text)
		qt.Check(t, qt.IsTrue(ok), qt.Commentf("%q", text))
		qt.Check(t, qt.Equals(got, want))
	}
	for _, text := range []string{"", "-1", "+1", " 1", "1 ", "a", "18446744073709551616",
		"99999999999999999999", "100000000000000000000"} {
		_, ok := parseDecimal(text)
		qt.Check(t, qt.IsFalse(ok), qt.Commentf("%q", text))
	}
}

func TestParsePID(t *testing.T) {
	for name, want := range map[string]int{"1": 1, "4194304": 4194304} {
		pid, ok := parsePID(name)
		qt.Check(t, qt.IsTrue(ok))
		qt.Check(t, qt.Equals(pid, want))
	}
	for _, name := range []string{"", "0", "01", "self", "thread-self", "1a", "99999999999"} {
		_, ok := parsePID(name)
		qt.Check(t, qt.IsFalse(ok), qt.Commentf("%q", name))
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add(statOfBash)
	f.Add(strings.Replace(statOfBash, "bash", ") R (", 1))
	f.Add("1 (a) S 1 2 3")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := parseStat([]byte(text))
		if err != nil {
			qt.Assert(t, qt.ErrorIs(err, errMalformed))
			qt.Assert(t, qt.IsTrue(equalStat(s, stat{})))
			return
		}
		qt.Assert(t, qt.IsTrue(strings.Contains(text, "("+string(s.command)+")")))
		qt.Assert(t, qt.IsTrue(strings.LastIndexByte(text, ')') > strings.IndexByte(text, '(')))
	})
}
