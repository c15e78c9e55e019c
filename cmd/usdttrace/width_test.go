// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/terminal"
)

// First the text is cut, then bars get shorter, then quantiles go.
func TestTablesFitTheTerminal(t *testing.T) {
	query := "SELECT abalance FROM pgbench_accounts WHERE aid = $1 AND " + strings.Repeat("x", 99)
	for _, test := range []struct {
		width  int
		header string
		query  string
		bar    int
	}{
		{0, "P50 P90 P99 MAX", query, 32},
		{112, "P50 P90 P99 MAX", "SELECT abalance FROM pgbench_...", 32},
		{100, "P50 P90 P99 MAX", "SELECT abalance FROM pgbench_...", 20},
		{88, "P50 P90 P99 MAX", "SELECT abalance FROM pgbench_...", 8},
		{86, "P50 P90 P99 MAX", "SELECT abalance FROM pgbench_...", 0},
		{78, "P50 P99 MAX", "SELECT abalance FROM pgbench_...", 0},
		{64, "MAX", "SELECT abalance FROM pgbench_...", 0},
	} {
		lines := [][]terminal.Cell{
			{terminal.Left("QUERY"), terminal.Right("COUNT"), terminal.Right("P50"), terminal.Right("P90"), terminal.Right("P99"), terminal.Right("MAX"),
				terminal.Right("%")},
			{terminal.Left(query), terminal.Right("12345"), terminal.Right("1.02us"), terminal.Right("11.2us"), terminal.Right("91.1us"),
				terminal.Right("9.12ms"), terminal.Right("99.0%"), {Bar: 1}},
			{terminal.Left("END"), terminal.Right("1"), terminal.Right("1.02us"), terminal.Right("11.2us"), terminal.Right("91.1us"),
				terminal.Right("9.12ms"), terminal.Right("1.0%"), {Bar: 0.001}},
		}
		var b strings.Builder
		(&textPrinter{width: test.width}).fitTable(&b, lines)
		all := strings.Split(b.String(), "\n")
		qt.Check(t, qt.StringContains(strings.Join(strings.Fields(all[0]), " "), test.header),
			qt.Commentf("%d", test.width))
		qt.Check(t, qt.Equals(strings.HasPrefix(all[1], test.query+"  "), true),
			qt.Commentf("%d: %s", test.width, all[1]))
		qt.Check(t, qt.Equals(strings.Count(all[1], "#"), test.bar), qt.Commentf("%s", all[1]))
		for _, line := range all {
			if test.width > 0 {
				qt.Check(t, qt.IsTrue(terminal.Columns(line) <= test.width), qt.Commentf("%s", line))
			}
		}
	}
}
