// SPDX-License-Identifier: BSD-2-Clause

package procwatch

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"github.com/gousdt/gousdt/internal/procfs"
	"github.com/gousdt/gousdt/proc"
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
	Mappings []procfs.Mapping

	root string // of the proc file system
	pid  int
	// reader is the PID, or the ID of another thread if the first one has
	// ended. The directory of that name in proc shows the mappings.
	reader int
	// inode is the number in maps, by which a file found by its path is
	// verified.
	inode uint64
	// rawPath is the path below the process's root, with " (deleted)" if maps
	// says so: for a file that is really named like that, it is the way to it.
	rawPath string

	searched   bool     // its notes were read, which need not be done again
	found      identity // before it was merged
	openedPath string   // how the file was reached, "" before it was

	id     FileID // zero before it was asked for
	mounts *mounts
	owner  string // of the process, see [procfs.OwnerOf]
}

// Files returns the files that the process maps as executable, by their first
// address. The error is a [*procfs.Error]. If only some lines of maps were
// malformed, the files of all others are returned with it.
func Files(fs *procfs.FS, pid int) ([]*MappedFile, error) { return filesOf(fs, pid, false) }

// AllFiles is Files with what the process maps without executing it: as data,
// or because it executes a copy of the code.
func AllFiles(fs *procfs.FS, pid int) ([]*MappedFile, error) { return filesOf(fs, pid, true) }

func filesOf(fs *procfs.FS, pid int, all bool) ([]*MappedFile, error) {
	_, reader, err := procfs.ReadLiveStat(fs.Root(), pid, make([]byte, procfs.MaxStat))
	if err != nil {
		return nil, err
	}
	return files(fs.Root(), pid, reader, newLines(nil), procfs.OwnerOf(fs.Root(), pid), all, nil)
}

// files is Files with a buffer to reuse. It calls seen, if that is not nil, for
// every line that it takes.
func files(
	root string, pid, reader int, lines *bufio.Reader, owner string, all bool, seen func(*mapLine),
) (files []*MappedFile, err error) {
	// It has the path because device and inode alone may mean two files, see
	// FileID.
	type fileKey struct {
		mapKey
		path string
	}
	index, mounts := make(map[fileKey]*MappedFile), new(mounts)
	err = readMaps(root, reader, lines, all, func(l *mapLine) {
		if seen != nil {
			seen(l)
		}
		key := fileKey{mapKey{l.major, l.minor, l.inode}, string(l.path)}
		m := index[key]
		if m == nil {
			m = &MappedFile{pid: pid, root: root, reader: reader, inode: l.inode,
				rawPath: unescapePath(l.path), mounts: mounts, owner: owner}
			index[key] = m
			files = append(files, m)
		}
		m.Mappings = append(m.Mappings, procfs.Mapping{Start: l.start, End: l.end, Offset: l.offset,
			Writable: l.writable, Shared: l.shared, Data: !l.executable})
	})
	inside := "/"
	if len(files) > 0 {
		inside = procfs.RootOf(root, reader)
	}
	for _, m := range files {
		m.rawPath = procfs.CutRoot(m.rawPath, inside)
		m.Path, m.Deleted = strings.CutSuffix(m.rawPath, deletedSuffix)
	}
	return files, err
}

// ID identifies the file without opening it, and remembers the answer. It
// follows the link of the mapping, which is certain, if the kernel allows that.
// Otherwise it follows the path in the process's mount namespace. The file
// there must have the inode number that maps shows, except on overlayfs, where
// these numbers mean nothing.
//
// The error is a [*procfs.Error]. It wraps [procfs.ErrChanged] if the mapping
// has gone meanwhile, [procfs.ErrUnreachable], [procfs.ErrNotRegular],
// [procfs.ErrAccess] or [procfs.ErrGone]. On other systems than Linux it wraps
// errors.ErrUnsupported.
func (m *MappedFile) ID() (FileID, error) {
	found, err := m.identify()
	if err != nil {
		return FileID{}, err
	}
	if m.id == (FileID{}) {
		m.id = found.FileID
		if merged, ok := found.merged(); ok && m.mounts.trusts(m.root, m.reader, found.mount) {
			m.id = merged
		}
	}
	return m.id, nil
}

// Version is ID for what depends on the contents.
func (m *MappedFile) Version() (Version, error) {
	id, err := m.ID()
	return Version{id, m.found.size, m.found.modified}, err
}

// identify returns the ID before merging, and the contents.
func (m *MappedFile) identify() (identity, error) {
	if m.openedPath != "" {
		return m.found, nil
	}
	id, path, err := m.find(func(path string) (identity, error) { return identify(0, path) })
	if err != nil {
		return identity{}, m.wrap("identify", err)
	}
	m.found, m.openedPath = id, path
	return id, nil
}

