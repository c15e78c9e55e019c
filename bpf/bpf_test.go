// SPDX-License-Identifier: BSD-2-Clause

package bpf_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
	"github.com/gousdt/gousdt/bpf"
	"github.com/gousdt/gousdt/internal/testneeds"
)

func TestHeadersAreTheFiles(t *testing.T) {
	paths, err := filepath.Glob("*.h")
	qt.Assert(t, qt.IsNil(err))
	entries, err := bpf.Headers().ReadDir(".")
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.Equals(len(entries), len(paths)))
	for _, path := range paths {
		want, err := os.ReadFile(path)
		qt.Assert(t, qt.IsNil(err))
		got, err := bpf.Headers().ReadFile(path)
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.Equals(string(got), string(want)))
	}
}

func TestHeadersCompileFromWhereAToolWroteThem(t *testing.T) {
	include := t.TempDir()
	qt.Assert(t, qt.IsNil(os.CopyFS(filepath.Join(include, "bpf"), bpf.Headers())))
	compiler := compilers(t)[0]
	source, err := filepath.Abs("testdata/mistakes.bpf.c")
	qt.Assert(t, qt.IsNil(err))
	t.Chdir(include) // so that -I .. is not this module
	mustCompile(t, compiler, "x86", source, "-I", include)
}

// The line of the documentation names the directory of the headers, also where
// that has a blank, as the last thing that go generate and a shell have seen.
func TestDocumentedLineFindsTheHeaders(t *testing.T) {
	testneeds.Tool(t, "sh", "dash")
	testneeds.Tool(t, "go", "golang-go")
	here, err := filepath.Abs("..")
	qt.Assert(t, qt.IsNil(err))
	dir := filepath.Join(t.TempDir(), "a blank")
	qt.Assert(t, qt.IsNil(os.Mkdir(dir, 0o777)))
	qt.Assert(t, qt.IsNil(os.Symlink(here, filepath.Join(dir, "gousdt"))))
	for _, name := range []string{"doc.go", "../docs/ebpf.md"} {
		text, err := os.ReadFile(name)
		qt.Assert(t, qt.IsNil(err))
		line := regexp.MustCompile(`//go:generate sh .*`).FindString(string(text))
		command := strings.Replace(line, "go run github.com/cilium/ebpf/cmd/bpf2go",
			`printf \"%s\\n\"`, 1)
		qt.Assert(t, qt.Not(qt.Equals(command, line)))
		for file, content := range map[string]string{
			"go.mod": "module example.com/probe\n\ngo 1.25\n\nrequire github.com/gousdt/gousdt v0.0.0\n\n" +
				"replace github.com/gousdt/gousdt => ./gousdt\n",
			"main.go": "package main\n\nimport _ \"github.com/gousdt/gousdt/bpf\"\n\n" + command +
				"\n\nfunc main() {}\n",
		} {
			qt.Assert(t, qt.IsNil(os.WriteFile(filepath.Join(dir, file), []byte(content), 0o666)))
		}
		generate := exec.Command("go", "generate", "main.go")
		generate.Dir = dir
		generate.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off", "GOPROXY=off")
		out, err := generate.CombinedOutput()
		qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", out))
		include, _ := filepath.EvalSymlinks(filepath.Join(dir, "gousdt"))
		found := false
		for argument := range strings.Lines(string(out)) {
			if at, ok := strings.CutPrefix(strings.TrimSpace(argument), "-I"); ok {
				real, err := filepath.EvalSymlinks(at)
				qt.Assert(t, qt.IsNil(err))
				qt.Check(t, qt.Equals(real, include))
				found = true
			}
		}
		qt.Check(t, qt.IsTrue(found), qt.Commentf("%s", out))
	}
}
