// SPDX-License-Identifier: BSD-2-Clause

package archive

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/testneeds"
)

// list returns the members, each as NAME=CONTENTS, and the error at the end.
func list(r io.ReaderAt) (members []string, failure error) {
	for m, err := range Members(r) {
		if err != nil {
			return members, err
		}
		text := m.Name
		if m.Contents != nil {
			contents, err := io.ReadAll(m.Contents)
			if err != nil {
				return members, err
			}
			text += "=" + string(contents)
		}
		members = append(members, text)
	}
	return members, nil
}

// member returns a header with a name and size, and data.
func member(name string, size any, data string) string {
	return fmt.Sprintf("%-16s%-12d%-6d%-6d%-8o%-10v`\n%s", name, 0, 0, 0, 0o644, size, data)
}

func TestMembers(t *testing.T) {
	const long = "a_name_that_does_not_fit_a_header.o"
	for _, test := range []struct {
		name, data string
		want       []string
		err        string
	}{
		{"none", magic, nil, ""},
		{"GNU", magic + member("/", 4, "symb") + member("//", 38, long+"/\n\n") + member("/0", 3,
			"abc\n") + member("x.o/", 2, "de"),
			[]string{long + "=abc", "x.o=de"}, ""},
		{"BSD", magic + member("__.SYMDEF", 2, "xy") + member("#1/36", 39,
			long+"\x00abc\n") + member("x.o", 1, "d"),
			[]string{"__.SYMDEF=xy", long + "=abc", "x.o=d"}, ""},
		{"64-bit symbols", magic + member("/SYM64/", 2, "xy") + member("x.o/", 0, ""),
			[]string{"x.o="}, ""},
		{"thin",
			thinMagic + member("/", 2, "xy") + member("//", 12, "dir/x.o/\ny/\n") + member("/0",
				3000, "") + member("/9", 1, "") + member("/9:60", 1, ""),
			[]string{"dir/x.o", "y", "y"}, ""},
		{"data past the end", magic + member("x.o/", 9, "d"), []string{"x.o=d"}, ""},
		{"nothing", "", nil, "EOF"},
		{"cut in a header", magic + member("x.o/", 1, "d\n") + "y.o", []string{"x.o=d"},
			"member at offset 0x46: malformed archive: it ends in a header"},
		{"no end mark", magic + strings.Repeat(" ", 60), nil,
			"member at offset 0x8: malformed archive: a header has no end mark"},
		{"no size", magic + member("x.o/", "many", ""), nil,
			`member at offset 0x8: malformed archive: size "many      "`},
		{"negative size", magic + member("x.o/", -60, ""), nil,
			`member at offset 0x8: malformed archive: size "-60       "`},
		{"no table of names", magic + member("/0", 1, "d"), nil,
			`member at offset 0x8: malformed archive: name "/0"`},
		{"name without end", magic + member("//", 2, "ab") + member("/0", 1, "d"), nil,
			`member at offset 0x46: malformed archive: name "/0" has no end`},
		{"huge table of names", magic + member("//", maxNames+1, ""), nil,
			"member at offset 0x8: malformed archive: 67108865 bytes of names"},
		{"name longer than the data", magic + member("#1/5", 4, "name"), nil,
			`member at offset 0x8: malformed archive: name "#1/5"`},
		{"name past the end", magic + member("#1/5", 5, "na"), nil,
			`member at offset 0x8: malformed archive: name "#1/5": EOF`},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := list(strings.NewReader(test.data))
			qt.Check(t, qt.DeepEquals(got, test.want))
			if test.err != "" {
				qt.Assert(t, qt.IsNotNil(err))
				qt.Check(t, qt.Equals(err.Error(), test.err))
			} else {
				qt.Check(t, qt.IsNil(err))
			}
			qt.Check(t, qt.Equals(Is(strings.NewReader(test.data)), test.data != ""))
		})
	}
	t.Run("stops", func(t *testing.T) {
		for m := range Members(strings.NewReader(magic + member("x", 0, "") + member("y", 0, ""))) {
			qt.Check(t, qt.Equals(m.Name, "x"))
			break
		}
	})
}

func TestMembersAsArWritesThem(t *testing.T) {
	ar := testneeds.Tool(t, "ar", "binutils")
	for _, test := range []struct{ flags, long string }{
		{"rc", "another_name_of_many_letters.o=odd"},
		{"rcT", "another_name_of_many_letters.o"},
	} {
		dir := t.TempDir()
		for name, contents := range map[string]string{"short.o": "even",
			"another_name_of_many_letters.o": "odd"} {
			qt.Assert(t, qt.IsNil(os.WriteFile(filepath.Join(dir, name), []byte(contents), 0o600)))
		}
		cmd := exec.Command(ar, test.flags, "lib.a", "short.o", "another_name_of_many_letters.o")
		cmd.Dir = dir
		output, err := cmd.CombinedOutput()
		qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", output))
		file, err := os.Open(filepath.Join(dir, "lib.a"))
		qt.Assert(t, qt.IsNil(err))
		defer file.Close()
		got, err := list(file)
		qt.Assert(t, qt.IsNil(err))
		qt.Assert(t, qt.HasLen(got, 2))
		qt.Check(t, qt.Equals(got[1], test.long))
	}
}

func FuzzMembers(f *testing.F) {
	f.Add(magic + member("//", 12, "dir/x.o/\ny/\n") + member("/0", 3, "abc\n") + member("#1/2", 3,
		"ab\x00\n"))
	f.Add(thinMagic + member("x.o", 1<<30, ""))
	f.Fuzz(func(t *testing.T, data string) {
		members := 0
		for m, err := range Members(strings.NewReader(data)) {
			members++
			if err == nil && m.Contents != nil {
				_, _ = io.Copy(io.Discard, m.Contents)
			}
		}
		if members > len(data)/headerSize+1 {
			t.Errorf("%d members in %d bytes", members, len(data))
		}
	})
}
