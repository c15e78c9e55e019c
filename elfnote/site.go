// SPDX-License-Identifier: BSD-2-Clause

package elfnote

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"

	"github.com/gousdt/gousdt/internal/elffile"
)

// Site is a place in the code at which a probe was compiled in. A probe has as
// many sites as the compiler made copies of it.
//
// The strings are arbitrary bytes without NUL. They share memory with those of
// other sites: a string kept for long keeps 8 KiB of them (or as much as one
// site's strings need), a copy made by strings.Clone does not.
type Site struct {
	Provider, Name string
	// Arguments says where the arguments are found, in the syntax of the file's
	// machine; package argspec reads it.
	Arguments string
	// Location is the virtual address of the site, as linked (and prelinked).
	Location uint64
	// Offset is Location's place in the file, by which a uprobe is set. It is 0
	// in a DebugFile and a Relocatable, to which nothing can be attached.
	Offset uint64
	// Base is the link-time address of the section .stapsdt.base, as the note
	// recorded it, or 0. Location and Semaphore are already adjusted by it.
	Base uint64
	// Semaphore is the virtual address of a 16-bit counter that a tracer
	// increments to tell the program that the probe is in use; 0 is none. It
	// belongs to this site: others of the probe may have others, or none.
	Semaphore uint64
	// SemaphoreOffset is Semaphore's place in the file, where the kernel wants
	// it; 0 is none, and it is 0 in a DebugFile and a Relocatable.
	SemaphoreOffset uint64
}

// semaphoreSize is the size of a semaphore in bytes.
const semaphoreSize = 2

// Sites returns the sites of all probes in the order of their notes, each one
// once: of notes that are identical in everything the first counts, except in a
// Relocatable, where sites in different sections may have the same location.
//
// A note that cannot be used yields a zero Site and a *NoteError, and the
// iteration goes on. Any other error is the last thing yielded: it says which
// note section could not be read, and wraps ErrTruncated, ErrTooLarge,
// ErrCompressed or an error of the reader.
//
// Locations and semaphores are adjusted where prelink moved the file, which is
// known by the section .stapsdt.base being at another address than the note
// says. A location must be in an executable segment and a semaphore in a
// writable one, in its file part; nothing of that is checked, and no offset is
// known, in a DebugFile and a Relocatable. In a Relocatable they are what its
// relocations say.
//
// Each iteration reads the notes anew, so the file must be open: it holds some
// 64 KiB of them at a time, and allocates what the strings need, in pieces.
// Where there are many sites, most equal strings are allocated once.
func (f *File) Sites() iter.Seq2[Site, error] {
	return func(yield func(Site, error) bool) {
		walk := f.walkProbes()
		var known duplicates
		var room []byte // for strings, which share it
		// No other function gets a pointer to the site: so it is on the stack,
		// and its strings need no write barriers.
		var site Site
		for {
			ok, err := walk.step()
			if !ok {
				break
			}
			if err == nil {
				site.Location, site.Base, site.Semaphore = walk.location, walk.base, walk.semaphore
				site.Offset, site.SemaphoreOffset, err = f.offsets(site.Location, site.Semaphore)
			}
			switch {
			case err != nil:
				site, err = Site{}, walk.broken(err)
			case f.kind != Relocatable && known.add(&walk):
				continue
			case walk.shared != nil:
				walk.shared.give(&walk, &site)
			default:
				strings := walk.data[walk.provider:walk.stringsEnd]
				if len(room) < len(strings) {
					room = walk.roomOrSharing(len(strings), site.Provider, site.Name)
				}
				all := elffile.Text(room[:copy(room, strings)])
				room = room[len(all):]
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

// offsets returns the file offsets of a location and of a semaphore.
func (f *File) offsets(location, semaphore uint64) (code, data uint64, err error) {
	if f.kind == DebugFile || f.kind == Relocatable {
		return 0, 0, nil
	}
	// Nearly all sites are in the first executable segment.
	if skip := location - f.code.Address; skip < f.code.FileSize {
		code = skip + f.code.Offset
	} else if code, err = f.otherCodeOffset(location); err != nil {
		return 0, 0, err
	}
	if semaphore != 0 {
		data, err = f.semaphoreOffset(semaphore)
	}
	return code, data, err
}

// otherCodeOffset returns the file offset of a location.
func (f *File) otherCodeOffset(location uint64) (uint64, error) {
	code := f.elf.Segment(location, 1, elf.PF_X)
	if code == nil || location-code.Address+code.Offset == 0 {
		// The file header is not code, and 0 would say that there is no offset.
		return 0, &addressError{location, ErrLocation}
	}
	return location - code.Address + code.Offset, nil
}

// semaphoreOffset returns the file offset of a semaphore.
func (f *File) semaphoreOffset(semaphore uint64) (uint64, error) {
	data := f.elf.Segment(semaphore, semaphoreSize, elf.PF_W)
	if data == nil {
		for i := range f.elf.Segments {
			if g := &f.elf.Segments[i]; g.Flags&elf.PF_W != 0 && g.InMemory(semaphore, semaphoreSize) {
				return 0, &addressError{semaphore, ErrSemaphoreInBSS}
			}
		}
		return 0, &addressError{semaphore, ErrSemaphore}
	}
	offset := semaphore - data.Address + data.Offset
	if offset%semaphoreSize != 0 {
		return 0, &addressError{semaphore, ErrSemaphoreUnaligned}
	}
	if offset == 0 {
		return 0, &addressError{semaphore, ErrSemaphore}
	}
	return offset, nil
}

// SiteBytes reads the machine code at a site into buf and returns the number of
// bytes read: fewer than len(buf) where the segment's file part or the file
// ends before, without an error. It fails with ErrNotMapped where no executable
// segment has the site, with ErrNoCode for a DebugFile or a Relocatable, with
// ErrTruncated where the file has no byte at all there, or with an error of the
// reader.
func (f *File) SiteBytes(s Site, buf []byte) (int, error) {
	if f.kind == DebugFile || f.kind == Relocatable {
		return 0, fmt.Errorf("code at %#x: %w", s.Location, ErrNoCode)
	}
	code := f.elf.Segment(s.Location, 1, elf.PF_X)
	if code == nil {
		return 0, fmt.Errorf("code at %#x: %w", s.Location, ErrNotMapped)
	}
	skip := s.Location - code.Address
	buf = buf[:min(uint64(len(buf)), code.FileSize-skip)]
	offset := int64(skip + code.Offset)
	if offset < 0 {
		return 0, fmt.Errorf("code at %#x: %w", s.Location, ErrTruncated)
	}
	n, err := f.elf.ReadAt(buf, offset)
	switch {
	case n > 0 || len(buf) == 0:
		return n, nil
	case err == nil || errors.Is(err, io.EOF):
		err = ErrTruncated
	}
	return 0, fmt.Errorf("code at %#x: %w", s.Location, err)
}

// usualCode returns the part of the first executable segment in which a site
// has a file offset that is not 0, or an empty segment. It does not wrap
// around.
func usualCode(segments []Segment) Segment {
	i := slices.IndexFunc(segments, func(s Segment) bool { return s.Flags&elf.PF_X != 0 })
	if i < 0 {
		return Segment{}
	}
	s := segments[i]
	if s.FileSize == 0 || s.Address+s.FileSize < s.Address {
		return Segment{}
	}
	if s.Offset == 0 {
		s.Address, s.Offset, s.FileSize = s.Address+1, 1, s.FileSize-1
	}
	return s
}
