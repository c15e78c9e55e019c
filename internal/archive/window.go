// SPDX-License-Identifier: BSD-2-Clause

package archive

import "io"

// windowSize is how much of an archive is read at once. Members are small, and
// of each some bytes are wanted here and there: the C library's archive has
// 2,000 members, of which four ranges are read.
const windowSize = 16 << 10

// window is the piece of an archive that was read last. Small reads are served
// from it. It is for one goroutine at a time.
type window struct {
	file   io.ReaderAt
	offset int64
	size   int // how much of buffer is there
	buffer [windowSize]byte
}

// ReadAt reads bytes of the archive, as [io.ReaderAt] says.
func (w *window) ReadAt(p []byte, offset int64) (int, error) {
	if len(p) > len(w.buffer) || offset < 0 {
		return w.file.ReadAt(p, offset)
	}
	skip := offset - w.offset
	if skip < 0 || skip > int64(w.size-len(p)) {
		n, err := w.file.ReadAt(w.buffer[:], offset)
		w.offset, w.size, skip = offset, n, 0
		if n < len(p) {
			return copy(p, w.buffer[:n]), err
		}
	}
	return copy(p, w.buffer[skip:w.size]), nil
}
