// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/tools/testresults"
)

// report is printed as packages come to their end.
type report struct {
	w      io.Writer
	failed int // packages
	skips  []testresults.Skip
}

func (r *report) add(p *testresults.Package) {
	name := p.Path[strings.LastIndexByte(p.Path, '/')+1:]
	for _, t := range p.Skipped {
		r.skips = append(r.skips,
			testresults.Skip{Test: name + "." + t.Name, Reason: t.SkipReason()})
	}
	if p.Verdict != "fail" {
		fmt.Fprintf(r.w, "%-4s %-60s %6.1f s  %s\n", word(p), p.Path,
			p.Elapsed.Seconds(), counts(p))
		return
	}
	r.failed++
	for _, t := range p.Failed {
		fmt.Fprintf(r.w, "FAIL %s.%s\n%s", name, t.Name, t.Output)
	}
	// What is outside of tests tells why there are none: a panic, the compiler.
	fmt.Fprintf(r.w, "%sFAIL %-60s %6.1f s  %s\n", p.Output, p.Path, p.Elapsed.Seconds(), counts(p))
}

func word(p *testresults.Package) string {
	if p.Passed+len(p.Skipped) == 0 {
		return "-"
	}
	return "ok"
}

func counts(p *testresults.Package) string {
	text := fmt.Sprintf("%d passed", p.Passed)
	if n := len(p.Failed); n > 0 {
		text += fmt.Sprintf(", %d failed", n)
	}
	if n := len(p.Skipped); n > 0 {
		text += fmt.Sprintf(", %d skipped", n)
	}
	return text
}

func (r *report) printSkips() { testresults.PrintSkips(r.w, r.skips) }

// refused is an error if a test was skipped that should have run: for another
// reason than those that hold wherever everything is installed. Benchmarks have
// other reasons.
func (r *report) refused() error {
	var names []string
	for _, s := range r.skips {
		if strings.Contains(s.Test, ".Benchmark") {
			continue
		}
		if !strings.HasPrefix(s.Reason, testneeds.NeedsKernel) &&
			!strings.HasPrefix(s.Reason, testneeds.ForOthers) {
			names = append(names, s.Test)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return fmt.Errorf("tests were skipped that can run here (see package testneeds): %s",
		strings.Join(names, " "))
}
