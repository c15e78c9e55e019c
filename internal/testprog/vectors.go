// SPDX-License-Identifier: BSD-2-Clause

package testprog

import (
	"cmp"
	"debug/elf"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// A Vector is an argument string of internal/testdata/vectors with its meaning.
// The README there says how they are written. Package argspec is tested against
// them, and the programs that fetch arguments.
type Vector struct {
	Place     string // line of a file
	File      *VectorFile
	NoSymbols bool // only the machine of the file is known
	Location  uint64
	Kernel    elf.Machine
	Text      string
	Expected  string // the results, with " ; " between them
}

// LoadVectors reads all files of a directory. There must be one.
func LoadVectors(directory string) ([]Vector, error) {
	paths, err := filepath.Glob(filepath.Join(directory, "*.txt"))
	if err == nil && len(paths) == 0 {
		err = fmt.Errorf("no vectors in %s", directory)
	}
	var vectors []Vector
	for _, path := range paths {
		found, err := readVectors(path)
		if err != nil {
			return nil, err
		}
		vectors = append(vectors, found...)
	}
	return vectors, err
}

// readVectors reads a file. Each vector has a copy of what the lines before it
// say of the file that its string is from.
func readVectors(path string) (vectors []Vector, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var context Vector
	of := VectorFile{symbols: make(map[string]elf.Symbol), unclear: make(map[string]bool)}
	number := 0
	for line := range strings.Lines(string(text)) {
		number++
		line = strings.TrimSuffix(line, "\n")
		if line == "" || line[0] == '#' {
			continue
		}
		context.Place = fmt.Sprintf("%s:%d", filepath.Base(path), number)
		if line[0] == '"' {
			file := of
			context.File = &file
			err = context.read(line)
			vectors = append(vectors, context)
		} else {
			err = context.say(&of, line)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w: %s", context.Place, err, line)
		}
	}
	return vectors, nil
}

// read reads a line with a string and its meaning.
func (v *Vector) read(line string) error {
	decoder := json.NewDecoder(strings.NewReader(line))
	if err := decoder.Decode(&v.Text); err != nil {
		return err
	}
	_, expected, ok := strings.Cut(line[decoder.InputOffset():], "-> ")
	if !ok {
		return errors.New("no result")
	}
	v.Expected = expected
	return nil
}

// say reads a line that says something of the vectors after it.
func (v *Vector) say(f *VectorFile, line string) (err error) {
	word, rest, _ := strings.Cut(line, " ")
	switch word {
	case "machine":
		f.header.Machine, err = MachineNamed(rest)
	case "kernel":
		v.Kernel, err = MachineNamed(rest)
	case "class":
		f.header.Class = map[string]elf.Class{"32": elf.ELFCLASS32, "64": elf.ELFCLASS64}[rest]
	case "big-endian":
		f.header.ByteOrder = binary.BigEndian
	case "little-endian":
		f.header.ByteOrder = nil
	case "location":
		v.Location, err = strconv.ParseUint(rest, 0, 64)
	case "absolute":
		f.header.Type = elf.ET_EXEC
	case "position-independent":
		f.header.Type = elf.ET_DYN
	case "object-file":
		f.header.Type = elf.ET_REL
	case "library", "program":
		f.isLibrary = word == "library"
	case "symbol", "function", "thread-local", "hidden", "constant", "chooser":
		err = f.addSymbol(word, rest)
	case "ambiguous":
		f.unclear[rest] = true
	case "pltgot":
		f.hasPLTGOT = true
		f.pltgot, err = strconv.ParseUint(rest, 0, 64)
	case "no-pltgot":
		f.hasPLTGOT = false
	case "no-symbols":
		v.NoSymbols = true
	default:
		err = errors.New("unknown word")
	}
	return err
}

// MachineNamed returns the machine of an e_machine name: "EM_X86_64".
func MachineNamed(name string) (elf.Machine, error) {
	for m := range elf.Machine(300) {
		if m.String() == name {
			return m, nil
		}
	}
	return 0, errors.New("unknown machine")
}

// VectorFile is the file that an argument string is from, as package argspec
// asks for it.
type VectorFile struct {
	header    elf.FileHeader
	isLibrary bool
	symbols   map[string]elf.Symbol
	unclear   map[string]bool // names of several symbols
	hasPLTGOT bool
	pltgot    uint64
}

// Header returns what matters of the ELF header. ByteOrder is nil for
// little-endian.
func (f *VectorFile) Header() elf.FileHeader {
	header := f.header
	header.Type = cmp.Or(header.Type, elf.ET_DYN)
	return header
}

// IsProgram reports whether it is no library.
func (f *VectorFile) IsProgram() bool { return !f.isLibrary }

// Symbol returns a symbol by its name.
func (f *VectorFile) Symbol(name string) (elf.Symbol, error) {
	if name == "_GLOBAL_OFFSET_TABLE_" && f.hasPLTGOT {
		return elf.Symbol{Name: name, Value: f.pltgot}, nil
	}
	symbol, ok := f.symbols[name]
	if f.unclear[name] || !ok {
		return elf.Symbol{}, errors.New("no such symbol, or several")
	}
	return symbol, nil
}

// addSymbol reads the name and the value of a symbol of a kind.
func (f *VectorFile) addSymbol(kind, text string) (err error) {
	i := strings.LastIndexByte(text, ' ')
	symbol := elf.Symbol{Info: elf.ST_INFO(elf.STB_GLOBAL, elf.STT_OBJECT), Section: 1}
	switch kind {
	case "function":
		symbol.Info = elf.ST_INFO(elf.STB_GLOBAL, elf.STT_FUNC)
	case "thread-local":
		symbol.Info = elf.ST_INFO(elf.STB_GLOBAL, elf.STT_TLS)
	case "chooser":
		symbol.Info = elf.ST_INFO(elf.STB_GLOBAL, elf.STT_GNU_IFUNC)
	case "hidden":
		symbol.Other = byte(elf.STV_HIDDEN)
	case "constant":
		symbol.Section = elf.SHN_ABS
	}
	symbol.Value, err = strconv.ParseUint(text[i+1:], 0, 64)
	f.symbols[strings.Trim(text[:i], `"`)] = symbol
	return err
}
