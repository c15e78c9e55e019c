// SPDX-License-Identifier: BSD-2-Clause

package debuginfo

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/testneeds"
)

func TestPathsThatLeadThroughAProcess(t *testing.T) {
	testneeds.Root(t) // to mount
	dir := t.TempDir()
	proc := filepath.Join(dir, "proc")
	qt.Assert(t, qt.IsNil(os.Mkdir(proc, 0o700)))
	qt.Assert(t, qt.IsNil(syscall.Mount("proc", proc, "proc", 0, "")))
	t.Cleanup(func() { qt.Check(t, qt.IsNil(syscall.Unmount(proc, syscall.MNT_DETACH))) })
	file := filepath.Join(dir, "file")
	qt.Assert(t, qt.IsNil(os.WriteFile(file, nil, 0o600)))
	link := filepath.Join(dir, "link")
	qt.Assert(t, qt.IsNil(os.Symlink(proc+"/self/root"+file, link)))
	for path, want := range map[string]bool{
		file:                          false,
		dir + "/proc/../file":         false,
		proc + "/self/status":         false,
		proc + "/self/root" + file:    true,
		proc + "/self/cwd/doc.go":     true,
		proc + "/self/exe":            true,
		"/proc/self/root" + file:      true,
		link:                          true,
		filepath.Join(dir, "nothing"): true,
	} {
		qt.Check(t, qt.Equals(leadsThroughProcess(path), want), qt.Commentf("%s", path))
	}
}
