// SPDX-License-Identifier: BSD-2-Clause

package procwatch

import (
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"sync"
	"syscall"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/sys"
)

// Cache opens the files that processes map and that have probes, each once,
// however many processes map it. It remembers which files have none, so that
// they are not read again. It may be used by several goroutines at once.
//
// A file is open while somebody has it acquired. Of the other files the cache
// knows in bounded memory whether they have probes, but not which.
type Cache struct {
	open func(*MappedFile) (io.ReaderAt, error) // the file, closed if it is an io.Closer
	seed maphash.Seed

	mu      sync.Mutex
	files   map[FileID]*CachedFile // those acquired
	opened  int                    // files that are open now
	owners  map[string]int         // and for whom each was opened
	limit   int                    // on these
	answers answers
	closing closing
	counts  cacheCounts
}

// cacheCounts say what a cache has done: for tests.
type cacheCounts struct{ opened, searched int }

// NewCache returns an empty cache.
func NewCache() *Cache {
	c := &Cache{open: openMapped, seed: maphash.MakeSeed(), files: make(map[FileID]*CachedFile),
		owners: make(map[string]int)}
	c.answers.limit = maxAnswers
	c.limit = sys.MaxDescriptors() / descriptorsPerFile
	return c
}

func openMapped(m *MappedFile) (io.ReaderAt, error) {
	file, err := m.Open()
	if err != nil {
		return nil, err // not a nil *os.File in an interface
	}
	return file, nil
}

// Acquire returns the file that a process maps, open, if it has a probe that
// matches any of the patterns, or any probe if there is no pattern. ok is false
// if it has none. The caller calls [CachedFile.Release] when it is done.
// Whoever acquires the same file gets the same *CachedFile, as long as anybody
// has it.
//
// A file is read by one caller while the others wait for the outcome. A file
// that is not ELF has no probes. An ELF file that cannot be read gives an
// [*Error] that wraps an error of package elfnote, each time again but without
// reading the file again. Errors of opening are those of [MappedFile.Open]; an
// error of reading is an [*Error], too. Neither is remembered.
func (c *Cache) Acquire(
	m *MappedFile, patterns ...elfnote.Pattern,
) (f *CachedFile, ok bool, err error) {
	return c.acquire(m, c.wanted(patterns))
}

// acquire is Acquire with patterns whose number is known.
func (c *Cache) acquire(m *MappedFile, w wanted) (*CachedFile, bool, error) {
	found, err := m.identify()
	if err != nil {
		return nil, false, err
	}
	if a, known := c.ask(found.FileID, found.contents, w); known && !a.matches {
		return nil, false, a.failure(m)
	}
	id, err := m.ID()
	if err != nil {
		return nil, false, err
	}
	for {
		f := c.enter(id)
		ok, err := f.prepare(m, found.contents, w)
		if ok && err == nil {
			return f, true, nil
		}
		if file := f.release(); file != nil {
			// Whoever could bear to open the file can bear to close it. To have
			// another goroutine do so would take longer than to read it.
			file.Close()
		}
		if errors.Is(err, errWrittenTo) {
			continue // there is another one in its place
		}
		if a, known := c.ask(id, found.contents, w); known && id != found.FileID {
			// So that id is not needed.
			c.remember(question{found.FileID, found.contents, w.number}, a)
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
// It fails if there are too many. No owner takes more than it leaves for the
// others, so that ten have to join to take nearly all.
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

// replace has a file that was written to be another one for those who acquire
// it from now on.
func (c *Cache) replace(f *CachedFile) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.files[f.id] == f {
		delete(c.files, f.id)
	}
}

func (c *Cache) ask(id FileID, is contents, w wanted) (a answer, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if a, known := c.answers.find(question{id, is, anything}); known {
		return a, true
	}
	return c.answers.find(question{id, is, w.number})
}

// remember keeps what has been found out about a file.
func (c *Cache) remember(q question, a answer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answers.put(q, a)
}

func (c *Cache) count(more cacheCounts) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts.opened += more.opened
	c.counts.searched += more.searched
}

// wanted are the patterns of those who acquire files. The number tells them
// from other patterns.
type wanted struct {
	patterns []elfnote.Pattern
	number   uint64
}

// anything is the number for answers that hold whatever is wanted.
const anything = 0

// wanted numbers patterns.
func (c *Cache) wanted(patterns []elfnote.Pattern) wanted {
	var hash maphash.Hash
	hash.SetSeed(c.seed)
	for _, p := range patterns {
		hash.WriteString(p.String())
		hash.WriteByte(0)
	}
	number := hash.Sum64()
	if number == anything {
		number++
	}
	return wanted{patterns, number}
}

// A question is whether a file has probes that match certain patterns.
type question struct {
	file FileID
	contents
	patterns uint64
}

// An answer says whether it has, or why it cannot be read.
type answer struct {
	matches bool
	err     error
}

// failure returns the error for those who ask about a mapped file.
func (a answer) failure(m *MappedFile) error {
	if a.err == nil {
		return nil
	}
	return m.wrap(opReadProbes, a.err)
}

// answers remembers answers: a file is not kept, nor are its probes. Those
// asked for recently survive: when limit new ones have come, the ones not asked
// for meanwhile are forgotten.
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
