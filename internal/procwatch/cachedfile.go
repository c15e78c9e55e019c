// SPDX-License-Identifier: BSD-2-Clause

package procwatch

import (
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"iter"
	"os"
	"slices"
	"sync"
	"unsafe"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/elffile"
)

// CachedFile is a file with wanted probes, held open. All callers that have
// acquired it share it. Several goroutines may use it at once, until it is
// released.
type CachedFile struct {
	cache *cache
	id    FileID

	// The lock of the cache guards the next two fields.
	references int
	contents   contents // as of which elf was read

	// opening is held while the file is opened and read, so that only one does.
	opening sync.Mutex
	elf     *elfnote.File // nil while not open
	owner   string        // of the process for which it was opened
	notes   notes
}

// errWrittenTo means that a file has other sites than when it was acquired.
var errWrittenTo = errors.New("file was written to")

// ID identifies the file.
func (f *CachedFile) ID() FileID { return f.id }

// HasSameSites reports whether two files with the same ID, of the same cache,
// have the same sites. A file that is written to while processes map it is
// another CachedFile for the processes that are scanned after that, and may
// have other sites.
func (f *CachedFile) HasSameSites(other *CachedFile) bool {
	return f.notes.fingerprint == other.notes.fingerprint
}

// ELF returns the open file. It is valid until the file is released. The caller
// does not close it.
func (f *CachedFile) ELF() *elfnote.File { return f.elf }

// Sites is [elfnote.File.Sites] for the file. It reads the notes again only if
// they were malformed or too large to be kept.
func (f *CachedFile) Sites() iter.Seq2[elfnote.Site, error] {
	if f.notes.sites == nil {
		return f.elf.Sites()
	}
	return func(yield func(elfnote.Site, error) bool) {
		for _, site := range f.notes.sites {
			if !yield(site, nil) {
				return
			}
		}
	}
}

// Hold keeps the file open for one more [CachedFile.Release]. Call it while the
// file is held.
func (f *CachedFile) Hold() {
	f.cache.mu.Lock()
	defer f.cache.mu.Unlock()
	f.references++
}

// Release undoes one acquire or Hold. The last one closes the file, and does
// not wait for long if its file system holds that up.
func (f *CachedFile) Release() {
	c := f.cache
	c.mu.Lock()
	f.references--
	last := f.references == 0
	f.references = max(0, f.references) // one Release too many
	if !last {
		c.mu.Unlock()
		return
	}
	if c.files[f.id] == f { // else it was held once more after it had been closed
		delete(c.files, f.id)
	}
	elf := f.elf
	c.kept -= f.notes.bytes
	f.elf, f.notes.sites, f.notes.bytes = nil, nil, 0
	c.mu.Unlock()
	if elf != nil {
		c.closing.close(f.id.device, func() { c.closeFile(elf.OSFile(), f.owner) })
	}
}

// closeFile closes a file. It counts as open until then: if its file system
// holds that up, it still has its descriptor.
func (c *cache) closeFile(file *os.File, owner string) {
	_ = file.Close() // it was only read
	c.giveDescriptor(owner)
}

