// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package main

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"

	"github.com/gousdt/gousdt/bench/internal/compare"
	"github.com/gousdt/gousdt/elfnote"
)

const withoutStrings = "sites without strings"

// stringless does the least that a listing in Go needs: it opens a file, reads
// what has to be read, and gives a loop a site for each note, of which it does
// not look for the strings. Where everything is it knows before, and it reads
// into memory that it has.
type stringless struct {
	path                   string
	header, sections, text []byte // read into; text is for the notes
	sectionsAt, textAt     int64
}

// newStringless finds out where everything is.
func newStringless(path string) (*stringless, error) {
	f, err := elf.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	notes := f.Section(".note.stapsdt")
	names := f.Section(".shstrtab")
	if notes == nil || names == nil || f.Class != elf.ELFCLASS64 {
		return nil, fmt.Errorf("%s: not a 64-bit file with notes", path)
	}
	return &stringless{
		path:   path,
		header: make([]byte, 64+len(f.Progs)*56), sections: make([]byte,
			len(f.Sections)*64+int(names.Size)), text: make([]byte, notes.Size),
		sectionsAt: int64(names.Offset), textAt: int64(notes.Offset),
	}, nil
}

func (s *stringless) list() error {
	file, err := os.Open(s.path)
	if err != nil {
		return err
	}
	defer file.Close()
	for _, r := range []struct {
		into []byte
		at   int64
	}{{s.header, 0}, {s.sections, s.sectionsAt}, {s.text, s.textAt}} {
		if _, err := file.ReadAt(r.into, r.at); err != nil {
			return err
		}
	}
	sites := 0
	for range s.sites {
		sites++
	}
	if sites == 0 {
		return fmt.Errorf("%s: no sites", s.path)
	}
	return nil
}

// sites gives the loop what it needs no strings for.
func (s *stringless) sites(yield func(elfnote.Site, error) bool) {
	const header, owner, addresses = 12, 8, 24
	order := binary.NativeEndian
	var site elfnote.Site
	for notes := s.text; len(notes) >= header+owner+addresses; {
		b := (*[header + owner + addresses]byte)(notes)
		if order.Uint32(b[0:]) != owner {
			return
		}
		site.Location, site.Base, site.Semaphore = order.Uint64(b[20:]), order.Uint64(b[28:]),
			order.Uint64(b[36:])
		if !yield(site, nil) {
			return
		}
		notes = notes[min(uint64(len(notes)), header+owner+(uint64(order.Uint32(b[4:]))+3)&^3):]
	}
}

// stringlessLister returns the contestant.
func stringlessLister(path string) compare.Contestant {
	s, err := newStringless(path)
	if err != nil {
		return missing(withoutStrings, err)
	}
	return compare.Contestant{Name: withoutStrings, Measure: repeated(s.list)}
}
