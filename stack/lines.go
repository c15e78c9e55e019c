// SPDX-License-Identifier: BSD-2-Clause

package stack

import (
	"bytes"
	"cmp"
	"debug/dwarf"
	"math"
	"path"
	"slices"
	"sort"
	"time"

	"github.com/gousdt/gousdt/internal/debuginfo"
	"github.com/gousdt/gousdt/internal/elffile"
)

// debugInfo has the lines and the inlined functions of a file. Package
// debug/dwarf reads the entries of functions. Tables of lines are read here,
// because nothing bounds the memory that package debug/dwarf takes for their
// names. It is not safe for concurrent use.
type debugInfo struct {
	*debuginfo.DWARF
	moved uint64 // how much higher the addresses are in the mapped file

	alternative *debugInfo         // the file that dwz has made, nil if there is none
	goTable     *debuginfo.GoTable // of a Go program without DWARF

	units  []unitRange // by address
	known  []*unit     // whose tables are held, in the order in which they were read
	size   int         // of sections and units in memory, in bytes
	tables int         // size of the tables of known, in bytes
}

// unitRange is a range of addresses that a unit has.
type unitRange struct {
	low, high uint64
	*unit
}

// unit is a compilation unit.
type unit struct {
	entry dwarf.Offset

	isRead    bool
	rows      []lineRow // by address
	names     *lineNames
	functions []functionRange // by address
}

// lineRow has the line of the code from an address on.
type lineRow struct {
	address    uint64
	file, line uint32 // line 0 is not known
}

// functionRange is a range of addresses of a function.
type functionRange struct {
	low, high uint64
	entry     dwarf.Offset
}

// source is a place in the source code.
type source struct {
	function string // of an inlined function, else ""
	file     string // "" if it is not known
	line     int    // 0 if it is not known
}

// Limits for one file, in addition to those of package elffile.
const (
	maxUnitRanges    = 1 << 21
	maxUnitTables    = 64 << 20 // bytes of rows and functions, of all units
	maxFunctionRange = 1 << 20  // ranges of functions of a unit
	maxInlined       = 64       // inlined functions at one address
	maxOrigins       = 8        // references from an inlined function to its name
	maxLineFiles     = 1 << 16  // files, and directories, of a table
	maxLineRows      = 1 << 22  // rows of a table
)

// hasDebugInfo reports whether a file has lines.
func hasDebugInfo(f *debuginfo.File) bool { return hasDWARF(f) || f.HasGoTable() }

func hasDWARF(f *debuginfo.File) bool {
	return f.Section(".debug_info").Size > 0 && f.Section(".debug_line").Size > 0
}

// readDebugInfo reads the debug information of a file, and of the file into
// which dwz has put a part of it. It reads nothing after until.
func readDebugInfo(f *debuginfo.File, until time.Time) (*debugInfo, error) {
	if !hasDWARF(f) {
		table, err := f.GoTable()
		if err != nil {
			return nil, err
		}
		return &debugInfo{goTable: table, size: table.Size()}, nil
	}
	data, err := f.DWARF(true, until)
	if err != nil {
		return nil, err
	}
	d, err := newDebugInfo(data, f.Moved)
	if err != nil {
		return nil, err
	}
	if other, err := f.FindAlternative(); err == nil {
		defer other.Close()
		// Without it, functions that are named there have no name.
		if data, err := other.DWARF(true, until); err == nil {
			d.alternative = &debugInfo{DWARF: data}
			d.size += data.Size
		}
	}
	return d, nil
}

// newDebugInfo finds the ranges of addresses of the units.
func newDebugInfo(data *debuginfo.DWARF, moved uint64) (d *debugInfo, err error) {
	defer debuginfo.Contain(&err)
	d = &debugInfo{DWARF: data, moved: moved}
	entries := d.Entries(0)
	for _, start := range d.Units {
		entry, err := entries.At(start)
		if err != nil {
			return nil, err
		}
		if entry.Tag != dwarf.TagCompileUnit && entry.Tag != dwarf.TagSkeletonUnit {
			continue
		}
		ranges, err := d.ranges(entry)
		if err != nil {
			continue // the ranges of other units may be valid
		}
		u := &unit{entry: entry.Offset}
		for _, at := range ranges {
			d.units = append(d.units, unitRange{at[0], at[1], u})
		}
		if len(d.units) > maxUnitRanges {
			return nil, elffile.ErrTooLarge
		}
	}
	d.size = d.Size + 32*len(d.units)
	slices.SortFunc(d.units, func(a, b unitRange) int { return cmp.Compare(a.low, b.low) })
	return d, nil
}

