// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
)

func parseText(t *testing.T, name, text string) *file {
	t.Helper()
	dir := t.TempDir()
	qt.Assert(t, qt.IsNil(os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644)))
	f, err := parse(dir, name)
	qt.Assert(t, qt.IsNil(err))
	return f
}

func TestWideComments(t *testing.T) {
	words := strings.Repeat("word ", 20)
	word := strings.Repeat("word", 20)
	for _, tc := range []struct {
		name, text string
		want       []string
	}{
		{"narrow", "// " + words[:76] + "\n", nil},
		{"81 columns", "// " + words[:77] + "x\n",
			[]string{"a_test.go:3: comment is 81 columns wide, not 80 at most"}},
		{"a tab counts as four", "func f() {\n\t// " + words[:73] + "x\n}\n",
			[]string{"a_test.go:4: comment is 81 columns wide, not 80 at most"}},
		{"one word", "// " + word + "\n", nil},
		{"link", "// [Text]: https://" + word + "\n", nil},
		{"beside code", "var x = 1 // " + words + "\n", nil},
		{"directive", "//go:generate " + words + "\n", nil},
		{"directive in documentation", "//\t//go:generate " + words + words + "\n", nil},
		{"preformatted", "//\t" + words + "\n", nil},
		{"wide and preformatted", "//\t" + words + words + "\n",
			[]string{"a_test.go:3: comment is 206 columns wide, not 120 at most"}},
		{"output", "func f() {\n\t// Output:\n\t// " + words + "\n}\n", nil},
		{"in a raw string", "var x = `\n// " + words + "\n`\n", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := parseText(t, "a_test.go", "package a\n\n"+tc.text)
			qt.Assert(t, qt.DeepEquals(f.wide(), tc.want))
		})
	}
}

func TestWideCode(t *testing.T) {
	sum := strings.Repeat("1 + ", 24)
	for _, tc := range []struct {
		name, text string
		want       []string
	}{
		{"narrow", "var x = " + sum + "10000\n", nil},
		{"111 columns", "var x = " + sum + "1000000\n",
			[]string{"a_test.go:3: code is 111 columns wide, not 110 at most"}},
		{"a tab counts as four", "func f() {\n\tx := " + sum + "123456\n}\n",
			[]string{"a_test.go:4: code is 111 columns wide, not 110 at most"}},
		{"a text", "var x = \"" + sum + "1000000\"\n", nil},
		{"a text that takes less than half", "var x = " + sum + "len(\"100\")\n",
			[]string{"a_test.go:3: code is 114 columns wide, not 110 at most"}},
		{"in a raw string", "var x = `\n" + sum + "1000000\n`\n", nil},
		{"beside a comment", "var x = 1 // " + sum + sum + "\n", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := parseText(t, "a_test.go", "package a\n\n"+tc.text)
			qt.Assert(t, qt.DeepEquals(f.wide(), tc.want))
		})
	}
}

func TestTurnsThatAreReadTwice(t *testing.T) {
	for text, want := range map[string][]string{
		"// Weight is as how many sites it counts.":                  {"is as how"},
		"// The file, of which there\n// are three, ends by itself.": {"of which", "by itself"},
		"// Whoever\n// traces so\n// many waits in vain.":           {"Whoever", "so many", "in vain"},
		"// A list of which one is right; which is a choice.":        nil,
		"var x = `whoever`": nil,
	} {
		f := parseText(t, "a.go", "package a\n\n"+text+"\nvar y int\n")
		var got []string
		for _, problem := range f.turns() {
			got = append(got, strings.Split(problem, "\"")[1])
		}
		qt.Check(t, qt.DeepEquals(got, want), qt.Commentf("%s", text))
	}
}

func TestSkips(t *testing.T) {
	f := parseText(t, "a_test.go", `package a

func TestX(t *testing.T) {
	t.Skip("I do not like this kernel")
	h.t.Skipf("nor %s", "that")
	b.SkipNow()
	lines.Skip(3)
	testneeds.Root(t)
}
`)
	qt.Assert(t, qt.DeepEquals(f.skips(), []string{
		"a_test.go:4: a test is skipped by Skip: let internal/testneeds decide",
		"a_test.go:5: a test is skipped by Skipf: let internal/testneeds decide",
		"a_test.go:6: a test is skipped by SkipNow: let internal/testneeds decide",
	}))
	f.name = "internal/testneeds/needs.go"
	qt.Assert(t, qt.HasLen(f.skips(), 0))
}

func TestImports(t *testing.T) {
	text := "package usdt\n\nimport (\n\t\"os\"\n\t\"" + module + "elfnote\"\n\t\"" + module + "watch\"\n)\n"
	f := parseText(t, "a.go", text)
	f.name = "usdt/a.go"
	qt.Check(t, qt.DeepEquals(f.imports(), []string{
		"usdt/a.go:6: usdt does not import watch: see mayImport in tools/lint"}))
	for _, name := range []string{"usdt/a_test.go", "trace/a.go"} {
		f.name = name
		qt.Check(t, qt.HasLen(f.imports(), 0))
	}
}
