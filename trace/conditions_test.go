// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package trace_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/internal/tracing"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
)

// definitions name the arguments of probes of the traced programs.
func definitions(t *testing.T) *trace.Definitions {
	var d trace.Definitions
	qt.Assert(t, qt.IsNil(d.Parse("test.d", []byte(`
		enum type { Lowest = -2000000000, None = 0, First };
		provider gousdt_test {
			probe three(type type, char *middle, unsigned long last);
			probe strings(const char *greeting, char *digits, const char *empty);
			probe twelve(int a, int number_of_another_version);
		};`))))
	return &d
}

func TestNamesInFilters(t *testing.T) {
	testprog.RequireBPF(t)
	for _, test := range []struct {
		filter string
		want   bool
	}{
		{"type == -2000000000", true},
		{"type == 1", false},
		{"type == \"Lowest\"", true},
		{"arg0 == \"Lowest\" && probe == \"three\"", true},
		{"type != \"First\" && \"None\" != type", true},
		{"type == \"First\" || type == \"None\"", false},
		{"type < 0 && last > 17999999999999999999", true},
		{"!(last & 1 == 1)", false},
		{"greeting == \"hello, gousdt\"", true},
		{"str(greeting, 5) == \"hello\"", true},
		{"str(digits, 5) == \"hello\"", false},
		{"type == -2000000000 || greeting == \"hello, gousdt\"", true},
	} {
		t.Run(test.filter, func(t *testing.T) {
			process := start(t, "target-pie")
			aggregator := &trace.Aggregation{By: []string{"probe"},
				Where: test.filter}
			s, err := trace.New(&trace.SessionOptions{
				Definitions: definitions(t), Aggregations: []*trace.Aggregation{aggregator},
			})
			qt.Assert(t, qt.IsNil(err))
			defer s.Close()
			_, err = s.Attach(usdt.Target{Path: process.path}, nil,
				elfnote.Exact("gousdt_test", "three"), elfnote.Exact("gousdt_test", "strings"))
			if !test.want && err != nil {
				return // the condition can hold nowhere
			}
			qt.Assert(t, qt.IsNil(err))
			process.Fire("three", 1)
			process.Fire("strings", 1)
			snapshot, err := s.Snapshot(aggregator)
			qt.Assert(t, qt.IsNil(err))
			hits := uint64(0)
			for _, row := range snapshot.Rows {
				hits += row.Count
			}
			qt.Assert(t, qt.Equals(hits > 0, test.want))
		})
	}
}

// A value that an enumeration does not have can be a mistake only.
func TestNamesOfValuesInFilters(t *testing.T) {
	process := start(t, "target-pie")
	s, err := trace.New(&trace.SessionOptions{Definitions: definitions(t), Filter: `type == "first"`})
	qt.Assert(t, qt.IsNil(err))
	defer s.Close()
	_, err = s.Attach(usdt.Target{Path: process.path}, nil, elfnote.Exact("gousdt_test", "three"))
	qt.Check(t, qt.ErrorMatches(err,
		`.*type of gousdt_test:three has no value "first"; these are: First, Lowest, None`))
}

func TestNamesInAggregations(t *testing.T) {
	process := start(t, "target-pie")
	byText := &trace.Aggregation{By: []string{"str(greeting)", "greeting"}}
	sum := &trace.Aggregation{Value: "type", By: []string{"last"}, Sum: true}
	s := open(t, process, "gousdt_test:*s*", &trace.SessionOptions{
		Definitions: definitions(t), Aggregations: []*trace.Aggregation{byText},
	})
	process.Fire("strings", 3)
	snapshot, err := s.Snapshot(byText)
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.HasLen(snapshot.Rows, 1))
	qt.Assert(t, qt.Equals(snapshot.Rows[0].Keys[0].String(), `hello, gousdt`))
	qt.Assert(t, qt.Equals(snapshot.Rows[0].Keys[1].String(), `hello, gousdt`))
	qt.Assert(t, qt.Equals(snapshot.Rows[0].Count, 3))
	qt.Assert(t, qt.IsNil(s.Close()))

	s = open(t, process, "gousdt_test:three", &trace.SessionOptions{
		Definitions: definitions(t), Aggregations: []*trace.Aggregation{sum},
	})
	process.Fire("three", 2)
	snapshot, err = s.Snapshot(sum)
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.HasLen(snapshot.Rows, 1))
	qt.Assert(t, qt.Equals(snapshot.Rows[0].Sum.Int(), -4000000000))
	qt.Assert(t, qt.Equals(snapshot.Rows[0].Keys[0].Uint(), 18000000000000000001))
}

