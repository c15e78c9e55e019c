// SPDX-License-Identifier: BSD-2-Clause

//go:build unix

package ldso

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/go-quicktest/qt"
)

func TestAPipeInALibraryDirectoryDoesNotBlock(t *testing.T) {
	tr := newTree(t)
	tr.elf("/usr/lib/libx.so.1")
	dir := filepath.Join(tr.root, "lib64")
	qt.Assert(t, qt.IsNil(os.Mkdir(dir, 0o755)))
	qt.Assert(t, qt.IsNil(syscall.Mkfifo(filepath.Join(dir, "libx.so.1"), 0o644)))
	got, err := tr.find("libx.so.1", nil)
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.Equals(got, "/usr/lib/libx.so.1"))
}
