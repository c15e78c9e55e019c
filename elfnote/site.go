// SPDX-License-Identifier: BSD-2-Clause

package elfnote

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
)

// Site is a place in the code at which a probe was compiled in. A probe has as
// many sites as the compiler made copies of it.
//
// The strings are arbitrary bytes without NUL. They share one buffer with all
// other strings of the file's notes: a string kept for long keeps that buffer,
// a copy made by strings.Clone does not.
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
// Relocatable, where locations do not tell sites apart yet.
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
// known, in a DebugFile and a Relocatable.
//
// The notes are read from the file by the first call. Iterating allocates
// nothing per site.
func (f *File) Sites() iter.Seq2[Site, error] {
	return func(yield func(Site, error) bool) {
		n := f.loadNotes()
		walk := n.walk(f.words)
		known := duplicates{first: walk}
		var site Site
		for {
			ok, err := walk.step()
			if !ok {
				break
			}
			end := 0
			if err == nil {
				if !walk.is(probeOwner, probeType) {
					continue
				}
				end, err = f.site(&site, n, walk.start, walk.stop)
			}
			if err != nil {
				if !yield(Site{}, n.broken(&walk, err)) {
					return
				}
				continue
			}
			if f.kind != Relocatable && known.add(site.Location, walk.start, end) {
				continue
			}
			if !yield(site, nil) {
				return
			}
		}
		if n.err != nil {
			yield(Site{}, n.err)
		}
	}
}

// site reads the descriptor between start and stop into s, which holds the site
// before, and returns where the last of its strings ends.
func (f *File) site(s *Site, n *notes, start, stop int) (end int, err error) {
	w := f.words
	at := start + 3*w.size()
	if at+3 > stop {
		return 0, ErrNoteTooShort
	}
	// Searching on past the descriptor's end costs nothing, and spares IndexByte
	// its slower ways for short slices. Where one NUL is not found, the next is
	// not either.
	data := n.data[:min(stop+32, len(n.data))]
	provider := at
	// Nearly always the provider is that of the site before.
	name := provider + len(s.Provider) + 1
	if name > stop || data[name-1] != 0 || n.text[provider:name-1] != s.Provider {
		name = provider + bytes.IndexByte(data[provider:], 0) + 1
	}
	arguments := name + bytes.IndexByte(data[name:], 0) + 1
	end = arguments + bytes.IndexByte(data[arguments:], 0) + 1
	if end == arguments || end > stop {
		return 0, ErrNoteUnterminated
	}
	s.Provider = n.text[provider : name-1]
	s.Name = n.text[name : arguments-1]
	s.Arguments = n.text[arguments : end-1]

	var location, base, semaphore uint64
	if d := data[start:]; w.wide {
		location, base, semaphore = w.uint64(d), w.uint64(d[8:]), w.uint64(d[16:])
	} else {
		location, base, semaphore = uint64(w.uint32(d)), uint64(w.uint32(d[4:])), uint64(w.uint32(d[8:]))
	}
	if f.hasBase && base != 0 {
		location = w.moved(location, f.base-base)
		if semaphore != 0 {
			semaphore = w.moved(semaphore, f.base-base)
		}
	}
	s.Location, s.Base, s.Semaphore = location, base, semaphore
	if f.kind == DebugFile || f.kind == Relocatable {
		return end, nil
	}
	s.Offset, s.SemaphoreOffset, err = f.place(location, semaphore)
	return end, err
}

// broken describes the current note, which cannot be used.
func (n *notes) broken(walk *noteWalk, err error) *NoteError {
	e := &NoteError{Index: walk.index, Err: err}
	if errors.Is(err, ErrNoteSize) {
		return e // there is no descriptor
	}
	descriptor := n.text[walk.start:walk.stop]
	if addresses := 3 * walk.words.size(); len(descriptor) > addresses {
		if provider, rest, ok := strings.Cut(descriptor[addresses:], "\x00"); ok {
			e.Provider = provider
			if name, _, ok := strings.Cut(rest, "\x00"); ok {
				e.Name = name
			}
		}
	}
	return e
}

// place returns the file offsets of a location and a semaphore.
func (f *File) place(location, semaphore uint64) (offset, semaphoreOffset uint64, err error) {
	code := f.segment(location, 1, elf.PF_X)
	if code == nil {
		return 0, 0, &addressError{location, ErrLocation}
	}
	offset = location - code.Address + code.Offset
	if offset == 0 {
		// The file header is not code, and 0 would say that there is no offset.
		return 0, 0, &addressError{location, ErrLocation}
	}
	if semaphore == 0 {
		return offset, 0, nil
	}
	data := f.segment(semaphore, semaphoreSize, elf.PF_W)
	if data == nil {
		for i := range f.segments {
			if g := &f.segments[i]; g.Flags&elf.PF_W != 0 && g.inMemory(semaphore, semaphoreSize) {
				return 0, 0, &addressError{semaphore, ErrSemaphoreInBSS}
			}
		}
		return 0, 0, &addressError{semaphore, ErrSemaphore}
	}
	semaphoreOffset = semaphore - data.Address + data.Offset
	if semaphoreOffset%semaphoreSize != 0 {
		return 0, 0, &addressError{semaphore, ErrSemaphoreUnaligned}
	}
	if semaphoreOffset == 0 {
		return 0, 0, &addressError{semaphore, ErrSemaphore}
	}
	return offset, semaphoreOffset, nil
}

// SiteBytes reads the machine code at a site into buf and returns the number of
// bytes read: fewer than len(buf) where the segment's file part or the file ends
// before, without an error. It fails with ErrNotMapped where no executable
// segment has the site, with ErrNoCode for a DebugFile or a Relocatable, with
// ErrTruncated where the file has no byte at all there, or with an error of the
// reader.
func (f *File) SiteBytes(s Site, buf []byte) (int, error) {
	if f.kind == DebugFile || f.kind == Relocatable {
		return 0, fmt.Errorf("code at %#x: %w", s.Location, ErrNoCode)
	}
	code := f.segment(s.Location, 1, elf.PF_X)
	if code == nil {
		return 0, fmt.Errorf("code at %#x: %w", s.Location, ErrNotMapped)
	}
	skip := s.Location - code.Address
	buf = buf[:min(uint64(len(buf)), code.FileSize-skip)]
	offset := int64(skip + code.Offset)
	if offset < 0 {
		return 0, fmt.Errorf("code at %#x: %w", s.Location, ErrTruncated)
	}
	n, err := f.reader.ReadAt(buf, offset)
	switch {
	case n > 0 || len(buf) == 0:
		return n, nil
	case err == nil || errors.Is(err, io.EOF):
		err = ErrTruncated
	}
	return 0, fmt.Errorf("code at %#x: %w", s.Location, err)
}
