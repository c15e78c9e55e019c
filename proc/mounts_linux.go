// SPDX-License-Identifier: BSD-2-Clause

package proc

import (
	"bytes"

	"golang.org/x/sys/unix"
)

// initialUserNamespace is the inode number of the first user namespace on every
// kernel (PROC_USER_INIT_INO of include/linux/proc_ns.h).
const initialUserNamespace = 0xeffffffd

// mounts are those of a process that are trusted. They are read when they are
// needed first.
type mounts struct {
	read    bool
	trusted map[uint64]bool // by number
}

// trusts reports whether a mount is one of the process's mount namespace, and
// that belongs to the initial user namespace: then only those who could do
// anything with the host have mounted it. What cannot be found out is not
// trusted.
func (m *mounts) trusts(f *FS, pid int, mount uint64) bool {
	if !m.read {
		m.read = true
		if f.hasTrustedMounts(pid) {
			m.trusted = f.mounts(pid)
		}
	}
	return m.trusted[mount]
}

// hasTrustedMounts reports whether the process's mount namespace belongs to the
// initial user namespace.
func (f *FS) hasTrustedMounts(pid int) bool {
	file, err := openRaw(f.path(pid, "ns/mnt"))
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
func (f *FS) mounts(pid int) map[uint64]bool {
	file, err := openRaw(f.path(pid, "mountinfo"))
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
		if n, ok := parseDecimal(number); ok && n != 0 {
			numbers[n] = true
		}
	}
	return numbers
}
