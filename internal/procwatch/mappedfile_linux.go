// SPDX-License-Identifier: BSD-2-Clause

package procwatch

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/internal/procfs"
)

// ID identifies the file without opening it, and remembers the answer. It
// follows the link of the mapping if the kernel allows that, which is certain.
// Otherwise it follows the path in the process's mount namespace. The file
// there must have the inode number that maps shows, except on overlayfs, where
// these numbers mean nothing.
//
// The error is an [*Error]. It wraps [ErrChanged] if the mapping has gone
// meanwhile, [ErrUnreachable], [ErrNotRegular], [ErrAccess] or [ErrGone].
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
// found, the error is [ErrChanged].
func (m *MappedFile) Open() (*os.File, error) {
	var fd int
	id, path, err := m.find(func(path string) (identity, error) {
		// Devices are told from files before anything is opened.
		if _, err := identify(0, path); err != nil {
			return identity{}, err
		}
		var err error
		if fd, err = openFile(path); err != nil {
			return identity{}, err
		}
		id, err := identify(fd, "")
		if err != nil {
			unix.Close(fd)
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
		unix.Close(fd)
		return nil, m.wrap("open", procfs.ErrChanged)
	}
	return os.NewFile(uintptr(fd), path), nil
}

// find calls a function with one path to the file after another, until it
// succeeds.
func (m *MappedFile) find(try func(path string) (identity, error)) (identity, string, error) {
	var direct error
	for _, mapping := range m.Mappings {
		path := m.mapFilesPath(mapping)
		id, err := try(path)
		if err == nil || errors.Is(err, procfs.ErrNotRegular) {
			return id, path, err
		}
		direct = err
		// Without the privilege the answer is the same for every mapping. One
		// that has gone may have left others, split from it or merged with it.
		if !errors.Is(err, unix.ENOENT) {
			break
		}
	}
	if procfs.IsLack(direct) {
		// Too few descriptors, or memory: it would be so by the path, too.
		return identity{}, "", direct
	}
	id, path, err := m.findByPath(try)
	switch {
	case err == nil || errors.Is(err, procfs.ErrNotRegular) || errors.Is(err, procfs.ErrGone) ||
		errors.Is(err, procfs.ErrAccess):
		return id, path, err
	case errors.Is(direct, unix.ENOENT) || errors.Is(direct, unix.ESRCH):
		// map_files works here, only the mapping is not there.
		return identity{}, "", fmt.Errorf("%w: %w", procfs.ErrChanged, direct)
	case errors.Is(err, procfs.ErrUnreachable):
		return identity{}, "", fmt.Errorf("%w: %w", err, direct)
	}
	return identity{}, "", err
}

// findByPath calls the function for the path that maps shows, below the
// process's root.
func (m *MappedFile) findByPath(try func(path string) (identity, error)) (identity, string, error) {
	// A memfd, shared memory and shared anonymous memory look like deleted
	// files and never had a path.
	if !strings.HasPrefix(m.rawPath, "/") {
		return identity{}, "", procfs.ErrUnreachable
	}
	root := procfs.Path(m.root, m.reader, "root")
	dir, err := openDirectory(root)
	if err != nil {
		return identity{}, "", procfs.Classify(err)
	}
	defer unix.Close(dir)
	fd, err := openInRoot(dir, m.rawPath)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
		return identity{}, "", procfs.ErrUnreachable
	case err != nil:
		return identity{}, "", err
	}
	defer unix.Close(fd)
	// The file of a descriptor cannot be exchanged meanwhile.
	id, err := identify(fd, "")
	switch {
	case err != nil:
		return identity{}, "", err
	case !id.overlay && id.inode != m.inode:
		return identity{}, "", procfs.ErrUnreachable
	}
	id, err = try(descriptorPath(fd))
	return id, root + m.rawPath, err
}

// Facts of include/uapi/linux/fs.h, Linux 6.11: the ioctl on /proc/PID/maps
// that finds the next mapping of a kind. It answers in 0.6 microseconds what
// the text takes 0.7 per line for, and only for the mappings that matter.
const (
	procmapQuery = 0xc068_6611 // _IOWR('f', 17, struct procmap_query)

	queryExecutable     = 0x04
	queryCoveringOrNext = 0x10
	queryFileBacked     = 0x20
)

// mapQuery is struct procmap_query, 104 bytes on every machine.
type mapQuery struct {
	size, flags, address                      uint64
	start, end, memoryFlags, pageSize, offset uint64
	inode                                     uint64
	major, minor, nameSize, buildIDSize       uint32
	nameAddress, buildIDAddress               uint64
}

// errNoQuery means that the kernel has no such ioctl, or that what was opened
// is no real maps.
var errNoQuery = errors.New("no PROCMAP_QUERY")

// queryMaps is readMaps by the ioctl. The lines have no paths.
func queryMaps(root string, pid int, line func(*mapLine)) error {
	file, err := procfs.OpenRaw(procfs.Path(root, pid, "maps"))
	if err != nil {
		return &procfs.Error{PID: pid, Op: "read maps", Err: procfs.Classify(err)}
	}
	defer file.Close()
	var next uint64
	for {
		q := mapQuery{flags: queryExecutable | queryFileBacked | queryCoveringOrNext, address: next}
		q.size = uint64(unsafe.Sizeof(q))
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(file), procmapQuery,
			uintptr(unsafe.Pointer(&q)))
		runtime.KeepAlive(&q)
		switch {
		case errno == unix.ENOENT: // there is no further one
			return nil
		case errno == unix.EINTR:
			continue
		case errno == unix.ENOTTY || errno == unix.EINVAL || errno == unix.ENOSYS:
			return fmt.Errorf("%w: %w", errNoQuery, errno)
		case errno != 0:
			return &procfs.Error{PID: pid, Op: "read maps", Err: procfs.Classify(errno)}
		}
		if q.end <= next { // it would never end
			return fmt.Errorf("%w: it goes backwards", errNoQuery)
		}
		next = q.end
		l := mapLine{
			start: q.start, end: q.end, offset: q.offset, inode: q.inode,
			major: q.major, minor: q.minor, executable: true,
		}
		if l.isFile() {
			line(&l)
		}
	}
}

