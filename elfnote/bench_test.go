// SPDX-License-Identifier: BSD-2-Clause

package elfnote

import (
	"bytes"
	"debug/elf"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-quicktest/qt"
)

// BenchmarkList lists files, from opening to closing, beside what it can be
// compared with in the same run:
//
//	pread      opens the file and reads the note section, whose place is known
//	debug/elf  opens the file with that package and reads the note section
//	sites      iterates over all sites
//	probes     groups them
//
// The synthetic file has 100,000 sites, in the order of the code or shuffled.
func BenchmarkList(b *testing.B) {
	files := []struct{ name, path string }{
		{"100000", syntheticFile(b, false)},
		{"100000-shuffled", syntheticFile(b, true)},
	}
	for _, of := range realFiles {
		for _, path := range installed(b, of) {
			files = append(files, struct{ name, path string }{filepath.Base(path), path})
		}
	}
	for _, file := range files {
		f, err := elf.Open(file.path)
		qt.Assert(b, qt.IsNil(err))
		section := f.Section(".note.stapsdt").SectionHeader
		f.Close()

		bench := func(name string, list func() error) {
			b.Run(file.name+"/"+name, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if err := list(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		bench("pread", func() error {
			f, err := os.Open(file.path)
			if err != nil {
				return err
			}
			defer f.Close()
			_, err = f.ReadAt(make([]byte, section.Size), int64(section.Offset))
			return err
		})
		bench("debug-elf", func() error {
			f, err := elf.Open(file.path)
			if err != nil {
				return err
			}
			defer f.Close()
			_, err = io.ReadFull(f.Section(".note.stapsdt").Open(), make([]byte, section.Size))
			return err
		})
		bench("sites", func() error {
			f, err := Open(file.path)
			if err != nil {
				return err
			}
			defer f.Close()
			for _, err := range f.Sites() {
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
}

const syntheticSites = 100_000

// syntheticFile writes a file with many sites, four to a probe.
func syntheticFile(t testing.TB, shuffled bool) string {
	im := newImage64()
	im.Segments[0].Data = make([]byte, 24*syntheticSites)
	im.Segments = im.Segments[:1]
	im.AddBase()
	var notes bytes.Buffer
	for i := range syntheticSites {
		place := i
		if shuffled {
			place = i * 7919 % syntheticSites // 7919 has no divisor in common with it
		}
		notes.Write(im.note(Site{
			Location:  codeAddress + 24*uint64(place),
			Base:      baseAddress,
			Provider:  "synthetic",
			Name:      fmt.Sprintf("probe_%05d", i/4),
			Arguments: fmt.Sprintf("-4@%%edi 8@-%d(%%rbp) 8@$%d", i%200*8, i),
		}))
	}
	im.AddNotes(notes.Bytes())
	path := filepath.Join(t.TempDir(), "synthetic")
	qt.Assert(t, qt.IsNil(os.WriteFile(path, im.Bytes(), 0o600)))
	return path
}

// TestSitesAllocateLittleBeyondTheNotes: one megabyte for 100,000 sites, in
// whatever order, and nothing for a single one.
func TestSitesAllocateLittleBeyondTheNotes(t *testing.T) {
	for _, shuffled := range []bool{false, true} {
		path := syntheticFile(t, shuffled)
		result := testing.Benchmark(func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				f, err := Open(path)
				if err != nil {
					b.Fatal(err)
				}
				count := 0
				for _, err := range f.Sites() {
					if err != nil {
						b.Fatal(err)
					}
					count++
				}
				if count != syntheticSites {
					b.Fatalf("%d sites", count)
				}
				b.ReportMetric(float64(f.elf.ProbeNotes[0].Size), "note-bytes")
				f.Close()
			}
		})
		beyond := result.AllocedBytesPerOp() - int64(result.Extra["note-bytes"])
		qt.Assert(t, qt.IsTrue(beyond < 1_000_000), qt.Commentf("shuffled %v: %d bytes", shuffled,
			beyond))
		qt.Assert(t, qt.IsTrue(result.AllocsPerOp() < syntheticSites/100),
			qt.Commentf("shuffled %v: %d allocations", shuffled, result.AllocsPerOp()))
	}
}

func BenchmarkSymbol(b *testing.B) {
	path := installed(b, realFiles[2])[0]
	b.ReportAllocs()
	for b.Loop() {
		f, err := Open(path)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := f.Symbol("JNI_CreateJavaVM"); err != nil {
			b.Fatal(err)
		}
		f.Close()
	}
}
