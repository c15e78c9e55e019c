// SPDX-License-Identifier: BSD-2-Clause

package stack

import (
	"bytes"
	"cmp"
	"debug/dwarf"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"path"
	"slices"
	"time"

	"github.com/gousdt/gousdt/internal/elffile"
)

// debugInfo is what a file says of lines and of inlined functions, in DWARF 2
// to 5. Package debug/dwarf reads the entries of functions. What it would do
// with data that were made to cost time or memory is kept from it: newDebugInfo
// checks units and abbreviations first, and no string is long. Tables of lines
// are read here, because nothing bounds what package debug/dwarf makes of their
// names. It is not safe for concurrent use.
type debugInfo struct {
	data    *dwarf.Data
	order   binary.ByteOrder
	line    []byte
	lineStr []byte
	str     []byte
	moved   uint64 // how much higher the addresses are in the file that is mapped

	alternative *debugInfo // that dwz has made, nil if there is none

	units  []unitRange // by address
	known  []*unit     // whose tables are held
	size   int         // of all, in bytes
	tables int         // of known, in bytes
	until  time.Time   // it gives up then
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

// lineRow says of which line the code is from an address on.
type lineRow struct {
	address    uint64
	file, line uint32 // line 0 is not known
}

// functionRange is a range of addresses that a function has.
type functionRange struct {
	low, high uint64
	entry     dwarf.Offset
}

// source is where code comes from. Of an inlined function it has the name.
type source struct {
	function string
	file     string // "" if it is not known
	line     int
}

// What a file may cost, see symbolizer.go. A large Java virtual machine has 200
// MB of DWARF in some thousand units, a browser's does not fit.
const (
	maxDebugBytes    = 384 << 20 // of all sections, decompressed
	maxRangeBytes    = 32 << 20  // of one of the sections with ranges
	maxUnits         = 1 << 17
	maxAbbrevBytes   = 8 << 20 // of all tables that units name
	maxAttributes    = 128     // of an entry
	maxDebugString   = 16 << 10
	maxUnitTables    = 64 << 20 // bytes of rows and functions, of all units
	maxFunctionRange = 1 << 20  // of a unit
	maxInlined       = 64       // functions in each other
	maxOrigins       = 8        // from an inlined function to its name
	maxLineFiles     = 1 << 16
	maxLineRows      = 1 << 22 // of a unit
	maxReading       = 4 * time.Second
)

// debugSections are the sections that are read.
var debugSections = []string{".debug_info", ".debug_abbrev", ".debug_line", ".debug_str",
	".debug_line_str", ".debug_ranges", ".debug_rnglists", ".debug_addr", ".debug_str_offsets"}

var (
	errTooCostly = errors.New("debug information that costs too much to read")
	errMalformed = errors.New("malformed debug information")
)

// hasDebugInfo reports whether a file has lines.
func hasDebugInfo(f *elffile.File) bool {
	return f.DebugSection(".debug_info").Size > 0 && f.DebugSection(".debug_line").Size > 0
}

// debugBytes returns how many bytes readDebugInfo holds at most.
func debugBytes(f *elffile.File) int {
	size := uint64(0)
	for _, name := range debugSections {
		s := f.DebugSection(name)
		size += min(s.UnpackedSize(), maxDebugBytes)
	}
	return int(min(size, maxDebugBytes))
}

// readDebugInfo reads what a file has, and what dwz has put into another one.
// It may take until that time.
func readDebugInfo(f *elffile.File, until time.Time) (*debugInfo, error) {
	d, err := readSections(f, until)
	if err != nil {
		return nil, err
	}
	if other, err := f.FindAlternative(); err == nil {
		defer other.Close()
		if d.alternative, err = readSections(other, until); err == nil {
			d.size += d.alternative.size
		} else {
			d.alternative = nil // what is there has no name
		}
	}
	return d, nil
}

func readSections(f *elffile.File, until time.Time) (d *debugInfo, err error) {
	sections := make(map[string][]byte)
	total := 0
	for _, name := range debugSections {
		s := f.DebugSection(name)
		if s.Size == 0 || s.Kind == elf.SHT_NOBITS {
			continue
		}
		limit := maxDebugBytes - total
		if name == ".debug_ranges" || name == ".debug_rnglists" {
			limit = min(limit, maxRangeBytes)
		}
		if s.Flags&elf.SHF_COMPRESSED == 0 && s.Size > uint64(limit) {
			return nil, errTooCostly
		}
		if sections[name], err = f.Unpack(s); err != nil {
			return nil, err
		}
		if total += len(sections[name]); len(sections[name]) > limit {
			return nil, errTooCostly
		}
		if time.Now().After(until) {
			return nil, errTooCostly
		}
	}
	return newDebugInfo(sections, f.Words.Order(), f.Moved(), until)
}

// newDebugInfo takes sections, which it may change.
func newDebugInfo(
	sections map[string][]byte, order binary.ByteOrder, moved uint64, until time.Time,
) (d *debugInfo, err error) {
	defer contain(&err)
	info, abbrev := sections[".debug_info"], sections[".debug_abbrev"]
	starts, err := unitsOf(order, info, abbrev)
	if err != nil {
		return nil, err
	}
	for _, name := range []string{".debug_str", ".debug_line_str"} {
		cutStrings(sections[name])
	}
	d = &debugInfo{order: order, line: sections[".debug_line"], moved: moved,
		lineStr: sections[".debug_line_str"], str: sections[".debug_str"], until: until}
	d.data, err = dwarf.New(abbrev, nil, nil, info, d.line, nil, sections[".debug_ranges"], d.str)
	if err != nil {
		return nil, err
	}
	for _, name := range []string{".debug_addr", ".debug_line_str", ".debug_str_offsets",
		".debug_rnglists"} {
		if err := d.data.AddSection(name, sections[name]); err != nil {
			return nil, err
		}
	}
	d.size = 32 * len(abbrev) // as package debug/dwarf has them
	for _, data := range sections {
		d.size += len(data)
	}
	return d, d.findUnits(starts)
}

// contain makes an error of a panic.
func contain(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("debug information: %v", r)
	}
}

