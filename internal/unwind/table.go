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

	// maxEntries bounds the index that is made where the file has none.
	maxEntries = 1 << 20

	// maxRows bounds the rows that are kept, of some 200 bytes. A program calls
	// from fewer places on its hot paths.
	maxRows = 1 << 14

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

	errDamaged = errors.New("damaged call frame information")
)

// Table is the call frame information of a file. It is not safe for concurrent
// use.
type Table struct {
	*machine
	order  binary.ByteOrder
	frames section // .eh_frame
	header section // .eh_frame_hdr

	// sorted is the index in the header: pairs of four bytes, where a function
	// begins and where its entry is.
	sorted cursor
	count  int

	// index is made where the header has none.
	index []function

	rows map[uint64]*row
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
func Read(f *elffile.File) (*Table, error) {
	m := machines[f.Machine]
	if m == nil || !f.Words.Wide {
		return nil, ErrNoTable
	}
	t := &Table{machine: m, order: f.Words.Order()}
	if err := t.find(f); err != nil {
		return nil, err
	}
	t.prepare()
	return t, nil
}

// Size returns what the table takes in memory, in bytes, without the rows that
// have been used.
func (t *Table) Size() int { return len(t.frames.bytes) + len(t.header.bytes) + 16*len(t.index) }

// prepare makes a table of its sections.
func (t *Table) prepare() {
	t.rows = make(map[uint64]*row)
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
		return section{}, fmt.Errorf("%d bytes of call frame information: %w", size, elffile.ErrTooLarge)
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
	if c.short || version != 1 || table != relativeData|formatS4 || n > uint64(len(c.bytes)-c.at)/8 {
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

// makeIndex goes through all entries. It leaves out what is damaged.
func (t *Table) makeIndex() {
	for at := 0; len(t.index) < maxEntries; {
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
		i, found := slices.BinarySearchFunc(t.index, address, func(f function, a uint64) int { return cmp.Compare(f.start, a) })
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

// row returns how to find the caller of the instruction at an address in the
// file.
func (t *Table) row(address uint64) (*row, error) {
	if r, ok := t.rows[address]; ok {
		if r == nil {
			return nil, ErrNoEntry
		}
		return r, nil
	}
	r, err := t.newRow(address)
	if len(t.rows) >= maxRows {
		clear(t.rows)
	}
	t.rows[address] = r
	if err != nil {
		return nil, fmt.Errorf("%w: %v", ErrNoEntry, err)
	}
	return r, nil
}

func (t *Table) newRow(address uint64) (*row, error) {
	at, ok := t.lookup(address)
	if !ok {
		return nil, ErrNoEntry
	}
	e, _, err := t.entry(at)
	if err != nil {
		return nil, err
	}
	if address-e.start >= e.size {
		return nil, ErrNoEntry
	}
	return t.interpret(e, address)
}
