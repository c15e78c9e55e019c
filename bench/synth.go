// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package main

import (
	"fmt"
	"os"
	"runtime"

	"github.com/gousdt/gousdt/internal/testprog"
)

// A syntheticFile is an ELF file with any number of probes, to be listed and
// attached to. A uprobe needs a file and not a process, so nobody ever runs it.
// Zero fields mean one of each.
type syntheticFile struct {
	Sites int
	// Probes share the sites equally: probe_0 has the first of them. The
	// provider is syntheticProvider.
	Probes int
	// Specs is how many different argument strings there are. Sites take them
	// in turn.
	Specs int
}

// syntheticProvider is the provider of all probes.
const syntheticProvider = "synthetic"

func syntheticProbe(i int) string { return fmt.Sprintf("probe_%d", i) }

// arguments are those of a site, by machine, with the number of the string.
var arguments = map[string]string{
	"amd64": "8@%%rdi -4@%%esi -4@-%d(%%rbp)",
	"arm64": "8@x0 -4@x1 -4@[sp, %d]",
}

// Write writes the file, an ELF64 shared library for the machine that this
// program was built for.
func (f syntheticFile) Write(path string) error {
	format, ok := arguments[runtime.GOARCH]
	if !ok {
		return fmt.Errorf("no argument strings of synthetic probes for %s", runtime.GOARCH)
	}
	notes := make([]testprog.Note, max(f.Sites, 1))
	for i := range notes {
		probe := int(int64(i) * int64(max(f.Probes, 1)) / int64(len(notes)))
		notes[i] = testprog.Note{Provider: syntheticProvider, Name: syntheticProbe(probe), Apart: true,
			Arguments: fmt.Sprintf(format, 8*(1+i%max(f.Specs, 1)))}
	}
	return os.WriteFile(path, testprog.NotesFile(notes), 0o644)
}
