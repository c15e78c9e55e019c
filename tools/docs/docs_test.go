// SPDX-License-Identifier: BSD-2-Clause

package docs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
)

// page writes files into a directory, and returns the first one's document.
func page(t *testing.T, files ...string) *Document {
	t.Helper()
	dir := t.TempDir()
	for i := 0; i < len(files); i += 2 {
		path := filepath.Join(dir, files[i])
		qt.Assert(t, qt.IsNil(os.MkdirAll(filepath.Dir(path), 0o755)))
		qt.Assert(t, qt.IsNil(os.WriteFile(path, []byte(files[i+1]), 0o644)))
	}
	d, err := Read(filepath.Join(dir, files[0]))
	qt.Assert(t, qt.IsNil(err))
	return d
}

// block returns a fenced block after a comment.
func block(mark, kind, text string) string {
	return "Text.\n\n<!-- " + mark + " -->\n```" + kind + "\n" + text + "```\n\nMore.\n"
}

const program = `// SPDX-License-Identifier: BSD-2-Clause

package main

func main() {
	if true {
		run()
	}
}

func run() {
}
`

func TestDocumentIsPrintedAsItWas(t *testing.T) {
	source := block("workload: x exactly", "console", "$ a\n") + block("not run: y", "sh", "b\n") +
		"```\nopen"
	d := Parse("x.md", source)
	qt.Check(t, qt.Equals(d.String(), source))
	blocks := d.Blocks()
	qt.Assert(t, qt.HasLen(blocks, 3))
	qt.Check(t, qt.DeepEquals(blocks[0], &Block{5, "console",
		map[string]string{"workload": "x exactly"}, "$ a\n"}))
	qt.Check(t, qt.HasLen(blocks[2].Mark, 0))
}

func TestBlockProblems(t *testing.T) {
	for _, test := range []struct {
		name, text, want string
	}{
		{"a whole file", block("file: main.go", "go", strings.SplitN(program, "\n\n", 2)[1]), ""},
		{"a function", block("file: main.go func run", "go", "func run() {\n}\n"), ""},
		{"a body", block("body: main.go func main", "go", "if true {\n\trun()\n}\n"), ""},
		{"another body", block("body: main.go func main", "go", "run()\n"),
			"5: is not what the file has"},
		{"no such function", block("file: main.go func none", "go", "x\n"),
			"5: .*no line that begins with.*"},
		{"no such file", block("file: none.go", "go", "x\n"), "5: .*no such file.*"},
		{"commands", block("workload: none", "console", "$ true\n"), ""},
		{"commands of another kind", block("workload: none", "sh", "true\n"), "5: .*console.*"},
		{"a reason", block("not run: it takes a day", "sh", "true\n"), ""},
		{"no reason", block("not run: ", "sh", "true\n"), "5: why is it not run\\?"},
		{"nothing", "Text.\n\n```sh\ntrue\n```\n", "4: nothing checks this block.*"},
		{"a comment elsewhere", "<!-- not run: x -->\n\nText.\n\n```sh\ntrue\n```\n",
			"6: nothing checks this block.*"},
		{"json", "```json\n{\"a\":1}\n{}\n```\n", ""},
		{"malformed json", "```json\n{\"a\":1\n```\n", "2: unexpected EOF"},
		{"yaml", "```yaml\na: [1]\n```\n", ""},
		{"malformed yaml", "```yaml\na: [1\n```\n", "2: yaml: .*"},
		{"indented", "Text.\n\n    code\n    more\n", "3: indented code is not checked.*"},
		{"in a list", "- item\n\n    of it\n", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := page(t, "x.md", test.text, "main.go", program)
			problems := d.blockProblems(false)
			if test.want == "" {
				qt.Check(t, qt.HasLen(problems, 0))
				return
			}
			qt.Assert(t, qt.HasLen(problems, 1))
			qt.Check(t, qt.Matches(strings.TrimPrefix(problems[0], d.Path+":"), test.want+".*"))
		})
	}
}

func TestWordProblems(t *testing.T) {
	d := page(t, "x.md", "A program passes the probe.\nIt fires, `in vain`.\nAll in vain.\n"+
		"```text\nwhoever\n```\n")
	qt.Check(t, qt.DeepEquals(d.wordProblems(), problems{
		d.Path + `:1: "passes the probe": write a probe fires`,
		d.Path + `:3: "in vain": write without effect`,
	}))
}

func TestEveryProbeIsOnThePage(t *testing.T) {
	text, err := probes(filepath.Join("..", ".."))
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.StringContains(text, "\n| `sort__done` | `is_external`, `used` ("))

	_, err = probes(t.TempDir())
	qt.Check(t, qt.ErrorMatches(err, "no file of internal/defs/definitions defines probe .*"))
}

func TestLinkProblems(t *testing.T) {
	d := page(t, "x.md",
		"# A heading, `of` mine\n\n[1](#a-heading-of-mine) [2](y.md#y) [3](y.md#z) [4](z.md)\n"+
			"[5](https://example.org/z.md) [6](y.md#old) `[7](z.md)`\n", "y.md",
		"## Y\n\n<a id=\"old\"></a>\n")
	qt.Check(t, qt.DeepEquals(d.linkProblems(), problems{
		d.Path + ":3: links to y.md, which has no heading #z",
		d.Path + ":3: links to z.md, which is not there",
	}))
}

func TestPagesAreListed(t *testing.T) {
	d := page(t, "README.md", "[a](a.md#b)", "a.md", "", "b.md", "")
	root := filepath.Dir(d.Path)
	all := []*Document{d, Parse(filepath.Join(root, "a.md"), ""),
		Parse(filepath.Join(root, "b.md"), "")}
	qt.Check(t, qt.DeepEquals(unlisted(root, all),
		problems{filepath.Join(root, "b.md") + ":1: no README.md links to this page"}))
}

func TestCostsAreThoseMeasured(t *testing.T) {
	d := page(t, "README.md", "| [list](docs/measurements.md) | 2.03 ms | 9 ms |\n| else | 7 ms |\n",
		"docs/measurements.md", "| gousdt | 2.03 ms (1 … 3) |\n")
	found, err := measuredProblems(filepath.Dir(d.Path), []*Document{d})
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.DeepEquals(found, problems{d.Path + ":1: docs/measurements.md has no 9 ms"}))
}
