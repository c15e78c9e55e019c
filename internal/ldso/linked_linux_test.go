// SPDX-License-Identifier: BSD-2-Clause

package ldso

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
	"github.com/gousdt/gousdt/internal/testneeds"
)

func TestLinked(t *testing.T) {
	self, err := os.Readlink("/proc/self/exe")
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(Linked(self, "/proc/self")[0], self))

	sh, err := filepath.EvalSymlinks(testneeds.Tool(t, "sh", "dash"))
	qt.Assert(t, qt.IsNil(err))
	libc, err := Find("libc.so.6")
	if err != nil {
		testneeds.Missing(t, "libc.so.6: %v", err)
	}
	files := Linked(sh, "/proc/self")
	qt.Check(t, qt.Equals(files[0], sh))
	qt.Check(t, qt.IsTrue(slices.Contains(files, libc)), qt.Commentf("%q", files))
	loaders := slices.DeleteFunc(slices.Clone(files), func(path string) bool {
		return !strings.HasPrefix(filepath.Base(path), "ld")
	})
	qt.Check(t, qt.HasLen(loaders, 1), qt.Commentf("%q", files)) // which libc.so.6 needs, too
	qt.Check(t, qt.DeepEquals(Linked("/nonexistent", "/proc/self"), []string{"/nonexistent"}))
}
