// SPDX-License-Identifier: BSD-2-Clause

package debuginfo

import (
	"bytes"
	"debug/elf"
	"debug/gosym"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/testneeds"
)

// goReleases are the newest two, whose internals are relied upon.
var goReleases = []string{"go1.25.5", "local"}

// goProgram builds a program, for a machine if one is named, or returns why it
// cannot be built.
func goProgram(t testing.TB, release string, environment []string, flags ...string) string {
	t.Helper()
	testneeds.NoGuest(t, "it has no Go")
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module example.com/program\n\ngo 1.25.0\n",
		"main.go": "package main\n\nimport \"fmt\"\n\nfunc main() { fmt.Println(called(1)) }\n\n" +
			"//go:noinline\nfunc called(i int) int {\n\treturn i + 1\n}\n",
	} {
		qt.Assert(t, qt.IsNil(os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666)))
	}
	run := func(args ...string) ([]byte, error) {
		cmd := exec.Command(testneeds.Tool(t, "go", "golang-go"), args...)
		cmd.Dir = dir
		cmd.Env = append(append(os.Environ(), "GOTOOLCHAIN="+release), environment...)
		return cmd.CombinedOutput()
	}
	if out, err := run("version"); err != nil {
		testneeds.Missing(t, "no %s: %s", release, out) // it is fetched from Go's module proxy
	}
	out, err := run(slices.Concat([]string{"build", "-o", "program"}, flags)...)
	qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", out))
	return filepath.Join(dir, "program")
}

// The table of a program without symbols has the functions that are among them
// otherwise, and the lines that Go's own reader finds.
func TestGoTable(t *testing.T) {
	cgo := func(value string) []string { return []string{"CGO_ENABLED=" + value} }
	for _, release := range goReleases {
		for _, test := range []struct {
			name        string
			environment []string
			flags       []string
		}{
			{"program", cgo("0"), nil},
			{"position-independent", cgo("0"), []string{"-buildmode=pie"}},
			{"other linker", cgo("1"), []string{"-ldflags=-linkmode=external"}},
			{"other linker, position-independent", cgo("1"),
				[]string{"-buildmode=pie", "-ldflags=-linkmode=external"}},
			{"big endian", append(cgo("0"), "GOARCH=s390x"), nil},
			{"arm64", append(cgo("0"), "GOARCH=arm64"), nil},
			{"32 bits", append(cgo("0"), "GOARCH=386"), nil},
		} {
			t.Run(release+"/"+test.name, func(t *testing.T) {
				t.Parallel()
				path := goProgram(t, release, test.environment, test.flags...)
				f, err := Open(path)
				qt.Assert(t, qt.IsNil(err))
				defer f.Close()
				table, err := f.GoTable()
				qt.Assert(t, qt.IsNil(err))
				own := &Functions{tables: []functionTable{table.table()}}
				checkGoTable(t, path, table, own)

				data, err := os.ReadFile(path)
				qt.Assert(t, qt.IsNil(err))
				section, _ := f.goSection()
				for i := range 72 { // of the header
					data[int(section.Offset)+i] ^= 0x41
					file, err := New(bytes.NewReader(data))
					qt.Assert(t, qt.IsNil(err))
					if table, err := file.GoTable(); err == nil {
						table.Line(table.text)
						_ = table.table()
					}
					data[int(section.Offset)+i] ^= 0x41
				}
			})
		}
	}
}

func checkGoTable(t *testing.T, path string, table *GoTable, own *Functions) {
	t.Helper()
	f, err := elf.Open(path)
	qt.Assert(t, qt.IsNil(err))
	defer f.Close()
	symbols, err := f.Symbols()
	qt.Assert(t, qt.IsNil(err))
	seen := 0
	for _, s := range symbols {
		if elf.ST_TYPE(s.Info) != elf.STT_FUNC || !strings.HasPrefix(s.Name, "main.") {
			continue
		}
		seen++
		function, ok := own.At(s.Value)
		qt.Check(t, qt.IsTrue(ok), qt.Commentf("%s", s.Name))
		qt.Check(t, qt.Equals(function, Function{s.Name, s.Value}))
	}
	qt.Check(t, qt.IsTrue(seen >= 2))
	if s := f.Section(".gopclntab"); s != nil {
		data, err := s.Data()
		qt.Assert(t, qt.IsNil(err))
		reference := gosym.NewLineTable(data, table.text)
		all, err := gosym.NewTable(nil, reference)
		qt.Assert(t, qt.IsNil(err))
		for i := range all.Funcs {
			function := &all.Funcs[i]
			for address := function.Entry; address < min(function.End, function.Entry+40); address += 4 {
				file, line, _ := all.PCToLine(address)
				gotFile, gotLine, ok := table.Line(address)
				qt.Assert(t, qt.IsTrue(ok || line <= 0 || strings.HasPrefix(function.Name, "go:")))
				if ok && (gotFile != file || gotLine != line) {
					t.Fatalf("%#x of %s: %s:%d, not %s:%d", address, function.Name, gotFile, gotLine,
						file, line)
				}
			}
		}
	}
}

// What the table says of itself may be anything.
func FuzzGoTable(f *testing.F) {
	f.Add([]byte("\xf1\xff\xff\xff\x00\x00\x01\x08"), uint64(0))
	f.Fuzz(func(t *testing.T, data []byte, address uint64) {
		table := &GoTable{data: data, order: binary.LittleEndian, quantum: 1, names: data, units: data,
			files: data, steps: data, functions: data, count: max(len(data)-4, 0) / 8}
		if len(data) < 4 {
			return
		}
		table.Line(address)
		functions := Functions{tables: []functionTable{table.table()}}
		functions.At(address)
	})
}
