// SPDX-License-Identifier: BSD-2-Clause

//go:build !linux

package proc

import (
	"errors"
	"os"
)

// ID is available on Linux only; here the error wraps
// errors.ErrUnsupported.
func (m *MappedFile) ID() (FileID, error) {
	return FileID{}, m.wrap("identify", errors.ErrUnsupported)
}

func (m *MappedFile) identify() (identity, error) {
	return identity{}, m.wrap("identify", errors.ErrUnsupported)
}

// Open is available on Linux only; here the error wraps errors.ErrUnsupported.
func (m *MappedFile) Open() (*os.File, error) {
	return nil, m.wrap("open", errors.ErrUnsupported)
}
