// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/terminal"
	"github.com/gousdt/gousdt/trace"
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
			{left("QUERY"), right("COUNT"), right("P50"), right("P90"), right("P99"), right("MAX"),
				right("%")},
			{left(query), right("12345"), right("1.02us"), right("11.2us"), right("91.1us"),
				right("9.12ms"), right("99.0%"), {Bar: 1}},
			{left("END"), right("1"), right("1.02us"), right("11.2us"), right("91.1us"),
				right("9.12ms"), right("1.0%"), {Bar: 0.001}},
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

func TestColumnsOfEventsThatANarrowTerminalHasNoRoomFor(t *testing.T) {
	for width, want := range map[int]string{
		0:   "TIME                 PID      TID  COMMAND          PROBE  ARGS\n",
		80:  "TIME          PID  PROBE  ARGS\n",
		120: "TIME                 PID      TID  COMMAND          PROBE  ARGS\n",
	} {
		p := &textPrinter{width: width}
		qt.Check(t, qt.Equals(string(p.header(nil, "", "PROBE", len("PROBE"))), want))
		line := p.hit(nil, &trace.Event{Command: "postgres"}, "", "a:b")
		qt.Check(t, qt.Equals(strings.Contains(string(line), "postgres"), width != 80))
	}
}

// The header above the first event takes none of its room.
func TestTextsOfTheFirstEventAreWhole(t *testing.T) {
	const query = "SELECT abalance FROM pgbench_accounts WHERE aid = 1"
	p := &textPrinter{width: 80}
	e := &trace.Event{Site: &trace.Site{}, Args: []trace.Value{trace.ValueOf(query)}}
	line := p.arguments(p.header(nil, "", "PROBE", len("PROBE")), e, func(int) bool { return true })
	qt.Check(t, qt.StringContains(string(line), query))
}
