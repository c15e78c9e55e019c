// SPDX-License-Identifier: BSD-2-Clause

package proc

import "fmt"

// FileID identifies a file, whatever its path, and distinguishes it from itself
// with other contents. It can be compared and be a map key. The zero value is
// no file's.
//
// The device and inode that maps shows will not do. On btrfs they are the same
// for files of different subvolumes; on overlayfs they are, by kernel version,
// those of the overlay or of a layer; and the inode number of a deleted file is
// given to a new one, on ext4 at once. So all of this comes from statx of the
// file itself.
//
// A change of the link count or the mode does not make another file: a library
// that is deleted while it is mapped remains what it was. Only on file systems
// that keep no time of birth, which are few, it becomes another.
type FileID struct {
	device   uint64 // as statx tells it, major in the upper 32 bits; 0 on overlayfs
	inode    uint64
	size     int64
	modified int64 // when the contents were changed last, in nanoseconds after 1970

	// born is when the inode was made: what tells a file from an earlier one of
	// the same number. It is the time of the last change of the inode (ctime)
	// on file systems that do not keep the former.
	born int64

	// overlay means that the file was reached through overlayfs, where every
	// mount has device numbers of its own. Containers that were started from
	// the same image share a file until one writes to it, and a breakpoint set
	// in it for one of them is set for all. So the device does not count there.
	// The other fields are those of the file in the layer below. That file
	// itself, reached where the layers are stored, has another FileID.
	overlay bool
}

// String describes the file for people: "fe:00 inode 326789, 2190440 bytes".
func (id FileID) String() string {
	device := "overlay"
	if !id.overlay {
		device = fmt.Sprintf("%02x:%02x", id.device>>32, id.device&(1<<32-1))
	}
	return fmt.Sprintf("%s inode %d, %d bytes", device, id.inode, id.size)
}
