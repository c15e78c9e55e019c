// SPDX-License-Identifier: BSD-2-Clause

package procwatch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"iter"
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
	cache *Cache
	id    FileID

	// The lock of the cache guards what comes next.
	references int
	contents   contents // for which elf is good

	// opening is held while the file is opened and read, so that only one does.
	opening sync.Mutex
	elf     *elfnote.File // nil while not open
	reader  io.ReaderAt   // from which elf reads
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

// Release gives back what was acquired or held, once for each. The last one
// closes the file, and does not wait for long if its file system holds that up.
func (f *CachedFile) Release() {
	if reader := f.release(); reader != nil {
		f.cache.closing.close(f.id.device, func() { f.cache.closeReader(reader, f.owner) })
	}
}

// release returns the reader that is to be closed, nil if there is none.
func (f *CachedFile) release() io.ReaderAt {
	c := f.cache
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.references == 0 { // one too many
		return nil
	}
	if f.references--; f.references > 0 {
		return nil
	}
	if c.files[f.id] == f { // else it was held once more after it had been closed
		delete(c.files, f.id)
	}
	if f.elf != nil {
		c.kept -= f.notes.bytes
	}
	reader := f.reader
	f.elf, f.reader, f.notes.sites = nil, nil, nil
	return reader
}

// closeReader closes a file. The file counts as open until then: if its file
// system holds that up, it still has its descriptor.
func (c *Cache) closeReader(reader io.ReaderAt, owner string) {
	if closer, ok := reader.(io.Closer); ok {
		_ = closer.Close() // it was only read
	}
	c.giveDescriptor(owner)
}

// prepare opens the file if it has wanted probes. The caller holds a reference.
func (f *CachedFile) prepare(m *MappedFile, q question) (ok bool, err error) {
	f.opening.Lock()
	defer f.opening.Unlock()
	if f.elf != nil {
		return f.update(m, q)
	}
	if a, known := f.cache.ask(q); known && !a.matches {
		return false, a.failure(m) // another caller has found it out meanwhile
	}
	owner := m.owner()
	if err := f.cache.takeDescriptor(owner); err != nil {
		return false, m.wrap("open", err)
	}
	reader, err := f.cache.open(m)
	if err != nil {
		f.cache.giveDescriptor(owner)
		return false, err
	}
	elf, notes, err := f.cache.read(reader)
	if m.searched = err == nil; err != nil {
		err = m.wrap(opReadProbes, err)
	} else {
		a := answer{notes.matches, notes.err}
		f.cache.remember(q, a)
		err = a.failure(m)
	}
	if !notes.matches || err != nil {
		// A goroutine that could bear to open the file can bear to close it. To
		// have another one do so would take longer than to read the file.
		f.cache.closeReader(reader, owner)
		return false, err
	}
	f.elf, f.reader, f.owner, f.notes = elf, reader, owner, notes
	f.cache.mu.Lock()
	defer f.cache.mu.Unlock()
	f.contents = q.contents
	return true, nil
}

// update reads the sites of the open file again if it was written to, or
// touched, since that was done last.
func (f *CachedFile) update(m *MappedFile, q question) (ok bool, err error) {
	if f.isCurrent(q.contents) {
		return true, nil
	}
	_, again, err := f.cache.read(f.reader)
	if err != nil {
		return false, m.wrap(opReadProbes, err)
	}
	f.cache.mu.Lock()
	defer f.cache.mu.Unlock()
	f.cache.kept -= again.bytes
	if again.err == nil && again.fingerprint == f.notes.fingerprint {
		f.contents = q.contents
		return true, nil
	}
	if f.cache.files[f.id] == f {
		delete(f.cache.files, f.id)
	}
	return false, errWrittenTo
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
	fingerprint uint64         // of the sites
	sites       []elfnote.Site // nil if they are not kept
	bytes       int            // of sites that are kept
	err         error          // what is wrong with the contents of the file
}

// read reads the notes of a file. The sites are kept if there is room. The
// error is one of reading, not of what the file contains.
func (c *Cache) read(reader io.ReaderAt) (elf *elfnote.File, n notes, err error) {
	elf, err = elfnote.NewFile(reader)
	switch {
	case errors.Is(err, elfnote.ErrNotELF):
		return nil, n, nil // code of a JIT compiler, or of Windows
	case isOfContents(err):
		return nil, notes{err: err}, nil
	case err != nil:
		return nil, n, err
	}
	c.mu.Lock()
	room := min(maxKeptSites-c.kept, maxKeptOfFile)
	c.mu.Unlock()
	hash := newSiteHash(c.seed)
	var last elfnote.Site // sites of a probe most often come one after the other
	var malformed *elffile.NoteError
	malformedCount, usable := 0, false
	for site, err := range elf.Sites() {
		var note *elffile.NoteError
		switch {
		case err == nil:
		case errors.As(err, &note):
			hash.fail(err)
			if malformedCount++; malformed == nil {
				// Without the names: they would keep others in memory.
				malformed = &elffile.NoteError{Index: note.Index, Err: note.Err}
			}
			continue
		case isOfContents(err):
			return nil, notes{err: err}, nil
		default:
			return nil, notes{}, err
		}
		hash.add(elf, &site)
		if n.bytes += siteBytes(&site); n.bytes <= room {
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
	c.mu.Lock()
	c.kept += n.bytes
	c.mu.Unlock()
	return elf, n, nil
}

// siteBytes returns how much memory a site takes.
func siteBytes(s *elfnote.Site) int {
	return int(unsafe.Sizeof(*s)) + len(s.Provider) + len(s.Name) + len(s.Arguments)
}

// isOfContents tells an error of the contents of a file from an error of
// reading it, which can be any that the reader returns.
func isOfContents(err error) bool {
	return errors.Is(err, elfnote.ErrNotELF) || errors.Is(err, elffile.ErrMalformed) ||
		errors.Is(err, elffile.ErrTooLarge)
}

// siteHash makes a fingerprint of all that matters for attaching: the sites of
// a file.
type siteHash struct{ maphash.Hash }

func newSiteHash(seed maphash.Seed) *siteHash {
	h := new(siteHash)
	h.SetSeed(seed)
	return h
}

func (h *siteHash) add(file *elfnote.File, site *elfnote.Site) {
	var numbers [72]byte
	for i, n := range [...]uint64{
		uint64(len(site.Provider)), uint64(len(site.Name)), uint64(len(site.Arguments)),
		site.Location, site.Offset, site.Base, site.Semaphore, site.SemaphoreOffset,
		uint64(file.Header().Type),
	} {
		binary.NativeEndian.PutUint64(numbers[i*8:], n)
	}
	h.Write(numbers[:])
	h.WriteString(site.Provider)
	h.WriteString(site.Name)
	h.WriteString(site.Arguments)
}

// fail adds what is wrong with a note.
func (h *siteHash) fail(err error) { h.WriteString(err.Error()) }
