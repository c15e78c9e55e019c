// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/commandline"
	"github.com/gousdt/gousdt/internal/terminal"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/watch"
)

// What is counted are the hits of the patterns. Those of the pair that is
// measured count where there is no pattern.
func TestCountBesideLatency(t *testing.T) {
	for args, want := range map[string]string{"s:q__start": "[s:q__start]", "": "[s:q*]"} {
		o, err := parseCommandLine(append([]string{"-a", "--count", "--latency", "s:q"},
			strings.Fields(args)...))
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.Equals(fmt.Sprint(o.aggregations()[0].Probes), want))
	}
}

// As everywhere, commas divide a list.
func TestPatterns(t *testing.T) {
	for _, test := range []struct {
		args, want []string
	}{
		{[]string{"a:b,c:d"}, []string{"a:b", "c:d"}},
		{[]string{"a:b,c:[d,e]", "*"}, []string{"a:b", "c:[d,e]", "*"}},
		{[]string{`a:b\,c`}, []string{`a:b\,c`}},
		{[]string{"-e", "b,d", "e:f,g:h"}, []string{"b", "d", "e:f", "g:h"}},
		{[]string{"--slow", "0", "a:b..a:c,d:e"}, []string{"a:b", "a:c", "d:e*"}},
	} {
		o, err := parseCommandLine(append([]string{"-a"}, test.args...))
		qt.Assert(t, qt.IsNil(err), qt.Commentf("%q", test.args))
		var got []string
		for _, p := range o.patterns {
			got = append(got, p.String())
		}
		qt.Check(t, qt.DeepEquals(got, test.want), qt.Commentf("%q", test.args))
	}
}

// Steps of equal size are drawn beside the quantiles, and each distribution
// once.
func TestDistributionsOfCalls(t *testing.T) {
	for _, test := range []struct {
		args []string
		want []string
	}{
		{nil, []string{"latency quantiles drawn"}},
		{[]string{"--by", "pid"}, []string{"latency quantiles"}},
		{[]string{"--linear", "0:30ms:5ms"}, []string{"latency quantiles", "hist duration drawn"}},
		{[]string{"--linear", "0:30ms:5ms", "--hist", "duration"},
			[]string{"hist duration drawn", "latency quantiles"}},
		{[]string{"--hist", "duration"}, []string{"hist duration quantiles drawn", "latency quantiles"}},
		{[]string{"--linear", "0:30ms:5ms", "--hist", "arg0"},
			[]string{"hist arg0 drawn", "latency quantiles", "hist duration drawn"}},
		{[]string{"--linear", "0:30ms:5ms", "--self"}, []string{"self self quantiles", "hist self drawn"}},
	} {
		o, err := parseCommandLine(append([]string{"-a", "--latency", "a:b"}, test.args...))
		qt.Assert(t, qt.IsNil(err))
		var got []string
		for _, a := range o.aggregations() {
			words := []string{a.kind}
			if a.Value != "" {
				words = append(words, a.Value)
			}
			if a.Max {
				words = append(words, "quantiles")
			}
			if a.drawn {
				words = append(words, "drawn")
			}
			got = append(got, strings.Join(words, " "))
			qt.Check(t, qt.Equals(a.duration, a.Value != "arg0"))
		}
		qt.Check(t, qt.DeepEquals(got, test.want), qt.Commentf("%q", test.args))
	}
}

func TestLimits(t *testing.T) {
	o, err := parseCommandLine([]string{"-a", "--limits", "file=7,owner=0", "--limits",
		"descriptors=9", "*"})
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(o.limits, watch.Limits{FileSites: 7, OwnerSites: -1, Descriptors: 9}))
	for _, limit := range []string{"", "file", "file=", "file=x", "file=-1", "sites=3"} {
		_, err := parseCommandLine([]string{"-a", "--limits", limit, "*"})
		qt.Check(t, qt.IsNotNil(err), qt.Commentf("%s", limit))
	}
	_, err = parseCommandLine([]string{"--limits", "file=7", "/bin/true", "*"})
	qt.Check(t, qt.ErrorMatches(err, "--limits goes with .*"))
}

