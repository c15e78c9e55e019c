// SPDX-License-Identifier: BSD-2-Clause

package proc

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

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

// queryMaps calls line for every executable mapping of a file, without its
// path. It is readMaps by other means.
func (f *FS) queryMaps(pid int, line func(*mapLine)) error {
	file, err := openRaw(f.path(pid, "maps"))
	if err != nil {
		return &Error{PID: pid, Op: "read maps", Err: classify(err)}
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
			return &Error{PID: pid, Op: "read maps", Err: classify(errno)}
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
