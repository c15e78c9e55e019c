// SPDX-License-Identifier: BSD-2-Clause

//go:build !unix

package proc

import (
	"io/fs"
	"os"
)

func userOfInfo(fs.FileInfo) (uint32, bool) { return 0, false }

// rawFile stands in for the descriptor that other systems have.
type rawFile struct{ *os.File }

func openRaw(path string) (rawFile, error) {
	f, err := os.Open(path)
	return rawFile{f}, err
}
