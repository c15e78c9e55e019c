// SPDX-License-Identifier: BSD-2-Clause

package ldso

import (
	"debug/elf"
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
// as the files say so. The process is given as in [FindInProcess]; its root
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
	loader := ""
	for i := 0; i < len(files); i++ {
		needed, err := readNeeded(files[i])
		if err != nil {
			continue // not an ELF file, or a malformed one: then it will not run, either
		}
		if i == 0 {
			loader = needed.loader
			add(loader)
			for _, name := range strings.FieldsFunc(getenv("LD_PRELOAD"),
				func(r rune) bool { return r == ':' || r == ' ' }) {
				add(needed.find(name, getenv))
			}
		}
		for _, name := range needed.names {
			if loader != "" && name == filepath.Base(loader) {
				continue // it is there, wherever one of that name would be found
			}
			add(needed.find(name, getenv))
		}
	}
	return files
}

// needed is what the dynamic section of a file asks for.
type needed struct {
	names       []string
	loader      string   // of a program: the path of its dynamic linker
	directories []string // DT_RPATH or DT_RUNPATH
	target      target
}

func readNeeded(path string) (*needed, error) {
	opened, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	defer opened.Close()
	file, err := elffile.New(opened)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	n := &needed{target: header{file.Machine, file.Class()}.target()}
	n.loader = file.Interpreter()
	if n.names, err = file.DynamicStrings(elf.DT_NEEDED); err != nil {
		return nil, err
	}
	origin := filepath.Dir(path)
	withOrigin := strings.NewReplacer("${ORIGIN}", origin, "$ORIGIN", origin)
	for _, tag := range []elf.DynTag{elf.DT_RPATH, elf.DT_RUNPATH} {
		lists, err := file.DynamicStrings(tag)
		if err != nil {
			return nil, err
		}
		for _, list := range lists {
			for directory := range strings.SplitSeq(list, ":") {
				n.directories = append(n.directories, withOrigin.Replace(directory))
			}
		}
	}
	return n, nil
}

// find returns the path of a library, "" if it is not found.
func (n *needed) find(name string, getenv func(string) string) string {
	if strings.Contains(name, "/") {
		return name
	}
	for _, directory := range n.directories {
		path := filepath.Join(directory, name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return path
		}
	}
	return newSearch(name, "/", n.target, getenv).library(name)
}
