// SPDX-License-Identifier: BSD-2-Clause

package ldso

import (
	"bytes"
	"debug/elf"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/gousdt/gousdt/internal/elffile"
)

// maxLinked bounds the files that a program is linked with. Large desktop
// programs have some hundreds.
const maxLinked = 4096

// Linked returns the path of a program and those of the libraries that the
// dynamic linker will map with it in a process that is about to run it, as far
// as the files, the cache and the usual directories say so. The process is
// given by its directory in the proc file system, such as "/proc/12"; its root
// directory is taken to be that of this process.
func Linked(program, process string) []string {
	getenv := environment(process)
	files := []string{program}
	known := map[string]bool{program: true}
	add := func(path string) {
		if path != "" && !known[path] && len(files) < maxLinked {
			known[path] = true
			files = append(files, path)
		}
	}
	libraries, err := readCache(cachePath)
	if err != nil {
		libraries = new(cache) // as with musl
	}
	loader := ""
	for i := 0; i < len(files); i++ {
		file, err := elffile.Open(files[i])
		if err != nil {
			continue // not an ELF file, or a malformed one: then it will not run, either
		}
		names, _ := file.DynamicStrings(elf.DT_NEEDED)
		if i == 0 {
			loader = file.Interpreter()
			add(loader)
			names = append(strings.FieldsFunc(getenv("LD_PRELOAD"),
				func(r rune) bool { return r == ':' || r == ' ' }), names...)
		}
		directories := searched(file, getenv)
		wanted := target{file.Machine, file.Class()}
		file.Close()
		for _, name := range names {
			// The loader is there, wherever one of its name would be found.
			if loader == "" || name != filepath.Base(loader) {
				add(libraries.needed(name, directories, wanted))
			}
		}
	}
	return files
}

// searched returns the directories that a file, and LD_LIBRARY_PATH, have
// searched for its libraries before the cache.
func searched(file *elffile.File, getenv func(string) string) []string {
	var lists []string
	for _, tag := range []elf.DynTag{elf.DT_RPATH, elf.DT_RUNPATH} {
		more, _ := file.DynamicStrings(tag)
		lists = append(lists, more...)
	}
	origin := filepath.Dir(file.Name())
	text := strings.NewReplacer("${ORIGIN}", origin, "$ORIGIN", origin).Replace(
		strings.Join(append(lists, getenv("LD_LIBRARY_PATH")), ":"))
	return strings.FieldsFunc(text, func(r rune) bool { return r == ':' || r == ';' })
}

// needed returns the path of a library that a file is linked with, "" if it is
// not found.
func (c *cache) needed(name string, directories []string, wanted target) string {
	if strings.Contains(name, "/") {
		return name
	}
	for _, directory := range directories {
		if path := filepath.Join(directory, name); wanted.has(path) {
			return path
		}
	}
	for _, entry := range c.find(func(entry []byte) bool { return string(entry) == name }) {
		if !entry.hasDemand && wanted.has(entry.path) {
			return entry.path
		}
	}
	for _, directory := range []string{"/lib64", "/usr/lib64", "/lib", "/usr/local/lib",
		"/usr/lib"} {
		if path := filepath.Join(directory, name); wanted.has(path) {
			return path
		}
	}
	return ""
}

// maxEnvironment bounds how much of a process's environment is read. Linux
// allows some megabytes, of which kilobytes are used.
const maxEnvironment = 4 << 20

// environment returns the variables of a process as they were at its exec.
// Those that cannot be read are empty.
func environment(process string) func(name string) string {
	var all []byte
	if file, err := os.Open(process + "/environ"); err == nil {
		all, _ = io.ReadAll(io.LimitReader(file, maxEnvironment)) // what there is will do
		file.Close()
	}
	return func(name string) string {
		for variable := range bytes.SplitSeq(all, []byte{0}) {
			if value, ok := strings.CutPrefix(string(variable), name+"="); ok {
				return value
			}
		}
		return ""
	}
}
