// SPDX-License-Identifier: BSD-2-Clause

package debuginfo

import (
	"bytes"
	"cmp"
	"debug/dwarf"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/gousdt/gousdt/internal/elffile"
)

// ErrNoDWARF means that a file has no debugging information.
var ErrNoDWARF = errors.New("the program has no debugging information (compile it with -g, or install its debug file)")

// dwarfSections are the sections that describe types, followed by the further
// ones for lines.
var dwarfSections = [...]string{".debug_abbrev", ".debug_info", ".debug_str", ".debug_line_str",
	".debug_str_offsets", ".debug_addr", ".debug_line", ".debug_ranges", ".debug_rnglists"}

// typeSections is the number of sections that describe types.
const typeSections = 6

// DWARF is the debugging information of a file, in DWARF 2 to 5. Package
// debug/dwarf reads its entries. That package is not hardened against data that
// are made to cost time or memory. So sections, units, abbreviations and
// strings are checked first, and [Entries] bounds the time and does not
// recurse.
//
// Package debug/dwarf may still panic: [Contain] makes an error of that. DWARF
// is not safe for concurrent use.
type DWARF struct {
	*dwarf.Data
	Sections map[string][]byte // by name
	Order    binary.ByteOrder
	Units    []dwarf.Offset // the first entry of each unit, except type units
	Size     int            // in memory, in bytes
	Until    time.Time      // nothing is read after that time
}

// DWARFBytes returns how many bytes of sections DWARF holds at most.
func (f *File) DWARFBytes() int {
	size := uint64(0)
	for _, name := range dwarfSections {
		s := f.Section(name)
		size = min(size+unpackedSize(&s), maxDWARF)
	}
	return int(size)
}

// DWARF reads the debugging information: the sections that describe types, and
// if lines is set those for lines, too. Nothing is read after until.
//
// It fails with ErrNoDWARF, ErrTooLarge, ErrTruncated or ErrMalformed, or with
// an error of the reader.
func (f *File) DWARF(lines bool, until time.Time) (*DWARF, error) {
	names, left := dwarfSections[:typeSections], uint64(maxDWARF)
	if lines {
		names = dwarfSections[:]
	}
	sections := make(map[string][]byte)
	for _, name := range names {
		s, limit := f.Section(name), left
		if s.Size == 0 {
			continue
		}
		if name == ".debug_ranges" || name == ".debug_rnglists" {
			limit = min(limit, maxRanges)
		}
		data, size, err := []byte(nil), s.Size, error(nil)
		if size <= limit {
			data, err = f.Unpack(s)
			size = uint64(len(data))
		}
		if err == nil && size > limit {
			err = elffile.TooLarge(fmt.Errorf("%d bytes, and %d may be read", size, limit))
		}
		if err == nil && time.Now().After(until) {
			err = errLate
		}
		if err != nil {
			return nil, fmt.Errorf("section %s: %w", name, err)
		}
		sections[name] = data
		left -= size
	}
	return NewDWARF(sections, f.Words.Order(), until)
}

// NewDWARF is [File.DWARF] for sections in memory, by their names. It may
// change them.
func NewDWARF(
	sections map[string][]byte, order binary.ByteOrder, until time.Time,
) (d *DWARF, err error) {
	defer Contain(&err)
	info, abbreviations := sections[".debug_info"], sections[".debug_abbrev"]
	if len(info) == 0 || len(abbreviations) == 0 {
		return nil, ErrNoDWARF
	}
	d = &DWARF{Sections: sections, Order: order, Until: until,
		Size: 32 * len(abbreviations)} // in the form that package debug/dwarf holds
	for _, data := range sections {
		d.Size += len(data)
	}
	if d.Units, err = unitsOf(order, info, abbreviations); err != nil {
		return nil, fmt.Errorf("section .debug_info: %w", err)
	}
	// Package debug/dwarf takes the size of .debug_str_offsets, which is at its
	// start, for the offset of a text before it knows where the offsets begin.
	texts := sections[".debug_str"]
	if missing := len(sections[".debug_str_offsets"]) - len(texts); missing > 0 {
		sections[".debug_str"] = append(texts, make([]byte, missing)...)
	}
	cutStrings(sections[".debug_str"])
	cutStrings(sections[".debug_line_str"])
	d.Data, err = dwarf.New(abbreviations, nil, nil, info, sections[".debug_line"], nil,
		sections[".debug_ranges"], sections[".debug_str"])
	for _, name := range []string{".debug_addr", ".debug_line_str", ".debug_str_offsets",
		".debug_rnglists"} {
		if err == nil {
			err = d.AddSection(name, sections[name])
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", elffile.ErrMalformed, err)
	}
	return d, nil
}

// Contain makes an error of a panic of package debug/dwarf. Call it by defer.
func Contain(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("%w: debugging information: %v", elffile.ErrMalformed, r)
	}
}

var errLate = elffile.TooLarge(errors.New("debugging information that takes too long to read"))

// Late fails after Until.
func (d *DWARF) Late() error {
	if time.Now().After(d.Until) {
		return errLate
	}
	return nil
}

