// SPDX-License-Identifier: BSD-2-Clause

package stack

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/debuginfo"
	"github.com/gousdt/gousdt/internal/elffile/elfimage"
	"github.com/gousdt/gousdt/internal/testneeds"
)

// madeAbbrev are abbreviations: a unit (1), a function (2), an inlined function
// (3) and what it is made of (4), a block (5), and one without anything (6).
const madeAbbrev = "" +
	"\x01\x11\x01\x10\x17\x11\x01\x12\x07\x1b\x08\x00\x00" +
	"\x02\x2e\x01\x03\x08\x11\x01\x12\x07\x00\x00" +
	"\x03\x1d\x00\x31\x13\x11\x01\x12\x07\x58\x0b\x59\x0b\x00\x00" +
	"\x04\x2e\x00\x03\x08\x00\x00" +
	"\x05\x0b\x01\x55\x17\x00\x00" +
	"\x06\x0b\x01\x00\x00\x00"

// madeDebugInfo is DWARF 4 of the code of an image: "outer" has all, and
// "inner" is inlined in its second half, at line 7.
func madeDebugInfo(order elfimage.ByteOrder) map[string][]byte {
	const start, size = elfimage.CodeAddress, elfimage.CodeSize
	word := func(b []byte, values ...uint64) []byte {
		for _, v := range values {
			b = order.AppendUint64(b, v)
		}
		return b
	}
	prefixed := func(b []byte) []byte { return append(order.AppendUint32(nil, uint32(len(b))), b...) }
	header := append(order.AppendUint16(nil, 4), 0, 0, 0, 0, 8) // version, abbreviations, addresses
	unit := order.AppendUint32(append(header, 1), 0)
	unit = append(word(unit, start, size), "/src\x00"...)
	inner := 4 + len(unit)
	unit = append(unit, "\x04inner\x00\x02outer\x00"...)
	unit = word(unit, start, size)
	unit = order.AppendUint32(append(unit, 3), uint32(inner))
	unit = append(word(unit, start+size/2, size/2), 1, 7, 0, 0)

	names := "a.c\x00\x00\x00\x00\x00" // no directory but that of the compilation
	fields := "\x01\x01\x01\xfb\x0e\x0d\x00\x01\x01\x01\x01\x00\x00\x00\x01\x00\x00\x01\x00" + names
	lines := order.AppendUint32(order.AppendUint16(nil, 4), uint32(len(fields)))
	lines = append(lines, fields...)
	lines = append(word(append(lines, 0, 9, 2), start), "\x03\x04\x01"...) // line 5
	lines = append(lines, "\x02\x80\x01\x03\x0d\x01"...)                   // line 18 in the second half
	lines = append(lines, "\x02\x80\x01\x00\x01\x01"...)                   // the end
	return map[string][]byte{".debug_info": prefixed(unit), ".debug_line": prefixed(lines),
		".debug_abbrev": []byte(madeAbbrev)}
}

// linesAt returns the sources of an address as a text.
func linesAt(t *testing.T, d *debugInfo, address uint64) string {
	t.Helper()
	sources, err := d.at(address, soon())
	qt.Assert(t, qt.IsNil(err))
	var words []string
	for _, s := range sources {
		words = append(words, strings.TrimSpace(s.function+" "+s.text()))
	}
	return strings.Join(words, ", ")
}

func debugInfoOf(
	sections map[string][]byte, order binary.ByteOrder, moved uint64,
) (*debugInfo, error) {
	data, err := debuginfo.NewDWARF(sections, order, soon())
	if err != nil {
		return nil, err
	}
	return newDebugInfo(data, moved)
}

func soon() time.Time { return time.Now().Add(time.Minute) }

