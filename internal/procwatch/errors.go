// SPDX-License-Identifier: BSD-2-Clause

package procwatch

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/gousdt/gousdt/internal/procfs"
	"github.com/gousdt/gousdt/internal/sys"
)

var (
	// errTooManyFiles means that a process maps more files with wanted probes
	// than any program but one that attacks the watcher. The first are watched.
	errTooManyFiles = fmt.Errorf("process maps more than %d files with wanted probes", maxPairs)
	// errOthersBlocked means that a process is not scanned because other
	// processes of its container or user do not answer.
	errOthersBlocked = fmt.Errorf("%w: processes of the same container or user", procfs.ErrBlocked)
	// errTooManyOpen means that the descriptors would run out if another file
	// with wanted probes was opened.
	errTooManyOpen = errors.New("too many files with wanted probes are open")
)

var errClosed error = sys.ClosedError("watcher")

// passing reports whether the operation may succeed at the next scan.
func passing(err error) bool {
	return errors.Is(err, procfs.ErrChanged) || errors.Is(err, procfs.ErrGone) ||
		procfs.IsLack(err) || errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EIO)
}

// opReadProbes is the Op of errors about the contents of a file. They are the
// same for all processes that map it.
const opReadProbes = "read probes"
