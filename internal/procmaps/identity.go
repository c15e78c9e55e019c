// SPDX-License-Identifier: BSD-2-Clause

package procmaps

import (
	"fmt"
	"os"
	"runtime"
)

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
	size, modified int64 // see [Contents]
}

// Contents change when the file is written to, and when it is only touched.
// What has been read of the file is then read again.
type Contents struct {
	size     int64
	modified int64 // mtime, in nanoseconds after 1970
	changed  int64 // ctime, likewise
}

// Identity is the answer of statx about a file.
type Identity struct {
	FileID
	Contents
	mount uint64 // the number of the mount, 0 if the kernel does not tell it
}

// Device is the device of the file, 0 if it is merged.
func (id FileID) Device() uint64 { return id.device }

// IsOnOverlay reports whether the file was reached through overlayfs, where
// another file may have the same data: see [HasSameData].
func (id FileID) IsOnOverlay() bool { return id.overlay }

// Size returns the size in bytes.
func (c Contents) Size() int64 { return c.size }

// Version returns the file until it is written to.
func (id Identity) Version() Version { return Version{id.FileID, id.size, id.modified} }

// MayHaveBeen reports whether the file may be the one that was mapped at a time
// in nanoseconds after 1970, when maps would have had the key for it. The inode
// may have been given to another file since, and the contents replaced, but not
// before. Devices of overlayfs have other numbers in keys.
func (id Identity) MayHaveBeen(key Key, time int64) bool {
	return id.inode == key.Inode && (id.overlay || id.device == uint64(key.Major)<<32|uint64(key.Minor)) &&
		id.born <= time && id.modified <= time
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
	id, err := IdentifyOpen(file)
	if err != nil {
		return FileID{}, fmt.Errorf("identify %s: %w", file.Name(), err)
	}
	return id.FileID, nil
}

// IdentifyOpen is IdentifyFile with the contents.
func IdentifyOpen(file *os.File) (Identity, error) {
	id, err := identify(int(file.Fd()), "")
	runtime.KeepAlive(file)
	return id, err
}
