// SPDX-License-Identifier: BSD-2-Clause

package procwatch

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/defs"
	"github.com/gousdt/gousdt/internal/testneeds"
)

// testELF describes a file for tests: one segment, readable and executable,
// with code and the notes of probes.
type testELF struct {
	probes [][2]string // provider, name
	broken bool        // the first note's location is outside of the segment
	empty  int         // number of notes without a descriptor that follow
	tag    byte        // makes contents differ that are of the same size
}

const (
	elfBase = 0x400000
	elfCode = 0x1000 // where the code is, in the file and from elfBase
)

// waitCode is a program that writes a byte to its standard output, reads one
// from its standard input, or waits for its end, and exits.
var waitCode = map[string]struct {
	machine elf.Machine
	code    []byte
}{
	"amd64": {elf.EM_X86_64, []byte{
		0x48, 0x8d, 0x74, 0x24, 0xf8, // lea rsi, [rsp-8]
		0xba, 1, 0, 0, 0, // mov edx, 1
		0xb8, 1, 0, 0, 0, 0xbf, 1, 0, 0, 0, 0x0f, 0x05, // mov eax, 1 (write); mov edi, 1; syscall
		0x31, 0xc0, 0x31, 0xff, 0x0f, 0x05, // xor eax, eax (read); xor edi, edi; syscall
		0xb8, 60, 0, 0, 0, 0x31, 0xff, 0x0f, 0x05, // mov eax, 60 (exit); xor edi, edi; syscall
	}},
	"arm64": {elf.EM_AARCH64, []byte{
		0x20, 0x00, 0x80, 0xd2, // mov x0, 1
		0xe1, 0x43, 0x00, 0xd1, // sub x1, sp, 16
		0x22, 0x00, 0x80, 0xd2, // mov x2, 1
		0x08, 0x08, 0x80, 0xd2, // mov x8, 64 (write)
		0x01, 0x00, 0x00, 0xd4, // svc 0
		0x00, 0x00, 0x80, 0xd2, // mov x0, 0
		0xe8, 0x07, 0x80, 0xd2, // mov x8, 63 (read)
		0x01, 0x00, 0x00, 0xd4, // svc 0
		0x00, 0x00, 0x80, 0xd2, // mov x0, 0
		0xa8, 0x0b, 0x80, 0xd2, // mov x8, 93 (exit)
		0x01, 0x00, 0x00, 0xd4, // svc 0
	}},
}

// needWaitCode skips a test on machines that waitCode has no code for.
func needWaitCode(t testing.TB) {
	t.Helper()
	testneeds.Only(t, "the test's own program is for no other machine",
		slices.Sorted(maps.Keys(waitCode))...)
}

// bytes returns the file, which runs on this machine if waitCode has code for
// it.
func (e testELF) bytes() []byte {
	machine, code := elf.EM_X86_64, waitCode["amd64"].code
	if native, ok := waitCode[runtime.GOARCH]; ok {
		machine, code = native.machine, native.code
	}
	const notesAt = elfCode + 0x100
	var notes bytes.Buffer
	for i, probe := range e.probes {
		location := uint64(elfBase + elfCode + 4*i)
		if e.broken && i == 0 {
			location = 0x10
		}
		var desc bytes.Buffer
		put(&desc, location, uint64(0), uint64(0))
		desc.WriteString(probe[0] + "\x00" + probe[1] + "\x00" + "\x00")
		put(&notes, uint32(8), uint32(desc.Len()), uint32(3))
		notes.WriteString("stapsdt\x00")
		notes.Write(desc.Bytes())
		notes.Write(make([]byte, -desc.Len()&3))
	}
	for range e.empty {
		put(&notes, uint32(8), uint32(0), uint32(3))
		notes.WriteString("stapsdt\x00")
	}
	names := "\x00.note.stapsdt\x00.shstrtab\x00"
	namesAt := notesAt + notes.Len()
	sectionsAt := (namesAt + len(names) + 7) &^ 7
	end := sectionsAt + 3*64

	var b bytes.Buffer
	b.WriteString("\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00")
	put(&b, uint16(elf.ET_EXEC), uint16(machine), uint32(1), uint64(elfBase+elfCode), uint64(64),
		uint64(sectionsAt),
		uint32(0), uint16(64), uint16(56), uint16(1), uint16(64), uint16(3), uint16(2))
	put(&b, uint32(elf.PT_LOAD), uint32(elf.PF_R|elf.PF_X), uint64(0), uint64(elfBase),
		uint64(elfBase),
		uint64(end), uint64(end), uint64(0x1000))
	b.WriteByte(e.tag)
	b.Write(make([]byte, elfCode-b.Len()))
	b.Write(code)
	b.Write(make([]byte, notesAt-b.Len()))
	b.Write(notes.Bytes())
	b.WriteString(names)
	b.Write(make([]byte, sectionsAt-b.Len()))
	section := func(name uint32, kind elf.SectionType, at, size int) {
		put(&b, name, uint32(kind), uint64(0), uint64(0), uint64(at), uint64(size), uint32(0),
			uint32(0), uint64(4), uint64(0))
	}
	section(0, elf.SHT_NULL, 0, 0)
	section(1, elf.SHT_NOTE, notesAt, notes.Len())
	section(15, elf.SHT_STRTAB, namesAt, len(names))
	return b.Bytes()
}

func put(b *bytes.Buffer, values ...any) {
	for _, v := range values {
		_ = binary.Write(b, binary.LittleEndian, v) // to a buffer: cannot fail
	}
}

// write puts the file at a path, whose directory it makes.
func (e testELF) write(t testing.TB, path ...string) string {
	t.Helper()
	p := filepath.Join(path...)
	qt.Assert(t, qt.IsNil(os.MkdirAll(filepath.Dir(p), 0o755)))
	qt.Assert(t, qt.IsNil(os.WriteFile(p, e.bytes(), 0o755)))
	qt.Assert(t, qt.IsNil(os.Chtimes(p, time.Time{}, time.Unix(1, 0)))) // it has settled
	return p
}

var (
	memoryProbes = testELF{probes: [][2]string{{"otel_memory", "alloc"}, {"otel_memory", "free"}}}
	otherProbes  = testELF{probes: [][2]string{{"libstdcxx", "throw"}}}
	noProbes     = testELF{}
)

func TestTestELFHasTheProbesItIsMadeWith(t *testing.T) {
	f, err := elfnote.NewFile(bytes.NewReader(memoryProbes.bytes()))
	qt.Assert(t, qt.IsNil(err))
	listing, err := defs.List(f)
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.HasLen(listing.Malformed, 0))
	qt.Assert(t, qt.HasLen(listing.Probes, 2))
	qt.Assert(t, qt.Equals(listing.Probes[1].Name, "free"))
}

func patterns(t testing.TB, sources ...string) []elfnote.Pattern {
	t.Helper()
	var list []elfnote.Pattern
	for _, source := range sources {
		p, err := elfnote.ParsePattern(source)
		qt.Assert(t, qt.IsNil(err))
		list = append(list, p)
	}
	return list
}
