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
	processLineBytes = 32 << 20 // of lines that are known

	maxLineRequests = 1 << 16   // requests that wait
	maxLinesHeld    = 512 << 20 // bytes of debug information in memory
	maxLinesKnown   = 256 << 20 // bytes of lines that are known, of all processes

	lineTurn      = 100 * time.Millisecond // of an owner, until it is the others' turn
	lineWait      = 100 * time.Millisecond // of Frames
	mostLineWait  = time.Minute            // of Want, and of a profile when it is written
	freeLineWaits = time.Second            // for waits of Frames, see pace
)

// lineReader finds the lines of addresses, in the background.
type lineReader struct {
	readers readers

	mutex    sync.Mutex
	todo     map[string]*lineRequests // by owner
	waiting  int                      // requests of all
	loaded   []*lineFile
	known    int // bytes of lines that are known
	isClosed bool

	waits pace // of Symbolizer.waitForLines, under its lock
}

// lineRequests are those of an owner.
type lineRequests struct {
	todo []lineRequest
	idle chan struct{} // closed when there are no more
}

// lineFile has the lines of a file.
type lineFile struct {
	elf     *debuginfo.File        // may be closed; nil for a debug file
	open    func() *debuginfo.File // returns nil if it fails
	buildID string
	moved   uint64 // see [debuginfo.File.Moved]

	use    sync.Mutex          // info is being read, or made
	isRead bool                // reading was tried
	isGone bool                // it was dropped: what is being read is not wanted any more
	info   *debugInfo          // nil if there is none
	known  map[uint64][]source // by address; a nil value has been asked for and has not come
	size   int                 // of known, in bytes
}

// lineRequest asks for the lines of an address of a file.
type lineRequest struct {
	*lineFile
	address uint64
	payer   *lineAccount
}

// lineAccount is the budget of a process.
type lineAccount struct {
	owner string // the container or user of the process
	time  time.Duration
	bytes int
}

// earn adds the time that a stack may take to the account of its process, which
// may be nil.
func (l *lineReader) earn(a *lineAccount) {
	if a != nil {
		l.mutex.Lock()
		defer l.mutex.Unlock()
		a.time = min(a.time+lineTimePerStack, processLineTime)
	}
}

// lineFiles returns a function that prepares to read the lines of a file: from
// its debug file, if that is not nil and has them, else from the file. The
// function returns nil if neither has lines, or none are wanted.
func (f *file) lineFiles(areWanted bool) func(debug *debuginfo.File) *lineFile {
	file, mapped, buildID := f.elf, f.mapped, f.buildID
	return func(debug *debuginfo.File) *lineFile {
		switch {
		case !areWanted:
		case debug != nil && hasDebugInfo(debug) && buildID != "":
			path := debug.Name()
			open := func() *debuginfo.File {
				opened, _ := debuginfo.Open(path) // nil with an error
				return opened
			}
			return &lineFile{open: open, buildID: buildID, moved: debug.Moved()}
		case file != nil && hasDebugInfo(file):
			return &lineFile{elf: file, buildID: buildID,
				open: func() *debuginfo.File { return open(mapped).elf }}
		}
		return nil
	}
}

// want asks for the lines of an address, and returns them if they are known. If
// it returns none and isKnown is true, there will be none.
func (l *lineReader) want(
	f *lineFile, address uint64, payer *lineAccount,
) (found []source, isKnown bool) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	found, isAsked := f.known[address]
	if isAsked {
		return found, found != nil
	}
	of := l.todo[payer.owner]
	if of != nil && len(of.todo) == maxLineRequests/maxReading || l.waiting >= maxLineRequests ||
		l.refuses(f, payer) {
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
		l.readers.start(payer.owner, func(r *reading) { l.answer(r, of) })
	}
	of.todo = append(of.todo, lineRequest{f, address, payer})
	l.waiting++
	return nil, false
}

// refuses reports whether a file has no lines for a process now. The caller
// holds the lock.
func (l *lineReader) refuses(f *lineFile, payer *lineAccount) bool {
	return l.isClosed || f.isRead && f.info == nil || payer.time <= 0 || payer.bytes <= 0 ||
		l.known > maxLinesKnown
}

// wait waits until there are no more requests of some owners, or of any if none
// is named, or the context ends.
func (l *lineReader) wait(ctx context.Context, owners ...string) {
	l.mutex.Lock()
	if len(owners) == 0 {
		owners = slices.Collect(maps.Keys(l.todo))
	}
	var idle []chan struct{}
	for _, owner := range owners {
		if of := l.todo[owner]; of != nil {
			idle = append(idle, of.idle)
		}
	}
	l.mutex.Unlock()
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
	l := s.files.lines
	if !l.waits.isDue() {
		return
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, lineWait)
	defer cancel()
	s.unlock()
	l.wait(ctx, owner)
	s.mutex.Lock()
	l.waits.done(time.Since(began), freeLineWaits)
}