func TestLines(t *testing.T) {
	for _, order := range []elfimage.ByteOrder{binary.LittleEndian, binary.BigEndian} {
		const moved = 0x1000
		d, err := debugInfoOf(madeDebugInfo(order), order, moved)
		qt.Assert(t, qt.IsNil(err))
		const start, middle, end = 0, elfimage.CodeSize / 2, elfimage.CodeSize
		for offset, want := range map[uint64]string{
			start: "/src/a.c:5", middle - 1: "/src/a.c:5", end: "",
			middle: "inner /src/a.c:18, /src/a.c:7", end - 1: "inner /src/a.c:18, /src/a.c:7",
		} {
			qt.Check(t, qt.Equals(linesAt(t, d, elfimage.CodeAddress+moved+offset), want),
				qt.Commentf("%#x", offset))
		}
		// The rows may end before the unit does, as where it has functions that
		// the linker has dropped.
		sections := madeDebugInfo(order)
		lines := sections[".debug_line"]
		copy(lines[bytes.LastIndexByte(lines, 2)+1:], "\xff\x00") // a byte less
		d, err = debugInfoOf(sections, order, moved)
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.Equals(linesAt(t, d, elfimage.CodeAddress+moved+end-1), "inner, /src/a.c:7"))
		// Those are at address 0.
		for name, section := range sections {
			for _, at := range []uint64{start, middle} {
				section = bytes.ReplaceAll(section,
					order.AppendUint64(nil, elfimage.CodeAddress+at), order.AppendUint64(nil, at))
			}
			sections[name] = section
		}
		d, err = debugInfoOf(sections, order, moved)
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.Equals(linesAt(t, d, moved+middle), ""))
	}
}

// The lines are in the program even if the compiler has split off the rest, and
// package debug/dwarf must not stumble over a program with many short names.
func TestLinesOfCompilers(t *testing.T) {
	var members strings.Builder
	for c := 'a'; c <= 'z'; c++ {
		fmt.Fprintf(&members, "%c, x%[1]c, %[2]c, x%[2]c, ", c, c-'a'+'A')
	}
	for _, command := range [][]string{
		{"gcc", "-gdwarf-4", "-gsplit-dwarf"}, {"gcc", "-gdwarf-5", "-gsplit-dwarf"},
		{"clang", "-gdwarf-5"},
	} {
		path := filepath.Join(t.TempDir(), "program")
		qt.Assert(t, qt.IsNil(os.WriteFile(path+".c", []byte("struct { int "+members.String()+
			"end; } s;\nint main(void) { return s.a; }\n"), 0o644)))
		out, err := exec.Command(testneeds.Tool(t, command[0], command[0]),
			append(command[1:], "-o", path, path+".c")...).CombinedOutput()
		qt.Assert(t, qt.IsNil(err), qt.Commentf("%v: %s", command, out))
		f, err := debuginfo.Open(path)
		qt.Assert(t, qt.IsNil(err))
		defer f.Close()
		main, err := f.Symbol("main")
		qt.Assert(t, qt.IsNil(err))
		d, err := readDebugInfo(f, soon())
		qt.Assert(t, qt.IsNil(err), qt.Commentf("%v", command))
		qt.Check(t, qt.Equals(linesAt(t, d, main.Value), path+".c:2"), qt.Commentf("%v", command))
	}
}

