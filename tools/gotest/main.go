// SPDX-License-Identifier: BSD-2-Clause

// Gotest is go test as root, with a list of what was skipped and why.
package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"gotest.tools/gotestsum/testjson"

	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/tools/testresults"
)

const usage = `Usage: gotest [go test flags] [PACKAGE...]

Runs go test, prints a line for each package, and at the end what failed tests
printed and which tests were skipped and why.

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
	results, readErr := testjson.ScanTestOutput(testjson.ScanConfig{Stdout: events,
		Handler: testresults.Handler{Formatter: testjson.NewEventFormatter(w, "pkgname",
			testjson.FormatOptions{Icons: "text"})}})
	// What is left where the events could not be read, so that go test ends.
	_, _ = io.Copy(w, events)
	err = cmd.Wait()
	if readErr != nil {
		return readErr
	}
	testjson.PrintSummary(w, results,
		testjson.SummarizeFailed|testjson.SummarizeErrors|testjson.SummarizeOutput)
	skips := skipsOf(results)
	testresults.PrintSkips(w, skips)
	switch {
	case err != nil:
		return fmt.Errorf("go test: %w", err)
	case ci:
		return refused(skips)
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

// skipsOf returns the tests that were skipped.
func skipsOf(results *testjson.Execution) (skips []testresults.Skip) {
	for _, path := range results.Packages() {
		name := path[strings.LastIndexByte(path, '/')+1:]
		for _, t := range testresults.Of(results.Package(path)).Skipped {
			skips = append(skips,
				testresults.Skip{Test: name + "." + t.Name, Reason: t.SkipReason()})
		}
	}
	return skips
}

// refused is an error if a test was skipped that should have run: for another
// reason than those that hold wherever everything is installed. Benchmarks have
// other reasons.
func refused(skips []testresults.Skip) error {
	var names []string
	for _, s := range skips {
		if !strings.Contains(s.Test, ".Benchmark") &&
			!strings.HasPrefix(s.Reason, testneeds.NeedsKernel) &&
			!strings.HasPrefix(s.Reason, testneeds.ForOthers) {
			names = append(names, s.Test)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return fmt.Errorf("tests were skipped that can run here (see package testneeds): %s",
		strings.Join(names, " "))
}
