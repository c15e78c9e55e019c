// SPDX-License-Identifier: BSD-2-Clause

package elffile

import (
	"debug/dwarf"
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gousdt/gousdt/internal/truncate"
)

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

// Member is what [Structures] says. It takes the file's word, from DWARF: where
// two structures of that name are laid out differently, or something is not a
// number, it fails. It wraps ErrNoDWARF where the file has no DWARF.
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
	if f.members.known == nil {
		f.members.known = make(map[[2]string]knownMember)
	}
	m, err := f.findMember(pointer, path, time.Now().Add(maxReading))
	if err != nil {
		m = Member{}
	}
	f.members.known[key] = knownMember{m, err}
	return m, err
}

func (f *File) findMember(pointer, path string, until time.Time) (m Member, err error) {
	defer Contain(&err)
	name, ok := strings.CutSuffix(pointer, "*")
	words := slices.DeleteFunc(strings.Fields(name),
		func(word string) bool { return word == "const" || word == "volatile" })
	if !ok || len(words) == 0 || strings.Contains(name, "*") {
		return m, fmt.Errorf("%s is not a pointer to a structure", pointer)
	}
	// What the name is of, if the type says so: "struct stat" is no typedef.
	isTag := len(words) > 1 && slices.Contains([]string{"struct", "union", "class"}, words[0])
	if isTag {
		words = words[1:]
	}
	data, err := f.DWARF(false, until)
	if err != nil {
		return m, err
	}
	s := search{data.Entries(0), make(map[string][]dwarf.Offset), make(map[string]Member)}
	return s.byName(strings.Join(words, " "), !isTag, path)
}

// search finds members in DWARF.
type search struct {
	*Entries
	named map[string][]dwarf.Offset // structures and typedefs, by what byName was asked for
	done  map[string]Member         // of names and paths
}

// isStructure reports whether an entry is of something with members.
func isStructure(e *dwarf.Entry) bool {
	return e.Tag == dwarf.TagStructType || e.Tag == dwarf.TagClassType || e.Tag == dwarf.TagUnionType
}

// value returns the value of an attribute, zero if there is none of the type.
func value[T any](e *dwarf.Entry, attribute dwarf.Attr) T {
	value, _ := e.Val(attribute).(T)
	return value
}

func nameOf(e *dwarf.Entry) string { return value[string](e, dwarf.AttrName) }

func isDeclared(e *dwarf.Entry) bool { return value[bool](e, dwarf.AttrDeclaration) }

// find returns the structures of a name that the file describes, and with
// typedefs these, too.
func (s *search) find(name string, typedefs bool) (found []dwarf.Offset, err error) {
	key := fmt.Sprint(typedefs, name)
	if found, ok := s.named[key]; ok {
		return found, nil
	}
	for s.Seek(0); ; {
		e, err := s.Next()
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
		if err := s.Skip(e); err != nil {
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
	return nil, ErrMalformed
}

// structure returns what a path leads to from a pointer to a structure, or to a
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

// from returns what a path leads to from a structure, or from a pointer to one:
// by tells how the path has to go on.
func (s *search) from(e *dwarf.Entry, by, path string) (Member, error) {
	rest, ok := strings.CutPrefix(path, by)
	switch {
	case !ok:
		return Member{}, fmt.Errorf("write %[2]s before %[1]s", strings.TrimLeft(path, "->."), by)
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

// member returns a member of a structure, and its place. It may be one of a
// structure without a name in it.
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
		if found != nil || errors.Is(err, ErrTooLarge) {
			return found, at + inside, err
		}
	}
	return nil, 0, fmt.Errorf("the structure %s has no member %s", truncate.Name(nameOf(e)), name)
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

// of returns what a member of a type is.
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
	encoding := value[int64](e, dwarf.AttrEncoding)
	return encoding == encodingSignedChar || encoding == encodingUnsignedChar && nameOf(e) == "char"
}

// array returns what an array is that is a text.
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

var errArray = errors.New("is an array, and no text")
