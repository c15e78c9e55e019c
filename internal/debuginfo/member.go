// SPDX-License-Identifier: BSD-2-Clause

package debuginfo

import (
	"debug/dwarf"
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/gousdt/gousdt/internal/elffile"
)

// Member is the place and the type of a member of a structure.
type Member struct {
	// Offsets lead to the member. The first one is added to the pointer. At
	// each sum but the last is a pointer, to which the next offset is added. At
	// the last sum is the member.
	Offsets []int64

	Size          int // 1, 2, 4 or 8 bytes
	Signed, Float bool
	Pointer, Text bool   // it is a pointer; it is a pointer to a text
	Type          string // of a pointer, as C writes it

	// Array means that the member is not a pointer to a text but the text
	// itself. The text has up to Room bytes, and ends before if one is zero. If
	// Room is 0, it ends at the first zero. The value is the text's address.
	Array bool
	Room  int

	// Owner is a variable. The structure is the process's own if the number at
	// OwnedAt in it is the variable's, and is not read if not. "" is none.
	Owner   string
	OwnedAt int64
}

// FindMember returns the member that an expression reaches from a pointer.
// pointer is the type of the pointer in C, "struct request *". path is the rest
// of the expression, "->peer.port". read reads the debugging information. It
// fails if structures of the same name have different layouts, or if the member
// is not a number, a pointer or a text.
func FindMember(pointer, path string, read func() (*DWARF, error)) (m Member, err error) {
	name, ok := strings.CutSuffix(pointer, "*")
	words := slices.DeleteFunc(strings.Fields(name),
		func(word string) bool { return word == "const" || word == "volatile" })
	if !ok || len(words) == 0 || strings.Contains(name, "*") {
		return m, fmt.Errorf("%s is not a pointer to a structure", pointer)
	}
	// With a keyword the name is a tag: "struct stat" is not a typedef.
	isTag := len(words) > 1 && slices.Contains([]string{"struct", "union", "class"}, words[0])
	if isTag {
		words = words[1:]
	}
	return findMember(read, func(s *search) (Member, error) {
		return s.byName(strings.Join(words, " "), !isTag, path)
	})
}

// FindMemberOfVariable is FindMember for a global variable that is a pointer.
func FindMemberOfVariable(name, path string, read func() (*DWARF, error)) (m Member, err error) {
	return findMember(read, func(s *search) (Member, error) {
		return s.all("variable", name, path, func(e *dwarf.Entry) bool {
			return e.Tag == dwarf.TagVariable
		}, s.variable)
	})
}

func findMember(
	read func() (*DWARF, error), find func(*search) (Member, error),
) (m Member, err error) {
	defer func() {
		if err != nil {
			m = Member{}
		}
	}()
	defer Contain(&err)
	d, err := read()
	if err != nil {
		return m, err
	}
	return find(&search{Entries: d.Entries(0), done: make(map[string]Member)})
}

// search finds members in DWARF.
type search struct {
	*Entries
	done    map[string]Member // results of byName, by its arguments
	isSplit bool              // the units that were searched are only skeletons
}

// errElsewhere says that a structure is not where this package reads it.
var errElsewhere = errors.New("the debugging information is in .dwo files or type units, " +
	"which are not read (compile the program without -gsplit-dwarf and -fdebug-types-section)")

// splitName is GCC's attribute for the name of a .dwo file before DWARF 5.
const splitName dwarf.Attr = 0x2130 // DW_AT_GNU_dwo_name

func isStructure(e *dwarf.Entry) bool {
	return e.Tag == dwarf.TagStructType || e.Tag == dwarf.TagClassType || e.Tag == dwarf.TagUnionType
}

func value[T any](e *dwarf.Entry, attribute dwarf.Attr) T {
	value, _ := e.Val(attribute).(T)
	return value
}

func nameOf(e *dwarf.Entry) string { return value[string](e, dwarf.AttrName) }

func isDeclared(e *dwarf.Entry) bool { return value[bool](e, dwarf.AttrDeclaration) }

// refersElsewhere reports whether the type of an entry is in a type unit.
func refersElsewhere(e *dwarf.Entry) bool {
	_, isHere := e.Val(dwarf.AttrType).(dwarf.Offset)
	return !isHere && e.Val(dwarf.AttrType) != nil
}

