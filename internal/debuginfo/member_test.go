// SPDX-License-Identifier: BSD-2-Clause

package debuginfo

import (
	"bytes"
	"debug/dwarf"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/elffile"
	"github.com/gousdt/gousdt/internal/elffile/elfimage"
	"github.com/gousdt/gousdt/internal/testneeds"
)

const structuresSource = `
#include <stddef.h>
#include <stdint.h>

struct peer { uint16_t port; char *name; };
typedef struct { int fd; struct peer peer; } connection_t;
enum color { RED, GREEN = 300 };
enum sign { MINUS = -1, PLUS = 1 };
typedef unsigned long counter;
struct hidden;
struct request {
	char letter;
	signed char small;
	uint8_t byte;
	int16_t half;
	const int32_t word;
	uint64_t wide;
	_Bool flag;
	float single;
	double twofold;
	long double large;
	volatile counter count;
	enum color color;
	enum sign sign;
	char *path;
	const char *const method;
	unsigned char *bytes;
	void *data;
	connection_t *connection;
	connection_t inside;
	struct request *next;
	struct hidden *hidden;
	struct { int32_t x, y; } place;
	union { uint32_t number; int8_t first; };
	struct { int64_t deep; };
	char name[16];
	char rows[2][8];
	uint8_t address[6];
	unsigned bits : 3;
	int (*call)(int);
	int (*row)[4];
#ifdef __SIZEOF_INT128__
	__int128 huge;
#endif
	char tail[];
};

#define AT(member) offsetof(struct request, member)
__attribute__((used)) const uint32_t offsets[] = {
	AT(letter), AT(small), AT(byte), AT(half), AT(word), AT(wide), AT(flag), AT(single),
	AT(twofold), AT(count), AT(color), AT(sign), AT(path), AT(method), AT(bytes), AT(data),
	AT(connection), AT(inside.peer.port), AT(place.y), AT(number), AT(first), AT(deep),
	AT(next), AT(name), AT(tail), offsetof(connection_t, peer.name), sizeof(counter), sizeof(void *),
};
struct request one, *first = &one;
#ifndef __i386__
int main(void) { return one.letter; }
#else
void _start(void) { }
#endif
`

// The order of what offsets says.
var offsetPaths = []string{"letter", "small", "byte", "half", "word", "wide", "flag", "single",
	"twofold", "count", "color", "sign", "path", "method", "bytes", "data",
	"connection", "inside.peer.port", "place.y", "number", "first", "deep", "next", "name", "tail"}

// compile compiles C sources to one program, or skips the test.
func compile(t testing.TB, command []string, sources ...string) string {
	t.Helper()
	testneeds.Tool(t, command[0], command[0])
	dir := t.TempDir()
	out := filepath.Join(dir, "program")
	arguments := append(command[1:len(command):len(command)], "-o", out)
	for i, source := range sources {
		path := filepath.Join(dir, fmt.Sprintf("%d.c", i))
		qt.Assert(t, qt.IsNil(os.WriteFile(path, []byte(source), 0o600)))
		arguments = append(arguments, path)
	}
	output, err := exec.Command(command[0], arguments...).CombinedOutput()
	qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", output))
	return out
}

func openProgram(t testing.TB, path string) *File {
	t.Helper()
	f, err := Open(path)
	qt.Assert(t, qt.IsNil(err))
	t.Cleanup(func() { f.Close() })
	return f
}

func memberOf(f *File, pointer, path string) (Member, error) {
	return FindMember(pointer, path, func() (*DWARF, error) {
		return f.DWARF(false, time.Now().Add(MaxReading))
	})
}

var compilers = [][]string{
	{"gcc", "-g"}, {"gcc", "-g", "-gdwarf-2"}, {"gcc", "-g", "-gdwarf-4", "-gz"},
	{"gcc", "-g3", "-O2", "-gdwarf64"}, {"clang", "-g"}, {"clang", "-g", "-gdwarf-4", "-O2"},
	{"gcc", "-g", "-m32", "-nostdlib", "-static", "-ffreestanding"},
}