// The man page and the completion are made of the help.
func TestHelpHasEveryFlag(t *testing.T) {
	inHelp := make(map[string]bool)
	for _, f := range commandline.HelpFlags(usage) {
		inHelp[strings.TrimLeft(f.Name, "-")] = true
	}
	qt.Check(t, qt.DeepEquals(slices.Sorted(maps.Keys(inHelp)), new(options).flags().Names()))
}

func TestCompletion(t *testing.T) {
	path := testprog.Path(t, "target-pie")
	complete := func(words ...string) string { return completed(words) }
	qt.Check(t, qt.StringContains(complete(path, "gousdt_test:th"), "gousdt_test:three\n"))
	// It has no probes.
	qt.Check(t, qt.Equals(complete("-p", fmt.Sprint(os.Getpid()), "-e", ""), ""))
	qt.Check(t, qt.StringContains(complete(path, "--latency", "gousdt_test:th"),
		"gousdt_test:three\n"))
	qt.Check(t, qt.Equals(complete("--by", "cont"), "container\n"))
	qt.Check(t, qt.Equals(complete("--sort", "p9"), "p90\np99\n"))
	qt.Check(t, qt.StringContains(complete("-p", ""), fmt.Sprintf("%d\t", os.Getpid())))
	qt.Check(t, qt.Equals(complete("--by", "comm,pi"), "comm,pid\n"))
	qt.Check(t, qt.Equals(complete("--mode", "m"), "multi\n"))
	qt.Check(t, qt.Equals(complete("--normalize", ""), "sql\nmysql\n"))
	qt.Check(t, qt.StringContains(complete("--slow", "5ms", path, "gousdt_test:th"),
		"gousdt_test:three\n"))
	qt.Check(t, qt.Equals(complete("--pprof", "x"), ":files\n"))
	qt.Check(t, qt.Equals(complete("--where", "x"), ""))
}

// completed returns what a shell's function reads.
func completed(words []string) string {
	_, err := parseCommandLine(append([]string{"__complete"}, words...))
	return err.Error()
}

// First the text is cut, then bars get shorter, then quantiles go.
func TestTablesFitTheTerminal(t *testing.T) {
	query := "SELECT abalance FROM pgbench_accounts WHERE aid = $1 AND " + strings.Repeat("x", 99)
	for _, test := range []struct {
		width  int
		header string
		query  string
		bar    int
		sort   string
	}{
		{0, "P50 P90 P99 MAX", query, 32, ""},
		{112, "P50 P90 P99 MAX", "SELECT abalance FROM pgbench_...", 32, ""},
		{100, "P50 P90 P99 MAX", "SELECT abalance FROM pgbench_...", 20, ""},
		{88, "P50 P90 P99 MAX", "SELECT abalance FROM pgbench_...", 8, ""},
		{86, "P50 P90 P99 MAX", "SELECT abalance FROM pgbench_...", 0, ""},
		{78, "P50 P99 MAX", "SELECT abalance FROM pgbench_...", 0, ""},
		{78, "P90 P99 MAX", "SELECT abalance FROM pgbench_...", 0, "p90"},
		{64, "MAX", "SELECT abalance FROM pgbench_...", 0, ""},
		{60, "COUNT P99 MAX %", "SELECT abalance FROM", 0, "p99"},
		{60, "COUNT P50 MAX %", "SELECT abalance FROM", 0, "p50"},
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
		(&textPrinter{width: test.width, tracer: &tracer{prepared: prepared{
			options: &options{tableFlags: tableFlags{sort: test.sort}}}}}).fitTable(&b, lines)
		all := strings.Split(b.String(), "\n")
		qt.Check(t, qt.StringContains(strings.Join(strings.Fields(all[0]), " "), test.header),
			qt.Commentf("%d", test.width))
		qt.Check(t, qt.Equals(strings.HasPrefix(all[1], test.query), true),
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
