// SPDX-License-Identifier: BSD-2-Clause

// Package attaching has what attaching takes of the kernel beyond cilium/ebpf.
// [Files] waits, when something is closed, for the attachments that are being
// made. A [Lease] notices that a file is about to be written to, and holds the
// writer up until everything has been detached. An [Event] attaches many places
// where there are no uprobe_multi links. [AvoidPrivateStack] keeps two threads
// from sharing the stack of a program.
package attaching

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/gousdt/gousdt/internal/procfs"
)

// Patience when something is closed, with calls of the kernel that attach. A
// call takes milliseconds, for a perf event a tenth of a second; or as long as
// the file system of another user likes.
const (
	LinkPatience  = 2 * time.Second
	EventPatience = 20 * time.Second
)

// Files are files to which something is being attached.
type Files struct {
	mu    sync.Mutex
	going map[*call]bool // whether a Wait has given it up
}

type call struct {
	file string
	done chan struct{}
}

// Begin notes that something is being attached to a file, until end is called.
func (a *Files) Begin(file string) (end func()) {
	one := &call{file: file, done: make(chan struct{})}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.going == nil {
		a.going = make(map[*call]bool)
	}
	a.going[one] = false
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.going, one)
		close(one.done)
	}
}

// Wait waits until no attachment is being made any more, or for up to patience
// if the kernel does not return. Then the error, which wraps proc.ErrBlocked,
// names a file, and the next Wait does not wait for the same attachments.
func (a *Files) Wait(patience time.Duration) error {
	a.mu.Lock()
	going := maps.Clone(a.going)
	a.mu.Unlock()
	timeout, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for one, abandoned := range going {
		if !abandoned {
			select {
			case <-one.done:
			case <-timeout.Done():
			}
		}
	}
	var files []string
	a.mu.Lock()
	for one := range going {
		if _, isGoing := a.going[one]; isGoing {
			a.going[one] = true
			files = append(files, one.file)
		}
	}
	a.mu.Unlock()
	if len(files) == 0 {
		return nil
	}
	return fmt.Errorf("%s: the kernel still attaches to it, which is undone as soon as it has "+
		"(%d such files): %w", slices.Min(files), len(files), procfs.ErrBlocked)
}

// A Place is a file offset that gets a breakpoint.
type Place struct {
	Offset    uint64
	Semaphore uint64 // file offset of the counter to be counted up, 0 for none
}

type EventOptions struct {
	PID     int  // 0 for all processes
	HasLink bool // the kernel has BPF links for perf events, and with them cookies (Linux 5.15)
	Cookie  uint64
}

// EventGroup is the group of all events that this package defines, and their
// directory below "events" in tracefs.
const EventGroup = "gousdt"

// A PermissionError says that the caller lacks a privilege. For users errors.Is
// reports it to be os.ErrPermission; the commands take the text apart.
type PermissionError struct {
	Op  string // what was tried
	Err error
}

func (e *PermissionError) Error() string {
	if errors.Is(e.Err, procfs.ErrAccess) { // which names the privilege
		return fmt.Sprintf("%s: %v", e.Op, e.Err)
	}
	return fmt.Sprintf("%s needs root, or CAP_BPF and CAP_PERFMON, and CAP_SYS_ADMIN "+
		"on kernels that attach by perf events: %v", e.Op, e.Err)
}

func (e *PermissionError) Unwrap() error { return e.Err }
