// SPDX-License-Identifier: BSD-2-Clause

package matrix

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/gousdt/gousdt/kernels/internal/platform"
)

// row is one kernel of the table.
type row struct {
	kernel  platform.Kernel
	version string // of Debian's package
	release string // what the kernel calls itself
	log     string // file

	notRun  error // why it was not run
	trouble error // why it came to no good end

	modes    []string
	passed   int
	failures []failure
	skips    []skip

	boot, total time.Duration
}

type failure struct{ test, output string }

type skip struct{ test, reason string }

func (r *row) failed() bool { return r.trouble != nil || len(r.failures) > 0 }

// add takes in the tests of a package.
func (r *row) add(importPath string, t *tests) {
	prefix := importPath[strings.LastIndexByte(importPath, '/')+1:] + "."
	r.passed += t.passed
	for _, f := range t.failures {
		r.failures = append(r.failures, failure{prefix + f.test, f.output})
	}
	for _, s := range t.skips {
		r.skips = append(r.skips, skip{prefix + s.test, s.reason})
	}
	for _, mode := range t.modes {
		if !slices.Contains(r.modes, mode) {
			r.modes = append(r.modes, mode)
		}
	}
}

// summary is a sentence about the row.
func (r *row) summary() string {
	switch {
	case r.notRun != nil:
		return fmt.Sprintf("not run: %v", r.notRun)
	case r.trouble != nil:
		text, _, _ := strings.Cut(r.trouble.Error(), "\n")
		return "FAILED: " + text
	}
	word := "ok"
	if r.failed() {
		word = "FAILED"
	}
	return fmt.Sprintf("%s: Linux %s, %d passed, %d failed, %d skipped, %.1f s",
		word, r.release, r.passed, len(r.failures), len(r.skips), r.total.Seconds())
}

// tests are the results of one test binary. A test that has subtests counts
// only where it failed by itself: its subtests count.
type tests struct {
	modes    []string
	passed   int
	failures []failure
	skips    []skip
	last     string // what the binary printed outside of any test
}

// event is one line of test2json.
type event struct {
	Action, Test, Output string
}

// modePattern finds the line that a test logs to tell which way of attaching
// it used.
var modePattern = regexp.MustCompile(`gousdt-mode: (\S+)`)

// readEvents reads the output of test2json.
func readEvents(r io.Reader) (*tests, error) {
	t := &tests{}
	outputs := make(map[string]*strings.Builder)
	results := make(map[string]string)
	var began []string
	var order []string // as the tests ended, subtests before their parents
	for decoder := json.NewDecoder(r); ; {
		var e event
		err := decoder.Decode(&e)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("reading test results: %w", err)
		}
		switch e.Action {
		case "run":
			outputs[e.Test] = &strings.Builder{}
			began = append(began, e.Test)
		case "output":
			if found := modePattern.FindStringSubmatch(e.Output); found != nil && !slices.Contains(t.modes, found[1]) {
				t.modes = append(t.modes, found[1])
			}
			if output := outputs[e.Test]; output != nil {
				output.WriteString(e.Output)
			} else {
				t.last += e.Output
			}
		case "pass", "fail", "skip":
			if e.Test != "" {
				results[e.Test] = e.Action
				order = append(order, e.Test)
			}
		}
	}
	// A test that hangs takes the rest with it, and is not to be hidden by
	// those that failed before.
	for _, test := range slices.Backward(began) {
		if results[test] == "" {
			results[test] = "fail"
			order = append(order, test)
			outputs[test].WriteString("it did not come to an end\n")
		}
	}

	failedBelow := make(map[string]bool)
	parent := make(map[string]bool)
	for _, test := range order {
		for above := test; ; {
			i := strings.LastIndexByte(above, '/')
			if i < 0 {
				break
			}
			above = above[:i]
			parent[above] = true
			if results[test] == "fail" {
				failedBelow[above] = true
			}
		}
	}
	for _, test := range order {
		output := outputs[test].String()
		switch result := results[test]; {
		case result == "fail" && !failedBelow[test]:
			t.failures = append(t.failures, failure{test, output})
		case parent[test]:
		case result == "pass":
			t.passed++
		case result == "skip":
			t.skips = append(t.skips, skip{test, skipReason(output)})
		}
	}
	return t, nil
}

// close makes a failure of what no test tells: a binary that ended badly or
// not at all, or in which nothing passed though nothing was selected.
func (t *tests) close(ended bool, status int, selected bool) {
	switch {
	case !ended:
		t.failures = append(t.failures, failure{"(all)", "the tests did not come to an end\n" + t.last})
	case status != 0 && len(t.failures) == 0:
		t.failures = append(t.failures, failure{"(all)", fmt.Sprintf("the tests ended with status %d\n%s", status, t.last)})
	case t.passed == 0 && len(t.failures) == 0 && !selected:
		t.failures = append(t.failures, failure{"(all)", "no test passed\n" + t.last})
	}
}

// logPosition is the file and line in front of what a test logs.
var logPosition = regexp.MustCompile(`^\s*[\w.-]+\.go:\d+: `)

// skipReason is the last thing that a skipped test said.
func skipReason(output string) string {
	reason := ""
	for line := range strings.Lines(output) {
		text := strings.TrimSpace(logPosition.ReplaceAllString(line, ""))
		if text != "" && !strings.HasPrefix(text, "=== ") && !strings.HasPrefix(text, "--- ") {
			reason = text
		}
	}
	if reason == "" {
		return "no reason given"
	}
	return reason
}