func (s *search) find(
	name string, wanted func(*dwarf.Entry) bool,
) (found []dwarf.Offset, err error) {
	for s.Seek(0); ; {
		e, err := s.Next()
		switch {
		case err != nil:
			return nil, err
		case e == nil:
			return found, nil
		case e.Tag == dwarf.TagSkeletonUnit,
			e.Tag == dwarf.TagCompileUnit && e.Val(splitName) != nil:
			s.isSplit = true
			continue
		case isStructure(e) && e.Val(dwarf.AttrSignature) != nil, refersElsewhere(e):
			s.isSplit = true
		case e.Tag == dwarf.TagCompileUnit, e.Tag == dwarf.TagPartialUnit,
			e.Tag == dwarf.TagTypeUnit, e.Tag == dwarf.TagNamespace, e.Tag == 0:
			continue
		case wanted(e) && nameOf(e) == name:
			found = append(found, e.Offset)
		}
		if err := s.Skip(e); err != nil {
			return nil, err
		}
	}
}

// byName returns the member at a path from the structures of a name, and if
// typedefs is set from the typedefs of the name, too.
func (s *search) byName(name string, typedefs bool, path string) (m Member, err error) {
	key := fmt.Sprint(typedefs, name, path)
	if m, ok := s.done[key]; ok {
		return m, nil
	}
	m, err = s.all("structure", name, path, func(e *dwarf.Entry) bool {
		return isStructure(e) && !isDeclared(e) || typedefs && e.Tag == dwarf.TagTypedef
	}, s.structure)
	if err == nil {
		s.done[key] = m
	}
	return m, err
}

// all returns the member at a path from the entries of a name. It fails if that
// differs between them.
func (s *search) all(
	kind, name, path string, wanted func(*dwarf.Entry) bool,
	from func(at dwarf.Offset, path string) (Member, error),
) (m Member, err error) {
	found, err := s.find(name, wanted)
	if err != nil {
		return m, err
	}
	if len(found) == 0 && s.isSplit {
		return m, errElsewhere
	}
	if len(found) == 0 {
		return m, fmt.Errorf("the debugging information has no %s %s", kind, elffile.ShortName(name))
	}
	for i, offset := range found {
		here, err := from(offset, path)
		switch {
		case errors.Is(err, elffile.ErrTooLarge), err != nil && len(found) == 1:
			return Member{}, err
		case i > 0 && !reflect.DeepEqual(here, m), err != nil:
			return Member{}, fmt.Errorf("there are different %ss %s in the program", kind,
				elffile.ShortName(name))
		}
		m = here
	}
	return m, nil
}

// variable returns the member at a path from a variable that is a pointer to a
// structure.
func (s *search) variable(offset dwarf.Offset, path string) (Member, error) {
	e, err := s.At(offset)
	if err == nil {
		e, err = s.stripped(e)
	}
	if err == nil && e != nil && s.isPointer(e) {
		e, err = s.stripped(e)
	}
	if err != nil {
		return Member{}, err
	}
	return s.from(e, "->", path)
}

// stripped returns the type of an entry without typedefs and qualifiers, or nil
// for void.
func (s *search) stripped(e *dwarf.Entry) (*dwarf.Entry, error) {
	for range maxTypeNames {
		value := e.Val(dwarf.AttrType)
		if value == nil {
			return nil, nil
		}
		offset, ok := value.(dwarf.Offset)
		if !ok {
			return nil, errElsewhere
		}
		var err error
		if e, err = s.At(offset); err != nil {
			return nil, err
		}
		switch e.Tag {
		case dwarf.TagTypedef, dwarf.TagConstType, dwarf.TagVolatileType, dwarf.TagRestrictType,
			dwarf.TagAtomicType:
		default:
			return e, nil
		}
	}
	return nil, elffile.ErrMalformed
}

// structure returns the member at a path from a pointer to a structure, or to a
// typedef of one.
func (s *search) structure(offset dwarf.Offset, path string) (Member, error) {
	e, err := s.At(offset)
	if err == nil && e.Tag == dwarf.TagTypedef {
		e, err = s.stripped(e)
	}
	if err != nil {
		return Member{}, err
	}
	return s.from(e, "->", path)
}

