// SPDX-License-Identifier: BSD-2-Clause

package commandline

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/defs"
)

const definition = "provider shop { probe sold(int pieces); };\n"

// newFolder makes the folder that is read without being named.
func newFolder(t *testing.T) string {
	t.Helper()
	home := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", home)
	folder := filepath.Join(home, "gousdt", "names")
	qt.Assert(t, qt.IsNil(os.MkdirAll(folder, 0o755)))
	return folder
}

func knows(t *testing.T, files ...string) (known bool, warnings []string, err error) {
	t.Helper()
	all, err := Definitions(files, func(format string, args ...any) {
		warnings = append(warnings, fmt.Sprintf(format, args...))
	})
	if err == nil {
		_, known = all.Probe("shop", "sold", 1)
	}
	return known, warnings, err
}

func TestDefinitionsOfTheFolder(t *testing.T) {
	folder := newFolder(t)
	path := filepath.Join(folder, "shop.d")
	qt.Assert(t, qt.IsNil(os.WriteFile(path, []byte(definition), 0o644)))
	known, warnings, err := knows(t)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.IsTrue(known))
	qt.Check(t, qt.HasLen(warnings, 0))

	for _, open := range []string{path, folder, filepath.Dir(folder)} {
		info, err := os.Stat(open)
		qt.Assert(t, qt.IsNil(err))
		qt.Assert(t, qt.IsNil(os.Chmod(open, 0o777)))
		known, warnings, err = knows(t)
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.IsFalse(known))
		qt.Check(t, qt.DeepEquals(warnings, []string{
			"names of arguments: not read: " + open + ": another user can write it"}))
		qt.Assert(t, qt.IsNil(os.Chmod(open, info.Mode())))
	}
	if os.Geteuid() == 0 {
		qt.Assert(t, qt.IsNil(os.Chown(folder, 65534, 65534)))
		known, warnings, err = knows(t)
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.IsFalse(known))
		qt.Check(t, qt.HasLen(warnings, 1))
	}
}

func TestDefinitionsAreRegularFiles(t *testing.T) {
	folder := newFolder(t)
	fifo := filepath.Join(folder, "fifo.d")
	qt.Assert(t, qt.IsNil(unix.Mkfifo(fifo, 0o644)))
	_, _, err := knows(t)
	qt.Check(t, qt.ErrorMatches(err, "names of arguments: .*fifo.d: it is no regular file"))
	qt.Assert(t, qt.IsNil(os.Remove(fifo)))

	_, _, err = knows(t, "/dev/zero")
	qt.Check(t, qt.ErrorMatches(err, "names of arguments: /dev/zero: it is no regular file"))
	qt.Assert(t, qt.IsNil(os.Symlink("/dev/zero", filepath.Join(folder, "zero.d"))))
	_, warnings, err := knows(t)
	qt.Check(t, qt.IsNil(err))
	qt.Check(t, qt.HasLen(warnings, 1)) // anybody can write it
	qt.Assert(t, qt.IsNil(os.Remove(filepath.Join(folder, "zero.d"))))

	large := filepath.Join(folder, "large.d")
	qt.Assert(t, qt.IsNil(os.WriteFile(large, nil, 0o644)))
	qt.Assert(t, qt.IsNil(os.Truncate(large, 1<<40)))
	_, _, err = knows(t)
	qt.Check(t, qt.ErrorMatches(err, ".*large.d: a file of definitions can have .* bytes"))
}

// A pattern that names a call, or a pair of probes, is told from one of probes.
func TestCalls(t *testing.T) {
	for pattern, want := range map[string]string{
		"postgresql:statement": "postgresql:statement is a call, between the probes " +
			"query__start .. query__done or query__execute__start .. query__execute__done",
		"postgresql:query__parse": "postgresql:query__parse is a call, between the probes " +
			"query__parse__start .. query__parse__done",
		"python:gc":                     "python:gc is a call, between the probes gc__start .. gc__done",
		"python:gc__start":              "",
		"python:line":                   "",
		"python:*":                      "",
		"*:statement":                   "",
		"nobody:gc":                     "",
		"hotspot:monitor__contended__*": "",
	} {
		said := ""
		p := elfnote.MustParsePattern(pattern)
		probes, calls := Calls([]elfnote.Pattern{p}, defs.Builtin(),
			func(text string) { said += text })
		qt.Check(t, qt.Equals(said, want))
		qt.Check(t, qt.Equals(len(calls) == 1, want != ""))
		qt.Check(t, qt.Equals(len(probes) == 1, want == ""))
		probes, _ = Calls([]elfnote.Pattern{p}, nil, func(string) {})
		qt.Check(t, qt.HasLen(probes, 1))
	}
}
