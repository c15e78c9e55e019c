// SPDX-License-Identifier: BSD-2-Clause

// Package ldso finds the file that a bare name such as "libstdc++.so.6",
// "libc.so", "c" or "python3" means on this host.
//
//   - A name with ".so" at its end or ".so." inside is a library, as
//     /etc/ld.so.cache has it. A name that ends in ".so" and is not there
//     means the newest of its versions: "libc.so" is libc.so.6.
//   - Any other name is a program first, along PATH, and a library second:
//     "stdc++" is libstdc++.so.6, and "libc" is libc.so.6.
//
// What the cache does not say is not guessed: musl has no cache, and the
// libraries of a container are in its own. Such a file is named by its path.
package ldso

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gousdt/gousdt/internal/elffile"
)

// Path returns a path as it is, and the path of what a bare name means.
func Path(name string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	return Find(name)
}

// Find returns the path of the library or program called name. The error wraps
// [fs.ErrNotExist] if there is none.
func Find(name string) (string, error) {
	if name == "" || strings.ContainsAny(name, "/\x00") {
		return "", fmt.Errorf("%q: %w: not the bare name of a library or program", name,
			fs.ErrInvalid)
	}
	return find(name, cachePath, host())
}

// host returns the machine and class of this process's program, the zero value
// if that cannot be found out.
func host() Target {
	self, err := elffile.Open("/proc/self/exe")
	if err != nil {
		return Target{}
	}
	defer self.Close()
	return Target{self.Machine, self.Class()}
}

// Target is what a library is built for. The zero value is anything.
type Target struct {
	Machine elf.Machine
	Class   elf.Class
}

func find(name, cacheFile string, wanted Target) (string, error) {
	isLibrary := strings.HasSuffix(name, ".so") || strings.Contains(name, ".so.")
	library := name
	if !isLibrary {
		found, err := program(name)
		if found != "" || err != nil {
			return found, err
		}
		library += ".so"
		if !strings.HasPrefix(library, "lib") {
			library = "lib" + library
		}
	}
	c, err := readCache(cacheFile)
	if err == nil {
		var found string
		if found, err = c.library(library, wanted); found != "" {
			return found, nil
		}
	}
	text := name + ": no such library in " + cacheFile
	if !isLibrary {
		text = name + ": no such program in PATH, nor library in " + cacheFile
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		text += fmt.Sprintf(": %v", err)
	}
	return "", notFoundError(text + " (give the path of the file)")
}

// notFoundError says where a file was searched.
type notFoundError string

func (e notFoundError) Error() string { return string(e) }

func (e notFoundError) Unwrap() error { return fs.ErrNotExist }

// A ScriptError says that a name in PATH is that of a script.
type ScriptError struct{ Name, Path string }

func (e *ScriptError) Error() string {
	return fmt.Sprintf("%s: %s is a script or wrapper, not an ELF file "+
		"(give the path of the program it starts)", e.Name, e.Path)
}

func program(name string) (string, error) {
	for _, directory := range filepath.SplitList(os.Getenv("PATH")) {
		found := filepath.Join(directory, name)
		info, err := os.Stat(found)
		if err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
			continue
		}
		file, err := elffile.Open(found)
		switch {
		case errors.Is(err, elffile.ErrNotELF):
			// Another one further down the path is not the one that would run.
			return "", &ScriptError{Name: name, Path: found}
		case err == nil:
			file.Close()
			return found, nil
		}
	}
	return "", nil
}

// Cached returns a function that returns the paths which the host's cache has
// for the name of a library. The cache may be missing, as with musl, or have an
// unknown format: then it has none.
func Cached() func(name string) []string {
	c, err := readCache(cachePath)
	if err != nil {
		c = &cache{}
	}
	return func(name string) (paths []string) {
		for _, entry := range c.find(func(of []byte) bool { return string(of) == name }) {
			paths = append(paths, entry.path)
		}
		return paths
	}
}

// library returns the path of a library that is there and is built for a
// machine, "" if the cache names none.
func (c *cache) library(name string, wanted Target) (string, error) {
	entries := c.find(func(entry []byte) bool { return string(entry) == name })
	if len(entries) == 0 && strings.HasSuffix(name, ".so") {
		entries = c.find(func(entry []byte) bool { return isVersionOf(name, string(entry)) })
		slices.SortStableFunc(entries, func(a, b cacheEntry) int {
			return compareVersions(b.name[len(name)+1:], a.name[len(name)+1:])
		})
	}
	usable := slices.DeleteFunc(entries, func(e cacheEntry) bool { return !wanted.Has(e.path) })
	if len(usable) == 0 {
		return "", nil
	}
	for _, other := range usable[1:] {
		// Which of them the dynamic linker takes depends on the processor.
		if other.name == usable[0].name && (other.hasDemand || usable[0].hasDemand) {
			return "", fmt.Errorf("several: %s, %s", usable[0].path, other.path)
		}
	}
	return usable[0].path, nil
}

