// SPDX-License-Identifier: BSD-2-Clause

package proc

import (
	"container/list"
	"sync"

	"github.com/gousdt/gousdt/elfnote"
)

// Cache holds the probes of files, so that a file that thousands of processes
// map is read once. It also remembers which files have none. It may be shared
// by several watchers and used by several goroutines at once.
//
// A file is held open while somebody has it acquired, by one descriptor however
// many have. Afterwards only its probes are kept, until other files need the
// room; a file without probes is not kept open at all.
type Cache struct {
	options CacheOptions

	mu       sync.Mutex
	entries  map[FileID]*CachedFile // in use, or in idle
	idle     *list.List             // of *File, those not in use, most recently used first
	idleSize int                    // of these, in sites
	without  verdicts
	stats    CacheStats
}

// CacheOptions say how much a cache keeps. A zero field means the default.
type CacheOptions struct {
	// IdleFiles and IdleSites bound the files, and the sites in them together,
	// whose probes are kept although nobody uses them at the moment. Negative
	// means that none are kept. Files in use are not counted: they are as many
	// as the processes map. A file whose notes take more memory than so many
	// sites usually do, since they are broken or have long strings, counts as
	// more sites, one for each 100 bytes. The defaults are [DefaultIdleFiles]
	// and [DefaultIdleSites].
	IdleFiles, IdleSites int
	// WithoutProbes is how many files without probes are remembered at least;
	// it may be twice as many. The default is [DefaultWithoutProbes].
	WithoutProbes int
	// Open, if not nil, opens a file in place of [MappedFile.Open], for callers
	// that have its bytes already or read them by other means. The reader is
	// closed, if it is an io.Closer, when nobody uses the file any more. It is
	// called by the goroutine that acquires the file and may call the methods
	// of the MappedFile, which is only valid during the call.
	Open OpenFunc
}

// CacheStats are numbers of a cache since it was made.
type CacheStats struct {
	// InUse is how many files are acquired at the moment and so held open.
	InUse int
	// Idle is how many files' probes are kept besides.
	Idle int
	// WithoutProbes is how many files are remembered to have none, or to be
	// unreadable.
	WithoutProbes int
	// Opened is how often a file was opened, Parsed how often it was read then:
	// a file of which the probes are still known is only opened.
	Opened, Parsed uint64
}

// NewCache returns an empty cache. nil stands for the defaults.
func NewCache(options *CacheOptions) *Cache {
	c := &Cache{entries: make(map[FileID]*CachedFile), idle: list.New()}
	if options != nil {
		c.options = *options
	}
	o := &c.options
	o.IdleFiles = orDefault(o.IdleFiles, DefaultIdleFiles)
	o.IdleSites = orDefault(o.IdleSites, DefaultIdleSites)
	o.WithoutProbes = orDefault(o.WithoutProbes, DefaultWithoutProbes)
	if o.Open == nil {
		o.Open = openMapped
	}
	c.without.limit = o.WithoutProbes
	return c
}

func orDefault(value, standard int) int {
	if value == 0 {
		return standard
	}
	return max(value, 0)
}

// Stats returns the numbers of the cache.
func (c *Cache) Stats() CacheStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	stats := c.stats
	stats.Idle = c.idle.Len()
	stats.WithoutProbes = c.without.len()
	return stats
}

// Acquire returns the file that a process maps, open, if it has a probe that
// matches any of the patterns; without patterns, if it has any probe at all. ok
// is false if it has none. The
// caller calls [CachedFile.Release] when it is done. Whoever acquires the same
// file gets the same *File, as long as anybody has it.
//
// A file is read by one caller while the others wait for the outcome. What
// cannot be read as ELF has no probes if it is no ELF file at all, and
// otherwise gives an [*Error] that wraps an error of package elfnote, each time
// again but without reading the file again. Errors of opening are those of
// [MappedFile.Open] or of [CacheOptions].Open; an error of reading is an
// [*Error] that wraps what the reader returned. Neither is remembered.
func (c *Cache) Acquire(m *MappedFile, patterns ...elfnote.Pattern) (f *CachedFile, ok bool, err error) {
	id, err := m.ID()
	if err != nil {
		return nil, false, err
	}
	f, verdict, known := c.enter(id)
	if known {
		if verdict != nil {
			return nil, false, m.wrap(opReadProbes, verdict)
		}
		return nil, false, nil
	}
	ok, err = f.prepare(m, patterns)
	if !ok || err != nil {
		f.Release()
		return nil, false, err
	}
	return f, true, nil
}

// enter returns the entry of a file with a reference for the caller, or what is
// known about a file that has none.
func (c *Cache) enter(id FileID) (f *CachedFile, verdict error, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if verdict, known = c.without.get(id); known {
		return nil, verdict, true
	}
	f = c.entries[id]
	if f == nil {
		f = &CachedFile{cache: c, identity: id}
		c.entries[id] = f
	}
	c.hold(f)
	return f, nil, false
}

// hold counts a reference. The caller holds the lock.
func (c *Cache) hold(f *CachedFile) {
	if f.references == 0 {
		if f.place != nil {
			c.idle.Remove(f.place)
			f.place = nil
			c.idleSize -= f.size
		}
	}
	f.references++
}

// condemn remembers that a file has no probes, or why they cannot be read.
func (c *Cache) condemn(id FileID, verdict error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.without.put(id, verdict)
}

// count adds to the numbers of opened and parsed files.
func (c *Cache) count(opened, parsed uint64, inUse int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.Opened += opened
	c.stats.Parsed += parsed
	c.stats.InUse += inUse
}

// rest makes room for a file that nobody uses any more, or forgets it if it was
// never read. The caller holds the lock.
func (c *Cache) rest(f *CachedFile) {
	// What is too large alone must not drive out the others.
	if f.listing == nil || len(f.listing.Probes) == 0 || f.size > c.options.IdleSites || f.refused != nil {
		delete(c.entries, f.identity)
		return
	}
	f.place = c.idle.PushFront(f)
	c.idleSize += f.size
	for c.idle.Len() > c.options.IdleFiles || c.idleSize > c.options.IdleSites {
		oldest := c.idle.Remove(c.idle.Back()).(*CachedFile)
		oldest.place = nil
		c.idleSize -= oldest.size
		delete(c.entries, oldest.identity)
	}
}

// verdicts remembers files without probes. Those asked for recently survive:
// when limit new ones have come, the ones not asked for meanwhile are
// forgotten.
type verdicts struct {
	limit          int
	recent, former map[FileID]error // nil: no probes; else why they cannot be read
}

func (v *verdicts) get(id FileID) (verdict error, known bool) {
	if verdict, known = v.recent[id]; known {
		return verdict, true
	}
	if verdict, known = v.former[id]; known {
		v.put(id, verdict)
	}
	return verdict, known
}

func (v *verdicts) put(id FileID, verdict error) {
	if len(v.recent) >= v.limit {
		v.former, v.recent = v.recent, nil
	}
	if v.recent == nil {
		v.recent = make(map[FileID]error)
	}
	v.recent[id] = verdict
}

// len counts those twice that are in both generations.
func (v *verdicts) len() int { return len(v.recent) + len(v.former) }
