// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/commandline"
	"github.com/gousdt/gousdt/internal/testprog"
)

// The man page and the completion are made of the help.
func TestHelpHasEveryFlag(t *testing.T) {
	inHelp := make(map[string]bool)
	for _, f := range commandline.HelpFlags(usage) {
		inHelp[strings.TrimLeft(f.Name, "-")] = true
	}
	qt.Check(t, qt.DeepEquals(slices.Sorted(maps.Keys(inHelp)), new(options).flags().Names()))
}

func TestCompletion(t *testing.T) {
	complete := func(words ...string) string { return completed(words) }
	qt.Check(t, qt.StringContains(complete(testprog.Path(t, "target-pie"), "gousdt_test:th"),
		"gousdt_test:three\n"))
	qt.Check(t, qt.Equals(complete("--format", "b"), "bpftrace\nbcc\n"))
	qt.Check(t, qt.Equals(complete("--completion=f"), "--completion=fish\n"))
	qt.Check(t, qt.Equals(complete("--debug-file", ""), ":files\n"))
}

// completed returns what a shell's function reads.
func completed(words []string) string {
	_, err := parseCommandLine(append([]string{"__complete"}, words...))
	return err.Error()
}
