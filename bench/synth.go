// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package main

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"
	"runtime"

	"github.com/gousdt/gousdt/internal/elffile/elfimage"
)

// A syntheticFile is an ELF file with any number of probes, to be listed and
// attached to. A uprobe needs a file and not a process, so nobody ever runs it.
// Zero fields mean one of each.
type syntheticFile struct {
	Sites int
	// Probes share the sites equally: probe_0 has the first of them. The
	// provider is syntheticProvider.
	Probes int
	// Specs is how many different argument strings there are. Sites take them
	// in turn.
	Specs int
}

// syntheticProvider is the provider of all probes.
const syntheticProvider = "synthetic"

func syntheticProbe(i int) string { return fmt.Sprintf("probe_%d", i) }

// machine is what a site looks like.
type machine struct {
	number    elf.Machine
	nop       []byte
	arguments string // with the number of the string
}

var machines = map[string]machine{
	"amd64": {elf.EM_X86_64, []byte{0x90}, "8@%%rdi -4@%%esi -4@-%d(%%rbp)"},
	"arm64": {elf.EM_AARCH64, []byte{0x1f, 0x20, 0x03, 0xd5}, "8@x0 -4@x1 -4@[sp, %d]"},
}

// Write writes the file, an ELF64 shared library for the machine that this
// program was built for.
func (f syntheticFile) Write(path string) error {
	f.Sites, f.Probes, f.Specs = max(f.Sites, 1), max(f.Probes, 1), max(f.Specs, 1)
	native, ok := machines[runtime.GOARCH]
	if !ok {
		return fmt.Errorf("no probes are known to be made for %s", runtime.GOARCH)
	}
	const page, distance = 4096, 64 // bytes from one site to the next
	align := func(n int) int { return (n + page - 1) / page * page }
	size := align(f.Sites * distance)
	code := make([]byte, size)
	text := uint64(size) // addresses are file offsets
	image := &elfimage.Image{Class: elf.ELFCLASS64, Order: binary.LittleEndian, Type: elf.ET_DYN,
		Machine: native.number, Page: size}
	var notes []byte
	for i := range f.Sites {
		probe := int(int64(i) * int64(f.Probes) / int64(f.Sites))
		copy(code[i*distance:], native.nop)
		notes = append(notes, image.ProbeNote(text+uint64(i*distance), 0, 0, syntheticProvider,
			syntheticProbe(probe), fmt.Sprintf(native.arguments, 8*(1+i%f.Specs)))...)
	}
	image.Segments = []elfimage.Segment{
		{Kind: elf.PT_LOAD, Flags: elf.PF_R | elf.PF_X, Address: text, Data: code, Align: page},
	}
	image.AddNotes(notes)
	return os.WriteFile(path, image.Bytes(), 0o644)
}
