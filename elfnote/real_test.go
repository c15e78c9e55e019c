// SPDX-License-Identifier: BSD-2-Clause

package elfnote

import (
	"bufio"
	"bytes"
	"debug/elf"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/elffile"
	"github.com/gousdt/gousdt/internal/testneeds"
)

var update = flag.Bool("update", false, "write the listings in testdata anew")

// The files in testdata, which its Makefile makes.
var kept = []struct {
	name    string
	machine elf.Machine
	kind    string
	class   elf.Class
	big     bool
	buildID string
}{
	{"s390x.so", elf.EM_S390, positionIndependent, elf.ELFCLASS64, true,
		"62ca0dac2f57f10dfd787579b86e0b6632dbcef9"},
	{"s390x.so.debug", elf.EM_S390, debugFile, elf.ELFCLASS64, true,
		"62ca0dac2f57f10dfd787579b86e0b6632dbcef9"},
	{"arm64.pie", elf.EM_AARCH64, positionIndependent, elf.ELFCLASS64, false,
		"d1e7b168540e35b8549e52d298795f43f7a03eba"},
	{"arm64.o", elf.EM_AARCH64, object, elf.ELFCLASS64, false, ""},
	{"i386.exe", elf.EM_386, executable, elf.ELFCLASS32, false,
		"fa2db75a336e252f98adb041dc1e773c21103cb1"},
}

func TestSitesOfKeptFiles(t *testing.T) {
	for _, test := range kept {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join("testdata", test.name)
			f, err := Open(path)
			qt.Assert(t, qt.IsNil(err))
			defer f.Close()
			qt.Assert(t, qt.Equals(f.Header().Machine, test.machine))
			qt.Assert(t, qt.Equals(kindOf(f), test.kind))
			qt.Assert(t, qt.Equals(f.Header().Class, test.class))
			qt.Assert(t, qt.Equals(f.elf.Words.Big, test.big))
			id, err := f.BuildID()
			if test.buildID == "" {
				qt.Assert(t, qt.ErrorIs(err, elffile.ErrNoBuildID))
			} else {
				qt.Assert(t, qt.IsNil(err))
				qt.Assert(t, qt.Equals(id, test.buildID))
			}

			var got bytes.Buffer
			for s, err := range f.Sites() {
				if err != nil {
					fmt.Fprintln(&got, err)
					continue
				}
				fmt.Fprintf(&got,
					"%s:%s location %#x offset %#x base %#x semaphore %#x at %#x arguments %q\n",
					s.Provider, s.Name, s.Location, s.Offset, s.Base, s.Semaphore,
					s.SemaphoreOffset, s.Arguments)
			}
			if *update {
				qt.Assert(t, qt.IsNil(os.WriteFile(path+".txt", got.Bytes(), 0o644)))
			}
			want, err := os.ReadFile(path + ".txt")
			qt.Assert(t, qt.IsNil(err))
			qt.Assert(t, qt.Equals(got.String(), string(want)))
		})
	}
}

func TestSymbolsOfKeptFiles(t *testing.T) {
	for _, test := range []struct {
		file, symbol string
		want         uint64
		err          error
	}{
		{"s390x.so", "counter", 0x2050, nil},
		// Hidden: only in the debug file.
		{"s390x.so", "elf_guarded_semaphore", 0, elffile.ErrSymbolNotFound},
		{"s390x.so.debug", "counter", 0x2050, nil},
		{"s390x.so.debug", "elf_guarded_semaphore", 0x205e, nil},
		{"i386.exe", "elf_guarded_semaphore", 0x8049184, nil},
		{"arm64.pie", "counter", 0, elffile.ErrSymbolNotFound}, // stripped
	} {
		f, err := Open(filepath.Join("testdata", test.file))
		qt.Assert(t, qt.IsNil(err))
		defer f.Close()
		got, err := f.Symbol(test.symbol)
		qt.Assert(t, qt.ErrorIs(err, test.err), qt.Commentf("%s in %s", test.symbol, test.file))
		qt.Assert(t, qt.Equals(got.Value, test.want),
			qt.Commentf("%s in %s", test.symbol, test.file))
	}
}

func TestPLTGOTOfKeptFiles(t *testing.T) {
	for _, test := range []struct {
		file string
		want uint64
		err  error
	}{
		{"s390x.so", 0x1fd8, nil},
		{"s390x.so.debug", 0x1fd8, nil},
		{"i386.exe", 0, elffile.ErrNoPLTGOT},
		{"arm64.o", 0, elffile.ErrNoPLTGOT},
	} {
		f, err := Open(filepath.Join("testdata", test.file))
		qt.Assert(t, qt.IsNil(err))
		defer f.Close()
		got, err := f.Symbol("_GLOBAL_OFFSET_TABLE_")
		qt.Assert(t, qt.ErrorIs(err, test.err), qt.Commentf(test.file))
		qt.Assert(t, qt.Equals(got.Value, test.want), qt.Commentf(test.file))
	}
}

func TestSitesOfADebugFile(t *testing.T) {
	library, err := Open("testdata/s390x.so")
	qt.Assert(t, qt.IsNil(err))
	defer library.Close()
	debug, err := Open("testdata/s390x.so.debug")
	qt.Assert(t, qt.IsNil(err))
	defer debug.Close()

	inDebug := map[Site]bool{}
	for s, err := range debug.Sites() {
		qt.Assert(t, qt.IsNil(err))
		inDebug[s] = true
	}
	count := 0
	for s, err := range library.Sites() {
		if err != nil {
			continue
		}
		s.Offset, s.SemaphoreOffset = 0, 0
		qt.Assert(t, qt.IsTrue(inDebug[s]), qt.Commentf("%+v", s))
		count++
	}
	qt.Assert(t, qt.Equals(count, 6))
	qt.Assert(t, qt.HasLen(inDebug, 7)) // with the one whose semaphore is in the bss
}

