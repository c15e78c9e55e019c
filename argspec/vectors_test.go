// SPDX-License-Identifier: BSD-2-Clause

package argspec

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
	"testing"

	"github.com/go-quicktest/qt"
)

// vector is one line of testdata/vectors: see the README there.
type vector struct {
	place     string // line of a file
	file      *testFile
	noSymbols bool // only the machine is known
	location  uint64
	kernel    elf.Machine
	text      string
	expected  string
}

// decode decodes the string of the vector.
func (v *vector) decode() []Arg {
	decoder := NewDecoder(v.file)
	if v.noSymbols {
		decoder.target.file = nil
	}
	return decoder.Decode(v.location, v.text)
}

// reasonWords are the words that the vectors have for the reasons.
var reasonWords = map[string]error{
	"machine":              errMachine,
	"syntax":               errSyntax,
	"number":               errNumber,
	"size":                 errSize,
	"register":             errRegister,
	"not-saved":            errNotSaved,
	"register-pair":        errRegisterPair,
	"index":                errIndex,
	"thread-local":         errThreadLocal,
	"relocation":           errRelocation,
	"local-label":          errLocalLabel,
	"no-symbols":           errNoSymbols,
	"symbol":               errSymbol,
	"position-independent": errPositionIndependent,
	"unclear":              errUnclear,
	"indirect":             errIndirect,
	"replaceable":          errReplaceable,
	"not-linked":           errNotLinked,
}

// loadVectors reads all vector files.
func loadVectors(tb testing.TB) []vector {
	files, err := filepath.Glob("../testdata/vectors/*.txt")
	qt.Assert(tb, qt.IsNil(err))
	qt.Assert(tb, qt.Not(qt.HasLen(files, 0)))
	var vectors []vector
	for _, name := range files {
		file, err := os.Open(name)
		qt.Assert(tb, qt.IsNil(err))
		found, err := readVectors(file, filepath.Base(name))
		file.Close()
		qt.Assert(tb, qt.IsNil(err))
		vectors = append(vectors, found...)
	}
	return vectors
}

// vectorReader reads a file of vectors.
type vectorReader struct {
	context vector
	file    testFile // what context.file is a copy of
	symbols map[string]elf.Symbol
	unclear map[string]bool // names of several symbols
	vectors []vector
}

func readVectors(file *os.File, name string) ([]vector, error) {
	r := vectorReader{symbols: make(map[string]elf.Symbol), unclear: make(map[string]bool)}
	r.file.symbol = r.symbol
	lines := bufio.NewScanner(file)
	for number := 1; lines.Scan(); number++ {
		line := lines.Text()
		if line == "" || line[0] == '#' {
			continue
		}
		r.context.place = fmt.Sprintf("%s:%d", name, number)
		read := r.setContext
		if line[0] == '"' {
			read = r.vector
		}
		if err := read(line); err != nil {
			return nil, fmt.Errorf("%s: %w: %s", r.context.place, err, line)
		}
	}
	return r.vectors, lines.Err()
}

func (r *vectorReader) symbol(name string) (elf.Symbol, error) {
	if r.unclear[name] {
		return elf.Symbol{}, errAmbiguous
	}
	if symbol, ok := r.symbols[name]; ok {
		return symbol, nil
	}
	return elf.Symbol{}, errNoSuchSymbol
}

// vector reads a line with a string and what it means.
func (r *vectorReader) vector(line string) error {
	decoder := json.NewDecoder(strings.NewReader(line))
	if err := decoder.Decode(&r.context.text); err != nil {
		return err
	}
	_, expected, ok := strings.Cut(line[decoder.InputOffset():], "-> ")
	if !ok {
		return errors.New("no result")
	}
	r.context.expected = expected
	file := r.file
	r.context.file = &file
	r.vectors = append(r.vectors, r.context)
	return nil
}

