// SPDX-License-Identifier: BSD-2-Clause

package debuginfo

import (
	"debug/elf"
	"encoding/hex"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/elffile"
	"github.com/gousdt/gousdt/internal/elffile/elfimage"
)

func addDebugLink(im *image, name string, checksum uint32) {
	data := append([]byte(name), make([]byte, 4-len(name)%4)...)
	im.Sections = append(im.Sections,
		elfimage.Section{Name: ".gnu_debuglink", Kind: elf.SHT_PROGBITS,
			Data: im.Order.AppendUint32(data, checksum)})
}

// addBuildID adds a build ID, given in hexadecimal, unless that is "".
func addBuildID(im *image, id string) {
	bytes, err := hex.DecodeString(id)
	if err != nil || len(bytes) == 0 {
		return
	}
	im.Sections = append(im.Sections,
		elfimage.Section{Name: ".note.gnu.build-id", Kind: elf.SHT_NOTE, Align: 4,
			Data: im.RawNote("GNU\x00", 3, bytes, 4)})
}

func TestDebugFileIsFoundByItsName(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	t.Setenv("DEBUGINFOD_CACHE_PATH", "")
	t.Setenv("XDG_CACHE_HOME", "")
	const id, other = "0123456789abcdef", "fedcba9876543210"
	for _, test := range []struct {
		name             string
		link             string
		fileID, debugID  string
		place            string // of the debug file, from the file
		checksumIsOthers bool
		err              error
	}{
		{name: "beside the file", link: "program.debug", place: "program.debug"},
		{name: "in the directory .debug", link: "program.debug", place: ".debug/program.debug"},
		{name: "other checksum", link: "program.debug", place: "program.debug",
			checksumIsOthers: true, err: ErrOtherBuildID},
		{name: "other checksum, same build ID", link: "program.debug", place: "program.debug",
			fileID: id, debugID: id, checksumIsOthers: true},
		{name: "other build ID", link: "program.debug", place: "program.debug", fileID: id,
			debugID: other,
			err:     ErrOtherBuildID},
		{name: "build ID of one of them", link: "program.debug", place: "program.debug",
			fileID: id},
		{name: "not there", link: "program.debug", place: "other.debug", err: fs.ErrNotExist},
		{name: "a directory", link: "program.debug", place: "program.debug/x", err: fs.ErrNotExist},
		{name: "the file itself", link: "program", place: "program.debug", err: fs.ErrNotExist},
		{name: "a path", link: "../program.debug", place: "program.debug", err: elffile.ErrNoBuildID},
		{name: "a directory's name", link: "..", place: "program.debug", err: elffile.ErrNoBuildID},
		{name: "no name", link: "", place: "program.debug", err: elffile.ErrNoBuildID},
		{name: "no name, but a build ID", link: "", place: "program.debug", fileID: id,
			err: fs.ErrNotExist},
	} {
		t.Run(test.name, func(t *testing.T) {
			everyClass(t, func(t *testing.T, im *image) {
				dir := t.TempDir()
				debug := newImage(im.Class, im.Order)
				debug.Sections[0].Kind = elf.SHT_NOBITS
				addBuildID(debug, test.debugID)
				at := filepath.Join(dir, test.place)
				qt.Assert(t, qt.IsNil(os.MkdirAll(filepath.Dir(at), 0o700)))
				qt.Assert(t, qt.IsNil(os.WriteFile(at, debug.Bytes(), 0o600)))
				checksum := crc32.ChecksumIEEE(debug.Bytes())
				if test.checksumIsOthers {
					checksum++
				}
				addBuildID(im, test.fileID)
				addDebugLink(im, test.link, checksum)
				path := filepath.Join(dir, "program")
				qt.Assert(t, qt.IsNil(os.WriteFile(path, im.Bytes(), 0o600)))

				f, err := Open(path)
				qt.Assert(t, qt.IsNil(err))
				defer f.Close()
				found, err := f.FindDebugFile("")
				if test.err != nil {
					qt.Assert(t, qt.ErrorIs(err, test.err))
					return
				}
				qt.Assert(t, qt.IsNil(err))
				defer found.Close()
				qt.Check(t, qt.Equals(found.Name, at))

			})
		})
	}
}

