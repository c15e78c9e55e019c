// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/testschema"

	"github.com/gousdt/gousdt/internal/testprog"
)

func TestSlowCallsArePrinted(t *testing.T) {
	path := copyOf(t, "calls")
	result := startWith(t, "nested\ncrossed\n", "--json", "--slow", "0", "--str", "1", "-c", path,
		"gousdt_calls:*").wait()
	qt.Assert(t, qt.Equals(result.status, exitWatched))
	spans := result.objects("span")
	qt.Assert(t, qt.HasLen(spans, 6))
	qt.Check(t, qt.StringContains(result.stdout,
		`"pair":"gousdt_calls:outer","start":{"provider":"gousdt_calls","name":"outer__start"`))
	qt.Check(t, qt.StringContains(result.stdout, `"text":"outer `))

	result = startWith(t, "nested\n", "--slow", "200us", "--where", "start.arg0 > 0 || arg0 == 7",
		"-c", path, "gousdt_calls:outer").wait()
	result.ok()
	qt.Check(t, qt.StringContains(result.stdout, "DURATION"))
	qt.Check(t, qt.Matches(result.stdout,
		`(?s).*calls +gousdt_calls:outer  arg0=\d+ arg1=\d+  -> arg0=-1 arg1=\d+\n.*`))

	result = startWith(t, "nested\n", "--slow", "1h", "-c", path, "gousdt_calls:*").wait()
	qt.Check(t, qt.Not(qt.StringContains(result.stdout, "gousdt_calls")))
}

func TestTextsOfSlowCallsHaveALimit(t *testing.T) {
	path := copyOf(t, "calls")
	result := start(t, "--slow", "0", "--str", "1:30000", path, "gousdt_calls:*").wait()
	qt.Check(t, qt.Equals(result.status, exitError))
	qt.Check(t, qt.Matches(result.stderr,
		`usdttrace: --str: what is captured of each start takes \d+ bytes, more than 28672: capture less\n`))
}

func TestPairsAreListed(t *testing.T) {
	path := testprog.Path(t, "calls")
	lines := start(t, "--pairs", path).wait().ok()
	qt.Check(t, qt.Equals(lines[0], "File: "+path))
	qt.Check(t, qt.Matches(lines[1], `PAIR +START +DONE`))
	qt.Check(t,
		qt.Matches(lines[2], `gousdt_calls:\w+ +gousdt_calls:\w+__start +gousdt_calls:\w+__done`))
	qt.Check(t, qt.HasLen(lines, 2+6))
	for _, line := range start(t, "--json", "--pairs", path).wait().ok() {
		testschema.Load(t, "usdttrace").Check(t, []byte(line))
	}
	result := start(t, "--pairs", path, "gousdt_calls:l*").wait()
	qt.Check(t, qt.HasLen(result.ok(), 3))
	result = start(t, "--pairs", path, "gousdt_calls:x").wait()
	qt.Check(t, qt.Equals(result.status, exitNothing))
	result = start(t, "--slow", "1ms", path, "gousdt_calls:x").wait()
	qt.Check(t, qt.Equals(result.status, exitNothing))
	qt.Check(t, qt.StringContains(result.stderr,
		"there is no pair of probes gousdt_calls:x (there are: gousdt_calls:"))
	result = start(t, "--slow", "1ms", path, "gousdt_calls:*start..x").wait()
	qt.Check(t, qt.Equals(result.status, exitError))
	qt.Check(t,
		qt.StringContains(result.stderr,
			"the names have 1 and 0 wildcards: which start belongs to which end is not known (usdttrace --pairs lists the pairs"))
}

func TestSlowCallsHaveStacksOfBothEnds(t *testing.T) {
	path := copyOf(t, "calls")
	result := startWith(t, "nested\n", "--slow", "0", "--stack", "--start-stack", "-c", path,
		"gousdt_calls:outer").wait()
	result.ok()
	qt.Check(t,
		qt.Matches(result.stdout,
			`(?s).*  started at\n    outer\+0x.*\(.*calls\)\n.*  ended at\n    outer\+0x.*\(.*calls\)\n.*`))

	result = startWith(t, "nested\n", "--slow", "0", "--start-stack", "--json", "-c", path,
		"gousdt_calls:outer").wait()
	qt.Check(t, qt.Matches(result.ok()[0],
		`.*"start":\{[^}]*"args":.*"stack":\[\{[^}]*"function":"outer".*"done":\{.*`))
	testschema.Load(t, "usdttrace").Check(t, []byte(result.ok()[0]))

	result = start(t, "--start-stack", path, "gousdt_calls:outer__start").wait()
	qt.Check(t, qt.Equals(result.status, exitError))
	qt.Check(t, qt.StringContains(result.stderr, "--start-stack goes with --slow"))
}
