// SPDX-License-Identifier: BSD-2-Clause

package proc

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// stat is what this package wants from /proc/PID/stat, numbered as in proc(5).
type stat struct {
	command     []byte // field 2, without the parentheses; part of the text parsed
	state       byte   // field 3
	parent      uint64 // field 4
	minorFaults uint64 // field 10, of all threads, also those that ended
	majorFaults uint64 // field 12, likewise
	threads     uint64 // field 20
	startTime   uint64 // field 22, in clock ticks after boot
	size        uint64 // field 23, of the address space in bytes; 0 if there is none
	startCode   uint64 // field 26; 0 or 1 without ptrace access
	startStack  uint64 // field 28; 0 without ptrace access
}

// parseStat reads the text of /proc/PID/stat. It allocates nothing.
func parseStat(text []byte) (stat, error) {
	var s stat
	// The command may hold anything, also ") R 1", except that the last
	// parenthesis is always the kernel's: nothing but numbers follows.
	open, end := bytes.IndexByte(text, '('), bytes.LastIndexByte(text, ')')
	if open < 0 || end < open {
		return stat{}, fmt.Errorf("%w stat: no command in parentheses", errMalformed)
	}
	s.command = text[open+1 : end]
	rest := text[end+1:]

	field := 2
	for field < 28 {
		for len(rest) > 0 && rest[0] == ' ' {
			rest = rest[1:]
		}
		n := 0
		for n < len(rest) && rest[n] != ' ' && rest[n] != '\n' {
			n++
		}
		if n == 0 {
			return stat{}, fmt.Errorf("%w stat: ends after field %d of 28", errMalformed, field)
		}
		field++
		word := rest[:n]
		rest = rest[n:]

		var into *uint64
		switch field {
		case 3:
			s.state = word[0]
		case 4:
			into = &s.parent
		case 10:
			into = &s.minorFaults
		case 12:
			into = &s.majorFaults
		case 20:
			into = &s.threads
		case 22:
			into = &s.startTime
		case 23:
			into = &s.size
		case 26:
			into = &s.startCode
		case 28:
			into = &s.startStack
		}
		if into != nil {
			value, ok := parseDecimal(word)
			if !ok {
				return stat{}, fmt.Errorf("%w stat: field %d is not a number", errMalformed, field)
			}
			*into = value
		}
	}
	return s, nil
}

// hasNoMemory reports whether the process cannot map anything: it is a thread
// of the kernel, or has ended but is still to be waited for.
func (s *stat) hasNoMemory() bool { return s.size == 0 && !s.isLeaderless() }

// isLeaderless reports whether the first thread has ended before the others.
// The process then looks like a zombie: what it maps is seen through a thread
// that still runs.
func (s *stat) isLeaderless() bool { return s.state == 'Z' && s.threads > 1 }

// parseDecimal reads a number without a sign that fills its text.
func parseDecimal[T string | []byte](text T) (uint64, bool) {
	if len(text) == 0 || len(text) > 20 {
		return 0, false
	}
	var v uint64
	for i := range len(text) {
		digit := text[i] - '0'
		if digit > 9 {
			return 0, false
		}
		next := v*10 + uint64(digit)
		if v > (1<<64-1)/10 || next < v*10 {
			return 0, false
		}
		v = next
	}
	return v, true
}

// parsePID reads the name of a process's directory.
func parsePID[T string | []byte](name T) (int, bool) {
	v, ok := parseDecimal(name)
	// A PID fits 22 bits (PID_MAX_LIMIT); a leading zero would make two names
	// of one process.
	if !ok || v == 0 || v > 1<<30 || name[0] == '0' {
		return 0, false
	}
	return int(v), true
}

// readStat reads and parses stat into buf, which is of maxStat bytes and holds
// the command afterwards.
func (f *FS) readStat(pid int, buf []byte) (stat, error) {
	file, err := openRaw(f.path(pid, "stat"))
	if isLack(err) {
		// That a process has ended is to be noticed all the same: it gives
		// back what is lacking.
		if _, gone := os.Lstat(f.path(pid, "stat")); errors.Is(gone, fs.ErrNotExist) {
			err = gone
		}
	}
	if err != nil {
		return stat{}, &Error{PID: pid, Op: "read stat", Err: classify(err)}
	}
	defer file.Close()
	n := 0
	for n < len(buf) {
		m, err := file.Read(buf[n:])
		n += m
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return stat{}, &Error{PID: pid, Op: "read stat", Err: classify(err)}
		}
		if n > 0 && buf[n-1] == '\n' { // saves the read that tells the end
			break
		}
	}
	s, err := parseStat(buf[:n])
	if err != nil {
		return stat{}, &Error{PID: pid, Op: "read stat", Err: err}
	}
	return s, nil
}
