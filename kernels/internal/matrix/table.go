// SPDX-License-Identifier: BSD-2-Clause

package matrix

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/gousdt/gousdt/kernels/internal/platform"
	"github.com/gousdt/gousdt/tools/testresults"
)

var columns = []string{"kernel", "version", "machine", "mode", "passed", "failed",
	"skipped", "time"}

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
	failed := fmt.Sprint(len(r.failed))
	if r.trouble != nil {
		failed += " and did not end"
	}
	return append(cells, mode, fmt.Sprint(r.passed), failed, fmt.Sprint(len(r.skipped)),
		fmt.Sprintf("%.0f s", r.total.Seconds()))
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
	fmt.Fprintf(w, "| %s |\n|%s\n", strings.Join(columns, " | "),
		strings.Repeat("---|", len(columns)))
	for i := range rows {
		fmt.Fprintf(w, "| %s |\n", strings.Join(rows[i].cells(), " | "))
	}
}

// printFailures prints what failed tests printed.
func printFailures(w io.Writer, rows []row) {
	for _, r := range rows {
		for _, f := range r.failed {
			fmt.Fprintf(w, "FAILED on %v: %s\n%s\n", r.kernel, f.Name, indent(f.Output))
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

// printReasons prints why tests were skipped, and kernels not run.
func printReasons(w io.Writer, rows []row) {
	var skips []testresults.Skip
	for _, r := range rows {
		for _, t := range r.skipped {
			skips = append(skips, testresults.Skip{Test: t.Name, Reason: t.SkipReason(),
				Where: r.kernel.String()})
		}
	}
	testresults.PrintSkips(w, skips)
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
				"changes (docs/kernels.md), then raise platform.LastKnown\n", release.Series(), known)
			return
		}
	}
}
