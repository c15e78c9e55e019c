// SPDX-License-Identifier: BSD-2-Clause

package procfs

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
)

// MappedFile is a file that a process maps as executable: its entries in maps,
// and the way to the file itself. Before ID or Open has succeeded it must not
// be used by several goroutines at once.
type MappedFile struct {
	// Path is the path as the process sees it: below its root directory and in
	// its mount namespace, as it was when the process opened the file and as
	// renames have changed it since. Other things than paths occur:
	// "/memfd:name", "/SYSV00000000". A file that lies outside of the process's
	// root directory has a path that the process itself could not use.
	Path string
	// Deleted reports whether there is nothing at that path any more, or
	// another file.
	Deleted bool
	// Mappings are where the process executes the file, by address.
	Mappings []Mapping
	// RawPath is the path below the process's root, with " (deleted)" if maps
	// says so: for a file that is really named like that, it is the way to it.
	RawPath string

	// Found is what Identify or Open has found.
	Found Identity
	// OpenedPath is the path by which the file was reached then, as the caller
	// sees it: <proc>/PID/map_files/START-END, or <proc>/PID/root/PATH. It is
	// valid as long as the process has the mapping.
	OpenedPath string

	// Dir is the directory in proc that shows the mappings: that of the
	// process, or of another thread if the first one has ended.
	Dir string
	pid int
	// inode is the number in maps. It verifies a file found by its path.
	inode uint64
}

// Files returns the files that the process maps as executable, by their first
// address. The error is a [*Error]. If only some lines of maps were
// malformed, the files of all others are returned with it.
func Files(fs FS, pid int) ([]*MappedFile, error) { return filesOf(fs, pid, false) }

// AllFiles is Files with what the process maps without executing it: as data,
// or because it executes a copy of the code.
func AllFiles(fs FS, pid int) ([]*MappedFile, error) { return filesOf(fs, pid, true) }

// FileAt is a file that a process has mapped, whose mappings are not known: it
// is found by its path alone, below the root directory of a process of the same
// mount namespace.
func FileAt(fs FS, pid int, path string, inode uint64) *MappedFile {
	return &MappedFile{Path: path, RawPath: path, pid: pid, Dir: dirOf(fs.Root(), pid), inode: inode}
}

func filesOf(fs FS, pid int, all bool) ([]*MappedFile, error) {
	_, reader, err := ReadLiveStat(fs.Root(), pid, make([]byte, MaxStat))
	if err != nil {
		return nil, err
	}
	return ReadFiles(fs.Root(), pid, reader, NewLines(nil), all, nil)
}

// ReadFiles is Files, or AllFiles, with a buffer to reuse, by the PID or the ID
// of another thread. It calls seen, if it is set, for every line that it takes.
func ReadFiles(
	root string, pid, reader int, lines *bufio.Reader, all bool, seen func(*MapLine),
) (files []*MappedFile, err error) {
	// It has the path because device and inode alone may mean two files, see
	// FileID.
	type fileKey struct {
		FileKey
		path string
	}
	index, dir := make(map[fileKey]*MappedFile), dirOf(root, reader)
	err = readMaps(root, reader, lines, all, func(l *MapLine) {
		if seen != nil {
			seen(l)
		}
		key := fileKey{l.FileKey, string(l.path)}
		m := index[key]
		if m == nil {
			m = &MappedFile{pid: pid, Dir: dir, inode: l.Inode, RawPath: unescapePath(l.path)}
			index[key] = m
			files = append(files, m)
		}
		m.Mappings = append(m.Mappings, Mapping{Start: l.Start, End: l.End, Offset: l.Offset,
			Writable: l.writable, Shared: l.shared, Data: !l.executable})
	})
	inside := "/"
	if len(files) > 0 {
		inside = RootOf(root, reader)
	}
	for _, m := range files {
		m.RawPath = CutRoot(m.RawPath, inside)
		m.Path, m.Deleted = strings.CutSuffix(m.RawPath, deletedSuffix)
	}
	return files, err
}

// Identify identifies the file without opening it, and remembers the answer. It
// follows the link of the mapping, which is certain, if the kernel allows that.
// Otherwise it follows the path in the process's mount namespace. The file
// there must have the inode number that maps shows, except on overlayfs, where
// these numbers mean nothing.
//
// The error is a [*Error]. It wraps [ErrChanged] if the mapping has gone
// meanwhile, [ErrUnreachable], [ErrNotRegular], [ErrAccess] or [ErrGone]. On
// other systems than Linux it wraps errors.ErrUnsupported.
func (m *MappedFile) Identify() (Identity, error) {
	if m.OpenedPath != "" {
		return m.Found, nil
	}
	id, path, err := m.find(func(path string) (Identity, error) { return identify(0, path) })
	if err != nil {
		return Identity{}, m.Wrap("identify", err)
	}
	m.Found, m.OpenedPath = id, path
	return id, nil
}

