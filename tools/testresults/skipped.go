// SPDX-License-Identifier: BSD-2-Clause

package testresults

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

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
