// SPDX-License-Identifier: BSD-2-Clause

package proc

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/gousdt/gousdt/elfnote"
)

// CachedFile is a file with probes, held open. It is the same value for all who
// acquired it. Its methods may be called by several goroutines at once, until
// it is released.
type CachedFile struct {
	cache *Cache
	id    FileID

	references int // guarded by the lock of the cache

	// opening is held while the file is opened and read, so that only one does.
	opening sync.Mutex
	elf     *elfnote.File // nil while not open
	closer  io.Closer     // of what is behind elf, may be nil
}

// ID identifies the file.
func (f *CachedFile) ID() FileID { return f.id }

// ELF returns the open file. It is valid until the file is released, and is not
// to be closed. Its OSFile is nil if [CacheOptions].Open returned something
// else than an *os.File.
func (f *CachedFile) ELF() *elfnote.File { return f.elf }

// Hold keeps the file open for one more [CachedFile.Release]. Call it while the
// file is held.
func (f *CachedFile) Hold() {
	f.cache.mu.Lock()
	defer f.cache.mu.Unlock()
	f.references++
}

// Release gives back what was acquired or held, once for each. The last one
// closes the file.
func (f *CachedFile) Release() {
	if closer := f.release(); closer != nil {
		closer.Close()
	}
}

// release returns what is to be closed.
func (f *CachedFile) release() (closer io.Closer) {
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
	closer, f.closer, f.elf = f.closer, nil, nil
	return closer
}

// prepare opens the file if it has probes that are wanted. The caller holds a
// reference.
func (f *CachedFile) prepare(m *MappedFile, w wanted) (ok bool, err error) {
	f.opening.Lock()
	defer f.opening.Unlock()
	a, known := f.cache.ask(f.id, w)
	if known && !a.matches { // another caller has found it out meanwhile
		return false, a.failure(m)
	}
	if f.elf == nil {
		if err := f.open(m); err != nil {
			return false, err
		}
	}
	switch {
	case f.elf == nil: // it is no ELF file
		return false, nil
	case known:
		return true, nil
	default:
		return f.find(m, w)
	}
}

// open opens the file, unless it is no ELF file. The last one who releases it
// closes it.
func (f *CachedFile) open(m *MappedFile) error {
	reader, err := f.cache.open(m)
	if err != nil {
		return err
	}
	closer, _ := reader.(io.Closer)
	file, err := elfnote.NewFile(reader)
	f.cache.count(cacheCounts{opened: 1})
	if err == nil {
		f.elf, f.closer = file, closer
		return nil
	}
	if closer != nil {
		closer.Close()
	}
	if errors.Is(err, elfnote.ErrNotELF) {
		// Code in a file that is not ELF: of a JIT compiler, or of Windows.
		f.cache.remember(f.id, wanted{number: anything}, answer{})
		return nil
	}
	return f.fail(m, err)
}

// find reads the notes of the file until it finds a probe that is wanted, and
// reports whether there is one. That is remembered.
func (f *CachedFile) find(m *MappedFile, w wanted) (bool, error) {
	f.cache.count(cacheCounts{searched: 1})
	var last elfnote.Site // sites of a probe most often come one after the other
	var malformed *elfnote.NoteError
	malformedCount, usable := 0, false
	for site, err := range f.elf.Sites() {
		if err != nil {
			var note *elfnote.NoteError
			if !errors.As(err, &note) {
				return false, f.fail(m, err)
			}
			if malformedCount++; malformed == nil {
				// Without the names: they would keep others in memory.
				malformed = &elfnote.NoteError{Index: note.Index, Err: note.Err}
			}
			continue
		}
		if usable && site.Name == last.Name && site.Provider == last.Provider {
			continue
		}
		last, usable = site, true
		if elfnote.MatchAny(w.patterns, site.Provider, site.Name) {
			f.cache.remember(f.id, w, answer{matches: true})
			return true, nil
		}
	}
	switch {
	case usable:
		f.cache.remember(f.id, w, answer{})
		return false, nil
	case malformed == nil:
		f.cache.remember(f.id, wanted{number: anything}, answer{})
		return false, nil
	}
	err := fmt.Errorf("none of the %d probes can be used: %w", malformedCount, malformed)
	f.cache.remember(f.id, wanted{number: anything}, answer{err: err})
	return false, m.wrap(opReadProbes, err)
}

// fail returns an error of reading the file. One of the contents of the file is
// remembered, because it will be the same next time.
func (f *CachedFile) fail(m *MappedFile, err error) error {
	if isOfContents(err) {
		f.cache.remember(f.id, wanted{number: anything}, answer{err: err})
	}
	return m.wrap(opReadProbes, err)
}

// isOfContents tells an error of the contents of a file from one of reading it,
// which is anything that the reader makes up.
func isOfContents(err error) bool {
	for _, reason := range [...]error{
		elfnote.ErrNotELF, elfnote.ErrMalformed, elfnote.ErrTooLarge,
	} {
		if errors.Is(err, reason) {
			return true
		}
	}
	return false
}