type realFile struct{ pattern, debian string }

// installed returns the paths of files of a Debian package.
func installed(t testing.TB, of realFile) []string {
	t.Helper()
	paths, err := filepath.Glob(of.pattern)
	qt.Assert(t, qt.IsNil(err))
	if len(paths) == 0 {
		testneeds.Missing(t, "needs %s (Debian: %s)", of.pattern, of.debian)
	}
	return paths
}

// realFiles are libraries and programs with many probes, and Debian's packages
// that have them.
var realFiles = []realFile{
	{"/usr/lib/x86_64-linux-gnu/libstdc++.so.6", "libstdc++6"},
	{"/usr/lib/postgresql/*/bin/postgres", "postgresql"},
	{"/usr/lib/jvm/*/lib/server/libjvm.so", "default-jre-headless"},
}

func TestSitesAreThoseOfReadelf(t *testing.T) {
	for _, of := range realFiles {
		t.Run(filepath.Base(of.pattern), func(t *testing.T) {
			for _, path := range installed(t, of) {
				compareWithReadelf(t, path)
			}
		})
	}
}

func TestSitesOfKeptFilesAreThoseOfReadelf(t *testing.T) {
	for _, test := range kept {
		t.Run(test.name, func(t *testing.T) {
			compareWithReadelf(t,
				filepath.Join("testdata", test.name))
		})
	}
}

// compareWithReadelf compares all sites with the notes that readelf prints, and
// their offsets with the program headers as debug/elf reads them.
func compareWithReadelf(t *testing.T, path string) {
	notes := readelfNotes(t, path)
	f, err := Open(path)
	qt.Assert(t, qt.IsNil(err))
	defer f.Close()
	peer, err := elf.Open(path)
	qt.Assert(t, qt.IsNil(err))
	defer peer.Close()

	i := 0
	for site, err := range f.Sites() {
		qt.Assert(t, qt.IsTrue(i < len(notes)))
		note := notes[i]
		i++
		if err != nil {
			// In the kept files, the one whose semaphore is in the bss.
			qt.Assert(t, qt.ErrorIs(err, errSemaphoreInBSS))
			qt.Assert(t, qt.Equals(note.Name, "unplaced"))
			continue
		}
		if f.isObject() {
			// readelf applies relocations.
			note.Location, note.Semaphore = site.Location, site.Semaphore
		}
		if isAttachable(f) {
			note.Offset = peerOffset(t, peer, site.Location, elf.PF_X)
			if site.Semaphore != 0 {
				note.SemaphoreOffset = peerOffset(t, peer, site.Semaphore, elf.PF_W)
			}
		}
		qt.Assert(t, qt.Equals(site, note))
		if !isAttachable(f) {
			continue
		}
		code := make([]byte, 4)
		n, err := elffile.OSFile(f).ReadAt(code, int64(site.Offset))
		qt.Assert(t, qt.IsNil(err))
		qt.Assert(t, qt.IsTrue(bytes.HasPrefix(code[:n], nops[f.Header().Machine])),
			qt.Commentf("% x at %#x", code[:n], site.Location))
	}
	qt.Assert(t, qt.Equals(i, len(notes)))
	qt.Assert(t, qt.IsTrue(i > 2))
}

// nops are the instructions at the sites, as sys/sdt.h writes them.
var nops = map[elf.Machine][]byte{
	elf.EM_X86_64:  {0x90},
	elf.EM_386:     {0x90},
	elf.EM_AARCH64: {0x1f, 0x20, 0x03, 0xd5},
	elf.EM_S390:    {0x47, 0, 0, 0},
}

func peerOffset(t *testing.T, f *elf.File, address uint64, flag elf.ProgFlag) uint64 {
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && p.Flags&flag != 0 && address >= p.Vaddr &&
			address < p.Vaddr+p.Filesz {
			return address - p.Vaddr + p.Off
		}
	}
	t.Fatalf("no segment has %#x", address)
	return 0
}

// readelfNotes returns the notes of probes that readelf -n prints.
func readelfNotes(t *testing.T, path string) []Site {
	t.Helper()
	command := exec.Command(testneeds.Tool(t, "readelf", "binutils"), "--notes", "--wide", path)
	command.Env = append(os.Environ(), "LC_ALL=C")
	out, err := command.Output()
	qt.Assert(t, qt.IsNil(err))

	var notes []Site
	number := func(s string) uint64 {
		v, err := strconv.ParseUint(s, 0, 64)
		qt.Assert(t, qt.IsNil(err))
		return v
	}
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		line := lines.Text()
		// A wide header line has the provider behind it.
		if at := strings.Index(line, "Provider: "); at >= 0 {
			notes = append(notes, Site{Provider: line[at+len("Provider: "):]})
			continue
		}
		key, value, ok := strings.Cut(strings.TrimLeft(line, " "), ": ")
		if !ok || len(notes) == 0 {
			continue
		}
		switch last := &notes[len(notes)-1]; key {
		case "Name":
			last.Name = value
		case "Location":
			var location, base, semaphore string
			_, err := fmt.Sscanf(value, "%s Base: %s Semaphore: %s", &location, &base, &semaphore)
			qt.Assert(t, qt.IsNil(err))
			last.Location, last.Base, last.Semaphore = number(strings.TrimSuffix(location,
				",")), number(strings.TrimSuffix(base, ",")), number(semaphore)
		case "Arguments":
			last.Arguments = value
		}
	}
	return notes
}
