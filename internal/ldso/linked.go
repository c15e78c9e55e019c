// SPDX-License-Identifier: BSD-2-Clause

package ldso

import (
	"bufio"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gousdt/gousdt/internal/elffile"
)

// maxLinked bounds the files that one file is linked with. Large
// desktop programs are linked with some hundreds.
const maxLinked = 1024

// systemFolders are searched last, by glibc or musl on one system or another.
var systemFolders = []string{"/lib64", "/usr/lib64", "/lib", "/usr/lib", "/usr/local/lib"}

// Linked returns the libraries that a program or library is linked with, as its
// dynamic linker would find them in this environment, and then the linker. It
// executes nothing. Of a library with several builds for different processors
// all are returned. Those that cannot be found are left out.
func Linked(path string) (files []string) {
	// The cache may be missing, as with musl, or have an unknown format.
	c, err := readCache(cachePath)
	if err != nil {
		c = &cache{}
	}
	return linked(path, c)
}

func linked(path string, c *cache) (files []string) {
	program, err := elffile.Open(path)
	if err != nil {
		return nil
	}
	wanted := target{program.Machine, program.Class()}
	linker := program.Interpreter()
	program.Close()

	add := func(found []string) {
		for _, file := range found {
			if !slices.Contains(files, file) && len(files) < maxLinked {
				files = append(files, file)
			}
		}
	}
	var inherited []string // by DT_RPATH of the program
	for _, name := range strings.FieldsFunc(os.Getenv("LD_PRELOAD"),
		func(r rune) bool { return r == ' ' || r == ':' }) {
		add(c.needed(name, nil, wanted))
	}
	for next := -1; next < len(files); next++ {
		of := path
		if next >= 0 {
			of = files[next]
		}
		linkage := linkageOf(of)
		folders := append(foldersOf(of, linkage.RPath), inherited...)
		if linkage.RunPath != "" {
			folders = nil // then DT_RPATH does not count
		} else if next < 0 {
			inherited = folders
		}
		folders = append(folders, filepath.SplitList(os.Getenv("LD_LIBRARY_PATH"))...)
		folders = append(folders, foldersOf(of, linkage.RunPath)...)
		for _, name := range linkage.Needed {
			add(c.needed(name, folders, wanted))
		}
	}
	if linker != "" {
		add([]string{linker})
	}
	return files
}

// needed returns the files that a library may be, by its name or path.
func (c *cache) needed(name string, folders []string, wanted target) (files []string) {
	if strings.Contains(name, "/") {
		return []string{name}
	}
	for _, folder := range folders {
		if file := filepath.Join(folder, name); wanted.has(file) {
			return []string{file}
		}
	}
	for _, entry := range c.find(func(of []byte) bool { return string(of) == name }) {
		if wanted.has(entry.path) {
			files = append(files, entry.path)
		}
	}
	for _, folder := range systemFolders {
		if file := filepath.Join(folder, name); len(files) == 0 && wanted.has(file) {
			files = append(files, file)
		}
	}
	return files
}

func linkageOf(path string) (l elffile.Linkage) {
	if file, err := elffile.Open(path); err == nil {
		l = file.Linkage()
		file.Close()
	}
	return l
}

// foldersOf returns the folders of a DT_RPATH or DT_RUNPATH of a file. Those
// that depend on the processor or the distribution ($PLATFORM, $LIB) are left
// out.
func foldersOf(file, list string) (folders []string) {
	if real, err := filepath.EvalSymlinks(file); err == nil {
		file = real
	}
	origin := filepath.Dir(file)
	expand := strings.NewReplacer("$ORIGIN", origin, "${ORIGIN}", origin)
	for _, folder := range filepath.SplitList(list) {
		folder = expand.Replace(folder)
		if folder != "" && !strings.Contains(folder, "$") {
			folders = append(folders, folder)
		}
	}
	return folders
}

// maxBeside bounds what is looked at in the folders of a program.
const maxBeside = 4096

// Beside returns the libraries in the folders that a program brings along, and
// in the folders there: it may load them itself, as java loads libjvm.so. These
// are folders that its DT_RPATH or DT_RUNPATH gives relative to the program.
func Beside(program string) (files []string) {
	linkage := linkageOf(program)
	seen := 0
	for _, entry := range filepath.SplitList(linkage.RPath + ":" + linkage.RunPath) {
		if !strings.Contains(entry, "ORIGIN") {
			continue
		}
		for _, folder := range foldersOf(program, entry) {
			root := filepath.Clean(folder)
			if slices.Contains(systemFolders, root) {
				continue
			}
			_ = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
				switch seen++; {
				case err != nil || seen > maxBeside:
					return fs.SkipAll
				case entry.IsDir() && strings.Count(path[len(root):], "/") > 1:
					return fs.SkipDir
				case entry.Type().IsRegular() && strings.Contains(entry.Name(), ".so") &&
					!slices.Contains(files, path):
					files = append(files, path)
				}
				return nil
			})
		}
	}
	return files
}

// Interpreters returns the words of the first line of a script, which are its
// interpreter, or env and the name of one.
func Interpreters(path string) []string {
	file, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer file.Close()
	const longest = 256 // of what Linux reads
	line, _ := bufio.NewReader(io.LimitReader(file, longest)).ReadString('\n')
	words, isScript := strings.CutPrefix(line, "#!")
	if !isScript {
		return nil
	}
	return strings.Fields(words)
}