// Open opens the file for reading. The descriptor stays valid when the file is
// deleted, the mapping removed, or the process ended; its name, by which it
// could be opened again, does not. The caller closes it.
//
// The errors are those of [MappedFile.ID]. If the file is not the one that ID
// found, the error is [procfs.ErrChanged].
func (m *MappedFile) Open() (*os.File, error) {
	var file *os.File
	id, path, err := m.find(func(path string) (identity, error) {
		// Devices are told from files before anything is opened.
		if _, err := identify(0, path); err != nil {
			return identity{}, err
		}
		opened, err := openFile(path, path)
		if err != nil {
			return identity{}, err
		}
		id, err := identify(int(opened.Fd()), "")
		if file = opened; err != nil {
			file.Close()
		}
		return id, err
	})
	if err != nil {
		return nil, m.wrap("open", err)
	}
	switch {
	case m.openedPath == "":
		m.found, m.openedPath = id, path
	case id.FileID != m.found.FileID:
		file.Close()
		return nil, m.wrap("open", procfs.ErrChanged)
	}
	return file, nil
}

// find calls a function with one path to the file after another, until it
// succeeds.
func (m *MappedFile) find(try func(path string) (identity, error)) (identity, string, error) {
	var direct error
	for _, mapping := range m.Mappings {
		// The name of the link has no leading zeros.
		path := procfs.Path(m.root, m.reader, fmt.Sprintf("map_files/%x-%x", mapping.Start, mapping.End))
		id, err := try(path)
		if err == nil || errors.Is(err, procfs.ErrNotRegular) {
			return id, path, err
		}
		direct = err
		// Without the privilege the answer is the same for every mapping. One
		// that has gone may have left others, split from it or merged with it.
		if !errors.Is(err, syscall.ENOENT) {
			break
		}
	}
	if procfs.IsLack(direct) {
		// Too few descriptors, or memory: it would be so by the path, too.
		return identity{}, "", direct
	}

	// By the path that maps shows, below the process's root.
	file, id, err := findIn(m.root, m.reader, m.rawPath)
	if err == nil {
		defer file.Close()
		if !id.overlay && id.inode != m.inode {
			err = procfs.ErrUnreachable
		} else if id, err = try(descriptorPath(file)); err == nil {
			return id, file.Name(), nil
		}
	}
	switch {
	case errors.Is(err, procfs.ErrNotRegular), errors.Is(err, procfs.ErrGone),
		errors.Is(err, procfs.ErrAccess):
		return identity{}, "", err
	case errors.Is(direct, syscall.ENOENT) || errors.Is(direct, syscall.ESRCH):
		// map_files works here, only the mapping is not there.
		return identity{}, "", fmt.Errorf("%w: %w", procfs.ErrChanged, direct)
	case errors.Is(err, procfs.ErrUnreachable), file == nil && slices.ContainsFunc(
		[]error{os.ErrInvalid, syscall.ENOENT, syscall.ENOTDIR, syscall.ELOOP},
		func(none error) bool { return errors.Is(err, none) }):
		// A memfd, shared memory and shared anonymous memory look like deleted
		// files and never had a path.
		return identity{}, "", fmt.Errorf("%w: %w", procfs.ErrUnreachable, direct)
	}
	return identity{}, "", err
}

// OpenIn opens a regular file by the path that the process would use: below its
// root directory and in its mount namespace. The caller closes it. The name of
// the file is its path for the caller. The error is a [*procfs.Error]. On other
// systems than Linux it wraps errors.ErrUnsupported.
func OpenIn(fs *procfs.FS, pid int, path string) (file *os.File, err error) {
	found, _, err := findIn(fs.Root(), pid, path)
	if err == nil {
		file, err = reopen(found)
	}
	if err != nil {
		return nil, &procfs.Error{PID: pid, Path: path, Op: "open", Err: err}
	}
	return file, nil
}

// reopen opens a file that was found, and closes the descriptor that it was
// found by.
func reopen(found *os.File) (*os.File, error) {
	defer found.Close()
	return openFile(descriptorPath(found), found.Name())
}

