// SPDX-License-Identifier: BSD-2-Clause

package procfs

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// A FileKey is a file as maps names it. It can be one of several: see [FileID].
type FileKey struct {
	Major, Minor uint32
	Inode        uint64
}

// MapLine is one line of /proc/PID/maps. The path is part of the text parsed.
type MapLine struct {
	Start, End uint64
	Offset     uint64
	FileKey
	executable bool
	writable   bool
	shared     bool
	path       []byte // as written: escapes and " (deleted)" included
}

// deletedSuffix ends the path of a file that has none any more.
const deletedSuffix = " (deleted)"

// isFile reports whether a file is mapped, rather than anonymous memory, [vdso]
// and the like. Only files have a device and an inode number. Their paths start
// with a slash, or are like anon_inode:[perf_event].
func (l *MapLine) isFile() bool { return l.FileKey != FileKey{} }

// parseMapLine reads a line of the form that proc(5) describes,
//
//	7f5c1e000000-7f5c1e1d5000 r-xp 00026000 fe:00 326789     /usr/lib/libc.so.6
//
// without its newline. It allocates nothing unless it fails.
func parseMapLine(line []byte, l *MapLine) error {
	*l = MapLine{}
	var start, end, offset, major, minor, inode bool // that are right
	var device [2]uint64
	l.Start, line, start = parseHex(line, '-')
	l.End, line, end = parseHex(line, ' ')
	if len(line) >= 5 && line[4] == ' ' {
		l.writable, l.executable, l.shared = line[1] == 'w', line[2] == 'x', line[3] == 's'
		l.Offset, line, offset = parseHex(line[5:], ' ')
	}
	device[0], line, major = parseHex(line, ':')
	device[1], line, minor = parseHex(line, ' ')
	l.Major, l.Minor = uint32(device[0]), uint32(device[1])
	// The inode is decimal. Blanks up to a fixed column follow if there is a
	// path, which itself may begin with anything but a blank.
	number, path, _ := bytes.Cut(line, []byte(" "))
	l.Inode, inode = ParseDecimal(number)
	l.path = bytes.TrimLeft(path, " ")
	if start && end && offset && major && minor && inode && l.End > l.Start &&
		max(device[0], device[1]) < 1<<32 {
		return nil
	}
	return fmt.Errorf("%w line of maps", ErrMalformed)
}

// isOther reports whether a mapping is not executable, as three of four are.
func isOther(text []byte) bool {
	n := bytes.IndexByte(text, ' ')
	return n > 0 && len(text) > n+5 && text[n+5] == ' ' && text[n+3] == '-'
}

// parseHex reads a hexadecimal number up to a separator.
func parseHex(text []byte, separator byte) (v uint64, rest []byte, ok bool) {
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
	return strings.ReplaceAll(string(path), `\012`, "\n")
}

// readMaps calls line for each line of maps that shows executable memory from a
// file, or any memory from a file if all is set. A malformed line hides no
// other: the first error of that kind is returned when everything else has been
// read.
func readMaps(
	root string, pid int, lines *bufio.Reader, all bool, line func(*MapLine),
) (err error) {
	defer func() {
		if err != nil {
			err = &Error{PID: pid, Op: "read maps", Err: Classify(err)}
		}
	}()
	file, err := OpenRaw(Path(root, pid, "maps"))
	if err != nil {
		return err
	}
	defer file.Close()
	lines.Reset(file)
	var malformed error
	var l MapLine // not one per line: it escapes
	for {
		text, whole, err := NextLine(lines)
		switch {
		case errors.Is(err, io.EOF):
			return malformed
		case err != nil:
			return err
		case whole && !all && isOther(text):
			continue
		}
		err = parseMapLine(text, &l)
		if err == nil && !whole {
			err = fmt.Errorf("%w line of maps: longer than %d bytes", ErrMalformed, maxLine)
		}
		malformed = cmp.Or(malformed, err)
		if err == nil && (all || l.executable) && l.isFile() {
			line(&l)
		}
	}
}

// maxLine bounds a line of maps, and is the size of the buffer that maps is
// read through. The kernel shows paths of up to a page.
const maxLine = 64 << 10

// NewLines returns a buffer to read lines through, which does not grow.
func NewLines(r io.Reader) *bufio.Reader { return bufio.NewReaderSize(r, maxLine) }

// NextLine returns the next line without its newline, valid until the next
// call. whole is false for a line that is longer than the buffer: only its
// beginning is returned. The error is io.EOF at the end.
func NextLine(lines *bufio.Reader) (line []byte, whole bool, err error) {
	line, err = lines.ReadSlice('\n')
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		line = slices.Clone(line[:128]) // enough to recognise the line
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = lines.ReadSlice('\n')
		}
		return line, false, nil
	case err == nil:
		return line[:len(line)-1], true, nil
	case len(line) > 0: // a last line without a newline
		return line, true, nil
	}
	return nil, false, err
}
