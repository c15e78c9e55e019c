// SPDX-License-Identifier: BSD-2-Clause

package debuginfo

import (
	"bytes"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/elffile"
)

// FindDebugFile opens the separate debug file that belongs to f, for the
// symbols that were stripped from it. If the path is empty, it searches the
// places of [File.debugFiles].
//
// Prelink moves a file, but not its debug file. Symbol, Functions and PLTGOT of
// the debug file return addresses in f: moved by as much as the section
// .stapsdt.base, or the first PT_LOAD segment if one of the files has no such
// section. All other methods and fields have the debug file's own addresses.
//
// Machine and class must be the same, and the build ID if both files have one,
// else the error wraps ErrOtherBuildID. It wraps ErrUnknownDistance if there is
// nothing to tell the move by. Without a path, it wraps ErrNoBuildID if f has
// neither a build ID nor the name of a debug file, and fs.ErrNotExist if there
// is no debug file.
func (f *File) FindDebugFile(path string) (*File, error) {
	if path != "" {
		return f.openDebugFile(debugFile{path: path})
	}
	files, err := f.debugFiles()
	if err != nil {
		return nil, err
	}
	err = fmt.Errorf("debug file: %w", fs.ErrNotExist)
	for _, file := range files {
		debug, e := f.openDebugFile(file)
		if e == nil {
			return debug, nil
		}
		if !errors.Is(e, fs.ErrNotExist) && errors.Is(err, fs.ErrNotExist) {
			err = e // tells more
		}
	}
	return nil, err
}

func (f *File) openDebugFile(file debugFile) (*File, error) {
	if file.linked {
		// The name may lead to a device, which must not be opened.
		if info, err := os.Stat(file.path); err != nil || !info.Mode().IsRegular() {
			return nil, fmt.Errorf("%s: %w", file.path, fs.ErrNotExist)
		}
	}
	debug, err := Open(file.path)
	if err != nil {
		return nil, err
	}
	if err = f.adopt(debug.File); err == nil && file.linked {
		err = f.checkLinked(debug, file.checksum)
	}
	if err != nil {
		debug.Close()
		return nil, fmt.Errorf("%s: %w", file.path, err)
	}
	return debug, nil
}

// adopt checks that an opened file is the debug file of f, and sets the
// distance of its symbols.
func (f *File) adopt(debug *elffile.File) (err error) {
	if debug.Machine != f.Machine || debug.Class() != f.Class() {
		return fmt.Errorf("%w: %v of %v, not %v of %v", ErrOtherBuildID, debug.Machine,
			debug.Class(), f.Machine, f.Class())
	}
	want, _ := f.BuildID() // "" if there is none
	if got, err := debug.BuildID(); err == nil && want != "" && got != want {
		return fmt.Errorf("%w: build ID %s, not %s", ErrOtherBuildID, got, want)
	}
	debug.Moved, err = f.distance(debug)
	return err
}

// distance returns what debug.Moved is for a debug file of f.
func (f *File) distance(debug *elffile.File) (uint64, error) {
	switch {
	case f.HasProbeBase && debug.HasProbeBase:
		return f.ProbeBase - debug.ProbeBase, nil
	case len(f.Segments) > 0 && len(debug.Segments) > 0:
		return f.Segments[0].Address - debug.Segments[0].Address, nil
	case f.Type == elf.ET_REL:
		return 0, nil // prelink does not move object files
	}
	return 0, ErrUnknownDistance
}

var (
	// ErrOtherBuildID means that a debug file was split off another build.
	ErrOtherBuildID = errors.New("the debug file belongs to another build")
	// ErrUnknownDistance means that a file and its debug file do not both have
	// a section .stapsdt.base, nor both a PT_LOAD segment.
	ErrUnknownDistance = errors.New("cannot tell by how much prelink moved the file: " +
		"its debug file has neither .stapsdt.base nor a PT_LOAD segment to compare")
)

// DebugRoot is the directory under which distributions keep separate debug
// files.
const DebugRoot = "/usr/lib/debug"

