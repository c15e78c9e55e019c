// SPDX-License-Identifier: BSD-2-Clause

//go:build !linux

package procwatch

import (
	"errors"
	"os"
)

// OpenRecords is available on Linux only.
func OpenRecords(int, bool) (Recorder, error) { return nil, errors.ErrUnsupported }

func recordEvents() (Recorder, error) { return nil, errors.ErrUnsupported }

func sameInode(*os.File, []*os.File) int { return -1 }

func (*Mounts) trusts(string, uint64) bool { return false }