// findUnits finds out which addresses the units have.
func (d *debugInfo) findUnits(starts []dwarf.Offset) error {
	r := d.data.Reader()
	for _, start := range starts {
		if d.isLate() {
			return errTooCostly
		}
		r.Seek(start)
		entry, err := r.Next()
		if err != nil {
			return err
		}
		if entry == nil || entry.Tag != dwarf.TagCompileUnit {
			continue
		}
		ranges, err := d.ranges(entry)
		if err != nil {
			continue // others can be read
		}
		u := &unit{entry: entry.Offset}
		for _, at := range ranges {
			d.units = append(d.units, unitRange{at[0], at[1], u})
		}
		if len(d.units) > maxUnits*16 {
			return errTooCostly
		}
	}
	d.size += 32 * len(d.units)
	slices.SortFunc(d.units, func(a, b unitRange) int { return cmp.Compare(a.low, b.low) })
	return nil
}

// ranges returns the addresses of an entry. A list of them may be long.
func (d *debugInfo) ranges(entry *dwarf.Entry) ([][2]uint64, error) {
	if d.isLate() {
		return nil, errTooCostly
	}
	return d.data.Ranges(entry)
}

func (d *debugInfo) isLate() bool { return time.Now().After(d.until) }

// at returns where the code at an address of the file comes from: an inlined
// function first, with the lines from which the inner ones are called. The last
// source has no name: it is that of the function itself. There is none if
// nothing is known.
func (d *debugInfo) at(address uint64, until time.Time) (sources []source, err error) {
	defer contain(&err)
	d.until = until
	address -= d.moved
	i, _ := slices.BinarySearchFunc(d.units, address, func(r unitRange, address uint64) int {
		if r.low > address {
			return 1
		}
		return -1
	})
	for n := 0; i > 0 && n < 8; n++ { // ranges that overlap are few
		if i--; address < d.units[i].high {
			return d.in(d.units[i].unit, address)
		}
	}
	return nil, nil
}