// Members are where the compiler has them, and what it takes them for.
func TestMembersAreWhereTheCompilerHasThem(t *testing.T) {
	for _, command := range compilers {
		t.Run(fmt.Sprint(command), func(t *testing.T) {
			path := compile(t, command, structuresSource)
			f := openProgram(t, path)
			symbol, err := f.Symbol("offsets")
			qt.Assert(t, qt.IsNil(err))
			data := f.Segment(symbol.Value, symbol.Size, 0)
			qt.Assert(t, qt.IsNotNil(data))
			b, err := f.ReadRange(symbol.Value-data.Address+data.Offset, symbol.Size)
			qt.Assert(t, qt.IsNil(err))
			said := func(i int) int64 { return int64(binary.LittleEndian.Uint32(b[4*i:])) }
			for i, member := range offsetPaths {
				m, err := memberOf(f, "struct request *", "->"+member)
				qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", member))
				qt.Check(t, qt.DeepEquals(m.Offsets, []int64{said(i)}), qt.Commentf("%s", member))
			}
			long, pointer := int(said(len(offsetPaths)+1)), int(said(len(offsetPaths)+2))
			for member, want := range map[string]Member{
				"letter":  {Size: 1, Signed: true},
				"small":   {Size: 1, Signed: true},
				"byte":    {Size: 1},
				"half":    {Size: 2, Signed: true},
				"word":    {Size: 4, Signed: true},
				"wide":    {Size: 8},
				"flag":    {Size: 1},
				"single":  {Size: 4, Float: true},
				"twofold": {Size: 8, Float: true},
				"count":   {Size: long},
				"color":   {Size: 4},
				"sign":    {Size: 4, Signed: true},
				"path":    {Size: pointer, Pointer: true, Text: true, Type: "char *"},
				"method":  {Size: pointer, Pointer: true, Text: true, Type: "char *"},
				"data":    {Size: pointer, Pointer: true, Type: "void *"},
				"next":    {Size: pointer, Pointer: true, Type: "request *"},
				"name": {Size: pointer, Pointer: true, Text: true, Type: "char *", Array: true,
					Room: 16},
				"tail":  {Size: pointer, Pointer: true, Text: true, Type: "char *", Array: true},
				"first": {Size: 1, Signed: true},
				"deep":  {Size: 8, Signed: true},
			} {
				m, err := memberOf(f, "const struct request *", "->"+member)
				qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", member))
				m.Offsets = nil
				qt.Check(t, qt.DeepEquals(m, want), qt.Commentf("%s", member))
			}
			to, name := said(16), said(len(offsetPaths))
			m, err := memberOf(f, "struct request *", "->next->next->connection->peer.name")
			qt.Assert(t, qt.IsNil(err))
			qt.Check(t, qt.DeepEquals(m, Member{Offsets: []int64{said(22), said(22), to, name},
				Size: pointer, Pointer: true, Text: true, Type: "char *"}))
			of := func(path string) (Member, error) {
				return FindMemberOfVariable("first", path, func() (*DWARF, error) {
					return f.DWARF(false, time.Now().Add(MaxReading))
				})
			}
			m, err = of("->next->connection->peer.name")
			qt.Assert(t, qt.IsNil(err))
			qt.Check(t, qt.DeepEquals(m, Member{Offsets: []int64{said(22), to, name},
				Size: pointer, Pointer: true, Text: true, Type: "char *"}))
			_, err = of("->nobody")
			qt.Check(t, qt.ErrorMatches(err, "the structure request has no member nobody"))
			_, err = of(".path")
			qt.Check(t, qt.ErrorMatches(err, "write -> before path"))
			m, err = memberOf(f, "connection_t *", "->peer.name")
			qt.Assert(t, qt.IsNil(err))
			qt.Check(t, qt.DeepEquals(m.Offsets, []int64{name}))
		})
	}
}

