// SPDX-License-Identifier: BSD-2-Clause

package procfs

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
	qt.Check(t, qt.Equals(string(s.Command), "bash"))
	s.Command = nil
	want := Stat{
		State: 'S', Parent: 6931, MinorFaults: 1523, MajorFaults: 3, Threads: 2, StartTime: 5678901,
		Size: 8007680, StartCode: 94315812741120, StartStack: 140724603453440,
	}
	qt.Check(t, qt.IsTrue(equalStat(s, want)), qt.Commentf("%+v", s))
}

func equalStat(a, b Stat) bool {
	return string(a.Command) == string(b.Command) && a.State == b.State && a.Parent == b.Parent &&
		a.MinorFaults == b.MinorFaults && a.MajorFaults == b.MajorFaults &&
		a.Threads == b.Threads &&
		a.StartTime == b.StartTime && a.Size == b.Size && a.StartCode == b.StartCode &&
		a.StartStack == b.StartStack
}

func TestParseStatWithAnyCommand(t *testing.T) {
	want, err := parseStat([]byte(statOfBash))
	qt.Assert(t, qt.IsNil(err))
	for _, command := range []string{"", ")", "(", "a b", ") R 1 1 (x", "tab\tnewline\n",
		"kworker/u8:3-events_unbound", "(sd-pam)"} {
		s, err := parseStat([]byte(strings.Replace(statOfBash, "(bash)", "("+command+")", 1)))
		qt.Assert(t, qt.IsNil(err), qt.Commentf("%q", command))
		qt.Check(t, qt.Equals(string(s.Command), command))
		s.Command = want.Command
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
		qt.Check(t, qt.ErrorIs(err, ErrMalformed), qt.Commentf("%q", text))
	}
}

func TestStatOfProcessesWithoutMemory(t *testing.T) {
	tests := []struct {
		name     string
		stat     Stat
		headless bool
	}{
		{"program", Stat{State: 'S', Threads: 1, Size: 4096}, false},
		{"thread of the kernel", Stat{State: 'I', Threads: 1}, false},
		{"zombie", Stat{State: 'Z', Threads: 1}, false},
		{"first thread has ended", Stat{State: 'Z', Threads: 3}, true},
	}
	for _, test := range tests {
		qt.Check(t, qt.Equals(test.stat.IsLeaderless(), test.headless), qt.Commentf(test.name))
	}
}

func TestParseDecimal(t *testing.T) {
	for text, want := range map[string]uint64{"0": 0, "7": 7, "18446744073709551615": 1<<64 - 1,
		"00012": 12} {
		got, ok := ParseDecimal(text)
		qt.Check(t, qt.IsTrue(ok), qt.Commentf("%q", text))
		qt.Check(t, qt.Equals(got, want))
	}
	for _, text := range []string{"", "-1", "+1", " 1", "1 ", "a", "18446744073709551616",
		"99999999999999999999", "100000000000000000000"} {
		_, ok := ParseDecimal(text)
		qt.Check(t, qt.IsFalse(ok), qt.Commentf("%q", text))
	}
}

func TestParsePID(t *testing.T) {
	for name, want := range map[string]int{"1": 1, "4194304": 4194304} {
		pid, ok := ParsePID(name)
		qt.Check(t, qt.IsTrue(ok))
		qt.Check(t, qt.Equals(pid, want))
	}
	for _, name := range []string{"", "0", "01", "self", "thread-self", "1a", "99999999999"} {
		_, ok := ParsePID(name)
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
			qt.Assert(t, qt.ErrorIs(err, ErrMalformed))
			qt.Assert(t, qt.IsTrue(equalStat(s, Stat{})))
			return
		}
		qt.Assert(t, qt.IsTrue(strings.Contains(text, "("+string(s.Command)+")")))
		qt.Assert(t, qt.IsTrue(strings.LastIndexByte(text, ')') > strings.IndexByte(text, '(')))
	})
}