// ranges returns the ranges of an entry, without those at address 0, which the
// linker has dropped. It checks the time first, since a list may be long.
func (d *debugInfo) ranges(entry *dwarf.Entry) ([][2]uint64, error) {
	if err := d.Late(); err != nil {
		return nil, err
	}
	ranges, err := d.Ranges(entry)
	return slices.DeleteFunc(ranges, func(at [2]uint64) bool { return at[0] == 0 }), err
}

// at returns the sources of the code at an address of the file: the innermost
// inlined function first, with the line that is executed. Each of the others
// has the line that calls the one before. The last source has no name: it is
// that of the function itself. There are no sources if nothing is known.
func (d *debugInfo) at(address uint64, until time.Time) (sources []source, err error) {
	defer debuginfo.Contain(&err)
	address -= d.moved
	if d.goTable != nil {
		if file, line, ok := d.goTable.Line(address); ok {
			sources = []source{{file: file, line: line}}
		}
		return sources, nil
	}
	d.Until = until
	i := sort.Search(len(d.units), func(i int) bool { return d.units[i].low > address })
	for n := 0; i > 0 && n < 8; n++ { // few ranges overlap
		if i--; address < d.units[i].high {
			return d.in(d.units[i].unit, address)
		}
	}
	return nil, nil
}

// in is at for an address of a unit.
func (d *debugInfo) in(u *unit, address uint64) ([]source, error) {
	if err := d.read(u); err != nil {
		return nil, err
	}
	here := source{}
	if i := sort.Search(len(u.rows), func(i int) bool { return u.rows[i].address > address }); i > 0 {
		row := u.rows[i-1]
		here.file, here.line = u.names.file(row.file), int(row.line)
	}
	i := sort.Search(len(u.functions), func(i int) bool { return u.functions[i].low > address })
	var calls []call
	if i > 0 && address < u.functions[i-1].high {
		var err error
		if calls, err = d.inlined(u.functions[i-1].entry, address); err != nil {
			return nil, err
		}
	}
	var sources []source
	for _, call := range slices.Backward(calls) {
		sources = append(sources, source{call.name, here.file, here.line})
		here = source{"", u.names.file(call.file), int(call.line)}
	}
	return append(sources, here), nil
}

// read reads the tables of a unit, once. It drops those of other units that
// exceed maxUnitTables, the oldest first.
func (d *debugInfo) read(u *unit) error {
	if u.isRead {
		return nil
	}
	u.isRead = true
	u.names = &lineNames{}
	w := d.Entries(u.entry)
	entry, err := w.Next()
	if err != nil || entry == nil {
		return err
	}
	if offset, ok := entry.Val(dwarf.AttrStmtList).(int64); ok {
		// A malformed table has the rows before the error.
		u.rows, u.names, _ = d.readLines(offset, d.text(entry, dwarf.AttrCompDir))
	}
	if err := d.findFunctions(u, w); err != nil {
		u.rows, u.functions = nil, nil // which are not among the tables
		return err
	}
	size := 16*len(u.rows) + 24*len(u.functions)
	for _, other := range d.known {
		if d.tables+size <= maxUnitTables {
			break
		}
		d.tables -= 16*len(other.rows) + 24*len(other.functions)
		other.isRead, other.rows, other.functions, other.names = false, nil, nil, nil
		d.known = d.known[1:]
	}
	d.tables += size
	d.known = append(d.known, u)
	return nil
}

