// SPDX-License-Identifier: BSD-2-Clause

package matrix

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

var columns = []string{"kernel", "version", "machine", "mode", "passed", "failed", "skipped", "time"}

// cells are a row's, in the order of the columns.
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
	failed := fmt.Sprint(len(r.failures))
	if r.trouble != nil {
		failed += " and did not end"
	}
	return append(cells, mode, fmt.Sprint(r.passed), failed, fmt.Sprint(len(r.skips)), fmt.Sprintf("%.0f s", r.total.Seconds()))
}

func printTable(w io.Writer, rows []row) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, strings.ToUpper(strings.Join(columns, "\t")))
	for i := range rows {
		fmt.Fprintln(t, strings.Join(rows[i].cells(), "\t"))
	}
	t.Flush()
}

func printMarkdown(w io.Writer, rows []row) {
	fmt.Fprintf(w, "| %s |\n|%s\n", strings.Join(columns, " | "), strings.Repeat("---|", len(columns)))
	for i := range rows {
		fmt.Fprintf(w, "| %s |\n", strings.Join(rows[i].cells(), " | "))
	}
}

// printFailures prints what failed tests printed.
func printFailures(w io.Writer, rows []row) {
	for _, r := range rows {
		for _, f := range r.failures {
			fmt.Fprintf(w, "FAILED on %v: %s\n%s\n", r.kernel, f.test, indent(f.output))
		}
		if r.trouble != nil {
			fmt.Fprintf(w, "FAILED on %v:\n%s\n", r.kernel, indent(r.trouble.Error()))
		}
		if r.failed() && r.log != "" {
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
	on := make(map[skip][]string)
	var skips []skip
	for _, r := range rows {
		for _, s := range r.skips {
			if on[s] == nil {
				skips = append(skips, s)
			}
			on[s] = append(on[s], r.kernel.String())
		}
	}
	type cause struct{ reason, kernels string }
	tests := make(map[cause][]string)
	var causes []cause
	for _, s := range skips {
		c := cause{s.reason, strings.Join(on[s], " ")}
		if tests[c] == nil {
			causes = append(causes, c)
		}
		tests[c] = append(tests[c], s.test)
	}
	if len(causes) > 0 {
		fmt.Fprintln(w, "\nSkipped:")
	}
	for _, c := range causes {
		slices.Sort(tests[c])
		fmt.Fprintf(w, "  %s\n    on     %s\n    tests  %s\n", c.reason, c.kernels, strings.Join(tests[c], " "))
	}
	for _, r := range rows {
		if r.notRun != nil {
			fmt.Fprintf(w, "\nNot run: %v\n%s\n", r.kernel, indent(r.notRun.Error()))
		}
	}
}
