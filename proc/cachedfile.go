// SPDX-License-Identifier: BSD-2-Clause

package proc

import (
	"container/list"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/gousdt/gousdt/elfnote"
)

// OpenFunc opens a mapped file for reading.
type OpenFunc func(*MappedFile) (io.ReaderAt, error)

func openMapped(m *MappedFile) (io.ReaderAt, error) {
	file, err := m.Open()
	if err != nil {
		return nil, err // not a nil *os.File in an interface
	}
	return file, nil
}

// CachedFile is a file with probes, held open. It is the same value for all who
// acquired it, so that the pointer tells files apart while it is held. Its
// methods may be called by several goroutines at once, until it is released.
type CachedFile struct {
	cache    *Cache
	identity FileID

	// Guarded by the lock of the cache.
	references int
	place      *list.Element // in the list of idle files, nil while in use
	size       int           // in sites, see sizeOf
	refused    error

	// loading is held while the file is read, so that only one does.
	loading sync.Mutex
	listing *elfnote.Listing // set once
	elf     *elfnote.File    // nil while not open
	closer  io.Closer        // of what is behind elf, may be nil
}

// ID tells the file from others.
func (f *CachedFile) ID() FileID { return f.identity }

// ELF returns the open file. It is valid until the file is released, and is not
// to be closed. Its OSFile is nil if [CacheOptions].Open returned something
// else than an *os.File.
func (f *CachedFile) ELF() *elfnote.File { return f.elf }

// Listing returns all probes of the file, whatever was looked for, and the
// notes that cannot be used. It is shared and not to be changed; it stays valid
// after the file is released.
func (f *CachedFile) Listing() *elfnote.Listing { return f.listing }

// Refuse has the cache take the file for one whose probes cannot be read, for
// this reason: [Cache.Acquire] fails for it from now on, without reading it,
// until the file has not been asked for in a long time. It is for those who
// find out, at some expense, that the probes are of no use to anybody. The file
// stays open until it is released.
func (f *CachedFile) Refuse(reason error) {
	c := f.cache
	c.mu.Lock()
	defer c.mu.Unlock()
	f.refused = reason
	c.without.put(f.identity, reason)
}

// Refused returns what Refuse was called with, nil if it was not.
func (f *CachedFile) Refused() error {
	f.cache.mu.Lock()
	defer f.cache.mu.Unlock()
	return f.refused
}

// Hold keeps the file for one more [CachedFile.Release]. Call it while the file
// is held.
func (f *CachedFile) Hold() {
	f.cache.mu.Lock()
	defer f.cache.mu.Unlock()
	f.cache.hold(f)
}

// Release gives back what was acquired or held, once for each. The last one
// closes the file.
func (f *CachedFile) Release() {
	c := f.cache
	c.mu.Lock()
	if f.references == 0 { // one too many
		c.mu.Unlock()
		return
	}
	f.references--
	var closer io.Closer
	if f.references == 0 {
		if f.elf != nil {
			c.stats.InUse--
		}
		closer, f.closer, f.elf = f.closer, nil, nil
		c.rest(f)
	}
	c.mu.Unlock()
	if closer != nil {
		closer.Close()
	}
}

// prepare reads the file unless that has been done, and opens it if there are
// probes wanted. The caller holds a reference.
func (f *CachedFile) prepare(m *MappedFile, patterns []elfnote.Pattern) (ok bool, err error) {
	f.loading.Lock()
	defer f.loading.Unlock()

	var opened *elfnote.File
	var closer io.Closer
	if f.listing == nil {
		listing, file, c, err := f.load(m)
		if err != nil {
			return false, err
		}
		opened, closer = file, c
		f.setListing(listing, sizeOf(listing, file))
	}
	if !anyProbe(f.listing, patterns) {
		if closer != nil {
			closer.Close()
		}
		return false, nil
	}
	if f.elf != nil {
		return true, nil
	}
	if opened == nil {
		r, c, err := f.open(m)
		if err != nil {
			return false, err
		}
		if opened, err = elfnote.NewFile(r); err != nil {
			if c != nil {
				c.Close()
			}
			return false, m.wrap(opReadProbes, err)
		}
		closer = c
	}
	f.elf, f.closer = opened, closer
	f.cache.count(0, 0, 1)
	return true, nil
}

func (f *CachedFile) setListing(listing *elfnote.Listing, size int) {
	f.cache.mu.Lock()
	defer f.cache.mu.Unlock()
	f.listing, f.size = listing, size
}

// sizeOf returns what keeping a listing costs, in sites: by the sites and
// broken notes that it describes, or by the notes themselves, to which the
// strings refer. A file without probes is nil, and is not kept.
func sizeOf(listing *elfnote.Listing, file *elfnote.File) int {
	if file == nil {
		return 0
	}
	size := len(listing.Malformed)
	for i := range listing.Probes {
		size += len(listing.Probes[i].Sites)
	}
	return max(size, file.NoteSize()/siteNotes)
}

func (f *CachedFile) open(m *MappedFile) (io.ReaderAt, io.Closer, error) {
	r, err := f.cache.options.Open(m)
	if err != nil {
		return nil, nil, err
	}
	f.cache.count(1, 0, 0)
	closer, _ := r.(io.Closer)
	return r, closer, nil
}

// load opens the file and lists its probes. A file without any is closed at
// once.
func (f *CachedFile) load(m *MappedFile) (*elfnote.Listing, *elfnote.File, io.Closer, error) {
	r, closer, err := f.open(m)
	if err != nil {
		return nil, nil, nil, err
	}
	listing, file, err := parse(r)
	f.cache.count(0, 1, 0)
	if err == nil && len(listing.Probes) > 0 {
		return listing, file, closer, nil
	}
	if closer != nil {
		closer.Close()
	}
	lasting := err == nil || isOfContents(err)
	switch {
	case errors.Is(err, elfnote.ErrNotELF):
		// Code in a file that is not ELF: of a JIT compiler, or of Windows.
		listing, err = new(elfnote.Listing), nil
	case err == nil && listing.MalformedCount > 0:
		// Without the names: they would keep all notes of the file in memory.
		first := &elfnote.NoteError{Index: listing.Malformed[0].Index, Err: listing.Malformed[0].Err}
		err = fmt.Errorf("no usable probe, %d broken: %w", listing.MalformedCount, first)
	}
	if lasting {
		f.cache.condemn(f.identity, err)
	}
	if err != nil {
		return nil, nil, nil, m.wrap(opReadProbes, err)
	}
	return listing, nil, nil, nil
}

func parse(r io.ReaderAt) (*elfnote.Listing, *elfnote.File, error) {
	file, err := elfnote.NewFile(r)
	if err != nil {
		return nil, nil, err
	}
	listing, err := file.Probes()
	return listing, file, err
}

// isOfContents tells an error of the file's contents, which will be the same
// next time, from one of reading it, which is anything that the reader makes
// up.
func isOfContents(err error) bool {
	for _, reason := range [...]error{
		elfnote.ErrNotELF, elfnote.ErrFileType, elfnote.ErrTruncated, elfnote.ErrMalformed,
		elfnote.ErrTooLarge, elfnote.ErrCompressed,
	} {
		if errors.Is(err, reason) {
			return true
		}
	}
	return false
}

func anyProbe(listing *elfnote.Listing, patterns []elfnote.Pattern) bool {
	for i := range listing.Probes {
		if elfnote.MatchAny(patterns, listing.Probes[i].Provider, listing.Probes[i].Name) {
			return true
		}
	}
	return false
}
