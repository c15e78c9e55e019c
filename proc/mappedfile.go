// SPDX-License-Identifier: BSD-2-Clause

package proc

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Mapping is a part of a file that a process has in its memory to execute it.
type Mapping struct {
	// Start and End are addresses in the process; End is the first one behind.
	Start, End uint64
	// Offset is where in the file the mapping starts, in bytes.
	Offset uint64
}

// Address returns where in the memory of the process the byte with this offset
// in the file is. ok is false if the mapping does not have it.
func (m Mapping) Address(offset uint64) (address uint64, ok bool) {
	if offset < m.Offset || offset-m.Offset >= m.End-m.Start {
		return 0, false
	}
	return m.Start + (offset - m.Offset), true
}

// MappedFile is a file of which a process has executable mappings: what maps
// says of it, and the way to the file itself. Before ID or Open has succeeded
// it must not be used by several goroutines at once.
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

	fs  *FS
	pid int
	// reader is the number to read the process's directory by: the PID, or that
	// of a thread where the first one has ended.
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

	// owner returns who is to answer for the process. It is read once for all
	// files that were found together.
	owner func() string
}

// fileKey is by what mappings of one process are grouped. The path is in it
// because device and inode alone may mean two files, see FileID.
type fileKey struct {
	major, minor uint32
	inode        uint64
	path         string
}

// Files returns the files of which the process has executable mappings, by
// their first address. The error is an [*Error]. If it is only that some lines
// of maps were malformed, the files of all others are returned with it.
func (f *FS) Files(pid int) ([]*MappedFile, error) {
	buf := make([]byte, maxStat)
	s, err := f.readStat(pid, buf)
	if err != nil {
		return nil, err
	}
	reader := pid
	if s.isLeaderless() {
		if reader, _, err = f.liveThread(pid, buf); err != nil {
			return nil, err
		}
	}
	var lines lineReader
	return f.files(pid, reader, &lines, nil)
}

// files is Files with a buffer to reuse; seen, if not nil, is shown every line.
func (f *FS) files(pid, reader int, lines *lineReader, seen func(*mapLine)) ([]*MappedFile, error) {
	var files []*MappedFile
	var last fileKey // most files have one executable mapping, the others neighbours
	index := make(map[fileKey]int)
	err := f.readMaps(reader, lines, func(l *mapLine) {
		if seen != nil {
			seen(l)
		}
		if last.inode != l.inode || last.major != l.major || last.minor != l.minor ||
			last.path != string(l.path) {
			last = fileKey{major: l.major, minor: l.minor, inode: l.inode, path: string(l.path)}
		}
		i, ok := index[last]
		if !ok {
			i = len(files)
			index[last] = i
			files = append(files, &MappedFile{
				pid: pid, fs: f, reader: reader, inode: l.inode, rawPath: unescapePath(l.path),
			})
		}
		files[i].Mappings = append(files[i].Mappings,
			Mapping{Start: l.start, End: l.end, Offset: l.offset})
	})
	if len(files) > 0 {
		shared, owner := new(mounts), sync.OnceValue(func() string { return f.owner(pid) })
		root := f.rootOf(reader)
		for _, file := range files {
			file.mounts, file.owner = shared, owner
			file.rawPath = cutRoot(file.rawPath, root)
			file.Path, file.Deleted = strings.CutSuffix(file.rawPath, deletedSuffix)
		}
	}
	return files, err
}

// rootOf returns the process's root directory as the caller's proc shows paths,
// "/" if it cannot be found out.
func (f *FS) rootOf(reader int) string {
	root, err := os.Readlink(f.path(reader, "root"))
	if err != nil {
		return "/"
	}
	return root
}

// insideRoot turns a path that the kernel made for the caller into the
// process's own. The kernel writes paths from the root of the mount namespace
// that the file is in, or from the caller's root if that is on the way: for a
// process after chroot, both differ from its own root.
func (f *FS) insideRoot(reader int, path string) string {
	return cutRoot(path, f.rootOf(reader))
}

func cutRoot(path, root string) string {
	if root == "/" || root == "" {
		return path
	}
	if rest, ok := strings.CutPrefix(path, root); ok && strings.HasPrefix(rest, "/") {
		return rest
	}
	return path
}

// OpenedPath returns the path by which the file was reached, as the caller sees
// it: <proc>/PID/map_files/START-END, or <proc>/PID/root/PATH. It is "" before
// [MappedFile.ID] or [MappedFile.Open] has succeeded. It is valid as long as
// the process has the mapping.
func (m *MappedFile) OpenedPath() string { return m.openedPath }

// mapFilesPath returns the link of a mapping, whose name has no leading zeros.
func (m *MappedFile) mapFilesPath(mapping Mapping) string {
	name := append([]byte("map_files/"), strconv.FormatUint(mapping.Start, 16)...)
	name = append(name, '-')
	name = strconv.AppendUint(name, mapping.End, 16)
	return m.fs.path(m.reader, string(name))
}

// isPath reports whether the file may have a path at all. A memfd, shared
// memory and shared anonymous memory look like deleted files and never had one.
func (m *MappedFile) isPath() bool { return strings.HasPrefix(m.rawPath, "/") }

func (m *MappedFile) wrap(op string, err error) error {
	return &Error{PID: m.pid, Path: m.Path, Op: op, Err: err}
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
	Process Process
	// File is the file, held open until the handler has returned for the
	// [Changes] in which the ProcessFile disappears. See [CachedFile.Hold] to
	// keep it longer.
	File *CachedFile
	// MappedFile says how the process has the file: its Path and its Mappings.
	*MappedFile
}

// equals reports whether the process has the file in the same way.
func (p *ProcessFile) equals(other *ProcessFile) bool {
	return p.File == other.File && p.MappedFile.equals(other.MappedFile)
}
