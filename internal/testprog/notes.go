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

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/elffile/elfimage"
	"github.com/gousdt/gousdt/internal/testneeds"
)

// Note is a probe of a file that WriteNotes writes.
type Note struct {
	Provider, Name, Arguments string
	Broken                    bool // it leads to no code
	NoNop                     bool // it leads to code that is no nop
	Semaphore                 bool // it has one, and its own place in the code
	Apart                     bool // it has its own place in the code
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

// WriteNotes writes a library with the notes of any probes, to be looked at,
// attached to and mapped, but not to be run: an untrusted file.
func WriteNotes(t testing.TB, path string, notes []Note) {
	t.Helper()
	testneeds.Only(t, "nops of other machines are not known", slices.Sorted(maps.Keys(nops))...)
	qt.Assert(t, qt.IsNil(os.WriteFile(path, NotesFile(notes), 0o755)))
}

// NotesFile returns the library. All probes are at one place in the code unless
// they are apart or have semaphores.
func NotesFile(notes []Note) []byte {
	native := nops[runtime.GOARCH]
	const page, noNop, location, data, nowhere = 4096, 0x10000, 0x10100, 1 << 30, 1 << 40
	const distance = 64 // bytes from one place to the next
	order := elfimage.ByteOrder(binary.LittleEndian)
	if binary.NativeEndian.Uint16([]byte{0, 1}) == 1 {
		order = binary.BigEndian
	}
	image := &elfimage.Image{Class: elf.ELFCLASS64, Order: order, Type: elf.ET_DYN,
		Machine: native.machine}
	var raw []byte
	semaphores := 0
	code := append(make([]byte, location-noNop), native.code...)
	for _, n := range notes {
		at, semaphore := uint64(location), uint64(0)
		switch {
		case n.Broken:
			at = nowhere
		case n.NoNop:
			at = noNop
		case n.Apart || n.Semaphore: // the kernel refuses a place with two semaphores
			code = append(code, make([]byte, distance-len(native.code))...)
			at = noNop + uint64(len(code))
			code = append(code, native.code...)
		}
		if n.Semaphore {
			semaphore = uint64(data + 2*semaphores)
			semaphores++
		}
		raw = append(raw, image.ProbeNote(at, 0, semaphore, n.Provider, n.Name, n.Arguments)...)
	}
	image.Page = (len(code) + page - 1) / page * page
	image.Segments = []elfimage.Segment{{Kind: elf.PT_LOAD, Flags: elf.PF_R | elf.PF_X,
		Address: noNop, Data: code, Align: page}}
	if semaphores > 0 {
		image.Segments = append(image.Segments,
			elfimage.Segment{Kind: elf.PT_LOAD, Flags: elf.PF_R | elf.PF_W, Address: data,
				Data: make([]byte, 2*semaphores), Align: page})
	}
	image.AddNotes(raw)
	return image.Bytes()
}

// MakeCodeWritable makes the executable segments of a 64-bit file writable,
// too, as ld -N does.
func MakeCodeWritable(t testing.TB, path string) {
	t.Helper()
	contents, err := os.ReadFile(path)
	qt.Assert(t, qt.IsNil(err))
	file, err := elf.NewFile(bytes.NewReader(contents))
	qt.Assert(t, qt.IsNil(err))
	const headerSize, flags = 56, 4
	at := file.ByteOrder.Uint64(contents[32:]) // e_phoff
	for i, segment := range file.Progs {
		if segment.Type == elf.PT_LOAD && segment.Flags&elf.PF_X != 0 {
			file.ByteOrder.PutUint32(contents[at+headerSize*uint64(i)+flags:],
				uint32(segment.Flags|elf.PF_W))
		}
	}
	qt.Assert(t, qt.IsNil(os.WriteFile(path, contents, 0o755)))
}