// findFunctions finds the functions of a unit that have code.
func (d *debugInfo) findFunctions(u *unit, w *debuginfo.Entries) error {
	for w.Depth > 0 {
		entry, err := w.Next()
		switch {
		case err != nil:
			return err
		case entry == nil:
			return nil
		case entry.Tag == 0, entry.Tag == dwarf.TagNamespace, entry.Tag == dwarf.TagModule:
			// Their children may be functions.
		case entry.Tag == dwarf.TagSubprogram:
			ranges, err := d.ranges(entry)
			if err != nil {
				return err
			}
			for _, at := range ranges {
				if len(u.functions) == maxFunctionRange {
					return elffile.ErrTooLarge
				}
				u.functions = append(u.functions, functionRange{at[0], at[1], entry.Offset})
			}
			fallthrough
		default:
			if err := w.Skip(entry); err != nil {
				return err
			}
		}
	}
	slices.SortFunc(u.functions, func(a, b functionRange) int { return cmp.Compare(a.low, b.low) })
	return nil
}

// call is an inlined function, with the place that calls it.
type call struct {
	name       string
	file, line uint32
}

// inlined returns the inlined functions at an address of a function, the
// outermost first.
func (d *debugInfo) inlined(function dwarf.Offset, address uint64) ([]call, error) {
	w := d.Entries(function)
	if _, err := w.Next(); err != nil {
		return nil, err
	}
	var calls []call
	for until := 0; w.Depth > until; { // the depth of the innermost block with the address
		entry, err := w.Next()
		if err != nil || entry == nil {
			return calls, err
		}
		if entry.Tag == 0 {
			continue
		}
		isCall := entry.Tag == dwarf.TagInlinedSubroutine
		if isCall || entry.Tag == dwarf.TagLexDwarfBlock {
			ranges, err := d.ranges(entry)
			if err != nil {
				return nil, err
			}
			has := func(at [2]uint64) bool { return at[0] <= address && address < at[1] }
			if slices.ContainsFunc(ranges, has) {
				if isCall && len(calls) < maxInlined {
					file, _ := entry.Val(dwarf.AttrCallFile).(int64)
					line, _ := entry.Val(dwarf.AttrCallLine).(int64)
					calls = append(calls, call{d.nameOf(entry), uint32(file), uint32(line)})
				}
				if !entry.Children {
					return calls, nil
				}
				until = w.Depth - 1
				continue
			}
		}
		if err := w.Skip(entry); err != nil {
			return nil, err
		}
	}
	return calls, nil
}

// linkageName is GCC's attribute for the linkage name before DWARF 4.
const linkageName dwarf.Attr = 0x2007 // DW_AT_MIPS_linkage_name

// nameOf returns the name of a function as symbol tables have it. It follows
// references to other entries for the linkage name.
func (d *debugInfo) nameOf(entry *dwarf.Entry) string {
	name := ""
	for range maxOrigins {
		for _, attribute := range []dwarf.Attr{dwarf.AttrLinkageName, linkageName} {
			if linkage := d.text(entry, attribute); linkage != "" {
				return linkage
			}
		}
		name = cmp.Or(name, d.text(entry, dwarf.AttrName))
		field := entry.AttrField(dwarf.AttrAbstractOrigin)
		if field == nil {
			field = entry.AttrField(dwarf.AttrSpecification)
		}
		if field == nil {
			break
		}
		at, ok := field.Val.(dwarf.Offset)
		if offset, is := field.Val.(int64); is && field.Class == dwarf.ClassReferenceAlt &&
			d.alternative != nil {
			d, at, ok = d.alternative, dwarf.Offset(offset), true
		}
		if !ok {
			break
		}
		origin, err := d.Entries(at).Next()
		if err != nil || origin == nil {
			break
		}
		entry = origin
	}
	return name
}

// text returns the text of an attribute, which may be in the alternative file.
func (d *debugInfo) text(entry *dwarf.Entry, attribute dwarf.Attr) string {
	field := entry.AttrField(attribute)
	if field == nil {
		return ""
	}
	if offset, ok := field.Val.(int64); ok && field.Class == dwarf.ClassStringAlt &&
		d.alternative != nil {
		return string(textAt(d.alternative.Sections[".debug_str"], uint64(offset)))
	}
	text, _ := field.Val.(string)
	return text[:min(len(text), debuginfo.MaxDebugString)]
}

