// SPDX-License-Identifier: BSD-2-Clause

package container

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// grace is how long the path of a cgroup that was removed is kept: the
	// last events with its ID are read by then.
	grace = 2 * time.Minute
	// maxGone bounds the removed cgroups that are kept.
	maxGone = 1 << 16
	// maxCgroups bounds the cgroups that are followed: a user can make very
	// many. Real machines have some thousand.
	maxCgroups = 1 << 17
	// maxDepth bounds cgroups inside each other; systemd's have a dozen.
	maxDepth = 64
	// scanAgain is the least time between two scans of the whole tree for
	// IDs that are not known.
	scanAgain = time.Second
)

// Cgroups knows the paths of a machine's cgroups by their IDs. It is safe
// for concurrent use.
type Cgroups struct {
	root    string
	inotify *os.File
	done    chan struct{}

	mu      sync.Mutex
	paths   map[uint64]string // by ID
	ids     map[string]uint64 // by path
	watched map[int32]string  // directories, by the number of the watch
	gone    []goneCgroup      // the oldest first
	scanned time.Time
	limited error // why some cgroups are not watched
}

type goneCgroup struct {
	id    uint64
	path  string
	since time.Time
}

// Watch returns the paths of all cgroups, and follows them as they come and go.
// root is where the file system of cgroup version 2 is mounted; "" finds it. In
// a container, give the path at which the host's is mounted: its own has its
// own cgroups only.
func Watch(root string) (*Cgroups, error) {
	if root == "" {
		var err error
		if root, err = mountPoint(); err != nil {
			return nil, err
		}
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("watch cgroups: inotify: %w", err)
	}
	c := &Cgroups{
		root: root, inotify: os.NewFile(uintptr(fd), "inotify"), done: make(chan struct{}),
		paths: make(map[uint64]string), ids: make(map[string]uint64),
		watched: make(map[int32]string),
	}
	if err := c.add("/", 0); err != nil {
		c.inotify.Close()
		return nil, fmt.Errorf("watch cgroups: %w", err)
	}
	go c.follow()
	return c, nil
}

