// SPDX-License-Identifier: BSD-2-Clause

package procwatch

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/gousdt/gousdt/internal/procfs"
)

// mapLine is one line of /proc/PID/maps. The path is part of the text parsed.
type mapLine struct {
	start, end   uint64
	offset       uint64
	inode        uint64
	major, minor uint32
	executable   bool
	writable     bool
	shared       bool
	path         []byte // as written: escapes and " (deleted)" included
}

// deletedSuffix ends the path of a file that has none any more.
const deletedSuffix = " (deleted)"

// isFile reports whether a file is mapped, rather than anonymous memory, [vdso]
// and the like. Only files have a device and an inode number. Their paths start
// with a slash, or are like anon_inode:[perf_event].
func (l *mapLine) isFile() bool { return l.inode != 0 || l.major != 0 || l.minor != 0 }

// parseMapLine reads a line of the form that proc(5) describes,
//
//	7f5c1e000000-7f5c1e1d5000 r-xp 00026000 fe:00 326789     /usr/lib/libc.so.6
//
// without its newline. It allocates nothing unless it fails.
func parseMapLine(line []byte, l *mapLine) error {
	*l = mapLine{}
	var start, end, offset, major, minor, inode bool // that are right
	var device [2]uint64
	l.start, line, start = parseHex(line, '-')
	l.end, line, end = parseHex(line, ' ')
	if len(line) >= 5 && line[4] == ' ' {
		l.writable, l.executable, l.shared = line[1] == 'w', line[2] == 'x', line[3] == 's'
		l.offset, line, offset = parseHex(line[5:], ' ')
	}
	device[0], line, major = parseHex(line, ':')
	device[1], line, minor = parseHex(line, ' ')
	l.major, l.minor = uint32(device[0]), uint32(device[1])
	// The inode is decimal. Blanks up to a fixed column follow if there is a
	// path, which itself may begin with anything but a blank.
	number, path, _ := bytes.Cut(line, []byte(" "))
	l.inode, inode = procfs.ParseDecimal(number)
	l.path = bytes.TrimLeft(path, " ")
	if start && end && offset && major && minor && inode && l.end > l.start &&
		max(device[0], device[1]) < 1<<32 {
		return nil
	}
	return fmt.Errorf("%w line of maps", procfs.ErrMalformed)
}

// isOther reports whether a line is of a mapping that is not executable, as
// three of four are. It looks at the permissions only.
func isOther(text []byte) bool {
	n := bytes.IndexByte(text, ' ')
	return n > 0 && len(text) > n+5 && text[n+5] == ' ' && text[n+3] == '-'
}

// parseHex reads a hexadecimal number up to a separator, and returns the rest
// after it.
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
	root string, pid int, lines *bufio.Reader, all bool, line func(*mapLine),
) (err error) {
	defer func() {
		if err != nil {
			err = &procfs.Error{PID: pid, Op: "read maps", Err: procfs.Classify(err)}
		}
	}()
	file, err := procfs.OpenRaw(procfs.Path(root, pid, "maps"))
	if err != nil {
		return err
	}
	defer file.Close()
	lines.Reset(file)
	var malformed error
	var l mapLine // not one per line: it escapes
	for {
		text, whole, err := nextLine(lines)
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
			err = fmt.Errorf("%w line of maps: longer than %d bytes", procfs.ErrMalformed, maxLine)
		}
		malformed = cmp.Or(malformed, err)
		if err == nil && (all || l.executable) && l.isFile() {
			line(&l)
		}
	}
}

// newLines returns a buffer to read lines through, which does not grow: the
// lines of maps are short, but there may be a million of them.
func newLines(r io.Reader) *bufio.Reader { return bufio.NewReaderSize(r, maxLine) }

// nextLine returns the next line without its newline, valid until the next
// call. whole is false for a line that is longer than the buffer: only its
// beginning is returned. The error is io.EOF at the end.
func nextLine(lines *bufio.Reader) (line []byte, whole bool, err error) {
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
