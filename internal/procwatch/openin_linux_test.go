// SPDX-License-Identifier: BSD-2-Clause

package procwatch

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/procfs"
)

func TestOpenIn(t *testing.T) {
	f := newFixture(t)
	jail := t.TempDir()
	f.put(fakeProcess{pid: 7, size: 1})
	f.link(7, "root", jail)
	noProbes.write(t, jail, "usr/lib/a.so.1")
	qt.Assert(t, qt.IsNil(os.Symlink("/usr/lib/a.so.1", filepath.Join(jail, "usr/lib/a.so"))))
	qt.Assert(t, qt.IsNil(os.Symlink("../../../../../usr/lib", filepath.Join(jail, "lib"))))

	file, err := procfs.OpenIn(f.fs(), 7, "/lib/a.so")
	qt.Assert(t, qt.IsNil(err))
	defer file.Close()
	qt.Check(t, qt.Equals(file.Name(), f.root+"/7/root/lib/a.so"))
	content, err := io.ReadAll(file)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.DeepEquals(content, noProbes.bytes()))

	_, err = procfs.OpenIn(f.fs(), 7, "/usr/lib")
	qt.Check(t, qt.ErrorIs(err, procfs.ErrNotRegular))
	_, err = procfs.OpenIn(f.fs(), 7, "lib/a.so")
	qt.Check(t, qt.ErrorIs(err, os.ErrInvalid))
	_, err = procfs.OpenIn(f.fs(), 8, "/lib/a.so")
	qt.Check(t, qt.ErrorIs(err, procfs.ErrGone))
}
