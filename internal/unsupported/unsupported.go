// SPDX-License-Identifier: BSD-2-Clause

// Package unsupported has the error of what the running kernel lacks. Packages
// usdt and trace return it as one that wraps errors.ErrUnsupported: nothing but
// its text depends on the rest.
package unsupported

import "errors"

// An Error says what the running kernel lacks.
type Error struct {
	Feature string // what is missing
	Since   string // the Linux version that brought it, "" where no version does
	Hint    string // what to do instead, may be empty
}

func (e *Error) Error() string {
	s := "the kernel has no " + e.Feature
	if e.Since != "" {
		s += " (needs Linux " + e.Since + ")"
	}
	if e.Hint != "" {
		s += "; " + e.Hint
	}
	return s
}

// Unwrap returns errors.ErrUnsupported.
func (e *Error) Unwrap() error { return errors.ErrUnsupported }
