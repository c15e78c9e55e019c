// SPDX-License-Identifier: BSD-2-Clause

// Package synth writes ELF files with any number of probes, to be listed and
// attached to. A uprobe needs a file and not a process, so nobody ever runs
// them.
package synth

import (
	"bufio"
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"runtime"
)

// File says what is in a file. Zero fields mean one of each, without
// semaphores.
type File struct {
	Sites int
	// Probes share the sites equally: probe_0 has the first of them. The
	// provider is Provider.
	Probes int
	// Specs is how many different argument strings there are. Sites take them
	// in turn.
	Specs int
	// Distance is the number of bytes from one site to the next, 64 if it is 0.
	Distance int
	// Semaphores gives each probe one.
	Semaphores bool
}

// Provider is the provider of all probes.
const Provider = "synthetic"

// Probe returns the name of a probe.
func Probe(i int) string { return fmt.Sprintf("probe_%d", i) }

const (
	page            = 4096
	defaultDistance = 64
	semaphoreSize   = 2
)

// Write writes the file, an ELF64 shared library for the machine that this
// program was built for.
func (f File) Write(path string) error {
	f.Sites, f.Probes, f.Specs = max(f.Sites, 1), max(f.Probes, 1), max(f.Specs, 1)
	if f.Distance == 0 {
		f.Distance = defaultDistance
	}
	code, ok := machines[runtime.GOARCH]
	if !ok {
		return fmt.Errorf("no probes are known to be made for %s", runtime.GOARCH)
	}
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	l := layout{File: f, machine: code}
	l.place()
	w := bufio.NewWriterSize(out, 1<<20)
	err = l.write(w)
	if err == nil {
		err = w.Flush()
	}
	if closeErr := out.Close(); err == nil {
		err = closeErr
	}
	return err
}

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

// layout is where in a file everything is. Addresses are file offsets.
type layout struct {
	File
	machine machine

	notes             bytes.Buffer
	text, data, base  uint64
	dataSize          uint64
	notesAt, names    uint64
	sections, codeEnd uint64
}

func (l *layout) site(i int) uint64 { return l.text + uint64(i*l.Distance) }

// probe returns the number of the probe that a site belongs to.
func (l *layout) probe(site int) int { return int(int64(site) * int64(l.Probes) / int64(l.Sites)) }

func align(n, to uint64) uint64 { return (n + to - 1) / to * to }

const sectionNames = "\x00.text\x00.stapsdt.base\x00.data\x00.note.stapsdt\x00.shstrtab\x00"

func (l *layout) place() {
	l.text = page
	l.codeEnd = l.text + uint64(l.Sites*l.Distance)
	l.base = l.codeEnd
	l.data = align(l.base+1, page)
	l.dataSize = semaphoreSize
	if l.Semaphores {
		l.dataSize = uint64(l.Probes * semaphoreSize)
	}
	for i := range l.Sites {
		l.addNote(i)
	}
	l.notesAt = align(l.data+l.dataSize, 4)
	l.names = l.notesAt + uint64(l.notes.Len())
	l.sections = align(l.names+uint64(len(sectionNames)), 8)
}

func (l *layout) addNote(site int) {
	probe := l.probe(site)
	var semaphore uint64
	if l.Semaphores {
		semaphore = l.data + uint64(probe*semaphoreSize)
	}
	var description []byte
	for _, address := range []uint64{l.site(site), l.base, semaphore} {
		description = binary.LittleEndian.AppendUint64(description, address)
	}
	arguments := fmt.Sprintf(l.machine.arguments, 8*(1+site%l.Specs))
	description = fmt.Appendf(description, "%s\x00%s\x00%s\x00", Provider, Probe(probe), arguments)

	var header []byte
	for _, n := range []int{len("stapsdt\x00"), len(description), 3} {
		header = binary.LittleEndian.AppendUint32(header, uint32(n))
	}
	l.notes.Write(header)
	l.notes.WriteString("stapsdt\x00")
	l.notes.Write(description)
	l.notes.Write(make([]byte, -len(description)&3))
}

// write writes the file from its beginning to its end.
func (l *layout) write(w io.Writer) error {
	o := &offsetWriter{w: w}
	o.value(elf.Header64{
		Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB),
			byte(elf.EV_CURRENT)},
		Type:      uint16(elf.ET_DYN),
		Machine:   uint16(l.machine.number),
		Version:   uint32(elf.EV_CURRENT),
		Phoff:     64,
		Shoff:     l.sections,
		Ehsize:    64,
		Phentsize: 56,
		Phnum:     2,
		Shentsize: 64,
		Shnum:     6,
		Shstrndx:  5,
	})
	codeSize := l.base + 1
	o.value([]elf.Prog64{
		{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X), Filesz: codeSize,
			Memsz: codeSize, Align: page},
		{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_W), Off: l.data, Vaddr: l.data,
			Paddr:  l.data,
			Filesz: l.dataSize, Memsz: l.dataSize, Align: page},
	})
	for i := range l.Sites {
		o.skip(l.site(i))
		o.Write(l.machine.nop)
	}
	o.skip(l.notesAt)
	o.Write(l.notes.Bytes())
	io.WriteString(o, sectionNames)
	o.skip(l.sections)

	alloc, write, code := uint64(elf.SHF_ALLOC), uint64(elf.SHF_WRITE), uint64(elf.SHF_EXECINSTR)
	section := func(number int, kind elf.SectionType, flags, at, size, align uint64) elf.Section64 {
		s := elf.Section64{Type: uint32(kind), Flags: flags, Off: at, Size: size, Addralign: align}
		s.Name = uint32(nameOffset(number))
		if flags&alloc != 0 {
			s.Addr = at
		}
		return s
	}
	o.value([]elf.Section64{
		{},
		section(1, elf.SHT_PROGBITS, alloc|code, l.text, l.codeEnd-l.text, 16),
		section(2, elf.SHT_PROGBITS, alloc, l.base, 1, 1),
		section(3, elf.SHT_PROGBITS, alloc|write, l.data, l.dataSize, 2),
		section(4, elf.SHT_NOTE, 0, l.notesAt, uint64(l.notes.Len()), 4),
		section(5, elf.SHT_STRTAB, 0, l.names, uint64(len(sectionNames)), 1),
	})
	return o.err
}

// nameOffset returns where in sectionNames the name of a section begins.
func nameOffset(number int) int {
	offset := 0
	for range number {
		offset += bytes.IndexByte([]byte(sectionNames[offset:]), 0) + 1
	}
	return offset
}

// offsetWriter knows how far it has written, and remembers the first error.
type offsetWriter struct {
	w   io.Writer
	at  uint64
	err error
}

func (o *offsetWriter) Write(p []byte) (int, error) {
	if o.err != nil {
		return 0, o.err
	}
	var n int
	n, o.err = o.w.Write(p)
	o.at += uint64(n)
	return n, o.err
}

func (o *offsetWriter) value(v any) {
	if o.err == nil {
		o.err = binary.Write(o, binary.LittleEndian, v)
	}
}

// skip writes zeros up to an offset.
func (o *offsetWriter) skip(offset uint64) {
	o.Write(make([]byte, offset-o.at))
}
