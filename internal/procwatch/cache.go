// SPDX-License-Identifier: BSD-2-Clause

package procwatch

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"iter"
	"os"
	"slices"
	"sync"
	"syscall"
	"unsafe"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/deadline"
	"github.com/gousdt/gousdt/internal/elffile"
	"github.com/gousdt/gousdt/internal/pattern"
	"github.com/gousdt/gousdt/internal/procfs"
	"github.com/gousdt/gousdt/internal/sys"
)

// A request is for the file that a process of an owner maps. searched is set if
// its notes were read, which need not be done again.
type request struct {
	*procfs.MappedFile
	mounts   *Mounts // of the process
	owner    string
	searched bool
	written  bool // while it was read
}

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
	files    map[procfs.FileID]*CachedFile // those acquired, also by other IDs
	opened   int                           // files that are open now
	owners   map[string]int                // files that are open now, by the owner of a process
	limit    int                           // of files that are open
	kept     int                           // bytes of sites, of all files
	unwanted answers
	closing  closing
}

// newCache returns an empty cache for the files that have a probe that matches
// any of the patterns, or any probe if there is no pattern.
func newCache(patterns ...elfnote.Pattern) *cache {
	return &cache{
		patterns: slices.Clone(patterns),
		seed:     maphash.MakeSeed(),
		files:    make(map[procfs.FileID]*CachedFile),
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
func (c *cache) acquire(m *request) (f *CachedFile, ok bool, err error) {
	found, err := m.Identify()
	if err != nil {
		return nil, false, err
	}
	asked := question{found.FileID, found.Contents}
	if known, err := c.isUnwanted(m, asked); known {
		return nil, false, err
	}
	id, err := m.mounts.ID(m.MappedFile)
	if err != nil {
		return nil, false, err
	}
	q := question{id, found.Contents}
	for range maxTurns {
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
	return nil, false, m.Wrap("open", procfs.ErrChanged)
}

// maxTurns bounds how often another CachedFile takes a file's place while a
// process is scanned: more is done by a file that never stays what it is.
const maxTurns = 16

// errTooManyOpen means that the descriptors would run out if another file with
// wanted probes was opened.
var errTooManyOpen = errors.New("too many files with wanted probes are open")

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
func (c *cache) isUnwanted(m *request, q question) (known bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	why, known := c.unwanted.find(q)
	if why != nil {
		return true, m.Wrap(opReadProbes, why)
	}
	return known, nil
}

// A question is whether a file has wanted probes.
type question struct {
	file procfs.FileID
	procfs.Contents
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
	devices map[uint64]chan struct{} // closed when the last file of each is
}

// close closes a file on a device. It returns when that is done, or when it
// takes too long, or at once if another file is to be closed before it.
func (c *closing) close(device uint64, closeFile func()) {
	c.mu.Lock()
	if c.devices == nil {
		c.devices = make(map[uint64]chan struct{})
	}
	before, closed := c.devices[device], make(chan struct{})
	c.devices[device] = closed
	c.mu.Unlock()
	inTurn := func() {
		if before != nil {
			<-before
		}
		closeFile()
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.devices[device] == closed {
			delete(c.devices, device)
		}
		close(closed)
	}
	if before != nil {
		go inTurn()
		return
	}
	deadline.One(context.Background(), deadline.File, inTurn, nil)
}

// CachedFile is a file with wanted probes, held open. All callers that have
// acquired it share it. Several goroutines may use it at once, until it is
// released.
type CachedFile struct {
	cache *cache
	id    procfs.FileID

	// The lock of the cache guards the next two fields.
	references int
	contents   procfs.Contents // as of which elf was read
	// others are files with the same data, and the contents of both, theirs
	// first, when that was found.
	others map[procfs.FileID][2]procfs.Contents

	// opening is held while the file is opened and read, so that only one does.
	opening sync.Mutex
	elf     *elfnote.File // nil while not open
	owner   string        // of the process for which it was opened
	notes   notes
}

// errWrittenTo means that a file has other sites than when it was acquired, or
// that another one has its data.
var errWrittenTo = errors.New("file was written to")

// ID identifies the file.
func (f *CachedFile) ID() procfs.FileID { return f.id }

// HasSameSites reports whether two files with the same ID, of the same cache,
// have the same sites. A file that is written to while processes map it is
// another CachedFile for the processes that are scanned after that, and may
// have other sites.
func (f *CachedFile) HasSameSites(other *CachedFile) bool {
	return f.notes.fingerprint == other.notes.fingerprint
}

// IsMiscounted reports whether the kernel would count a semaphore of a wanted
// probe wrongly in processes that have not started yet.
func (f *CachedFile) IsMiscounted() bool { return f.notes.miscounted }

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
	for id := range f.others {
		delete(c.files, id)
	}
	if c.files[f.id] == f { // else it was held once more after it had been closed
		delete(c.files, f.id)
	}
	elf := f.elf
	f.others = nil
	c.kept -= f.notes.bytes
	f.elf, f.notes.sites, f.notes.bytes = nil, nil, 0
	c.mu.Unlock()
	if elf != nil {
		c.closing.close(f.id.Device, func() { c.closeFile(elffile.OSFile(elf), f.owner) })
	}
}

// closeFile closes a file. It counts as open until then: if its file system
// holds that up, it still has its descriptor.
func (c *cache) closeFile(file *os.File, owner string) {
	_ = file.Close() // it was only read
	c.giveDescriptor(owner)
}

// opReadProbes is the Op of errors about the contents of a file. They are the
// same for all processes that map it.
const opReadProbes = "read probes"

// prepare opens the file if it has wanted probes. If it is open, its sites are
// read again if it was written to, or touched, since that was done last. The
// caller holds a reference.
func (f *CachedFile) prepare(m *request, q question) (ok bool, err error) {
	c := f.cache
	f.opening.Lock()
	defer f.opening.Unlock()
	if isAnothers, err := f.isStillListed(q); err != nil || isAnothers {
		return err == nil, err
	}
	if f.elf != nil {
		if f.isCurrent(q.Contents) {
			return true, nil
		}
		if same, err := f.readAgain(q.Contents); err != nil {
			return false, m.Wrap(opReadProbes, err)
		} else if same {
			return true, nil
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.files[f.id] == f {
			delete(c.files, f.id)
		}
		return false, errWrittenTo
	}
	if known, err := c.isUnwanted(m, q); known {
		return false, err // another caller has found it out meanwhile
	}
	if err := c.takeDescriptor(m.owner); err != nil {
		return false, m.Wrap("open", err)
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
	is, failed := procfs.IdentifyFile(file)
	m.written = m.written || failed == nil && is.Contents != q.Contents
	c.mu.Lock()
	switch m.searched = err == nil; {
	case err != nil:
		err = m.Wrap(opReadProbes, err)
	case notes.matches:
		f.elf, f.owner, f.notes, f.contents = elf, m.owner, notes, q.Contents
		c.kept += notes.bytes
	case !m.written:
		c.unwanted.put(q, notes.err)
		if notes.err != nil {
			err = m.Wrap(opReadProbes, notes.err)
		}
	}
	c.mu.Unlock()
	if err == nil && notes.matches && c.join(f, q) {
		return false, errWrittenTo
	}
	if !notes.matches {
		// Closing can block this goroutine, as opening could. To have another
		// one close the file would take longer than to read it.
		c.closeFile(file, m.owner)
	}
	return notes.matches, err
}

// join reports whether another file has the inode of one that was just opened,
// and takes its place: attached to both, each hit would count twice.
func (c *cache) join(f *CachedFile, q question) bool {
	var likely []*CachedFile
	var files []*os.File
	c.mu.Lock()
	for id, other := range c.files {
		if other.elf != nil && other.id == id && other != f && other.contents.Size == q.Size &&
			(f.id.Overlay || other.id.Overlay) && len(likely) < maxLikely {
			other.references++
			likely, files = append(likely, other), append(files, elffile.OSFile(other.elf))
		}
	}
	c.mu.Unlock()
	if len(likely) == 0 {
		return false
	}
	f.Hold()
	file := elffile.OSFile(f.elf)
	release := func() {
		for _, other := range append(likely, f) {
			other.Release()
		}
	}
	var same *CachedFile
	var is procfs.Identity
	answered := deadline.One(context.Background(), deadline.Inode, func() {
		if n := sameInode(file, files); n >= 0 {
			// What was copied up since is attached where its data was then.
			id, err := procfs.IdentifyFile(files[n])
			if err == nil && likely[n].isCurrent(id.Contents) && id.MayBe(likely[n].id) {
				same, is = likely[n], id
			}
		}
	}, release)
	if !answered {
		return false // another user's file does not let it be asked about
	}
	defer release()
	if same == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	// Not if the other one has found this one meanwhile.
	if c.files[same.id] != same || c.files[f.id] != f || len(f.others) > 0 {
		return false
	}
	if same.others == nil {
		same.others = make(map[procfs.FileID][2]procfs.Contents)
	}
	same.others[f.id], c.files[f.id] = [2]procfs.Contents{q.Contents, is.Contents}, same
	return true
}

// isStillListed returns errWrittenTo if the cache has another file now. It
// reports whether the question is about another file that still has the same
// data: one of them may have been copied up, or written to, since.
func (f *CachedFile) isStillListed(q question) (isAnothers bool, err error) {
	isAnothers = q.file != f.id
	var is procfs.Identity
	if isAnothers {
		if is, err = procfs.IdentifyFile(elffile.OSFile(f.elf)); err != nil {
			return true, err
		}
	}
	c := f.cache
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.files[q.file] != f {
		return isAnothers, errWrittenTo
	}
	if isAnothers && f.others[q.file] != [2]procfs.Contents{q.Contents, is.Contents} {
		delete(c.files, q.file)
		delete(f.others, q.file)
		return true, errWrittenTo
	}
	return isAnothers, nil
}

// readAgain reports whether the file still has the sites that were read first.
func (f *CachedFile) readAgain(is procfs.Contents) (same bool, err error) {
	_, again, err := f.cache.read(elffile.OSFile(f.elf), 0)
	if err != nil || again.err != nil || again.fingerprint != f.notes.fingerprint {
		return false, err
	}
	f.cache.mu.Lock()
	defer f.cache.mu.Unlock()
	f.contents = is
	return true, nil
}

// Verify returns an error that wraps [procfs.ErrChanged] if the file does not
// have the sites any more that were read. The caller holds the file, and keeps
// it from being written to.
func (f *CachedFile) Verify() error {
	is, err := procfs.IdentifyFile(elffile.OSFile(f.elf))
	if err != nil || f.isCurrent(is.Contents) {
		return err
	}
	if same, err := f.readAgain(is.Contents); err != nil || same {
		return err
	}
	return procfs.ErrChanged
}

// isCurrent reports whether the file has not been written to, nor touched,
// since it was read.
func (f *CachedFile) isCurrent(is procfs.Contents) bool {
	f.cache.mu.Lock()
	defer f.cache.mu.Unlock()
	return f.contents == is
}

// isOnlyAndCurrent is isCurrent of a file whose data no other one shares.
func (f *CachedFile) isOnlyAndCurrent(is procfs.Contents) bool {
	f.cache.mu.Lock()
	defer f.cache.mu.Unlock()
	return f.contents == is && len(f.others) == 0
}

// notes are what one walk over the notes of a file has found. Whether a file
// has wanted probes, the selection of its sites, and its pairs come from it.
type notes struct {
	matches     bool           // there is a wanted probe
	fingerprint uint64         // of all that matters for attaching
	miscounted  bool           // a wanted probe has a SemaphoreMiscounted
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
		n.miscounted = n.miscounted || site.SemaphoreMiscounted-1 < uint64(os.Getpagesize()) &&
			pattern.MatchAny(c.patterns, site.Provider, site.Name)
		n.bytes += int(unsafe.Sizeof(site)) + len(site.Provider) + len(site.Name) +
			len(site.Arguments)
		if n.bytes <= room {
			n.sites = append(n.sites, site)
		}
		if n.matches || usable && site.Name == last.Name && site.Provider == last.Provider {
			continue
		}
		last, usable = site, true
		n.matches = pattern.MatchAny(c.patterns, site.Provider, site.Name)
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
