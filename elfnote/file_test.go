// SPDX-License-Identifier: BSD-2-Clause

package elfnote

import (
	"bytes"
	"debug/elf"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/elffile"
	"github.com/gousdt/gousdt/internal/elffile/elfimage"
)

// What a file is, in the words of tests.
const (
	executable          = "executable"
	positionIndependent = "position-independent file"
	debugFile           = "separate debug file"
	object              = "object file"
)

func kindOf(f *File) string {
	switch {
	case f.IsDebugFile():
		return debugFile
	case f.Header().Type == elf.ET_EXEC:
		return executable
	case f.Header().Type == elf.ET_REL:
		return object
	}
	return positionIndependent
}

func isAttachable(f *File) bool { return !f.IsDebugFile() && f.Header().Type != elf.ET_REL }

func TestIsDebugFile(t *testing.T) {
	missing := func(im *image) { im.Sections[0].Kind = elf.SHT_NOBITS }
	for _, test := range []struct {
		name   string
		change func(im *image)
		want   string
	}{
		{"ET_EXEC is an executable", func(im *image) { im.Type = elf.ET_EXEC }, executable},
		{"ET_DYN is position-independent", func(im *image) {}, positionIndependent},
		{"ET_REL is an object", func(im *image) { im.Type = elf.ET_REL }, object},
		{"ET_DYN whose code is missing is a debug file", missing, debugFile},
		{"ET_EXEC whose code is missing is a debug file",
			func(im *image) { im.Type = elf.ET_EXEC; missing(im) }, debugFile},
		{"ET_REL whose code is missing is an object",
			func(im *image) { im.Type = elf.ET_REL; missing(im) }, object},
		{"some code is enough", func(im *image) {
			im.Sections = append(im.Sections, im.Sections[0])
			missing(im)
		}, positionIndependent},
		{"a file without sections has its code",
			func(im *image) { im.Edit = func(b []byte) { clear(b[40:48]) } }, positionIndependent},
	} {
		t.Run(test.name, func(t *testing.T) {
			im := newImage64()
			test.change(im)
			qt.Assert(t, qt.Equals(kindOf(im.open(t)), test.want))
		})
	}
}

func TestOpenTakesExtendedNumberingFromSectionZero(t *testing.T) {
	everyClass(t, func(t *testing.T, im *image) {
		im.Extended = true
		im.AddNotes(im.note(Site{Location: codeAddress, Provider: "p", Name: "n"}))
		f := im.open(t)
		qt.Assert(t, qt.HasLen(f.elf.Segments, 2))
		sites, errs := collect(f)
		qt.Assert(t, qt.HasLen(errs, 0))
		qt.Assert(t, qt.HasLen(sites, 1))
	})
}

func TestOpenManySections(t *testing.T) {
	// More sections than fit a window, and more than sixteen bits can count.
	for _, count := range []int{elffile.ChunkSize / elfimage.SectionSize64,
		3 * elffile.ChunkSize / elfimage.SectionSize64, 70000} {
		im := newImage64()
		im.Extended = true
		im.Segments[1].Data = nil
		for range count {
			im.Sections = append(im.Sections, elfimage.Section{Name: "x", Kind: elf.SHT_PROGBITS})
		}
		im.AddNotes(im.note(Site{Location: codeAddress, Provider: "p", Name: "n"}))
		sites, errs := collect(im.open(t))
		qt.Assert(t, qt.HasLen(errs, 0))
		qt.Assert(t, qt.HasLen(sites, 1))
	}
}

