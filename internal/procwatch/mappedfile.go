// SPDX-License-Identifier: BSD-2-Clause

package procwatch

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/gousdt/gousdt/internal/procfs"
	"github.com/gousdt/gousdt/proc"
)

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

	// owner returns the owner of the process, see [procfs.OwnerOf]. It is read
	// once for all files that were found together.
	owner func() string
}

// fileKey is equal for the mappings of one file in a process. The path is in it
// because device and inode alone may mean two files, see FileID.
type fileKey struct {
	major, minor uint32
	inode        uint64
	path         string
}

// Files returns the files that the process maps as executable, by their first
// address. The error is an [*Error]. If it is only that some lines
// of maps were malformed, the files of all others are returned with it.
func Files(fs *procfs.FS, pid int) ([]*MappedFile, error) {
	root := fs.Root()
	buf := make([]byte, procfs.MaxStat)
	s, err := procfs.ReadStat(root, pid, buf)
	if err != nil {
		return nil, err
	}
	reader := pid
	if s.IsLeaderless() {
		if reader, _, err = procfs.LiveThread(root, pid, buf); err != nil {
			return nil, err
		}
	}
	var lines lineReader
	return files(root, pid, reader, &lines, nil)
}

// files is Files with a buffer to reuse. It calls seen, if that is not nil, for
// every line of an executable mapping.
func files(root string, pid, reader int, lines *lineReader, seen func(*mapLine)) ([]*MappedFile, error) {
	var files []*MappedFile
	var last fileKey // most files have one executable mapping, the others neighbours
	index := make(map[fileKey]int)
	err := readMaps(root, reader, lines, func(l *mapLine) {
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
				pid: pid, root: root, reader: reader, inode: l.inode, rawPath: unescapePath(l.path),
			})
		}
		files[i].Mappings = append(files[i].Mappings,
			procfs.Mapping{Start: l.start, End: l.end, Offset: l.offset})
	})
	if len(files) > 0 {
		shared, owner := new(mounts), sync.OnceValue(func() string { return procfs.OwnerOf(root, pid) })
		inside := procfs.RootOf(root, reader)
		for _, file := range files {
			file.mounts, file.owner = shared, owner
			file.rawPath = procfs.CutRoot(file.rawPath, inside)
			file.Path, file.Deleted = strings.CutSuffix(file.rawPath, deletedSuffix)
		}
	}
	return files, err
}

// OpenedPath returns the path by which the file was reached, as the caller sees
// it: <proc>/PID/map_files/START-END, or <proc>/PID/root/PATH. It is "" before
// [MappedFile.ID] or [MappedFile.Open] has succeeded. It is valid as long as
// the process has the mapping.
func (m *MappedFile) OpenedPath() string { return m.openedPath }

// mapFilesPath returns the link of a mapping, whose name has no leading zeros.
func (m *MappedFile) mapFilesPath(mapping procfs.Mapping) string {
	return procfs.Path(m.root, m.reader,
		fmt.Sprintf("map_files/%x-%x", mapping.Start, mapping.End))
}

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
}

// View returns what users of a watch are shown.
func (p *ProcessFile) View() *proc.ProcessFile {
	return &proc.ProcessFile{Process: p.Process, Path: p.Path}
}

// Report returns a handler that reports what has appeared and disappeared to a
// user of a watch, nil if there is none.
func Report(to func(appeared, disappeared []*proc.ProcessFile)) func(*Changes) {
	if to == nil {
		return nil
	}
	return func(c *Changes) {
		if len(c.Appeared)+len(c.Disappeared) > 0 {
			to(Views(c.Appeared), Views(c.Disappeared))
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
