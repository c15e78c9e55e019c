// SPDX-License-Identifier: BSD-2-Clause

//go:build !unix

package kernels

import (
	"errors"
	"fmt"
)

// Lock is for Unix systems only.
func Lock(path string) (unlock func(), err error) {
	return nil, fmt.Errorf("locking %s: %w", path, errors.ErrUnsupported)
}
