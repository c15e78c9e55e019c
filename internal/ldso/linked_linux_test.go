// SPDX-License-Identifier: BSD-2-Clause

package ldso

import (
	"os"
	"path/filepath"
	"slices"
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
	qt.Check(t, qt.DeepEquals(Linked("/nonexistent", "/proc/self"), []string{"/nonexistent"}))
}
