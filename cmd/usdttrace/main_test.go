// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/gousdt/gousdt/internal/testprog"
)

const (
	// The test binary run with this variable is usdttrace.
	runVariable = "USDTTRACE_TEST_RUN"
	// And with this one it is so without privileges.
	unprivilegedVariable = "USDTTRACE_TEST_UNPRIVILEGED"
	// With this one it mounts a proc file system of its own PID namespace.
	ownProcVariable = "USDTTRACE_TEST_OWN_PROC"
	// And with this one signals count as the first for as long as it says.
	patientVariable = "USDTTRACE_TEST_PATIENT"
)

// userID has no processes but those of these tests.
const userID = 54321

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(unprivilegedVariable) != "":
		os.Exit(runUnprivileged())
	case len(os.Args) == 2 && os.Args[1] == holdLinks, len(os.Args) > 3 && os.Args[1] == runHeld:
		main() // which does so itself
	case os.Getenv(runVariable) != "":
		os.Unsetenv(runVariable) // a command that it runs is not usdttrace
		if patience, err := time.ParseDuration(os.Getenv(patientVariable)); err == nil {
			os.Exit(run(os.Args[1:], os.Stdout, os.Stderr, patience))
		}
		if os.Getenv(ownProcVariable) != "" {
			if err := mountProc(); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(-1)
			}
		}
		main()
	}
	testscript.Main(m, map[string]func(){"usdttrace": main})
}

// runUnprivileged is usdttrace as a user without privileges.
func runUnprivileged() int {
	if os.Geteuid() == 0 {
		if err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(userID),
			syscall.Setuid(userID)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return -1
		}
	}
	return run(os.Args[1:], os.Stdout, os.Stderr, signalPatience)
}

var update = flag.Bool("update", false,
	"write what the commands print into the scripts; read the difference before you keep it")

// TestScripts runs the transcripts in testdata/script, which need no privilege.
func TestScripts(t *testing.T) {
	program := testprog.Path(t, "target-pie")
	testscript.Run(t, testscript.Params{
		Dir:           "testdata/script",
		UpdateScripts: *update,
		Setup: func(env *testscript.Env) error {
			// Any user that runs it may read the program.
			contents, err := os.ReadFile(program)
			if err != nil {
				return err
			}
			for _, dir := range []string{env.WorkDir, filepath.Dir(env.WorkDir)} {
				if err := os.Chmod(dir, 0o755); err != nil {
					return err
				}
			}
			env.Setenv("UNPRIVILEGED", unprivilegedVariable)
			return os.WriteFile(filepath.Join(env.WorkDir, "target"), contents, 0o755)
		},
	})
}
