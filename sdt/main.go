// SPDX-License-Identifier: BSD-2-Clause

// Sdt puts USDT probes into Go programs, without cgo. A probe is declared as a
// function without a body. Sdt writes the function in assembly, with a record
// of where its arguments are (assembly.go); after the linker it makes notes of
// the records, which tracers read (link.go).
package main

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

const usage = `Usage: go tool sdt [FILE.go]
       go tool sdt link BINARY...
       go build -toolexec "$(go tool -n sdt)"

Puts USDT probes into Go programs, without cgo.

The first form writes what FILE.go declares: assembly, Enabled functions, and
PROVIDER.d for usdttrace --names. //go:generate go tool sdt names the file.
The second form makes the probes of a linked program known to tracers; the
third does so for each program that the go command links.

A probe is a function without a body:

	//go:generate go tool sdt

	//sdt:provider shop

	//go:noescape
	func requestStart(path string, id int) // is shop:request__start
`

func main() {
	err := run(os.Args[1:])
	var exit *exec.ExitError
	if errors.As(err, &exit) { // a tool of Go has printed why
		os.Exit(max(exit.ExitCode(), 1))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if file := os.Getenv("GOFILE"); len(args) == 0 && file != "" {
		args = []string{file}
	}
	switch {
	case len(args) == 1 && strings.HasSuffix(args[0], ".go"):
		return generate(args[0])
	case len(args) > 1 && args[0] == "link":
		for _, name := range args[1:] {
			if err := link(name, true); err != nil {
				return fmt.Errorf("sdt: %w", err)
			}
		}
		return nil
	case len(args) > 1 && filepath.IsAbs(args[0]):
		return toolexec(args[0], args[1:])
	case len(args) == 1 && (args[0] == "-h" || args[0] == "--help" || args[0] == "help"):
		fmt.Print(usage)
		return nil
	}
	return errors.New(strings.TrimSuffix(usage, "\n"))
}

// toolexec runs a tool of the go command, and links what the linker has
// written.
func toolexec(tool string, args []string) error {
	cmd := exec.Command(tool, args...)
	cmd.Stdin, cmd.Stderr, cmd.Stdout = os.Stdin, os.Stderr, os.Stdout
	if strings.TrimSuffix(filepath.Base(tool), ".exe") != "link" {
		return cmd.Run()
	}
	if len(args) == 1 && args[0] == "-V=full" {
		return version(cmd)
	}
	if err := cmd.Run(); err != nil {
		return err
	}
	i := slices.Index(args, "-o")
	if i < 0 || i+1 == len(args) {
		return fmt.Errorf("sdt: the linker was called without -o: %q", args)
	}
	if err := link(args[i+1], false); err != nil {
		return fmt.Errorf("sdt: %w", err)
	}
	return nil
}

// version prints the linker's version, which is part of the key of what it
// writes in the build cache. So a program that was linked by another sdt, or
// without it, is another program there. Packages are the same.
func version(cmd *exec.Cmd) error {
	cmd.Stdout = nil
	out, err := cmd.Output()
	if err != nil {
		return err
	}
	name, err := os.Executable()
	if err != nil {
		return fmt.Errorf("sdt: %w", err)
	}
	self, err := os.ReadFile(name)
	if err != nil {
		return fmt.Errorf("sdt: %w", err)
	}
	// A version of Go that is no release ends with its build ID: sdt's is the
	// end of that then, without a space.
	_, err = fmt.Printf("%s+sdt-%.8x\n", bytes.TrimSpace(out), sha256.Sum256(self))
	return err
}