// unitsOf returns the offsets of the first entries of units. It checks the
// units and their abbreviations before package debug/dwarf reads them.
func unitsOf(order binary.ByteOrder, info, abbreviations []byte) (starts []dwarf.Offset, err error) {
	seen := make(map[uint64]bool)
	work := 0
	for c := (Cursor{Bytes: info, Order: order}); !c.Done(); {
		u, offset := c.Unit()
		if len(starts) == maxUnits {
			return nil, elffile.TooLarge(fmt.Errorf("more than %d units", maxUnits))
		}
		version, kind := u.Unsigned(2), uint8(0)
		if version >= 5 {
			kind = u.Uint8()
			u.Take(1) // the size of an address
		}
		table := u.Unsigned(offset)
		if version < 5 {
			u.Take(1)
		}
		const skeleton, split, types, splitTypes = 4, 5, 2, 6
		switch kind {
		case skeleton, split:
			u.Take(8)
		case types, splitTypes:
			u.Take(8 + offset)
		}
		if u.Short {
			return nil, elffile.ErrTruncated
		}
		if kind != types && kind != splitTypes {
			starts = append(starts, dwarf.Offset(u.At))
		}
		if seen[table] {
			continue
		}
		seen[table] = true
		size, err := checkAbbreviations(abbreviations, table)
		if err != nil {
			return nil, err
		}
		// Tables may overlap: package debug/dwarf reads each one on its own.
		if work += size; work > maxAbbreviations {
			return nil, elffile.TooLarge(fmt.Errorf("abbreviations of more than %d bytes", maxAbbreviations))
		}
	}
	return starts, nil
}

// checkAbbreviations checks a table of abbreviations, and returns its size in
// bytes.
func checkAbbreviations(all []byte, at uint64) (int, error) {
	if at >= uint64(len(all)) {
		return 0, elffile.ErrTruncated
	}
	data := all[at:]
	c := Cursor{Bytes: data[:min(len(data), maxAbbreviations+1)]}
	for c.ULEB() != 0 {
		c.ULEB()  // tag
		c.Uint8() // whether there are children
		for n := 0; ; n++ {
			attribute, form := c.ULEB(), c.ULEB()
			if attribute == 0 && form == 0 {
				break
			}
			const implicit = 0x21 // DW_FORM_implicit_const
			if form == implicit {
				c.SLEB()
			}
			if n == maxAttributes {
				return 0, elffile.TooLarge(fmt.Errorf("an entry with more than %d attributes", maxAttributes))
			}
		}
	}
	if c.Short && len(c.Bytes) <= maxAbbreviations {
		return 0, elffile.ErrTruncated
	}
	return c.At, nil
}

// cutStrings cuts strings to MaxDebugString bytes: package debug/dwarf copies a
// string for each entry that refers to it.
func cutStrings(section []byte) {
	for len(section) > 0 {
		end := bytes.IndexByte(section[:min(len(section), MaxDebugString+1)], 0)
		if end < 0 {
			if end = MaxDebugString; end >= len(section) {
				return
			}
			section[end] = 0
		}
		section = section[end+1:]
	}
}

// Entries reads the entries of debugging information one after the other.
type Entries struct {
	*dwarf.Reader
	Depth int // of the next entry below the first one; 0 after the last below it

	of    *DWARF
	steps int
}

// Entries returns the entries from an offset on.
func (d *DWARF) Entries(from dwarf.Offset) *Entries {
	e := &Entries{Reader: d.Reader(), of: d}
	e.Seek(from)
	return e
}

// Next returns the next entry, nil at the end. An entry of tag 0 ends a list of
// children.
func (e *Entries) Next() (*dwarf.Entry, error) {
	if e.steps++; e.steps%256 == 0 {
		if err := e.of.Late(); err != nil {
			return nil, err
		}
	}
	entry, err := e.Reader.Next()
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", elffile.ErrMalformed, err)
	case entry == nil:
	case entry.Tag == 0:
		e.Depth--
	case entry.Children:
		e.Depth++
	}
	return entry, nil
}

// At returns the entry at an offset. Next then returns the one after it.
func (e *Entries) At(offset dwarf.Offset) (*dwarf.Entry, error) {
	e.Seek(offset)
	entry, err := e.Next()
	if err == nil && entry == nil {
		err = elffile.ErrMalformed
	}
	return entry, err
}

// Skip skips the children of the entry that Next has returned. SkipChildren of
// package debug/dwarf would recurse to any depth.
func (e *Entries) Skip(entry *dwarf.Entry) error {
	if !entry.Children {
		return nil
	}
	if sibling, ok := entry.Val(dwarf.AttrSibling).(dwarf.Offset); ok && sibling > entry.Offset {
		e.Seek(sibling)
		e.Depth--
		return nil
	}
	for above := e.Depth - 1; e.Depth > above; {
		if inner, err := e.Next(); err != nil || inner == nil {
			return cmp.Or(err, elffile.ErrMalformed)
		}
	}
	return nil
}
