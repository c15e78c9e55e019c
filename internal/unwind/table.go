// SPDX-License-Identifier: BSD-2-Clause

// Package unwind walks the stacks of programs that were built without frame
// pointers, from a copy of the stack and of the registers. It uses the call
// frame information in the section .eh_frame, which compilers write for
// exceptions (DWARF 5, section 6.4; System V ABI for x86-64, section 3.7; Linux
// Standard Base, chapter 10.6).
//
// A [Table] has the call frame information of one file. [Table.Step] changes
// the state in a function into the state in its caller, and keeps what it found
// for the addresses that were looked up. Table.Work bounds the work.
//
// Files are untrusted. Whatever a file contains, this package does not panic,
// loop without end, or allocate memory by a number that the file gives. A
// malformed file makes wrong stacks at worst. The packages of debuggers for the
// same format were not made for untrusted files, nor for big-endian machines.
package unwind

import (
	"cmp"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/gousdt/gousdt/internal/debuginfo"
	"github.com/gousdt/gousdt/internal/elffile"
)

const (
	// maxFrames bounds the bytes of each section that is read: a browser's has
	// some 30 MB.
	maxFrames = 64 << 20

	// maxEntries bounds the entries of the index. maxRecords bounds the records
	// that are read to make one if the file has none: entries share their
	// common parts.
	maxEntries = 1 << 20
	maxRecords = 2 * maxEntries

	// maxInstructions bounds the bytes of the instructions for a function. The
	// longest in a system with several compilers are 20,000 bytes.
	maxInstructions = 128 << 10
)

var (
	// ErrNoTable means that the file has no call frame information, or is for a
	// machine that this package does not know.
	ErrNoTable = errors.New("no call frame information")

	// ErrNoEntry means that there is no call frame information for the address,
	// or that it is malformed.
	ErrNoEntry = errors.New("no call frame information for the address")

	// ErrOutermost means that the function has no caller.
	ErrOutermost = errors.New("the outermost function")

	// ErrMemory means that a value is not known, most often because it is on
	// the stack outside the copy.
	ErrMemory = errors.New("not in the copy of the stack")

	// ErrWork means that Table.Work does not suffice.
	ErrWork = errors.New("call frame information that takes too much work")

	errMalformed = errors.New("malformed call frame information")
)

// Table is the call frame information of a file. It is not safe for concurrent
// use.
type Table struct {
	// Work is the work that may still be done, in steps of some nanoseconds. An
	// instruction, or an operation of an expression, is one step. Step fails
	// with ErrWork when nothing is left.
	Work int

	*machine
	rows     map[uint64]*row // by address, nil for one without an entry
	rowBytes int

	order  binary.ByteOrder
	frames section // .eh_frame
	header section // .eh_frame_hdr, until the index has been made
	index  []function
}

type section struct {
	bytes   []byte
	address uint64
}

// function is an entry of the index.
type function struct {
	start uint64 // address of the function
	entry int    // offset of its entry in the section
}

// Read reads the call frame information of a file. The error is ErrNoTable,
// wraps elffile.ErrCompressed, elffile.ErrTooLarge or elffile.ErrTruncated, or
// is one of the reader.
func Read(f *elffile.File) (*Table, error) {
	t := &Table{machine: machines[f.Machine], order: f.Words.Order()}
	if t.machine == nil || !f.Words.Wide {
		return nil, ErrNoTable
	}
	if err := t.find(f); err != nil {
		return nil, err
	}
	if err := t.makeIndex(f.Late); err != nil {
		return nil, err
	}
	return t, nil
}

// Bytes returns how many bytes of a file Read reads at most, by the file's
// headers.
func Bytes(f *elffile.File) int {
	if frames := f.Section(".eh_frame"); frames.Size > 0 {
		return int(min(frames.Size, maxFrames) + min(f.FramesIndex.FileSize, maxFrames))
	}
	if f.FramesIndex.FileSize > 0 {
		return 2 * maxFrames // where the section ends is not known
	}
	return 0
}

// Size returns how many bytes the table takes in memory, without what it keeps
// of the addresses that were looked up.
func (t *Table) Size() int { return len(t.frames.bytes) + 16*len(t.index) }

