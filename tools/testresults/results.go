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
			p = newRecorder(e.Package)
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
	result  Package
	outputs map[string]*strings.Builder
	results map[string]string
	began   []string
	ended   []string // in this order: subtests before their parents
}

func newRecorder(path string) *recorder {
	return &recorder{
		result:  Package{Path: path},
		outputs: make(map[string]*strings.Builder), results: make(map[string]string),
	}
}

func (p *recorder) add(e event) {
	switch e.Action {
	case "run":
		p.outputs[e.Test] = &strings.Builder{}
		p.began = append(p.began, e.Test)
	case "output":
		if output := p.outputs[e.Test]; output != nil {
			output.WriteString(e.Output)
		} else {
			p.result.Output += e.Output
		}
	case "pass", "fail", "skip":
		if e.Test == "" {
			p.result.Verdict = e.Action
			p.result.Elapsed = time.Duration(e.Elapsed * float64(time.Second))
			return
		}
		p.results[e.Test] = e.Action
		p.ended = append(p.ended, e.Test)
	}
}

// end counts.
func (p *recorder) end() *Package {
	// A test that hangs ends the whole package, and must be named beside those
	// that failed before it.
	for _, test := range slices.Backward(p.began) {
		switch {
		case p.results[test] != "":
		case strings.HasPrefix(test, "Benchmark"):
			// No event says that a benchmark has come to its end.
			p.results[test] = "pass"
			p.ended = append(p.ended, test)
		default:
			p.results[test] = "fail"
			p.ended = append(p.ended, test)
			p.outputs[test].WriteString("it did not come to an end\n")
		}
	}
	failedBelow := make(map[string]bool)
	hasSubtests := make(map[string]bool)
	for _, test := range p.ended {
		for i := strings.LastIndexByte(test, '/'); i >= 0; i = strings.LastIndexByte(test[:i],
			'/') {
			hasSubtests[test[:i]] = true
			if p.results[test] == "fail" {
				failedBelow[test[:i]] = true
			}
		}
	}
	r := &p.result
	for _, test := range p.ended {
		output := ""
		if b := p.outputs[test]; b != nil {
			output = b.String()
		}
		switch result := p.results[test]; {
		case result == "fail" && !failedBelow[test]:
			r.Failed = append(r.Failed, Test{test, output})
		case hasSubtests[test]:
		case result == "pass":
			r.Passed++
		case result == "skip":
			r.Skipped = append(r.Skipped, Test{test, output})
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
	places := make(map[test][]string)
	var tests []test
	for _, s := range skips {
		t := test{s.Test, s.Reason}
		if places[t] == nil {
			tests = append(tests, t)
		}
		places[t] = append(places[t], s.Where)
	}
	type cause struct{ reason, where string }
	names := make(map[cause][]string)
	var causes []cause
	for _, t := range tests {
		c := cause{t.reason, strings.Join(places[t], " ")}
		if names[c] == nil {
			causes = append(causes, c)
		}
		names[c] = append(names[c], t.name)
	}
	if len(causes) > 0 {
		fmt.Fprintln(w, "\nSkipped:")
	}
	for _, c := range causes {
		slices.Sort(names[c])
		fmt.Fprintf(w, "  %s\n", c.reason)
		if strings.TrimSpace(c.where) != "" {
			fmt.Fprintf(w, "    on     %s\n", c.where)
		}
		fmt.Fprintf(w, "    tests  %s\n", strings.Join(names[c], " "))
	}
}
