// SPDX-License-Identifier: BSD-2-Clause

package elffile

import (
	"encoding/binary"
	"errors"
	"io"
	"math"
	"math/bits"
	"sync"
	"unsafe"
)

// ReadFull fills p from an offset. It fails with ErrTruncated if the file ends
// before, or with an error of the reader.
func (f *File) ReadFull(p []byte, offset uint64) error {
	if offset > math.MaxInt64-uint64(len(p)) {
		return ErrTruncated
	}
	n, err := f.ReadAt(p, int64(offset))
	if n == len(p) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		return ErrTruncated
	}
	return err
}

// ReadRange reads a range of the file. The caller must have checked the size
// against a limit.
func (f *File) ReadRange(offset, size uint64) ([]byte, error) {
	if err := f.Reaches(offset, size); err != nil {
		return nil, err
	}
	p := make([]byte, size)
	if err := f.ReadFull(p, offset); err != nil {
		return nil, err
	}
	return p, nil
}

// Reaches fails if a range is larger than a chunk and the file ends before it
// does. A file has to show that it is as long as it claims before more than a
// chunk is allocated for it.
func (f *File) Reaches(offset, size uint64) error {
	if size <= ChunkSize {
		return nil
	}
	if offset+size < offset {
		return ErrTruncated
	}
	return f.ReadFull(make([]byte, 1), offset+size-1)
}

