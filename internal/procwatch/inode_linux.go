// SPDX-License-Identifier: BSD-2-Clause

package procwatch

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/internal/procfs"
)

// placesInHeader is the number of bytes of the smallest ELF header. The kernel
// refuses those at which it aligns no instruction.
const placesInHeader = 52

// placesToAsk is the number of places that must all say that two files are one
// inode. One alone can be wrong, see firstSame.
const placesToAsk = 2

// sameInode returns the first of the files that is one inode to uprobes with
// another one, -1 if none is known to be.
//
// statx and maps do not tell that on overlayfs: uprobes attach to the inode
// that has the data. Several files can share it: where only the metadata is
// copied up (metacopy), where images share their files (composefs), and through
// mounts of several user namespaces. But at one place of an inode the kernel
// refuses a second uprobe that has another semaphore (Linux 4.20, kernel commit
// 1cc33161a83d; a line in its log says so), before it looks at any process.
// Nothing is executed or counted here: the places are in the ELF header, the
// semaphores behind the end of any file, the uprobes for this process alone.
func sameInode(file *os.File, among []*os.File) int {
	var events []int
	// The kernel takes a tenth of a second to close one.
	defer func() {
		go func() {
			for _, event := range events {
				unix.Close(event)
			}
		}()
	}()
	return firstSame(file, among, func(file *os.File, place uint64, semaphore uint32) error {
		event, err := openUprobe(file, place, semaphore)
		if err == nil {
			events = append(events, event)
		}
		return err
	})
}

// firstSame is sameInode with a function that opens a uprobe, which stays.
func firstSame(
	file *os.File, among []*os.File, open func(file *os.File, place uint64, semaphore uint32) error,
) int {
	// At one place a file seems to be the same, too, if it had a uprobe of its
	// own there, of an earlier question or another tracer, which went between
	// two calls.
	seemsSame := func(other *os.File, place uint64, semaphore uint32) bool {
		return errors.Is(open(other, place, semaphore+2), unix.EINVAL) &&
			open(other, place, semaphore) == nil
	}
	same, asked := make([]int, len(among)), 0
	for _, n := range rand.Perm(placesInHeader) {
		place, semaphore := uint64(n), 1<<31+4*rand.Uint32N(1<<28)
		switch err := open(file, place, semaphore); {
		case errors.Is(err, unix.EINVAL):
			continue // it was asked about here just now, or is by another tracer
		case err != nil:
			return -1 // perf events are refused
		}
		for i, other := range among {
			if same[i] == asked && seemsSame(other, place, semaphore) {
				same[i]++
			}
		}
		if asked++; asked == placesToAsk || !slices.Contains(same, asked) {
			break
		}
	}
	if asked == 0 {
		return -1
	}
	return slices.Index(same, asked)
}

// openUprobe opens a perf event for a uprobe in this process.
func openUprobe(file *os.File, place uint64, semaphore uint32) (int, error) {
	kind, err := os.ReadFile("/sys/bus/event_source/devices/uprobe/type")
	if err != nil {
		return -1, err
	}
	number, err := strconv.ParseUint(strings.TrimSpace(string(kind)), 10, 32)
	if err != nil {
		return -1, err
	}
	path, err := unix.BytePtrFromString(fmt.Sprint("/proc/self/fd/", file.Fd()))
	if err != nil {
		return -1, err
	}
	attributes := &unix.PerfEventAttr{Type: uint32(number), Size: unix.PERF_ATTR_SIZE_VER1,
		Config: uint64(semaphore) << 32, Ext1: uint64(uintptr(unsafe.Pointer(path))), Ext2: place}
	fd, err := unix.PerfEventOpen(attributes, 0, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	runtime.KeepAlive(path)
	runtime.KeepAlive(file)
	return fd, err
}

// initialUserNamespace is the inode number of the first user namespace on every
// kernel (PROC_USER_INIT_INO of include/linux/proc_ns.h).
const initialUserNamespace = 0xeffffffd

// maxMounts bounds the mounts of a process that are read: the kernel allows
// 100,000 in a namespace (fs.mount-max).
const maxMounts = 1 << 17

// trusts reports whether a mount is in the mount namespace of the process with
// the directory dir in proc, below its root directory, and that namespace
// belongs to the initial user namespace. Then only a user with all privileges
// on the host can have made the mount. A mount that cannot be looked up is not
// trusted.
func (m *Mounts) trusts(dir string, mount uint64) bool {
	m.once.Do(func() { m.trusted = trustedMounts(dir) })
	return m.trusted[mount]
}

func trustedMounts(dir string) map[uint64]bool {
	namespace, err := procfs.OpenRaw(dir + "/ns/mnt")
	if err != nil {
		return nil
	}
	defer namespace.Close()
	owner, err := unix.IoctlRetInt(int(namespace), unix.NS_GET_USERNS)
	if err != nil {
		return nil // for example, the namespace lies outside of the caller's
	}
	defer unix.Close(owner)
	var st unix.Stat_t
	if unix.Fstat(owner, &st) != nil || st.Ino != initialUserNamespace {
		return nil
	}
	file, err := procfs.OpenRaw(dir + "/mountinfo")
	if err != nil {
		return nil
	}
	defer file.Close()
	trusted, lines := make(map[uint64]bool), procfs.NewLines(file)
	for len(trusted) < maxMounts {
		// A line that is too long begins with the number all the same.
		line, _, err := procfs.NextLine(lines)
		if err != nil {
			break
		}
		number, _, _ := bytes.Cut(line, []byte(" "))
		if n, ok := procfs.ParseDecimal(number); ok && n != 0 {
			trusted[n] = true
		}
	}
	return trusted
}
