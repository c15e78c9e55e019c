// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"cmp"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/gousdt/gousdt/internal/elffile/elfimage"
	"github.com/gousdt/gousdt/internal/testprog"
)

// probed returns the ELF files below a directory that have probes.
func probed(root string) (paths []string, err error) {
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return nil
		}
		file, err := elf.Open(path)
		if err != nil {
			return nil
		}
		defer file.Close()
		if file.Section(".note.stapsdt") != nil && file.Type != elf.ET_REL {
			paths = append(paths, path)
		}
		return nil
	})
	return paths, err
}

// A place is what is compared of a site.
type place struct {
	provider, name    string
	offset, semaphore uint64
}

var noteLines = regexp.MustCompile(`(?m)^ +Provider: (.*)\n +Name: (.*)\n +Location: 0x(\w+), ` +
	`Base: 0x(\w+), Semaphore: 0x(\w+)\n`)

// expectedSites returns the sites that readelf prints, at the offsets that the
// program headers give. It uses nothing of the projects that are compared.
func expectedSites(path string) (map[place]bool, error) {
	readelf := exec.Command("readelf", "-n", path)
	readelf.Env = append(os.Environ(), "LC_ALL=C")
	text, err := readelf.Output()
	if err != nil {
		return nil, fmt.Errorf("readelf %s: %w", path, err)
	}
	file, err := elf.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	offset := func(address uint64) uint64 {
		for _, p := range file.Progs {
			if p.Type == elf.PT_LOAD && address >= p.Vaddr && address-p.Vaddr < p.Filesz {
				return address - p.Vaddr + p.Off
			}
		}
		return 0
	}
	base := uint64(0)
	if section := file.Section(".stapsdt.base"); section != nil {
		base = section.Addr
	}
	sites := map[place]bool{}
	for _, found := range noteLines.FindAllSubmatch(text, -1) {
		var location, linked, semaphore uint64
		for i, to := range []*uint64{&location, &linked, &semaphore} {
			if _, err := fmt.Sscanf(string(found[3+i]), "%x", to); err != nil {
				return nil, err
			}
		}
		p := place{provider: string(found[1]), name: string(found[2])}
		moved := uint64(0)
		if base != 0 && linked != 0 {
			moved = base - linked
		}
		p.offset = offset(location + moved)
		if semaphore != 0 {
			p.semaphore = offset(semaphore + moved)
		}
		sites[p] = true
	}
	return sites, nil
}

// siteAddress is where the site of a vector is in its file.
const siteAddress = elfimage.CodeAddress + 0x10

var names = regexp.MustCompile(`[\w.$]*[A-Za-z_][\w.$]*`)

// vectorFile returns an ELF file with one probe, whose arguments are the
// vector's. ok is false if there is no such file.
func vectorFile(v *testprog.Vector) (image []byte, ok bool) {
	header := v.File.Header()
	isForeign := header.Machine == elf.EM_ARM && v.Kernel != elf.EM_ARM
	if header.Type == elf.ET_REL || strings.Contains(v.Text, "\x00") || isForeign {
		return nil, false
	}
	order := elfimage.ByteOrder(binary.LittleEndian)
	if header.ByteOrder == binary.BigEndian {
		order = binary.BigEndian
	}
	im := elfimage.New(header.Class, order)
	im.Machine, im.Type = header.Machine, header.Type
	var dynamic []uint64
	if v.File.IsProgram() {
		dynamic = append(dynamic, uint64(elf.DT_FLAGS_1), uint64(elf.DF_1_PIE))
	}
	if got, err := v.File.Symbol("_GLOBAL_OFFSET_TABLE_"); err == nil {
		dynamic = append(dynamic, uint64(elf.DT_PLTGOT), got.Value)
	}
	im.AddDynamic(append(dynamic, 0, 0)...)
	var symbols []elfimage.Symbol
	for _, word := range append(names.FindAllString(v.Text, -1), strings.Split(v.Text, `"`)...) {
		for _, name := range []string{word, word[min(1, len(word)):]} { // a sigil may come first
			if s, err := v.File.Symbol(name); err == nil && !v.NoSymbols {
				symbols = append(symbols, elfimage.Symbol{Name: name, Address: s.Value,
					Kind: elf.ST_TYPE(s.Info), Bind: elf.ST_BIND(s.Info), Other: s.Other, In: s.Section})
			}
		}
	}
	im.AddSymbols(elf.SHT_SYMTAB, "", symbols...)
	im.AddNotes(im.ProbeNote(siteAddress, 0, 0, "vector", "probe", v.Text))
	return im.Bytes(), true
}