// Members that are not numbers, or not known, are refused with the reason.
func TestMembersThatAreRefused(t *testing.T) {
	f := openProgram(t, compile(t, []string{"gcc", "-g"}, structuresSource))
	for _, test := range [][3]string{
		{"int", "->x", "int is not a pointer to a structure"},
		{"struct request **", "->x", `struct request \*\* is not a pointer to a structure`},
		{"struct reqest *", "->x", "the debugging information has no structure reqest"},
		{"request *", "->x", "the structure request has no member x"}, // as C++ writes it
		{"struct connection_t *", "->fd", "the debugging information has no structure connection_t"},
		{"const *", "->fd", `const \* is not a pointer to a structure`},
		{"counter *", "->x", "not a pointer to a structure"},
		{"struct request *", "->missing", "the structure request has no member missing"},
		{"struct request *", "->bits", "the member bits is a bit field"},
		{"struct request *", "->rows", "the member rows is an array, but not a string"},
		{"struct request *", "->address", "the member address is an array, but not a string"},
		{"struct request *", "->place", "the member place is a structure: .*"},
		{"struct request *", "->large", "the member large has 16 bytes"},
		{"struct request *", "->huge", "the member huge has 16 bytes"},
		{"struct request *", "->inside->fd", "write \\. before fd"},
		{"struct request *", "->connection.fd", "write -> before fd"},
		{"struct request *", "->word->fd", "the member word has no members"},
		{"struct request *", "->call->fd", "not a pointer to a structure"},
		{"struct request *", "->data->fd", "not a pointer to a structure"},
		{"struct request *", "->path->fd", "not a pointer to a structure"},
		{"struct request *", "->hidden->fd", "the debugging information has no structure hidden"},
		{"struct request *",
			"->next->next->next->next->next->next->next->next->next", "more than 8 pointers"},
	} {
		m, err := memberOf(f, test[0], test[1])
		qt.Check(t, qt.ErrorMatches(err, test[2]), qt.Commentf("%s%s", test[0], test[1]))
		qt.Check(t, qt.DeepEquals(m, Member{}))
	}
	f = openProgram(t, compile(t, []string{"gcc"}, structuresSource))
	_, err := memberOf(f, "struct request *", "->word")
	qt.Check(t, qt.ErrorIs(err, ErrNoDWARF))
}

// Where types are not in the sections that are read, the reason says so.
func TestMembersThatAreElsewhere(t *testing.T) {
	for _, flag := range []string{"-gsplit-dwarf", "-fdebug-types-section"} {
		for _, version := range []string{"-gdwarf-4", "-gdwarf-5"} {
			f := openProgram(t, compile(t, []string{"gcc", "-g", version, flag}, structuresSource))
			for _, asked := range [][2]string{
				{"struct request *", "->connection->fd"}, {"connection_t *", "->fd"},
			} {
				m, err := memberOf(f, asked[0], asked[1])
				if err == nil && flag == "-fdebug-types-section" && version == "-gdwarf-5" {
					continue // a type unit that is read like others
				}
				qt.Check(t, qt.ErrorIs(err, errElsewhere), qt.Commentf("%s %s %v", flag, version, asked))
				qt.Check(t, qt.DeepEquals(m, Member{}))
			}
		}
	}
}

// A structure that one source file only declares is that of another one. Where
// two files have different ones, neither counts.
func TestMembersOfSeveralSources(t *testing.T) {
	f := openProgram(t, compile(t, []string{"gcc", "-g"},
		`struct b; struct a { struct b *b; int same, x; }; struct a *one;
			struct two { int i; long l; } *two; int main(void) { return 0; }`,
		`struct b { long pad; int i; } *b; struct a { struct b *b; int same; char x; } *other;`,
		`struct two { int i; int j[2]; long l; } *third;`))
	m, err := memberOf(f, "struct a *", "->b->i")
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.DeepEquals(m.Offsets, []int64{0, 8}))
	_, err = memberOf(f, "struct a *", "->same")
	qt.Check(t, qt.IsNil(err))
	for _, of := range []string{"a *->x", "two *->l"} {
		pointer, path, _ := cutMember(of)
		_, err = memberOf(f, "struct "+pointer, path)
		qt.Check(t, qt.ErrorMatches(err, "there are different structures .* in the program"))
	}
	_, err = memberOf(f, "struct two *", "->i")
	qt.Check(t, qt.IsNil(err))
}

func cutMember(of string) (pointer, path string, ok bool) {
	i := bytes.IndexByte([]byte(of), '-')
	return of[:i], of[i:], true
}

// forged returns a file whose sections of DWARF are these.
func forged(abbreviations, info, texts []byte) *File {
	im := newImage64()
	for i, b := range [][]byte{abbreviations, info, texts} {
		im.Sections = append(im.Sections,
			elfimage.Section{Name: dwarfSections[i], Kind: elf.SHT_PROGBITS, Data: b})
	}
	f, err := New(bytes.NewReader(im.Bytes()))
	if err != nil {
		panic(err)
	}
	return f
}

// unit returns a unit of DWARF 4 with these entries.
func unit(table int, entries ...byte) []byte {
	b := binary.LittleEndian.AppendUint32(nil, uint32(7+len(entries)))
	b = binary.LittleEndian.AppendUint16(b, 4)
	b = binary.LittleEndian.AppendUint32(b, uint32(table))
	return append(append(b, 8), entries...)
}