// Text returns b as a string that shares its memory, which must not be written
// to as long as the string is in use.
func Text(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// table is a sequence of records.
type table struct {
	offset uint64 // in the file
	size   int    // of a record
	count  uint64
}

// Buffer is memory for one chunk of a file.
type Buffer [ChunkSize]byte

// buffers are the unused buffers. Allocating, zeroing and collecting one takes
// longer than listing most files.
var buffers = sync.Pool{New: func() any { return new(Buffer) }}

// NewBuffer returns a buffer, which must be freed. It may have old contents.
func NewBuffer() *Buffer { return buffers.Get().(*Buffer) }

// Free gives the buffer back. Nothing may use its memory any more.
func (b *Buffer) Free() { buffers.Put(b) }

// window is the piece of the file that was read last. Tables are read through
// it, so that their size does not matter.
type window struct {
	file   *File
	buffer *Buffer
	offset uint64 // of data in the file
	data   []byte // a part of buffer
}

func newWindow(f *File) *window { return &window{file: f, buffer: NewBuffer()} }

// close must be called: it gives the buffer back.
func (w *window) close() {
	w.buffer.Free()
	w.buffer, w.data = nil, nil
}

// cover moves the window to a whole table and some bytes before it. It reports
// whether they fit the window and could be read.
func (w *window) cover(t table, before uint64) bool {
	before = min(before, t.offset)
	if t.count > uint64(len(w.buffer)-int(before))/uint64(t.size) {
		return false
	}
	data := w.buffer[:before+t.count*uint64(t.size)]
	w.offset, w.data = t.offset-before, nil
	if w.file.ReadFull(data, w.offset) != nil {
		return false
	}
	w.data = data
	return true
}

// at returns a range of the file if it is in the window, else nil.
func (w *window) at(offset, size uint64) []byte {
	if skip := offset - w.offset; skip < uint64(len(w.data)) && uint64(len(w.data))-skip >= size {
		return w.data[skip : skip+size]
	}
	return nil
}

// record returns a record of the table, valid until the next call. If it is not
// in the window, the window moves to it and to the records that follow.
func (w *window) record(t table, index uint64) ([]byte, error) {
	size := uint64(t.size)
	offset := t.offset + index*size
	if offset < t.offset {
		return nil, ErrTruncated
	}
	if b := w.at(offset, size); b != nil {
		return b, nil
	}
	fit := min(uint64(len(w.buffer))/size, t.count-index)
	data := w.buffer[:fit*size]
	if err := w.file.ReadFull(data, offset); err != nil {
		w.data = nil
		return nil, err
	}
	w.offset, w.data = offset, data
	return data[:size], nil
}

// Words knows the byte order and the word size of a file. In the loop over the
// notes, six calls through binary.ByteOrder for every note would take a third
// of the time.
type Words struct {
	Big  bool // most significant byte first
	Wide bool // ELF64
}

func (w Words) Order() binary.ByteOrder {
	if w.Big {
		return binary.BigEndian
	}
	return binary.LittleEndian
}

// Size is the size of an address in bytes.
func (w Words) Size() int {
	if w.Wide {
		return 8
	}
	return 4
}

func (w Words) Uint16(b []byte) uint16 {
	v := binary.LittleEndian.Uint16(b)
	if w.Big {
		v = bits.ReverseBytes16(v)
	}
	return v
}

func (w Words) Uint32(b []byte) uint32 {
	v := binary.LittleEndian.Uint32(b)
	if w.Big {
		v = bits.ReverseBytes32(v)
	}
	return v
}

func (w Words) Uint64(b []byte) uint64 {
	v := binary.LittleEndian.Uint64(b)
	if w.Big {
		v = bits.ReverseBytes64(v)
	}
	return v
}

// Address reads a word of the file's class.
func (w Words) Address(b []byte) uint64 {
	if w.Wide {
		return w.Uint64(b)
	}
	return uint64(w.Uint32(b))
}

// Moved returns an address plus a distance. Addresses wrap around at the word
// size of the class.
func (w Words) Moved(address, distance uint64) uint64 {
	if w.Wide {
		return address + distance
	}
	return uint64(uint32(address + distance))
}

// Without limits a small crafted file could make a long-running tracer allocate
// or compute without end. Each limit is far above anything a tool chain
// produces.
const (
	// maxSections limits time, not memory. Object files compiled with one
	// section per function reach a few hundred thousand.
	maxSections = 1 << 20

	// maxRelocationSections bounds the sections with relocations of probes. An
	// object file has one for each template or inline function with probes.
	maxRelocationSections = 1 << 16

	// maxSectionNames bounds the table of section names in bytes: a million
	// sections with names of sixty bytes would fill it.
	maxSectionNames = 64 << 20

	// maxProgramHeaders: the kernel refuses to start a program with more than
	// 1,170. Only core files have more than sixteen bits can say.
	maxProgramHeaders = 1 << 16

	// maxSegments bounds the PT_LOAD program headers, because every address is
	// looked up in them. Real files have two to ten.
	maxSegments = 1024

	// maxSymbolWork bounds the work of all look-ups of symbols in one file, in
	// bytes that are read. A processor looks through some four billion bytes a
	// second, so that this limits time to about a second.
	maxSymbolWork = 4 << 30

	// Further work of a look-up, in the same unit: for each name in each table,
	// for each symbol whose name has another length or first byte than the
	// wanted ones, and for each other symbol.
	workOfName   = 3 << 10
	workOfString = 32
	workOfProbe  = 64

	// maxSymbols bounds the symbols of a table: a sparse file can claim any
	// number, at no cost.
	maxSymbols = 16 << 20

	// maxSymbolNames bounds the string table of symbols in bytes. That of a
	// browser with all its symbols has some 50 MB.
	maxSymbolNames = 128 << 20

	// MaxSymbolName bounds a name that is looked up or returned, in bytes: a
	// profile holds many. Compilers make names of up to a few kilobytes.
	MaxSymbolName = 16 << 10

	// maxArgumentWords bounds the names in arguments that are looked up at
	// once. They are held in memory, and this number takes 40 MB. Of real files
	// libjvm has the most arguments, 2,000. Further names are looked up one by
	// one, for about a second.
	maxArgumentWords = 1 << 18

	// Real dynamic sections have thirty entries of 16 bytes.
	maxDynamicBytes = 1 << 20

	// maxBuildIDNotes bounds a section or segment that is searched for the
	// build ID, in bytes. Those that linkers write have less than a kilobyte.
	maxBuildIDNotes = 1 << 16

	// maxBuildID: the longest in use, SHA-256, has 32 bytes, but a linker
	// accepts any hexadecimal string.
	maxBuildID = 1 << 10

	// ChunkSize is the size of one read of a large range, and the largest size
	// that is allocated before the file has shown that it has the bytes.
	ChunkSize = 64 << 10
)