// textAt returns the text at an offset of a section of strings. Package elffile
// has cut long ones.
func textAt(section []byte, offset uint64) []byte {
	text, _, _ := bytes.Cut(section[min(offset, uint64(len(section))):], []byte{0})
	return text
}

// lineNames are the files of a table of lines. A path is only made when it is
// asked for: a small file can have any number of long ones.
type lineNames struct {
	directory string // of the compilation
	dirs      [][]byte
	files     []sourceFile
	first     int // the number of the first file
}

type sourceFile struct {
	name []byte
	dir  uint64 // index
}

// file returns the path of a file, "" if it is not known.
func (l *lineNames) file(number uint32) string {
	i := int(number) - l.first
	if i < 0 || i >= len(l.files) {
		return ""
	}
	f := l.files[i]
	name := string(f.name)
	if f.dir < uint64(len(l.dirs)) && !path.IsAbs(name) {
		name = path.Join(string(l.dirs[f.dir]), name)
	}
	if !path.IsAbs(name) {
		name = path.Join(l.directory, name)
	}
	return name
}

// lineProgram is the header of a table of lines, as far as it matters.
type lineProgram struct {
	debuginfo.Cursor        // over the instructions
	offset           uint64 // size of an offset in bytes
	instruction      uint64 // minimum_instruction_length
	perWord          uint64 // maximum_operations_per_instruction
	base             int64  // line_base
	span             uint64 // line_range
	opcodeBase       uint64
	operands         []byte // standard_opcode_lengths
}

// readLines reads a table of lines. Rows that it returns with an error are
// valid.
func (d *debugInfo) readLines(offset int64, directory string) ([]lineRow, *lineNames, error) {
	names := &lineNames{directory: directory, first: 1}
	line := d.Sections[".debug_line"]
	if offset < 0 || offset >= int64(len(line)) {
		return nil, names, elffile.ErrMalformed
	}
	p := &lineProgram{perWord: 1}
	p.Cursor, p.offset = (&debuginfo.Cursor{Bytes: line, At: int(offset), Order: d.Order}).Unit()
	version := p.Unsigned(2)
	if version >= 5 {
		p.Take(2) // sizes of an address and of a segment selector
	}
	header := p.Unsigned(p.offset)
	instructions := p.Cursor
	instructions.Take(header)
	p.instruction = p.Unsigned(1)
	if version >= 4 {
		p.perWord = max(p.Unsigned(1), 1)
	}
	p.Take(1) // default_is_stmt
	p.base, p.span = int64(p.Signed(1)), p.Unsigned(1)
	p.opcodeBase = p.Unsigned(1)
	p.operands = p.Take(max(p.opcodeBase, 1) - 1)
	if p.Short || instructions.Short || version < 2 || version > 5 || p.span == 0 ||
		p.opcodeBase == 0 {
		return nil, names, elffile.ErrMalformed
	}
	if version >= 5 {
		names.first = 0
		for _, f := range d.lineList(p) {
			names.dirs = append(names.dirs, f.name)
		}
		names.files = d.lineList(p)
	} else {
		names.dirs = append(names.dirs, []byte(directory))
		text := func() []byte { return p.Text(debuginfo.MaxDebugString) }
		for name := text(); len(name) > 0 && len(names.dirs) < maxLineFiles; name = text() {
			names.dirs = append(names.dirs, name)
		}
		for name := text(); len(name) > 0 && len(names.files) < maxLineFiles; name = text() {
			names.files = append(names.files, sourceFile{name, p.ULEB()})
			p.ULEB() // time
			p.ULEB() // length
		}
	}
	p.Cursor = instructions
	rows, err := p.run(d)
	slices.SortStableFunc(rows, func(a, b lineRow) int {
		// The end of a sequence comes before what begins at its address.
		return cmp.Or(cmp.Compare(a.address, b.address), cmp.Compare(min(a.line, 1), min(b.line, 1)))
	})
	return rows, names, err
}

