// SPDX-License-Identifier: BSD-2-Clause

package commandline

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
)

// parsed is what a command line with some flags means.
type parsed struct {
	Verbose, All bool
	Format, Sum  string
	PIDs         []string
	Operands     []string
}

func parse(args ...string) (p parsed, err error) {
	var f Flags
	f.Switch(&p.Verbose, "v", "verbose")
	f.Switch(&p.All, "a", "all")
	f.Text(&p.Format, "format")
	f.Instead("use --pid", "nothing")
	f.Once(&p.Sum, "sum")
	f.List(func(pid string) error {
		if pid == "x" {
			return errors.New("want a number")
		}
		p.PIDs = append(p.PIDs, pid)
		return nil
	}, "p", "pid")
	p.Operands, err = f.Parse(args)
	return p, err
}

func TestParse(t *testing.T) {
	for line, want := range map[string]parsed{
		"":                 {},
		"one two":          {Operands: []string{"one", "two"}},
		"one -v two --all": {Verbose: true, All: true, Operands: []string{"one", "two"}},
		"-va":              {Verbose: true, All: true},
		"-p 12 -p 13":      {PIDs: []string{"12", "13"}},
		"-p 12,13":         {PIDs: []string{"12", "13"}},
		"-vp 12 one": {Verbose: true, PIDs: []string{"12"},
			Operands: []string{"one"}},
		"-vp12 one": {Verbose: true, PIDs: []string{"12"},
			Operands: []string{"one"}},
		"-p=12":                     {PIDs: []string{"12"}},
		"--pid 12 --pid=13":         {PIDs: []string{"12", "13"}},
		"-p -1":                     {PIDs: []string{"-1"}},
		"--format= --format a=b":    {Format: "a=b"},
		"--format first --format=b": {Format: "b"},
		"--sum a":                   {Sum: "a"},
		"- one":                     {Operands: []string{"-", "one"}},
		"one -- -v --":              {Operands: []string{"one", "-v", "--"}},
		"--format -- -v":            {Format: "--", Verbose: true},
	} {
		t.Run(line, func(t *testing.T) {
			got, err := parse(strings.Fields(line)...)
			qt.Assert(t, qt.IsNil(err))
			qt.Check(t, qt.DeepEquals(got, want))
		})
	}
}

func TestRest(t *testing.T) {
	var f Flags
	var verbose bool
	var rest []string
	f.Switch(&verbose, "v")
	f.Rest = func(words []string) error { rest = words; return nil }
	operands, err := f.Parse([]string{"one", "--", "-v", "--", "two"})
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.DeepEquals(operands, []string{"one"}))
	qt.Check(t, qt.DeepEquals(rest, []string{"-v", "--", "two"}))
	qt.Check(t, qt.IsFalse(verbose))
	f.Rest = func([]string) error { return errors.New("refused") }
	_, err = f.Parse([]string{"--"})
	qt.Check(t, qt.ErrorMatches(err, "refused"))
}

func TestParseErrors(t *testing.T) {
	for line, want := range map[string]string{
		"--nothing":       "--nothing: use --pid",
		"--nothin":        "no such flag: --nothin",
		"--nonsense":      "no such flag: --nonsense",
		"--nonsense=a":    "no such flag: --nonsense",
		"--v":             "no such flag: --v",
		"-vx":             "no such flag: -x",
		"-format a":       "no such flag: -format (it is written --format)",
		"-format=a":       "no such flag: -format (it is written --format)",
		"--all=yes":       "--all takes no value",
		"--format":        "--format needs a value",
		"--sum a --sum b": `--sum "b": is given a second time`,
		"-vp":             "-p needs a value",
		"-p x":            `-p "x": want a number`,
		"--pid=12,x one":  `--pid "12,x": want a number`,
	} {
		t.Run(line, func(t *testing.T) {
			_, err := parse(strings.Fields(line)...)
			qt.Check(t, qt.ErrorMatches(err, regexpQuote(want)))
		})
	}
}

func regexpQuote(s string) string {
	return strings.NewReplacer("(", `\(`, ")", `\)`).Replace(s)
}

func TestSplit(t *testing.T) {
	for list, want := range map[string][]string{
		"":                       {""},
		"comm":                   {"comm"},
		"comm, str(arg0,3),pid":  {"comm", "str(arg0,3)", "pid"},
		`p:a[b,c],p:a\,b\[,last`: {"p:a[b,c]", `p:a\,b\[`, "last"},
		`),a`:                    {")", "a"},
		`a\`:                     {`a\`},
	} {
		t.Run(list, func(t *testing.T) { qt.Check(t, qt.DeepEquals(Split(list), want)) })
	}
}

func TestParsePIDs(t *testing.T) {
	pids, err := ParsePIDs("4194304")
	qt.Check(t, qt.IsNil(err))
	qt.Check(t, qt.DeepEquals(pids, []int{4194304}))
	for _, s := range []string{"", "0", "-1", "no such name", "4294967296", "1 "} {
		_, err := ParsePIDs(s)
		qt.Check(t, qt.ErrorMatches(err, "want the number of a process, or its name|"+
			"no process has that name; .*"), qt.Commentf("%q", s))
	}
}

func TestIsPattern(t *testing.T) {
	t.Chdir(t.TempDir())
	qt.Assert(t, qt.IsNil(os.WriteFile("a:b", nil, 0o644)))
	path := filepath.Join("dir", "c:d")
	for word, want := range map[string]bool{
		"a:b": false, "c:d": true, "gc*": true, "[ab]": true, "a?": true,
		"libc.so.6": false, "/a:b*": false, "./c:d": false, "../c:d": false, path: true,
	} {
		qt.Check(t, qt.Equals(IsPattern(word, false), want), qt.Commentf(word))
	}
	qt.Check(t, qt.IsTrue(IsPattern("a:b", true)),
		qt.Commentf("a process has another current directory"))
}

func TestParseTime(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"2": 2 * time.Second, "0.5": 500 * time.Millisecond, "500ms": 500 * time.Millisecond,
		"2m": 2 * time.Minute,
	} {
		for _, parse := range []func(string) (time.Duration, error){ParseTime, ParseLeast} {
			got, err := parse(text)
			qt.Check(t, qt.IsNil(err))
			qt.Check(t, qt.Equals(got, want))
		}
	}
	for _, text := range []string{"", "-1", "s", "1x", "nan", "inf", "1e99", "-5ms"} {
		_, err := ParseLeast(text)
		qt.Check(t, qt.ErrorMatches(err, "want seconds, or a number with its unit, .*"),
			qt.Commentf("%q", text))
	}
	_, err := ParseTime("0")
	qt.Check(t, qt.IsNotNil(err))
	least, err := ParseLeast("0s")
	qt.Check(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(least, 0))
}
