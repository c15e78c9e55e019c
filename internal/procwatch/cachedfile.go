// SPDX-License-Identifier: BSD-2-Clause

package procwatch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/elffile"
)

// CachedFile is a file with probes, held open. It is the same value for all who
// acquired it. Its methods may be called by several goroutines at once, until
// it is released.
type CachedFile struct {
	cache *Cache
	id    FileID

	// The lock of the cache guards what comes next.
	references int
	contents   contents // for which elf is good

	// opening is held while the file is opened and read, so that only one does.
	opening sync.Mutex
	elf     *elfnote.File // nil while not open
	reader  io.ReaderAt   // behind elf
	closer  io.Closer     // of it, may be nil
	owner   string        // for whom it was opened
	sites   atomic.Uint64 // a fingerprint of its sites, 0 if it has not been made
}

// errWrittenTo means that a file has other sites than when it was acquired.
var errWrittenTo = errors.New("file was written to")

// ID identifies the file.
func (f *CachedFile) ID() FileID { return f.id }

// HasSameSites reports whether two files with the same ID, of the same cache,
// have the same sites. A file that was written to while processes map it is
// another CachedFile for those that are scanned since, and may have other
// sites.
func (f *CachedFile) HasSameSites(other *CachedFile) bool {
	return f == other || f.sites.Load() == other.sites.Load()
}

// ELF returns the open file. It is valid until the file is released, and is not
// to be closed.
func (f *CachedFile) ELF() *elfnote.File { return f.elf }

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
	if file := f.release(); file != nil {
		f.cache.closing.close(f.id.device, file)
	}
}

// unclosedFile is a file that is to be closed. It counts as open until it is:
// one whose file system holds that up still has its descriptor.
type unclosedFile struct {
	cache  *Cache
	closer io.Closer // may be nil
	owner  string
}

func (f *unclosedFile) Close() (err error) {
	if f.closer != nil {
		err = f.closer.Close()
	}
	f.cache.giveDescriptor(f.owner)
	return err
}

// release returns what is to be closed, nil if that is nothing.
func (f *CachedFile) release() *unclosedFile {
	f.cache.mu.Lock()
	defer f.cache.mu.Unlock()
	if f.references == 0 { // one too many
		return nil
	}
	if f.references--; f.references > 0 {
		return nil
	}
	if f.cache.files[f.id] == f { // else it was held once more after it had been closed
		delete(f.cache.files, f.id)
	}
	if f.elf == nil {
		return nil
	}
	file := &unclosedFile{f.cache, f.closer, f.owner}
	f.closer, f.elf, f.reader = nil, nil, nil
	return file
}

// prepare opens the file if it has probes that are wanted. The caller holds a
// reference.
func (f *CachedFile) prepare(m *MappedFile, is contents, w wanted) (ok bool, err error) {
	f.opening.Lock()
	defer f.opening.Unlock()
	if f.elf != nil && !f.isCurrent(is) {
		sites, err := f.fingerprint(f.reader)
		if err != nil {
			return false, err
		}
		if sites != f.sites.Load() {
			f.cache.replace(f)
			return false, errWrittenTo
		}
		f.setContents(is)
	}
	a, known := f.cache.ask(f.id, is, w)
	if known && !a.matches { // another caller has found it out meanwhile
		return false, a.failure(m)
	}
	if f.elf == nil {
		if err := f.open(m, is); err != nil {
			return false, err
		}
	}
	switch {
	case f.elf == nil: // it is no ELF file
		return false, nil
	case known:
		ok = true
	default:
		ok, err = f.find(m, is, w)
		m.searched = err == nil
		if !ok {
			return false, err
		}
	}
	if f.sites.Load() == 0 { // it was known that it has wanted probes
		sites, err := f.fingerprint(f.reader)
		if err != nil {
			return false, f.fail(m, is, err)
		}
		f.sites.Store(sites)
		m.searched = true
	}
	return true, nil
}

// isCurrent reports whether the file has not been written to, nor touched,
// since it was read.
func (f *CachedFile) isCurrent(is contents) bool {
	f.cache.mu.Lock()
	defer f.cache.mu.Unlock()
	return f.contents == is
}

func (f *CachedFile) setContents(is contents) {
	f.cache.mu.Lock()
	defer f.cache.mu.Unlock()
	f.contents = is
}

// fingerprint returns the fingerprint of the sites of a file.
func (f *CachedFile) fingerprint(r io.ReaderAt) (uint64, error) {
	hash := newSiteHash(f.cache.seed)
	elf, err := elfnote.NewFile(r)
	if err != nil {
		hash.fail(err)
		return hash.sum(), unlessOfContents(err)
	}
	for site, err := range elf.Sites() {
		if err == nil {
			hash.add(elf, &site)
			continue
		}
		if err := unlessOfContents(err); err != nil {
			return 0, err
		}
		hash.fail(err)
	}
	return hash.sum(), nil
}

// unlessOfContents returns nil for an error of the contents of a file, and
// other errors as they are.
func unlessOfContents(err error) error {
	if isOfContents(err) || errors.As(err, new(*elffile.NoteError)) {
		return nil
	}
	return err
}

