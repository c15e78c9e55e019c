// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"fmt"
	"maps"
	"os"
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
	path := testprog.Path(t, "target-pie")
	complete := func(words ...string) string { return completed(words) }
	qt.Check(t, qt.StringContains(complete(path, "gousdt_test:th"), "gousdt_test:three\n"))
	// It has no probes.
	qt.Check(t, qt.Equals(complete("-p", fmt.Sprint(os.Getpid()), "-e", ""), ""))
	qt.Check(t, qt.StringContains(complete(path, "--latency", "gousdt_test:th"),
		"gousdt_test:three\n"))
	qt.Check(t, qt.Equals(complete("--by", "cont"), "container\n"))
	qt.Check(t, qt.Equals(complete("--sort", "p9"), "p90\np99\n"))
	qt.Check(t, qt.StringContains(complete("-p", ""), fmt.Sprintf("%d\t", os.Getpid())))
	qt.Check(t, qt.Equals(complete("--by", "comm,pi"), "comm,pid\n"))
	qt.Check(t, qt.Equals(complete("--mode", "m"), "multi\n"))
	qt.Check(t, qt.Equals(complete("--normalize", ""), "sql\nmysql\n"))
	qt.Check(t, qt.StringContains(complete("--slow", "5ms", path, "gousdt_test:th"),
		"gousdt_test:three\n"))
	qt.Check(t, qt.Equals(complete("--pprof", "x"), ":files\n"))
	qt.Check(t, qt.Equals(complete("--where", "x"), ""))
}

// completed returns what a shell's function reads.
func completed(words []string) string {
	_, err := parseCommandLine(append([]string{"__complete"}, words...))
	return err.Error()
}