// in does that for an address of a unit.
func (d *debugInfo) in(u *unit, address uint64) ([]source, error) {
	if err := d.read(u); err != nil {
		return nil, err
	}
	here := source{}
	i, _ := slices.BinarySearchFunc(u.rows, address, func(r lineRow, address uint64) int {
		if r.address > address {
			return 1
		}
		return -1
	})
	if i > 0 {
		row := u.rows[i-1]
		here.file, here.line = u.names.file(row.file), int(row.line)
	}
	i, _ = slices.BinarySearchFunc(u.functions, address, func(f functionRange, address uint64) int {
		if f.low > address {
			return 1
		}
		return -1
	})
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

// read reads the tables of a unit, unless that has been done.
func (d *debugInfo) read(u *unit) error {
	if u.isRead {
		return nil
	}
	u.isRead = true
	u.names = &lineNames{}
	w := d.walk(u.entry)
	entry, err := w.next()
	if err != nil || entry == nil {
		return err
	}
	if offset, ok := entry.Val(dwarf.AttrStmtList).(int64); ok {
		// What is malformed has no lines, or those before.
		u.rows, u.names, _ = d.readLines(offset, d.text(entry, dwarf.AttrCompDir))
	}
	if err := d.findFunctions(u, w); err != nil {
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
func (d *debugInfo) findFunctions(u *unit, w *entryWalk) error {
	for w.depth > 0 {
		entry, err := w.next()
		switch {
		case err != nil:
			return err
		case entry == nil:
			return nil
		case entry.Tag == 0, entry.Tag == dwarf.TagNamespace, entry.Tag == dwarf.TagModule:
			// Functions may be in these.
		case entry.Tag == dwarf.TagSubprogram:
			ranges, err := d.ranges(entry)
			if err != nil {
				return err
			}
			for _, at := range ranges {
				if len(u.functions) == maxFunctionRange {
					return errTooCostly
				}
				u.functions = append(u.functions, functionRange{at[0], at[1], entry.Offset})
			}
			fallthrough
		default:
			if err := w.skip(entry); err != nil {
				return err
			}
		}
	}
	slices.SortFunc(u.functions,
		func(a, b functionRange) int { return cmp.Compare(a.low, b.low) })
	return nil
}

// call is an inlined function, and where it is called.
type call struct {
	name       string
	file, line uint32
}

// inlined returns the inlined functions that have an address of a function, the
// outermost first.
func (d *debugInfo) inlined(function dwarf.Offset, address uint64) ([]call, error) {
	w := d.walk(function)
	if _, err := w.next(); err != nil {
		return nil, err
	}
	var calls []call
	for until := 0; w.depth > until; { // the depth of what has the address
		entry, err := w.next()
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
			if slices.ContainsFunc(ranges,
				func(at [2]uint64) bool { return at[0] <= address && address < at[1] }) {
				if isCall && len(calls) < maxInlined {
					file, _ := entry.Val(dwarf.AttrCallFile).(int64)
					line, _ := entry.Val(dwarf.AttrCallLine).(int64)
					calls = append(calls, call{d.nameOf(entry), uint32(file), uint32(line)})
				}
				if !entry.Children {
					return calls, nil
				}
				until = w.depth - 1
				continue
			}
		}
		if err := w.skip(entry); err != nil {
			return nil, err
		}
	}
	return calls, nil
}

// linkageName is the attribute of GCC from before DWARF 4.
const linkageName dwarf.Attr = 0x2007 // DW_AT_MIPS_linkage_name

// nameOf returns the name of a function as symbol tables have it: that of the
// entry that it refers to, or that this refers to.
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
		r := d.data.Reader()
		r.Seek(at)
		origin, err := r.Next()
		if err != nil || origin == nil {
			break
		}
		entry = origin
	}
	return name
}

// text returns a text of an entry, also one that is in the alternative file.
func (d *debugInfo) text(entry *dwarf.Entry, attribute dwarf.Attr) string {
	field := entry.AttrField(attribute)
	if field == nil {
		return ""
	}
	if offset, ok := field.Val.(int64); ok && field.Class == dwarf.ClassStringAlt &&
		d.alternative != nil {
		return textAt(d.alternative.str, uint64(offset))
	}
	text, _ := field.Val.(string)
	return text
}

// textAt returns the text at an offset of a section of strings.
func textAt(section []byte, offset uint64) string {
	if offset >= uint64(len(section)) {
		return ""
	}
	text := section[offset:]
	text = text[:min(len(text), maxDebugString)]
	if end := bytes.IndexByte(text, 0); end >= 0 {
		text = text[:end]
	}
	return string(text)
}

// entryWalk goes through the entries below one.
type entryWalk struct {
	info   *debugInfo
	reader *dwarf.Reader
	depth  int // of the next entry, 0 when there are no more
	steps  int
}

func (d *debugInfo) walk(from dwarf.Offset) *entryWalk {
	w := &entryWalk{info: d, reader: d.data.Reader()}
	w.reader.Seek(from)
	return w
}

// next returns the next entry, also those of tag 0, which end lists of
// children. It returns nil at the end of all.
func (w *entryWalk) next() (*dwarf.Entry, error) {
	if w.steps++; w.steps%256 == 0 && w.info.isLate() {
		return nil, errTooCostly
	}
	entry, err := w.reader.Next()
	switch {
	case err != nil || entry == nil:
		return nil, err
	case entry.Tag == 0:
		w.depth--
	case entry.Children:
		w.depth++
	}
	return entry, nil
}