// initialUserNamespace is the inode number of the first user namespace on every
// kernel (PROC_USER_INIT_INO of include/linux/proc_ns.h).
const initialUserNamespace = 0xeffffffd

// mounts are the trusted mounts of a process. They are read when one is asked
// for first.
type mounts struct {
	read    bool
	trusted map[uint64]bool // by number
}

// trusts reports whether a mount is in the process's mount namespace, and that
// namespace belongs to the initial user namespace. Then only a user with all
// privileges on the host can have made the mount. A mount that cannot be looked
// up is not trusted.
func (m *mounts) trusts(root string, pid int, mount uint64) bool {
	if !m.read {
		m.read = true
		if hasTrustedMounts(root, pid) {
			m.trusted = readMounts(root, pid)
		}
	}
	return m.trusted[mount]
}

// hasTrustedMounts reports whether the process's mount namespace belongs to the
// initial user namespace.
func hasTrustedMounts(root string, pid int) bool {
	file, err := procfs.OpenRaw(procfs.Path(root, pid, "ns/mnt"))
	if err != nil {
		return false
	}
	defer file.Close()
	owner, err := unix.IoctlRetInt(int(file), unix.NS_GET_USERNS)
	if err != nil {
		return false // it lies outside of the caller's, for example
	}
	defer unix.Close(owner)
	var st unix.Stat_t
	return unix.Fstat(owner, &st) == nil && st.Ino == initialUserNamespace
}

// mounts returns the numbers of the mounts in the mount namespace of a process,
// of those that its root directory is above.
func readMounts(root string, pid int) map[uint64]bool {
	file, err := procfs.OpenRaw(procfs.Path(root, pid, "mountinfo"))
	if err != nil {
		return nil
	}
	defer file.Close()
	numbers := make(map[uint64]bool)
	var lines lineReader
	lines.reset(file)
	for len(numbers) < maxMounts {
		// A line that is too long begins with the number all the same.
		line, _, err := lines.next()
		if err != nil {
			break
		}
		number, _, _ := bytes.Cut(line, []byte(" "))
		if n, ok := procfs.ParseDecimal(number); ok && n != 0 {
			numbers[n] = true
		}
	}
	return numbers
}

// OpenIn opens a regular file by the path that the process would use: below its
// root directory and in its mount namespace. The caller closes it. The name of
// the file is its path for the caller. The error is an [*Error].
func OpenIn(fs *procfs.FS, pid int, path string) (*os.File, error) {
	file, err := openIn(fs.Root(), pid, path)
	if err != nil {
		return nil, &procfs.Error{PID: pid, Path: path, Op: "open", Err: err}
	}
	return file, nil
}

func openIn(root string, pid int, path string) (*os.File, error) {
	pathFD, inside, err := findIn(root, pid, path)
	if err != nil {
		return nil, err
	}
	defer unix.Close(pathFD)
	if _, err := identify(pathFD, ""); err != nil {
		return nil, err
	}
	fd, err := openFile(descriptorPath(pathFD))
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), inside+path), nil
}

// findIn finds a path below the root directory of a process. The descriptor
// refers to the file without having opened it.
func findIn(root string, pid int, path string) (fd int, inside string, err error) {
	if !strings.HasPrefix(path, "/") {
		return -1, "", fmt.Errorf("%w: not an absolute path", os.ErrInvalid)
	}
	inside = procfs.Path(root, pid, "root")
	dir, err := openDirectory(inside)
	if err != nil {
		return -1, "", procfs.Classify(err)
	}
	defer unix.Close(dir)
	fd, err = openInRoot(dir, path)
	return fd, inside, err
}

// ID identifies the file without opening it. The error says that there is none,
// or another one.
func (f RecordedFile) ID() (FileID, error) {
	fd, _, err := findIn(f.fs.Root(), f.pid, f.record.Path)
	if err != nil {
		return FileID{}, f.wrap(err)
	}
	defer unix.Close(fd)
	id, err := identify(fd, "")
	if err == nil && !f.record.mayBeOf(id) {
		err = procfs.ErrChanged
	}
	if err != nil {
		return FileID{}, f.wrap(err)
	}
	return id.FileID, nil
}

func openFile(path string) (int, error) {
	for {
		// Whatever it is by now, opening it must not wait or give us a
		// terminal.
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

// descriptorPath is the path by which a descriptor of the caller's is opened
// anew.
func descriptorPath(fd int) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }

func openDirectory(path string) (int, error) {
	return unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
}

// openInRoot finds a path as a process whose root directory is root would
// resolve it: symbolic links, which a container may make as it likes, lead
// nowhere else. The descriptor refers to the file without having opened it
// (O_PATH).
func openInRoot(root int, path string) (int, error) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT}
	for range 16 { // "..", when anything is renamed meanwhile, is EAGAIN
		fd, err := unix.Openat2(root, path, &how)
		switch {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN):
			continue
		case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EPERM):
			// Before Linux 5.6, or filtered: absolute links then lead outside.
			return unix.Openat(root, strings.TrimLeft(path, "/"), unix.O_PATH|unix.O_CLOEXEC, 0)
		}
		return fd, err
	}
	return -1, unix.EAGAIN
}