// lineList reads a list of directories or files of DWARF 5.
func (d *debugInfo) lineList(p *lineProgram) []sourceFile {
	type column struct{ kind, form uint64 }
	columns := make([]column, p.Uint8())
	for i := range columns {
		columns[i] = column{p.ULEB(), p.ULEB()}
	}
	count := p.ULEB()
	var list []sourceFile
	for ; count > 0 && len(list) < maxLineFiles && !p.Short && len(columns) > 0; count-- {
		f := sourceFile{}
		for _, c := range columns {
			text, number := d.lineValue(p, c.form)
			const path, directory = 1, 2
			switch c.kind {
			case path:
				f.name = text
			case directory:
				f.dir = number
			}
		}
		list = append(list, f)
	}
	return list
}

// lineValue reads a value of a form.
func (d *debugInfo) lineValue(p *lineProgram, form uint64) (text []byte, number uint64) {
	switch form {
	case 0x08: // DW_FORM_string
		return p.Text(debuginfo.MaxDebugString), 0
	case 0x0e: // DW_FORM_strp
		return textAt(d.Sections[".debug_str"], p.Unsigned(p.offset)), 0
	case 0x1f: // DW_FORM_line_strp
		return textAt(d.Sections[".debug_line_str"], p.Unsigned(p.offset)), 0
	case 0x0b, 0x05, 0x06, 0x07: // DW_FORM_data1, data2, data4, data8
		return nil, p.Unsigned(map[uint64]uint64{0x0b: 1, 0x05: 2, 0x06: 4, 0x07: 8}[form])
	case 0x0f: // DW_FORM_udata
		return nil, p.ULEB()
	case 0x1e: // DW_FORM_data16
		p.Take(16)
	case 0x09: // DW_FORM_block
		p.Take(p.ULEB())
	default:
		p.Short = true
	}
	return nil, 0
}

// run runs the instructions of a table of lines, and returns the rows that they
// make.
func (p *lineProgram) run(d *debugInfo) (rows []lineRow, err error) {
	start := lineRow{file: 1, line: 1}
	at := start
	operation := uint64(0) // op_index: in the word at the address
	advance := func(by uint64) {
		operation += by
		at.address += p.instruction * (operation / p.perWord)
		operation %= p.perWord
	}
	from := 0 // where the sequence began
	for steps := 0; !p.Done(); steps++ {
		if len(rows) == maxLineRows {
			return rows, elffile.ErrTooLarge
		}
		if steps%4096 == 0 {
			if err := d.Late(); err != nil {
				return rows, err
			}
		}
		opcode := p.Unsigned(1)
		if opcode >= p.opcodeBase {
			opcode -= p.opcodeBase
			advance(opcode / p.span)
			at.line += uint32(p.base + int64(opcode%p.span))
			rows = append(rows, at)
			continue
		}
		switch opcode {
		case 0:
			operands := debuginfo.Cursor{Bytes: p.Take(p.ULEB()), Order: p.Order}
			switch operands.Uint8() {
			case 1: // DW_LNE_end_sequence
				at.file, at.line = math.MaxUint32, 0 // no file's number
				rows = append(rows, at)
				// Functions that the linker has dropped are at address 0.
				if rows[from].address == 0 {
					rows = rows[:from]
				}
				from = len(rows)
				at, operation = start, 0
			case 2: // DW_LNE_set_address
				at.address, operation = operands.Unsigned(uint64(len(operands.Bytes)-operands.At)), 0
			}
		case 1: // DW_LNS_copy
			rows = append(rows, at)
		case 2: // DW_LNS_advance_pc
			advance(p.ULEB())
		case 3: // DW_LNS_advance_line
			at.line += uint32(p.SLEB())
		case 4: // DW_LNS_set_file
			at.file = uint32(p.ULEB())
		case 8: // DW_LNS_const_add_pc
			advance((255 - p.opcodeBase) / p.span)
		case 9: // DW_LNS_fixed_advance_pc
			at.address += p.Unsigned(2)
			operation = 0
		default:
			for range p.operands[opcode-1] {
				p.ULEB()
			}
		}
		if p.Short {
			return rows[:from], elffile.ErrMalformed
		}
	}
	return rows[:from], nil
}
