// SPDX-License-Identifier: BSD-2-Clause

// Gotest is go test as root, with a list of what was skipped and why.
package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"github.com/gousdt/gousdt/tools/testresults"
)

const usage = `Usage: gotest [go test flags] [PACKAGE...]

Runs go test, prints a line for each package, what failed tests printed, and at
the end which tests were skipped and why.

Tests that attach to programs need root. As root this is go test. As a user it
builds as that user and runs the test binaries alone with sudo. Without sudo it
runs the tests as that user, which skips those that need root.

Where the environment variable CI is "true", everything is said to be installed:
it fails without root and sudo, and if a test was skipped for another reason
than a newer kernel or another machine.

Example:
  $ gotest -C .. -race -p 1 ./...
`

func main() {
	arguments := os.Args[1:]
	if len(arguments) == 0 || arguments[0] == "-h" || arguments[0] == "-help" ||
		arguments[0] == "--help" {
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
	if err := run(arguments, os.Stdout, os.Getenv("CI") == "true"); err != nil {
		fmt.Fprintln(os.Stderr, "gotest:", err)
		os.Exit(1)
	}
}

func run(arguments []string, w io.Writer, ci bool) error {
	root, err := asRoot(ci)
	if err != nil {
		return err
	}
	cmd := exec.Command("go", testCommand(arguments, root)...)
	cmd.Stdin, cmd.Stderr = os.Stdin, os.Stderr
	events, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	r := report{w: w}
	readErr := testresults.Read(events, r.add)
	// What is left where the events could not be read, so that go test ends.
	_, _ = io.Copy(w, events)
	err = cmd.Wait()
	r.printSkips()
	switch {
	case readErr != nil:
		return readErr
	case err != nil && r.failed > 0:
		return fmt.Errorf("tests of %d packages failed", r.failed)
	case err != nil:
		return fmt.Errorf("go test: %w", err)
	case ci:
		return r.refused()
	}
	return nil
}

// testCommand returns the arguments of the go command. The flag -C has to be
// the first one.
func testCommand(arguments, root []string) []string {
	command := []string{"test"}
	if len(arguments) > 1 && arguments[0] == "-C" {
		command, arguments = append(command, "-C", arguments[1]), arguments[2:]
	}
	command = append(command, "-json")
	if len(root) > 0 {
		command = append(command, "-exec", strings.Join(root, " "))
	}
	return append(command, arguments...)
}

// asRoot returns the command that runs another one as root, or nothing.
func asRoot(ci bool) ([]string, error) {
	if os.Geteuid() == 0 {
		return nil, nil
	}
	// Without a terminal sudo asks nobody, and fails where it wants a password.
	sudo := []string{"sudo"}
	check := exec.Command(sudo[0], append(sudo[1:], "true")...)
	check.Stdin, check.Stderr = os.Stdin, os.Stderr
	switch err := check.Run(); {
	case err == nil:
		// sudo has a PATH of its own, in which tests would not find go.
		return append(sudo, "--preserve-env", "env", "PATH="+os.Getenv("PATH")), nil
	case ci:
		return nil, fmt.Errorf("neither root nor sudo: %w", err)
	default:
		fmt.Fprintln(os.Stderr,
			"gotest: neither root nor sudo: tests that attach to programs are skipped")
		return nil, nil
	}
}
