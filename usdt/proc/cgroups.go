// SPDX-License-Identifier: BSD-2-Clause

package proc

import (
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

	"github.com/gousdt/gousdt/internal/deadline"
)

const (
	// grace is the time for which the path of a removed cgroup is kept: the
	// last events with its ID are read by then.
	grace = 2 * time.Minute
	// maxGone bounds the removed cgroups that are kept.
	maxGone = 1 << 16
	// maxCgroups bounds the cgroups that are followed: a user can make very
	// many. Real machines have some thousand.
	maxCgroups = 1 << 17
	// maxDepth bounds cgroups inside each other; systemd's have a dozen.
	maxDepth = 64
	// scanAgain is the least time between two scans of the whole tree for IDs
	// that are not known, and scanShare the share of the time that these may
	// take: one part of this many.
	scanAgain = time.Second
	scanShare = 50
)

// Cgroups has the paths of a machine's cgroups by their IDs. It is safe for
// concurrent use.
type Cgroups struct {
	root    string
	inotify *inotify
	done    chan struct{}

	mu       sync.Mutex
	paths    map[uint64]string // by ID
	ids      map[string]uint64 // by path
	watched  map[int32]string  // directories, by the number of the watch
	gone     []goneCgroup      // the oldest first
	nextScan time.Time         // for an ID that is not known
	limited  error             // why some cgroups are not watched
}

type goneCgroup struct {
	id    uint64
	path  string
	since time.Time
}

// WatchCgroups returns the paths of all cgroups, and follows them as they come
// and go.
// root is where the file system of cgroup version 2 is mounted; "" finds it. In
// a container, give the path at which the host's is mounted: the container's
// own has only the container's cgroups. On other systems than Linux the error
// wraps [errors.ErrUnsupported].
func WatchCgroups(root string) (_ *Cgroups, err error) {
	if root == "" {
		if root, err = mountPoint(); err != nil {
			return nil, fmt.Errorf("find cgroup version 2: %w", err)
		}
	}
	c := &Cgroups{root: root, done: make(chan struct{}), paths: make(map[uint64]string),
		ids: make(map[string]uint64), watched: make(map[int32]string)}
	if c.inotify, err = newInotify(); err != nil {
		return nil, fmt.Errorf("watch cgroups: %w", err)
	}
	if err := c.add("/"); err != nil {
		c.inotify.Close()
		return nil, fmt.Errorf("watch cgroups: %w", err)
	}
	go func() {
		defer close(c.done)
		c.inotify.read(c.changed)
	}()
	return c, nil
}

// mountPoint returns where cgroup version 2 is mounted.
func mountPoint() (string, error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	for line := range strings.Lines(string(text)) {
		before, after, _ := strings.Cut(line, " - ")
		if fields := strings.Fields(before); len(fields) > 4 && strings.HasPrefix(after, "cgroup2 ") {
			return unescape.Replace(fields[4]), nil
		}
	}
	return "", fmt.Errorf("it is not mounted: %w", errors.ErrUnsupported)
}

// Path returns the path of a cgroup by its ID, as bpf_get_current_cgroup_id
// gives it. It knows cgroups for two minutes after they were removed.
func (c *Cgroups) Path(id uint64) (string, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	c.forget(now)
	p, ok := c.paths[id]
	if !ok && now.After(c.nextScan) && c.inotify != nil {
		c.scan()
		ended := time.Now()
		c.nextScan = ended.Add(max(scanAgain, scanShare*ended.Sub(now)))
		p, ok = c.paths[id]
	}
	return p, ok
}

// Exists reports whether a cgroup is there now. Path knows it for longer.
func (c *Cgroups) Exists(id uint64) bool {
	cgroup, ok := c.Path(id)
	if !ok {
		return false
	}
	// The file system is asked: the kernel may report a removal late, or not at
	// all if there are too many.
	ino, err := inode(filepath.Join(c.root, cgroup))
	return err == nil && ino == id
}

// Name returns a short name of a cgroup: the short ID of its container, the
// name of its systemd unit if it is none, or else its path. A cgroup that is
// not known is "cgroup" with its ID.
func (c *Cgroups) Name(id uint64) string {
	if path, ok := c.Path(id); ok {
		return nameOf(path)
	}
	return fmt.Sprintf("cgroup %d", id)
}

func nameOf(path string) string {
	if found, ok := deadline.ContainerOf(path); ok {
		if found.HasMadeUpID() {
			return found.ID[:12] // as people write it
		}
		return found.ID
	}
	if unit := UnitOf(path); unit != "" {
		return unit
	}
	return path
}

// IDs returns the IDs of the cgroups that a container has now. name is the
// beginning of its ID. For a cgroup that is no container, name is the text that
// Name returns. It is an error if there is none, or if several containers have
// an ID with that beginning. A name that a user has chosen, such as one of LXC,
// is no error if it is the whole ID of just one container and the beginning of
// no ID that a runtime made up.
func (c *Cgroups) IDs(name string) ([]uint64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inotify != nil { // else it is a zero value
		c.scan()
	}
	found := make(map[string][]uint64) // by the cgroup of the container, or the name
	called := make(map[string]string)  // the IDs of these
	var whole []string                 // those whose ID is the name
	isBeginning := false               // of an ID that a runtime made up
	for _, path := range slices.Sorted(maps.Keys(c.ids)) {
		of, ok := deadline.ContainerOf(path)
		key := of.Cgroup
		switch {
		case ok && name != "" && strings.HasPrefix(of.ID, name):
			called[key] = of.ID
		case !ok && nameOf(path) == name:
			key, called[name] = name, name
		default:
			continue
		}
		isBeginning = isBeginning || called[key] != name && of.HasMadeUpID()
		if called[key] == name && !slices.Contains(whole, key) {
			whole = append(whole, key)
		}
		found[key] = append(found[key], c.ids[path])
	}
	// A user could choose a name that is the beginning of an ID that a runtime
	// made up: neither is then taken for the other.
	if len(whole) == 1 && !isBeginning {
		found = map[string][]uint64{name: found[whole[0]]}
	}
	if len(found) > 1 {
		all := slices.Sorted(maps.Values(called))
		return nil, fmt.Errorf("%d containers have an ID that begins with %q: %s and %s, for example: give more of it",
			len(all), name, all[0], all[1])
	}
	for _, ids := range found {
		slices.Sort(ids)
		return ids, nil
	}
	return nil, fmt.Errorf("there is no container %q now", name)
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
	if c.inotify == nil {
		return nil
	}
	err := c.inotify.Close()
	<-c.done
	return err
}

