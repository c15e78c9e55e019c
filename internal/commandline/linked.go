// SPDX-License-Identifier: BSD-2-Clause

package commandline

import (
	"bufio"
	"bytes"
	"debug/elf"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gousdt/gousdt/internal/elffile"
	"github.com/gousdt/gousdt/internal/ldso"
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
func Linked(path string) (files []string) { return linkedBy(path, ldso.Cached()) }

// maxInterpreter bounds the path of the dynamic linker: PATH_MAX, which is also
// the kernel's limit for it.
const maxInterpreter = 4096

// interpreter returns the path of the dynamic linker that a file names, or "".
// A separate debug file has the segment, but not its bytes.
func interpreter(f *elffile.File) string {
	size := f.Interpreter.FileSize
	if size == 0 || size > maxInterpreter || f.IsDebugFile {
		return ""
	}
	path, err := f.ReadRange(f.Interpreter.Offset, size)
	if err != nil {
		return ""
	}
	path, _, _ = bytes.Cut(path, []byte{0})
	return string(path)
}

// linkedBy is Linked with a function that returns the paths that the cache has
// for the name of a library.
func linkedBy(path string, cached func(name string) []string) (files []string) {
	program, err := elffile.Open(path)
	if err != nil {
		return nil
	}
	search := search{cached, ldso.Target{Machine: program.Machine, Class: program.Class()}}
	linker := interpreter(program)
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
		add(search.needed(name, nil))
	}
	for next := -1; next < len(files); next++ {
		of := path
		if next >= 0 {
			of = files[next]
		}
		linkage := linkageOf(of)
		folders := append(foldersOf(of, linkage.rpath), inherited...)
		if linkage.runpath != "" {
			folders = nil // then DT_RPATH does not count
		} else if next < 0 {
			inherited = folders
		}
		folders = append(folders, filepath.SplitList(os.Getenv("LD_LIBRARY_PATH"))...)
		folders = append(folders, foldersOf(of, linkage.runpath)...)
		for _, name := range linkage.needed {
			add(search.needed(name, folders))
		}
	}
	if linker != "" {
		add([]string{linker})
	}
	return files
}

// search is for libraries that are built for a machine.
type search struct {
	cached func(name string) []string
	target ldso.Target
}

// needed returns the files that a library may be, by its name or path.
func (s *search) needed(name string, folders []string) (files []string) {
	if strings.Contains(name, "/") {
		return []string{name}
	}
	for _, folder := range folders {
		if file := filepath.Join(folder, name); s.target.Has(file) {
			return []string{file}
		}
	}
	for _, file := range s.cached(name) {
		if s.target.Has(file) {
			files = append(files, file)
		}
	}
	for _, folder := range systemFolders {
		if file := filepath.Join(folder, name); len(files) == 0 && s.target.Has(file) {
			files = append(files, file)
		}
	}
	return files
}

// linkage names the libraries that a file needs, for the dynamic linker.
type linkage struct {
	needed         []string // their names or paths
	rpath, runpath string   // where to look for them, divided by colons
}

const (
	// maxNeeded bounds the libraries that a file names itself. Browsers name
	// some sixty.
	maxNeeded = 1 << 10

	// maxString bounds such a name, and a list of folders.
	maxString = 4096
)

// linkageOf returns that of a file, without what cannot be read.
func linkageOf(path string) (l linkage) {
	f, err := elffile.Open(path)
	if err != nil {
		return l
	}
	defer f.Close()
	var table, size, rpath, runpath uint64 // offsets of strings, 0 for none
	var needed []uint64
	if !f.HasCode() || f.EachDynamic(func(tag elf.DynTag, value uint64) {
		switch tag {
		case elf.DT_STRTAB:
			table = value
		case elf.DT_STRSZ:
			size = value
		case elf.DT_NEEDED:
			if len(needed) < maxNeeded {
				needed = append(needed, value)
			}
		case elf.DT_RPATH:
			rpath = value
		case elf.DT_RUNPATH:
			runpath = value
		}
	}) != nil {
		return l
	}
	text := func(offset uint64) string {
		segment := f.Segment(table, size, 0)
		if segment == nil || offset == 0 || offset >= size {
			return ""
		}
		b, err := f.ReadRange(segment.Offset+table-segment.Address+offset, min(size-offset, maxString))
		if end := bytes.IndexByte(b, 0); err == nil && end >= 0 {
			return string(b[:end])
		}
		return ""
	}
	for _, offset := range needed {
		if name := text(offset); name != "" {
			l.needed = append(l.needed, name)
		}
	}
	l.rpath, l.runpath = text(rpath), text(runpath)
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
	for _, entry := range filepath.SplitList(linkage.rpath + ":" + linkage.runpath) {
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
