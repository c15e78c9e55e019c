// SPDX-License-Identifier: BSD-2-Clause

package procwatch

import (
	"bytes"
	"io"
)

// lineReader cuts a stream into lines through one buffer, which it does not
// grow: the lines of maps are short, but there may be a million of them.
type lineReader struct {
	r          io.Reader
	buf        []byte // of maxLine bytes
	start, end int    // what of buf is yet to be handed out
	err        error  // of the reader, io.EOF included
}

func (lr *lineReader) reset(r io.Reader) {
	if lr.buf == nil {
		lr.buf = make([]byte, maxLine)
	}
	lr.r, lr.start, lr.end, lr.err = r, 0, 0, nil
}

// next returns the next line without its newline, valid until the next call.
// whole is false for a line that is longer than the buffer, of which only the
// beginning is returned. The error is io.EOF at the end.
func (lr *lineReader) next() (line []byte, whole bool, err error) {
	searched := 0
	for {
		if n := bytes.IndexByte(lr.buf[lr.start+searched:lr.end], '\n'); n >= 0 {
			line = lr.buf[lr.start : lr.start+searched+n]
			lr.start += searched + n + 1
			return line, true, nil
		}
		searched = lr.end - lr.start
		if lr.err != nil {
			if searched > 0 { // a last line without a newline
				line = lr.buf[lr.start:lr.end]
				lr.start = lr.end
				return line, true, nil
			}
			return nil, false, lr.err
		}
		if lr.start > 0 {
			copy(lr.buf, lr.buf[lr.start:lr.end])
			lr.start, lr.end = 0, searched
		}
		if lr.end == len(lr.buf) {
			return lr.skipLong()
		}
		lr.fill()
	}
}

// fill reads more into the free end of the buffer.
func (lr *lineReader) fill() {
	n, err := lr.r.Read(lr.buf[lr.end:])
	lr.end += n
	if n == 0 && err == nil {
		// A reader that keeps doing this would have us spin.
		err = io.ErrNoProgress
	}
	lr.err = err
}

// skipLong drops what remains of a line that fills the buffer.
func (lr *lineReader) skipLong() ([]byte, bool, error) {
	// The first bytes tell which line it was; the rest of the buffer is reused.
	const kept = 128
	for lr.err == nil {
		lr.end = kept
		lr.fill()
		if n := bytes.IndexByte(lr.buf[kept:lr.end], '\n'); n >= 0 {
			lr.start = kept + n + 1
			return lr.buf[:kept], false, nil
		}
	}
	lr.start = lr.end
	return lr.buf[:kept], false, nil
}
