// SPDX-License-Identifier: BSD-2-Clause

package stack

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/gousdt/gousdt/internal/deadline"
	"github.com/gousdt/gousdt/internal/procfs"
)

// A perfMap has the functions that a process has made at run time, by its own
// account in /tmp/perf-PID.map. JIT compilers write a line for each, with its
// address, its size and its name. The format is that of Linux' perf
// (tools/perf/Documentation/jit-interface.txt).
type perfMap struct {
	functions []madeFunction // by address; the latest of an address comes last
	widest    uint64         // size of the largest function

	size    int64     // of the file when it was read, in bytes
	changed time.Time // modification time of the file when it was read
}

// madeFunction is a line of a perfMap.
type madeFunction struct {
	start, size uint64
	line        int // number of the line: a later one replaces earlier ones
	name        string
}

const (
	// maxPerfMap bounds the bytes of one map. A large Java program writes some
	// ten megabytes. They take perfMapMemory times as much memory.
	maxPerfMap    = 16 << 20
	perfMapMemory = 3

	// maxPerfName bounds a name in bytes. Java's have the types of all
	// parameters.
	maxPerfName = 1 << 10

	// maxOverlaps bounds the functions that are tried for an address. Functions
	// made at the same place replace each other.
	maxOverlaps = 64
)

// made returns the function at an address that is in no file. It reads the
// process's map again where that has changed: other code may be there now.
func (s *Symbolizer) made(
	ctx context.Context, pid int, address uint64,
) (name string, start uint64, ok bool) {
	p := s.processes[pid]
	if p == nil {
		return "", 0, false
	}
	if p.reading == nil && p.reads.isDue() && s.readers.allowed(p.owner) >= leastTableTime {
		s.startPerfMap(p)
	}
	if p.reading != nil {
		s.await(ctx, p.owner, p.reading)
	}
	return p.made.find(address)
}

func (s *Symbolizer) startPerfMap(p *process) {
	before, room, pid := p.made, p.bytes.left, p.PID
	limit := min(s.readers.allowed(p.owner), tableTime+maxPerfMap*tableTimePerByte)
	p.reading = ask(s, p.owner, limit, func(late func() error) *perfMap {
		return s.readPerfMap(pid, before, room, late)
	}, func(r *reading, made *perfMap) {
		p.reading = nil
		p.reads.done(time.Duration(r.used.Load()), 0)
		if made != nil {
			p.made = *made
			p.bytes.take(int(made.size))
			if s.processes[pid] == p { // it was not forgotten meanwhile
				s.hold(&p.madeHeld, p.owner, perfMapMemory*int(made.size),
					func() { p.made = perfMap{} })
			}
		}
	})
}

// readPerfMap reads the map of a process, in the mount namespace of the process
// and by its PID in its own PID namespace. It returns nil if the file has not
// changed since the map before, has more bytes than the limit, or cannot be
// read.
func (s *Symbolizer) readPerfMap(
	pid int, before perfMap, limit int, late func() error,
) *perfMap {
	own := strconv.Itoa(pid)
	pids, err := procfs.NamespacePIDs(s.fs.Root(), own)
	if err != nil {
		return nil
	}
	if len(pids) > 0 {
		own = pids[len(pids)-1]
	}
	file, err := procfs.OpenIn(s.fs, pid, "/tmp/perf-"+own+".map")
	if err != nil {
		return nil
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil || info.Size() == before.size && info.ModTime().Equal(before.changed) ||
		!s.isOwn(pid, file, info) || info.Size() > int64(min(maxPerfMap, limit)) {
		return nil
	}
	m := parsePerfMap(io.LimitReader(file, info.Size()), late) // it may grow meanwhile
	m.size, m.changed = info.Size(), info.ModTime()
	return &m
}

// isOwn reports whether a file is the process's account of itself: a file of
// another user is not, unless that is root, nor is one that a link leads to.
func (s *Symbolizer) isOwn(pid int, file *os.File, info os.FileInfo) bool {
	at, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", file.Fd()))
	if err != nil || filepath.Base(at) != filepath.Base(file.Name()) {
		return false
	}
	process, err := os.Stat(procfs.Path(s.fs.Root(), pid, ""))
	if err != nil {
		return false
	}
	user, ok := deadline.UserOf(process)
	owner, ok2 := deadline.UserOf(info)
	return ok && ok2 && (owner == user || owner == 0)
}

// parsePerfMap reads the lines of a map: address, size, and as the rest of the
// line the name. Malformed lines are skipped, and the last one if the process
// has not written all of it yet. An error of late, which may be nil, ends it.
func parsePerfMap(r io.Reader, late func() error) perfMap {
	var m perfMap
	lines := bufio.NewReaderSize(r, 64<<10)
	for number := 0; ; number++ {
		line, err := lines.ReadSlice('\n')
		text := string(line)
		for err == bufio.ErrBufferFull {
			_, err = lines.ReadSlice('\n') // the rest of a line of 64 KiB
		}
		if err != nil || late != nil && number%1024 == 0 && late() != nil {
			break
		}
		if f, ok := parseMade(strings.TrimSuffix(text, "\n")); ok {
			f.line = number
			m.functions = append(m.functions, f)
			m.widest = max(m.widest, f.size)
		}
	}
	slices.SortFunc(m.functions, func(a, b madeFunction) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.line, b.line))
	})
	return m
}

func parseMade(line string) (f madeFunction, ok bool) {
	start, rest, _ := strings.Cut(line, " ")
	size, name, _ := strings.Cut(rest, " ")
	var err1, err2 error
	f.start, err1 = strconv.ParseUint(strings.TrimPrefix(start, "0x"), 16, 64)
	f.size, err2 = strconv.ParseUint(strings.TrimPrefix(size, "0x"), 16, 64)
	f.name = strings.Clone(name[:min(len(name), maxPerfName)])
	return f, err1 == nil && err2 == nil && f.name != "" && f.size > 0 && f.start+f.size > f.start
}

// find returns the function at an address: of several the one written last.
func (m *perfMap) find(address uint64) (name string, start uint64, ok bool) {
	i := sort.Search(len(m.functions), func(i int) bool { return m.functions[i].start > address })
	last := -1
	for n := 0; n < maxOverlaps && i > 0; n++ {
		i--
		f := &m.functions[i]
		if address-f.start >= m.widest {
			break
		}
		if address-f.start < f.size && f.line > last {
			name, start, last = f.name, f.start, f.line
		}
	}
	return name, start, last >= 0
}
