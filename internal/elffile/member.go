// SPDX-License-Identifier: BSD-2-Clause

package elffile

import (
	"bytes"
	"debug/dwarf"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/gousdt/gousdt/internal/truncate"
)

// ErrNoTypes means that a file does not describe its types.
var ErrNoTypes = errors.New("the program has no debugging information (compile it with -g, or install its debug file)")

// Structures finds the members of a file's structures.
type Structures interface {
	// Member returns where a member is that is reached from a pointer, by the
	// type of the pointer as C writes it, "struct request *", and what follows
	// the pointer in an expression, "->peer.port".
	Member(pointer, path string) (Member, error)
}

// Member is where to find a member of a structure, and what it is.
type Member struct {
	// Offsets are added to a pointer in turn. At each sum but the last is the
	// pointer to go on with, at the last the member.
	Offsets []int64

	Size          int // 1, 2, 4 or 8 bytes
	Signed, Float bool
	Pointer, Text bool   // it points to something; to a text
	Type          string // as C writes it, where it is a pointer

	// Array says that the member is not a pointer to a text but the text
	// itself. It has Room bytes, of which none need be zero, or as many as
	// there are up to a zero where Room is 0. The value is the address.
	Array bool
	Room  int
}

// members are those that were asked for.
type members struct {
	mutex sync.Mutex
	known map[[2]string]knownMember
}

type knownMember struct {
	member Member
	err    error
}

// dwarfSections are the sections that types are described in, and those that
// lines are in besides.
var dwarfSections = [...]string{".debug_abbrev", ".debug_info", ".debug_str", ".debug_line_str",
	".debug_str_offsets", ".debug_addr", ".debug_line", ".debug_ranges", ".debug_rnglists"}

// typeSections is how many of them types are described in.
const typeSections = 6

// Member is what [Structures] says. It takes the file's word, from DWARF: where
// two structures of that name are laid out differently, or something is not a
// number, it fails. It wraps ErrNoTypes where the file has no DWARF.
func (f *File) Member(pointer, path string) (Member, error) {
	f.members.mutex.Lock()
	defer f.members.mutex.Unlock()
	key := [2]string{pointer, path}
	if known, ok := f.members.known[key]; ok {
		return known.member, known.err
	}
	if len(f.members.known) >= maxMembers {
		return Member{}, TooLarge(fmt.Errorf("more than %d members", maxMembers))
	}
	m, err := f.findMember(pointer, path)
	if err != nil {
		m = Member{}
	}
	if f.members.known == nil {
		f.members.known = make(map[[2]string]knownMember)
	}
	f.members.known[key] = knownMember{m, err}
	return m, err
}

func (f *File) findMember(pointer, path string) (m Member, err error) {
	name, ok := strings.CutSuffix(pointer, "*")
	words := slices.DeleteFunc(strings.Fields(name),
		func(word string) bool { return word == "const" || word == "volatile" })
	if !ok || len(words) == 0 || strings.Contains(name, "*") {
		return m, fmt.Errorf("%s is no pointer to a structure", pointer)
	}
	s := search{named: make(map[string][]dwarf.Offset), done: make(map[string]Member),
		left: maxEntries}
	// What the name is of, if the type says so: "struct stat" is no typedef.
	isTag := len(words) > 1 && slices.Contains([]string{"struct", "union", "class"}, words[0])
	if isTag {
		words = words[1:]
	}
	if s.data, err = f.dwarf(); err != nil {
		return m, err
	}
	s.reader = s.data.Reader()
	return s.byName(strings.Join(words, " "), !isTag, path)
}