// Kept returns how many bytes the addresses take that were looked up.
func (t *Table) Kept() int { return t.rowBytes }

// Forget drops what is kept of addresses.
func (t *Table) Forget() { t.rows, t.rowBytes = nil, 0 }

func (t *Table) find(f *elffile.File) (err error) {
	if index := f.FramesIndex; index.FileSize > 0 {
		if t.header, err = read(f, index.Address, index.Offset, index.FileSize); err != nil {
			return err
		}
	}
	if s := f.Section(".eh_frame"); s.Size > 0 {
		if s.Flags&elf.SHF_COMPRESSED != 0 {
			return fmt.Errorf("section .eh_frame: %w", elffile.ErrCompressed)
		}
		t.frames, err = read(f, s.Address, s.Offset, s.Size)
		return err
	}
	// Without section headers, the program headers lead to the section. They do
	// not tell where it ends.
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

// makeIndex makes the index of all entries but malformed ones. It takes that of
// the header, if that is of the usual kind. An error of late, which may be nil,
// ends it.
func (t *Table) makeIndex(late func() error) error {
	if !t.useHeader() {
		at := 0
		for n := 0; n < maxRecords && len(t.index) < maxEntries; n++ {
			if late != nil && n%1024 == 0 {
				if err := late(); err != nil {
					return err
				}
			}
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
	byStart := func(a, b function) int { return cmp.Compare(a.start, b.start) }
	if !slices.IsSortedFunc(t.index, byStart) { // else entries of one start keep their order
		slices.SortFunc(t.index, byStart)
	}
	return nil
}

// useHeader takes the index of the header, and reports whether it could. That
// has pairs of four-byte addresses: of a function, and of its entry.
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

// lookup returns the offset in the section of the last entry that begins at an
// address or before it. Entries of empty functions come before the others that
// begin at their address.
func (t *Table) lookup(address uint64) (int, bool) {
	i := sort.Search(len(t.index), func(i int) bool { return t.index[i].start > address })
	if i == 0 {
		return 0, false
	}
	return t.index[i-1].entry, true
}

// common is the common part of entries (a CIE).
type common struct {
	codeFactor   uint64
	dataFactor   int64
	returns      uint64 // number of the register, or column, of the return address
	encoding     uint8  // of addresses
	sized        bool   // entries have augmentation data, with its size
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

// record is a common part or an entry, as the section has it.
type record struct {
	cursor        // after the number that tells the kind of the record
	isCommon bool // else it is an entry
	common   int  // of an entry: the offset of its common part
	next     int  // offset of the next record; 0 at the end of the section
}

func (t *Table) record(at int) record {
	c := t.cursor(t.frames.bytes, at)
	unit, wide := c.Unit()
	here := unit.At
	back := unit.Unsigned(wide)
	if unit.Short {
		return record{cursor: cursor{unit}}
	}
	unit.Short = back > uint64(here)
	return record{cursor{unit}, back == 0, here - int(back), c.At}
}

// entry returns the entry at an offset in the section, and the offset of the
// next. A common part is returned as an entry of size 0.
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
		c.Unsigned(8) // a pointer that GCC before version 3 wrote
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

// augmented reads the data for the letters of an augmentation, and reports
// whether all letters are known.
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
		case 'B', 'G': // arm64: pointers are signed by key B; stack memory is tagged
		default:
			return false
		}
	}
	return !c.Short
}

// cursor reads the section .eh_frame or its header.
type cursor struct{ debuginfo.Cursor }

func (t *Table) cursor(bytes []byte, at int) cursor {
	return cursor{debuginfo.Cursor{Bytes: bytes, At: at, Order: t.order}}
}

// maxText bounds the letters of an augmentation. Compilers write up to 7.
const maxText = 32

// An encoding of pointers (DW_EH_PE_*) is a format, the base that the number is
// relative to, and a flag.
const (
	signed4      = 0x0b
	relativePC   = 0x10
	relativeData = 0x30
	relativeMask = 0x70
	isIndirect   = 0x80
	isOmitted    = 0xff
)

// number reads the number of a pointer, without adding its base.
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

// pointer reads a pointer. here is the address of the cursor's first byte, and
// data is the base for relativeData.
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
	c.Short = true // a base that no linker uses here
	return 0
}
