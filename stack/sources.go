// SPDX-License-Identifier: BSD-2-Clause

package stack

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/gousdt/gousdt/internal/deadline"
	"github.com/gousdt/gousdt/internal/debuginfo"
	"github.com/gousdt/gousdt/internal/elffile"
)

// Limits for finding lines. lines.go has those for a single file.
const (
	// Reading a file may take readingTime, and readingPerByte for each byte of
	// its debug information. Looking up an address may take lookUpTime.
	readingTime    = 500 * time.Millisecond
	readingPerByte = 100 * time.Millisecond / (1 << 20)
	lookUpTime     = 250 * time.Millisecond

	// The time for all files and addresses of a process, and the time that each
	// stack adds up to that.
	processLineTime  = 20 * time.Second
	lineTimePerStack = time.Millisecond

	maxLineRequests = 1 << 16 // requests that wait

	lineTurn      = 100 * time.Millisecond // of an owner, until it is the others' turn
	lineWait      = 100 * time.Millisecond // of Frames
	mostLineWait  = time.Minute            // of Want, and of a profile when it is written
	freeLineWaits = time.Second            // for waits of Frames, see pace
)

// lineReader finds the lines of addresses, in the background. The lock is that
// of the Symbolizer.
type lineReader struct {
	readers readers
	todo    map[string]*lineRequests // by owner
	waiting int                      // requests of all
	waits   pace                     // see waitForLines
}

// lineRequests are those of an owner.
type lineRequests struct {
	todo []lineRequest
	idle chan struct{} // closed when there are no more
}

// lineFile has the lines of a file.
type lineFile struct {
	owner   string
	elf     *debuginfo.File        // may be closed; nil for a debug file
	open    func() *debuginfo.File // returns nil if it fails
	buildID string
	moved   uint64 // see [debuginfo.File.Moved]

	use    sync.Mutex          // info is being read, or made; taken before the lock
	isRead bool                // reading was tried
	isGone bool                // the file was forgotten: nothing of it is wanted any more
	info   *debugInfo          // nil if there is none
	known  map[uint64][]source // by address; a nil value has been asked for and has not come

	infoHeld, knownHeld holding // the memory of info and known
}

// lineRequest asks for the lines of an address of a file.
type lineRequest struct {
	*lineFile
	address uint64
	payer   *process
}

// lineFiles returns a function that prepares to read the lines of a file: from
// its debug file, if that is not nil and has them, else from the file. The
// function returns nil if neither has lines, or none are wanted.
func (f *file) lineFiles(areWanted bool) func(debug *debuginfo.File) *lineFile {
	file, mapped, buildID, owner := f.elf, f.mapped, f.buildID, f.owner
	return func(debug *debuginfo.File) *lineFile {
		switch {
		case !areWanted:
		case debug != nil && hasDebugInfo(debug) && buildID != "":
			path := debug.Name
			open := func() *debuginfo.File {
				opened, _ := debuginfo.Open(path) // nil with an error
				return opened
			}
			return &lineFile{owner: owner, open: open, buildID: buildID, moved: debug.Moved}
		case file != nil && hasDebugInfo(file):
			return &lineFile{owner: owner, elf: file, buildID: buildID,
				open: func() *debuginfo.File { return open(mapped).elf }}
		}
		return nil
	}
}

// want asks for the lines of an address, and returns them if they are known. If
// it returns none and isKnown is true, there will be none.
func (s *Symbolizer) want(
	f *lineFile, address uint64, payer *process,
) (found []source, isKnown bool) {
	found, isAsked := f.known[address]
	if isAsked {
		return found, found != nil
	}
	l := &s.lines
	of := l.todo[payer.owner]
	if of != nil && len(of.todo) == maxLineRequests/maxReading || l.waiting >= maxLineRequests ||
		s.refuses(f, payer) {
		return nil, true
	}
	if f.known == nil {
		f.known = make(map[uint64][]source)
	}
	f.known[address] = nil
	if of == nil {
		of = &lineRequests{idle: make(chan struct{})}
		if l.todo == nil {
			l.todo = make(map[string]*lineRequests)
		}
		l.todo[payer.owner] = of
		l.readers.start(payer.owner, func(r *reading) { s.answer(r, of) })
	}
	of.todo = append(of.todo, lineRequest{f, address, payer})
	l.waiting++
	return nil, false
}

// refuses reports whether a file has no lines for a process now.
func (s *Symbolizer) refuses(f *lineFile, payer *process) bool {
	return s.isClosed || f.isGone || f.isRead && f.info == nil || payer.lineTime <= 0 ||
		payer.bytes.left <= 0
}

// awaitLines waits until there are no more requests of some owners, or of any
// if none is named, or the context ends. The caller does not hold the lock.
func (s *Symbolizer) awaitLines(ctx context.Context, owners ...string) {
	s.mutex.Lock()
	if len(owners) == 0 {
		owners = slices.Collect(maps.Keys(s.lines.todo))
	}
	var idle []chan struct{}
	for _, owner := range owners {
		if of := s.lines.todo[owner]; of != nil {
			idle = append(idle, of.idle)
		}
	}
	s.unlock()
	for _, idle := range idle {
		select {
		case <-idle:
		case <-ctx.Done():
			return
		}
	}
}

