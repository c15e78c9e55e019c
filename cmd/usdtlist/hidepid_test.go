// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
)

func TestHidePID(t *testing.T) {
	for mounts, want := range map[string]string{
		"proc ROOT proc rw,relatime 0 0\n":                                    "",
		"proc ROOT proc rw,relatime,hidepid=invisible 0 0\n":                  "invisible",
		"proc ROOT proc rw,gid=5,hidepid=2 0 0\n":                             "2",
		"proc ROOT proc rw,hidepid=1 0 0\n":                                   "1",
		"proc ROOT proc rw,hidepid=ptraceable 0 0\n":                          "ptraceable",
		"proc ROOT proc rw,hidepid=4 0 0":                                     "4",
		"proc ROOT proc rw,hidepid=off 0 0\n":                                 "",
		"proc ROOT proc rw,hidepid=2 0 0\nproc ROOT proc rw 0 0\n":            "",
		"proc /x proc rw,hidepid=2 0 0\ntmpfs ROOT tmpfs hidepid=2\nbroken\n": "",
	} {
		root := filepath.Join(t.TempDir(), "my proc")
		qt.Assert(t, qt.IsNil(os.MkdirAll(filepath.Join(root, "self"), 0o755)))
		text := strings.ReplaceAll(mounts, "ROOT", strings.ReplaceAll(root, " ", `\040`))
		qt.Assert(t,
			qt.IsNil(os.WriteFile(filepath.Join(root, "self", "mounts"), []byte(text), 0o644)))
		qt.Check(t, qt.Equals(hidePID(root), want), qt.Commentf("%s", mounts))
	}
	qt.Check(t, qt.Equals(hidePID(t.TempDir()), ""))
}
