// SPDX-License-Identifier: BSD-2-Clause

package proc

import (
	"cmp"
	"encoding/binary"
	"errors"
	"hash/maphash"
	"slices"
	"time"
)

// compare reads the mappings if they are not those known, or if that is not to
// be relied on.
func (w *Watcher) compare(t *task, reader int, s *stat, thoroughly bool, b *buffers) {
	f := &t.found
	f.details = &details{}
	now := f.now
	if !thoroughly {
		fingerprint, err := w.fingerprint(reader, b)
		if err == nil && fingerprint == now.fingerprint {
			return
		}
		// An error will come again when the mappings are read.
	}
	f.details.read = true
	hash := w.newHash()
	files, err := w.fs.files(t.pid, reader, &b.lines, hash.add)
	switch {
	case errors.Is(err, ErrGone):
		f.pairs = nil
		return
	case isLack(err):
		f.now, f.lack = t.known, err
		return
	case err != nil && !errors.Is(err, errMalformed):
		f.deny(now, err)
		return
	}
	now.denied, now.retry = false, false
	now.fingerprint = hash.Sum64()
	now.minorFaults, now.majorFaults = s.minorFaults, s.majorFaults

	failures := now.failures
	now.failures = nil
	if err != nil {
		f.fail(failures, "", err)
	}
	found := newFoundPairs(f.pairs)
	began, news := time.Now(), false
	for _, m := range files {
		if t.inTurns && news && time.Since(began) >= scanTurn {
			f.details.partial = true
			if pair := found.unidentified(m); pair != nil && len(found.pairs) < maxPairs {
				found.at[pair.found.FileID] = len(found.pairs)
				found.pairs = append(found.pairs, pair)
			}
			continue
		}
		pair, err := w.pair(f, m, found)
		news = news || m.searched
		if err != nil {
			now.retry = now.retry || passing(err)
			if pair = found.unidentified(m); pair == nil && !errors.Is(err, ErrGone) {
				f.failFile(failures, m, err)
			}
		}
		if pair == nil {
			continue
		}
		if len(found.pairs) == maxPairs {
			f.fail(failures, m.rawPath, m.wrap("watch", errTooManyFiles))
			continue
		}
		found.at[pair.found.FileID] = len(found.pairs)
		found.pairs = append(found.pairs, pair)
	}
	found.finish()
	f.pairs = found.pairs
}

// foundPairs are the pairs of a process that have been found so far.
type foundPairs struct {
	old    []*ProcessFile // that it had before
	before map[FileID]*ProcessFile
	pairs  []*ProcessFile
	at     map[FileID]int // where in pairs
	merged map[int]bool   // those of several paths
}

func newFoundPairs(old []*ProcessFile) *foundPairs {
	found := &foundPairs{
		old:    old,
		before: make(map[FileID]*ProcessFile),
		at:     make(map[FileID]int),
		merged: make(map[int]bool),
	}
	for _, pair := range old {
		found.before[pair.found.FileID] = pair
	}
	return found
}

// pair returns the pair of a file, the one there is if it has not changed, and
// nil if the file has no wanted probes or is among the pairs found already.
func (w *Watcher) pair(f *finding, m *MappedFile, found *foundPairs) (*ProcessFile, error) {
	id, err := m.identify()
	if err != nil {
		return nil, err
	}
	if i, ok := found.at[id.FileID]; ok {
		found.merge(i, m)
		return nil, nil
	}
	pair := &ProcessFile{Process: f.now.process, MappedFile: m}
	if old := found.before[id.FileID]; old != nil && old.File.isCurrent(id.contents) {
		pair.File = old.File
		return pair, nil
	}
	file, ok, err := w.cache.acquire(m, w.wanted)
	if err != nil || !ok {
		return nil, err
	}
	// Two mounts of overlayfs may have the same file.
	if i := slices.IndexFunc(found.pairs,
		func(other *ProcessFile) bool { return other.File == file }); i >= 0 {
		file.Release()
		found.at[id.FileID] = i
		found.merge(i, m)
		return nil, nil
	}
	f.details.acquired = append(f.details.acquired, file)
	pair.File = file
	return pair, nil
}