// dwarf reads the sections of DWARF.
func (f *File) dwarf() (*dwarf.Data, error) {
	var sections [typeSections][]byte
	left := uint64(maxDWARF)
	for i, name := range dwarfSections[:typeSections] {
		s := f.dwarfSections[i]
		if s.Size == 0 || s.Kind != elf.SHT_PROGBITS {
			continue
		}
		limit := left
		if i == 0 {
			limit = maxAbbreviations
		}
		var data []byte
		var err error
		size := s.Size
		if size <= limit {
			data, err = f.Unpack(s)
			size = uint64(len(data))
		}
		switch {
		case err != nil:
		case size > limit:
			err = TooLarge(fmt.Errorf("%d bytes, and %d may be read", size, limit))
		case strings.HasSuffix(name, "str"):
			err = checkTexts(data)
		}
		if err != nil {
			return nil, fmt.Errorf("section %s: %w", name, err)
		}
		sections[i] = data
		left -= min(left, uint64(len(data)))
	}
	if len(sections[0]) == 0 || len(sections[1]) == 0 {
		return nil, ErrNoTypes
	}
	if err := f.checkUnits(sections[1], sections[0]); err != nil {
		return nil, fmt.Errorf("section .debug_info: %w", err)
	}
	data, err := dwarf.New(sections[0], nil, nil, sections[1], nil, nil, nil, sections[2])
	for i := 3; i < len(sections) && err == nil; i++ {
		err = data.AddSection(dwarfSections[i], sections[i])
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return data, nil
}

// checkTexts refuses texts that are so long that to copy them again and again
// would take long.
func checkTexts(b []byte) error {
	for len(b) > 0 {
		end := bytes.IndexByte(b, 0)
		if end < 0 {
			return ErrTruncated
		}
		if end > maxText {
			return TooLarge(fmt.Errorf("a text of %d bytes", end))
		}
		b = b[end+1:]
	}
	return nil
}

// checkUnits refuses units of which package dwarf would make far more than they
// are: very many, those whose tables of abbreviations overlap, each of which it
// would keep, and entries with more attributes than there are.
func (f *File) checkUnits(info, abbreviations []byte) error {
	seen := make(map[uint64]bool)
	left, order := len(abbreviations), f.Words
	for units := 0; len(info) > 0; units++ {
		if units == maxUnits {
			return TooLarge(fmt.Errorf("more than %d units", maxUnits))
		}
		head := make([]byte, 24) // as much of it as matters
		copy(head, info)
		length, begins := uint64(order.Uint32(head)), 4
		if length == 0xffffffff {
			length, begins = order.Uint64(head[4:]), 12
		}
		if len(info) < begins || length > uint64(len(info)-begins) {
			return ErrTruncated
		}
		at := begins + 2
		if order.Uint16(head[begins:]) >= 5 {
			at += 2
		}
		table := uint64(order.Uint32(head[at:]))
		if begins == 12 {
			table = order.Uint64(head[at:])
		}
		if !seen[table] && table < uint64(len(abbreviations)) {
			seen[table] = true
			used, err := abbreviationTable(abbreviations[table:])
			if left -= used; left < 0 || err != nil {
				return fmt.Errorf("abbreviations: %w", ErrMalformed)
			}
		}
		info = info[begins+int(length):]
	}
	return nil
}

// abbreviationTable returns the length of a table of abbreviations.
func abbreviationTable(b []byte) (int, error) {
	all := len(b)
	number := func() (value uint64) {
		for shift := 0; len(b) > 0; shift += 7 {
			c := b[0]
			b = b[1:]
			value |= uint64(c&0x7f) << shift
			if c&0x80 == 0 {
				break
			}
		}
		return value
	}
	for uint32(number()) != 0 {
		number()               // tag
		b = b[min(1, len(b)):] // whether there are children
		for count := 0; ; count++ {
			attribute, form := number(), number()
			if attribute == 0 && form == 0 {
				break
			}
			if count == maxAttributes {
				return 0, ErrMalformed
			}
			const implicit = 0x21 // DW_FORM_implicit_const
			if form == implicit {
				number()
			}
		}
	}
	return all - len(b), nil
}

// search finds members in DWARF.
type search struct {
	data   *dwarf.Data
	reader *dwarf.Reader
	left   int // entries that may still be read: one with many or long attributes is several

	named map[string][]dwarf.Offset // structures and typedefs, by what byName was asked for
	done  map[string]Member         // of names and paths
}

// next returns the next entry, nil at the end.
func (s *search) next() (*dwarf.Entry, error) {
	e, err := s.reader.Next()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	s.left--
	if e != nil {
		s.left -= len(e.Field) / 8
		for i := range e.Field {
			if text, ok := e.Field[i].Val.(string); ok {
				s.left -= len(text) / 256
			}
		}
	}
	if s.left < 0 {
		return nil, TooLarge(fmt.Errorf("debugging information: more than %d entries", maxEntries))
	}
	return e, nil
}

// skip goes past the children of an entry.
func (s *search) skip(e *dwarf.Entry) error {
	if sibling, ok := e.Val(dwarf.AttrSibling).(dwarf.Offset); ok && sibling > e.Offset {
		s.reader.Seek(sibling)
		return nil
	}
	for depth := 1; e.Children && depth > 0; {
		child, err := s.next()
		switch {
		case err != nil:
			return err
		case child == nil:
			return nil
		case child.Tag == 0:
			depth--
		case child.Children:
			depth++
		}
	}
	return nil
}

// at returns an entry, and leaves the reader before the next.
func (s *search) at(offset dwarf.Offset) (*dwarf.Entry, error) {
	s.reader.Seek(offset)
	e, err := s.next()
	if err == nil && e == nil {
		err = ErrMalformed
	}
	return e, err
}

// isStructure reports whether an entry is of something with members.
func isStructure(e *dwarf.Entry) bool {
	return e.Tag == dwarf.TagStructType || e.Tag == dwarf.TagClassType || e.Tag == dwarf.TagUnionType
}

func nameOf(e *dwarf.Entry) string {
	name, _ := e.Val(dwarf.AttrName).(string)
	return name
}

func isDeclared(e *dwarf.Entry) bool {
	declared, _ := e.Val(dwarf.AttrDeclaration).(bool)
	return declared
}

// find returns the structures of a name that the file describes, and with
// typedefs these, too.
func (s *search) find(name string, typedefs bool) (found []dwarf.Offset, err error) {
	key := fmt.Sprint(typedefs, name)
	if found, ok := s.named[key]; ok {
		return found, nil
	}
	for s.reader.Seek(0); ; {
		e, err := s.next()
		switch {
		case err != nil:
			return nil, err
		case e == nil:
			s.named[key] = found
			return found, nil
		case e.Tag == dwarf.TagCompileUnit, e.Tag == dwarf.TagPartialUnit,
			e.Tag == dwarf.TagTypeUnit, e.Tag == dwarf.TagNamespace, e.Tag == 0:
			continue
		case (isStructure(e) && !isDeclared(e) || typedefs && e.Tag == dwarf.TagTypedef) &&
			nameOf(e) == name:
			found = append(found, e.Offset)
		}
		if err := s.skip(e); err != nil {
			return nil, err
		}
	}
}

// byName returns what a path leads to from all structures of a name, if that is
// one thing.
func (s *search) byName(name string, typedefs bool, path string) (m Member, err error) {
	key := fmt.Sprint(typedefs, name, path)
	if m, ok := s.done[key]; ok {
		return m, nil
	}
	found, err := s.find(name, typedefs)
	if err != nil {
		return m, err
	}
	if len(found) == 0 {
		return m, fmt.Errorf("the debugging information has no structure %s", truncate.Name(name))
	}
	for i, offset := range found {
		here, err := s.structure(offset, path)
		switch {
		case errors.Is(err, ErrTooLarge), err != nil && len(found) == 1:
			return Member{}, err
		case i > 0 && !reflect.DeepEqual(here, m), err != nil:
			return Member{}, fmt.Errorf("there are different structures %s in the program",
				truncate.Name(name))
		}
		m = here
	}
	s.done[key] = m
	return m, nil
}

// stripped returns the type of an entry without its other names and
// qualifications, nil for void.
func (s *search) stripped(e *dwarf.Entry) (*dwarf.Entry, error) {
	for range maxTypeNames {
		value := e.Val(dwarf.AttrType)
		if value == nil {
			return nil, nil
		}
		offset, ok := value.(dwarf.Offset)
		if !ok {
			return nil, errors.New("the debugging information has its type elsewhere")
		}
		var err error
		if e, err = s.at(offset); err != nil {
			return nil, err
		}
		switch e.Tag {
		case dwarf.TagTypedef, dwarf.TagConstType, dwarf.TagVolatileType, dwarf.TagRestrictType,
			dwarf.TagAtomicType:
		default:
			return e, nil
		}
	}
	return nil, ErrMalformed
}

// structure returns what a path leads to from a pointer to a structure, or to a
// typedef of one.
func (s *search) structure(offset dwarf.Offset, path string) (Member, error) {
	e, err := s.at(offset)
	if err == nil && e.Tag == dwarf.TagTypedef {
		e, err = s.stripped(e)
	}
	if err != nil {
		return Member{}, err
	}
	return s.from(e, "->", path)
}

// from returns what a path leads to from a structure, or from a pointer to one:
// by tells how the path has to go on.
func (s *search) from(e *dwarf.Entry, by, path string) (Member, error) {
	rest, ok := strings.CutPrefix(path, by)
	switch {
	case !ok:
		return Member{}, fmt.Errorf("before %s, %s is to be written", strings.TrimLeft(path, "->."), by)
	case e == nil || !isStructure(e):
		return Member{}, errors.New("what it points to is no structure")
	case isDeclared(e):
		return s.byName(nameOf(e), false, "->"+rest)
	}
	name, path := rest, ""
	if i := strings.IndexAny(rest, "-."); i >= 0 {
		name, path = rest[:i], rest[i:]
	}
	member, at, err := s.member(e, name, 0)
	if err != nil {
		return Member{}, err
	}
	t, err := s.stripped(member)
	if err != nil {
		return Member{}, err
	}
	if path == "" {
		m, err := s.value(member, t)
		if err != nil {
			return Member{}, fmt.Errorf("the member %s %w", name, err)
		}
		m.Offsets = []int64{at}
		return m, nil
	}
	switch {
	case t != nil && isStructure(t):
		m, err := s.from(t, ".", path)
		if err == nil {
			m.Offsets = slices.Clone(m.Offsets)
			m.Offsets[0] += at
		}
		return m, err
	case t == nil || !s.isPointer(t):
		return Member{}, fmt.Errorf("the member %s has no members", name)
	}
	if t, err = s.stripped(t); err != nil {
		return Member{}, err
	}
	m, err := s.from(t, "->", path)
	if m.Offsets = append([]int64{at}, m.Offsets...); err == nil && len(m.Offsets) > maxPointers {
		err = fmt.Errorf("more than %d pointers", maxPointers)
	}
	return m, err
}

// member returns a member of a structure, and its place. It may be one of a
// structure without a name in it.
func (s *search) member(e *dwarf.Entry, name string, depth int) (*dwarf.Entry, int64, error) {
	missing := fmt.Errorf("the structure %s has no member %s", truncate.Name(nameOf(e)), name)
	if _, err := s.at(e.Offset); err != nil {
		return nil, 0, err
	}
	var nameless []*dwarf.Entry
	for more := e.Children; more; {
		m, err := s.next()
		switch {
		case err != nil:
			return nil, 0, err
		case m == nil || m.Tag == 0:
			more = false
			continue
		case m.Tag != dwarf.TagMember:
		case nameOf(m) == name:
			at, err := place(m)
			if err == nil && (m.Val(dwarf.AttrBitSize) != nil || m.Val(dwarf.AttrDataBitOffset) != nil) {
				err = errors.New("is a bit field")
			}
			if err != nil {
				err = fmt.Errorf("the member %s %w", name, err)
			}
			return m, at, err
		case nameOf(m) == "" && depth < maxPointers:
			nameless = append(nameless, m)
		}
		if err := s.skip(m); err != nil {
			return nil, 0, err
		}
	}
	for _, m := range nameless {
		at, placeErr := place(m)
		t, err := s.stripped(m)
		if err != nil {
			return nil, 0, err
		}
		if placeErr != nil || t == nil || !isStructure(t) {
			continue
		}
		found, inside, err := s.member(t, name, depth+1)
		if found != nil || errors.Is(err, ErrTooLarge) {
			return found, at + inside, err
		}
	}
	return nil, 0, missing
}

// place returns where in a structure a member begins.
func place(m *dwarf.Entry) (int64, error) {
	at := int64(-1)
	switch v := m.Val(dwarf.AttrDataMemberLoc).(type) {
	case nil: // of a union
		at = 0
	case int64:
		at = v
	case []byte: // DWARF 2 writes DW_OP_plus_uconst
		if len(v) > 0 && v[0] == 0x23 {
			if value, n := binary.Uvarint(v[1:]); n > 0 && n == len(v)-1 {
				at = int64(value)
			}
		}
	}
	if at < 0 || at > maxMemberOffset {
		return 0, errors.New("is at no constant place")
	}
	return at, nil
}

// isPointer reports whether an entry is of a pointer that the program's
// addresses fit.
func (s *search) isPointer(e *dwarf.Entry) bool {
	size, sized := e.Val(dwarf.AttrByteSize).(int64)
	return (e.Tag == dwarf.TagPointerType || e.Tag == dwarf.TagReferenceType) &&
		(!sized || size == int64(s.reader.AddressSize()))
}

// The encodings of base types (DW_ATE_*).
const (
	encodingAddress      = 0x1
	encodingBoolean      = 0x2
	encodingFloat        = 0x4
	encodingSigned       = 0x5
	encodingSignedChar   = 0x6
	encodingUnsigned     = 0x7
	encodingUnsignedChar = 0x8
	encodingUTF          = 0x10
)

// value returns what the value of a member is, by its type.
func (s *search) value(member, t *dwarf.Entry) (m Member, err error) {
	if t == nil {
		return m, errors.New("has no type")
	}
	size, _ := t.Val(dwarf.AttrByteSize).(int64)
	encoding, _ := t.Val(dwarf.AttrEncoding).(int64)
	switch {
	case isStructure(t):
		return m, errors.New("is a structure: one of its members is to be named")
	case t.Tag == dwarf.TagArrayType:
		return s.array(t)
	case t.Tag == dwarf.TagEnumerationType:
		if encoding != 0 {
			break
		}
		underlying, err := s.stripped(t)
		if err != nil {
			return m, err
		}
		if underlying != nil {
			encoding, _ = underlying.Val(dwarf.AttrEncoding).(int64)
		}
	case s.isPointer(t):
		size = int64(s.reader.AddressSize())
		m.Pointer, encoding = true, encodingAddress
		to, err := s.stripped(t)
		if err != nil {
			return m, err
		}
		m.Text = isChar(to)
		m.Type = "void *"
		if to != nil {
			m.Type = nameOf(to) + " *"
		}
	case t.Tag != dwarf.TagBaseType:
		return m, errors.New("is no number")
	case t.Val(dwarf.AttrEndianity) != nil:
		return m, errors.New("has another byte order")
	}
	switch encoding {
	case encodingSigned, encodingSignedChar:
		m.Signed = true
	case encodingFloat:
		m.Float = true
	case encodingAddress, encodingBoolean, encodingUnsigned, encodingUnsignedChar, encodingUTF:
	default:
		return m, errors.New("is no number")
	}
	if size != 1 && size != 2 && size != 4 && size != 8 || m.Float && size < 4 {
		return m, fmt.Errorf("has %d bytes", size)
	}
	m.Size = int(size)
	return m, nil
}

// isChar reports whether texts consist of the type of an entry. That of
// uint8_t is "unsigned char".
func isChar(e *dwarf.Entry) bool {
	if e == nil || e.Tag != dwarf.TagBaseType {
		return false
	}
	encoding, _ := e.Val(dwarf.AttrEncoding).(int64)
	return encoding == encodingSignedChar || encoding == encodingUnsignedChar && nameOf(e) == "char"
}

// array returns what an array is that is a text.
func (s *search) array(t *dwarf.Entry) (m Member, err error) {
	of, err := s.stripped(t)
	if err != nil {
		return m, err
	}
	if _, err := s.at(t.Offset); err != nil {
		return m, err
	}
	m = Member{Size: s.reader.AddressSize(), Pointer: true, Text: true, Type: "char *", Array: true}
	bounds := 0
	for more := t.Children; more; {
		e, err := s.next()
		if err != nil {
			return m, err
		}
		if more = e != nil && e.Tag == dwarf.TagSubrangeType; !more {
			break
		}
		room, ok := e.Val(dwarf.AttrCount).(int64)
		if last, has := e.Val(dwarf.AttrUpperBound).(int64); has && !ok {
			room = last + 1
		}
		if bounds++; room < 0 || room > maxMemberOffset || e.Children {
			return m, errArray
		}
		m.Room = int(room)
	}
	if !isChar(of) || bounds != 1 || m.Size != 4 && m.Size != 8 {
		return m, errArray
	}
	return m, nil
}

var errArray = errors.New("is an array, and no text")
