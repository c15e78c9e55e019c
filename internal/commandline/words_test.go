// SPDX-License-Identifier: BSD-2-Clause

package commandline

import (
	"os/exec"
	"strings"
	"testing"
	"unicode"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/testneeds"
)

func TestShellWord(t *testing.T) {
	bash := testneeds.Tool(t, "bash", "bash")
	for _, text := range []string{"/plain", "two words", "it's", `a\b"$HOME"`, "naïve",
		"\x1b[2J'\\x", "\xff\x01" + "1", "\u009b"} {
		word := ShellWord(text)
		qt.Check(t, qt.IsFalse(strings.ContainsFunc(word, unicode.IsControl)),
			qt.Commentf("%q", word))
		out, err := exec.Command(bash, "-c", "printf %s "+word).Output()
		qt.Assert(t, qt.IsNil(err), qt.Commentf("%q", word))
		qt.Check(t, qt.Equals(string(out), text))
	}
}