// Has reports whether the file at a path is built for the target.
func (t Target) Has(path string) bool {
	file, err := elffile.Open(path)
	if err != nil {
		return false
	}
	defer file.Close()
	return t == Target{} || t == Target{file.Machine, file.Class()}
}

// isVersionOf reports whether name is library, which ends in ".so", followed by
// a version in numbers: "libc.so.6" is one of "libc.so", "libc.so.old" is not.
func isVersionOf(library, name string) bool {
	version, ok := strings.CutPrefix(name, library+".")
	return ok && !slices.ContainsFunc(strings.Split(version, "."), func(part string) bool {
		return part == "" || strings.Trim(part, "0123456789") != ""
	})
}

// compareVersions compares dotted numbers of any length: 1.10 is newer than
// 1.9, and 6 older than 6.0.30. Equal ones differ at most in leading zeros.
func compareVersions(a, b string) int {
	return slices.CompareFunc(strings.Split(a, "."), strings.Split(b, "."),
		func(x, y string) int {
			x, y = strings.TrimLeft(x, "0"), strings.TrimLeft(y, "0")
			if len(x) != len(y) {
				return len(x) - len(y)
			}
			return strings.Compare(x, y)
		})
}

// The file that ldconfig writes, as ldconfig(8) of glibc 2.2 and newer does
// (sysdeps/generic/dl-cache.h describes it). All numbers are 32 bits wide in
// the machine's byte order, but the hwcap of 64:
//
//	header, 48 bytes
//	   0  "glibc-ld.so.cache" "1.1"
//	  20  number of entries
//	  24  length of the strings, and what is not needed here
//	entries, 24 bytes each
//	   0  flags: for which machine
//	   4  where the name starts
//	   8  where the path starts
//	  12  unused
//	  16  hwcap: what the processor must have, 0 for nothing
//
// Names and paths end in NUL and are counted from the header. An older format,
// "ld.so-1.7.0", may stand before it. The flags need not be read: the headers
// of the files say for which machine they are.
const (
	cachePath = "/etc/ld.so.cache"

	cacheMagic      = "glibc-ld.so.cache1.1"
	cacheHeaderSize = 48
	cacheEntrySize  = 24

	oldCacheMagic = "ld.so-1.7.0"

	// A system with 10,000 libraries has a cache of about 2 MB.
	maxCacheSize = 32 << 20

	// PATH_MAX: a longer name cannot be opened.
	maxCacheString = 4096

	// The entries are searched one by one, and a handful can match.
	maxCacheMatches = 1024
)

// order is that of this machine, which wrote the cache.
var order = binary.NativeEndian

var errCache = errors.New("not a cache of library names, or a malformed one")

// cache is a parsed ld.so.cache. Its zero value is empty.
type cache struct {
	data  []byte // from the header on
	count int    // entries; all lie within data
}

type cacheEntry struct {
	name, path string
	hasDemand  bool // only for some processors
}

func readCache(path string) (*cache, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	file, err := io.ReadAll(io.LimitReader(f, maxCacheSize+1))
	if err != nil {
		return nil, err
	}
	if len(file) > maxCacheSize {
		return nil, fmt.Errorf("larger than %d bytes", maxCacheSize)
	}
	return parseCache(file)
}

func parseCache(file []byte) (*cache, error) {
	data := file
	if bytes.HasPrefix(file, []byte(oldCacheMagic)) {
		data = file[max(0, bytes.Index(file, []byte(cacheMagic))):]
	}
	if len(data) < cacheHeaderSize || string(data[:len(cacheMagic)]) != cacheMagic {
		return nil, errCache
	}
	count := order.Uint32(data[20:])
	if uint64(count)*cacheEntrySize > uint64(len(data)-cacheHeaderSize) {
		return nil, fmt.Errorf("%w: %d entries in %d bytes", errCache, count, len(data))
	}
	return &cache{data, int(count)}, nil
}

// find returns the entries whose name matches, in the file's order. Entries
// that point outside the file are left out.
func (c *cache) find(match func(name []byte) bool) []cacheEntry {
	var found []cacheEntry
	for i := range c.count {
		if len(found) == maxCacheMatches {
			break
		}
		entry := c.data[cacheHeaderSize+i*cacheEntrySize:]
		name, ok := c.text(order.Uint32(entry[4:]))
		if !ok || !match(name) {
			continue
		}
		if path, ok := c.text(order.Uint32(entry[8:])); ok {
			found = append(found,
				cacheEntry{string(name), string(path), order.Uint64(entry[16:]) != 0})
		}
	}
	return found
}

// text returns the string at an offset from the header, not empty.
func (c *cache) text(offset uint32) ([]byte, bool) {
	if uint64(offset) >= uint64(len(c.data)) {
		return nil, false
	}
	text := c.data[offset:]
	text = text[:min(len(text), maxCacheString)]
	end := bytes.IndexByte(text, 0)
	return text[:max(end, 0)], end > 0
}