// waitForLines waits for the lines of an owner for up to lineWait, unless the
// waits before have used up their share of the time. It releases the lock.
func (s *Symbolizer) waitForLines(ctx context.Context, owner string) {
	if !s.lines.waits.isDue() {
		return
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, lineWait)
	defer cancel()
	s.unlock()
	s.awaitLines(ctx, owner)
	s.mutex.Lock()
	s.lines.waits.done(time.Since(began), freeLineWaits)
}

// answer answers the requests of an owner until there are no more, or
// lineTurn is over: then others have their turn.
func (s *Symbolizer) answer(r *reading, of *lineRequests) {
	until := time.Now().Add(lineTurn)
	s.mutex.Lock()
	defer s.unlock()
	for len(of.todo) > 0 {
		if time.Now().After(until) {
			s.lines.readers.start(r.owner, func(r *reading) { s.answer(r, of) })
			return
		}
		request := of.todo[0]
		of.todo = of.todo[1:]
		s.lines.waiting--
		if s.refuses(request.lineFile, request.payer) {
			delete(request.known, request.address) // it may be asked for again
			continue
		}
		began := time.Now()
		s.unlock()
		found := s.findLines(request)
		s.mutex.Lock()
		took := time.Since(began)
		request.payer.lineTime -= took
		r.used.Add(int64(took))
		s.keepLines(request, found)
	}
	close(of.idle)
	delete(s.lines.todo, r.owner)
}

// findLines finds the lines that a request asks for. The caller does not hold
// the lock.
func (s *Symbolizer) findLines(request lineRequest) []source {
	request.use.Lock() // another owner may have asked for the same file
	defer request.use.Unlock()
	s.mutex.Lock()
	if !request.isRead {
		s.readLines(request)
	}
	info := request.info
	s.unlock()
	if info == nil {
		return nil
	}
	found, _ := info.at(request.address, time.Now().Add(lookUpTime)) // none if that fails
	return found
}

func (s *Symbolizer) keepLines(request lineRequest, found []source) {
	size := 64
	for _, at := range found {
		size += 64 + len(at.function) + len(at.file)
	}
	request.payer.bytes.left -= size
	f := request.lineFile
	if f.known == nil || f.isGone || s.isClosed { // it was dropped meanwhile
		return
	}
	f.known[request.address] = append([]source{}, found...)
	s.hold(&f.knownHeld, f.owner, f.knownHeld.bytes+size, func() { f.known = nil })
}

// readLines reads the debug information of a file. It releases the lock
// meanwhile.
func (s *Symbolizer) readLines(request lineRequest) {
	f, payer := request.lineFile, request.payer
	f.isRead = true
	limit, elf := payer.lineTime, f.elf
	s.unlock()
	answer := deadline.Answer(&s.unanswered, payer.owner, limit+deadline.Names,
		func() *debugInfo { return f.read(elf, limit) })
	s.mutex.Lock()
	if answer == nil || f.isGone || s.isClosed {
		return
	}
	f.info = answer
	// What is dropped is not read again; lines that are known stay.
	s.hold(&f.infoHeld, f.owner, answer.size+maxUnitTables/16, func() { f.elf, f.info = nil, nil })
}

// read returns the debug information of the file, nil if that cannot be read
// within the limit.
func (f *lineFile) read(elf *debuginfo.File, limit time.Duration) *debugInfo {
	read := func(elf *debuginfo.File) (*debugInfo, error) {
		limit := min(readingTime+time.Duration(elf.DWARFBytes())*readingPerByte, limit)
		return readDebugInfo(elf, time.Now().Add(limit))
	}
	if elf != nil {
		// It is closed if many files have been opened since.
		if info, err := read(elf); !errors.Is(err, os.ErrClosed) {
			return info // nil with an error
		}
	}
	opened := f.open()
	if opened == nil {
		return nil
	}
	defer elffile.OSFile(opened).Close()
	if id, _ := opened.BuildID(); id != f.buildID {
		return nil
	}
	opened.Moved = f.moved
	info, _ := read(opened) // nil with an error
	return info
}

// linesAt returns the sources of the code at a spot. If isKnown is false, they
// may come later.
func (s *Symbolizer) linesAt(at spot) (found []source, isKnown bool) {
	p, f := s.processes[at.pid], at.file
	if p == nil || f == nil || f.lines == nil {
		return nil, true
	}
	segment := f.segment(at.offset)
	if segment == nil {
		return nil, true
	}
	return s.want(f.lines, segment.Address+(at.offset-segment.Offset), p)
}

// text returns FILE:LINE, or FILE if the line is not known, or "".
func (s source) text() string {
	switch {
	case s.file == "":
		return ""
	case s.line == 0:
		return s.file
	}
	return fmt.Sprintf("%s:%d", s.file, s.line)
}
