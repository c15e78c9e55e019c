// SPDX-License-Identifier: BSD-2-Clause

package procwatch

import (
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/sys"
)

// Cache opens the files that processes map and that have wanted probes, each
// once, however many processes map it. It remembers which files have none, so
// that they are not read again. It may be used by several goroutines at once.
//
// A file is open while it is acquired. Of the other files the cache knows in
// bounded memory whether they have wanted probes, but not which.
type Cache struct {
	patterns []elfnote.Pattern
	open     func(*MappedFile) (io.ReaderAt, error) // the file, closed if it is an io.Closer
	seed     maphash.Seed

	mu      sync.Mutex
	files   map[FileID]*CachedFile // those acquired
	opened  int                    // files that are open now
	owners  map[string]int         // files that are open now, by the owner of a process
	limit   int                    // of files that are open
	kept    int                    // bytes of sites, of all files
	answers answers
	closing closing
}

// NewCache returns an empty cache for the files that have a probe that matches
// any of the patterns, or any probe if there is no pattern.
func NewCache(patterns ...elfnote.Pattern) *Cache {
	return &Cache{
		patterns: slices.Clone(patterns),
		open:     openMapped,
		seed:     maphash.MakeSeed(),
		files:    make(map[FileID]*CachedFile),
		owners:   make(map[string]int),
		limit:    sys.MaxDescriptors() / descriptorsPerFile,
		answers:  answers{limit: maxAnswers},
	}
}

func openMapped(m *MappedFile) (io.ReaderAt, error) {
	file, err := m.Open()
	if err != nil {
		return nil, err // not a nil *os.File in an interface
	}
	return file, nil
}

// Acquire returns the file that a process maps, open, if it has a wanted probe.
// ok is false if it has none. The caller calls [CachedFile.Release] when it is
// done. All callers that acquire the same file get the same *CachedFile, as
// long as one of them has it.
//
// One caller reads a file while the others wait for the outcome. A file that is
// not ELF has no probes. An ELF file that cannot be read gives an [*Error] that
// wraps an error of package elfnote, each time again but without reading the
// file again. Errors of opening are those of [MappedFile.Open]; an error of
// reading is an [*Error], too. Neither is remembered.
func (c *Cache) Acquire(m *MappedFile) (f *CachedFile, ok bool, err error) {
	found, err := m.identify()
	if err != nil {
		return nil, false, err
	}
	asked := question{found.FileID, found.contents}
	if a, known := c.ask(asked); known && !a.matches {
		return nil, false, a.failure(m)
	}
	id, err := m.ID()
	if err != nil {
		return nil, false, err
	}
	q := question{id, found.contents}
	for {
		f := c.enter(id)
		ok, err := f.prepare(m, q)
		if ok && err == nil {
			return f, true, nil
		}
		f.Release()
		if errors.Is(err, errWrittenTo) {
			continue // another CachedFile takes its place
		}
		if a, known := c.ask(q); known && asked != q {
			c.remember(asked, a) // next time, id is not needed
		}
		return nil, false, err
	}
}

// enter returns a file with a reference for the caller.
func (c *Cache) enter(id FileID) *CachedFile {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.files[id]
	if f == nil {
		f = &CachedFile{cache: c, id: id}
		c.files[id] = f
	}
	f.references++
	return f
}

// takeDescriptor counts a file that is to be opened for a process of an owner.
// It fails if there are too many. Each owner leaves as many to the others as it
// has, so that ten owners together take nearly all.
func (c *Cache) takeDescriptor(owner string) error {
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

func (c *Cache) giveDescriptor(owner string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.opened--
	if c.owners[owner]--; c.owners[owner] == 0 {
		delete(c.owners, owner)
	}
}

func (c *Cache) ask(q question) (a answer, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.answers.find(q)
}

func (c *Cache) remember(q question, a answer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answers.put(q, a)
}

// A question is whether a file has wanted probes.
type question struct {
	file FileID
	contents
}

// An answer says whether it has, or why it cannot be read.
type answer struct {
	matches bool
	err     error
}

// failure returns the error for a process that maps the file.
func (a answer) failure(m *MappedFile) error {
	if a.err == nil {
		return nil
	}
	return m.wrap(opReadProbes, a.err)
}

// answers remembers answers, but neither files nor probes. The answers that
// were asked for recently survive: when limit new ones have come, the ones not
// asked for meanwhile are forgotten.
type answers struct {
	limit          int
	recent, former map[question]answer
}

func (s *answers) find(q question) (answer, bool) {
	if a, known := s.recent[q]; known {
		return a, true
	}
	a, known := s.former[q]
	if known {
		s.put(q, a)
	}
	return a, known
}

func (s *answers) put(q question, a answer) {
	if len(s.recent) >= s.limit {
		s.former, s.recent = s.recent, nil
	}
	if s.recent == nil {
		s.recent = make(map[question]answer)
	}
	s.recent[q] = a
}

// closing closes files. A file system that another user serves can hold that up
// for as long as it likes. So each device has a goroutine that closes its
// files, while there are some. The zero value is ready for use.
type closing struct {
	mu      sync.Mutex
	devices map[uint64]*closingDevice
}

// closingDevice is what is to be closed on one device.
type closingDevice struct {
	queue   []func()
	blocked bool // closing took too long once: no caller waits any more
}

// close closes a file on a device. It returns when that is done, or when it
// takes too long.
func (c *closing) close(device uint64, closeFile func()) {
	closed := make(chan struct{})
	c.mu.Lock()
	d := c.devices[device]
	if d == nil {
		if c.devices == nil {
			c.devices = make(map[uint64]*closingDevice)
		}
		d = &closingDevice{}
		c.devices[device] = d
		go c.work(device, d)
	}
	d.queue = append(d.queue, func() { closeFile(); close(closed) })
	blocked := d.blocked
	c.mu.Unlock()
	if blocked {
		return
	}
	timer := time.NewTimer(scanPatience)
	defer timer.Stop()
	select {
	case <-closed:
	case <-timer.C:
		c.mu.Lock()
		d.blocked = true
		c.mu.Unlock()
	}
}

// work closes what is in the queue of a device, until that is empty.
func (c *closing) work(device uint64, d *closingDevice) {
	for {
		c.mu.Lock()
		if len(d.queue) == 0 {
			delete(c.devices, device)
			c.mu.Unlock()
			return
		}
		closeFile := d.queue[0]
		d.queue = d.queue[1:]
		c.mu.Unlock()
		closeFile()
	}
}
