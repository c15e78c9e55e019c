// SPDX-License-Identifier: BSD-2-Clause

package unwind

import (
	"cmp"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/gousdt/gousdt/internal/elffile"
)

const (
	// maxFrames bounds the section that is read: a browser's has some 30 MB.
	maxFrames = 64 << 20

	// maxEntries bounds the index that is made where the file has none, and
	// maxRecords the records of the section that are read for it: some entries
	// share each common part.
	maxEntries = 1 << 20
	maxRecords = 2 * maxEntries

	// maxInstructions bounds the bytes of the instructions for a function. The
	// longest in a system with several compilers are 20,000 bytes.
	maxInstructions = 128 << 10
)

var (
	// ErrNoTable: the file has no call frame information, or it is for a
	// machine that this package does not know.
	ErrNoTable = errors.New("no call frame information")

	// ErrNoEntry: there is none for this address.
	ErrNoEntry = errors.New("no call frame information for the address")

	// ErrOutermost: the function has no caller.
	ErrOutermost = errors.New("the outermost function")

	// ErrMemory: the stack goes on where it has not been copied.
	ErrMemory = errors.New("not in the copy of the stack")

	// ErrWork: there is no work left to be done.
	ErrWork = errors.New("call frame information that takes too much work")

	errMalformed = errors.New("malformed call frame information")
)

// Table is the call frame information of a file. It is not safe for concurrent
// use, nor are several tables of one Unwinder.
type Table struct {
	*machine
	unwinder *Unwinder
	number   uint32 // of the table, for the rows that the unwinder holds

	order  binary.ByteOrder
	frames section // .eh_frame
	header section // .eh_frame_hdr

	// sorted is the index in the header: pairs of four bytes, where a function
	// begins and where its entry is.
	sorted cursor
	count  int

	// index is made where the header has none.
	index []function
}

type section struct {
	bytes   []byte
	address uint64
}

// function is where a function begins and where its entry is in the section.
type function struct {
	start uint64
	entry int
}

// Read reads the call frame information of a file.
//
// Errors: ErrNoTable, or what reading fails with.
func (u *Unwinder) Read(f *elffile.File) (*Table, error) {
	m := machines[f.Machine]
	if m == nil || !f.Words.Wide {
		return nil, ErrNoTable
	}
	t := u.newTable(m, f.Words.Order())
	if err := t.find(f); err != nil {
		return nil, err
	}
	t.prepare()
	return t, nil
}

// Bytes returns how many bytes of a file Read reads at most, by what its
// headers say.
func Bytes(f *elffile.File) int {
	if f.Frames.Size > 0 {
		return int(min(f.Frames.Size, maxFrames) + min(f.FramesIndex.FileSize, maxFrames))
	}
	if f.FramesIndex.FileSize > 0 {
		return 2 * maxFrames // where the section ends is not known
	}
	return 0
}

func (u *Unwinder) newTable(m *machine, order binary.ByteOrder) *Table {
	u.tables++
	return &Table{machine: m, unwinder: u, number: u.tables, order: order}
}

// Size returns what the table takes in memory, in bytes, without the rows that
// the unwinder holds.
func (t *Table) Size() int { return len(t.frames.bytes) + len(t.header.bytes) + 16*len(t.index) }

// prepare makes a table of its sections.
func (t *Table) prepare() {
	if !t.useHeader() {
		t.makeIndex()
	}
}

// find reads the sections.
func (t *Table) find(f *elffile.File) (err error) {
	if index := f.FramesIndex; index.FileSize > 0 {
		if t.header, err = read(f, index.Address, index.Offset, index.FileSize); err != nil {
			return err
		}
	}
	if s := f.Frames; s.Size > 0 {
		if s.Flags&elf.SHF_COMPRESSED != 0 {
			return fmt.Errorf("section .eh_frame: %w", elffile.ErrCompressed)
		}
		t.frames, err = read(f, s.Address, s.Offset, s.Size)
		return err
	}
	// Without section headers the program headers lead there, but do not tell
	// where it ends.
	c := t.headerCursor()
	c.at = 1
	encoding := c.u8()
	c.at = 4
	start := c.pointer(encoding, 8, t.header.address, t.header.address)
	if c.short {
		return ErrNoTable
	}
	if s := f.Segment(start, 1, 0); s != nil {
		skip := start - s.Address
		t.frames, err = read(f, start, s.Offset+skip, min(s.FileSize-skip, maxFrames))
		return err
	}
	return ErrNoTable
}

func read(f *elffile.File, address, offset, size uint64) (section, error) {
	if size > maxFrames {
		return section{}, fmt.Errorf("%d bytes of call frame information: %w", size,
			elffile.ErrTooLarge)
	}
	bytes, err := f.ReadRange(offset, size)
	return section{bytes, address}, err
}

func (t *Table) headerCursor() cursor { return cursor{bytes: t.header.bytes, order: t.order} }

// useHeader takes the index of the header, if there is one of the usual kind.
func (t *Table) useHeader() bool {
	c := t.headerCursor()
	version, frames, count, table := c.u8(), c.u8(), c.u8(), c.u8()
	c.pointer(frames, 8, t.header.address, t.header.address)
	if count == isOmitted {
		return false
	}
	n := c.pointer(count, 8, t.header.address, t.header.address)
	if c.short || version != 1 || table != relativeData|formatS4 ||
		n > uint64(len(c.bytes)-c.at)/8 {
		return false
	}
	t.sorted = cursor{bytes: c.bytes[c.at:][:8*n], order: t.order}
	t.count = int(n)
	return true
}

// indexed returns an entry of the header's index.
func (t *Table) indexed(i int) (start, entry uint64) {
	c := t.sorted
	c.at = 8 * i
	return t.header.address + c.signed(4), t.header.address + c.signed(4)
}

// makeIndex makes an index of all entries but malformed ones.
func (t *Table) makeIndex() {
	at := 0
	for n := 0; n < maxRecords && len(t.index) < maxEntries; n++ {
		e, next, err := t.entry(at)
		if next <= at {
			break // the end
		}
		if err == nil && e.size > 0 {
			t.index = append(t.index, function{e.start, at})
		}
		at = next
	}
	slices.SortFunc(t.index, func(a, b function) int { return cmp.Compare(a.start, b.start) })
}

// lookup returns where in the section the entry is for an address.
func (t *Table) lookup(address uint64) (int, bool) {
	if t.count == 0 {
		i, found := slices.BinarySearchFunc(t.index, address,
			func(f function, a uint64) int { return cmp.Compare(f.start, a) })
		if !found {
			i--
		}
		if i < 0 {
			return 0, false
		}
		return t.index[i].entry, true
	}
	low, high := 0, t.count // the first one that begins behind the address is within
	for low < high {
		middle := int(uint(low+high) / 2)
		if start, _ := t.indexed(middle); start <= address {
			low = middle + 1
		} else {
			high = middle
		}
	}
	if low == 0 {
		return 0, false
	}
	_, entry := t.indexed(low - 1)
	if entry < t.frames.address || entry-t.frames.address >= uint64(len(t.frames.bytes)) {
		return 0, false
	}
	return int(entry - t.frames.address), true
}
