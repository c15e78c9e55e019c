// SPDX-License-Identifier: BSD-2-Clause

package usdt

import (
	"errors"

	"github.com/gousdt/gousdt/internal/tracee"
	"github.com/gousdt/gousdt/proc"
)

// explainProcess says of an error of package proc what it means for attaching:
// the process has gone, or may not be read.
func explainProcess(pid int, err error) error {
	switch {
	case errors.Is(err, proc.ErrGone):
		return tracee.Gone(pid)
	case errors.Is(err, proc.ErrAccess):
		// Nobody may read a process that is ending.
		if errors.Is(tracee.Check(pid), proc.ErrGone) {
			return tracee.Gone(pid)
		}
		return &PermissionError{Op: "reading a process", Err: err}
	default:
		return err // which names the process
	}
}
