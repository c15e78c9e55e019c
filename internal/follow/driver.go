// SPDX-License-Identifier: BSD-2-Clause

package follow

import (
	"github.com/gousdt/gousdt/internal/procfs"
	"github.com/gousdt/gousdt/internal/procwatch"
	"github.com/gousdt/gousdt/proc"
)

// A Place is where something is attached: a file in one process or, if Process
// is zero, in every process.
type Place struct {
	Process procfs.ID
	File    procwatch.FileID
}

// isInEveryProcess reports whether the place is not restricted to one process.
func (p Place) isInEveryProcess() bool { return p.Process == procfs.ID{} }

// WholeFile stands in for the number of a part if a file could not be opened,
// so that no part of it was attached.
const WholeFile = -1

// A Driver attaches and detaches. F is a file that has been opened for that, A
// is an attachment.
//
// A [Follower] calls one method at a time, except for Detach, and for Open and
// Attach that take so long that it goes on without them. The methods must not
// call the Follower.
type Driver[F, A any] interface {
	// Open opens the file of a pair, once for all processes that map it.
	Open(pair *procwatch.ProcessFile) (F, error)
	// Release closes what Open returned. What is attached stays attached.
	Release(file F)
	// PerProcess reports whether a file is attached in each process alone.
	PerProcess(file *procwatch.CachedFile) bool
	// Attach attaches a part of a file in the process with this PID, or in
	// every process if the PID is 0. The pair is the process in which the file
	// was found. ok is false if the file has nothing for this part.
	Attach(part int, file F, pair *procwatch.ProcessFile, pid int) (attachment A, ok bool, err error)
	// Sites returns the number of sites that a part of a file counts for.
	Sites(part int, file F) int
	// Descriptors returns how many descriptors an attachment has.
	Descriptors(attached A) int
	// Detach detaches all of these and waits until that is done.
	Detach(attachments []A) error
	// Retry says when an error of Open or Attach may be over.
	Retry(err error) When
	// Explain returns the error to report for one of Open, for which part is
	// WholeFile, or of Attach.
	Explain(part int, err *WatchError) error
	// Changed is told what has changed.
	Changed(changes *Changes[A])
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
	// Missed are pairs whose process ended before it was attached. They are
	// only of files that are attached in each process by itself.
	Missed []*procwatch.ProcessFile
	// Errors are those of finding processes, of type *procfs.Error, and those
	// that Explain has returned. What is tried again and fails again is told
	// only if the text of the error is another one.
	Errors []error
}
