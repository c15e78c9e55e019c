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
.starts a line

Terms
  arg0 arg1...  by number

Examples
  tool -p 12 'a\b'
  A   B
`

func TestHelpFlags(t *testing.T) {
	qt.Check(t, qt.DeepEquals(HelpFlags(text), []Flag{
		{"-p", "PID,...", "to processes"}, {"--pid", "PID,...", "to processes"},
		{"--mode", "MODE", "how"}, {"--bytes", "N:LENGTH,...", "so many"},
		{"--stats", "", "say what it costs"}, {"--slow", "TIME", "two values"},
		{"--either", "N:M", "one of two"}, {"--or", "N:M", "one of two"},
	}))
}

func TestMan(t *testing.T) {
	page := Man("tool", "tool 1.0\n", text)
	for _, part := range []string{
		".TH TOOL 1 \"\" \"tool 1.0\"", ".SH NAME\ntool \\- does things: many of them\n",
		".SH SYNOPSIS\n.nf\ntool [FLAGS] FILE...\ntool [FLAGS] \\-\\- COMMAND\n.fi\n",
		".SH \"WHAT IS DONE\"\n.nf\n", "\n  \\fB\\-p\\fR, \\fB\\-\\-pid\\fR PID,...  to processes; that\n",
		"\n\\&.starts a line\n",
		".SH \"EXAMPLES\"\n.nf\n  tool \\fB\\-p\\fR 12 'a\\eb'\n  A   B\n.fi",
	} {
		qt.Check(t, qt.StringContains(page, part))
	}
}

func complete(words ...string) string {
	c := &completer{
		flags: HelpFlags(text),
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
