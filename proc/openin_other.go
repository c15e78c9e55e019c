// SPDX-License-Identifier: BSD-2-Clause

//go:build !linux

package proc

import (
	"errors"
	"os"
)

// OpenIn is available on Linux only; here the error wraps
// errors.ErrUnsupported.
func (f *FS) OpenIn(pid int, path string) (*os.File, error) {
	return nil, &Error{PID: pid, Path: path, Op: "open", Err: errors.ErrUnsupported}
}
