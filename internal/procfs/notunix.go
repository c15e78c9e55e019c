// SPDX-License-Identifier: BSD-2-Clause

//go:build !unix

package procfs

import (
	"io/fs"
	"os"
)

// UserOf returns the user that owns a file, if the system tells.
func UserOf(fs.FileInfo) (uint32, bool) { return 0, false }

// RawFile stands in for the descriptor that other systems have.
type RawFile struct{ *os.File }

func OpenRaw(path string) (RawFile, error) {
	f, err := os.Open(path)
	return RawFile{f}, err
}
