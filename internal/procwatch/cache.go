// SPDX-License-Identifier: BSD-2-Clause

package procwatch

import (
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/sys"
)

// cache opens the files that processes map and that have wanted probes, each
// once, however many processes map it. It remembers which files have none, so
// that they are not read again. It may be used by several goroutines at once.
//
// A file is open while it is acquired. Of the other files the cache knows in
// bounded memory whether they have wanted probes, but not which.
type cache struct {
	patterns []elfnote.Pattern
	seed     maphash.Seed

	mu       sync.Mutex
	files    map[FileID]*CachedFile // those acquired
	opened   int                    // files that are open now
	owners   map[string]int         // files that are open now, by the owner of a process
	limit    int                    // of files that are open
	kept     int                    // bytes of sites, of all files
	unwanted answers
	closing  closing
}

// newCache returns an empty cache for the files that have a probe that matches
// any of the patterns, or any probe if there is no pattern.
func newCache(patterns ...elfnote.Pattern) *cache {
	return &cache{
		patterns: slices.Clone(patterns),
		seed:     maphash.MakeSeed(),
		files:    make(map[FileID]*CachedFile),
		owners:   make(map[string]int),
		limit:    sys.MaxDescriptors() / descriptorsPerFile,
		unwanted: answers{limit: maxAnswers},
	}
}

// acquire returns the file that a process maps, open, if it has a wanted probe.
// The caller releases it. All callers get the same *CachedFile as long as one
// of them has it: one reads the file while the others wait for the outcome.
//
// A file that is not ELF has no probes. The error of a malformed ELF file is
// remembered, errors of opening and reading are not. Each is a [*procfs.Error].
func (c *cache) acquire(m *MappedFile) (f *CachedFile, ok bool, err error) {
	found, err := m.identify()
	if err != nil {
		return nil, false, err
	}
	asked := question{found.FileID, found.contents}
	if known, err := c.isUnwanted(m, asked); known {
		return nil, false, err
	}
	id, err := m.ID()
	if err != nil {
		return nil, false, err
	}
	q := question{id, found.contents}
	for {
		c.mu.Lock()
		f := c.files[id]
		if f == nil {
			f = &CachedFile{cache: c, id: id}
			c.files[id] = f
		}
		f.references++
		c.mu.Unlock()
		ok, err := f.prepare(m, q)
		if ok {
			return f, true, nil
		}
		f.Release()
		if errors.Is(err, errWrittenTo) {
			continue // another CachedFile takes its place
		}
		c.mu.Lock()
		if why, known := c.unwanted.find(q); known && asked != q {
			c.unwanted.put(asked, why) // next time, id is not needed
		}
		c.mu.Unlock()
		return nil, false, err
	}
}

// takeDescriptor counts a file that is to be opened for a process of an owner.
// It fails if there are too many. Each owner leaves as many to the others as it
// has, so that ten owners together take nearly all.
func (c *cache) takeDescriptor(owner string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.owners[owner] >= c.limit-c.opened {
		return fmt.Errorf("%w: %d of its container or user, and %d altogether, for a limit of %d descriptors (raise RLIMIT_NOFILE): %w",
			errTooManyOpen, c.owners[owner], c.opened, c.limit*descriptorsPerFile, syscall.EMFILE)
	}
	c.opened++
	c.owners[owner]++
	return nil
}

func (c *cache) giveDescriptor(owner string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.opened--
	if c.owners[owner]--; c.owners[owner] == 0 {
		delete(c.owners, owner)
	}
}

// isUnwanted reports whether a file is known to have no wanted probes, and the
// error for the process that maps it if that is because it cannot be read.
func (c *cache) isUnwanted(m *MappedFile, q question) (known bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	why, known := c.unwanted.find(q)
	if why != nil {
		return true, m.wrap(opReadProbes, why)
	}
	return known, nil
}

// A question is whether a file has wanted probes.
type question struct {
	file FileID
	contents
}

// answers remembers the files that have none, and why some of them cannot be
// read. The answers that were asked for recently survive: when limit new ones
// have come, the ones not asked for meanwhile are forgotten.
type answers struct {
	limit          int
	recent, former map[question]error
}

func (s *answers) find(q question) (why error, known bool) {
	if why, known = s.recent[q]; known {
		return why, true
	}
	if why, known = s.former[q]; known {
		s.put(q, why)
	}
	return why, known
}

func (s *answers) put(q question, why error) {
	if s.recent == nil || len(s.recent) >= s.limit {
		s.former, s.recent = s.recent, make(map[question]error)
	}
	s.recent[q] = why
}

// closing closes files. A file system that another user serves can hold that up
// for as long as it likes. So the files of a device are closed one after the
// other: only the first holds a thread.
type closing struct {
	mu      sync.Mutex
	devices map[uint64]*closingDevice // those with files to be closed
}

type closingDevice struct {
	sync.Mutex      // held while a file is closed
	files      int  // that are to be closed
	blocked    bool // closing took too long once: no caller waits any more
}

// close closes a file on a device. It returns when that is done, or when it
// takes too long.
func (c *closing) close(device uint64, closeFile func()) {
	c.mu.Lock()
	d := c.devices[device]
	if d == nil {
		if c.devices == nil {
			c.devices = make(map[uint64]*closingDevice)
		}
		d = &closingDevice{}
		c.devices[device] = d
	}
	d.files++
	blocked := d.blocked
	c.mu.Unlock()
	closed := make(chan struct{})
	go func() {
		d.Lock()
		closeFile()
		d.Unlock()
		c.mu.Lock()
		if d.files--; d.files == 0 {
			delete(c.devices, device)
		}
		c.mu.Unlock()
		close(closed)
	}()
	if blocked {
		return
	}
	select {
	case <-closed:
	case <-time.After(scanPatience):
		c.mu.Lock()
		d.blocked = true
		c.mu.Unlock()
	}
}
