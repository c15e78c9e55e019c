// SPDX-License-Identifier: BSD-2-Clause

package bpf_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/go-quicktest/qt"
	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/usdt/bpf"
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
	t.Chdir(include) // so that -I .. does not have the header
	mustCompile(t, compiler, "x86", source, "-I", include)
}

// TestDocumentedLine checks that the documented line makes Go code in another
// module, and always the same.
func TestDocumentedLine(t *testing.T) {
	clang, strip := testneeds.Tool(t, "clang-14", "clang-14"), testneeds.Tool(t, "llvm-strip-14", "llvm-14")
	here, err := filepath.Abs("../..")
	qt.Assert(t, qt.IsNil(err))
	for _, name := range []string{"bpf.go", "../../docs/ebpf.md"} {
		text, err := os.ReadFile(name)
		qt.Assert(t, qt.IsNil(err))
		line := regexp.MustCompile(`//go:generate .*/bpf2go .*`).FindString(string(text))
		qt.Assert(t, qt.Not(qt.Equals(line, "")))
		var objects []string
		for range 2 {
			dir := filepath.Join(t.TempDir(), "a blank")
			qt.Assert(t, qt.IsNil(os.Mkdir(dir, 0o777)))
			write := func(name string, content []byte) {
				qt.Assert(t, qt.IsNil(os.WriteFile(filepath.Join(dir, name), content, 0o666)))
			}
			for from, to := range map[string][]string{
				"../../examples/bpf2go/python.bpf.c": {"python.bpf.c", "probe.bpf.c"},
				"../../go.sum":                       {"go.sum"},
			} {
				content, err := os.ReadFile(from)
				qt.Assert(t, qt.IsNil(err))
				for _, name := range to {
					write(name, content)
				}
			}
			write("go.mod", []byte("module example.com/probe\n\ngo 1.26\n\n"+
				"require github.com/gousdt/gousdt v0.0.0\n\n"+
				"replace github.com/gousdt/gousdt => "+here+"\n"))
			write("main.go", []byte("package main\n\n"+line+"\n\nfunc main() {}\n"))
			generate := exec.Command("go", "generate", "main.go")
			generate.Dir = dir
			generate.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off", "GOPROXY=off",
				"BPF2GO_CC="+clang, "BPF2GO_STRIP="+strip)
			out, err := generate.CombinedOutput()
			qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", out))
			made, err := filepath.Glob(filepath.Join(dir, "*_x86_bpfel.o"))
			qt.Assert(t, qt.IsNil(err))
			qt.Assert(t, qt.HasLen(made, 1))
			object, err := os.ReadFile(made[0])
			qt.Assert(t, qt.IsNil(err))
			objects = append(objects, string(object))
		}
		qt.Check(t, qt.IsTrue(objects[0] == objects[1]))
	}
}