// Files that would take much more than they are, are refused.
func TestMembersOfHostileFiles(t *testing.T) {
	// An abbreviation of a structure with children and a name in .debug_str.
	structure := []byte{1, byte(dwarf.TagStructType), 1, byte(dwarf.AttrName), 0x0e, 0, 0, 0}
	many := []byte{1, byte(dwarf.TagStructType), 1}
	for range 1000 {
		many = append(many, 3, 0x19) // DW_FORM_flag_present takes no room
	}
	many = append(many, 0, 0, 0)
	// Each unit has another part of it, to the end.
	overlapping := append(bytes.Repeat([]byte{1, 0x13, 0, 0, 0}, 1<<20), 0)
	var units []byte
	for i := range 20 {
		units = append(units, unit(5*i)...)
	}
	nested := bytes.Repeat([]byte{1, 0, 0, 0, 0}, 5<<20)
	flat := append([]byte{2, byte(dwarf.TagBaseType), 0, 0, 0}, structure...)
	for name, test := range map[string]struct {
		file *File
		want error
	}{
		"many units": {forged(structure, bytes.Repeat(unit(0), maxUnits+1), []byte{0}),
			elffile.ErrTooLarge},
		"empty units":     {forged(structure, make([]byte, 4), []byte{0}), elffile.ErrTruncated},
		"many attributes": {forged(many, unit(0, 1), []byte{0}), elffile.ErrTooLarge},
		"overlapping":     {forged(overlapping, units, []byte{0}), elffile.ErrTooLarge},
		"nested":          {forged(structure, unit(0, nested...), []byte{0}), elffile.ErrTooLarge},
		"many": {forged(flat, unit(0, bytes.Repeat([]byte{2}, 5<<20)...), []byte{0}),
			elffile.ErrTooLarge},
		"truncated": {forged(structure, unit(0, 1)[:8], []byte{0}), elffile.ErrTruncated},
		"half head": {forged(structure, []byte{0, 0}, []byte{0}), elffile.ErrTruncated},
	} {
		_, err := FindMember("x *", "->y", func() (*DWARF, error) {
			return test.file.DWARF(false, time.Now().Add(100*time.Millisecond))
		})
		qt.Check(t, qt.ErrorIs(err, test.want), qt.Commentf("%s", name))
	}
}

func TestLongStringsAreCut(t *testing.T) {
	text := []byte("short\x00" + strings.Repeat("x", 3*MaxDebugString) + "\x00end")
	cutStrings(text)
	for part := range strings.SplitSeq(string(text), "\x00") {
		qt.Check(t, qt.IsTrue(len(part) <= MaxDebugString))
	}
	qt.Check(t, qt.IsTrue(bytes.HasPrefix(text, []byte("short\x00x"))))
	qt.Check(t, qt.IsTrue(bytes.HasSuffix(text, []byte("x\x00end"))))
}

// FuzzMember takes any sections of DWARF: whatever they say, there is no panic.
func FuzzMember(f *testing.F) {
	f.Add([]byte("0"), []byte("\n\x00\x00\x00\x04\x0000000\x88\x88\x88"), []byte{0}, "->y")
	f.Add([]byte{1, 0x13, 1, 3, 8, 0, 0, 0}, unit(0, 1, 'x', 0), []byte{0}, "->y")
	if _, err := exec.LookPath("gcc"); err == nil {
		for _, version := range []string{"-gdwarf-2", "-gdwarf-4", "-gdwarf-5"} {
			program := openProgram(f, compile(f, []string{"gcc", "-g", version},
				`struct x { int a; struct x *y; union { char *b; }; } *x; int main(void) {}`))
			var parts [3][]byte
			for i := range parts {
				parts[i], _ = program.Unpack(program.Section(dwarfSections[i]))
			}
			f.Add(parts[0], parts[1], parts[2], "->y->y->b")
		}
	}
	f.Fuzz(func(t *testing.T, abbreviations, info, texts []byte, path string) {
		m, err := memberOf(forged(abbreviations, info, texts), "struct x *", path)
		if err != nil && len(m.Offsets) > 0 || err == nil && (len(m.Offsets) == 0 || m.Size == 0) {
			t.Errorf("%+v: %v", m, err)
		}
	})
}
