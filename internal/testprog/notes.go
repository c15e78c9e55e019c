// SPDX-License-Identifier: BSD-2-Clause

package testprog

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"maps"
	"os"
	"runtime"
	"slices"
	"testing"

	"github.com/gousdt/gousdt/internal/testneeds"
)

// Note is a probe of a file that WriteNotes writes.
type Note struct {
	Provider, Name, Arguments string
	Broken                    bool // it leads to no code
	NoNop                     bool // it leads to code that is no nop
	Semaphore                 bool // it has one, and its own place in the code
}

// nops are what machines have at a site.
var nops = map[string]struct {
	machine elf.Machine
	code    []byte
}{
	"amd64":   {elf.EM_X86_64, []byte{0x90}},
	"arm64":   {elf.EM_AARCH64, []byte{0x1f, 0x20, 0x03, 0xd5}},
	"riscv64": {elf.EM_RISCV, []byte{0x13, 0, 0, 0}},
	"s390x":   {elf.EM_S390, []byte{0x47, 0, 0, 0}},
}

// WriteNotes writes a library with the notes of any probes, all of them at one
// place in the code unless they have semaphores, to be looked at, attached to
// and mapped, but not to be run: an untrusted file.
func WriteNotes(t testing.TB, path string, notes []Note) {
	t.Helper()
	testneeds.Only(t, "nops of other machines are not known", slices.Sorted(maps.Keys(nops))...)
	native := nops[runtime.GOARCH]
	const page, location, data = 4096, 0x800, 1 << 30
	semaphores := 0
	for _, n := range notes {
		if n.Semaphore {
			semaphores++
		}
	}
	var b bytes.Buffer
	put := func(values ...any) {
		for _, v := range values {
			_ = binary.Write(&b, binary.NativeEndian, v) // to a buffer: cannot fail
		}
	}
	pad := func(align int) { b.Write(make([]byte, -b.Len()&(align-1))) }

	b.Write(make([]byte, location))
	b.Write(bytes.Repeat(native.code, semaphores+1))
	pad(page)
	dataAt := b.Len()
	b.Write(make([]byte, 2*semaphores))
	pad(page)
	notesAt := b.Len()
	var four [4]byte
	word := func(n int) { // faster than put
		binary.NativeEndian.PutUint32(four[:], uint32(n))
		b.Write(four[:])
	}
	semaphores = 0
	for _, n := range notes {
		word(len("stapsdt\x00"))
		word(3*8 + len(n.Provider) + len(n.Name) + len(n.Arguments) + 3)
		word(3)
		b.WriteString("stapsdt\x00")
		at := uint64(location)
		switch {
		case n.Broken:
			at = 1 << 30
		case n.NoNop:
			at += 0x100
		}
		semaphore := uint64(0)
		if n.Semaphore {
			semaphore = uint64(data + 2*semaphores)
			semaphores++
			// The kernel refuses a place with two semaphores.
			at += uint64(semaphores * len(native.code))
		}
		put(at, uint64(0), semaphore)
		for _, text := range []string{n.Provider, n.Name, n.Arguments} {
			b.WriteString(text)
			b.WriteByte(0)
		}
		pad(4)
	}
	namesAt := b.Len()
	const names = "\x00.note.stapsdt\x00.shstrtab\x00"
	b.WriteString(names)
	pad(8)
	sectionsAt := b.Len()
	section := func(name uint32, kind elf.SectionType, at, size int) {
		put(name, uint32(kind), uint64(0), uint64(0), uint64(at), uint64(size), uint32(0),
			uint32(0), uint64(4), uint64(0))
	}
	section(0, elf.SHT_NULL, 0, 0)
	section(1, elf.SHT_NOTE, notesAt, namesAt-notesAt)
	section(15, elf.SHT_STRTAB, namesAt, len(names))
	file := bytes.Clone(b.Bytes())

	b.Reset()
	order := elf.ELFDATA2LSB
	if binary.NativeEndian.Uint16([]byte{0, 1}) == 1 {
		order = elf.ELFDATA2MSB
	}
	b.Write([]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(order), byte(elf.EV_CURRENT),
		8: 0, 15: 0})
	put(uint16(elf.ET_DYN), uint16(native.machine), uint32(1), uint64(0), uint64(64),
		uint64(sectionsAt),
		uint32(0), uint16(64), uint16(56), uint16(2), uint16(64), uint16(3), uint16(2))
	put(uint32(elf.PT_LOAD), uint32(elf.PF_R|elf.PF_X), uint64(0), uint64(0), uint64(0),
		uint64(dataAt), uint64(dataAt), uint64(page))
	kind := elf.PT_NULL
	if semaphores > 0 {
		kind = elf.PT_LOAD
	}
	put(uint32(kind), uint32(elf.PF_R|elf.PF_W), uint64(dataAt), uint64(data), uint64(data),
		uint64(notesAt-dataAt), uint64(notesAt-dataAt), uint64(page))
	copy(file, b.Bytes())
	if err := os.WriteFile(path, file, 0o755); err != nil {
		t.Fatal(err)
	}
}
