// SPDX-License-Identifier: BSD-2-Clause

// Package archive reads the members of static libraries: archives of object
// files, as ar(1) writes them. Archives are untrusted: all sizes are checked,
// and nothing is held in memory but the names.
package archive

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"strconv"
	"strings"
)

// An archive begins with one of these. The members of a thin one are files of
// their own.
const (
	magic     = "!<arch>\n"
	thinMagic = "!<thin>\n"
)

// A member has a header of texts that are padded with blanks: its name, when it
// was made, by whom, with which permissions, its size, and an end mark. The
// data follow, padded to 2 bytes.
const (
	headerSize = 60
	nameSize   = 16
	sizeAt     = 48
	endAt      = 58
	endMark    = "`\n"
)

const (
	// maxMembers bounds the members: the largest static libraries have some ten
	// thousand.
	maxMembers = 1 << 20

	// maxNames bounds the table of long names, which is held in memory.
	maxNames = 64 << 20

	// maxName bounds a member's name: PATH_MAX, for that of a thin archive is a
	// path.
	maxName = 4096
)

// ErrMalformed says that an archive cannot be read to its end.
var ErrMalformed = errors.New("malformed archive")

// A Member is a file in an archive.
type Member struct {
	Name string
	// Contents is nil in a thin archive: Name is then the path of the file,
	// from the archive's directory.
	Contents *io.SectionReader
}

// Is reports whether a file is an archive.
func Is(r io.ReaderAt) bool {
	var b [len(magic)]byte
	_, err := r.ReadAt(b[:], 0)
	return err == nil && IsMagic(b[:])
}

// IsMagic reports whether a file that begins with these bytes is an archive.
func IsMagic(b []byte) bool {
	return bytes.HasPrefix(b, []byte(magic)) || bytes.HasPrefix(b, []byte(thinMagic))
}

// Members yields the members in order, without the tables of symbols and names.
// An error is the last: it wraps ErrMalformed, or is one of the reader. The
// contents of all members are read by one goroutine at a time.
func Members(r io.ReaderAt) iter.Seq2[Member, error] {
	return func(yield func(Member, error) bool) {
		r := &window{file: r}
		var b [len(magic)]byte
		if _, err := r.ReadAt(b[:], 0); err != nil {
			yield(Member{}, err)
			return
		}
		a := reader{file: r, at: int64(len(magic)), thin: string(b[:]) == thinMagic}
		for range maxMembers {
			member, ok, err := a.next()
			switch {
			case err == errEnd:
				return
			case err != nil:
				yield(Member{}, fmt.Errorf("member at offset %#x: %w", a.at, err))
				return
			case ok && !yield(member, nil):
				return
			}
		}
		yield(Member{}, fmt.Errorf("%w: more than %d members", ErrMalformed, maxMembers))
	}
}

type reader struct {
	file  io.ReaderAt
	at    int64 // of the next header
	thin  bool
	names string // the table of long names, "" if there has been none
}

var errEnd = errors.New("end of the archive")

// next reads a header. It reports false for a table, and errEnd at the end.
func (a *reader) next() (member Member, ok bool, err error) {
	var header [headerSize]byte
	switch n, err := a.file.ReadAt(header[:], a.at); {
	case n == 0 && errors.Is(err, io.EOF):
		return Member{}, false, errEnd
	case n < headerSize && (err == nil || errors.Is(err, io.EOF)):
		return Member{}, false, fmt.Errorf("%w: it ends in a header", ErrMalformed)
	case n < headerSize:
		return Member{}, false, err
	}
	if string(header[endAt:]) != endMark {
		return Member{}, false, fmt.Errorf("%w: a header has no end mark", ErrMalformed)
	}
	size, err := strconv.ParseInt(strings.TrimRight(string(header[sizeAt:endAt]), " "), 10, 64)
	if err != nil || size < 0 {
		return Member{}, false, fmt.Errorf("%w: size %q", ErrMalformed, header[sizeAt:endAt])
	}
	data := a.at + headerSize
	name := strings.TrimRight(string(header[:nameSize]), " ")
	isTable := name == "/" || name == "//" || name == "/SYM64/"
	next := data
	if !a.thin || isTable {
		next += size + size&1
	}
	switch {
	case name == "//":
		if size > maxNames {
			return Member{}, false, fmt.Errorf("%w: %d bytes of names", ErrMalformed, size)
		}
		names, err := io.ReadAll(io.NewSectionReader(a.file, data, size))
		if err != nil {
			return Member{}, false, err
		}
		a.names = string(names)
	case isTable:
	default:
		if name, data, size, err = a.name(name, data, size); err != nil {
			return Member{}, false, err
		}
		member, ok = Member{Name: name}, true
		if !a.thin {
			member.Contents = io.NewSectionReader(a.file, data, size)
		}
	}
	a.at = next
	return member, ok, nil
}

// name returns a member's name. A long one stands in the table, or in front of
// the member's data, which it then returns without it.
func (a *reader) name(short string, data, size int64) (string, int64, int64, error) {
	if length, ok := strings.CutPrefix(short, "#1/"); ok { // BSD
		n, err := strconv.ParseInt(length, 10, 64)
		if err != nil || n < 0 || n > min(size, maxName) {
			return "", 0, 0, fmt.Errorf("%w: name %q", ErrMalformed, short)
		}
		name := make([]byte, n)
		if _, err := a.file.ReadAt(name, data); err != nil {
			return "", 0, 0, fmt.Errorf("%w: name %q: %w", ErrMalformed, short, err)
		}
		return strings.TrimRight(string(name), "\x00"), data + n, size - n, nil
	}
	if place, ok := strings.CutPrefix(short, "/"); ok { // GNU
		place, _, _ = strings.Cut(place, ":") // a member of an archive in a thin one
		n, err := strconv.ParseUint(place, 10, 32)
		if err != nil || n >= uint64(len(a.names)) {
			return "", 0, 0, fmt.Errorf("%w: name %q", ErrMalformed, short)
		}
		name, _, found := strings.Cut(a.names[n:min(n+maxName, uint64(len(a.names)))], "\n")
		if !found {
			return "", 0, 0, fmt.Errorf("%w: name %q has no end", ErrMalformed, short)
		}
		return strings.TrimSuffix(name, "/"), data, size, nil
	}
	return strings.TrimSuffix(short, "/"), data, size, nil
}