// skip leaves out the children of the entry that next has returned. Package
// debug/dwarf does that by recursion, of any depth.
func (w *entryWalk) skip(entry *dwarf.Entry) error {
	if !entry.Children {
		return nil
	}
	if sibling, ok := entry.Val(dwarf.AttrSibling).(dwarf.Offset); ok && sibling > entry.Offset {
		w.reader.Seek(sibling)
		w.depth--
		return nil
	}
	for above := w.depth - 1; w.depth > above; {
		if inner, err := w.next(); err != nil || inner == nil {
			return cmp.Or(err, errMalformed)
		}
	}
	return nil
}

// unitsOf returns where the first entries of units are, after it has made sure
// that package debug/dwarf can be given these and their abbreviations.
func unitsOf(order binary.ByteOrder, info, abbrev []byte) (starts []dwarf.Offset, err error) {
	seen := make(map[uint64]bool)
	work := 0
	for at := 0; at < len(info); {
		r := cursor{order: order, data: info[at:]}
		length, is64 := r.length()
		header := len(info) - at - len(r.data)
		if r.isShort || length < 8 || length > uint64(len(r.data)) {
			return nil, errMalformed
		}
		if len(starts) == maxUnits {
			return nil, errTooCostly
		}
		version, kind := r.uint(2), uint64(0)
		if version >= 5 {
			kind = r.uint(1)
			r.skip(1)
		}
		table := r.offset(is64)
		if version < 5 {
			r.skip(1)
		}
		const skeleton, split, types, splitTypes = 4, 5, 2, 6
		switch kind {
		case skeleton, split:
			r.skip(8)
		case types, splitTypes:
			r.skip(8)
			r.offset(is64)
		}
		if r.isShort {
			return nil, errMalformed
		}
		if kind != types && kind != splitTypes {
			starts = append(starts, dwarf.Offset(len(info)-len(r.data)))
		}
		at += header + int(length)
		if seen[table] {
			continue
		}
		seen[table] = true
		size, err := checkAbbrev(order, abbrev, table)
		if err != nil {
			return nil, err
		}
		// Tables that overlap are read as often.
		if work += size; work > maxAbbrevBytes {
			return nil, errTooCostly
		}
	}
	return starts, nil
}

// checkAbbrev returns the size of a table of abbreviations.
func checkAbbrev(order binary.ByteOrder, abbrev []byte, at uint64) (int, error) {
	if at >= uint64(len(abbrev)) {
		return 0, errMalformed
	}
	data := abbrev[at:]
	r := cursor{order: order, data: data[:min(len(data), maxAbbrevBytes+1)]}
	for r.uleb() != 0 {
		r.uleb()
		r.skip(1)
		for n := 0; ; n++ {
			attribute, form := r.uleb(), r.uleb()
			const implicitConst = 0x21
			if form == implicitConst {
				r.sleb()
			}
			if attribute == 0 && form == 0 {
				break
			}
			if n == maxAttributes {
				return 0, errTooCostly
			}
		}
		if r.isShort {
			break
		}
	}
	if r.isShort {
		return 0, errMalformed
	}
	return len(data[:min(len(data), maxAbbrevBytes+1)]) - len(r.data), nil
}

// cutStrings ends strings that are longer than compilers make them: each entry
// that names one would have its own copy.
func cutStrings(section []byte) {
	for start := 0; start < len(section); {
		end := bytes.IndexByte(section[start:], 0)
		if end < 0 {
			end = len(section) - start
		}
		for end > maxDebugString {
			section[start+maxDebugString] = 0
			start += maxDebugString + 1
			end -= maxDebugString + 1
		}
		start += end + 1
	}
}

// cursor reads from data. When these end, it reads zeros, and isShort is set.
type cursor struct {
	order   binary.ByteOrder
	data    []byte
	isShort bool
}

func (c *cursor) skip(n uint64) []byte {
	if n > uint64(len(c.data)) {
		c.data, c.isShort = nil, true
		return nil
	}
	skipped := c.data[:n]
	c.data = c.data[n:]
	return skipped
}

// uint reads a number of 1, 2, 4 or 8 bytes.
func (c *cursor) uint(size int) uint64 {
	b := c.skip(uint64(size))
	if b == nil {
		return 0
	}
	switch size {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(c.order.Uint16(b))
	case 4:
		return uint64(c.order.Uint32(b))
	case 8:
		return c.order.Uint64(b)
	}
	c.isShort = true
	return 0
}

