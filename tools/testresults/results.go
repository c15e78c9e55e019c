// SPDX-License-Identifier: BSD-2-Clause

// Package testresults reads what go test -json and go tool test2json print.
package testresults

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Package is how the tests of a package went. A test that has subtests is among
// the failed ones only if it failed while all subtests passed, and among the
// others never: its subtests count.
type Package struct {
	Path            string // "" where the events name none
	Passed          int
	Failed, Skipped []Test
	Output          string // what was printed outside of any test
	Elapsed         time.Duration
	Verdict         string // "pass", "fail", "skip" for no tests, "" for none
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

// event is one line.
type event struct {
	Action, Package, ImportPath, Test, Output, FailedBuild string
	Elapsed                                                float64
}

// Read reads events to their end and calls done for each package when its tests
// have ended. Events without a package are of one, which ends with them.
func Read(r io.Reader, done func(*Package)) error {
	packages := make(map[string]*recorder)
	builds := make(map[string]string) // output of the compiler, by import path
	var order []string
	for decoder := json.NewDecoder(r); ; {
		var e event
		err := decoder.Decode(&e)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("reading test results: %w", err)
		}
		if e.Action == "build-output" {
			builds[e.ImportPath] += e.Output
			continue
		}
		if e.Action == "build-fail" {
			continue // the package's own event follows
		}
		p := packages[e.Package]
		if p == nil {
			p = &recorder{result: Package{Path: e.Package}, tests: make(map[string]*record)}
			packages[e.Package] = p
			order = append(order, e.Package)
		}
		p.add(e)
		if e.Test == "" && e.Package != "" && p.result.Verdict != "" {
			p.result.Output = builds[e.FailedBuild] + p.result.Output
			done(p.end())
			delete(packages, e.Package)
		}
	}
	for _, path := range order {
		if p := packages[path]; p != nil {
			done(p.end())
		}
	}
	return nil
}

// recorder collects the events of a package.
type recorder struct {
	result Package
	tests  map[string]*record
	began  []*record
}

// record is one test.
type record struct {
	name, result             string
	output                   strings.Builder
	hasSubtests, failedBelow bool
}

func (p *recorder) add(e event) {
	t := p.tests[e.Test]
	switch e.Action {
	case "run":
		t = &record{name: e.Test}
		p.tests[e.Test] = t
		p.began = append(p.began, t)
	case "output":
		if t != nil {
			t.output.WriteString(e.Output)
		} else {
			p.result.Output += e.Output
		}
	case "pass", "fail", "skip":
		if e.Test == "" {
			p.result.Verdict = e.Action
			p.result.Elapsed = time.Duration(e.Elapsed * float64(time.Second))
		} else if t != nil {
			t.result = e.Action
		}
	}
}

// end counts.
func (p *recorder) end() *Package {
	for _, t := range p.began {
		// No event says that a benchmark has come to its end.
		if t.result == "" && strings.HasPrefix(t.name, "Benchmark") {
			t.result = "pass"
		}
		// A test that hangs ends the whole package, and must be named beside
		// those that failed before it.
		if t.result == "" {
			t.result = "fail"
			t.output.WriteString("it did not come to an end\n")
		}
		for i, r := range t.name {
			if above := p.tests[t.name[:i]]; r == '/' && above != nil {
				above.hasSubtests = true
				above.failedBelow = above.failedBelow || t.result == "fail"
			}
		}
	}
	r := &p.result
	for _, t := range p.began {
		switch {
		case t.result == "fail" && !t.failedBelow:
			r.Failed = append(r.Failed, Test{t.name, t.output.String()})
		case t.hasSubtests:
		case t.result == "pass":
			r.Passed++
		case t.result == "skip":
			r.Skipped = append(r.Skipped, Test{t.name, t.output.String()})
		}
	}
	return r
}

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
