// SPDX-License-Identifier: BSD-2-Clause

package commandline

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/testneeds"
)

const text = `Usage: tool [FLAGS] FILE...
       tool [FLAGS] -- COMMAND

Does things: many of them.

What is done
  FILE              to a file
  -p, --pid PID,...  to processes; that
                    .are there
  -- COMMAND [ARGUMENT...]  to a command
      --mode MODE   how:
                    fast   at once
                    slow   later
      --bytes N:LENGTH,...  so many
      --stats       say what it costs
      --slow TIME WORD...  two values
      --either N, --or N:M  one of two
The files are read.

Terms
  arg0 arg1...  by number

Examples
  tool -p 12 'a\b'
  A   B
`

func TestParseHelp(t *testing.T) {
	h := ParseHelp(text)
	qt.Check(t,
		qt.DeepEquals(h.Synopsis, []string{"tool [FLAGS] FILE...", "tool [FLAGS] -- COMMAND"}))
	qt.Assert(t, qt.HasLen(h.Blocks, 4))
	qt.Check(t, qt.DeepEquals(h.Blocks[1], Block{"What is done", []Item{
		{Head: "FILE", Lines: []string{"to a file"}},
		{Head: "-p, --pid PID,...", Flags: []Flag{{"-p", ""}, {"--pid", "PID,..."}},
			Lines: []string{"to processes; that", ".are there"}},
		{Head: "-- COMMAND [ARGUMENT...]", Lines: []string{"to a command"}},
		{Head: "--mode MODE", Flags: []Flag{{"--mode", "MODE"}},
			Lines: []string{"how:", "fast   at once", "slow   later"}},
		{Head: "--bytes N:LENGTH,...", Flags: []Flag{{"--bytes", "N:LENGTH,..."}},
			Lines: []string{"so many"}},
		{Head: "--stats", Flags: []Flag{{"--stats", ""}}, Lines: []string{"say what it costs"}},
		{Head: "--slow TIME WORD...", Flags: []Flag{{"--slow", "TIME"}},
			Lines: []string{"two values"}},
		{Head: "--either N, --or N:M", Flags: []Flag{{"--either", "N"}, {"--or", "N:M"}},
			Lines: []string{"one of two"}},
		{Lines: []string{"The files are read."}},
	}}))
	qt.Check(t, qt.DeepEquals(h.Blocks[2], Block{"Terms",
		[]Item{{Head: "arg0 arg1...", Lines: []string{"by number"}}}}))
	qt.Check(t, qt.DeepEquals(h.Blocks[3], Block{Examples,
		[]Item{{Lines: []string{`tool -p 12 'a\b'`, "A   B"}}}}))
}

func TestMan(t *testing.T) {
	page := ParseHelp(text).Man("tool", "tool 1.0\n")
	for _, part := range []string{
		".TH TOOL 1 \"\" \"tool 1.0\"", ".SH NAME\ntool \\- does things: many of them\n",
		".SH \"WHAT IS DONE\"",
		".TP\n.B \\-p, \\-\\-pid PID,...\nto processes; that\n\\&.are there\n",
		"how:\n.br\nfast   at once\n.br\nslow   later\n",
		".nf\ntool \\-p 12 'a\\eb'\nA   B\n.fi",
	} {
		qt.Check(t, qt.StringContains(page, part))
	}
}

func complete(words ...string) string {
	c := &completer{
		Help: ParseHelp(text),
		values: func(placeholder string, line []string) []word {
			switch placeholder {
			case "PID":
				return []word{{"12", "one"}, {"13", ""}, {"2", ""}}
			case "MODE":
				return []word{{"fast", ""}, {"slow", ""}}
			case "PATTERN":
				return []word{{"p:a", ""}, {"p:b", ""}, {"q:c\n", ""}}
			}
			return nil
		},
	}
	return c.complete(words)
}

func TestComplete(t *testing.T) {
	for line, want := range map[string]string{
		"":              "p:a\np:b\n:files\n",
		"p:a":           "p:a\n:files\n",
		"--p":           "--pid\tto processes\n",
		"--st":          "--stats\tsay what it costs\n",
		"-p ":           "12\tone\n13\n2\n",
		"--pid 1":       "12\tone\n13\n",
		"--pid 12,1":    "12,12\tone\n12,13\n",
		"--pid=2":       "--pid=2\n",
		"--mode s":      "slow\n",
		"--stats p":     "p:a\np:b\n:files\n",
		"p:a -- x --st": ":files\n",
		"--bytes ":      "",
		"--nonsense=":   "",
	} {
		qt.Check(t, qt.Equals(complete(strings.Split(line, " ")...), want), qt.Commentf("%q", line))
	}
	qt.Check(t, qt.Equals(complete(), ""))
}

func TestScriptsAreUnderstood(t *testing.T) {
	for _, shell := range Shells {
		script, err := CompletionScript(shell, "tool")
		qt.Check(t, qt.IsNil(err))
		qt.Check(t, qt.StringContains(script, "__complete"))
		// compinit looks at the first line only.
		qt.Check(t, qt.Equals(strings.HasPrefix(script, "#compdef tool\n"), shell == "zsh"))
	}
	_, err := CompletionScript("csh", "tool")
	qt.Check(t, qt.ErrorMatches(err, "want one of bash, zsh, fish"))

	bash := testneeds.Tool(t, "bash", "bash")
	// A tool that completes everything in the same way.
	script, err := CompletionScript("bash", "tool")
	qt.Assert(t, qt.IsNil(err))
	script += `
tool() { printf 'p:one\tfirst\np:two\n--mode=fast\n'; }
try() { COMP_LINE=$1 COMP_POINT=${#1}; _tool; echo "${COMPREPLY[@]}"; }
COMP_WORDBREAKS=$' \t\n"><=;|&(:'
try 'tool p:'
try 'tool --mode='
try 'tool -'
`
	cmd := exec.Command(bash, "--norc", "-c", script)
	out, err := cmd.CombinedOutput()
	qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", out))
	qt.Check(t,
		qt.Equals(string(out), "one two --mode=fast\np:one p:two fast\np:one p:two --mode=fast\n"))
}