// setContext reads a line that says something of the vectors after it.
func (r *vectorReader) setContext(line string) (err error) {
	word, rest, _ := strings.Cut(line, " ")
	switch word {
	case "machine":
		r.file.machine, err = machineNamed(rest)
	case "kernel":
		r.context.kernel, err = machineNamed(rest)
	case "class":
		r.file.class = map[string]elf.Class{"32": elf.ELFCLASS32, "64": elf.ELFCLASS64}[rest]
	case "big-endian":
		r.file.order = binary.BigEndian
	case "little-endian":
		r.file.order = nil
	case "location":
		r.context.location, err = strconv.ParseUint(rest, 0, 64)
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
		i := strings.LastIndexByte(rest, ' ')
		symbol := newSymbol(elf.STT_OBJECT, 0)
		switch word {
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
		symbol.Value, err = strconv.ParseUint(rest[i+1:], 0, 64)
		r.symbols[strings.Trim(rest[:i], `"`)] = symbol
	case "ambiguous":
		r.unclear[rest] = true
	case "pltgot":
		var table uint64
		table, err = strconv.ParseUint(rest, 0, 64)
		r.file.pltgot = func() (uint64, error) { return table, nil }
	case "no-pltgot":
		r.file.pltgot = nil
	case "no-symbols":
		r.context.noSymbols = true
	default:
		err = errors.New("unknown word")
	}
	return err
}

// machineNamed returns the machine of an e_machine name: "EM_X86_64".
func machineNamed(name string) (elf.Machine, error) {
	for m := range elf.Machine(300) {
		if m.String() == name {
			return m, nil
		}
	}
	return 0, errors.New("unknown machine")
}

// vectorText writes arguments as the vectors have them.
func vectorText(args []Arg, kernel elf.Machine) string {
	if len(args) == 0 {
		return "none"
	}
	var results []string
	for _, a := range args {
		results = append(results, a.Type()+vectorPlace(a, kernel))
	}
	return strings.Join(results, " ; ")
}

func vectorPlace(a Arg, kernel elf.Machine) string {
	register := func(r Register) string {
		slot, ok := r.Slot(kernel)
		if !ok {
			return r.Name + "@none"
		}
		return fmt.Sprintf("%s@%d", r.Name, slot)
	}
	switch a.Kind {
	case Constant:
		return fmt.Sprintf(" constant %#x", a.Constant)
	case InRegister:
		text := " register " + register(a.Register)
		if a.Register.Shift != 0 {
			text += fmt.Sprintf(" shift %d", a.Register.Shift)
		}
		if !a.High.IsZero() {
			text += " high " + register(a.High)
		}
		return text
	case Memory, Address, Bytes:
		text := ""
		if a.Kind != Bytes {
			text = " " + a.Kind.String()
		}
		if !a.Base.IsZero() {
			text += " base " + register(a.Base)
		}
		if !a.Index.IsZero() {
			text += " index " + register(a.Index)
			if a.IndexExtension != NoExtension {
				text += " " + a.IndexExtension.String()
			}
		}
		if a.Scale != 1 {
			text += fmt.Sprintf(" scale %d", a.Scale)
		}
		text += fmt.Sprintf(" displacement %d", a.Displacement)
		if a.Relative() {
			text += " relative"
		}
		if a.Address32 {
			text += " address32"
		}
		return text
	}
	for word, reason := range reasonWords {
		if errors.Is(a.Err, reason) {
			return " unavailable " + word
		}
	}
	return fmt.Sprint(" unavailable ", a.Err)
}

func TestParseDecodesTheConformanceVectors(t *testing.T) {
	seen := map[string]bool{}
	for _, v := range loadVectors(t) {
		args := v.decode()
		if got := vectorText(args, v.kernel); got != v.expected {
			t.Errorf("%s: %q\n got: %s\nwant: %s", v.place, v.text, got, v.expected)
		}
		checkInvariants(t, v.text, args)
		for _, result := range strings.Split(v.expected, " ; ") {
			if _, word, ok := strings.Cut(result, "unavailable "); ok {
				seen[word] = true
			}
		}
	}
	for word := range reasonWords {
		qt.Check(t, qt.IsTrue(seen[word]), qt.Commentf("no vector has the reason %s", word))
	}
}

// checkInvariants checks what holds of every result, whatever the string.
func checkInvariants(tb testing.TB, text string, args []Arg) {
	rest := text
	for _, a := range args {
		rest = strings.TrimLeft(rest, blanks)
		var ok bool
		if rest, ok = strings.CutPrefix(rest, a.Raw); !ok || a.Raw == "" {
			tb.Fatalf("%q: argument %q is not what comes next: %q", text, a.Raw, rest)
		}
		checkArg(tb, a)
	}
	if strings.TrimLeft(rest, blanks) != "" {
		tb.Fatalf("%q: %q is in no argument", text, rest)
	}
}

func checkArg(tb testing.TB, a Arg) {
	fail := func(what string) { tb.Fatalf("%q: %s: %#v", a.Raw, what, a) }
	if a.Signed && a.Float {
		fail("signed and float")
	}
	if a.Size < 0 || a.Size > maxSize {
		fail("size out of range")
	}
	if a.Kind == Unavailable {
		unavailable, ok := a.Err.(*unavailableError)
		if !ok || unavailable.raw != a.Raw || unavailable.reason == nil {
			fail("bad error")
		}
		if !a.Register.IsZero() || !a.High.IsZero() || !a.Base.IsZero() || !a.Index.IsZero() ||
			a.Scale != 0 || a.Displacement != 0 || a.Constant != 0 || a.Address32 || a.Relative() {
			fail("unavailable with remains")
		}
		return
	}
	if (a.Err != nil) != (a.Kind == Bytes) {
		fail("an error of the wrong kind")
	}
	isNumber := a.Size == 1 || a.Size == 2 || a.Size == 4 || a.Size == 8
	if isNumber == (a.Kind == Bytes) || a.Size == 0 {
		fail("size")
	}
	isMemory := a.Kind == Memory || a.Kind == Address || a.Kind == Bytes
	if (a.Kind == InRegister) == a.Register.IsZero() {
		fail("register")
	}
	if !a.High.IsZero() && (a.Kind != InRegister || a.Size != 8 || a.Register.Shift != 0 ||
		a.High.slot == a.Register.slot) {
		fail("two registers")
	}
	if !isMemory && (!a.Base.IsZero() || !a.Index.IsZero() || a.Scale != 0 || a.Displacement != 0 ||
		a.Address32) {
		fail("address of what is not in memory")
	}
	if isMemory && (a.Scale == 0 || a.Scale&(a.Scale-1) != 0 || a.Index.IsZero() && a.Scale != 1) {
		fail("scale")
	}
	if a.Kind == Constant && a.Constant != extend(a.Constant, a.Size, a.Signed) {
		fail("constant is not extended")
	}
	if a.Kind != Constant && a.Constant != 0 {
		fail("constant elsewhere")
	}
	for _, r := range []Register{a.Register, a.High, a.Base, a.Index} {
		if !r.IsZero() && (r.Name == "" || r.slot > 40 || r.size == 0 || r.size > 8) {
			fail("illegal register")
		}
	}
}
