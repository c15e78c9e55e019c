// SPDX-License-Identifier: BSD-2-Clause

package ldso

import (
	"io"
	"os"
	"path"
	"strings"
)

// place is somewhere a library may be. Its functions return paths as seen from
// the root, the best first, which need not exist.
type place struct {
	name     string
	exact    func(library string) []string
	versions func(library string) []string // of "libx.so": libx.so.2, libx.so.1
}

const (
	// A search list longer than this is no search list: it bounds the work that
	// a file of another root can cause.
	maxDirectories = 256

	// The largest library directories of distributions hold about 10,000 names.
	maxDirectoryEntries = 1 << 17

	// musl reads its path file into memory whole; real ones have a few lines.
	maxMuslPathFile = 64 << 10
)

// glibcPlaces are the places of glibc's dynamic linker, in its order.
func (s *search) glibcPlaces() []place {
	var places []place
	for _, dir := range s.split(s.getenv("LD_LIBRARY_PATH"), ":;") {
		places = append(places, s.directory(dir))
	}
	places = append(places, s.cache())
	for _, dir := range s.target.directories() {
		places = append(places, s.directory(dir))
	}
	return places
}

// muslPlaces are the places of musl's dynamic linker, where it is installed.
func (s *search) muslPlaces() []place {
	var places []place
	for _, name := range s.target.muslNames {
		list := s.readMuslPath("/etc/ld-musl-" + name + ".path")
		if list == "" {
			// The built-in path matters only where there is a musl.
			loader, err := resolve(s.root, "/lib/ld-musl-"+name+".so.1")
			if err != nil {
				continue
			}
			if _, err := os.Stat(loader); err != nil {
				continue
			}
			list = "/lib:/usr/local/lib:/usr/lib"
		}
		// Unlike glibc, musl passes over empty entries.
		entries := strings.FieldsFunc(list, func(r rune) bool { return r == ':' || r == '\n' })
		for _, dir := range s.split(strings.Join(entries, ":"), ":") {
			places = append(places, s.directory(dir))
		}
	}
	return places
}

func (s *search) readMuslPath(name string) string {
	found, err := resolve(s.root, name)
	if err != nil {
		return ""
	}
	f, err := openRegular(found)
	if err != nil {
		return ""
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxMuslPathFile))
	if err != nil {
		return ""
	}
	return string(data)
}

// split returns the directories of a search list. An empty entry is the current
// directory, as for the shell and the dynamic linker. Left out is what has no
// meaning here: entries with variables that only a program's own file can fill
// ($ORIGIN), and relative ones in another root.
func (s *search) split(list, separators string) []string {
	var dirs []string
	for more := list != ""; more && len(dirs) < maxDirectories; {
		var dir string
		if end := strings.IndexAny(list, separators); end >= 0 {
			dir, list = list[:end], list[end+1:]
		} else {
			dir, more = list, false
		}
		if strings.Contains(dir, "$") || (s.root != "/" && !path.IsAbs(dir)) {
			continue
		}
		dirs = append(dirs, path.Clean(dir))
	}
	return dirs
}

// directory is a place that is a directory.
func (s *search) directory(dir string) place {
	// glibc searches the directories for the processor's level first.
	dirs := make([]string, 0, len(s.target.levels)+1)
	for _, level := range s.target.levels {
		dirs = append(dirs, dir+"/glibc-hwcaps/"+level)
	}
	dirs = append(dirs, dir)
	return place{
		name: dir,
		exact: func(library string) []string {
			var found []string
			for _, dir := range dirs {
				found = append(found, join(dir, library))
			}
			return found
		},
		versions: func(library string) []string {
			var found []string
			for _, dir := range dirs {
				for _, name := range newestFirst(library, s.list(dir)) {
					found = append(found, join(dir, name))
				}
			}
			return found
		},
	}
}

// list returns the names in a directory.
func (s *search) list(dir string) []string {
	found, err := resolve(s.root, dir)
	if err != nil {
		return nil
	}
	// A directory of another root may be anything; opening a pipe would block.
	info, err := os.Stat(found)
	if err != nil || !info.IsDir() {
		return nil
	}
	f, err := os.Open(found)
	if err != nil {
		return nil
	}
	defer f.Close()
	var names []string
	for len(names) < maxDirectoryEntries {
		some, err := f.Readdirnames(1024)
		names = append(names, some...)
		if err != nil {
			break
		}
	}
	return names
}

func join(dir, name string) string {
	if dir == "/" {
		return dir + name
	}
	return dir + "/" + name
}
