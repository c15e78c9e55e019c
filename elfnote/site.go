// SPDX-License-Identifier: BSD-2-Clause

package elfnote

import "iter"

// Site is a place in the code at which a probe was compiled in. A probe has as
// many sites as the compiler made copies of it.
//
// The strings are arbitrary bytes without NUL. They share memory with those of
// other sites: a string that is kept keeps 8 KiB of them, or as much as the
// strings of one site need. A copy made by strings.Clone does not.
type Site struct {
	Provider, Name string
	// Arguments says where the arguments are, in the syntax of the file's
	// machine. Package argspec decodes it.
	Arguments string
	// Location is the virtual address of the site, as linked (and prelinked).
	Location uint64
	// Offset is the place of Location in the file, at which a uprobe is set. It
	// is 0 in a DebugFile and a Relocatable, to which nothing can be attached.
	Offset uint64
	// Base is the address of the section .stapsdt.base when the file was
	// linked, as the note has it, or 0. Location and Semaphore are already
	// adjusted by it.
	Base uint64
	// Semaphore is the virtual address of a 16-bit counter, or 0 if there is
	// none. A tracer increments it, so the program knows that the probe is
	// in use. It belongs to this site: other sites of the probe may have
	// others, or none.
	Semaphore uint64
	// SemaphoreOffset is the place of Semaphore in the file, by which the
	// kernel identifies it, or 0 if there is none. It is 0 in a DebugFile and a
	// Relocatable.
	SemaphoreOffset uint64
}

// Sites returns the sites of all probes in the order of their notes. Of notes
// that are identical in everything only the first one counts, except in a
// Relocatable, where sites in different sections may have the same location.
//
// A note that is malformed yields a zero Site and a [*NoteError], and the
// iteration goes on. Any other error is the last thing yielded: it says which
// note section could not be read, and wraps ErrMalformed, ErrTooLarge or an
// error of the reader.
//
// Locations and semaphores are adjusted if prelink moved the file. Those of a
// Relocatable are what its relocations say. A location must be in the part of
// an executable segment that comes from the file, and a semaphore in that of a
// writable segment. Neither is checked, and no offset is known, in a DebugFile
// and a Relocatable.
//
// Each iteration reads the notes anew, so the file must be open. It holds some
// 64 KiB of them at a time. Memory is allocated for the strings, in pieces; if
// there are many sites, most equal strings share memory.
func (f *File) Sites() iter.Seq2[Site, error] {
	return func(yield func(Site, error) bool) {
		walk := f.walkProbes()
		var known duplicates
		// This is small enough for the compiler to inline it where it is looped
		// over, with the loop's body: without that it takes a fifth longer. No
		// other function gets a pointer to the site: so it is on the stack, and
		// its strings need no write barriers.
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
				} else {
					site.Offset, site.SemaphoreOffset, err = f.offsets(site.Location,
						site.Semaphore)
				}
			}
			switch {
			case err != nil:
				site, err = Site{}, walk.malformed(err)
			case f.kind != Relocatable && known.add(&walk):
				continue
			case walk.shared != nil:
				walk.shared.give(&walk, &site)
			default:
				all := walk.copyStrings(site.Provider, site.Name)
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
