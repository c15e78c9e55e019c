// SPDX-License-Identifier: BSD-2-Clause

package testprog

import (
	"bufio"
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

// A Vector is an argument string of testdata/vectors, and what it means: the
// README there says how they are written. Package argspec is tested against
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

// LoadVectors reads all files of a directory, of which there must be one.
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

// vectorReader reads a file of vectors.
type vectorReader struct {
	context Vector
	file    VectorFile // what context.File is a copy of
	vectors []Vector
}

func readVectors(path string) ([]Vector, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	r := vectorReader{file: VectorFile{symbols: make(map[string]elf.Symbol), unclear: make(map[string]bool)}}
	lines := bufio.NewScanner(file)
	for number := 1; lines.Scan(); number++ {
		line := lines.Text()
		if line == "" || line[0] == '#' {
			continue
		}
		r.context.Place = fmt.Sprintf("%s:%d", filepath.Base(path), number)
		read := r.setContext
		if line[0] == '"' {
			read = r.vector
		}
		if err := read(line); err != nil {
			return nil, fmt.Errorf("%s: %w: %s", r.context.Place, err, line)
		}
	}
	return r.vectors, lines.Err()
}

// vector reads a line with a string and what it means.
func (r *vectorReader) vector(line string) error {
	decoder := json.NewDecoder(strings.NewReader(line))
	if err := decoder.Decode(&r.context.Text); err != nil {
		return err
	}
	_, expected, ok := strings.Cut(line[decoder.InputOffset():], "-> ")
	if !ok {
		return errors.New("no result")
	}
	r.context.Expected = expected
	file := r.file
	r.context.File = &file
	r.vectors = append(r.vectors, r.context)
	return nil
}

// setContext reads a line that says something of the vectors after it.
func (r *vectorReader) setContext(line string) (err error) {
	word, rest, _ := strings.Cut(line, " ")
	switch word {
	case "machine":
		r.file.machine, err = MachineNamed(rest)
	case "kernel":
		r.context.Kernel, err = MachineNamed(rest)
	case "class":
		r.file.class = map[string]elf.Class{"32": elf.ELFCLASS32, "64": elf.ELFCLASS64}[rest]
	case "big-endian":
		r.file.order = binary.BigEndian
	case "little-endian":
		r.file.order = nil
	case "location":
		r.context.Location, err = strconv.ParseUint(rest, 0, 64)
	case "absolute":
		r.file.kind = elf.ET_EXEC
	case "position-independent":
		r.file.kind = elf.ET_DYN
	case "object-file":
		r.file.kind = elf.ET_REL
	case "library":
		r.file.isLibrary = true
	case "program":
		r.file.isLibrary = false
	case "symbol", "function", "thread-local", "hidden", "constant", "chooser":
		err = r.file.addSymbol(word, rest)
	case "ambiguous":
		r.file.unclear[rest] = true
	case "pltgot":
		var table uint64
		table, err = strconv.ParseUint(rest, 0, 64)
		r.file.pltgot = &table
	case "no-pltgot":
		r.file.pltgot = nil
	case "no-symbols":
		r.context.NoSymbols = true
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
