// SPDX-License-Identifier: BSD-2-Clause

//go:build !linux

package procfs

import (
	"errors"
	"os"
)

func identify(int, string) (Identity, error) { return Identity{}, errors.ErrUnsupported }

func findIn(string, string) (*os.File, Identity, error) {
	return nil, Identity{}, errors.ErrUnsupported
}

func openFile(string, string) (*os.File, error) { return nil, errors.ErrUnsupported }