// debugFile is a place of a separate debug file, which may not exist.
type debugFile struct {
	path     string
	linked   bool   // the file names it in .gnu_debuglink, with a checksum
	checksum uint32 // CRC-32 of all its bytes
}

// debugFiles returns the places to search for the separate debug file of f, in
// order:
//
//   - below DebugRoot, under the build ID: .build-id/ab/cdef.debug for abcdef
//   - in the caches of debuginfod's clients, under the build ID:
//     abcdef/debuginfo
//   - under the name in the section .gnu_debuglink: beside the file, in the
//     directory .debug there, and in the file's directory below DebugRoot
//
// The file's directories are only searched if [File.resolved] has its path.
func (f *File) debugFiles() ([]debugFile, error) {
	var files []debugFile
	id, err := f.BuildID()
	for _, path := range pathsOf(id) {
		files = append(files, debugFile{path: path})
	}
	name, checksum, ok := f.debugLinkName()
	if !ok {
		return files, err
	}
	path := f.resolved()
	if path == "" {
		return files, nil
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

// UnsearchedDebugFile returns the name in .gnu_debuglink if FindDebugFile does
// not search the file's directories for it, else "".
func (f *File) UnsearchedDebugFile() string {
	if f.resolved() != "" {
		return ""
	}
	name, _, _ := f.debugLinkName()
	return name
}

// resolved returns the path of the file without symbolic links. It returns ""
// unless [Open] opened the file by a path that leads through no magic link of
// /proc/PID. Other paths are in file systems that a container may serve, or
// keep from answering.
func (f *File) resolved() string {
	path, err := filepath.Abs(f.path)
	if f.path == "" || err != nil || leadsThroughProcess(path) {
		return ""
	}
	if resolved, err := filepath.EvalSymlinks(path); err == nil {
		return resolved
	}
	return path
}

// pathsOf returns the paths of debug files by build ID: none for "".
func pathsOf(id string) (paths []string) {
	if len(id) >= 4 {
		paths = append(paths, filepath.Join(DebugRoot, ".build-id", id[:2], id[2:]+".debug"))
		for _, cache := range DebuginfodCaches() {
			paths = append(paths, filepath.Join(cache, id, "debuginfo"))
		}
	}
	return paths
}

// readSmall reads a section of up to limit bytes. It returns nil if there is no
// such section, or it cannot be read.
func (f *File) readSmall(s elffile.Section, limit uint64) []byte {
	if s.Size == 0 || s.Size > limit || s.Kind != elf.SHT_PROGBITS || s.Flags&elf.SHF_COMPRESSED != 0 {
		return nil
	}
	data, err := f.ReadRange(s.Offset, s.Size)
	if err != nil {
		return nil
	}
	return data
}

// debugLinkName reads the section .gnu_debuglink. It has a name without
// directories, padded with zeros to a multiple of 4 bytes, and a checksum.
func (f *File) debugLinkName() (name string, checksum uint32, ok bool) {
	data := f.readSmall(f.Section(".gnu_debuglink"), maxDebugLink)
	text, _, found := bytes.Cut(data, []byte{0})
	at := (len(text) + 1 + 3) &^ 3
	name = string(text)
	if !found || at+4 > len(data) || name == "" || name == "." || name == ".." ||
		strings.ContainsAny(name, `/\`) {
		return "", 0, false
	}
	return name, f.Words.Uint32(data[at:]), true
}

// checkLinked returns an error unless a debug file is the one that f names: by
// the build ID or, if one of them has none, by the checksum. A file larger than
// maxChecked is refused unread: a sparse file has any size, at no cost.
func (f *File) checkLinked(debug *File, want uint32) error {
	mine, _ := f.BuildID() // "" if there is none
	if theirs, _ := debug.BuildID(); mine != "" && theirs == mine {
		return nil
	}
	info, err := elffile.OSFile(debug).Stat()
	if err != nil {
		return err
	}
	if info.Size() > maxChecked {
		return fmt.Errorf("checksum of %d bytes: %w", info.Size(), elffile.ErrTooLarge)
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

// FindAlternative opens the file into which dwz has put the common parts of
// several debug files. It searches below DebugRoot and in the caches of
// debuginfod's clients by the build ID, and then for the name in f, which is
// relative to the directory of f or below DebugRoot. It fails with
// fs.ErrNotExist if f names no such file, or there is none.
func (f *File) FindAlternative() (*File, error) {
	text, build, _ := bytes.Cut(f.readSmall(f.Section(".gnu_debugaltlink"), maxAlternative), []byte{0})
	id, name := hex.EncodeToString(build), string(text)
	paths := pathsOf(id)
	if len(paths) == 0 {
		return nil, fs.ErrNotExist
	}
	if path := f.resolved(); path != "" && !filepath.IsAbs(name) {
		name = filepath.Join(filepath.Dir(path), name)
		paths = append(paths, name)
	}
	if strings.HasPrefix(filepath.Clean(name), DebugRoot+"/") {
		paths = append(paths, name)
	}
	for _, path := range paths {
		if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
			continue
		}
		found, err := Open(path)
		if err != nil {
			continue
		}
		if is, _ := found.BuildID(); is == id {
			return found, nil
		}
		found.Close()
	}
	return nil, fs.ErrNotExist
}

// DebuginfodCaches returns the directories in which the clients of debuginfod
// keep fetched files, by debuginfod_find_debuginfo(3).
func DebuginfodCaches() (caches []string) {
	if path := os.Getenv("DEBUGINFOD_CACHE_PATH"); path != "" {
		return []string{path}
	}
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

// miniDebug is the section of MiniFunctions.
const miniDebug = ".gnu_debugdata"

// MiniDebugBytes returns how many bytes MiniFunctions reads and unpacks at
// most, by the size of the section.
func (f *File) MiniDebugBytes() int {
	return int(min(f.Section(miniDebug).Size, maxMiniDebug/maxMiniRatio) * maxMiniRatio)
}

// MiniFunctions reads the functions in the section .gnu_debugdata. Fedora and
// others keep there the functions that strip removes, in an ELF file that is
// compressed by xz (MiniDebugInfo in GDB's manual). There are none if f has no
// such section. unpack decompresses; dictionary is the largest dictionary that
// it may use, in bytes.
//
// It fails with ErrTruncated, ErrMalformed or ErrTooLarge, or with an error of
// the reader.
func (f *File) MiniFunctions(
	unpack func(packed io.Reader, dictionary uint32) (io.Reader, error),
) (*Functions, error) {
	section := f.Section(miniDebug)
	if section.Size == 0 || section.Kind != elf.SHT_PROGBITS {
		return new(Functions), nil
	}
	fail := func(err error) (*Functions, error) {
		return nil, fmt.Errorf("section "+miniDebug+": %w", err)
	}
	packed := io.NewSectionReader(f, int64(section.Offset),
		int64(min(section.Size, maxMiniDebug)))
	unpacked, err := unpack(packed, maxDictionary)
	if err != nil {
		return fail(fmt.Errorf("%w: %w", elffile.ErrMalformed, err))
	}
	limit := f.MiniDebugBytes()
	data, err := io.ReadAll(unhurried{io.LimitReader(unpacked, int64(limit)+1), f})
	switch {
	case err != nil:
		return fail(fmt.Errorf("%w: %w", elffile.ErrMalformed, err))
	case len(data) > limit:
		return fail(elffile.ErrTooLarge)
	}
	mini, err := New(bytes.NewReader(data))
	if err == nil {
		mini.Late = f.Late
		err = f.adopt(mini.File)
	}
	if err != nil {
		return fail(err)
	}
	return mini.Functions()
}

// WithDebugFile is a file whose symbols are also searched for in its separate
// debug file, which is open only while it is searched.
type WithDebugFile struct {
	*elfnote.File
	path string // of the debug file, "" to search for it
	got  func() (elf.Symbol, error)

	mutex    sync.Mutex
	searches int
	missing  error // there is no debug file
	known    map[string]lookup
}

// lookup is the result of searching the debug file for a name.
type lookup struct {
	symbol elf.Symbol
	err    error
}

// AddDebugFile returns a file with the symbols of its debug file: the one at
// path, or if that is "" the installed one, see [File.debugFiles]. It fetches
// nothing. If the file's directory is not searched, the errors of symbols name
// the debug file.
func AddDebugFile(file *elfnote.File, path string) *WithDebugFile {
	w := &WithDebugFile{File: file, path: path, known: make(map[string]lookup)}
	w.got = sync.OnceValues(func() (elf.Symbol, error) {
		debug, err := w.open()
		if err != nil {
			return elf.Symbol{}, elffile.ErrNoPLTGOT
		}
		defer debug.Close()
		return debug.GOTSymbol()
	})
	return w
}

// AddInstalled is AddDebugFile for the debug file that is installed.
func AddInstalled(file *elfnote.File) argspec.File { return AddDebugFile(file, "") }

// Symbol is [elfnote.File.Symbol]. The first search in the debug file is for
// all symbols that arguments name.
func (w *WithDebugFile) Symbol(name string) (elf.Symbol, error) {
	symbol, err := w.File.Symbol(name)
	switch {
	case errors.Is(err, elffile.ErrNoPLTGOT): // of elffile.GOT
		return w.got()
	case !errors.Is(err, elffile.ErrSymbolNotFound):
		return symbol, err
	}
	w.mutex.Lock()
	defer w.mutex.Unlock()
	found, isKnown := w.known[name]
	if !isKnown && w.missing == nil {
		w.search(name)
		found = w.known[name]
	}
	switch {
	case w.missing == nil:
		return found.symbol, found.err
	case !errors.Is(w.missing, fs.ErrNotExist):
		err = fmt.Errorf("%w; %w", err, w.missing)
	}
	return symbol, err
}

func (w *WithDebugFile) search(name string) {
	names := []string{name}
	switch w.searches++; {
	case w.searches == 1:
		names = append(names, elffile.ArgumentWords(func(yield func(string) bool) {
			for site := range w.Sites() {
				if !yield(site.Arguments) {
					return
				}
			}
		})...)
	case w.searches > maxSearches:
		w.known[name] = lookup{err: fmt.Errorf("symbol %q: %d searches of the debug file: %w", name,
			maxSearches, elffile.ErrTooLarge)}
		return
	}
	debug, err := w.open()
	if err != nil {
		w.missing = err
		return
	}
	defer debug.Close()
	debug.FindSymbols(names)
	for _, name := range names {
		var found lookup
		found.symbol, found.err = debug.Symbol(name)
		w.known[name] = found
	}
}

// DebugFile opens the debug file. The error wraps fs.ErrNotExist if there is
// none.
func (w *WithDebugFile) DebugFile() (*os.File, error) {
	debug, err := w.open()
	if err != nil {
		return nil, err
	}
	return elffile.OSFile(debug), nil
}

func (w *WithDebugFile) open() (*File, error) {
	none := fmt.Errorf("debug file: %w", fs.ErrNotExist)
	opened := elffile.OSFile(w)
	if opened == nil || w.IsDebugFile() {
		return nil, none
	}
	read, err := New(opened)
	if err != nil {
		return nil, none // it has been closed
	}
	read.path = pathOf(opened)
	debug, err := read.FindDebugFile(w.path)
	if err == nil || w.path != "" {
		return debug, err
	}
	if name := read.UnsearchedDebugFile(); name != "" {
		return nil, fmt.Errorf("its debug file %q is only searched for beside a FILE that is named, "+
			"not in the directories of a process", name)
	}
	return nil, none
}

// pathOf returns the name of an open file if that leads to it. A name that
// leads through a process is not followed: see [File.resolved].
func pathOf(file *os.File) string {
	path, err := filepath.Abs(file.Name())
	if err != nil || leadsThroughProcess(path) {
		return ""
	}
	named, err := os.Stat(path)
	if err != nil {
		return ""
	}
	if is, err := file.Stat(); err != nil || !os.SameFile(named, is) {
		return ""
	}
	return file.Name()
}
