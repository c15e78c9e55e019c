// SPDX-License-Identifier: BSD-2-Clause

package procfs

import (
	"fmt"
	"os"
	"runtime"
)

// FileID identifies a file, whatever its path. The zero value is no file's. It
// stays the same when the file is written to, touched, or deleted while in use.
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
	Device uint64 // as statx tells it, major in the upper 32 bits
	Inode  uint64

	// Born is when the inode was made, in nanoseconds after 1970. It tells a
	// file from an earlier one with the same inode number. The few file systems
	// that do not keep it have 0.
	Born int64

	// Overlay means that the file was reached through overlayfs, where every
	// mount has device numbers of its own.
	Overlay bool
}

// Contents change when the file is written to, or only touched.
type Contents struct {
	Size     int64 // in bytes
	Modified int64 // mtime, in nanoseconds after 1970
	Changed  int64 // ctime, likewise
}

// Identity is the answer of statx about a file.
type Identity struct {
	FileID
	Contents
	Mount uint64 // its number, 0 if the kernel does not tell it
}

// MayBe reports whether both may be one file. That is so if they are equal, or
// if both were reached through overlayfs, whose mounts have different numbers
// for the same file. A user that can mount overlayfs can deceive it: use it
// only for what affects one process.
func (id FileID) MayBe(other FileID) bool {
	return id == other || id.Overlay && other.Overlay && id.Inode == other.Inode &&
		id.Born == other.Born
}

// IdentifyFile identifies an open file. A file of overlayfs may have another ID
// than in the processes that map it, see [FileID.MayBe]. On other systems than
// Linux the error wraps errors.ErrUnsupported.
func IdentifyFile(file *os.File) (Identity, error) {
	id, err := identify(int(file.Fd()), "")
	runtime.KeepAlive(file)
	if err != nil {
		return Identity{}, fmt.Errorf("identify %s: %w", file.Name(), err)
	}
	return id, nil
}