// scan finds the cgroups that were made or removed without a report of the
// kernel: it may come later, and does not come for a directory that is not
// watched. The caller holds mu.
func (c *Cgroups) scan() {
	for cgroup := range c.ids {
		if _, err := os.Stat(filepath.Join(c.root, cgroup)); errors.Is(err, fs.ErrNotExist) {
			c.remove(cgroup)
		}
	}
	c.add("/")
}

// add adds a cgroup and those in it. A cgroup is watched before it is read: one
// that is made in between is seen twice rather than not at all. The caller
// holds mu.
func (c *Cgroups) add(cgroup string) error {
	dir := filepath.Join(c.root, cgroup)
	ino, err := inode(dir)
	if err != nil {
		return err
	}
	if c.ids[cgroup] != ino {
		c.remove(cgroup) // and made again, which the kernel has not reported
	}
	if c.ids[cgroup] == 0 && len(c.ids) == maxCgroups {
		c.limited = fmt.Errorf("watch cgroup %s: %d are watched already, which is the most", cgroup,
			maxCgroups)
		return nil
	}
	c.paths[ino], c.ids[cgroup] = cgroup, ino
	watch, err := c.inotify.add(dir)
	switch {
	case err == nil:
		c.watched[watch] = cgroup
	case errors.Is(err, syscall.ENOSPC):
		c.limited = fmt.Errorf("watch cgroup %s: %w (raise the sysctl fs.inotify.max_user_watches)",
			cgroup, err)
	case !errors.Is(err, fs.ErrNotExist):
		c.limited = fmt.Errorf("watch cgroup %s: %w", cgroup, err)
	}
	if strings.Count(cgroup, "/") > maxDepth {
		return nil
	}
	entries, err := os.ReadDir(dir)
	for _, entry := range entries {
		if entry.IsDir() && err == nil {
			err = c.add(path.Join(cgroup, entry.Name()))
		}
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV) {
			err = nil // it was removed meanwhile
		}
	}
	return err
}

// remove keeps the ID of a cgroup for a while. The caller holds mu.
func (c *Cgroups) remove(cgroup string) {
	now := time.Now()
	if id, ok := c.ids[cgroup]; ok {
		c.gone = append(c.gone, goneCgroup{id, cgroup, now})
		delete(c.ids, cgroup)
	}
	c.forget(now)
}

// forget drops the cgroups that were removed long ago.
func (c *Cgroups) forget(now time.Time) {
	for len(c.gone) > 0 && (len(c.gone) > maxGone || now.Sub(c.gone[0].since) > grace) {
		oldest := c.gone[0]
		c.gone = c.gone[1:]
		if c.paths[oldest.id] == oldest.path && c.ids[oldest.path] != oldest.id {
			delete(c.paths, oldest.id)
		}
	}
}

// changed handles one event of the kernel. An error means that the cgroup is
// gone already, which another event reports.
func (c *Cgroups) changed(watch int32, mask uint32, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if mask&inQOverflow != 0 {
		c.scan()
		return
	}
	dir, ok := c.watched[watch]
	if mask&inIgnored != 0 {
		delete(c.watched, watch)
	}
	switch cgroup := path.Join(dir, name); {
	case !ok || mask&inIsDir == 0:
	case mask&inMade != 0:
		c.add(cgroup)
	case mask&inRemoved != 0:
		c.remove(cgroup)
	}
}

// Container describes a container by the path of its cgroup.
type Container struct {
	// ID is the ID that the runtime gave the container, mostly 64 hexadecimal
	// digits. Users and tools shorten it to the first 12.
	ID string
	// Runtime is what made it: "docker", "containerd", "cri-o", "podman",
	// "lxc", "systemd-nspawn", or "" if the path does not say it.
	Runtime string
	// PodUID is the UID of the container's Kubernetes pod, in the form with
	// hyphens, or "".
	PodUID string
}

// ContainerOf returns the container that a cgroup belongs to, by its path, or
// by the text of /proc/PID/cgroup. That has a path for each hierarchy: the one
// of version 2 counts if it has a container.
//
// Of containers inside each other the outermost counts: the processes in it
// choose the names of those below. For the same reason, no container is found
// below a unit that is not a container runtime's, such as a user's
// user@1000.service.
func ContainerOf(cgroup string) (Container, bool) {
	c, ok := deadline.ContainerOf(cgroup)
	return Container{ID: c.ID, Runtime: c.Runtime, PodUID: c.PodUID}, ok
}

// UnitOf returns the outermost systemd unit in a cgroup's path, such as
// "postgresql@15-main.service", or "". The processes in a unit choose the names
// below it.
func UnitOf(cgroup string) string { return deadline.UnitOf(cgroup) }
