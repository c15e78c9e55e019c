// SPDX-License-Identifier: BSD-2-Clause

//go:build !unix

package procfs

import "os"

// RawFile stands in for the descriptor that other systems have.
type RawFile struct{ *os.File }

func OpenRaw(path string) (RawFile, error) {
	f, err := os.Open(path)
	return RawFile{f}, err
}
