// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"strings"

	"gotest.tools/gotestsum/testjson"
)

// results is how the tests of a package went. A test that has failed subtests
// is not among the failed ones: its subtests count.
type results struct {
	passed          int
	failed, skipped []test
	output          string // what was printed outside of any test
}

// test is a test that failed or was skipped, with what it printed.
type test struct{ name, output string }

// position is the file and line in front of what a test logs.
var position = regexp.MustCompile(`^\s*[\w.-]+\.go:\d+: `)

// skipReason returns the last line that a skipped test printed.
func (t test) skipReason() string {
	reason := "no reason given"
	for line := range strings.Lines(t.output) {
		text := strings.TrimSpace(position.ReplaceAllString(line, ""))
		if text != "" && !strings.HasPrefix(text, "=== ") && !strings.HasPrefix(text, "--- ") {
			reason = text
		}
	}
	return reason
}

// readTests lets go tool test2json make sense of a test binary's output.
func readTests(ctx context.Context, output io.Reader) (*results, error) {
	cmd := exec.CommandContext(ctx, "go", "tool", "test2json")
	cmd.Stdin = output
	events, err := cmd.Output()
	if err != nil {
		return nil, commandError("go tool test2json", err)
	}
	return readEvents(events)
}

// quiet makes nothing of events as they come.
type quiet struct{}

func (quiet) Event(testjson.TestEvent, *testjson.Execution) error { return nil }
func (quiet) Err(string) error                                    { return nil }

func readEvents(events []byte) (*results, error) {
	all, err := testjson.ScanTestOutput(testjson.ScanConfig{Stdout: bytes.NewReader(events),
		Handler: quiet{}})
	if err != nil {
		return nil, err
	}
	p := all.Package("")
	if p == nil {
		return new(results), nil
	}
	const outside = 0 // what has no test
	var output strings.Builder
	_ = p.WriteOutputTo(&output, outside) // a Builder has no errors
	r := &results{passed: len(p.Passed), output: output.String()}
	for _, t := range testjson.FilterFailedUnique(p.Failed) {
		r.failed = append(r.failed, test{t.Test.Name(), strings.Join(p.OutputLines(t), "")})
	}
	for _, t := range p.Skipped {
		r.skipped = append(r.skipped, test{t.Test.Name(), strings.Join(p.OutputLines(t), "")})
	}
	return r, nil
}

// verdict adds a failure that no test tells: of a binary that ended badly or
// not at all, or in which nothing passed though nothing was selected.
func (r *results) verdict(ended bool, status int, selected bool) {
	reason := ""
	switch {
	case !ended:
		reason = "the tests did not come to an end"
	case status != 0 && len(r.failed) == 0:
		reason = fmt.Sprintf("the tests ended with status %d", status)
	case r.passed == 0 && len(r.failed) == 0 && !selected:
		reason = "no test passed"
	default:
		return
	}
	r.failed = append(r.failed, test{"(all)", reason + "\n" + r.output})
}
