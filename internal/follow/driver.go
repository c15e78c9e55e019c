// SPDX-License-Identifier: BSD-2-Clause

package follow

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/gousdt/gousdt/internal/procfs"
	"github.com/gousdt/gousdt/internal/procmaps"
	"github.com/gousdt/gousdt/internal/procwatch"
	"github.com/gousdt/gousdt/proc"
)

// A Place is a file in one process or, if Process is zero, in every process.
type Place struct {
	Process procfs.ID
	File    procmaps.FileID
}

func (p Place) isInEveryProcess() bool { return p.Process == procfs.ID{} }

// WholeFile stands for all parts of a file where one could be named.
const WholeFile = -1

// A Driver opens and attaches files for a [Follower]. A is an attachment.
//
// The Follower makes one call at a time to the Driver and its files, except for
// Detach, and for calls of Open and Attach that take too long. The methods must
// not call the Follower.
type Driver[A any] interface {
	// Open opens the file of a pair, once for all processes that map it.
	Open(pair *procwatch.ProcessFile) (File[A], error)
	// PerProcess reports whether a file is attached in each process alone.
	PerProcess(file *procwatch.CachedFile) bool
	// Descriptors returns the number of descriptors of an attachment.
	Descriptors(attached A) int
	// Detach detaches all of them, and returns when that is done.
	Detach(attachments []A) error
	// Retry says when something that failed with this error may succeed.
	Retry(err error) When
	// Explain returns the error to report for one of Open, with WholeFile as
	// part, or of Attach.
	Explain(part int, err *WatchError) error
	// Changed reports changes.
	Changed(changes *Changes[A])
}

// A File is a file that a [Driver] has opened.
type File[A any] interface {
	// Attach attaches a part of the file in the process with this PID, or in
	// every process if the PID is 0. The pair is the process in which the file
	// was found. ok is false if the file has nothing for this part.
	Attach(part int, pair *procwatch.ProcessFile, pid int) (attachment A, ok bool, err error)
	// Sites returns the number of sites that a part of the file counts for.
	Sites(part int) int
	// WhenWritten has a function called, on a goroutine of its own, once the
	// driver has detached the whole file because it is written to.
	WhenWritten(call func())
	// HoldsWriters reports whether a writer waits for that. A file that may be
	// written to before it is detached does not linger.
	HoldsWriters() bool
	// Close closes the file. What is attached stays attached.
	Close() error
}

// An Attacher is the part of a [Driver] in which the watches of packages usdt
// and trace differ. S is the sites of a part of a file.
type Attacher[S, A any] interface {
	// AttachPart attaches a part in one process, or in every process if that is
	// the zero value.
	AttachPart(part int, sites S, pair *procwatch.ProcessFile, process proc.Process) (A, error)
	Descriptors(attached A) int
	Detach(attachments []A) error
	Explain(part int, err *WatchError) error
}

// Changes are what a [Follower] has changed.
type Changes[A any] struct {
	Attached []A
	// Detached are detached as soon as Changed has returned.
	Detached []A
	// Missed are pairs whose process ended before it was attached, or unmapped
	// the file, of files that are attached in each process alone.
	Missed []*procwatch.ProcessFile
	// Errors are those of finding processes, of type *procfs.Error, and those
	// that Explain has returned. A retry that fails with the same text is not
	// reported again.
	Errors []error
}

// When says when something that has failed may succeed.
type When int

const (
	// Never is for a fault of the file or the program.
	Never When = iota
	// Later is for an error that may pass.
	Later
	// WithRoom is for an error that may pass, and earlier if something is
	// detached.
	WithRoom
	// WithShare is for a lack of something that the Follower shares out: owners
	// that have more of it give some up.
	WithShare
	// WithTime is for an owner that must not take more time yet, or a call that
	// goes on.
	WithTime
	// WithAnswer is for a call that blocks, of the file or of others of its
	// owner.
	WithAnswer
	// WhenReady is for a process that is starting. It is tried again soon, and
	// reported only if it has not started for a long time.
	WhenReady
)

// errNotSupported is ENOTSUPP, by which kernels refuse some instructions.
const errNotSupported = syscall.Errno(524)

// Classify says that an error of the system may pass, with few exceptions. Of
// other errors only ErrChanged may.
func Classify(err error) When {
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		if errors.Is(err, procfs.ErrChanged) {
			return Later
		}
		return Never
	}
	switch errno {
	case syscall.EOPNOTSUPP, errNotSupported:
		return Never
	case syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.ENOSPC:
		return WithRoom
	default:
		return Later
	}
}

// Patience when something is closed, with calls of the kernel that attach. A
// call takes milliseconds, for a perf event a tenth of a second; or as long as
// the file system of another user likes.
const (
	LinkPatience  = 2 * time.Second
	EventPatience = 20 * time.Second
)

// Attaching are attachments that are being made, which wait for the kernel.
type Attaching struct {
	mu    sync.Mutex
	going map[*attaching]struct{}
}

type attaching struct {
	file      string
	done      chan struct{}
	abandoned bool
}

// Begin notes that something is being attached to a file. end is called when it
// has been attached, or nothing of it is attached any more.
func (a *Attaching) Begin(file string) (end func()) {
	one := &attaching{file: file, done: make(chan struct{})}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.going == nil {
		a.going = make(map[*attaching]struct{})
	}
	a.going[one] = struct{}{}
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
func (a *Attaching) Wait(patience time.Duration) error {
	a.mu.Lock()
	going := slices.Collect(maps.Keys(a.going))
	a.mu.Unlock()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	isOver := false
	var files []string
	for _, one := range going {
		a.mu.Lock()
		abandoned := one.abandoned
		a.mu.Unlock()
		if !isOver && !abandoned {
			select {
			case <-one.done:
				continue
			case <-timer.C:
				isOver = true
			}
		}
		a.mu.Lock()
		if _, isGoing := a.going[one]; isGoing {
			one.abandoned = true
			files = append(files, one.file)
		}
		a.mu.Unlock()
	}
	if len(files) == 0 {
		return nil
	}
	return fmt.Errorf("%s: the kernel still attaches to it, which is undone as soon as it has "+
		"(%d such files): %w", slices.Min(files), len(files), proc.ErrBlocked)
}
