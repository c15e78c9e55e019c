// SPDX-License-Identifier: BSD-2-Clause

package elfnote

import (
	"debug/elf"
	"fmt"
	"hash/maphash"
	"iter"
	"math"
	"slices"

	"github.com/gousdt/gousdt/internal/elffile"
)

// Site is a place in the code at which a probe was compiled in. A probe has a
// site for each copy that the compiler made of it.
//
// The strings are arbitrary bytes without NUL. They share memory with those of
// other sites: keeping one string keeps 8 KiB, or as much as the strings of one
// site need. A copy made by strings.Clone does not.
type Site struct {
	Provider, Name string
	// Arguments has the places of the arguments, in the syntax of the file's
	// machine. Package argspec decodes it.
	Arguments string
	// Location is the virtual address of the site, as linked (and prelinked).
	Location uint64
	// Offset is the file offset of Location, at which a uprobe is set. It is 0
	// in a debug file and an object file, to which nothing can be attached.
	Offset uint64
	// Base is the address of the section .stapsdt.base when the file was
	// linked, as the note has it, or 0. Location and Semaphore are already
	// adjusted by it.
	Base uint64
	// Semaphore is the virtual address of a 16-bit counter, or 0 if there is
	// none. The kernel increments it while a tracer is attached, so that the
	// program knows that the probe is in use. It belongs to this site: other
	// sites of the probe may have others, or none.
	Semaphore uint64
	// SemaphoreOffset is the file offset of Semaphore, or 0 if there is none.
	// The kernel identifies a semaphore by it (ref_ctr_offset). It is 0 in a
	// debug file and an object file.
	SemaphoreOffset uint64
	// SemaphoreMiscounted is the smallest size of pages, from 4 KiB on, with
	// which a writable segment before that of the semaphore has the same page
	// of the file, 0 if none does up to 64 KiB. lld, mold and rust-lld make
	// such files. A kernel with pages of that size or more counts in the first
	// segment, the wrong one until the process has made it read-only (RELRO) as
	// it starts: attach only after that, as package usdt does. If a process
	// never does, with pages of 4 KiB, the site is malformed.
	SemaphoreMiscounted uint64
}

// Sites returns the sites of all probes in the order of their notes. Of
// identical notes only the first one counts, except in an object file, where
// sites in different sections may have the same location.
//
// A malformed note, or one of a type that is not known, yields a zero Site and
// an error whose text names it, and the iteration goes on. Note sections that
// could not be read yield one error after all sites.
//
// Locations and semaphores are adjusted if prelink moved the file. Those of an
// object file are computed from its relocations. A location must be in the part
// of an executable segment that comes from the file, and a semaphore in that of
// a writable segment. In a debug file and an object file neither is checked,
// and offsets are not known.
//
// Each iteration reads the notes again, so the file must be open. It holds some
// 64 KiB of notes at a time, and allocates memory for the strings, in pieces.
func (f *File) Sites() iter.Seq2[Site, error] {
	return func(yield func(Site, error) bool) {
		walk := f.walkProbes()
		var known duplicates
		// This function is small enough for the compiler to inline it, and the
		// body of the caller's loop: otherwise it takes a fifth longer. No
		// other function gets a pointer to the site, so that it is on the
		// stack, and its strings need no write barriers.
		var site Site
		for {
			ok, err := walk.step()
			if !ok {
				break
			}
			if err == nil {
				site.Location, site.Base, site.Semaphore = walk.location, walk.base, walk.semaphore
				// Nearly all sites are in the first executable segment.
				if skip := site.Location - f.code.Address; skip < f.code.FileSize &&
					site.Semaphore == 0 {
					site.Offset, site.SemaphoreOffset = skip+f.code.Offset, 0
					site.SemaphoreMiscounted = 0
				} else {
					site.Offset, site.SemaphoreOffset, site.SemaphoreMiscounted, err =
						f.offsets(site.Location, site.Semaphore)
				}
			}
			switch {
			case err != nil:
				site, err = Site{}, walk.malformed(err)
			case !f.isObject() && known.add(&walk):
				continue
			default:
				all := walk.copyStrings()
				site.Provider = all[:walk.name-walk.provider-1]
				site.Name = all[walk.name-walk.provider : walk.arguments-walk.provider-1]
				site.Arguments = all[walk.arguments-walk.provider : len(all)-1]
			}
			if !yield(site, err) {
				walk.close()
				return
			}
		}
		if err := walk.close(); err != nil {
			yield(Site{}, err)
		}
	}
}