func (c *cursor) uleb() uint64 {
	v, n := binary.Uvarint(c.data)
	if n <= 0 {
		c.data, c.isShort = nil, true
		return 0
	}
	c.data = c.data[n:]
	return v
}

func (c *cursor) sleb() int64 {
	var v int64
	for shift := 0; shift < 70; shift += 7 {
		b := c.uint(1)
		v |= int64(b&0x7f) << min(shift, 63)
		if b&0x80 == 0 {
			if shift < 57 && b&0x40 != 0 {
				v |= -1 << (shift + 7)
			}
			return v
		}
	}
	c.isShort = true
	return 0
}

// length reads the length of a unit. It decides the size of its offsets.
func (c *cursor) length() (length uint64, is64 bool) {
	if length = c.uint(4); length == 1<<32-1 {
		return c.uint(8), true
	}
	return length, false
}

func (c *cursor) offset(is64 bool) uint64 {
	if is64 {
		return c.uint(8)
	}
	return c.uint(4)
}

// text reads a text that ends with a zero.
func (c *cursor) text() []byte {
	end := bytes.IndexByte(c.data, 0)
	if end < 0 {
		c.data, c.isShort = nil, true
		return nil
	}
	text := c.data[:end]
	c.data = c.data[end+1:]
	return text
}

// lineNames are the files of a table of lines. Their paths are made when they
// are asked for: in a small file they can be any number of long ones.
type lineNames struct {
	directory string // of the compilation
	dirs      [][]byte
	files     []sourceFile
	first     int               // the number of the first file
	given     map[uint32]string // paths that have been returned
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
	if given, ok := l.given[number]; ok {
		return given
	}
	f := l.files[i]
	name := short(f.name)
	if f.dir < uint64(len(l.dirs)) && !path.IsAbs(name) {
		name = path.Join(short(l.dirs[f.dir]), name)
	}
	if !path.IsAbs(name) {
		name = path.Join(l.directory, name)
	}
	if l.given == nil {
		l.given = make(map[uint32]string)
	}
	if len(l.given) < maxGivenFiles {
		l.given[number] = name
	}
	return name
}

// maxGivenFiles bounds the paths that are kept to be returned again.
const maxGivenFiles = 256

func short(text []byte) string { return string(text[:min(len(text), maxDebugString)]) }

// lineProgram is the header of a table of lines, as far as it matters.
type lineProgram struct {
	cursor      // over the instructions
	is64        bool
	version     uint64
	instruction uint64 // the smallest size of one
	perWord     uint64 // operations
	base        int64
	span        uint64
	opcodeBase  uint64
	operands    []byte
}

// readLines reads a table of lines. What it returns with an error is right.
func (d *debugInfo) readLines(offset int64, directory string) ([]lineRow, *lineNames, error) {
	names := &lineNames{directory: directory, first: 1}
	p := &lineProgram{cursor: cursor{order: d.order}}
	if offset < 0 || offset >= int64(len(d.line)) {
		return nil, names, errMalformed
	}
	p.data = d.line[offset:]
	length, is64 := p.length()
	p.is64 = is64
	p.data = p.skip(length)
	p.version = p.uint(2)
	if p.version >= 5 {
		p.skip(2) // sizes of an address and of a segment selector
	}
	header := p.offset(is64)
	rest := p.data
	instructions := cursor{order: d.order, data: p.data}
	instructions.skip(header)
	p.instruction = p.uint(1)
	p.perWord = 1
	if p.version >= 4 {
		p.perWord = max(p.uint(1), 1)
	}
	p.skip(1) // whether addresses begin statements
	p.base, p.span = int64(int8(p.uint(1))), p.uint(1)
	p.opcodeBase = p.uint(1)
	p.operands = p.skip(max(p.opcodeBase, 1) - 1)
	if p.isShort || p.version < 2 || p.version > 5 || p.span == 0 || p.opcodeBase == 0 ||
		header > uint64(len(rest)) {
		return nil, names, errMalformed
	}
	if p.version >= 5 {
		names.first = 0
		for _, f := range d.lineList(p) {
			names.dirs = append(names.dirs, f.name)
		}
		names.files = d.lineList(p)
	} else {
		names.dirs = append(names.dirs, []byte(directory))
		for text := p.text(); len(text) > 0 && len(names.dirs) < maxLineFiles; text = p.text() {
			names.dirs = append(names.dirs, text)
		}
		for text := p.text(); len(text) > 0 && len(names.files) < maxLineFiles; text = p.text() {
			names.files = append(names.files, sourceFile{text, p.uleb()})
			p.uleb() // time
			p.uleb() // length
		}
	}
	p.cursor = instructions
	rows, err := p.run(d)
	slices.SortStableFunc(rows, func(a, b lineRow) int {
		// What ends at an address is before what begins there.
		return cmp.Or(cmp.Compare(a.address, b.address), cmp.Compare(min(a.line, 1), min(b.line, 1)))
	})
	return rows, names, err
}