// open opens the file, unless it is no ELF file. The last one who releases it
// closes it.
func (f *CachedFile) open(m *MappedFile, is contents) error {
	owner := m.owner()
	if err := f.cache.takeDescriptor(owner); err != nil {
		return m.wrap("open", err)
	}
	reader, err := f.cache.open(m)
	if err != nil {
		f.cache.giveDescriptor(owner)
		return err
	}
	closer, _ := reader.(io.Closer)
	file, err := elfnote.NewFile(reader)
	f.cache.count(cacheCounts{opened: 1})
	if err == nil {
		f.elf, f.reader, f.closer, f.owner = file, reader, closer, owner
		f.sites.Store(0)
		f.setContents(is)
		return nil
	}
	defer f.cache.giveDescriptor(owner)
	if closer != nil {
		closer.Close()
	}
	if errors.Is(err, elfnote.ErrNotELF) {
		// Code in a file that is not ELF: of a JIT compiler, or of Windows.
		f.cache.remember(question{f.id, is, anything}, answer{})
		return nil
	}
	return f.fail(m, is, err)
}

// find reads the notes of the file, and reports whether there is a probe that
// is wanted. That is remembered.
func (f *CachedFile) find(m *MappedFile, is contents, w wanted) (bool, error) {
	f.cache.count(cacheCounts{searched: 1})
	hash := newSiteHash(f.cache.seed)
	var last elfnote.Site // sites of a probe most often come one after the other
	var malformed *elffile.NoteError
	malformedCount, usable, matches := 0, false, false
	for site, err := range f.elf.Sites() {
		if err != nil {
			var note *elffile.NoteError
			if !errors.As(err, &note) {
				return false, f.fail(m, is, err)
			}
			hash.fail(err)
			if malformedCount++; malformed == nil {
				// Without the names: they would keep others in memory.
				malformed = &elffile.NoteError{Index: note.Index, Err: note.Err}
			}
			continue
		}
		hash.add(f.elf, &site)
		if matches || usable && site.Name == last.Name && site.Provider == last.Provider {
			continue
		}
		last, usable = site, true
		matches = elfnote.MatchAny(w.patterns, site.Provider, site.Name)
	}
	if matches {
		f.sites.Store(hash.sum())
		f.cache.remember(question{f.id, is, w.number}, answer{matches: true})
		return true, nil
	}
	switch {
	case usable:
		f.cache.remember(question{f.id, is, w.number}, answer{})
		return false, nil
	case malformed == nil:
		f.cache.remember(question{f.id, is, anything}, answer{})
		return false, nil
	}
	err := fmt.Errorf("none of the %d probes can be used: %w", malformedCount, malformed)
	f.cache.remember(question{f.id, is, anything}, answer{err: err})
	return false, m.wrap(opReadProbes, err)
}

// fail returns an error of reading the file. One of the contents of the file is
// remembered, because it will be the same next time.
func (f *CachedFile) fail(m *MappedFile, is contents, err error) error {
	if isOfContents(err) {
		f.cache.remember(question{f.id, is, anything}, answer{err: err})
	}
	return m.wrap(opReadProbes, err)
}

// isOfContents tells an error of the contents of a file from one of reading it,
// which is anything that the reader makes up.
func isOfContents(err error) bool {
	for _, reason := range [...]error{
		elfnote.ErrNotELF, elffile.ErrMalformed, elffile.ErrTooLarge,
	} {
		if errors.Is(err, reason) {
			return true
		}
	}
	return false
}

// siteHash makes a fingerprint of what attaching goes by: the sites of a file.
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

// fail adds what is wrong with the file, or with a note.
func (h *siteHash) fail(err error) { h.WriteString(err.Error()) }

// sum returns the fingerprint, which is not 0.
func (h *siteHash) sum() uint64 { return h.Sum64() | 1 }

// closing closes files. To close a file is to wait for its file system, which
// somebody else may have stopped. So the files of each file system are closed
// by a goroutine of their own, which exists while there is something to close.
// The zero value is ready for use.
type closing struct {
	mu      sync.Mutex
	devices map[uint64]*closingDevice
}

// closingDevice is what is to be closed on one device.
type closingDevice struct {
	queue   []closingFile
	blocked bool // a wait for it took too long: nothing waits any more
}

type closingFile struct {
	io.Closer
	closed chan struct{} // nil if nobody waits
}

// close closes a file on a device. It returns when that is done, or when it
// takes too long.
func (c *closing) close(device uint64, closer io.Closer) {
	file := closingFile{Closer: closer}
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
	if !d.blocked {
		file.closed = make(chan struct{})
	}
	d.queue = append(d.queue, file)
	c.mu.Unlock()
	if file.closed == nil {
		return
	}
	timer := time.NewTimer(scanPatience)
	defer timer.Stop()
	select {
	case <-file.closed:
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
		file := d.queue[0]
		d.queue = d.queue[1:]
		c.mu.Unlock()
		_ = file.Close() // it was only read
		if file.closed != nil {
			close(file.closed)
		}
	}
}
