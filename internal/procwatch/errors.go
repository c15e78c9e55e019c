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
	// than anything but an attack on the watcher would. The others are watched.
	errTooManyFiles = fmt.Errorf("process maps more than %d files with wanted probes", maxPairs)
	// errOthersBlocked means that a process is not scanned because others of
	// its container or user do not answer.
	errOthersBlocked = fmt.Errorf("%w: processes of the same container or user", procfs.ErrBlocked)
	// errTooManyOpen means that so many files with wanted probes are open that
	// the descriptors would run out.
	errTooManyOpen = errors.New("too many files with wanted probes are open")
)

// errClosed is what a closed watcher returns.
var errClosed error = sys.ClosedError("watcher")

// passing tells errors that may be over at the next scan from those that will
// not go away by themselves.
func passing(err error) bool {
	return errors.Is(err, procfs.ErrChanged) || errors.Is(err, procfs.ErrGone) ||
		procfs.IsLack(err) || errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EIO)
}

// opReadProbes is the Op of errors that are about the contents of a file, and
// so the same whichever process maps it.
const opReadProbes = "read probes"
