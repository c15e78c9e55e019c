// SPDX-License-Identifier: BSD-2-Clause

package unwind

import (
	"cmp"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

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
	header section // .eh_frame_hdr, until the index has been made
	index  []function
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
	t.makeIndex()
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
func (t *Table) Size() int { return len(t.frames.bytes) + 16*len(t.index) }

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
	c := t.cursor(t.header.bytes, 1)
	encoding := c.Uint8()
	c.At = 4
	start := c.pointer(encoding, t.header.address, t.header.address)
	s := f.Segment(start, 1, 0)
	if c.Short || s == nil {
		return ErrNoTable
	}
	skip := start - s.Address
	t.frames, err = read(f, start, s.Offset+skip, min(s.FileSize-skip, maxFrames))
	return err
}

func read(f *elffile.File, address, offset, size uint64) (section, error) {
	if size > maxFrames {
		return section{}, fmt.Errorf("%d bytes of call frame information: %w", size,
			elffile.ErrTooLarge)
	}
	bytes, err := f.ReadRange(offset, size)
	return section{bytes, address}, err
}

// makeIndex makes an index of all entries but malformed ones, by the header's,
// if that has one of the usual kind.
func (t *Table) makeIndex() {
	if !t.useHeader() {
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
	}
	t.header = section{}
	slices.SortFunc(t.index, func(a, b function) int { return cmp.Compare(a.start, b.start) })
}

// useHeader takes the header's index, which has pairs of four bytes: where a
// function begins and where its entry is.
func (t *Table) useHeader() bool {
	here := t.header.address
	c := t.cursor(t.header.bytes, 0)
	version, frames, count, table := c.Uint8(), c.Uint8(), c.Uint8(), c.Uint8()
	c.pointer(frames, here, here)
	if count == isOmitted {
		return false
	}
	n := c.pointer(count, here, here)
	if c.Short || version != 1 || table != relativeData|signed4 ||
		n > uint64(len(c.Bytes)-c.At)/8 || n > maxEntries {
		return false
	}
	t.index = make([]function, 0, n)
	for range n {
		start, entry := here+c.Signed(4), here+c.Signed(4)-t.frames.address
		if entry < uint64(len(t.frames.bytes)) {
			t.index = append(t.index, function{start, int(entry)})
		}
	}
	return true
}

