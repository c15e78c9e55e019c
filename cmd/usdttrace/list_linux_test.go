// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/cmd/internal/testschema"
)

func TestList(t *testing.T) {
	p := startTarget(t, "target-pie")
	command := copyBeside(t, copyOf(t, "target-shared"), "libtarget.so")
	library := filepath.Join(filepath.Dir(command), "libtarget.so")
	for _, test := range []struct {
		what, file string
		args       []string
	}{
		{"a file", p.path, []string{p.path}},
		{"a process", p.path, []string{"-p", decimal(p.PID)}},
		{"a file of a process", p.path, []string{"-p", decimal(p.PID), p.path}},
		{"a file of a process by its name", p.path, []string{"-p", decimal(p.PID), "target-pie"}},
		{"a command and its libraries", library, []string{"--", command}},
	} {
		t.Run(test.what, func(t *testing.T) {
			r := start(t, append([]string{"-l", "gousdt_test:three", "gousdt_test:inlined"},
				test.args...)...).wait()
			qt.Check(t, qt.DeepEquals(r.ok(), []string{
				"File: " + test.file,
				"PROBE                SITES  ARGUMENTS",
				"gousdt_test:three        1  i32, u64, u64",
				"gousdt_test:inlined      5  i32, i64",
			}))
			qt.Check(t, qt.Equals(r.stderr, ""))
		})
	}
	t.Run("all processes", func(t *testing.T) {
		r := start(t, "-a", "-l", "gousdt_test:three").wait()
		qt.Check(t, qt.StringContains(strings.Join(r.ok(), "\n"), "File: "+p.path+"\n"))
	})
	t.Run("as JSON", func(t *testing.T) {
		lines := start(t, "--json", "-l", p.path, "gousdt_test:three").wait().ok()
		testschema.Load(t, "usdttrace").Check(t, []byte(lines[0]))
		qt.Assert(t, qt.HasLen(lines, 1))
		qt.Check(t,
			qt.Matches(lines[0],
				`\{"type":"site","provider":"gousdt_test","name":"three","file":"`+p.path+
					`","location":\d+,"args":\["i32","u64","u64"\]\}`))
	})
	t.Run("sites that are skipped", func(t *testing.T) {
		r := start(t, "-l", p.path, "*:three", "*:no_nop").wait()
		qt.Check(t,
			qt.StringContains(r.stderr, "target-pie: skipped probe gousdt_broken:no_nop at "))
	})
	t.Run("all with the names of arguments", func(t *testing.T) {
		names := filepath.Join(t.TempDir(), "names.d")
		qt.Assert(t, qt.IsNil(os.WriteFile(names,
			[]byte("provider gousdt_test { probe three(int count, char *text, void *); };"),
			0o644)))
		r := start(t, "-l", "--names", names, p.path).wait()
		text := strings.Join(r.ok(), "\n")
		qt.Check(t, qt.Matches(text,
			`(?s).*gousdt_test:three +1  count: i32, text: text, u64\n.*`))
		qt.Check(t, qt.Matches(text, `(?s).*gousdt_test:none +.*`))
	})
	t.Run("nothing", func(t *testing.T) {
		r := start(t, "-l", "-p", decimal(p.PID), "gousdt_test:thre").wait()
		qt.Check(t, qt.Equals(r.status, exitNothing))
		qt.Check(t, qt.Matches(r.stderr, fmt.Sprintf(
			`usdttrace: no probe matches gousdt_test:thre in process %d( .*)?\n`, p.PID)))
	})
}

// As of java, which is a launcher: the virtual machine is a library.
func TestFileWithoutProbesOfAProcessThatHasThem(t *testing.T) {
	path := copyBeside(t, copyOf(t, "target-shared"), "libtarget.so")
	p := startProgram(t, path)
	r := start(t, "-p", decimal(p.PID), "target-shared", "gousdt_test:three").wait()
	qt.Check(t, qt.Equals(r.status, exitNothing))
	qt.Check(t,
		qt.Equals(r.stderr,
			fmt.Sprintf("usdttrace: %s: the file has no USDT probes; process %d maps %s, "+
				"which has matching probes: name that, or no file\n", path, p.PID,
				filepath.Join(filepath.Dir(path), "libtarget.so"))))
}
