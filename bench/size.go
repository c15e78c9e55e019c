// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package main

import (
	"cmp"
	"debug/elf"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gousdt/gousdt/bench/internal/compare"
)

var sizedCommands = []string{"usdttrace", "usdtlist"}

func sizeRows() []row {
	return []row{{
		name:   "size/commands",
		title:  "size of the file of a command, as releases have it",
		unit:   compare.Bytes,
		rounds: 1,
		prepare: func(e *env) ([]compare.Contestant, error) {
			var all []compare.Contestant
			for _, name := range sizedCommands {
				path, err := e.goBuild(name, "-trimpath", "-ldflags=-s -w")
				if err != nil {
					return nil, err
				}
				all = append(all, compare.Contestant{Name: name, Once: true})
				all[len(all)-1].Measure = func(int) (float64, error) {
					info, err := os.Stat(path)
					if err != nil {
						return 0, err
					}
					return float64(info.Size()), nil
				}
			}
			return all, nil
		},
	}}
}

func sizeTables() []table {
	return []table{{
		name:  "size/parts",
		title: "What the commands' files are made of",
		head:  append([]string{"part"}, sizedCommands...),
		note: "Code is machine code, by the module that it is from. A module of less than a hundredth of all code is " +
			"among the others.",
		measure: func(e *env) ([][]string, error) { return e.commandParts() },
	}}
}

const (
	ownCode      = "code of this module"
	standardCode = "code of Go's standard library and runtime"
	otherCode    = "code of other modules"
)

func (e *env) commandParts() ([][]string, error) {
	var each []map[string]uint64
	whole := make(map[string]uint64)
	for _, name := range sizedCommands {
		path, err := e.goBuild(name, "-trimpath")
		if err != nil {
			return nil, err
		}
		parts, err := sizesOf(path)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		each = append(each, parts)
		for part, size := range parts {
			whole[part] += size
		}
	}
	parts := slices.SortedFunc(maps.Keys(whole),
		func(a, b string) int { return cmp.Compare(whole[b], whole[a]) })
	var lines [][]string
	for _, part := range parts {
		line := []string{part}
		for _, sizes := range each {
			if sizes[part] == 0 {
				line = append(line, "")
				continue
			}
			line = append(line, compare.Bytes.Format(float64(sizes[part])))
		}
		lines = append(lines, line)
	}
	return lines, nil
}

// sizesOf returns what the parts of a file take that remain when it is
// stripped.
func sizesOf(path string) (map[string]uint64, error) {
	file, err := elf.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	symbols, err := file.Symbols()
	if err != nil {
		return nil, err
	}
	code, all := make(map[string]uint64), uint64(0)
	for _, s := range symbols {
		if int(s.Section) >= len(file.Sections) || file.Sections[s.Section].Name != ".text" {
			continue
		}
		code[moduleOf(s.Name)] += s.Size
		all += s.Size
	}
	parts := make(map[string]uint64)
	for module, size := range code {
		if size < all/100 {
			module = otherCode
		}
		parts[module] += size
	}
	for _, section := range file.Sections {
		if section.Flags&elf.SHF_ALLOC == 0 || section.Type == elf.SHT_NOBITS {
			continue // it is not in the file, or not in a stripped one
		}
		switch name := section.Name; {
		case name == ".text":
			parts["code that no symbol is for, and alignment"] += section.Size - min(section.Size,
				all)
		case name == ".gopclntab":
			parts["table of functions and lines, for stacks and the garbage collector"] += section.Size
		case strings.HasPrefix(name, ".rodata"):
			parts["constants: texts, types, tables"] += section.Size
		case strings.HasPrefix(name, ".data") || strings.HasPrefix(name, ".noptrdata"):
			parts["variables with a value, and embedded files"] += section.Size
		default:
			parts["other sections"] += section.Size
		}
	}
	return parts, nil
}

// moduleOf says which module a function is of, by its symbol's name: the path
// of the package, a dot, and the rest.
func moduleOf(symbol string) string {
	path := symbol
	if i := strings.IndexAny(path, "[("); i >= 0 {
		path = path[:i] // types in brackets have paths, too
	}
	elements := strings.Split(path, "/")
	switch {
	case strings.HasPrefix(path, "main."), strings.HasPrefix(path, "github.com/gousdt/gousdt/"):
		return ownCode
	case len(elements) < 2 || !strings.Contains(elements[0], "."):
		return standardCode
	case elements[0] == "github.com" || elements[0] == "golang.org":
		// The name of a package at a module's root is followed by what is in
		// it.
		last := min(2, len(elements)-1)
		if last == len(elements)-1 {
			elements[last], _, _ = strings.Cut(elements[last], ".")
		}
		return "code of " + filepath.Join(elements[:last+1]...)
	default:
		return otherCode
	}
}