// Names of inlined functions are in the file of what several have in common,
// where dwz has made one.
func TestLinesOfAnAlternativeFile(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	run := func(name string, arguments ...string) {
		t.Helper()
		cmd := exec.Command(testneeds.Tool(t, name, name), arguments...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		qt.Assert(t, qt.IsNil(err), qt.Commentf("%s: %s", name, out))
	}
	qt.Assert(t, qt.IsNil(os.WriteFile(at("program.c"), []byte(`
static volatile int total;
static inline __attribute__((always_inline)) void check(int n) { total += n; }
int main(int argc, char **argv) { check(argc); return total; }
`), 0o644)))
	run("gcc", "-O2", "-gdwarf-4", "-o", "program", "program.c")
	run("cp", "program", "copy")
	run("dwz", "-m", "common", "-r", "program", "copy")
	f, err := debuginfo.Open(at("program"))
	qt.Assert(t, qt.IsNil(err))
	defer f.Close()
	main, err := f.Symbol("main")
	qt.Assert(t, qt.IsNil(err))
	names := func() string {
		t.Helper()
		d, err := readDebugInfo(f, soon())
		qt.Assert(t, qt.IsNil(err))
		text := ""
		for address := main.Value; address < main.Value+main.Size; address++ {
			text += linesAt(t, d, address) + "\n"
		}
		return text
	}
	qt.Check(t, qt.StringContains(names(), "check "+at("program.c")+":3, "+at("program.c")+":4"))
	qt.Assert(t, qt.IsNil(os.Remove(at("common"))))
	qt.Check(t, qt.Not(qt.StringContains(names(), "check ")))
	run("cp", "copy", "common") // another build
	qt.Check(t, qt.Not(qt.StringContains(names(), "check ")))
}

// What would cost package debug/dwarf time, memory or its stack takes no longer
// than it may.
func TestCostlyDebugInfo(t *testing.T) {
	order := binary.LittleEndian
	for name, change := range map[string]func(map[string][]byte){
		"depth": func(s map[string][]byte) {
			insert(s, bytes.Repeat([]byte{6}, 16<<20))
		},
		"ranges": func(s map[string][]byte) {
			const entry = "\x05\x00\x00\x00\x00\x00"
			insert(s, []byte(strings.Repeat(entry, 1<<20)))
			s[".debug_ranges"] = bytes.Repeat([]byte{1}, 16<<20)
		},
	} {
		s := madeDebugInfo(order)
		change(s)
		d, err := debugInfoOf(s, order, 0)
		qt.Assert(t, qt.IsNil(err), qt.Commentf(name))
		began := time.Now()
		_, err = d.at(elfimage.CodeAddress, began.Add(50*time.Millisecond))
		qt.Check(t, qt.IsNotNil(err), qt.Commentf(name))
		took := time.Since(began)
		qt.Check(t, qt.IsTrue(took < 5*time.Second), qt.Commentf("%s: %v", name, took))
	}
}

// insert adds entries to the function.
func insert(s map[string][]byte, entries []byte) {
	info := s[".debug_info"]
	info = append(info[:len(info)-2:len(info)-2], entries...)
	binary.LittleEndian.PutUint32(info, uint32(len(info)-4))
	s[".debug_info"] = info
}

// FuzzDebugInfo looks for data on which the reader panics, or does not return.
func FuzzDebugInfo(f *testing.F) {
	made := madeDebugInfo(binary.LittleEndian)
	f.Add(made[".debug_info"], made[".debug_abbrev"], made[".debug_line"], []byte("\x00"),
		[]byte("\x00"), []byte("\x00"))
	f.Fuzz(func(t *testing.T, info, abbrev, line, str, lineStr, ranges []byte) {
		clone := bytes.Clone
		d, err := debugInfoOf(map[string][]byte{
			".debug_info": clone(info), ".debug_abbrev": clone(abbrev), ".debug_line": clone(line),
			".debug_str": clone(str), ".debug_line_str": clone(lineStr),
			".debug_ranges": clone(ranges), ".debug_rnglists": clone(ranges),
			".debug_addr": clone(ranges), ".debug_str_offsets": clone(ranges),
		}, binary.LittleEndian, 0)
		if err != nil {
			if strings.Contains(fmt.Sprint(err), "runtime error") {
				t.Log(err) // in package debug/dwarf, and contained
			}
			return
		}
		for _, offset := range []uint64{0, elfimage.CodeSize / 2} {
			sources, _ := d.at(elfimage.CodeAddress+offset, soon())
			if len(sources) > maxInlined+1 {
				t.Errorf("%d functions", len(sources))
			}
		}
	})
}
