// SPDX-License-Identifier: BSD-2-Clause

package debuginfo

import (
	"debug/elf"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/testneeds"
)

// A debug file is found beside a file that was opened by its path, and not in
// the directories of a process.
func TestFind(t *testing.T) {
	testneeds.Only(t, "only Linux has /proc", "amd64", "arm64", "s390x", "riscv64")
	debug := newImage64()
	debug.Sections[0].Kind = elf.SHT_NOBITS
	im, dir := newImage64(), t.TempDir()
	addDebugLink(im, "program.debug", crc32.ChecksumIEEE(debug.Bytes()))
	path := filepath.Join(dir, "program")
	qt.Assert(t, qt.IsNil(os.WriteFile(path, im.Bytes(), 0o600)))
	find := func(path string) (string, error) {
		file, err := elfnote.Open(path)
		qt.Assert(t, qt.IsNil(err))
		defer file.Close()
		debug, err := AddDebugFile(file, "").DebugFile()
		if err != nil {
			return "", err
		}
		defer debug.Close()
		return debug.Name(), nil
	}
	found, err := find(path)
	qt.Check(t, qt.ErrorIs(err, fs.ErrNotExist))
	qt.Check(t, qt.Equals(found, ""))
	qt.Assert(t, qt.IsNil(os.WriteFile(path+".debug", debug.Bytes(), 0o600)))
	found, err = find(path)
	qt.Check(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(found, path+".debug"))

	found, err = find(fmt.Sprintf("/proc/%d/root%s", os.Getpid(), path))
	qt.Check(t, qt.Equals(found, ""))
	qt.Check(t, qt.ErrorMatches(err, `its debug file "program.debug" is only searched for beside .*`))
	_, err = AddDebugFile(&elfnote.File{}, "").DebugFile()
	qt.Check(t, qt.ErrorIs(err, fs.ErrNotExist))
}