// merge adds the mappings of one file by another path: a hard link, or another
// mount of its file system.
func (found *foundPairs) merge(i int, m *MappedFile) {
	if !found.merged[i] {
		found.merged[i] = true
		pair := *found.pairs[i]
		file := *pair.MappedFile
		file.Mappings = slices.Clone(file.Mappings)
		pair.MappedFile = &file
		found.pairs[i] = &pair
	}
	into := found.pairs[i].MappedFile
	into.Mappings = append(into.Mappings, m.Mappings...)
}

// finish sorts what has been merged.
func (found *foundPairs) finish() {
	for i := range found.merged {
		slices.SortFunc(found.pairs[i].Mappings,
			func(a, b Mapping) int { return cmp.Compare(a.Start, b.Start) })
	}
}

// unidentified returns the pair, if there is one, of a file that cannot be
// identified now: what is mapped at the same addresses by the same path is
// still the same.
func (found *foundPairs) unidentified(m *MappedFile) *ProcessFile {
	i := slices.IndexFunc(found.old, func(pair *ProcessFile) bool {
		return pair.Path == m.Path && slices.Equal(pair.Mappings, m.Mappings)
	})
	if i < 0 {
		return nil
	}
	if _, ok := found.at[found.old[i].found.FileID]; ok {
		return nil
	}
	return found.old[i]
}

// count adds to the number of pairs of a file.
func (w *Watcher) count(file *CachedFile, more int) {
	if _, ok := w.scan.before[file]; !ok {
		w.scan.before[file] = w.files[file]
		w.scan.touched = append(w.scan.touched, file)
	}
	w.files[file] += more
}

// setPairs makes these the pairs of the process and notes what changed. A pair
// of a file that the process had before is the same in all but where it is. A
// new pair takes over one of the files that were acquired for it: the others
// are to be released.
func (w *Watcher) setPairs(p *watched, pairs []*ProcessFile, acquired []*CachedFile) {
	same := len(pairs) == len(p.pairs) && (len(pairs) == 0 || &pairs[0] == &p.pairs[0])
	if same && len(acquired) == 0 {
		return // as for most processes
	}
	c := &w.scan.changes
	pairs = slices.Clone(pairs)
	before := make(map[*CachedFile]*ProcessFile, len(p.pairs))
	for _, old := range p.pairs {
		before[old.File] = old
	}
	now := make(map[*CachedFile]bool, len(pairs))
	for i, pair := range pairs {
		now[pair.File] = true
		old := before[pair.File]
		switch {
		case old == nil:
			w.count(pair.File, +1)
			c.Appeared = append(c.Appeared, pair)
		case old.equals(pair):
			pairs[i] = old
		default:
			c.Moved = append(c.Moved, pair)
		}
	}
	for _, old := range p.pairs {
		if !now[old.File] {
			w.count(old.File, -1)
			c.Disappeared = append(c.Disappeared, old)
		}
	}
	for _, file := range acquired {
		if before[file] != nil || !now[file] {
			w.scan.spare = append(w.scan.spare, file)
		}
	}
	p.pairs = pairs
}

// newHash starts a fingerprint of mappings.
func (w *Watcher) newHash() *mapHash {
	h := new(mapHash)
	h.SetSeed(w.seed)
	return h
}

// mapHash is a fingerprint of the executable mappings of a process.
type mapHash struct{ maphash.Hash }

func (h *mapHash) add(l *mapLine) {
	var b [40]byte
	binary.NativeEndian.PutUint64(b[0:], l.start)
	binary.NativeEndian.PutUint64(b[8:], l.end)
	binary.NativeEndian.PutUint64(b[16:], l.offset)
	binary.NativeEndian.PutUint64(b[24:], l.inode)
	binary.NativeEndian.PutUint32(b[32:], l.major)
	binary.NativeEndian.PutUint32(b[36:], l.minor)
	h.Write(b[:])
}

// fingerprint reads the mappings only so far that they can be compared.
func (w *Watcher) fingerprint(reader int, b *buffers) (uint64, error) {
	if !w.noQuery.Load() {
		hash := w.newHash()
		err := w.fs.queryMaps(reader, hash.add)
		if err == nil {
			return hash.Sum64(), nil
		}
		if !errors.Is(err, errNoQuery) {
			return 0, err
		}
		w.noQuery.Store(true)
	}
	hash := w.newHash()
	err := w.fs.readMaps(reader, &b.lines, hash.add)
	return hash.Sum64(), err
}