// from returns the member at a path from a structure, or from a pointer to one.
// The path must begin with by, which is "." or "->".
func (s *search) from(e *dwarf.Entry, by, path string) (Member, error) {
	rest, ok := strings.CutPrefix(path, by)
	switch {
	case !ok:
		return Member{}, fmt.Errorf("write %[2]s before %[1]s", strings.TrimLeft(path, "->."), by)
	case e == nil || !isStructure(e):
		return Member{}, errors.New("not a pointer to a structure")
	case e.Val(dwarf.AttrSignature) != nil:
		return Member{}, errElsewhere // it stands for a structure of a type unit
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
		m, err := s.of(t)
		if err != nil {
			return Member{}, fmt.Errorf("the member %s %w", name, err)
		}
		m.Offsets = []int64{at}
		return m, nil
	}
	if t != nil && isStructure(t) {
		m, err := s.from(t, ".", path)
		if err == nil {
			m.Offsets = slices.Clone(m.Offsets)
			m.Offsets[0] += at
		}
		return m, err
	}
	if t == nil || !s.isPointer(t) {
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

// member returns a member of a structure, and its offset. It also searches the
// structures in it that have no name.
func (s *search) member(e *dwarf.Entry, name string, depth int) (*dwarf.Entry, int64, error) {
	if _, err := s.At(e.Offset); err != nil {
		return nil, 0, err
	}
	var nameless []*dwarf.Entry
	for e.Children {
		m, err := s.Next()
		if err != nil {
			return nil, 0, err
		}
		if m == nil || m.Tag == 0 {
			break
		}
		switch {
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
		if err := s.Skip(m); err != nil {
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
		if found != nil || errors.Is(err, elffile.ErrTooLarge) {
			return found, at + inside, err
		}
	}
	return nil, 0, fmt.Errorf("the structure %s has no member %s", elffile.ShortName(nameOf(e)), name)
}

// place returns the offset of a member in its structure.
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
		return 0, errors.New("has no constant offset")
	}
	return at, nil
}

// isPointer reports whether an entry is of a pointer that has the size of the
// program's addresses.
func (s *search) isPointer(e *dwarf.Entry) bool {
	size, sized := e.Val(dwarf.AttrByteSize).(int64)
	return (e.Tag == dwarf.TagPointerType || e.Tag == dwarf.TagReferenceType) &&
		(!sized || size == int64(s.AddressSize()))
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

// of returns a member of a type, without its offsets.
func (s *search) of(t *dwarf.Entry) (m Member, err error) {
	if t == nil {
		return m, errors.New("has no type")
	}
	size, encoding := value[int64](t, dwarf.AttrByteSize), value[int64](t, dwarf.AttrEncoding)
	switch {
	case isStructure(t):
		return m, errors.New("is a structure: name one of its members")
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
			encoding = value[int64](underlying, dwarf.AttrEncoding)
		}
	case s.isPointer(t):
		to, err := s.stripped(t)
		if err != nil {
			return m, err
		}
		m.Pointer, m.Text, m.Type = true, isChar(to), "void *"
		if to != nil {
			m.Type = nameOf(to) + " *"
		}
		size, encoding = int64(s.AddressSize()), encodingAddress
	case t.Tag != dwarf.TagBaseType:
		return m, errors.New("is not a number")
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
		return m, errors.New("is not a number")
	}
	if size != 1 && size != 2 && size != 4 && size != 8 || m.Float && size < 4 {
		return m, fmt.Errorf("has %d bytes", size)
	}
	m.Size = int(size)
	return m, nil
}

// isChar reports whether an entry is of a type of characters: char or signed
// char. unsigned char is not one, since uint8_t is its typedef.
func isChar(e *dwarf.Entry) bool {
	if e == nil || e.Tag != dwarf.TagBaseType {
		return false
	}
	encoding := value[int64](e, dwarf.AttrEncoding)
	return encoding == encodingSignedChar || encoding == encodingUnsignedChar && nameOf(e) == "char"
}

// array returns a member that is an array of characters, without its offsets.
func (s *search) array(t *dwarf.Entry) (m Member, err error) {
	of, err := s.stripped(t)
	if err != nil {
		return m, err
	}
	if _, err := s.At(t.Offset); err != nil {
		return m, err
	}
	m = Member{Size: s.AddressSize(), Pointer: true, Text: true, Type: "char *", Array: true}
	bounds := 0
	for t.Children {
		e, err := s.Next()
		if err != nil {
			return m, err
		}
		if e == nil || e.Tag != dwarf.TagSubrangeType {
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

var errArray = errors.New("is an array, but not a string")
