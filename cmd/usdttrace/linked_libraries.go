// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"bytes"
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/gousdt/gousdt/internal/ldso"
)

// maxLinked bounds the files that a program is linked with. Large desktop
// programs have some hundreds.
const maxLinked = 4096

// linked returns a program and the libraries that the dynamic linker will map
// with it, as far as that can be told: the rest is seen when it is mapped.
func linked(program string, getenv func(string) string) []string {
	files := []string{program}
	known := map[string]bool{program: true}
	add := func(path string) {
		if path != "" && !known[path] && len(files) < maxLinked {
			known[path] = true
			files = append(files, path)
		}
	}
	for i := 0; i < len(files); i++ {
		needed, err := readNeeded(files[i])
		if err != nil {
			continue // not an ELF file, or a damaged one: then it will not run, either
		}
		if i == 0 {
			for _, name := range strings.FieldsFunc(getenv("LD_PRELOAD"), func(r rune) bool { return r == ':' || r == ' ' }) {
				add(needed.find(name, getenv))
			}
		}
		for _, name := range needed.names {
			add(needed.find(name, getenv))
		}
	}
	return files
}

// needed is what the dynamic section of a file asks for.
type needed struct {
	names   []string
	folders []string // DT_RPATH or DT_RUNPATH
	options ldso.Options
}

func readNeeded(path string) (*needed, error) {
	file, err := elf.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	n := &needed{options: ldso.Options{Machine: file.Machine, Class: file.Class}}
	if n.names, err = file.ImportedLibraries(); err != nil {
		return nil, err
	}
	for _, tag := range []elf.DynTag{elf.DT_RPATH, elf.DT_RUNPATH} {
		lists, err := file.DynString(tag)
		if err != nil {
			continue // a static program
		}
		for _, list := range lists {
			for _, folder := range strings.Split(list, ":") {
				origin := filepath.Dir(path)
				folder = strings.NewReplacer("${ORIGIN}", origin, "$ORIGIN", origin).Replace(folder)
				n.folders = append(n.folders, folder)
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
	for _, folder := range n.folders {
		path := filepath.Join(folder, name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return path
		}
	}
	options := n.options
	options.Getenv = getenv
	path, err := ldso.Find(name, &options)
	if err != nil {
		return ""
	}
	return path
}

// environment returns the variables of a process as they were at its exec.
func environment(pid int) func(name string) string {
	all, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid)) // without, libraries are found at the usual places
	return func(name string) string {
		for _, variable := range bytes.Split(all, []byte{0}) {
			if value, ok := strings.CutPrefix(string(variable), name+"="); ok {
				return value
			}
		}
		return ""
	}
}