// expectedArgument reads one result of a vector.
func expectedArgument(v *testprog.Vector, result string) (argument, error) {
	words := strings.Fields(result)
	a := argument{Register: -1, Index: -1}
	if _, err := fmt.Sscan(words[0], &a.Size); err != nil {
		return a, err
	}
	a.Signed, a.Kind = words[1] == "signed", words[2]
	if words[1] == "bytes" {
		a.Kind, words = "bytes", append(words[:2:2], words[1:]...)
	}
	slot := func(word string) (offset int16) {
		if _, err := fmt.Sscan(word[strings.LastIndexByte(word, '@')+1:], &offset); err != nil {
			return -1
		}
		if v.Kernel == elf.EM_ARM {
			return 4 * offset
		}
		return 8 * offset
	}
	for i := 2; i < len(words); i++ {
		next := words[min(i+1, len(words)-1)]
		var err error
		switch words[i] {
		case "unavailable":
			return argument{Kind: "none"}, nil
		case "constant":
			_, err = fmt.Sscanf(next, "0x%x", &a.Value)
		case "register", "base":
			a.Register = slot(next)
		case "index", "high":
			a.Index = slot(next)
		case "uxtw":
			a.IndexSize = 4
		case "sxtw":
			a.IndexSize = -4
		case "shift":
			_, err = fmt.Sscan(next, &a.Shift)
		case "scale":
			var scale uint64
			if _, err = fmt.Sscan(next, &scale); err == nil {
				for ; scale > 1; scale /= 2 {
					a.Scale++
				}
			}
		case "displacement":
			var displacement int64
			_, err = fmt.Sscan(next, &displacement)
			a.Value = uint64(displacement)
		case "relative":
			a.Value += v.Location - siteAddress
		case "address32":
			a.Address32 = true
		}
		if err != nil {
			return a, fmt.Errorf("%s: %w: %s", v.Place, err, result)
		}
	}
	return a, nil
}

// isSame reports whether an argument is where it is expected. Of constants the
// low bytes count, and of scales those of an index.
func (a argument) isSame(expected argument) bool {
	if expected.Kind == "constant" && a.Kind == "constant" {
		bits := uint(64 - 8*expected.Size)
		return a.Size == expected.Size && a.Value<<bits == expected.Value<<bits
	}
	return a == expected
}

// damaged returns files with three notes. In each file one word of four bytes
// is another one, or the end is missing.
func damaged() (files [][]byte) {
	im := elfimage.New64()
	im.AddBase()
	im.AddNotes(im.ProbeNote(siteAddress, elfimage.BaseAddress, 0, "p", "first", "8@%rax -4@$1"),
		im.ProbeNote(siteAddress+1, elfimage.BaseAddress, 0, "p", "second", "8@%rdi"),
		im.ProbeNote(siteAddress+2, elfimage.BaseAddress, elfimage.DataAddress, "p", "third", "-4@-20(%rbp)"))
	whole := im.Bytes()
	section := im.Sections[len(im.Sections)-1].Data
	start := strings.Index(string(whole), string(section))
	for at := 0; at < len(whole)-3; at = cmp.Or(next(at, start), at+4) {
		for _, word := range []uint32{0, 1, 0x7fffffff, 0x80000000, 0xfffffff0, 0xffffffff} {
			file := append([]byte(nil), whole...)
			binary.LittleEndian.PutUint32(file[at:], word)
			files = append(files, file)
		}
		files = append(files, whole[:at])
	}
	return files
}

// next skips the code and the data, which no reader of notes looks at.
func next(at, notes int) int {
	if at >= 0x200 && at < notes-4 {
		return notes
	}
	return 0
}
