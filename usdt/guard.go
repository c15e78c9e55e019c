// SPDX-License-Identifier: BSD-2-Clause

package usdt

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"syscall"
	"time"
	"weak"

	"github.com/gousdt/gousdt/internal/attaching"
	"github.com/gousdt/gousdt/internal/sys"
)

// ErrWritten means that a file is being written to, or has been since its
// probes were read. Nothing is attached to it any more: a breakpoint would get
// into other code. Attach to it again once it has been written.
var ErrWritten = errors.New("the file is written to, and was detached")

// A guard detaches everything from an open file before it is written to. It is
// shared by the selections of the file and the links made from them.
type guard struct {
	name      string
	lease     *attaching.Lease
	closeFile func() // that the lease is on

	// attaching is held for reading while something is attached, so that what
	// detaches misses nothing.
	attaching sync.RWMutex
	written   error // wraps ErrWritten, nil before

	mu      sync.Mutex
	holders map[*holder]struct{}
	onWrite func() // called once everything is detached
}

// A holder keeps a guard: an open file, or a link. A link is referred to
// weakly, so that one that is forgotten is detached by the garbage collector.
type holder struct {
	guard *guard
	link  weak.Pointer[Link] // of a link
}

// newGuard guards a file by a descriptor that closeFile closes. With hold,
// writers wait until everything is detached, if the file system has leases.
// onWrite is called once that is done.
func newGuard(name string, fd int, hold bool, closeFile, onWrite func()) *holder {
	g := &guard{name: name, closeFile: closeFile, onWrite: onWrite,
		holders: make(map[*holder]struct{})}
	opened := &holder{guard: g}
	g.holders[opened] = struct{}{}
	g.attaching.Lock() // until there is a lease
	g.lease = attaching.Take(fd, hold, g.detach)
	g.attaching.Unlock()
	return opened
}

// add makes a link keep the guard.
func (g *guard) add(l *Link) {
	l.holder = &holder{guard: g, link: weak.Make(l)}
	g.mu.Lock()
	g.holders[l.holder] = struct{}{}
	g.mu.Unlock()
	runtime.AddCleanup(l, (*holder).release, l.holder)
}

// release lets a guard go. The last holder gives the lease back.
func (h *holder) release() {
	g := h.guard
	g.mu.Lock()
	_, held := g.holders[h]
	delete(g.holders, h)
	last := held && len(g.holders) == 0
	g.mu.Unlock()
	if last {
		g.giveBack()
	}
}

const longestStart = time.Second

// giveBack lets writers go on once no child of this program has a link that is
// closed: it has them until it executes its own program, and while one process
// has a link, that is attached. A file system may hold such a child up.
func (g *guard) giveBack() {
	for until := time.Now().Add(longestStart); time.Now().Before(until); time.Sleep(time.Millisecond) {
		if syscall.ForkLock.TryRLock() {
			syscall.ForkLock.RUnlock()
			break
		}
	}
	g.lease.Return()
	g.closeFile()
}

// detach closes all links together, and lets the writer go on.
func (g *guard) detach() {
	g.attaching.Lock()
	g.written = fmt.Errorf("%s: %w", g.name, ErrWritten)
	g.attaching.Unlock()
	g.mu.Lock()
	var closing sync.WaitGroup
	for h := range g.holders {
		if l := h.link.Value(); l != nil {
			closing.Go(func() { _ = l.end(g.written) }) // the kernel detaches in spite of an error
		}
	}
	last := len(g.holders) > 0
	clear(g.holders)
	g.mu.Unlock()
	closing.Wait()
	if last {
		g.giveBack()
	}
	g.onWrite()
}

// HoldsWriters returns nil if a process that is about to write to the file
// waits until everything is detached: see [Target].NoLease. Else the error says
// why not. It wraps [syscall.EAGAIN] if a process had the file open for writing
// when it was selected. A watch waits for that one to end.
func (s *Selection) HoldsWriters() error {
	if s.file().holder == nil {
		return sys.ClosedError("selection")
	}
	return s.file().holder.guard.lease.Reason()
}
