// SPDX-License-Identifier: BSD-2-Clause

package procfs

import (
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
)

func TestParseMapLine(t *testing.T) {
	tests := []struct {
		name, line string
		want       MapLine
		path       string
		isFile     bool
	}{{
		name: "library code",
		line: "7f5c1e026000-7f5c1e17b000 r-xp 00026000 fe:00 326789                     /usr/lib/x86_64-linux-gnu/libc.so.6",
		want: MapLine{Start: 0x7f5c1e026000, End: 0x7f5c1e17b000, Offset: 0x26000,
			FileKey: FileKey{Major: 0xfe, Inode: 326789}, executable: true},
		path:   "/usr/lib/x86_64-linux-gnu/libc.so.6",
		isFile: true,
	}, {
		name: "path with blanks, also two and at the end",
		line: "1000-2000 r-xp 00000000 08:01 7    /opt/my  lib .so ",
		want: MapLine{Start: 0x1000, End: 0x2000,
			FileKey: FileKey{Major: 8, Minor: 1, Inode: 7}, executable: true},
		path:   "/opt/my  lib .so ",
		isFile: true,
	}, {
		name: "newline in the path",
		line: `1000-2000 r-xp 00000000 08:01 7    /opt/a\012b.so`,
		want: MapLine{Start: 0x1000, End: 0x2000,
			FileKey: FileKey{Major: 8, Minor: 1, Inode: 7}, executable: true},
		path:   "/opt/a\nb.so",
		isFile: true,
	}, {
		name: "other backslashes are themselves",
		line: `1000-2000 r-xp 00000000 08:01 7    /opt/a\040b\.so`,
		want: MapLine{Start: 0x1000, End: 0x2000,
			FileKey: FileKey{Major: 8, Minor: 1, Inode: 7}, executable: true},
		path:   `/opt/a\040b\.so`,
		isFile: true,
	}, {
		name: "deleted",
		line: "1000-2000 r-xp 00000000 00:1f 18446744073709551615    /usr/lib/libz.so (deleted)",
		want: MapLine{Start: 0x1000, End: 0x2000,
			FileKey: FileKey{Minor: 0x1f, Inode: 1<<64 - 1}, executable: true},
		path:   "/usr/lib/libz.so (deleted)",
		isFile: true,
	}, {
		name: "memfd",
		line: "7f0000000000-7f0000001000 r-xs 00000000 00:01 1045       /memfd:provider (deleted)",
		want: MapLine{Start: 0x7f0000000000, End: 0x7f0000001000,
			FileKey: FileKey{Minor: 1, Inode: 1045}, executable: true},
		path:   "/memfd:provider (deleted)",
		isFile: true,
	}, {
		name: "vdso, at the end of the address space",
		line: "ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]",
		want: MapLine{Start: 0xffffffffff600000, End: 0xffffffffff601000, executable: true},
		path: "[vsyscall]",
	}, {
		name: "anonymous, without a path",
		line: "7ffd0000-7ffe0000 rw-p 00000000 00:00 0 ",
		want: MapLine{Start: 0x7ffd0000, End: 0x7ffe0000},
	}, {
		name: "named anonymous",
		line: "7ffd0000-7ffe0000 rwxp 00000000 00:00 0                                  [anon:dalvik jit]",
		want: MapLine{Start: 0x7ffd0000, End: 0x7ffe0000, executable: true},
		path: "[anon:dalvik jit]",
	}, {
		name: "//anon of old kernels",
		line: "7ffd0000-7ffe0000 rwxp 00000000 00:00 0   //anon",
		want: MapLine{Start: 0x7ffd0000, End: 0x7ffe0000, executable: true},
		path: "//anon",
	}, {
		name: "large offset and device numbers",
		line: "1000-2000 r-xp 7fffffffff000 fff:fffff 1 /x",
		want: MapLine{Start: 0x1000, End: 0x2000, Offset: 0x7fffffffff000,
			FileKey: FileKey{Major: 0xfff, Minor: 0xfffff, Inode: 1}, executable: true},
		path:   "/x",
		isFile: true,
	}}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var got MapLine
			qt.Assert(t, qt.IsNil(parseMapLine([]byte(test.line), &got)))
			qt.Check(t, qt.Equals(unescapePath(got.path), test.path))
			qt.Check(t, qt.Equals(got.isFile(), test.isFile))
			got.path = nil
			qt.Check(t, qt.DeepEquals(fields(got), fields(test.want)))
		})
	}
}

// fields makes a line comparable.
func fields(l MapLine) [7]any {
	return [7]any{l.Start, l.End, l.Offset, l.Inode, l.Major, l.Minor, l.executable}
}