// NoteSites returns the sites as [File.Sites] does, for a program that has read
// the notes with an ELF reader of its own: a malformed note yields a zero Site
// and an error that names it, and hides no other. What can be wrong with all
// notes, such as an unknown class, yields one error.
//
// The section is the content of .note.stapsdt. It must not be compressed. Of
// the header, Class, Data and Type count. An object file (ET_REL) is refused,
// because its addresses need relocations. base is the address of .stapsdt.base,
// 0 if there is none. Of the segments, those of types PT_LOAD and PT_GNU_RELRO
// count. Without any, locations and semaphores are not checked, and have no
// offsets.
func NoteSites(
	section []byte, header elf.FileHeader, base uint64, segments []elf.ProgHeader,
) iter.Seq2[Site, error] {
	words := elffile.Words{Big: header.Data == elf.ELFDATA2MSB, Wide: header.Class == elf.ELFCLASS64}
	switch {
	case header.Type == elf.ET_REL:
		return yieldError(errObjectNotes)
	case !words.Wide && header.Class != elf.ELFCLASS32:
		return yieldError(fmt.Errorf("notes: %w: class %v", elffile.ErrMalformed, header.Class))
	case !words.Big && header.Data != elf.ELFDATA2LSB:
		return yieldError(fmt.Errorf("notes: %w: byte order %v", elffile.ErrMalformed, header.Data))
	}
	var loaded []elffile.Segment
	var readOnly elffile.Segment
	for _, s := range segments {
		segment := elffile.Segment{Address: s.Vaddr, Offset: s.Off, FileSize: s.Filesz,
			MemorySize: s.Memsz, Flags: s.Flags}
		switch {
		case s.Type == elf.PT_GNU_RELRO:
			readOnly = segment
		case s.Type == elf.PT_LOAD && s.Off+s.Filesz >= s.Off:
			loaded = append(loaded, segment)
		}
	}
	notes := elffile.NewNotes(section, words, header, base, loaded)
	notes.ReadOnly = readOnly
	f, _ := newFile(notes, nil)
	return f.Sites()
}

func yieldError(err error) iter.Seq2[Site, error] {
	return func(yield func(Site, error) bool) { yield(Site{}, err) }
}

const semaphoreSize = 2 // in bytes

func (f *File) offsets(location, semaphore uint64) (code, data, miscounted uint64, err error) {
	if f.IsDebugFile() || f.isObject() {
		return 0, 0, 0, nil
	}
	segment := f.read().Segment(location, 1, elf.PF_X)
	if segment == nil || location-segment.Address+segment.Offset == 0 {
		// The file header is not code, and 0 means that there is no offset.
		return 0, 0, 0, &addressError{location, errLocation}
	}
	if semaphore != 0 {
		data, miscounted, err = f.semaphoreOffset(semaphore)
	}
	return location - segment.Address + segment.Offset, data, miscounted, err
}

// HasWritableCode reports whether a site lies in a segment that is mapped both
// writable and executable, as by ld -N. Linux puts no uprobe into a writable
// mapping, and attaching there succeeds all the same: the probe is never seen.
func (f *File) HasWritableCode(site *Site) bool {
	if site == nil {
		return false
	}
	segment := f.read().Segment(site.Location, 1, elf.PF_X)
	return segment != nil && segment.Flags&elf.PF_W != 0
}

