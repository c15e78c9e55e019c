// SPDX-License-Identifier: BSD-2-Clause

// Package testresults has what tests printed that failed or were skipped, from
// the events of go test -json and go tool test2json.
package testresults

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"gotest.tools/gotestsum/testjson"
)

// Package is how the tests of a package went. A test that has failed subtests
// is not among the failed ones: its subtests count.
type Package struct {
	Passed          int
	Failed, Skipped []Test
	Output          string // what was printed outside of any test
}

// Test is a test that failed or was skipped, with what it printed.
type Test struct{ Name, Output string }

// position is the file and line in front of what a test logs.
var position = regexp.MustCompile(`^\s*[\w.-]+\.go:\d+: `)

// SkipReason returns the last line that a skipped test printed.
func (t Test) SkipReason() string {
	reason := ""
	for line := range strings.Lines(t.Output) {
		text := strings.TrimSpace(position.ReplaceAllString(line, ""))
		if text != "" && !strings.HasPrefix(text, "=== ") && !strings.HasPrefix(text, "--- ") {
			reason = text
		}
	}
	if reason == "" {
		return "no reason given"
	}
	return reason
}

// Of returns how the tests of a package went.
func Of(p *testjson.Package) *Package {
	const outside = 0 // what has no test
	var output strings.Builder
	_ = p.WriteOutputTo(&output, outside) // a Builder has no errors
	r := &Package{Passed: len(p.Passed), Output: output.String()}
	test := func(t testjson.TestCase) Test {
		return Test{t.Test.Name(), strings.Join(p.OutputLines(t), "")}
	}
	for _, t := range testjson.FilterFailedUnique(p.Failed) {
		r.Failed = append(r.Failed, test(t))
	}
	for _, t := range p.Skipped {
		r.Skipped = append(r.Skipped, test(t))
	}
	return r
}

// Handler passes events to a formatter of package testjson, or to nobody.
type Handler struct{ Formatter testjson.EventFormatter }

// Event gets an event.
func (h Handler) Event(e testjson.TestEvent, all *testjson.Execution) error {
	if h.Formatter == nil {
		return nil
	}
	return h.Formatter.Format(e, all)
}

// Err gets a line that is no event.
func (Handler) Err(string) error { return nil }

// Skip is a test that was skipped somewhere: on a kernel, in a module.
type Skip struct{ Test, Reason, Where string }

// PrintSkips prints the reasons, each with the tests that were skipped for it.
// Tests that were skipped for one reason in the same places share a line.
func PrintSkips(w io.Writer, skips []Skip) {
	type test struct{ name, reason string }
	type cause struct{ reason, where string }
	places, names := make(map[test][]string), make(map[cause][]string)
	var tests []test
	var causes []cause
	for _, s := range skips {
		t := test{s.Test, s.Reason}
		if places[t] == nil {
			tests = append(tests, t)
		}
		places[t] = append(places[t], s.Where)
	}
	for _, t := range tests {
		c := cause{t.reason, strings.TrimSpace(strings.Join(places[t], " "))}
		if names[c] == nil {
			causes = append(causes, c)
		}
		names[c] = append(names[c], t.name)
	}
	for i, c := range causes {
		if i == 0 {
			fmt.Fprintln(w, "\nSkipped:")
		}
		slices.Sort(names[c])
		fmt.Fprintf(w, "  %s\n", c.reason)
		if c.where != "" {
			fmt.Fprintf(w, "    on     %s\n", c.where)
		}
		fmt.Fprintf(w, "    tests  %s\n", strings.Join(names[c], " "))
	}
}
