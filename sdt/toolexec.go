// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

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