// Open opens the file for reading. The descriptor stays valid when the file is
// deleted, the mapping removed, or the process ended; its name, by which it
// could be opened again, does not. The caller closes it.
//
// The errors are those of [MappedFile.Identify]. If the file is not the one
// that Identify found, the error is [ErrChanged].
func (m *MappedFile) Open() (*os.File, error) {
	var file *os.File
	id, path, err := m.find(func(path string) (Identity, error) {
		// Devices are told from files before anything is opened.
		if _, err := identify(0, path); err != nil {
			return Identity{}, err
		}
		opened, err := openFile(path, path)
		if err != nil {
			return Identity{}, err
		}
		id, err := identify(int(opened.Fd()), "")
		if file = opened; err != nil {
			file.Close()
		}
		return id, err
	})
	if err != nil {
		return nil, m.Wrap("open", err)
	}
	switch {
	case m.OpenedPath == "":
		m.Found, m.OpenedPath = id, path
	case id.FileID != m.Found.FileID:
		file.Close()
		return nil, m.Wrap("open", ErrChanged)
	}
	return file, nil
}

// find calls a function with one path to the file after another, until it
// succeeds.
func (m *MappedFile) find(try func(path string) (Identity, error)) (Identity, string, error) {
	var direct error
	for _, mapping := range m.Mappings {
		// The name of the link has no leading zeros.
		path := fmt.Sprintf("%s/map_files/%x-%x", m.Dir, mapping.Start, mapping.End)
		id, err := try(path)
		if err == nil || errors.Is(err, ErrNotRegular) {
			return id, path, err
		}
		direct = err
		// Without the privilege the answer is the same for every mapping. One
		// that has gone may have left others, split from it or merged with it.
		if !errors.Is(err, syscall.ENOENT) {
			break
		}
	}
	if IsLack(direct) {
		// Too few descriptors, or memory: it would be so by the path, too.
		return Identity{}, "", direct
	}

	// By the path that maps shows, below the process's root.
	file, id, err := findIn(m.Dir, m.RawPath)
	if err == nil {
		defer file.Close()
		if !id.Overlay && id.Inode != m.inode {
			err = ErrUnreachable
		} else if id, err = try(descriptorPath(file)); err == nil {
			return id, file.Name(), nil
		}
	}
	switch {
	case errors.Is(err, ErrNotRegular), errors.Is(err, ErrGone),
		errors.Is(err, ErrAccess):
		return Identity{}, "", err
	case errors.Is(direct, syscall.ENOENT) || errors.Is(direct, syscall.ESRCH):
		// map_files works here, only the mapping is not there.
		return Identity{}, "", fmt.Errorf("%w: %w", ErrChanged, direct)
	case errors.Is(err, ErrUnreachable), file == nil && slices.ContainsFunc(
		[]error{os.ErrInvalid, syscall.ENOENT, syscall.ENOTDIR, syscall.ELOOP},
		func(none error) bool { return errors.Is(err, none) }):
		// A memfd, shared memory and shared anonymous memory look like deleted
		// files and never had a path.
		return Identity{}, "", fmt.Errorf("%w: %w", ErrUnreachable, direct)
	}
	return Identity{}, "", err
}

// OpenIn opens a regular file by the path that the process would use: below its
// root directory and in its mount namespace. The caller closes it. The name of
// the file is its path for the caller. The error is a [*Error]. On other
// systems than Linux it wraps errors.ErrUnsupported.
func OpenIn(fs FS, pid int, path string) (file *os.File, err error) {
	found, _, err := FindIn(fs, pid, path)
	if err == nil {
		file, err = Reopen(found)
	}
	if err != nil {
		return nil, &Error{PID: pid, Path: path, Op: "open", Err: err}
	}
	return file, nil
}

// FindIn finds a regular file as OpenIn does, and identifies it, without
// opening it (O_PATH).
func FindIn(fs FS, pid int, path string) (*os.File, Identity, error) {
	return findIn(dirOf(fs.Root(), pid), path)
}

// Reopen opens a file that FindIn has found, and closes the descriptor that it
// was found by.
func Reopen(found *os.File) (*os.File, error) {
	defer found.Close()
	return openFile(descriptorPath(found), found.Name())
}

// descriptorPath is the path by which the file of an open descriptor is opened
// again. The file cannot be exchanged meanwhile.
func descriptorPath(file *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", file.Fd()) }

// Wrap returns the error of an operation on the file.
func (m *MappedFile) Wrap(op string, err error) error {
	return &Error{PID: m.pid, Path: m.Path, Op: op, Err: err}
}

// IsNamed reports whether a bare name means the file at a path: by the last
// element of the path, which may have further version numbers ("libc.so" and
// "python3" mean libc.so.6 and python3.11), or as linkers name it ("c" means
// libc.so.6).
func IsNamed(file, name string) bool {
	base := path.Base(file)
	is := func(name string) bool { return base == name || strings.HasPrefix(base, name+".") }
	return is(name) || !strings.HasPrefix(name, "lib") && is("lib"+name+".so")
}
