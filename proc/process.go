// SPDX-License-Identifier: BSD-2-Clause

package proc

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// maxCgroup bounds what is read of /proc/PID/cgroup: up to a dozen hierarchies,
// whose paths are at most 4,096 bytes long each.
const maxCgroup = 64 << 10

// ProcessID identifies a process for as long as the machine runs: PIDs
// are used again, but not with the same start time. It can be compared and be a
// map key.
type ProcessID struct {
	// PID is the number of the process in the namespace of the [FS].
	PID int
	// StartTime is when the process was forked, in clock ticks (100 a second)
	// after boot, as field 22 of /proc/PID/stat. exec does not change it.
	StartTime uint64
}

// Process is a process as it was when it was read.
type Process struct {
	ProcessID
	// Parent is the PID of the parent, 0 if that is not in the namespace.
	Parent int
	// Command is the name of the first thread, of at most 15 bytes: that of the
	// executable, unless the process chose another.
	Command string

	fs *FS
}

// Process returns what stat says about a process. The error is an [*Error]
// that may wrap [ErrGone] or [ErrAccess].
func (f *FS) Process(pid int) (Process, error) {
	s, err := f.readStat(pid, make([]byte, maxStat))
	if err != nil {
		return Process{}, err
	}
	return f.process(pid, &s), nil
}

func (f *FS) process(pid int, s *stat) Process {
	return Process{
		ProcessID: ProcessID{PID: pid, StartTime: s.startTime},
		Parent:    int(s.parent),
		Command:   string(s.command),
		fs:        f,
	}
}

// IsRunning reports whether the process still exists, rather than another one
// that got its PID. A zombie does not run. The error says why it could not be
// found out.
func (p Process) IsRunning() (bool, error) {
	s, err := p.fs.readStat(p.PID, make([]byte, maxStat))
	switch {
	case err == nil:
		return s.startTime == p.StartTime && !s.hasNoMemory(), nil
	case errors.Is(err, ErrGone):
		return false, nil
	}
	return false, err
}

// Executable returns the path of the program that the process runs, as the
// process sees it. " (deleted)" is appended if there is nothing at that path
// any more. It needs access to the process.
func (p Process) Executable() (string, error) {
	path, err := os.Readlink(p.fs.path(p.PID, "exe"))
	if err != nil {
		return "", &Error{PID: p.PID, Op: "read link exe", Err: classify(err)}
	}
	return p.fs.insideRoot(p.PID, path), nil
}

// Cgroup returns the text of /proc/PID/cgroup, a line per hierarchy, see
// cgroups(7). Runtimes put the ID of a container there.
func (p Process) Cgroup() (string, error) {
	file, err := openRaw(p.fs.path(p.PID, "cgroup"))
	if err != nil {
		return "", &Error{PID: p.PID, Op: "read cgroup", Err: classify(err)}
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxCgroup))
	if err != nil {
		return "", &Error{PID: p.PID, Op: "read cgroup", Err: classify(err)}
	}
	return string(text), nil
}

// Owner returns a text that is the same for all processes among which costs and
// limits are shared: those of a container, else of the slice of a user, else of
// a cgroup and user. Making cgroups and users of its own gives a container or
// user no second owner.
func (p Process) Owner() string { return p.fs.owner(p.PID) }

// String returns PID and command: "1234 (postgres)".
func (p Process) String() string { return fmt.Sprintf("%d (%s)", p.PID, p.Command) }

// liveThread returns a thread of the process that has not ended, by whose
// number proc shows what it can no longer show by the process's. It is asked
// for processes whose first thread has ended.
func (f *FS) liveThread(pid int, buf []byte) (int, stat, error) {
	dir, err := os.Open(f.path(pid, "task"))
	if err != nil {
		return 0, stat{}, &Error{PID: pid, Op: "list threads", Err: classify(err)}
	}
	defer dir.Close()
	for {
		names, err := dir.Readdirnames(64)
		for _, name := range names {
			tid, ok := parsePID(name)
			if !ok || tid == pid {
				continue
			}
			if s, err := f.readStat(tid, buf); err == nil && s.size != 0 {
				return tid, s, nil
			}
		}
		if err != nil {
			return 0, stat{}, &Error{PID: pid, Op: "list threads",
				Err: fmt.Errorf("%w: no thread runs", ErrGone)}
		}
	}
}

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

// Registers are the registers of a thread at some moment. Package trace
// delivers them with a copy of the stack, from which package stack unwinds it.
type Registers struct {
	// Machine is the machine of the kernel. The registers of a 32-bit program
	// are those of the 64-bit machine, too.
	Machine elf.Machine
	// PC is the address of the instruction in the process, and SP the stack
	// pointer.
	PC, SP uint64
	// General are the general registers, by the numbers that DWARF gives them.
	// x86-64: rax, rdx, rcx, rbx, rsi, rdi, rbp, rsp, r8 to r15; arm64: x0 to
	// x30, sp; riscv64: x0 to x31; s390x: r0 to r15.
	General []uint64
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