// lineList reads a list of directories or files of DWARF 5.
func (d *debugInfo) lineList(p *lineProgram) []sourceFile {
	type column struct{ kind, form uint64 }
	columns := make([]column, p.uint(1))
	for i := range columns {
		columns[i] = column{p.uleb(), p.uleb()}
	}
	count := p.uleb()
	var list []sourceFile
	for ; count > 0 && len(list) < maxLineFiles && !p.isShort && len(columns) > 0; count-- {
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
	in := func(section []byte, offset uint64) []byte {
		if offset >= uint64(len(section)) {
			return nil
		}
		text, _, _ := bytes.Cut(section[offset:], []byte{0}) // soon, after cutStrings
		return text
	}
	switch form {
	case 0x08: // DW_FORM_string
		return p.text(), 0
	case 0x0e: // DW_FORM_strp
		return in(d.str, p.offset(p.is64)), 0
	case 0x1f: // DW_FORM_line_strp
		return in(d.lineStr, p.offset(p.is64)), 0
	case 0x0b: // DW_FORM_data1
		return nil, p.uint(1)
	case 0x05: // DW_FORM_data2
		return nil, p.uint(2)
	case 0x06: // DW_FORM_data4
		return nil, p.uint(4)
	case 0x07: // DW_FORM_data8
		return nil, p.uint(8)
	case 0x0f: // DW_FORM_udata
		return nil, p.uleb()
	case 0x1e: // DW_FORM_data16
		p.skip(16)
	case 0x09: // DW_FORM_block
		p.skip(p.uleb())
	default:
		p.data, p.isShort = nil, true
	}
	return nil, 0
}

// run runs the instructions of a table of lines, which makes its rows.
func (p *lineProgram) run(d *debugInfo) (rows []lineRow, err error) {
	start := lineRow{file: 1, line: 1}
	at := start
	operation := uint64(0) // in the word at the address
	advance := func(by uint64) {
		operation += by
		at.address += p.instruction * (operation / p.perWord)
		operation %= p.perWord
	}
	from := 0 // where the sequence began
	emit := func() error {
		if len(rows) == maxLineRows {
			return errTooCostly
		}
		rows = append(rows, at)
		return nil
	}
	for steps := 0; len(p.data) > 0; steps++ {
		if steps%4096 == 0 && d.isLate() {
			return rows, errTooCostly
		}
		opcode := p.uint(1)
		if opcode >= p.opcodeBase {
			opcode -= p.opcodeBase
			advance(opcode / p.span)
			at.line += uint32(p.base + int64(opcode%p.span))
			if err := emit(); err != nil {
				return rows, err
			}
			continue
		}
		switch opcode {
		case 0:
			operands := cursor{order: p.order, data: p.skip(p.uleb())}
			switch operands.uint(1) {
			case 1: // DW_LNE_end_sequence
				at.line = 0
				if err := emit(); err != nil {
					return rows, err
				}
				// Linkers leave those of functions that they have dropped.
				if rows[from].address == 0 {
					rows = rows[:from]
				}
				from = len(rows)
				at, operation = start, 0
			case 2: // DW_LNE_set_address
				at.address, operation = operands.uint(len(operands.data)), 0
			}
		case 1: // DW_LNS_copy
			if err := emit(); err != nil {
				return rows, err
			}
		case 2: // DW_LNS_advance_pc
			advance(p.uleb())
		case 3: // DW_LNS_advance_line
			at.line += uint32(p.sleb())
		case 4: // DW_LNS_set_file
			at.file = uint32(p.uleb())
		case 8: // DW_LNS_const_add_pc
			advance((255 - p.opcodeBase) / p.span)
		case 9: // DW_LNS_fixed_advance_pc
			at.address += p.uint(2)
			operation = 0
		default:
			for range p.operands[opcode-1] {
				p.uleb()
			}
		}
		if p.isShort {
			return rows[:from], errMalformed
		}
	}
	return rows[:from], nil
}
