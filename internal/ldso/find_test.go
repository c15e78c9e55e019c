// SPDX-License-Identifier: BSD-2-Clause

package ldso

import (
	"debug/elf"
	"encoding/binary"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/elffile/elfimage"
	"github.com/gousdt/gousdt/internal/testneeds"
)

func writeFile(t *testing.T, path string, mode os.FileMode, data []byte) {
	t.Helper()
	qt.Assert(t, qt.IsNil(os.MkdirAll(filepath.Dir(path), 0o755)))
	qt.Assert(t, qt.IsNil(os.WriteFile(path, data, mode)))
}

func TestFind(t *testing.T) {
	wanted := Target{elf.EM_X86_64, elf.ELFCLASS64}
	other := elfimage.New64()
	other.Machine = elf.EM_AARCH64
	files := map[string][]byte{
		"/elf": elfimage.New64().Bytes(), "/arm": other.Bytes(), "/script": []byte("#!/bin/sh\n"),
		"/32": elfimage.New(elf.ELFCLASS32, binary.LittleEndian).Bytes(),
	}
	for _, test := range []struct {
		behaviour string
		cache     []cacheEntry // paths are of the files above
		programs  map[string]string
		name      string
		want      string
		err       string
	}{
		{"the exact name", []cacheEntry{{"libx.so.2", "/32", false}, {"libx.so.1", "/elf", false}},
			nil, "libx.so.1", "/elf", ""},
		{"a stale entry is passed over", []cacheEntry{{"libx.so.1", "/gone", false},
			{"libx.so.1", "/elf", false}}, nil, "libx.so.1", "/elf", ""},
		{"another machine's library is passed over", []cacheEntry{{"libx.so.1", "/arm", false},
			{"libx.so.1", "/elf", false}}, nil, "libx.so.1", "/elf", ""},
		{"a library of another class is passed over", []cacheEntry{{"libx.so.1", "/32", false},
			{"libx.so.1", "/elf", false}}, nil, "libx.so.1", "/elf", ""},
		{"a name without version is the newest", []cacheEntry{{"libx.so.9", "/script", false},
			{"libx.so.10", "/elf", false}, {"libx.so.2.5", "/arm", false},
			{"libx.so.old", "/32", false}, {"libxy.so.11", "/32", false}},
			nil, "libx.so", "/elf", ""},
		{"a name without version prefers the exact name", []cacheEntry{{"libx.so.3", "/arm", false},
			{"libx.so", "/elf", false}}, nil, "libx.so", "/elf", ""},
		{"a word is the library of that name", []cacheEntry{{"libstdc++.so.6", "/elf", false}},
			nil, "stdc++", "/elf", ""},
		{"a word with lib in front is the library", []cacheEntry{{"libc.so.6", "/elf", false}},
			nil, "libc", "/elf", ""},
		{"a word is the program before the library", []cacheEntry{{"libtool.so", "/elf", false}},
			map[string]string{"first/tool": "/elf"}, "tool", "/first/tool", ""},
		{"PATH is followed in order", nil,
			map[string]string{"first/tool": "/elf", "second/tool": "/elf"}, "tool", "/first/tool", ""},
		{"another machine's program is found: it may run emulated", nil,
			map[string]string{"second/tool": "/arm"}, "tool", "/second/tool", ""},
		{"a name with .so is no program", []cacheEntry{{"libx.so.1", "/elf", false}},
			map[string]string{"first/libx.so.1": "/elf"}, "libx.so.1", "/elf", ""},
		{"which of two depends on the processor", []cacheEntry{{"libx.so.1", "/elf", true},
			{"libx.so.1", "/second", false}}, map[string]string{"second": "/elf"}, "libx.so.1", "",
			`libx.so.1: no such library in .*: several: .*/elf, .*/second \(give the path of the file\)`},
		{"a script is not what runs", nil, map[string]string{"first/tool": "/script"}, "tool", "",
			`tool: .*/first/tool is a script or wrapper, not an ELF file \(give the path of the program it starts\)`},
		{"nothing", nil, nil, "libx.so.1", "",
			`libx.so.1: no such library in .*cache \(give the path of the file\)`},
		{"no program", nil, nil, "nothing", "",
			`nothing: no such program in PATH, nor library in .*cache \(give the path of the file\)`},
	} {
		t.Run(test.behaviour, func(t *testing.T) {
			dir := t.TempDir()
			for name, data := range files {
				writeFile(t, dir+name, 0o644, data)
			}
			for name, of := range test.programs {
				writeFile(t, filepath.Join(dir, name), 0o755, files[of])
			}
			var c cacheFile
			for _, entry := range test.cache {
				entry.path = dir + entry.path
				c.entries = append(c.entries, entry)
			}
			writeFile(t, dir+"/cache", 0o644, c.bytes())
			t.Setenv("PATH", dir+"/none:"+dir+"/first:"+dir+"/second")
			path, err := find(test.name, dir+"/cache", wanted)
			if test.err != "" {
				qt.Check(t, qt.ErrorMatches(err, test.err))
				qt.Check(t, qt.Equals(path, ""))
				return
			}
			qt.Assert(t, qt.IsNil(err))
			qt.Check(t, qt.Equals(path, dir+test.want))
		})
	}
}

func TestFindWithoutAUsableCache(t *testing.T) {
	_, err := find("libx.so.1", filepath.Join(t.TempDir(), "cache"), Target{})
	qt.Check(t, qt.ErrorIs(err, fs.ErrNotExist))
	qt.Check(t, qt.ErrorMatches(err, ".*no such library in .*/cache \\(give the path of the file\\)"))
	malformed := filepath.Join(t.TempDir(), "cache")
	writeFile(t, malformed, 0o644, []byte("x"))
	_, err = find("libx.so.1", malformed, Target{})
	qt.Check(t, qt.ErrorMatches(err, ".*: not a cache of library names, or a malformed one .*"))
	for _, name := range []string{"", "a/b", "a\x00"} {
		_, err := Find(name)
		qt.Check(t, qt.ErrorIs(err, fs.ErrInvalid), qt.Commentf("%q", name))
	}
}

// What ldconfig lists of this host is found.
func TestFindAgreesWithLdconfig(t *testing.T) {
	out, err := exec.Command(testneeds.Tool(t, "ldconfig", "libc-bin"), "-p").Output()
	qt.Assert(t, qt.IsNil(err))
	lines := regexp.MustCompile(`(?m)^\t(\S+) \(([^)]*)\) => (\S+)$`).FindAllSubmatch(out, -1)
	listed := make(map[string][]string)
	for _, line := range lines {
		listed[string(line[1])] = append(listed[string(line[1])], string(line[3]))
	}
	if runtime.GOARCH == "amd64" {
		qt.Assert(t, qt.IsTrue(len(listed) > 0))
	}
	for name, paths := range listed {
		path, err := Find(name)
		if len(paths) > 1 && err != nil {
			continue // of another machine, or for the processor to choose
		}
		if err == nil {
			qt.Check(t, qt.IsTrue(slices.Contains(paths, path)), qt.Commentf("%s: %s", name, path))
		}
	}
}