func TestParseMapLineRefusesWhatTheKernelDoesNotWrite(t *testing.T) {
	for _, line := range []string{
		"", " ", "-", "1000", "1000-", "1000-2000", "1000-2000 ", "1000-2000 r-xp",
		"1000-2000 r-xp ",
		"1000-2000 r-xp 0 08:01", "1000-2000 r-xp 0 08:01 ", "1000-2000 r-xp 0 08 1 /x",
		"1000-2000 r-xp 0 0801 1 /x",
		"2000-1000 r-xp 0 08:01 1 /x", "1000-1000 r-xp 0 08:01 1 /x",
		"1000-2000 r-x 0 08:01 1 /x", "1000-2000 r-xpp 0 08:01 1 /x",
		"10000000000000000-20000000000000000 r-xp 0 08:01 1 /x",
		"1000-2000 r-xp 0 100000000:01 1 /x",
		"1000-2000 r-xp 0 08:01 18446744073709551616 /x", "1000-2000 r-xp 0 08:01 -1 /x",
		"1000-2000 r-xp 0 08:01 0x1 /x",
		"1000-2000 r-xp g 08:01 1 /x", "1000-2000 r-xp 0 08:01 1/x",
	} {
		var l MapLine
		qt.Check(t, qt.ErrorIs(parseMapLine([]byte(line), &l), ErrMalformed),
			qt.Commentf("%q", line))
	}
}

func TestIsOtherPassesOverWhatIsNotExecutable(t *testing.T) {
	for line, want := range map[string]bool{
		"1000-2000 r--p 00000000 08:01 7    /lib/a.so": true,
		"1000-2000 rw-p 00000000 00:00 0 ":             true,
		"1000-2000 r-xp 00000000 08:01 7    /lib/a.so": false,
		"1000-2000 rwxs 00000000 08:01 7    /lib/a-b":  false,
		"1000-2000 r--p":   false, // malformed: for the parser to say so
		"1000-2000 r----p": false,
		"- r- ":            false,
		" r--p ":           false,
		"":                 false,
	} {
		qt.Check(t, qt.Equals(isOther([]byte(line)), want), qt.Commentf("%q", line))
	}
}

func TestParseMapLineAllocatesNothing(t *testing.T) {
	line := []byte("7f5c1e026000-7f5c1e17b000 r-xp 00026000 fe:00 326789                     /usr/lib/libc.so.6")
	var l MapLine
	qt.Assert(t, qt.Equals(testing.AllocsPerRun(100, func() { _ = parseMapLine(line, &l) }), 0))
}

func FuzzParseMapLine(f *testing.F) {
	for _, line := range []string{
		"7f5c1e026000-7f5c1e17b000 r-xp 00026000 fe:00 326789                     /usr/lib/libc.so.6",
		"ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]",
		"1000-2000 r-xp 00000000 00:1f 18446744073709551615    /memfd:x (deleted)",
		`1000-2000 r-xp 00000000 08:01 7    /opt/a\012b.so`,
		"1000-2000 r-xp 0 08:01",
	} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		var l MapLine
		err := parseMapLine([]byte(line), &l)
		if err != nil {
			qt.Assert(t, qt.ErrorIs(err, ErrMalformed))
			return
		}
		qt.Assert(t, qt.IsFalse(l.executable && isOther([]byte(line))))
		qt.Assert(t, qt.IsTrue(l.Start < l.End))
		qt.Assert(t, qt.IsTrue(strings.HasSuffix(line, string(l.path))))
		qt.Assert(t, qt.IsFalse(len(l.path) > 0 && l.path[0] == ' '))
		qt.Assert(t, qt.IsFalse(strings.Contains(unescapePath(l.path), `\012`) &&
			!strings.Contains(string(l.path), `\`)))
	})
}

func BenchmarkParseMapLine(b *testing.B) {
	line := []byte("7f5c1e026000-7f5c1e17b000 r-xp 00026000 fe:00 326789                     /usr/lib/x86_64-linux-gnu/libc.so.6")
	b.SetBytes(int64(len(line)))
	b.ReportAllocs()
	var l MapLine
	for b.Loop() {
		if err := parseMapLine(line, &l); err != nil {
			b.Fatal(err)
		}
	}
}

func TestIsNamed(t *testing.T) {
	for _, test := range []struct {
		file, name string
		want       bool
	}{
		{"/lib/libc.so.6", "libc.so.6", true}, {"/lib/libc.so.6", "libc.so", true},
		{"/lib/libc.so.6", "c", true}, {"/usr/bin/python3.11", "python3", true},
		{"/lib/libc.so.6", "libc.so.5", false}, {"/lib/libcap.so.2", "c", false},
		{"/usr/bin/python3.11", "python", false},
	} {
		qt.Check(t, qt.Equals(IsNamed(test.file, test.name), test.want), qt.Commentf("%v", test))
	}
}
