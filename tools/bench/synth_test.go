// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/defs"
	"github.com/gousdt/gousdt/internal/elffile"
)

func list(t *testing.T, f syntheticFile) (*elfnote.File, *defs.Listing) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "synthetic.so")
	qt.Assert(t, qt.IsNil(f.Write(path)))
	file, err := elfnote.Open(path)
	qt.Assert(t, qt.IsNil(err))
	t.Cleanup(func() { file.Close() })
	listing, err := defs.List(file)
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.HasLen(listing.Malformed, 0))
	return file, listing
}

func TestFilesHaveTheSitesAskedFor(t *testing.T) {
	for _, f := range []syntheticFile{
		{Sites: 1},
		{Sites: 100, Probes: 1, Specs: 100},
		{Sites: 1000, Probes: 7, Specs: 3},
	} {
		file, listing := list(t, f)
		qt.Check(t, qt.HasLen(listing.Probes, max(f.Probes, 1)))
		sites, arguments := 0, make(map[string]bool)
		var last uint64
		for i, probe := range listing.Probes {
			qt.Check(t, qt.Equals(probe.Provider, syntheticProvider))
			qt.Check(t, qt.Equals(probe.Name, syntheticProbe(i)))
			for _, site := range probe.Sites {
				sites++
				arguments[site.Arguments] = true
				qt.Check(t, qt.IsTrue(site.Offset > last))
				last = site.Offset
				code := make([]byte, 1)
				_, err := elffile.OSFile(file).ReadAt(code, int64(site.Offset))
				qt.Check(t, qt.IsNil(err))
				qt.Check(t, qt.IsTrue(code[0] != 0))
			}
		}
		qt.Check(t, qt.Equals(sites, f.Sites))
		qt.Check(t, qt.HasLen(arguments, max(f.Specs, 1)))
	}
}

func TestWriteReportsWhatGoesWrong(t *testing.T) {
	err := syntheticFile{}.Write(filepath.Join(t.TempDir(), "no", "such", "folder"))
	qt.Check(t, qt.ErrorIs(err, os.ErrNotExist))
}
