// SPDX-License-Identifier: BSD-2-Clause

package debuginfo

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/elffile"
	"github.com/gousdt/gousdt/internal/testneeds"
)

// withMiniDebug makes a stripped program whose section .gnu_debugdata is made
// of data, and returns its path. Without data it is what distributions make.
func withMiniDebug(t *testing.T, data []byte) string {
	t.Helper()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	run := func(name string, arguments ...string) {
		t.Helper()
		cmd := exec.Command(testneeds.Tool(t, name, name), arguments...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		qt.Assert(t, qt.IsNil(err), qt.Commentf("%s: %s", name, out))
	}
	qt.Assert(t, qt.IsNil(os.WriteFile(at("program.c"), []byte(`
static __attribute__((noinline)) int inner(int n) { return n + 1; }
int main(int argc, char **argv) { return inner(argc); }
`), 0o644)))
	run("gcc", "-O1", "-o", "program", "program.c")
	run("objcopy", "--only-keep-debug", "program", "mini")
	run("strip", "program")
	run("xz", "mini")
	if data != nil {
		qt.Assert(t, qt.IsNil(os.WriteFile(at("mini.xz"), data, 0o644)))
	}
	run("objcopy", "--add-section", ".gnu_debugdata=mini.xz", "program")
	return at("program")
}

// unpack runs xz, so that this module requires no package for it.
func unpack(packed io.Reader, _ uint32) (io.Reader, error) {
	cmd := exec.Command("xz", "-dc")
	cmd.Stdin = packed
	out, err := cmd.Output()
	return bytes.NewReader(out), err
}

func TestMiniFunctions(t *testing.T) {
	f, err := Open(withMiniDebug(t, nil))
	qt.Assert(t, qt.IsNil(err))
	defer f.Close()
	own, err := f.Functions()
	qt.Assert(t, qt.IsNil(err))
	mini, err := f.MiniFunctions(unpack)
	qt.Assert(t, qt.IsNil(err))
	names := make(map[string]bool)
	for _, function := range mini.tables[0].functions {
		found, ok := mini.At(function.address)
		qt.Check(t, qt.IsTrue(ok))
		names[found.Name] = true
		_, ok = own.At(function.address)
		qt.Check(t, qt.IsFalse(ok), qt.Commentf("%s was not stripped", found.Name))
	}
	qt.Check(t, qt.IsTrue(names["inner"] && names["main"]), qt.Commentf("%v", names))
}

func TestMiniFunctionsRefuses(t *testing.T) {
	compressed := func(data []byte) []byte {
		cmd := exec.Command(testneeds.Tool(t, "xz", "xz-utils"), "-c")
		cmd.Stdin = bytes.NewReader(data)
		out, err := cmd.Output()
		qt.Assert(t, qt.IsNil(err))
		return out
	}
	whole := compressed([]byte("\x7fELF and nothing more"))
	for name, test := range map[string]struct {
		data []byte
		want error
	}{
		"what is not xz":         {[]byte("not compressed"), elffile.ErrMalformed},
		"what ends too early":    {whole[:len(whole)-20], elffile.ErrMalformed},
		"what is no ELF file":    {compressed([]byte("text")), elffile.ErrNotELF},
		"what is malformed":      {whole, elffile.ErrMalformed},
		"what grows out of size": {compressed(make([]byte, 16<<20)), elffile.ErrTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := Open(withMiniDebug(t, test.data))
			qt.Assert(t, qt.IsNil(err))
			defer f.Close()
			_, err = f.MiniFunctions(unpack)
			qt.Check(t, qt.ErrorIs(err, test.want))
		})
	}
}