// A sparse file has any size, at no cost.
func TestDebugFileThatIsTooLargeForAChecksumIsNotRead(t *testing.T) {
	dir := t.TempDir()
	debug := newImage64()
	debug.Sections[0].Kind = elf.SHT_NOBITS
	at := filepath.Join(dir, "program.debug")
	qt.Assert(t, qt.IsNil(os.WriteFile(at, debug.Bytes(), 0o600)))
	im := newImage64()
	addDebugLink(im, "program.debug", crc32.ChecksumIEEE(debug.Bytes()))
	path := filepath.Join(dir, "program")
	qt.Assert(t, qt.IsNil(os.WriteFile(path, im.Bytes(), 0o600)))
	f, err := Open(path)
	qt.Assert(t, qt.IsNil(err))
	defer f.Close()
	if err := os.Truncate(at, 500<<30); err != nil {
		qt.Assert(t, qt.IsNil(os.Truncate(at, maxChecked+1))) // not all file systems have such
	}
	_, err = f.FindDebugFile("")
	qt.Check(t, qt.ErrorMatches(err, `.*program.debug: checksum of [0-9]+ bytes: .*`))
	qt.Check(t, qt.ErrorIs(err, elffile.ErrTooLarge))
}

// What is beside a file may be served, or withheld, by the container that the
// file was reached through.
func TestDebugFileBesideAFileOfAProcessIsNotSearched(t *testing.T) {
	dir := t.TempDir()
	debug := newImage64()
	debug.Sections[0].Kind = elf.SHT_NOBITS
	qt.Assert(t, qt.IsNil(os.WriteFile(filepath.Join(dir, "program.debug"), debug.Bytes(), 0o600)))
	im := newImage64()
	addDebugLink(im, "program.debug", crc32.ChecksumIEEE(debug.Bytes()))
	path := filepath.Join(dir, "program")
	qt.Assert(t, qt.IsNil(os.WriteFile(path, im.Bytes(), 0o600)))
	link := filepath.Join(dir, "link")
	qt.Assert(t, qt.IsNil(os.Symlink(path, link)))
	find := func(t *testing.T, f *File, err error) error {
		t.Helper()
		qt.Assert(t, qt.IsNil(err))
		defer f.Close()
		found, err := f.FindDebugFile("")
		if err == nil {
			found.Close()
		}
		return err
	}
	t.Run("opened by its path", func(t *testing.T) {
		for _, path := range []string{path, link} {
			f, err := Open(path)
			qt.Check(t, qt.IsNil(find(t, f, err)))
		}
	})
	t.Run("opened by somebody else", func(t *testing.T) {
		opened, err := os.Open(path)
		qt.Assert(t, qt.IsNil(err))
		defer opened.Close()
		f, err := New(opened)
		qt.Check(t, qt.ErrorIs(find(t, f, err), fs.ErrNotExist))
	})
	t.Run("through procfs", func(t *testing.T) {
		if _, err := os.Stat("/proc/self/root" + path); err != nil {
			return // not on this system
		}
		through := filepath.Join(dir, "through")
		qt.Assert(t, qt.IsNil(os.Symlink("/proc/self/root", through)))
		for _, path := range []string{"/proc/self/root" + path, through + path} {
			f, err := Open(path)
			qt.Check(t, qt.ErrorIs(find(t, f, err), fs.ErrNotExist), qt.Commentf("%s", path))
		}
	})
}

func TestDebugFileIsFoundInTheCacheOfDebuginfod(t *testing.T) {
	const id = "0123456789abcdef"
	for _, test := range []struct{ variable, place string }{
		{"HOME", ".cache/debuginfod_client"},
		{"HOME", ".debuginfod_client_cache"},
		{"XDG_CACHE_HOME", "debuginfod_client"},
		{"DEBUGINFOD_CACHE_PATH", ""},
	} {
		t.Run(test.variable+" "+test.place, func(t *testing.T) {
			for _, name := range []string{"HOME", "XDG_CACHE_HOME", "DEBUGINFOD_CACHE_PATH"} {
				t.Setenv(name, "")
			}
			dir := t.TempDir()
			t.Setenv(test.variable, dir)
			debug := newImage64()
			debug.Sections[0].Kind = elf.SHT_NOBITS
			addBuildID(debug, id)
			at := filepath.Join(dir, test.place, id, "debuginfo")
			qt.Assert(t, qt.IsNil(os.MkdirAll(filepath.Dir(at), 0o700)))
			// Not found: that is remembered, too.
			qt.Assert(t, qt.IsNil(os.WriteFile(at, nil, 0o600)))

			im := newImage64()
			addBuildID(im, id)
			f := im.open(t)
			_, err := f.FindDebugFile("")
			qt.Assert(t, qt.IsNotNil(err))
			qt.Assert(t, qt.IsNil(os.WriteFile(at, debug.Bytes(), 0o600)))
			found, err := f.FindDebugFile("")
			qt.Assert(t, qt.IsNil(err))
			defer found.Close()
			qt.Check(t, qt.Equals(found.Name, at))
		})
	}
}
