// SPDX-License-Identifier: BSD-2-Clause

package debuginfo

import (
	"debug/elf"
	"path/filepath"
	"testing"

	"github.com/go-quicktest/qt"
)

// installedFiles returns programs and libraries of this machine and others.
func installedFiles(t *testing.T) []string {
	t.Helper()
	var files []string
	for _, pattern := range []string{
		"../../elfnote/testdata/*.so", "../../elfnote/testdata/*.pie",
		"../../elfnote/testdata/*.exe",
		"/usr/lib/*/libstdc++.so.6", "/usr/lib/*/libc.so.6", "/usr/bin/python3.[0-9][0-9]",
		"/usr/*-linux-gnu*/lib/libc.so.6",
		"/usr/lib/jvm/*/lib/server/libjvm.so",
	} {
		found, err := filepath.Glob(pattern)
		qt.Assert(t, qt.IsNil(err))
		files = append(files, found...)
	}
	return files
}

// debug/elf is right about files that can be trusted.
func TestRealFilesAreReadAsDebugElfDoes(t *testing.T) {
	for _, path := range installedFiles(t) {
		t.Run(filepath.Base(path), func(t *testing.T) {
			peer, err := elf.Open(path)
			qt.Assert(t, qt.IsNil(err))
			defer peer.Close()
			f, err := Open(path)
			qt.Assert(t, qt.IsNil(err))
			defer f.Close()

			compareFunctions(t, f, peer)
		})
	}
}

// compareFunctions checks that each function is found by the name of one of its
// symbols, at its first and its last byte.
func compareFunctions(t *testing.T, f *File, peer *elf.File) {
	fs, err := f.Functions()
	qt.Assert(t, qt.IsNil(err))
	names := map[uint64]map[string]bool{}
	static, _ := peer.Symbols() // fails if there are none
	dynamic, _ := peer.DynamicSymbols()
	var functions []elf.Symbol
	for _, s := range append(static, dynamic...) {
		kind := elf.ST_TYPE(s.Info)
		if s.Section == elf.SHN_UNDEF || s.Name == "" || kind != elf.STT_FUNC &&
			kind != elf.STT_GNU_IFUNC {
			continue
		}
		functions = append(functions, s)
		if names[s.Value] == nil {
			names[s.Value] = map[string]bool{}
		}
		names[s.Value][s.Name] = true
	}
	for _, s := range functions {
		first, ok := fs.At(s.Value)
		if !ok || first.Address != s.Value || !names[s.Value][first.Name] {
			t.Fatalf("%#x: %+v, not %s", s.Value, first, s.Name)
		}
	}
	t.Logf("%d functions", len(functions))
}