// An address in the place of a text would look like a number with a meaning.
func TestNamesThatAreTextsOfSomeProbes(t *testing.T) {
	var d trace.Definitions
	qt.Assert(t, qt.IsNil(d.Parse("test.d", []byte(`
		provider one { probe text(char *thing); probe other(char *another); };
		provider two { probe number(int thing); };`))))
	for _, test := range []struct {
		probes, key, err string
	}{
		{"", "thing",
			`.*this is a string of some probes and a number of others: write str\(thing\), or argN for the number`},
		{"", "str(thing)", ""},
		{"", "thing & 7", ""},
		{"", "another", ""},
		{"one:*", "thing", ""},
		{"two:*", "thing", ""},
		{"*:*", "thing", `.*a string of some probes.*`},
	} {
		aggregation := trace.Aggregation{By: []string{test.key}}
		if test.probes != "" {
			aggregation.Probes = []elfnote.Pattern{elfnote.MustParsePattern(test.probes)}
		}
		s, err := trace.New(&trace.SessionOptions{
			Definitions: &d, Aggregations: []*trace.Aggregation{&aggregation},
		})
		if test.err == "" {
			qt.Assert(t, qt.IsNil(err), qt.Commentf("%s of %q", test.key, test.probes))
			qt.Check(t, qt.IsNil(s.Close()))
			continue
		}
		var option *tracing.OptionError
		qt.Check(t, qt.ErrorAs(err, &option))
		qt.Check(t, qt.ErrorMatches(err, test.err))
	}
}

func TestNamesOfTexts(t *testing.T) {
	for _, test := range []struct {
		name string
		opts trace.SessionOptions
		want string
	}{
		{"all texts", trace.SessionOptions{
			Events: &trace.EventOptions{Captures: []trace.Capture{{Max: 4}}}},
			`greeting="hell"..., digits="0123"..., empty=""`},
		{"a capture comes first", trace.SessionOptions{
			Events: &trace.EventOptions{
				Captures: []trace.Capture{{Max: 4}, {Arg: "greeting", Max: 64}}},
		}, `greeting="hello, gousdt", digits="0123"..., empty=""`},
	} {
		t.Run(test.name, func(t *testing.T) {
			process := start(t, "target-pie")
			test.opts.Definitions = definitions(t)
			s := open(t, process, "gousdt_test:strings", &test.opts)
			process.Fire("strings", 1)
			event := next(t, s, 1)[0]
			qt.Assert(t, qt.StringContains(event.String(), ": "+test.want))
			qt.Assert(t, qt.Equals(event.Site.Argument(0).Name, "greeting"))
		})
	}
	t.Run("another number of arguments", func(t *testing.T) {
		process := start(t, "target-pie")
		s := open(t, process, "gousdt_test:twelve",
			&trace.SessionOptions{Definitions: definitions(t),
				Events: &trace.EventOptions{Captures: []trace.Capture{{Max: 4}}}})
		process.Fire("twelve", 1)
		event := next(t, s, 1)[0]
		qt.Assert(t, qt.DeepEquals(event.Site.Argument(0), trace.Argument{Name: "arg0", Length: -1}))
		qt.Assert(t, qt.Equals(event.Site.Argument(0).Name, "arg0"))
	})
}