func (f *File) semaphoreOffset(semaphore uint64) (offset, miscounted uint64, err error) {
	segments := f.read().Segments
	in := slices.IndexFunc(segments, func(s elffile.Segment) bool {
		return s.Flags&elf.PF_W != 0 && s.InFile(semaphore, semaphoreSize)
	})
	if in < 0 {
		if slices.ContainsFunc(segments, func(s elffile.Segment) bool {
			return s.Flags&elf.PF_W != 0 && s.InMemory(semaphore, semaphoreSize)
		}) {
			return 0, 0, &addressError{semaphore, errSemaphoreInBSS}
		}
		return 0, 0, &addressError{semaphore, errSemaphore}
	}
	offset = semaphore - segments[in].Address + segments[in].Offset
	if offset%semaphoreSize != 0 {
		return 0, 0, &addressError{semaphore, errSemaphoreUnaligned}
	}
	if offset == 0 {
		return 0, 0, &addressError{semaphore, errSemaphore}
	}
	const smallest, largest = 4 << 10, 64 << 10 // pages of kernels
	for size := uint64(smallest); size <= largest && miscounted == 0; size *= 2 {
		readOnly, page := &f.read().ReadOnly, offset/size
		for _, s := range segments[:in] {
			if s.Flags&elf.PF_W == 0 || s.FileSize == 0 || page < s.Offset/size ||
				page > (s.Offset+s.FileSize-1)/size {
				continue
			}
			miscounted = size
			mapped := s.Address/size + page - s.Offset/size
			if size == smallest && (mapped < readOnly.Address/size ||
				mapped >= (readOnly.Address+readOnly.MemorySize)/size) {
				return 0, 0, &addressError{semaphore, errSemaphoreUncounted}
			}
		}
	}
	return offset, miscounted, nil
}

// usualCode returns the first executable segment, without the byte at file
// offset 0. It returns an empty segment if there is none, or if its addresses
// wrap around.
func usualCode(segments []elffile.Segment) elffile.Segment {
	i := slices.IndexFunc(segments, func(s elffile.Segment) bool { return s.Flags&elf.PF_X != 0 })
	if i < 0 {
		return elffile.Segment{}
	}
	s := segments[i]
	if s.FileSize == 0 || s.Address+s.FileSize < s.Address {
		return elffile.Segment{}
	}
	if s.Offset == 0 {
		s.Address, s.Offset, s.FileSize = s.Address+1, 1, s.FileSize-1
	}
	return s
}

// duplicates finds notes that are identical to an earlier one: link-time
// optimisation may leave several for one site.
//
// A note with a higher location than all before it is new. The notes of most
// files are in the order of the code, so that comparing locations suffices. At
// the first note out of order, those before it are read once more.
type duplicates struct {
	highest uint64 // location so far; the highest possible one once a note was out of order

	// known holds a hash of each descriptor so far, without the padding after
	// its last string. It is nil while locations rise. The seed is random, so
	// that nobody can craft different notes of the same hash.
	known map[uint64]struct{}
	seed  maphash.Seed
}

// add reports whether an identical note has come before the walk's current one.
// If not, it remembers the current one.
func (d *duplicates) add(w *probeWalk) bool {
	if w.location > d.highest {
		d.highest = w.location
		return false
	}
	return d.addUnordered(w)
}

func (d *duplicates) addUnordered(w *probeWalk) bool {
	if d.known == nil {
		d.highest = math.MaxUint64
		d.seed = maphash.MakeSeed()
		// The rest of the notes is likely to have the same sizes.
		read := max(1, w.total-w.rest())
		d.known = make(map[uint64]struct{}, uint64(w.index+1)*w.size/read)
		d.addBefore(w)
	}
	before := len(d.known)
	d.remember(w)
	return len(d.known) == before
}

// addBefore remembers the notes before the walk's current one that have all
// their strings. A note that is malformed in another way does no harm: a note
// identical to it is malformed in the same way.
func (d *duplicates) addBefore(w *probeWalk) {
	before := w.file.walkProbes()
	defer before.close()
	for {
		ok, err := before.step()
		if !ok || before.index >= w.index {
			return
		}
		if err == nil {
			d.remember(&before)
		}
	}
}

func (d *duplicates) remember(w *probeWalk) {
	d.known[maphash.Bytes(d.seed, w.data[w.descriptor:w.stringsEnd])] = struct{}{}
}
