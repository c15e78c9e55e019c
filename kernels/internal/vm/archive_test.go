// SPDX-License-Identifier: BSD-2-Clause

package vm

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

func unpack(t *testing.T, a *archive) []unpacked {
	t.Helper()
	var buffer bytes.Buffer
	qt.Assert(t, qt.IsNil(a.write(&buffer)))
	qt.Assert(t, qt.Equals(string(buffer.Next(6)), "070701"), qt.Commentf("not the newc format"))

	var again bytes.Buffer
	qt.Assert(t, qt.IsNil(a.write(&again)))
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

	var a archive
	qt.Assert(t, qt.IsNil(a.addFile("/src/usdt/usdt.test", source)))
	a.addBytes("gousdt/plan.json", "{}")
	a.addDir("/tmp")

	qt.Assert(t, qt.DeepEquals(unpack(t, &a), []unpacked{
		{"gousdt", cpio.TypeDir | 0o755, ""},
		{"gousdt/plan.json", cpio.TypeReg | 0o644, "{}"},
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

	var a archive
	qt.Assert(t, qt.IsNil(a.addTree("/testdata", dir)))
	var names []string
	for _, u := range unpack(t, &a) {
		names = append(names, u.Name)
	}
	qt.Assert(t, qt.DeepEquals(names, []string{
		"testdata", "testdata/build", "testdata/build/amd64", "testdata/build/amd64/target",
		"testdata/link", "testdata/vectors", "testdata/vectors/x86.txt",
	}))
}

func TestNamesCannotLeaveTheArchive(t *testing.T) {
	var a archive
	a.addBytes("../../etc/passwd", "")
	qt.Assert(t, qt.IsTrue(has(&a, "/etc/passwd")))
}

func has(a *archive, name string) bool {
	_, ok := a.entries[name]
	return ok
}
