// SPDX-License-Identifier: BSD-2-Clause

package elffile

import (
	"bytes"
	"debug/elf"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// DebugRoot is the directory under which distributions keep separate debug
// files.
const DebugRoot = "/usr/lib/debug"

// debugFile is where a separate debug file may be.
type debugFile struct {
	path     string
	linked   bool   // the file names it in .gnu_debuglink, with a checksum
	checksum uint32 // CRC-32 of all its bytes
}

// debugFiles returns where the separate debug file of f may be, in order:
//
//   - below DebugRoot, under the build ID: .build-id/ab/cdef.debug for abcdef
//   - in the caches of debuginfod's clients, under the build ID:
//     abcdef/debuginfo
//   - under the name in the section .gnu_debuglink: beside the file, in the
//     directory .debug there, and in the file's directory below DebugRoot
//
// The directories of the file are only searched where [Open] has opened it by a
// path that leads through no process. What is beside another file is in a file
// system that a container may serve, or withhold.
func (f *File) debugFiles() ([]debugFile, error) {
	var files []debugFile
	id, err := f.BuildID()
	if err == nil && len(id) >= 4 {
		files = append(files,
			debugFile{path: filepath.Join(DebugRoot, ".build-id", id[:2], id[2:]+".debug")})
		for _, cache := range debuginfodCaches() {
			files = append(files, debugFile{path: filepath.Join(cache, id, "debuginfo")})
		}
	}
	name, checksum, ok := f.debugLinkName()
	if !ok {
		return files, err
	}
	path, absErr := filepath.Abs(f.path)
	if f.path == "" || absErr != nil || leadsThroughProcess(path) {
		return files, nil
	}
	if resolved, err := filepath.EvalSymlinks(path); err == nil {
		path = resolved
	}
	directory := filepath.Dir(path)
	for _, place := range []string{directory, filepath.Join(directory, ".debug"),
		filepath.Join(DebugRoot, directory)} {
		if at := filepath.Join(place, name); at != path {
			files = append(files, debugFile{at, true, checksum})
		}
	}
	return files, nil
}

// debugLinkName returns what the section .gnu_debuglink says: a name without
// directories, padded with zeros to a multiple of 4 bytes, and a checksum.
func (f *File) debugLinkName() (name string, checksum uint32, ok bool) {
	s := f.debugLink
	if s.Size == 0 || s.Size > maxDebugLink || s.Kind != elf.SHT_PROGBITS ||
		s.Flags&elf.SHF_COMPRESSED != 0 {
		return "", 0, false
	}
	data, err := f.ReadRange(s.Offset, s.Size)
	if err != nil {
		return "", 0, false
	}
	text, _, found := bytes.Cut(data, []byte{0})
	at := (len(text) + 1 + 3) &^ 3
	name = string(text)
	if !found || at+4 > len(data) || name == "" || name == "." || name == ".." ||
		strings.ContainsAny(name, `/\`) {
		return "", 0, false
	}
	return name, f.Words.Uint32(data[at:]), true
}

// checkLinked returns an error unless a debug file is the one that f names. The
// build ID says so, and where one of them has none, the checksum. Nothing is
// read for the checksum of a file that is too large for it: a sparse one has
// any size, at no cost.
func (f *File) checkLinked(debug *File, want uint32) error {
	if f.sameBuildID(debug) {
		return nil
	}
	info, err := debug.OSFile().Stat()
	if err != nil {
		return err
	}
	if info.Size() > maxChecked {
		return fmt.Errorf("checksum of %d bytes: %w", info.Size(), ErrTooLarge)
	}
	sum := crc32.NewIEEE()
	if _, err := io.Copy(sum, io.NewSectionReader(debug, 0, info.Size())); err != nil {
		return err
	}
	if sum.Sum32() != want {
		return fmt.Errorf("%w: checksum %08x, not %08x", ErrOtherBuildID, sum.Sum32(), want)
	}
	return nil
}

func (f *File) sameBuildID(other *File) bool {
	mine, err := f.BuildID()
	theirs, otherErr := other.BuildID()
	return err == nil && otherErr == nil && mine == theirs
}

// debuginfodCaches returns where the clients of debuginfod keep what they have
// fetched, as debuginfod_find_debuginfo(3) says.
func debuginfodCaches() []string {
	if path := os.Getenv("DEBUGINFOD_CACHE_PATH"); path != "" {
		return []string{path}
	}
	var caches []string
	home := os.Getenv("HOME")
	if path := os.Getenv("XDG_CACHE_HOME"); path != "" {
		caches = append(caches, filepath.Join(path, "debuginfod_client"))
	} else if home != "" {
		caches = append(caches, filepath.Join(home, ".cache", "debuginfod_client"))
	}
	if home != "" {
		caches = append(caches, filepath.Join(home, ".debuginfod_client_cache"))
	}
	return caches
}
