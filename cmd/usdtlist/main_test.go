// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// The test binary run with this variable is usdtlist without privileges.
const unprivilegedVariable = "USDTLIST_TEST_UNPRIVILEGED"

func TestMain(m *testing.M) {
	if os.Getenv(unprivilegedVariable) != "" {
		os.Exit(runUnprivileged(os.Args[1:]))
	}
	testscript.Main(m, map[string]func(){"usdtlist": main})
}

var update = flag.Bool("update", false,
	"write what the commands print into the scripts; read the difference before you keep it")

// TestScripts runs the transcripts in testdata/script. They list the small ELF
// files of testdata, which testdata/src makes.
func TestScripts(t *testing.T) {
	testdata, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:           "testdata/script",
		UpdateScripts: *update,
		Setup: func(env *testscript.Env) error {
			env.Setenv("TESTDATA", testdata)
			env.Setenv("TITLE", "\x1b]0;title\a/x") // sets a terminal's title
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"shorten": shorten,
			"status":  status,
		},
	})
}

// What a package prepares at its beginning is done at each start: regular
// expressions, for tables of Unicode, took a twentieth of listing libjvm, and
// what speaks with servers a third.
func TestStartLinksNoLargePackages(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	for dependency := range strings.Lines(string(out)) {
		switch dependency = strings.TrimSpace(dependency); dependency {
		case "regexp", "net", "encoding/json", "text/template":
			t.Errorf("usdtlist links package %s", dependency)
		}
	}
}

// shorten FILE SIZE cuts a file off.
func shorten(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: shorten file size")
	}
	size, err := strconv.ParseInt(args[1], 10, 64)
	ts.Check(err)
	ts.Check(os.Truncate(ts.MkAbs(args[0]), size))
}

// status N COMMAND ARGUMENT... runs a command that has to end with that exit
// status.
func status(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: status n command [argument...]")
	}
	got := 0
	var exit *exec.ExitError
	if err := ts.Exec(args[1], args[2:]...); errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if strconv.Itoa(got) != args[0] {
		ts.Fatalf("exit status %d, want %s", got, args[0])
	}
}
