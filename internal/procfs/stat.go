// SPDX-License-Identifier: BSD-2-Clause

package procfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
)

// MaxStat bounds the bytes of stat: 1,100 if every number had 20 digits.
const MaxStat = 2 << 10

// Stat has fields of /proc/PID/stat, numbered as in proc(5).
type Stat struct {
	Command     []byte // field 2, without the parentheses; part of the text parsed
	State       byte   // field 3
	Parent      uint64 // field 4
	MinorFaults uint64 // field 10, of all threads, also those that ended
	MajorFaults uint64 // field 12, likewise
	Threads     uint64 // field 20
	StartTime   uint64 // field 22, in clock ticks after boot
	Size        uint64 // field 23, of the address space in bytes; 0 if there is none
	StartCode   uint64 // field 26; 0 or 1 without ptrace access
	StartStack  uint64 // field 28; 0 without ptrace access
}

// parseStat reads the text of /proc/PID/stat. It allocates nothing.
func parseStat(text []byte) (Stat, error) {
	var s Stat
	// The command may hold anything, also ") R 1", except that the last
	// parenthesis is always the kernel's: nothing but numbers follows.
	open, end := bytes.IndexByte(text, '('), bytes.LastIndexByte(text, ')')
	if open < 0 || end < open {
		return Stat{}, fmt.Errorf("%w stat: no command in parentheses", ErrMalformed)
	}
	s.Command = text[open+1 : end]
	rest := text[end+1:]

	numbers := [...]*uint64{4: &s.Parent, 10: &s.MinorFaults, 12: &s.MajorFaults,
		20: &s.Threads, 22: &s.StartTime, 23: &s.Size, 26: &s.StartCode, 28: &s.StartStack}
	for field := 3; field < len(numbers); field++ {
		for len(rest) > 0 && rest[0] == ' ' {
			rest = rest[1:]
		}
		n := 0
		for n < len(rest) && rest[n] != ' ' && rest[n] != '\n' {
			n++
		}
		if n == 0 {
			return Stat{}, fmt.Errorf("%w stat: ends after field %d of 28", ErrMalformed, field-1)
		}
		word := rest[:n]
		rest = rest[n:]
		if field == 3 {
			s.State = word[0]
		}
		if into := numbers[field]; into != nil {
			value, ok := ParseDecimal(word)
			if !ok {
				return Stat{}, fmt.Errorf("%w stat: field %d is not a number", ErrMalformed, field)
			}
			*into = value
		}
	}
	return s, nil
}

// IsLeaderless reports whether the first thread has ended before the others.
// The process then looks like a zombie: what it maps is seen through a thread
// that still runs.
func (s *Stat) IsLeaderless() bool { return s.State == 'Z' && s.Threads > 1 }

// ParseDecimal reads a number without a sign that fills its text.
func ParseDecimal[T string | []byte](text T) (uint64, bool) {
	v, err := strconv.ParseUint(string(text), 10, 64)
	return v, err == nil
}

// ParsePID reads the name of a process's directory.
func ParsePID[T string | []byte](name T) (int, bool) {
	v, ok := ParseDecimal(name)
	// A PID fits 22 bits (PID_MAX_LIMIT); a leading zero would make two names
	// of one process.
	if !ok || v == 0 || v > 1<<30 || name[0] == '0' {
		return 0, false
	}
	return int(v), true
}

// ReadStat reads and parses stat into buf, which is of [MaxStat] bytes and
// holds the command afterwards.
func ReadStat(root string, pid int, buf []byte) (s Stat, err error) {
	file, err := OpenRaw(Path(root, pid, "stat"))
	if IsLack(err) {
		// The end of a process is noticed all the same: it gives back what is
		// lacking.
		if _, gone := os.Lstat(Path(root, pid, "stat")); errors.Is(gone, fs.ErrNotExist) {
			err = gone
		}
	}
	n := 0
	if err == nil {
		defer file.Close()
		// Stopping at the newline saves the read that returns the end.
		for m := 0; err == nil && n < len(buf) && (n == 0 || buf[n-1] != '\n'); n += m {
			m, err = file.Read(buf[n:])
		}
		if err == nil || errors.Is(err, io.EOF) {
			s, err = parseStat(buf[:n])
		}
	}
	if err != nil {
		return Stat{}, &Error{PID: pid, Op: "read stat", Err: Classify(err)}
	}
	return s, nil
}

// ReadLiveStat is ReadStat for the memory of a process. If its first thread has
// ended before others, s is that of another thread, except for the start time.
// reader is the PID or TID whose files show the mappings.
func ReadLiveStat(root string, pid int, buf []byte) (s Stat, reader int, err error) {
	s, err = ReadStat(root, pid, buf)
	if err != nil || !s.IsLeaderless() {
		return s, pid, err
	}
	started := s.StartTime
	dir, err := os.Open(Path(root, pid, "task"))
	if err != nil {
		return s, pid, &Error{PID: pid, Op: "list threads", Err: Classify(err)}
	}
	defer dir.Close()
	for err == nil {
		var names []string
		names, err = dir.Readdirnames(64)
		for _, name := range names {
			tid, ok := ParsePID(name)
			if !ok || tid == pid {
				continue
			}
			switch s, err := ReadStat(root, tid, buf); {
			case IsLack(err):
				return s, pid, err
			case err == nil && s.Size != 0:
				s.StartTime = started
				return s, tid, nil
			}
		}
	}
	if errors.Is(err, io.EOF) {
		err = fmt.Errorf("%w: no thread runs", ErrGone)
	}
	return s, pid, &Error{PID: pid, Op: "list threads", Err: Classify(err)}
}

// Mapping is a part of a file that a process has in its memory, mostly to
// execute it.
type Mapping struct {
	// Start and End are addresses in the process; End is the first one after
	// the mapping.
	Start, End uint64
	// Offset is where in the file the mapping starts, in bytes.
	Offset uint64
	// Writable, Shared and Data say that the process may write there, that the
	// memory is that of the file itself, and that nothing is executed there.
	Writable, Shared, Data bool
}

// Address returns the address in the process of the byte with this offset in
// the file. ok is false if the mapping does not have it.
func (m Mapping) Address(offset uint64) (address uint64, ok bool) {
	if offset < m.Offset || offset-m.Offset >= m.End-m.Start {
		return 0, false
	}
	return m.Start + (offset - m.Offset), true
}
