// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"os"
	"testing"

	"github.com/go-quicktest/qt"
)

// Where nothing came, the summary says why, for each pattern.
func TestZeroIsExplained(t *testing.T) {
	p, idle := startTarget(t, "target-pie"), copyOf(t, "target-static")
	c := startTarget(t, "calls")
	for name, test := range map[string]struct {
		args []string
		why  string
	}{
		"a process": {[]string{"-p", decimal(p.PID), "gousdt_test:three"},
			"gousdt_test:three: 1 process has it, and did not pass it\n"},
		"a file": {[]string{p.path, "gousdt_test:three,gousdt_test:inlined"},
			"gousdt_test:three, gousdt_test:inlined: 1 process has it, and did not pass it\n"},
		"a file that nobody runs": {[]string{idle, "gousdt_test:three"},
			"gousdt_test:three: no process runs what has it\n"},
		"a file that another process runs": {
			[]string{"-p", decimal(os.Getpid()), p.path, "gousdt_test:three"},
			"gousdt_test:three: process " + decimal(os.Getpid()) + " does not run what has it\n"},
		"one of two probes": {[]string{p.path, "gousdt_test:three", "gousdt_test:nothing"},
			"gousdt_test:nothing: no process has such a probe\n"},
		"calls of a process": {[]string{"--slow", "1s", "-p", decimal(c.PID), "gousdt_calls:outer"},
			"\ncalls that had begun before are not seen\n"},
		"times of calls": {[]string{"--latency", "gousdt_calls:outer", c.path},
			"\ncalls that had begun before are not seen\n"},
		"a command": {[]string{"gousdt_test:three", "--", idle},
			"gousdt_test:three: the command has run what has it, and did not pass it\n"},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, append([]string{"--duration", "0.1"}, test.args...)...).wait()
			qt.Check(t, qt.StringContains(r.stderr, test.why))
		})
	}
	for name, test := range map[string]struct {
		flags []string
		input string
		why   string
	}{
		"a condition": {[]string{"--where", "arg0 == 12345678", "gousdt_test:three"},
			"fire three 3\nquit\n", "probes were passed, but --where holds for no hit\n"},
		"slow calls": {[]string{"--slow", "1h", "gousdt_calls:outer"}, "nested\n",
			"of the calls that began and ended meanwhile, none was as long as --slow 1h0m0s\n"},
	} {
		t.Run(name, func(t *testing.T) {
			program := "target-pie"
			if name == "slow calls" {
				program = "calls"
			}
			r := startWith(t, test.input, append(test.flags, "--", copyOf(t, program))...).wait()
			qt.Check(t, qt.StringContains(r.stderr, test.why))
		})
	}
}