// mountPoint returns where cgroup version 2 is mounted.
func mountPoint() (string, error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", fmt.Errorf("find cgroup version 2: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		before, after, _ := strings.Cut(line, " - ")
		if fields := strings.Fields(before); len(fields) > 4 &&
			strings.HasPrefix(after, "cgroup2 ") {
			return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`,
				`\`).Replace(fields[4]), nil
		}
	}
	return "", fmt.Errorf("find cgroup version 2: it is not mounted: %w", errors.ErrUnsupported)
}

// Path returns the path of a cgroup by its ID, as bpf_get_current_cgroup_id
// gives it. It knows cgroups for two minutes after they were removed.
func (c *Cgroups) Path(id uint64) (string, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forget(time.Now())
	if p, ok := c.paths[id]; ok {
		return p, true
	}
	// Perhaps the kernel has not reported it yet, or does not report all.
	if now := time.Now(); now.Sub(c.scanned) > scanAgain {
		c.scanned = now
		c.addLocked("/", 0)
	}
	p, ok := c.paths[id]
	return p, ok
}

// Exists reports whether a cgroup is there now. Path knows it for longer.
func (c *Cgroups) Exists(id uint64) bool {
	cgroup, ok := c.Path(id)
	if !ok {
		return false
	}
	// The file system knows: the kernel may report a removal late, or not at
	// all if there are too many.
	ino, err := inode(filepath.Join(c.root, cgroup))
	return err == nil && ino == id
}

// Name returns what people call a cgroup: the short ID of its container, the
// name of its systemd unit if it is none, or else its path. A cgroup that is
// not known is "cgroup" with its ID.
func (c *Cgroups) Name(id uint64) string {
	path, ok := c.Path(id)
	if !ok {
		return fmt.Sprintf("cgroup %d", id)
	}
	return nameOf(path)
}

func nameOf(path string) string {
	if found, ok := Of(path); ok {
		return found.short()
	}
	if unit := Unit(path); unit != "" {
		return unit
	}
	return path
}

// IDs returns the IDs of the cgroups that a container has now. name is the
// beginning of its ID. For a cgroup that is no container, name is the text that
// Name returns. It is an error if there is none, or if several containers have
// an ID with that beginning, unless name is the whole ID of just one.
func (c *Cgroups) IDs(name string) ([]uint64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.root != "" {
		c.addLocked("/", 0) // perhaps the kernel has not reported all yet
	}
	found := make(map[string][]uint64) // by the cgroup of the container, or the name
	called := make(map[string]string)  // the IDs of these
	var whole []string                 // those whose ID is the name
	for path, id := range c.ids {
		of, ok := Of(path)
		key := of.Cgroup
		switch {
		case ok && name != "" && strings.HasPrefix(of.ID, name):
			called[key] = of.ID
		case !ok && nameOf(path) == name:
			key, called[name] = name, name
		default:
			continue
		}
		if called[key] == name && !slices.Contains(whole, key) {
			whole = append(whole, key)
		}
		found[key] = append(found[key], id)
	}
	// A name that a user has chosen is not taken for the beginning of an ID
	// that a runtime made up, nor the other way round.
	isBeginning := slices.ContainsFunc(slices.Collect(maps.Values(called)),
		func(id string) bool { return id != name && isID(id) })
	switch {
	case len(found) == 0:
		return nil, fmt.Errorf("there is no container %q now", name)
	case len(whole) == 1 && !isBeginning:
		ids := found[whole[0]]
		slices.Sort(ids)
		return ids, nil
	case len(found) > 1:
		all := slices.Sorted(maps.Values(called))
		return nil, fmt.Errorf("%d containers have an ID that begins with %q: %s and %s, for example: give more of it",
			len(all), name, all[0], all[1])
	}
	for _, ids := range found {
		slices.Sort(ids)
		return ids, nil
	}
	return nil, nil
}

// Err returns why not all cgroups are followed, such as a limit of the kernel
// (sysctl fs.inotify.max_user_watches), or nil. The others are found when they
// are asked for, unless they were removed before.
func (c *Cgroups) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.limited
}

// Close ends following. Paths that are known stay known.
func (c *Cgroups) Close() error {
	err := c.inotify.Close()
	<-c.done
	return err
}

func (c *Cgroups) add(cgroup string, depth int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.addLocked(cgroup, depth)
}

// addLocked adds a cgroup and those in it. A cgroup is watched before it is
// read: one that is made in between is seen twice rather than not at all.
func (c *Cgroups) addLocked(cgroup string, depth int) error {
	dir := filepath.Join(c.root, cgroup)
	ino, err := inode(dir)
	if err != nil {
		return err
	}
	before, known := c.ids[cgroup]
	if known && before != ino {
		c.removedLocked(cgroup) // and made again, which the kernel has not reported
		known = false
	}
	if !known && len(c.ids) == maxCgroups {
		c.limited = fmt.Errorf("watch cgroup %s: %d are watched already, which is the most", cgroup,
			maxCgroups)
		return nil
	}
	c.paths[ino], c.ids[cgroup] = cgroup, ino
	fd, err := withDescriptor(c.inotify, func(fd int) (int, error) {
		return unix.InotifyAddWatch(fd, dir,
			unix.IN_CREATE|unix.IN_DELETE|unix.IN_MOVED_FROM|unix.IN_MOVED_TO|unix.IN_ONLYDIR)
	})
	switch {
	case err == nil:
		c.watched[int32(fd)] = cgroup
	case errors.Is(err, unix.ENOSPC):
		c.limited = fmt.Errorf("watch cgroup %s: %w (raise the sysctl fs.inotify.max_user_watches)",
			cgroup, err)
	case !errors.Is(err, fs.ErrNotExist):
		c.limited = fmt.Errorf("watch cgroup %s: %w", cgroup, err)
	}
	if depth == maxDepth {
		return nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return ignoreMissing(err)
	}
	for _, entry := range entries {
		if entry.IsDir() {
			if err := c.addLocked(path.Join(cgroup, entry.Name()),
				depth+1); ignoreMissing(err) != nil {
				return err
			}
		}
	}
	return nil
}

// inode returns the number of a directory, which is the ID of its cgroup.
func inode(dir string) (uint64, error) {
	info, err := os.Stat(dir)
	if err != nil {
		return 0, err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, fmt.Errorf("%s: its ID is not known", dir)
	}
	return stat.Ino, nil
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return nil // it was removed meanwhile
	}
	return err
}

// removedLocked keeps the ID of a cgroup for a while.
func (c *Cgroups) removedLocked(cgroup string) {
	now := time.Now()
	if id, ok := c.ids[cgroup]; ok {
		c.gone = append(c.gone, goneCgroup{id, cgroup, now})
		delete(c.ids, cgroup)
	}
	c.forget(now)
}

// scanAll finds cgroups that were made or removed and that the kernel did not
// report.
func (c *Cgroups) scanAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for cgroup := range c.ids {
		if _, err := os.Stat(filepath.Join(c.root, cgroup)); errors.Is(err, fs.ErrNotExist) {
			c.removedLocked(cgroup)
		}
	}
	c.addLocked("/", 0)
}

// forget drops the cgroups that were removed long ago.
func (c *Cgroups) forget(now time.Time) {
	for len(c.gone) > 0 && (len(c.gone) > maxGone || now.Sub(c.gone[0].since) > grace) {
		oldest := c.gone[0]
		c.gone = c.gone[1:]
		if c.paths[oldest.id] == oldest.path {
			if id, ok := c.ids[oldest.path]; !ok || id != oldest.id {
				delete(c.paths, oldest.id)
			}
		}
	}
}

// withDescriptor calls f with the file's descriptor, which stays open
// meanwhile.
func withDescriptor(file *os.File, f func(fd int) (int, error)) (n int, err error) {
	raw, err := file.SyscallConn()
	if err != nil {
		return 0, err
	}
	if e := raw.Control(func(fd uintptr) { n, err = f(int(fd)) }); e != nil {
		return 0, e
	}
	return n, err
}

// follow reads what the kernel reports of directories, until the descriptor is
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

// changed handles one event of the kernel. An error means that the cgroup is
// gone already, which another event reports.
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
		c.mu.Lock()
		c.removedLocked(cgroup)
		c.mu.Unlock()
	}
}
