// SPDX-License-Identifier: BSD-2-Clause

package proc

import (
	"encoding/binary"
	"errors"
	"hash/maphash"
	"slices"
)

// compare reads the mappings if they are not those known, or if that is not to
// be relied on.
func (w *Watcher) compare(p *watched, reader int, s *stat, thoroughly bool) {
	w.compared++
	if !thoroughly {
		fingerprint, err := w.fingerprint(reader)
		if err == nil && fingerprint == p.fingerprint {
			return
		}
		// An error will come again when the mappings are read.
	}
	w.read++
	hash := w.newHash()
	files, err := w.fs.files(p.process.PID, reader, &w.lines, hash.add)
	switch {
	case errors.Is(err, ErrGone):
		w.setPairs(p, nil)
		return
	case err != nil && !errors.Is(err, errMalformed):
		w.deny(p, err)
		return
	}
	p.denied, p.retry = false, false
	p.fingerprint = hash.Sum64()
	p.minorFaults, p.majorFaults = s.minorFaults, s.majorFaults

	failures := p.failures
	p.failures = nil
	if err != nil {
		w.fail(p, failures, "", err)
	}
	var pairs []*Pair
	for _, m := range files {
		pair, err := w.pair(p, m, pairs)
		if err != nil {
			p.retry = p.retry || passing(err)
			if pair = p.pairOf(m); pair == nil && !errors.Is(err, ErrGone) {
				w.failFile(p, failures, m, err)
			}
		}
		if pair == nil {
			continue
		}
		if len(pairs) == maxPairs {
			w.fail(p, failures, m.rawPath, m.wrap("watch", errTooManyFiles))
			if !slices.ContainsFunc(p.pairs, pair.isOfSameFile) {
				pair.File.Release()
			}
			continue
		}
		pairs = append(pairs, pair)
	}
	w.setPairs(p, pairs)
}

// pair returns the pair of a file, the one there is if it has not changed, and
// nil if the file has no wanted probes or is among the pairs found already.
func (w *Watcher) pair(p *watched, m *MappedFile, found []*Pair) (*Pair, error) {
	id, err := m.ID()
	if err != nil {
		return nil, err
	}
	same := func(pair *Pair) bool { return pair.File.id == id }
	if i := slices.IndexFunc(found, same); i >= 0 {
		// One file by two paths: a hard link, or two mounts of its file system.
		merged := *found[i].MappedFile
		merged.Mappings = slices.Concat(merged.Mappings, m.Mappings)
		slices.SortFunc(merged.Mappings, func(a, b Mapping) int {
			if a.Start < b.Start {
				return -1
			}
			return 1
		})
		found[i] = &Pair{Process: p.process, File: found[i].File, MappedFile: &merged}
		return nil, nil
	}
	pair := &Pair{Process: p.process, MappedFile: m}
	if i := slices.IndexFunc(p.pairs, same); i >= 0 {
		pair.File = p.pairs[i].File
		return pair, nil
	}
	file, ok, err := w.cache.acquire(m, w.wanted)
	if err != nil || !ok {
		return nil, err
	}
	pair.File = file
	return pair, nil
}

// pairOf returns the pair, if there is one, of a file that cannot be identified
// now: what is mapped at the same addresses by the same path is still the same.
func (p *watched) pairOf(m *MappedFile) *Pair {
	i := slices.IndexFunc(p.pairs, func(pair *Pair) bool {
		return pair.Path == m.Path && slices.Equal(pair.Mappings, m.Mappings)
	})
	if i < 0 {
		return nil
	}
	return p.pairs[i]
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
// of a file that the process had before is the same in all but where it is.
func (w *Watcher) setPairs(p *watched, pairs []*Pair) {
	c := &w.scan.changes
	for i, pair := range pairs {
		j := slices.IndexFunc(p.pairs, pair.isOfSameFile)
		if j < 0 {
			w.count(pair.File, +1)
			c.Appeared = append(c.Appeared, pair)
			continue
		}
		old := p.pairs[j]
		if old.equals(pair) {
			pairs[i] = old
			continue
		}
		c.Moved = append(c.Moved, pair)
	}
	for _, old := range p.pairs {
		if !slices.ContainsFunc(pairs, old.isOfSameFile) {
			w.count(old.File, -1)
			c.Disappeared = append(c.Disappeared, old)
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
func (w *Watcher) fingerprint(reader int) (uint64, error) {
	if !w.noQuery {
		hash := w.newHash()
		err := w.fs.queryMaps(reader, hash.add)
		if err == nil {
			return hash.Sum64(), nil
		}
		if !errors.Is(err, errNoQuery) {
			return 0, err
		}
		w.noQuery = true
	}
	hash := w.newHash()
	err := w.fs.readMaps(reader, &w.lines, hash.add)
	return hash.Sum64(), err
}
