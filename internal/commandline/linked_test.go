// SPDX-License-Identifier: BSD-2-Clause

package commandline

import (
	"bytes"
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/elffile"
	"github.com/gousdt/gousdt/internal/elffile/elfimage"
)

// linkedImage returns a library for x86-64 that needs others.
func linkedImage(rpath, runpath string, needed ...string) []byte {
	im := elfimage.New64()
	text := "\x00"
	offset := func(s string) uint64 {
		at := uint64(len(text))
		text += s + "\x00"
		return at
	}
	var words []uint64
	for _, name := range needed {
		words = append(words, uint64(elf.DT_NEEDED), offset(name))
	}
	if rpath != "" {
		words = append(words, uint64(elf.DT_RPATH), offset(rpath))
	}
	if runpath != "" {
		words = append(words, uint64(elf.DT_RUNPATH), offset(runpath))
	}
	const at = 0x700000
	words = append(words, uint64(elf.DT_STRTAB), at, uint64(elf.DT_STRSZ), uint64(len(text)))
	im.Segments = append(im.Segments, elfimage.Segment{Kind: elf.PT_LOAD, Address: at, Flags: elf.PF_R,
		Data: []byte(text)})
	im.AddDynamic(words...)
	return im.Bytes()
}

func TestInterpreter(t *testing.T) {
	for _, test := range []struct{ name, data, want string }{
		{"none", "", ""},
		{"path", "/lib/ld.so\x00", "/lib/ld.so"},
		{"without an end", "/lib/ld.so", "/lib/ld.so"},
		{"too long", strings.Repeat("x", maxInterpreter+1), ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			im := elfimage.New64()
			im.Segments = append(im.Segments,
				elfimage.Segment{Kind: elf.PT_INTERP, Data: []byte(test.data)})
			file, err := elffile.New(bytes.NewReader(im.Bytes()))
			qt.Assert(t, qt.IsNil(err))
			qt.Check(t, qt.Equals(interpreter(file), test.want))
		})
	}
}

func TestLinked(t *testing.T) {
	t.Setenv("LD_PRELOAD", "")
	for _, test := range []struct {
		behaviour string
		files     map[string][]byte
		library   string // LD_LIBRARY_PATH
		want      []string
	}{
		{"by the cache, and what these need", map[string][]byte{
			"program":   linkedImage("", "", "liba.so"),
			"c/liba.so": linkedImage("", "", "libb.so"), "c/libb.so": linkedImage("", "")}, "",
			[]string{"c/liba.so", "c/libb.so"}},
		{"a path", map[string][]byte{"program": linkedImage("", "", "/none/liba.so")}, "",
			[]string{"/none/liba.so"}},
		{"DT_RUNPATH before the cache, relative to the file", map[string][]byte{
			"program":   linkedImage("", "/none:${ORIGIN}/d", "liba.so"),
			"d/liba.so": linkedImage("", ""), "c/liba.so": linkedImage("", "")}, "",
			[]string{"d/liba.so"}},
		{"DT_RUNPATH is not inherited", map[string][]byte{
			"program":   linkedImage("", "$ORIGIN/d", "liba.so"),
			"d/liba.so": linkedImage("", "", "libb.so"), "d/libb.so": linkedImage("", ""),
			"c/libb.so": linkedImage("", "")}, "", []string{"d/liba.so", "c/libb.so"}},
		{"DT_RPATH is inherited", map[string][]byte{
			"program":   linkedImage("$ORIGIN/d", "", "liba.so"),
			"d/liba.so": linkedImage("", "", "libb.so"), "d/libb.so": linkedImage("", ""),
			"c/libb.so": linkedImage("", "")}, "", []string{"d/liba.so", "d/libb.so"}},
		{"LD_LIBRARY_PATH before DT_RUNPATH", map[string][]byte{
			"program": linkedImage("", "$ORIGIN/d", "liba.so"), "d/liba.so": linkedImage("", ""),
			"e/liba.so": linkedImage("", "")}, "e", []string{"e/liba.so"}},
		{"those that need one another", map[string][]byte{
			"program": linkedImage("", "", "liba.so"), "c/liba.so": linkedImage("", "", "libb.so"),
			"c/libb.so": linkedImage("", "", "liba.so")}, "", []string{"c/liba.so", "c/libb.so"}},
		{"what is missing is left out", map[string][]byte{
			"program": linkedImage("", "", "libnone.so")}, "", nil},
		{"a script", map[string][]byte{"program": []byte("#!/bin/sh\n")}, "", nil},
	} {
		t.Run(test.behaviour, func(t *testing.T) {
			dir := t.TempDir()
			cached := make(map[string][]string)
			for name, data := range test.files {
				writeFile(t, filepath.Join(dir, name), data)
				if filepath.Dir(name) == "c" {
					cached[filepath.Base(name)] = []string{filepath.Join(dir, name)}
				}
			}
			t.Setenv("LD_LIBRARY_PATH", "")
			if test.library != "" {
				t.Setenv("LD_LIBRARY_PATH", filepath.Join(dir, test.library))
			}
			var want []string
			for _, name := range test.want {
				if !filepath.IsAbs(name) {
					name = filepath.Join(dir, name)
				}
				want = append(want, name)
			}
			qt.Check(t, qt.DeepEquals(linkedBy(filepath.Join(dir, "program"),
				func(name string) []string { return cached[name] }), want))
		})
	}
}

// The dynamic linker of this host finds no library that Linked does not.
func TestLinkedAgreesWithTheDynamicLinker(t *testing.T) {
	program, err := exec.LookPath("sh")
	qt.Assert(t, qt.IsNil(err))
	file, err := elffile.Open(program)
	qt.Assert(t, qt.IsNil(err))
	defer file.Close()
	if interpreter(file) == "" {
		return // linked statically
	}
	list, err := exec.Command(interpreter(file), "--list", program).Output()
	qt.Assert(t, qt.IsNil(err))
	found := Linked(program)
	for _, match := range regexp.MustCompile(`(?m)(/\S+) \(0x`).FindAllSubmatch(list, -1) {
		same := func(other string) bool {
			a, errA := os.Stat(other)
			b, errB := os.Stat(string(match[1]))
			return errA == nil && errB == nil && os.SameFile(a, b)
		}
		qt.Check(t, qt.IsTrue(slices.ContainsFunc(found, same)), qt.Commentf("%s: %v", match[1], found))
	}
}

func TestBeside(t *testing.T) {
	dir := t.TempDir()
	for name, data := range map[string][]byte{
		"bin/java": linkedImage("$ORIGIN:$ORIGIN/../lib", ""), "lib/liba.so": nil, "lib/modules": nil,
		"lib/server/libjvm.so": nil, "lib/server/deep/libb.so": nil, "bin/libc.so": nil,
	} {
		writeFile(t, filepath.Join(dir, name), data)
	}
	var names []string
	for _, path := range Beside(filepath.Join(dir, "bin/java")) {
		name, err := filepath.Rel(dir, path)
		qt.Assert(t, qt.IsNil(err))
		names = append(names, name)
	}
	qt.Check(t, qt.DeepEquals(names, []string{"bin/libc.so", "lib/liba.so", "lib/server/libjvm.so"}))
}

func writeFile(t *testing.T, path string, data []byte) {
	t.Helper()
	qt.Assert(t, qt.IsNil(os.MkdirAll(filepath.Dir(path), 0o755)))
	qt.Assert(t, qt.IsNil(os.WriteFile(path, data, 0o755)))
}
