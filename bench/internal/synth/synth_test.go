// SPDX-License-Identifier: BSD-2-Clause

package synth_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/bench/internal/synth"
	"github.com/gousdt/gousdt/elfnote"
)

func list(t *testing.T, f synth.File) (*elfnote.File, *elfnote.Listing) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "synthetic.so")
	qt.Assert(t, qt.IsNil(f.Write(path)))
	file, err := elfnote.Open(path)
	qt.Assert(t, qt.IsNil(err))
	t.Cleanup(func() { file.Close() })
	listing, err := file.Probes()
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.HasLen(listing.Malformed, 0))
	return file, listing
}

func TestFilesHaveTheSitesAskedFor(t *testing.T) {
	for _, f := range []synth.File{
		{Sites: 1},
		{Sites: 100, Probes: 1, Specs: 100},
		{Sites: 1000, Probes: 7, Specs: 3, Distance: 32 << 10},
		{Sites: 10, Probes: 10, Semaphores: true},
	} {
		file, listing := list(t, f)
		qt.Check(t, qt.HasLen(listing.Probes, max(f.Probes, 1)))
		sites, arguments, semaphores := 0, make(map[string]bool), make(map[uint64]bool)
		var last uint64
		for i, probe := range listing.Probes {
			qt.Check(t, qt.Equals(probe.Provider, synth.Provider))
			qt.Check(t, qt.Equals(probe.Name, synth.Probe(i)))
			for _, site := range probe.Sites {
				sites++
				arguments[site.Arguments] = true
				semaphores[site.SemaphoreOffset] = true
				qt.Check(t, qt.IsTrue(site.Offset > last))
				last = site.Offset
				code := make([]byte, 1)
				_, err := file.ReadAt(code, int64(site.Offset))
				qt.Check(t, qt.IsNil(err))
				qt.Check(t, qt.IsTrue(code[0] != 0))
			}
		}
		qt.Check(t, qt.Equals(sites, f.Sites))
		qt.Check(t, qt.HasLen(arguments, max(f.Specs, 1)))
		if f.Semaphores {
			qt.Check(t, qt.HasLen(semaphores, f.Probes))
		} else {
			qt.Check(t, qt.DeepEquals(semaphores, map[uint64]bool{0: true}))
		}
	}
}

func TestWriteReportsWhatGoesWrong(t *testing.T) {
	err := synth.File{}.Write(filepath.Join(t.TempDir(), "no", "such", "folder"))
	qt.Check(t, qt.ErrorIs(err, os.ErrNotExist))
}
