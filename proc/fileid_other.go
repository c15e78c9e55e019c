// SPDX-License-Identifier: BSD-2-Clause

//go:build !linux

package proc

import (
	"errors"
	"fmt"
	"os"
)

// IdentifyFile returns the ID of an open file. A file of overlayfs may have
// another ID than in the processes that map it, see [FileID.MayBe].
//
// It is available on Linux only; elsewhere the error wraps
// errors.ErrUnsupported.
func IdentifyFile(file *os.File) (FileID, error) {
	return FileID{}, fmt.Errorf("identify %s: %w", file.Name(), errors.ErrUnsupported)
}