// descriptorPath is the path by which the file of an open descriptor is opened
// again. The file cannot be exchanged meanwhile.
func descriptorPath(file *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", file.Fd()) }

// OpenedPath returns the path by which the file was reached, as the caller sees
// it: <proc>/PID/map_files/START-END, or <proc>/PID/root/PATH. It is "" before
// [MappedFile.ID] or [MappedFile.Open] has succeeded. It is valid as long as
// the process has the mapping.
func (m *MappedFile) OpenedPath() string { return m.openedPath }

func (m *MappedFile) wrap(op string, err error) error {
	return &procfs.Error{PID: m.pid, Path: m.Path, Op: op, Err: err}
}

// equals reports whether both are mapped at the same addresses by the same
// path.
func (m *MappedFile) equals(other *MappedFile) bool {
	return m.Path == other.Path && m.Deleted == other.Deleted &&
		slices.Equal(m.Mappings, other.Mappings)
}

// ProcessFile is a file with wanted probes in a process that maps it. It does
// not change once it has been delivered, and may be used by several goroutines
// at once.
type ProcessFile struct {
	// Process is the process, as it was when the file appeared in it.
	Process proc.Process
	// File is the file, held open until the handler has returned for the
	// [Changes] in which the ProcessFile disappears. See [CachedFile.Hold] to
	// keep it longer.
	File *CachedFile
	// MappedFile says how the process has the file: its Path and its Mappings.
	*MappedFile
	// executed says that the process has executed a program that maps the file,
	// after one that did, too.
	executed bool
}

// View returns the part that users of a watch get.
func (p *ProcessFile) View() *proc.ProcessFile {
	return &proc.ProcessFile{Process: p.Process, Path: p.Path}
}

// Report returns a handler that reports what has appeared and disappeared to a
// user of a watch. It is nil if to is nil.
func Report(to func(appeared, disappeared []*proc.ProcessFile)) func(*Changes) {
	if to == nil {
		return nil
	}
	return func(c *Changes) {
		again := slices.DeleteFunc(slices.Clone(c.Moved),
			func(p *ProcessFile) bool { return !p.executed })
		if len(c.Appeared)+len(again)+len(c.Disappeared) > 0 {
			to(Views(append(again, c.Appeared...)), Views(append(again, c.Disappeared...)))
		}
	}
}

// Views returns the View of each.
func Views(pairs []*ProcessFile) []*proc.ProcessFile {
	var all []*proc.ProcessFile
	for _, pair := range pairs {
		all = append(all, pair.View())
	}
	return all
}

// FileID identifies a file, whatever its path. It can be compared and be a map
// key. The zero value is no file's. It stays the same when the file is written
// to, touched, or deleted while it is in use.
//
// The device and inode that maps shows will not do. On btrfs they are the same
// for files of different subvolumes; on overlayfs they are, by kernel version,
// those of the overlay or of a layer; and the inode number of a deleted file is
// given to a new one, on ext4 at once. So all of this comes from statx of the
// file itself.
//
// An untrusted file system can report any inode and any time, but the device is
// the kernel's word. So none of its files can pass for a file of another file
// system.
type FileID struct {
	device uint64 // as statx tells it, major in the upper 32 bits; 0 if merged
	inode  uint64

	// born is when the inode was made, in nanoseconds after 1970. It tells a
	// file from an earlier one with the same inode number. The few file systems
	// that do not keep it have 0.
	born int64

	// overlay means that the file was reached through overlayfs, where every
	// mount has device numbers of its own. Containers that were started from
	// the same image share a file until one writes to it, and a breakpoint set
	// in it for one of them is set for all. So these are merged: the device is
	// 0, and the other fields are those of the file in the layer below. That
	// file itself, reached where the layers are stored, has another FileID.
	//
	// Files are merged only on mounts that were made in the initial user
	// namespace. In another one, a user can mount overlayfs over an own file
	// system, which can report anything.
	overlay bool
}

// Version is a file until it is written to. It stays the same when the file is
// deleted while it is in use.
type Version struct {
	FileID
	size, modified int64 // see contents
}

// contents change when the file is written to, and when it is only touched.
// What has been read of the file is then read again.
type contents struct {
	size     int64
	modified int64 // mtime, in nanoseconds after 1970
	changed  int64 // ctime, likewise
}

// identity is the answer of statx about a file.
type identity struct {
	FileID
	contents
	mount uint64 // the number of the mount, 0 if the kernel does not tell it
}

// merged returns the ID by which containers share a file of overlayfs. ok is
// false if it has none.
func (id FileID) merged() (merged FileID, ok bool) {
	if !id.overlay || id.born == 0 {
		return id, false
	}
	id.device = 0
	return id, true
}

// MayBe reports whether both may be one file. That is so if they are equal, or
// if both were reached through overlayfs, whose mounts have different numbers
// for the same file. A user that can mount overlayfs can deceive it: use it
// only for what affects one process.
func (id FileID) MayBe(other FileID) bool {
	return id == other || id.overlay && other.overlay && id.inode == other.inode &&
		id.born == other.born
}

// IdentifyFile returns the ID of an open file. A file of overlayfs may have
// another ID than in the processes that map it, see [FileID.MayBe]. On other
// systems than Linux the error wraps errors.ErrUnsupported.
func IdentifyFile(file *os.File) (FileID, error) {
	id, err := identify(int(file.Fd()), "")
	if err != nil {
		return FileID{}, fmt.Errorf("identify %s: %w", file.Name(), err)
	}
	runtime.KeepAlive(file)
	return id.FileID, nil
}
