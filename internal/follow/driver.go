// SPDX-License-Identifier: BSD-2-Clause

package follow

import (
	"errors"
	"syscall"

	"github.com/gousdt/gousdt/internal/procfs"
	"github.com/gousdt/gousdt/internal/procwatch"
)

// A Place is a file in one process or, if Process is zero, in every process.
type Place struct {
	Process procwatch.ID
	File    procfs.FileID
}

func (p Place) isInEveryProcess() bool { return p.Process == procwatch.ID{} }

// WholeFile stands for all parts of a file where one could be named.
const WholeFile = -1

// A Driver opens and attaches files for a [Follower]. A is an attachment.
//
// The Follower makes one call at a time to the Driver and its files, except for
// Detach, and for calls of Open and Attach that take too long. The methods must
// not call the Follower.
type Driver[A any] interface {
	// Open opens the file of a pair, once for all processes that map it. The
	// driver calls written, on a goroutine of its own, once it has detached the
	// whole file because it is written to.
	Open(pair *procwatch.ProcessFile, written func()) (File[A], error)
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
	Explain(part int, pair *procwatch.ProcessFile, err error) error
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
	// Semaphores returns the number of sites of a part that have one.
	Semaphores(part int) int
	// HoldsWriters returns nil if a writer waits for that. A file that may be
	// written to before it is detached does not linger. The error wraps EAGAIN
	// if a writer was there already.
	HoldsWriters() error
	// Close closes the file. What is attached stays attached.
	Close() error
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
