// SPDX-License-Identifier: BSD-2-Clause

package initramfs

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/cavaliergopher/cpio"
	"github.com/go-quicktest/qt"
)

// unpacked is one entry as a reader of the archive sees it.
type unpacked struct {
	Name string
	Mode cpio.FileMode
	Data string
}

func unpack(t *testing.T, a *Archive) []unpacked {
	t.Helper()
	var buffer bytes.Buffer
	n, err := a.WriteTo(&buffer)
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.Equals(n, int64(buffer.Len())))
	qt.Assert(t, qt.Equals(string(buffer.Next(6)), "070701"), qt.Commentf("not the newc format"))

	var again bytes.Buffer
	_, err = a.WriteTo(&again)
	qt.Assert(t, qt.IsNil(err))
	r := cpio.NewReader(&again)
	var list []unpacked
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return list
		}
		qt.Assert(t, qt.IsNil(err))
		data, err := io.ReadAll(r)
		qt.Assert(t, qt.IsNil(err))
		list = append(list, unpacked{h.Name, h.Mode, string(data) + h.Linkname})
	}
}

func TestArchiveHoldsParentsBeforeChildren(t *testing.T) {
	source := filepath.Join(t.TempDir(), "program")
	qt.Assert(t, qt.IsNil(os.WriteFile(source, []byte("five!"), 0o755)))
	qt.Assert(t, qt.IsNil(os.Chmod(source, 0o755)))

	var a Archive
	qt.Assert(t, qt.IsNil(a.AddFile("/src/usdt/usdt.test", source)))
	qt.Assert(t, qt.IsNil(a.AddBytes("gousdt/plan.json", []byte("{}"), 0o644)))
	qt.Assert(t, qt.IsNil(a.AddLink("/lib64", "lib")))
	qt.Assert(t, qt.IsNil(a.AddDir("/tmp")))

	qt.Assert(t, qt.DeepEquals(unpack(t, &a), []unpacked{
		{"gousdt", cpio.TypeDir | 0o755, ""},
		{"gousdt/plan.json", cpio.TypeReg | 0o644, "{}"},
		{"lib64", cpio.TypeSymlink | 0o777, "lib"},
		{"src", cpio.TypeDir | 0o755, ""},
		{"src/usdt", cpio.TypeDir | 0o755, ""},
		{"src/usdt/usdt.test", cpio.TypeReg | 0o755, "five!"},
		{"tmp", cpio.TypeDir | 0o755, ""},
	}))
}

func TestTreeKeepsLinks(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"build/amd64/target", "vectors/x86.txt"} {
		file := filepath.Join(dir, name)
		qt.Assert(t, qt.IsNil(os.MkdirAll(filepath.Dir(file), 0o755)))
		qt.Assert(t, qt.IsNil(os.WriteFile(file, []byte(name), 0o644)))
	}
	qt.Assert(t, qt.IsNil(os.Symlink("vectors", filepath.Join(dir, "link"))))

	var a Archive
	qt.Assert(t, qt.IsNil(a.AddTree("/testdata", dir)))
	var names []string
	for _, u := range unpack(t, &a) {
		names = append(names, u.Name)
	}
	qt.Assert(t, qt.DeepEquals(names, []string{
		"testdata", "testdata/build", "testdata/build/amd64", "testdata/build/amd64/target",
		"testdata/link", "testdata/vectors", "testdata/vectors/x86.txt",
	}))
}

func TestNameCannotBeTwoThings(t *testing.T) {
	var a Archive
	qt.Assert(t, qt.IsNil(a.AddBytes("/x", []byte("one"), 0o644)))
	qt.Assert(t, qt.IsNil(a.AddBytes("/x", []byte("one"), 0o644)))
	qt.Assert(t, qt.ErrorIs(a.AddBytes("/x", []byte("two"), 0o644), ErrConflict))
	qt.Assert(t, qt.ErrorIs(a.AddBytes("/x/y", nil, 0o644), ErrConflict))
	qt.Assert(t, qt.IsTrue(a.Has("x")))
	qt.Assert(t, qt.IsFalse(a.Has("x/y")))
}

func TestNamesCannotLeaveTheArchive(t *testing.T) {
	var a Archive
	qt.Assert(t, qt.IsNil(a.AddBytes("../../etc/passwd", nil, 0o644)))
	qt.Assert(t, qt.IsTrue(a.Has("/etc/passwd")))
}