func TestNamesErrors(t *testing.T) {
	_, err := trace.New(&trace.SessionOptions{Definitions: definitions(t), Filter: "middel == 1"})
	qt.Assert(t,
		qt.ErrorMatches(err,
			`.*"middel == 1", at column 1: middel is not known; .*names of arguments.*`))
	for filter, want := range map[string]string{
		"wal_bytes > 0": `.*: wal_bytes is not known; .*arguments, is_external, used, user, .*, activity, global.*`,
		`query == "x"`:  ".*: postgresql:sort__done has no query; its keys are is_external, used, user, .*",
		"mode == 1":     ".*: postgresql:sort__done has no mode; its keys are is_external, used, user, .*",
	} {
		_, err = trace.New(&trace.SessionOptions{Definitions: trace.BuiltinDefinitions(),
			Aggregations: []*trace.Aggregation{{Where: filter,
				Probes: []elfnote.Pattern{elfnote.Exact("postgresql", "sort__done")}}}})
		qt.Check(t, qt.ErrorMatches(err, want))
	}
	_, err = trace.New(&trace.SessionOptions{Filter: "middle == 1"})
	qt.Assert(t,
		qt.ErrorMatches(err, `.*middle is not known; these are: argN, str\(argN\), global.NAME, pid,.*`))
	_, err = trace.New(&trace.SessionOptions{
		Events: &trace.EventOptions{Captures: []trace.Capture{{Max: 1 << 20}}}})
	qt.Assert(t, qt.ErrorMatches(err, `.*Max: 1048576 is not between 0 and 32768`))
}

// TestSizedTexts reads texts whose length is in another argument: of the
// twelve, arg9 points to "hello, gousdt", arg8 is 17, arg1 200 and arg0 -100.
func TestSizedTexts(t *testing.T) {
	for _, test := range []struct {
		key  string
		want string // "" where the hit cannot be aggregated
	}{
		{"str(arg9, arg8)", `hello, gousdt\x00\x00\x00\x00`}, // zeros are among the 17 bytes
		{"str(arg9, arg8, 5)", "hello..."},
		{"str(arg9, arg1, 5)", "hello..."},
		{"str(arg9, arg0)", ""},
		{"str(text)", "hello, gousdt"},
		{"str(text, 5)", "hello..."},
	} {
		t.Run(test.key, func(t *testing.T) {
			var d trace.Definitions
			// The length follows the text in definitions; here it does not.
			qt.Assert(t, qt.IsNil(d.Parse("test.d", []byte(`provider gousdt_test { probe twelve(
				int a, int b, int c, int d, int e, int f, int g, int h, int i, char *text, long j, long k); };`))))
			process := start(t, "target-pie")
			aggregator := &trace.Aggregation{By: []string{test.key}}
			s := open(t, process, "gousdt_test:twelve", &trace.SessionOptions{
				Definitions: &d, Aggregations: []*trace.Aggregation{aggregator},
			})
			process.Fire("twelve", 2)
			snapshot, err := s.Snapshot(aggregator)
			qt.Assert(t, qt.IsNil(err))
			if test.want == "" {
				qt.Assert(t, qt.HasLen(snapshot.Rows, 0))
				losses, err := s.Losses()
				qt.Assert(t, qt.IsNil(err))
				qt.Assert(t, qt.Equals(losses.Unreadable, 2))
				return
			}
			qt.Assert(t, qt.HasLen(snapshot.Rows, 1))
			qt.Assert(t, qt.Equals(snapshot.Rows[0].Keys[0].String(), test.want))
			qt.Assert(t, qt.Equals(snapshot.Rows[0].Count, 2))
		})
	}
}

func TestSizedTextsInFilters(t *testing.T) {
	for _, test := range []struct {
		filter string
		want   uint64
	}{
		{`str(arg9, arg8) == "hello, gousdt"`, 0}, // zeros are among the 17 bytes
		{`str(arg9, arg8) == "hello, gousd"`, 0},
		{`str(arg9, arg8, 5) == "hello"`, 2},
		{`str(arg9, arg8, 5) == "hallo"`, 0},
		{`str(arg9, arg8) != "hello"`, 2},
		{`str(arg9, arg0) == "hello"`, 0},
		{`str(arg9, arg0) != "hello"`, 0}, // what cannot be read is not unequal
	} {
		t.Run(test.filter, func(t *testing.T) {
			process := start(t, "target-pie")
			aggregator := &trace.Aggregation{Where: test.filter}
			s := open(t, process, "gousdt_test:twelve", &trace.SessionOptions{
				Aggregations: []*trace.Aggregation{aggregator},
			})
			process.Fire("twelve", 2)
			snapshot, err := s.Snapshot(aggregator)
			qt.Assert(t, qt.IsNil(err))
			hits := uint64(0)
			for _, row := range snapshot.Rows {
				hits += row.Count
			}
			qt.Assert(t, qt.Equals(hits, test.want))
		})
	}
}

