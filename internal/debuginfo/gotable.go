// SPDX-License-Identifier: BSD-2-Clause

package debuginfo

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"math"
	"sort"

	"github.com/gousdt/gousdt/internal/elffile"
)

// GoTable has the functions and lines of a Go program (.gopclntab). Programs
// keep it when they are stripped, because Go's runtime needs it. Package
// debug/gosym reads it too, but nothing bounds the memory that it takes for
// names: a small file can have very many functions that share a long one.
type GoTable struct {
	data    []byte // of the section
	order   binary.ByteOrder
	quantum uint64 // addresses in functions are multiples of it
	text    uint64 // address of the code

	// The parts of the section are one after the other.
	names, units, files, steps, functions []byte
	count                                 int // of functions
}

// goMagic begins the table since Go 1.20.
const goMagic = 0xfffffff1

// goSection returns the section that has the table. Other linkers than Go's put
// that of Go 1.25 into a larger section.
func (f *File) goSection() (s elffile.Section, isLarger bool) {
	if f.Section(".go.buildinfo").Size == 0 {
		return s, false // no Go program
	}
	for _, name := range []string{".gopclntab", ".data.rel.ro.gopclntab", ".data.rel.ro"} {
		if s = f.Section(name); s.Size > 0 {
			return s, name == ".data.rel.ro"
		}
	}
	return s, false
}

// HasGoTable reports whether a file is a Go program, and likely has a GoTable.
func (f *File) HasGoTable() bool {
	s, _ := f.goSection()
	return s.Size > 0
}

// GoTable reads the table of a Go program. It fails with ErrMalformed also if
// the file is no Go program, and for tables from before Go 1.20.
func (f *File) GoTable() (*GoTable, error) {
	section, isLarger := f.goSection()
	data, err := f.Unpack(section)
	if err != nil {
		return nil, err
	}
	order, word := f.Words.Order(), uint64(f.Words.Size())
	magic := []byte{6: 0}
	order.PutUint32(magic, goMagic)
	if isLarger {
		data = data[max(bytes.Index(data, magic[:6]), 0):]
	}
	const words = 8 // of the header
	t := &GoTable{data: data, order: order}
	header := 8 + words*word
	if uint64(len(data)) < header || !bytes.HasPrefix(data, magic[:6]) || uint64(data[7]) != word {
		return nil, fmt.Errorf("functions of Go: %w", elffile.ErrMalformed)
	}
	t.quantum = uint64(data[6])
	at := func(i uint64) uint64 { return f.Words.Address(data[8+i*word:]) }
	parts := []*[]byte{&t.names, &t.units, &t.files, &t.steps, &t.functions}
	end := uint64(len(data))
	for i := len(parts) - 1; i >= 0; i-- {
		start := at(3 + uint64(i))
		if start < header || start > end {
			return nil, fmt.Errorf("functions of Go: %w", elffile.ErrMalformed)
		}
		*parts[i], end = data[start:end], start
	}
	count := at(0)
	if count > maxFunctions {
		return nil, fmt.Errorf("more than %d functions: %w", maxFunctions, elffile.ErrTooLarge)
	}
	if t.count = int(count); 8*t.count+4 > len(t.functions) {
		return nil, fmt.Errorf("functions of Go: %w", elffile.ErrTruncated)
	}
	if t.text = at(2); t.text == 0 { // since Go 1.26
		const place = 22 // of the address in the module data
		module := f.Section(".go.module")
		b, err := f.ReadRange(module.Offset+place*word, word)
		if err != nil || module.Size < (place+1)*word {
			return nil, fmt.Errorf("functions of Go: no module data: %w", elffile.ErrMalformed)
		}
		t.text = f.Words.Address(b)
	}
	if f.Segment(t.text, 1, elf.PF_X) == nil || t.text > math.MaxInt64 {
		return nil, fmt.Errorf("functions of Go: no code at %#x: %w", t.text, elffile.ErrMalformed)
	}
	return t, nil
}

// Size returns how many bytes the table takes in memory.
func (t *GoTable) Size() int { return len(t.data) }

// entry returns where a function begins, after the begin of the code. The last
// one's end follows it.
func (t *GoTable) entry(i int) uint64 { return uint64(t.order.Uint32(t.functions[8*i:])) }

// field returns a number that is said of a function, 0 if the table ends
// before.
func (t *GoTable) field(function int, offset uint64) uint32 {
	c := t.cursor(t.functions, uint64(t.order.Uint32(t.functions[8*function+4:]))+offset)
	return uint32(c.Unsigned(4))
}

func (t *GoTable) cursor(part []byte, at uint64) Cursor {
	return Cursor{Bytes: part, At: int(min(at, uint64(len(part)))), Order: t.order}
}

// The places of what is said of a function.
const (
	goName  = 4
	goFiles = 20
	goLines = 24
	goUnit  = 32
)

// table returns the functions. Those that are not in order are left out.
func (t *GoTable) table() functionTable {
	all := functionTable{names: bytes.Clone(t.names)}
	for i := range t.count {
		start, end := t.entry(i), t.entry(i+1)
		if n := len(all.functions); start < end &&
			(n == 0 || all.functions[n-1].address < t.text+start) {
			all.functions = append(all.functions,
				function{t.text + start, uint32(end - start), t.field(i, goName)})
		}
	}
	return all
}

// Line returns the line of the code at an address. In code that was inlined it
// is the line there.
func (t *GoTable) Line(address uint64) (file string, line int, ok bool) {
	offset := address - t.text
	i := sort.Search(t.count, func(i int) bool { return t.entry(i) > offset }) - 1
	if i < 0 || offset >= t.entry(i+1) {
		return "", 0, false
	}
	offset -= t.entry(i)
	fileNumber, ok := t.value(t.field(i, goFiles), offset)
	number32, isLine := t.value(t.field(i, goLines), offset)
	if !ok || !isLine || fileNumber < 0 || number32 <= 0 {
		return "", 0, false
	}
	const none = math.MaxUint32 // a function of the linker has no unit
	unit := t.cursor(t.units, 4*(uint64(t.field(i, goUnit))+uint64(fileNumber)))
	place := unit.Unsigned(4)
	if t.field(i, goUnit) == none || place == none {
		return "", 0, false
	}
	name := t.cursor(t.files, place)
	return string(name.Text(MaxDebugString)), int(number32), !name.Short
}

// value returns the value at an offset in a function, of a table with steps:
// how much the value grows, and for how much code it holds.
func (t *GoTable) value(table uint32, offset uint64) (value int32, ok bool) {
	c := t.cursor(t.steps, uint64(table))
	value = -1
	until := uint64(0)
	for n := range maxGoSteps {
		step := uint32(c.ULEB())
		if c.Short || step == 0 && n > 0 {
			break
		}
		value += int32(step>>1) ^ -int32(step&1)
		if until += c.ULEB() * t.quantum; offset < until {
			return value, !c.Short
		}
	}
	return 0, false
}
