// SPDX-License-Identifier: BSD-2-Clause

package bpf_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/go-quicktest/qt"
	"github.com/gousdt/gousdt/bpf"
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
