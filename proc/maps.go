// SPDX-License-Identifier: BSD-2-Clause

package proc

import (
	"bytes"
	"fmt"
	"io"
)

// mapLine is one line of /proc/PID/maps. The path is part of the text parsed.
type mapLine struct {
	start, end   uint64
	offset       uint64
	inode        uint64
	major, minor uint32
	executable   bool
	path         []byte // as written: escapes and " (deleted)" included
}

// deletedSuffix is what the kernel appends to the path of a file that has none
// any more.
const deletedSuffix = " (deleted)"

// isFile tells mappings of files from anonymous memory, [vdso] and the like.
// Only files have a device and an inode number. What is left has a path that
// starts with a slash, or is of a kind like anon_inode:[perf_event].
func (l *mapLine) isFile() bool { return l.inode != 0 || l.major != 0 || l.minor != 0 }

// parseMapLine reads a line of the form that proc(5) describes,
//
//	7f5c1e000000-7f5c1e1d5000 r-xp 00026000 fe:00 326789     /usr/lib/libc.so.6
//
// without its newline. It allocates nothing unless it fails.
func parseMapLine(text []byte, l *mapLine) error {
	*l = mapLine{}
	var ok bool
	if l.start, text, ok = parseHex(text, '-'); !ok {
		return fmt.Errorf("%w line of maps: no start address", ErrMalformed)
	}
	if l.end, text, ok = parseHex(text, ' '); !ok || l.end <= l.start {
		return fmt.Errorf("%w line of maps: no end address after the start", ErrMalformed)
	}
	if len(text) < 5 || text[4] != ' ' {
		return fmt.Errorf("%w line of maps: no permissions", ErrMalformed)
	}
	l.executable = text[2] == 'x'
	if l.offset, text, ok = parseHex(text[5:], ' '); !ok {
		return fmt.Errorf("%w line of maps: no offset", ErrMalformed)
	}
	var major, minor uint64
	if major, text, ok = parseHex(text, ':'); !ok || major > 1<<32-1 {
		return fmt.Errorf("%w line of maps: no device", ErrMalformed)
	}
	if minor, text, ok = parseHex(text, ' '); !ok || minor > 1<<32-1 {
		return fmt.Errorf("%w line of maps: no device", ErrMalformed)
	}
	l.major, l.minor = uint32(major), uint32(minor)

	// The inode is decimal. Blanks up to a fixed column follow if there is a
	// path, which itself may begin with anything but a blank.
	n := bytes.IndexByte(text, ' ')
	if n < 0 {
		n = len(text)
	}
	if l.inode, ok = parseDecimal(text[:n]); !ok {
		return fmt.Errorf("%w line of maps: no inode", ErrMalformed)
	}
	l.path = bytes.TrimLeft(text[n:], " ")
	return nil
}

// isOther tells lines of mappings that are not executable, which are three of
// four, without parsing more of them.
func isOther(text []byte) bool {
	n := bytes.IndexByte(text, ' ')
	return n > 0 && len(text) > n+5 && text[n+5] == ' ' && text[n+3] == '-'
}

// parseHex reads a hexadecimal number up to a separator and returns what
// follows that.
func parseHex(text []byte, separator byte) (uint64, []byte, bool) {
	var v uint64
	for i, c := range text {
		switch {
		case c == separator:
			return v, text[i+1:], i > 0
		case i == 16:
			return 0, nil, false
		case c >= '0' && c <= '9':
			v = v<<4 | uint64(c-'0')
		case c >= 'a' && c <= 'f':
			v = v<<4 | uint64(c-'a'+10)
		default:
			return 0, nil, false
		}
	}
	return 0, nil, false
}

// unescapePath undoes the one escape of maps: a newline is written \012. A file
// name that really holds these four characters looks the same, so that one
// cannot be told from the other here.
func unescapePath(path []byte) string {
	if bytes.IndexByte(path, '\\') < 0 {
		return string(path)
	}
	return string(bytes.ReplaceAll(path, []byte(`\012`), []byte("\n")))
}

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