// lookup returns where in the section the entry is for an address.
func (t *Table) lookup(address uint64) (int, bool) {
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

// common is what entries have in common (a CIE).
type common struct {
	codeFactor   uint64
	dataFactor   int64
	returns      uint64 // number of the register, or column, of the return address
	encoding     uint8  // of addresses
	sized        bool   // there are sizes of augmentation data
	signal       bool   // the frame is that of an interrupted function
	instructions code
}

// entry is the call frame information of a function (an FDE).
type entry struct {
	common
	start, size  uint64
	instructions code
}

// code is a range of the section .eh_frame: instructions or an expression.
type code struct{ start, end int }

// record is a length and what follows.
type record struct {
	cursor        // behind the number that says which kind of record it is
	isCommon bool // else it is an entry
	common   int  // of an entry: where its common part is
	next     int  // where the next record is; not behind this one at the end of the section
}

func (t *Table) record(at int) record {
	nothing := record{cursor: cursor{elffile.Cursor{Short: true}}}
	if at < 0 || at > len(t.frames.bytes) {
		return nothing
	}
	c := t.cursor(t.frames.bytes, at)
	unit, wide := c.Unit()
	here := unit.At
	back := unit.Unsigned(wide)
	if unit.Short {
		return nothing
	}
	r := record{cursor: cursor{unit}, isCommon: back == 0, next: c.At}
	if back > uint64(here) {
		r.Short = true
		return r
	}
	r.common = here - int(back)
	return r
}

// entry returns the entry at a place in the section, and the place behind. A
// common part is an entry of no size.
func (t *Table) entry(at int) (*entry, int, error) {
	c := t.record(at)
	e := &entry{}
	if c.Short || c.isCommon {
		return e, c.next, nil
	}
	if err := t.readCommon(c.common, &e.common); err != nil {
		return nil, c.next, err
	}
	e.start = c.pointer(e.encoding, t.frames.address, 0)
	e.size = c.number(e.encoding)
	if e.sized {
		c.Take(c.ULEB())
	}
	if c.Short || c.next-c.At > maxInstructions {
		return nil, c.next, errMalformed
	}
	e.instructions = code{c.At, c.next}
	return e, c.next, nil
}

func (t *Table) readCommon(at int, common *common) error {
	c := t.record(at)
	if c.Short || !c.isCommon {
		return errMalformed
	}
	version, augmentation := c.Uint8(), string(c.Text(maxText))
	switch version {
	case 1, 3:
	case 4:
		if addressSize, segmentSize := c.Uint8(), c.Uint8(); addressSize != 8 || segmentSize != 0 {
			return errMalformed
		}
	default:
		return errMalformed
	}
	if augmentation == "eh" {
		c.Unsigned(8) // of GCC before version 3
		augmentation = ""
	}
	common.codeFactor, common.dataFactor = c.ULEB(), c.SLEB()
	if version == 1 {
		common.returns = uint64(c.Uint8())
	} else {
		common.returns = c.ULEB()
	}
	if rest, sized := strings.CutPrefix(augmentation, "z"); sized {
		common.sized = true
		data := t.cursor(c.Take(c.ULEB()), 0)
		if !data.augmented(common, rest) {
			return errMalformed
		}
	} else if augmentation != "" {
		return errMalformed
	}
	if c.Short || c.next-c.At > maxInstructions {
		return errMalformed
	}
	common.instructions = code{c.At, c.next}
	return nil
}

// augmented reads what the letters of an augmentation stand for, and returns
// whether they are all known.
func (c *cursor) augmented(common *common, letters string) bool {
	for _, letter := range letters {
		switch letter {
		case 'R':
			common.encoding = c.Uint8()
		case 'L':
			c.Uint8()
		case 'P':
			c.number(c.Uint8())
		case 'S':
			common.signal = true
		case 'B', 'G': // arm64: how pointers are signed, and that memory is tagged
		default:
			return false
		}
	}
	return !c.Short
}

// cursor reads the section .eh_frame or its header.
type cursor struct{ elffile.Cursor }

func (t *Table) cursor(bytes []byte, at int) cursor {
	return cursor{elffile.Cursor{Bytes: bytes, At: at, Order: t.order}}
}

// maxText bounds an augmentation. Compilers write up to 7 letters.
const maxText = 32

// The encodings of pointers (DW_EH_PE_*) have a format, what the number is
// relative to, and a flag.
const (
	signed4      = 0x0b
	relativePC   = 0x10
	relativeData = 0x30
	relativeMask = 0x70
	isIndirect   = 0x80
	isOmitted    = 0xff
)

// number reads a pointer, or a difference, without what it is relative to.
func (c *cursor) number(encoding uint8) uint64 {
	switch format := encoding & 0x0f; format {
	case 0x00, 0x04, 0x08, 0x0c: // DW_EH_PE_absptr, udata8, signed, sdata8
		return c.Unsigned(8)
	case 0x01: // DW_EH_PE_uleb128
		return c.ULEB()
	case 0x02, 0x03: // DW_EH_PE_udata2, udata4
		return c.Unsigned(2 << (format - 0x02))
	case 0x09: // DW_EH_PE_sleb128
		return uint64(c.SLEB())
	case 0x0a, signed4: // DW_EH_PE_sdata2, sdata4
		return c.Signed(2 << (format - 0x0a))
	}
	c.Short = true
	return 0
}

// pointer reads the address of something. here is the address of the cursor's
// first byte, data what relativeData is about.
func (c *cursor) pointer(encoding uint8, here, data uint64) uint64 {
	at := here + uint64(c.At)
	value := c.number(encoding)
	switch encoding & (relativeMask | isIndirect) {
	case 0:
		return value
	case relativePC:
		return value + at
	case relativeData:
		return value + data
	}
	c.Short = true // relative to what no linker uses here
	return 0
}
