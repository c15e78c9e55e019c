// SPDX-License-Identifier: BSD-2-Clause

package container

import (
	"bytes"
	"encoding/binary"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// follow reads what the kernel tells about directories until the descriptor is
// closed.
func (c *Cgroups) follow() {
	defer close(c.done)
	buf := make([]byte, 64<<10)
	for {
		n, err := c.inotify.Read(buf)
		if err != nil {
			return
		}
		for rest := buf[:n]; len(rest) >= unix.SizeofInotifyEvent; {
			watch := int32(binary.NativeEndian.Uint32(rest))
			mask := binary.NativeEndian.Uint32(rest[4:])
			size := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(rest[12:]))
			if size > len(rest) {
				break
			}
			name, _, _ := bytes.Cut(rest[unix.SizeofInotifyEvent:size], []byte{0})
			c.changed(watch, mask, string(name))
			rest = rest[size:]
		}
	}
}

// changed handles one event of the kernel. An error means that the cgroup has
// gone meanwhile, of which another event tells.
func (c *Cgroups) changed(watch int32, mask uint32, name string) {
	if mask&unix.IN_Q_OVERFLOW != 0 {
		c.scanAll()
		return
	}
	c.mu.Lock()
	dir, ok := c.watched[watch]
	if mask&unix.IN_IGNORED != 0 {
		delete(c.watched, watch)
	}
	c.mu.Unlock()
	if !ok || mask&unix.IN_ISDIR == 0 {
		return
	}
	cgroup := path.Join(dir, name)
	switch {
	case mask&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0:
		c.add(cgroup, strings.Count(cgroup, "/"))
	case mask&(unix.IN_DELETE|unix.IN_MOVED_FROM) != 0:
		c.removed(cgroup)
	}
}