func TestProbesOfFilesWithoutAny(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(im *image)
	}{
		{"no note section", func(im *image) {}},
		{"empty note section", func(im *image) { im.AddNotes() }},
		{"note section without content", func(im *image) {
			im.AddNotes()
			im.Sections[1].Kind, im.Sections[1].Size = elf.SHT_NOBITS, elfimage.Ptr[uint64](1<<40)
		}},
		{"no section headers",
			func(im *image) {
				im.AddNotes(im.note(Site{}))
				im.Edit = func(b []byte) {
					clear(b[40:48])
				}
			}},
		{"no section headers but an offset",
			func(im *image) { im.Edit = func(b []byte) { b[47] = 1; clear(b[58:64]) } }},
		{"no section names",
			func(im *image) {
				im.AddNotes(im.note(Site{}))
				im.Edit = func(b []byte) {
					clear(b[62:64])
				}
			}},
		{"section names without content", func(im *image) {
			im.AddNotes(im.note(Site{}))
			im.Edit = func(b []byte) {
				b[int(im.Order.Uint64(b[40:]))+3*elfimage.SectionSize64+4] = byte(elf.SHT_NOBITS)
			}
		}},
		{"names past the section names", func(im *image) {
			im.AddNotes(im.note(Site{}))
			im.Edit = func(b []byte) {
				b[int(im.Order.Uint64(b[40:]))+2*elfimage.SectionSize64+3] = 1
			}
		}},
		{"longer name", func(im *image) {
			im.AddNotes(im.note(Site{}))
			im.Sections[1].Name += "x"
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			im := newImage64()
			test.change(im)
			f := im.open(t)
			sites, errs := collect(f)
			qt.Assert(t, qt.HasLen(sites, 0))
			qt.Assert(t, qt.HasLen(errs, 0))
		})
	}
}

func TestOpenKeepsTheFileOpenUntilClose(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	b := newImage64().Bytes()
	qt.Assert(t, qt.IsNil(os.WriteFile(path, b, 0o600)))
	f, err := Open(path)
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.Equals(elffile.OSFile(f).Name(), path))
	qt.Assert(t, qt.IsNil(os.Remove(path)))

	got := make([]byte, 8)
	n, err := elffile.OSFile(f).ReadAt(got, codeOffset)
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.DeepEquals(got[:n], b[codeOffset:codeOffset+8]))

	qt.Assert(t, qt.IsNil(f.Close()))
	_, err = elffile.OSFile(f).ReadAt(got, 0)
	qt.Assert(t, qt.ErrorIs(err, os.ErrClosed))
	qt.Assert(t, qt.IsNil(f.Close()))
}

func TestNewFileLeavesTheFileOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	qt.Assert(t, qt.IsNil(os.WriteFile(path, newImage64().Bytes(), 0o600)))
	file, err := os.Open(path)
	qt.Assert(t, qt.IsNil(err))
	defer file.Close()
	_, err = file.Seek(100, io.SeekStart)
	qt.Assert(t, qt.IsNil(err))

	f, err := NewFile(file)
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.Equals(elffile.OSFile(f), file))
	qt.Assert(t, qt.IsNil(f.Close()))
	offset, err := file.Seek(0, io.SeekCurrent)
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.Equals(offset, 100))
}

func TestNewFileOfAnotherReaderHasNoFile(t *testing.T) {
	f := newImage64().open(t)
	qt.Assert(t, qt.IsNil(elffile.OSFile(f)))
	qt.Assert(t, qt.IsNil(f.Close()))
}

func TestOpenErrorsNameTheFile(t *testing.T) {
	dir := t.TempDir()
	_, err := Open(filepath.Join(dir, "missing"))
	qt.Assert(t, qt.ErrorIs(err, os.ErrNotExist))
	qt.Assert(t, qt.ErrorMatches(err, ".*missing.*"))

	path := filepath.Join(dir, "text")
	qt.Assert(t, qt.IsNil(os.WriteFile(path, []byte("#!/bin/sh\n"), 0o600)))
	_, err = Open(path)
	qt.Assert(t, qt.ErrorIs(err, ErrNotELF))
	qt.Assert(t, qt.ErrorMatches(err, ".*/text: not an ELF file"))

	_, err = Open(dir)
	qt.Assert(t, qt.IsNotNil(err))
}

// ownReader has the methods that readers inside of this module had.
type ownReader struct{ *bytes.Reader }

func (ownReader) ELF() *File { panic("called") }

func TestAReaderIsReadWhateverMethodsItHas(t *testing.T) {
	im := newImage64()
	im.AddNotes(im.note(at(1)))
	f, err := NewFile(ownReader{bytes.NewReader(im.Bytes())})
	qt.Assert(t, qt.IsNil(err))
	sites, _ := collect(f)
	qt.Assert(t, qt.HasLen(sites, 1))
}
