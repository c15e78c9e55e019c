// SPDX-License-Identifier: BSD-2-Clause

// Package closed has the error for the use of something that has been closed.
package closed

import "os"

// Error is the error for the use of what it names after that was closed. It is
// an os.ErrClosed to errors.Is, whose own text speaks of files.
type Error string

// Error says what is closed.
func (e Error) Error() string { return string(e) + " is closed" }

// Is reports whether the target is os.ErrClosed.
func (Error) Is(target error) bool { return target == os.ErrClosed }
