// SPDX-License-Identifier: BSD-2-Clause

package elfnote

import (
	"errors"
	"io"
	"math"
	"unsafe"
)

// readFull reads len(p) bytes at an offset, or fails: with ErrTruncated where
// the file ends before.
func (f *File) readFull(p []byte, offset uint64) error {
	if offset > math.MaxInt64-uint64(len(p)) {
		return ErrTruncated
	}
	n, err := f.reader.ReadAt(p, int64(offset))
	if n == len(p) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		return ErrTruncated
	}
	return err
}

// readRange reads a range of the file. The caller has checked the size against a
// limit; before more than a chunk is allocated, the file has to show that it is
// as long as it claims.
func (f *File) readRange(offset, size uint64) ([]byte, error) {
	if size > chunkSize {
		if offset+size < offset {
			return nil, ErrTruncated
		}
		if err := f.readFull(make([]byte, 1), offset+size-1); err != nil {
			return nil, err
		}
	}
	p := make([]byte, size)
	return p, f.readFull(p, offset)
}

// text returns b as a string that shares its memory, which is not written to
// again.
func text(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// table is a sequence of records of one size.
type table struct {
	offset uint64 // in the file
	size   int    // of a record
	count  uint64
}

// window is the piece of the file that was read last. Tables are read through
// it, so that their size does not matter.
type window struct {
	file   *File
	buffer []byte
	offset uint64
	data   []byte // of buffer: what the file has at offset
}

func newWindow(f *File) *window {
	return &window{file: f, buffer: make([]byte, windowSize)}
}

// start reads the beginning of the file, as far as file header and program
// headers usually reach.
func (w *window) start() error {
	const usual = headerSize64 + 15*programSize64
	n, err := w.file.reader.ReadAt(w.buffer[:usual], 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	w.offset, w.data = 0, w.buffer[:n]
	return nil
}

// record returns a record of the table, valid until the next call. Where it is
// not in the window, the window moves to it and takes in those that follow.
func (w *window) record(t table, index uint64) ([]byte, error) {
	size := uint64(t.size)
	offset := t.offset + index*size
	if offset < t.offset {
		return nil, ErrTruncated
	}
	if skip := offset - w.offset; skip < uint64(len(w.data)) && uint64(len(w.data))-skip >= size {
		return w.data[skip : skip+size], nil
	}
	fit := min(uint64(len(w.buffer))/size, t.count-index)
	data := w.buffer[:fit*size]
	if err := w.file.readFull(data, offset); err != nil {
		w.data = nil
		return nil, err
	}
	w.offset, w.data = offset, data
	return data[:size], nil
}
