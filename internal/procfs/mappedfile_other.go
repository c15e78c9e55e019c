// SPDX-License-Identifier: BSD-2-Clause

//go:build !linux

package procfs

import (
	"errors"
	"os"
)

func identify(int, string) (Identity, error) { return Identity{}, errors.ErrUnsupported }

func findIn(string, int, string) (*os.File, Identity, error) {
	return nil, Identity{}, errors.ErrUnsupported
}

func openFile(string, string) (*os.File, error) { return nil, errors.ErrUnsupported }

// mounts are for files that can be identified.
type mounts struct{}

func (*mounts) trusts(string, int, uint64) bool { return false }