// Nothing came: no probe was passed, or the filter is why.
func TestFilterThatWasFalseIsKnown(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		process := start(t, "target-pie")
		s := open(t, process, "gousdt_test:inlined", &trace.SessionOptions{Mode: mode,
			Filter: "arg0 < 1"})
		filtered := func() bool {
			stats, err := s.Stats()
			qt.Assert(t, qt.IsNil(err))
			return stats.Filtered
		}
		qt.Check(t, qt.IsFalse(filtered()))
		process.Fire("inlined", 1)
		qt.Check(t, qt.IsTrue(filtered()))
	})
}

// The probe inlined passes (1, -101) to (5, -105) from five sites: constants,
// registers, and memory with an index. The probe specs passes 0 to 299,
// constants all. Values of the others are in internal/testdata/values.h.
func TestFilter(t *testing.T) {
	testprog.RequireBPF(t)
	process := start(t, "target-pie")
	pid := fmt.Sprint(process.PID)
	for _, test := range []struct {
		group, filter string
		hits          int
	}{
		{"inlined", "arg0 == 3", 1},
		{"inlined", "arg0 != 3", 4},
		{"inlined", "arg0 > 3", 2},
		{"inlined", "arg0 >= 3", 3},
		{"inlined", "arg0 < 0x3", 2},
		{"inlined", "3 > arg0", 2},
		{"inlined", "arg0 <= 3", 3},
		{"inlined", "arg0", 5},
		{"inlined", "!arg0 || arg0 == 4", 1},
		{"inlined", "arg1 < -103", 2},
		{"inlined", "arg1 >= -103 && arg0 != 1", 2},
		{"inlined", "arg1 > -102 || arg0 > 4", 2},
		{"inlined", "!(arg1 > -102 || arg0 > 4)", 3},
		{"inlined", "!(arg1 > -102) && !(arg0 > 4)", 3},
		{"inlined", "arg0 > arg1", 5},
		{"inlined", "arg1 > arg0", 0},
		{"inlined", "arg0 & 1", 3},
		{"inlined", "arg0 & 6 == 2", 2},
		{"inlined", "arg1 > 18446744073709551515", 0},
		{"inlined", "arg1 < 18446744073709551515", 5},
		{"inlined", "arg0 > 2.5", 3},
		{"inlined", "arg0 == 2.5 || arg0 >= 4.5", 1},
		{"inlined",
			"arg0 == 1 && arg1 == -101 || arg0 == 5 && arg1 == -105 || arg0 == 3 && arg1 == -105",
			2},

		{"specs", "arg0 >= 100 && arg0 < 110", 10},
		{"specs", "arg0 == 299 || arg0 == 300", 1},

		// 64 bits of either sign, each in a register or on the stack.
		{"sizes", "arg0 == -100 && arg1 == 200 && arg2 == -30000 && arg3 == 60000", 1},
		{"sizes", "arg4 == -2000000000 && arg5 == 4000000000", 1},
		{"sizes", "arg6 == -9000000000000000001 && arg7 == 18000000000000000001", 1},
		{"sizes", "arg7 > 9223372036854775807 && arg6 < 0", 1},
		{"sizes", "arg6 < arg7 && arg7 > arg6 && arg6 != arg7", 1},
		{"sizes", "arg7 < arg6 || arg6 > arg7 || arg7 == arg6", 0},
		{"sizes", "arg1 > -1 && arg1 != -56", 1},
		{"sizes", "arg0 < 255 && arg0 != 156", 1},
		{"stack",
			"arg0 == -100 && arg1 == 200 && arg2 == -30000 && arg3 == 60000 && arg4 == -2000000000",
			1},
		{"stack",
			"arg5 == 4000000000 && arg6 == -9000000000000000001 && arg7 == 18000000000000000001",
			1},
		{"stack", "arg5 > arg4 && arg3 > arg2 && arg7 > arg5 && arg0 < arg1", 1},

		{"floats", "arg0 == 1.5 && arg1 == -2.25 && arg2 == 0.5 && arg3 == 9e299", 1},
		{"floats", "arg0 > 1.4999 && arg0 < 1.5001 && arg1 < -2.2 && arg1 > -2.3 && arg1 != 2.25",
			1},
		{"floats",
			"arg0 > 1 && arg0 < 2 && arg1 <= -2 && arg1 >= -3 && arg3 > 1e299 && arg3 < 1e300", 1},
		{"floats", "arg0 <= 1.4999 || arg1 > -2.25 || arg1 < -2.25 || arg2 == 0 || arg3 < 0", 0},

		{"strings", `arg0 == "hello, gousdt"`, 1},
		{"strings", `arg0 == "hello, gousd"`, 0},
		{"strings", `arg0 == "hello, gousdt!"`, 0},
		{"strings", `arg0 != "hello"`, 1},
		{"strings", `arg0 != "hello, gousdt"`, 0},
		{"strings", `!(arg0 == "hello, gousdt")`, 0},
		{"strings", `"" == arg2 && arg2 != "x"`, 1},
		{"strings", `str(arg0, 5) == "hello"`, 1},
		{"strings", `str(arg0, 5) == "hell"`, 0},
		{"strings", `str(arg0, 5) != "hello"`, 0},
		{"strings", `str(arg0, 20) == "hello"`, 0},
		{"strings", `str(arg1, 10) == "0123456789" && arg1 != "0123456789"`, 1},
		{"strings", `str(arg1, 128) == "` + strings.Repeat("0123456789", 13)[:128] + `"`, 1},

		{"three", "pid == " + pid + " && tid == " + pid, 1},
		{"three", "pid != " + pid, 0},
		{"three", "uid == " + fmt.Sprint(os.Getuid()) + " && gid == " +
			fmt.Sprint(os.Getgid()) + " && cpu < 4096", 1},
		{"three", `comm == "target-pie"`, 1},
		{"three", `comm != "target-pie"`, 0},
		{"three", `comm == "target-pi"`, 0},
		{"three", `provider == "gousdt_test" && probe == "three" && probe != "four"`, 1},
		{"three", `arg1 == "hello, gousdt" && arg2 == 18000000000000000001 && arg0 < -1999999999`,
			1},

		// What cannot be read is neither equal nor unequal.
		{"fault", "arg1 == 0", 0},
		{"fault", "arg1 != 0", 0},
		{"fault", "!(arg1 == 0)", 0},
		{"fault", "arg1 == 0 || arg0 < 0", 1},
		{"fault", "arg0 < 0 || arg1 == 0", 1},
		{"fault", "arg2 == 17 && arg0 == -2000000000", 1},
		{"fault", `arg0 == "text"`, 0},
		{"fault", `arg2 != "text"`, 0},
	} {
		t.Run(test.group+" "+test.filter, func(t *testing.T) {
			s, err := trace.Open(usdt.Target{Path: process.path},
				&trace.SessionOptions{Filter: test.filter,
					Events: &trace.EventOptions{RingSize: 1 << 16}},
				elfnote.MustParsePattern("gousdt_test:"+test.group))
			var filtered *tracing.FilteredError
			if test.hits == 0 && errors.As(err, &filtered) {
				return
			}
			qt.Assert(t, qt.IsNil(err))
			defer s.Close()
			process.Fire(test.group, 1)
			events, _ := rest(t, s)
			qt.Assert(t, qt.HasLen(events, test.hits))
		})
	}
}

// A filter that may hold is not to blame where no aggregation is about the
// probes.
func TestFilterIsNotBlamedForTheProbesOfNoAggregation(t *testing.T) {
	process := start(t, "target-pie")
	s := newSession(t, &trace.SessionOptions{Filter: "pid > 0",
		Aggregations: []*trace.Aggregation{&trace.Aggregation{
			Probes: []elfnote.Pattern{elfnote.Exact("gousdt_test", "none")}}}})
	_, err := s.Attach(usdt.Target{Path: process.path}, nil, elfnote.Exact("gousdt_test", "three"))
	qt.Check(t, qt.ErrorAs(err, new(*tracing.FilteredError)))
	qt.Check(t, qt.ErrorMatches(err, ".*: its probes that match have no part in what is asked for"))
}