// close drops all requests and debug information. A request that is being
// answered ends in the background.
func (l *lineReader) close() {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.isClosed = true // no request is answered any more
	for len(l.loaded) > 0 {
		l.forget(l.loaded[0])
	}
}

// answer answers the requests of an owner until there are no more, or
// lineTurn is over: then others have their turn.
func (l *lineReader) answer(r *reading, of *lineRequests) {
	until := time.Now().Add(lineTurn)
	l.mutex.Lock()
	defer l.mutex.Unlock()
	for len(of.todo) > 0 {
		if time.Now().After(until) {
			l.readers.start(r.owner, func(r *reading) { l.answer(r, of) })
			return
		}
		request := of.todo[0]
		of.todo = of.todo[1:]
		l.waiting--
		if l.refuses(request.lineFile, request.payer) {
			delete(request.known, request.address) // it may be asked for again
			continue
		}
		began := time.Now()
		l.answerOne(request)
		took := time.Since(began)
		request.payer.time -= took
		r.used.Add(int64(took))
	}
	close(of.idle)
	delete(l.todo, r.owner)
}

// answerOne answers a request. The caller holds the lock, which answerOne
// releases while it reads.
func (l *lineReader) answerOne(request lineRequest) {
	l.mutex.Unlock()
	request.use.Lock() // another owner may have asked for the same file
	defer request.use.Unlock()
	l.mutex.Lock()
	if !request.isRead {
		l.read(request)
	}
	found := []source{}
	if info := request.info; info != nil {
		until := time.Now().Add(lookUpTime)
		l.mutex.Unlock()
		sources, _ := info.at(request.address, until) // no lines if that fails
		l.mutex.Lock()
		found = append(found, sources...)
	}
	size := 64
	for _, s := range found {
		size += 64 + len(s.function) + len(s.file)
	}
	request.payer.bytes -= size
	if request.known != nil { // the file was not dropped meanwhile
		request.size += size
		l.known += size
		request.known[request.address] = found
	}
}

// read reads the debug information of a file. The caller holds the lock, which
// read releases while it reads.
func (l *lineReader) read(request lineRequest) {
	f, payer := request.lineFile, request.payer
	f.isRead = true
	limit, elf := payer.time, f.elf
	l.mutex.Unlock()
	var answer *debugInfo // an abandoned call writes it whenever it likes
	isAnswered := len(l.readers.unanswered.Ask(payer.owner, limit+deadline.Names, 1,
		func(int) { answer = f.read(elf, limit) }, nil)) == 1
	l.mutex.Lock()
	if !isAnswered || answer == nil || f.isGone || l.isClosed {
		return
	}
	f.info = answer
	l.loaded = append(l.loaded, f)
	held := 0
	for _, other := range l.loaded {
		held += other.info.size + maxUnitTables/16
	}
	for held > maxLinesHeld {
		largest := slices.MaxFunc(l.loaded,
			func(a, b *lineFile) int { return a.info.size - b.info.size })
		held -= largest.info.size + maxUnitTables/16
		l.forget(largest)
	}
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
	defer opened.OSFile().Close()
	if id, _ := opened.BuildID(); id != f.buildID {
		return nil
	}
	opened.SetMoved(f.moved)
	info, _ := read(opened) // nil with an error
	return info
}

// forget drops the debug information of a file, but not the lines that are
// known. It is not read again. The caller holds the lock.
func (l *lineReader) forget(f *lineFile) {
	f.elf, f.info, f.isRead, f.isGone = nil, nil, true, true
	l.loaded = slices.DeleteFunc(l.loaded, func(other *lineFile) bool { return other == f })
}

// drop drops all of a file, which may be nil. It takes the lock.
func (l *lineReader) drop(f *lineFile) {
	if f != nil {
		l.mutex.Lock()
		defer l.mutex.Unlock()
		l.forget(f)
		l.known -= f.size
		f.known, f.size = nil, 0
	}
}

// lines returns the sources of the code at a spot. If isKnown is false, they
// may come later.
func (s *Symbolizer) lines(at spot) (found []source, isKnown bool) {
	p, f := s.processes[at.pid], at.file
	if p == nil || f == nil || f.lines == nil {
		return nil, true
	}
	segment := f.segment(at.offset)
	if segment == nil {
		return nil, true
	}
	if p.lines == nil {
		p.lines = &lineAccount{owner: p.owner, time: processLineTime, bytes: processLineBytes}
	}
	return s.files.lines.want(f.lines, segment.Address+(at.offset-segment.Offset), p.lines)
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
