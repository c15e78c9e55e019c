// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
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

	modes           []string
	passed          int
	failed, skipped []test // with the names of their packages

	total time.Duration
}

func (r *row) hasFailed() bool { return r.trouble != nil || len(r.failed) > 0 }

// add takes in the tests of a package.
func (r *row) add(importPath string, p *results, modes []string) {
	prefix := importPath[strings.LastIndexByte(importPath, '/')+1:] + "."
	r.passed += p.passed
	for _, t := range p.failed {
		r.failed = append(r.failed, test{prefix + t.name, t.output})
	}
	for _, t := range p.skipped {
		r.skipped = append(r.skipped, test{prefix + t.name, t.output})
	}
	for _, mode := range modes {
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
	if r.hasFailed() {
		word = "FAILED"
	}
	return fmt.Sprintf("%s: Linux %s, %d passed, %d failed, %d skipped, %.1f s",
		word, r.release, r.passed, len(r.failed), len(r.skipped), r.total.Seconds())
}

// modePattern finds the line that a test logs to tell which way of attaching
// it used.
var modePattern = regexp.MustCompile(`gousdt-mode: (\S+)`)

// findModes returns the ways of attaching that tests say they used.
func findModes(output []byte) []string {
	var modes []string
	for _, found := range modePattern.FindAllSubmatch(output, -1) {
		modes = append(modes, string(found[1]))
	}
	slices.Sort(modes)
	return slices.Compact(modes)
}

// cells are a row's, in the order of the columns of the table.
func (r *row) cells() []string {
	mode := strings.Join(r.modes, ", ")
	if mode == "" {
		mode = "-"
	}
	cells := []string{r.kernel.Series, r.version, r.kernel.Machine}
	switch {
	case r.notRun != nil:
		return append(cells, "not run", "", "", "", "")
	case r.release == "":
		return append(cells, "did not start", "", "FAILED", "", "")
	}
	failed := fmt.Sprint(len(r.failed))
	if r.trouble != nil {
		failed += " and did not end"
	}
	return append(cells, mode, fmt.Sprint(r.passed), failed, fmt.Sprint(len(r.skipped)),
		fmt.Sprintf("%.0f s", r.total.Seconds()))
}

func printTable(w io.Writer, rows []row) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "KERNEL\tVERSION\tMACHINE\tMODE\tPASSED\tFAILED\tSKIPPED\tTIME")
	for i := range rows {
		fmt.Fprintln(t, strings.Join(rows[i].cells(), "\t"))
	}
	t.Flush()
}

// printFailures prints what failed tests printed.
func printFailures(w io.Writer, rows []row) {
	for _, r := range rows {
		for _, f := range r.failed {
			fmt.Fprintf(w, "FAILED on %v: %s\n%s\n", r.kernel, f.name, indent(f.output))
		}
		if r.trouble != nil {
			fmt.Fprintf(w, "FAILED on %v:\n%s\n", r.kernel, indent(r.trouble.Error()))
		}
		if r.hasFailed() && r.log != "" {
			fmt.Fprintf(w, "The console of %v is in %s\n\n", r.kernel, r.log)
		}
	}
}

func indent(text string) string {
	return "\t" + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n\t")
}

// printReasons prints why tests were skipped, and kernels not run. Tests that
// were skipped for one reason on the same kernels share a line.
func printReasons(w io.Writer, rows []row) {
	type cause struct{ reason, kernels string }
	kernels := make(map[[2]string][]string) // by test and reason
	var skips [][2]string
	for _, r := range rows {
		for _, t := range r.skipped {
			skip := [2]string{t.name, t.skipReason()}
			if kernels[skip] == nil {
				skips = append(skips, skip)
			}
			kernels[skip] = append(kernels[skip], r.kernel.String())
		}
	}
	tests := make(map[cause][]string)
	var causes []cause
	for _, skip := range skips {
		c := cause{skip[1], strings.Join(kernels[skip], " ")}
		if tests[c] == nil {
			causes = append(causes, c)
		}
		tests[c] = append(tests[c], skip[0])
	}
	for i, c := range causes {
		if i == 0 {
			fmt.Fprintln(w, "\nSkipped:")
		}
		fmt.Fprintf(w, "  %s\n    on     %s\n    tests  %s\n", c.reason, c.kernels,
			strings.Join(slices.Sorted(slices.Values(tests[c])), " "))
	}
	for _, r := range rows {
		if r.notRun != nil {
			fmt.Fprintf(w, "\nNot run: %v\n%s\n", r.kernel, indent(r.notRun.Error()))
		}
	}
}

// printNews says if a kernel was newer than the newest series that is known.
func printNews(w io.Writer, rows []row, known string) {
	last, err := platform.ParseRelease(known)
	if err != nil {
		panic(err)
	}
	for _, r := range rows {
		release, err := platform.ParseRelease(r.release)
		if err == nil && release.AtLeast(last.Major, last.Minor+1) {
			fmt.Fprintf(w, "\nLinux %s is newer than %s, the last one that is known: see what it "+
				"changes (docs/kernels.md), then raise platform.LastKnown\n", release, known)
			return
		}
	}
}