// prepare opens the file if it has wanted probes. If it is open, its sites are
// read again if it was written to, or touched, since that was done last. The
// caller holds a reference.
func (f *CachedFile) prepare(m *MappedFile, q question) (ok bool, err error) {
	c := f.cache
	f.opening.Lock()
	defer f.opening.Unlock()
	if f.elf != nil {
		if f.isCurrent(q.contents) {
			return true, nil
		}
		_, again, err := c.read(f.elf.OSFile(), 0)
		if err != nil {
			return false, m.wrap(opReadProbes, err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if again.err == nil && again.fingerprint == f.notes.fingerprint {
			f.contents = q.contents
			return true, nil
		}
		if c.files[f.id] == f {
			delete(c.files, f.id)
		}
		return false, errWrittenTo
	}
	if known, err := c.isUnwanted(m, q); known {
		return false, err // another caller has found it out meanwhile
	}
	if err := c.takeDescriptor(m.owner); err != nil {
		return false, m.wrap("open", err)
	}
	file, err := m.Open()
	if err != nil {
		c.giveDescriptor(m.owner)
		return false, err
	}
	c.mu.Lock()
	room := min(maxKeptSites-c.kept, maxKeptOfFile)
	c.mu.Unlock()
	elf, notes, err := c.read(file, room)
	c.mu.Lock()
	switch m.searched = err == nil; {
	case err != nil:
		err = m.wrap(opReadProbes, err)
	case notes.matches:
		f.elf, f.owner, f.notes, f.contents = elf, m.owner, notes, q.contents
		c.kept += notes.bytes
	default:
		c.unwanted.put(q, notes.err)
		if notes.err != nil {
			err = m.wrap(opReadProbes, notes.err)
		}
	}
	c.mu.Unlock()
	if !notes.matches {
		// Closing can block this goroutine, as opening could. To have another
		// one close the file would take longer than to read it.
		c.closeFile(file, m.owner)
	}
	return notes.matches, err
}

// isCurrent reports whether the file has not been written to, nor touched,
// since it was read.
func (f *CachedFile) isCurrent(is contents) bool {
	f.cache.mu.Lock()
	defer f.cache.mu.Unlock()
	return f.contents == is
}

// notes are what one walk over the notes of a file has found. Whether a file
// has wanted probes, the selection of its sites, and its pairs come from it.
type notes struct {
	matches     bool           // there is a wanted probe
	fingerprint uint64         // of all that matters for attaching
	sites       []elfnote.Site // nil if they are not kept
	bytes       int            // of sites that are kept
	err         error          // that of malformed contents
}

// read reads the notes of a file. The sites are kept if they take no more bytes
// than there is room. The error is that of the reader, which can be any. Errors
// of the contents are in the notes.
func (c *cache) read(reader io.ReaderAt, room int) (elf *elfnote.File, n notes, err error) {
	failed := func(err error) (*elfnote.File, notes, error) {
		if errors.Is(err, elffile.ErrMalformed) || errors.Is(err, elffile.ErrTooLarge) ||
			errors.Is(err, elfnote.ErrNotELF) {
			return nil, notes{err: err}, nil
		}
		return nil, notes{}, err
	}
	elf, err = elfnote.NewFile(reader)
	switch {
	case errors.Is(err, elfnote.ErrNotELF):
		return nil, n, nil // code of a JIT compiler, or of Windows
	case err != nil:
		return failed(err)
	}
	var hash maphash.Hash
	hash.SetSeed(c.seed)
	maphash.WriteComparable(&hash, elf.Header().Type)
	var last elfnote.Site // sites of a probe most often come one after the other
	var malformed *elffile.NoteError
	malformedCount, usable := 0, false
	for site, err := range elf.Sites() {
		if err != nil {
			var note *elffile.NoteError
			if !errors.As(err, &note) {
				return failed(err)
			}
			hash.WriteString(err.Error())
			if malformedCount++; malformed == nil {
				// Without the names: they would keep others in memory.
				malformed = &elffile.NoteError{Index: note.Index, Err: note.Err}
			}
			continue
		}
		maphash.WriteComparable(&hash, site)
		n.bytes += int(unsafe.Sizeof(site)) + len(site.Provider) + len(site.Name) +
			len(site.Arguments)
		if n.bytes <= room {
			n.sites = append(n.sites, site)
		}
		if n.matches || usable && site.Name == last.Name && site.Provider == last.Provider {
			continue
		}
		last, usable = site, true
		n.matches = elfnote.MatchAny(c.patterns, site.Provider, site.Name)
	}
	n.fingerprint = hash.Sum64()
	if !usable && malformed != nil {
		n.err = fmt.Errorf("none of the %d probes can be used: %w", malformedCount, malformed)
	}
	if !n.matches || malformed != nil || n.bytes > room {
		n.sites, n.bytes = nil, 0
	}
	n.sites = slices.Clone(n.sites)
	return elf, n, nil
}
