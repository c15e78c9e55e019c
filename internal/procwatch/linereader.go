// SPDX-License-Identifier: BSD-2-Clause

package procwatch

import (
	"bufio"
	"errors"
	"io"
	"slices"
)

// lineReader cuts a stream into lines through one buffer, which it does not
// grow: the lines of maps are short, but there may be a million of them.
type lineReader struct{ r *bufio.Reader }

func (lr *lineReader) reset(r io.Reader) {
	if lr.r == nil {
		lr.r = bufio.NewReaderSize(nil, maxLine)
	}
	lr.r.Reset(r)
}

// next returns the next line without its newline, valid until the next call.
// whole is false for a line that is longer than the buffer, of which only the
// beginning is returned. The error is io.EOF at the end.
func (lr *lineReader) next() (line []byte, whole bool, err error) {
	line, err = lr.r.ReadSlice('\n')
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		line = slices.Clone(line[:128]) // which tells which line it was
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = lr.r.ReadSlice('\n')
		}
		return line, false, nil
	case err == nil:
		return line[:len(line)-1], true, nil
	case len(line) > 0: // a last line without a newline
		return line, true, nil
	}
	return nil, false, err
}
