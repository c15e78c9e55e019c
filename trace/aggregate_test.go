// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package trace_test

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/internal/tracing"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
)

// aggregate fires a group some times and returns what the aggregation came to.
func aggregate(
	t *testing.T, mode usdt.Mode, a trace.Aggregation, group string, times int,
) *trace.Snapshot {
	t.Helper()
	process := start(t, "target-pie")
	aggregator := &a
	opts := aggregating(aggregator)
	opts.Mode = mode
	s := open(t, process, "gousdt_test:"+group, opts)
	process.Fire(group, times)
	got := snapshot(t, aggregator)
	losses, err := s.Losses()
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.Equals(losses, trace.Losses{}))
	return got
}

func TestAggregationSumMinMax(t *testing.T) {
	const all = "sum min max"
	for _, test := range []struct {
		name, group, value, where string
		functions                 string
		want                      string // count sum min max
	}{
		{"count", "inlined", "", "", "", "10 ? ? ?"},
		{"signed in registers and memory", "inlined", "arg1", "", all, "10 -1030 -105 -101"},
		{"unsigned constants", "specs", "arg0", "", all, "600 89700 0 299"},
		{"condition", "specs", "arg0", "arg0 >= 290", all, "20 5890 290 299"},
		{"signed 8 bits", "sizes", "arg0", "", all, "2 -200 -100 -100"},
		{"unsigned 16 bits", "sizes", "arg3", "", all, "2 120000 60000 60000"},
		{"signed 64 bits", "stack", "arg6", "", "min max",
			"2 ? -9000000000000000001 -9000000000000000001"},
		{"unsigned 64 bits", "stack", "arg7", "", "min max",
			"2 ? 18000000000000000001 18000000000000000001"},
		{"masked", "inlined", "arg0 & 3", "", all, "10 14 0 3"},
		{"float of 4 bytes", "floats", "arg0", "", all, "2 3 1.5 1.5"},
		{"negative float of 8 bytes", "floats", "arg1", "", all, "2 -4.5 -2.25 -2.25"},
		{"large float", "floats", "arg3", "", "max", "2 ? ? 9e+299"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := aggregate(t, usdt.ModeAuto, trace.Aggregation{
				Value: test.value, Where: test.where, Sum: strings.Contains(test.functions, "sum"),
				Min: strings.Contains(test.functions, "min"),
				Max: strings.Contains(test.functions, "max"),
			}, test.group, 2)
			qt.Assert(t, qt.HasLen(got.Rows, 1))
			row := got.Rows[0]
			qt.Assert(t, qt.HasLen(row.Keys, 0))
			qt.Assert(t, qt.Equals(fmt.Sprint(row.Count, row.Sum, row.Min, row.Max), test.want))
		})
	}
}

// rows shows the keys of each row, its count and its sum.
func rows(s *trace.Snapshot) []string {
	var all []string
	for _, row := range s.Rows {
		all = append(all, fmt.Sprint(row.Keys, row.Count, row.Sum))
	}
	return all
}

func TestAggregationKeys(t *testing.T) {
	for _, test := range []struct {
		name, group string
		by          []string
		value       string
		want        []string
	}{
		{"constant", "many", []string{"arg0"}, "arg0", []string{"[42] 800 33600"}},
		{"argument", "inlined", []string{"arg0"}, "arg1",
			[]string{"[1] 2 -202", "[2] 2 -204", "[3] 2 -206", "[4] 2 -208", "[5] 2 -210"}},
		{"masked", "inlined", []string{"arg0 & 1"}, "", []string{"[1] 6 ?", "[0] 4 ?"}},
		{"two", "inlined", []string{"arg0 & 1", "arg1 & 1"}, "arg0",
			[]string{"[1 1] 6 18", "[0 0] 4 12"}},
		{"command", "three", []string{"comm"}, "", []string{"[target-pie] 2 ?"}},
		{"text", "strings", []string{"str(arg0)"}, "", []string{"[hello, gousdt] 2 ?"}},
		{"cut text", "strings", []string{"str(arg0, 5)", "str(arg2)"}, "",
			[]string{"[hello... ] 2 ?"}},
		{"text as long as its limit", "strings", []string{"str(arg0, 13)", "str(arg0, 12)"}, "",
			[]string{"[hello, gousdt hello, gousd...] 2 ?"}},
		{"long text", "strings", []string{"str(arg1, 128)", "str(arg0, 120)"}, "",
			[]string{"[" + strings.Repeat("0123456789", 13)[:128] + "... hello, gousdt] 2 ?"}},
		{"probe", "[ts][hi]*e[es]", []string{"probe", "provider", "cookie"}, "",
			[]string{"[gousdt_test:sizes gousdt_test 0] 2 ?",
				"[gousdt_test:three gousdt_test 0] 2 ?"}},
		{"float", "floats", []string{"arg0", "arg1"}, "", []string{"[1.5 -2.25] 2 ?"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			process := start(t, "target-pie")
			a := &trace.Aggregation{By: test.by, Value: test.value,
				Sum: test.value != ""}
			open(t, process, "gousdt_test:"+test.group, aggregating(a))
			groups := []string{test.group}
			if test.name == "probe" {
				groups = []string{"sizes", "three"}
			}
			for _, group := range groups {
				process.Fire(group, 2)
			}
			qt.Assert(t, qt.DeepEquals(rows(snapshot(t, a)), test.want))
		})
	}
}

// The time of a table is not before that of hits in it, however long it takes
// until programs add to the next one.
func TestHitsAreInTheTimeOfTheirTable(t *testing.T) {
	process := start(t, "target-pie")
	a := &trace.Aggregation{}
	s := open(t, process, "gousdt_test:three", aggregating(a))
	isAwaited, release := trace.HoldSwitch(s)
	taken := make(chan []*trace.Snapshot, 1)
	go func() {
		tables, _ := s.Take(a)
		taken <- tables
	}()
	testneeds.Await(t, time.Minute, "a table is taken", isAwaited)
	process.Fire("three", 2)
	fired := time.Now()
	release()
	tables := <-taken
	qt.Assert(t, qt.HasLen(tables, 1))
	qt.Check(t, qt.DeepEquals(rows(tables[0]), []string{"[] 2 ?"}))
	qt.Check(t, qt.IsFalse(tables[0].Time.Before(fired)))
}

func TestAggregationKeysOfTheProcess(t *testing.T) {
	process := start(t, "target-pie")
	ids := &trace.Aggregation{By: []string{"pid", "tid", "uid", "gid"}}
	sites := &trace.Aggregation{By: []string{"site"}}
	stacks := &trace.Aggregation{By: []string{"stack"}}
	s := open(t, process, "gousdt_test:three", aggregating(ids, sites, stacks))
	want := map[string]uint64{fmt.Sprint(process.PID, process.PID): 3}
	process.Fire("three", 3)
	for _, tid := range process.Thread("three", 4) {
		want[fmt.Sprint(process.PID, tid)]++
	}
	got := make(map[string]uint64)
	for _, row := range snapshot(t, ids).Rows {
		got[fmt.Sprint(row.Keys[0], row.Keys[1])] = row.Count
	}
	qt.Assert(t, qt.DeepEquals(got, want))

	bySite := snapshot(t, sites).Rows
	qt.Assert(t, qt.HasLen(bySite, 1))
	qt.Assert(t, qt.Equals(bySite[0].Count, 7))
	site := s.Attachments()[0].Sites()[0]
	qt.Assert(t, qt.Equals(bySite[0].Keys[0].Uint(), site.Location))

	var hits uint64
	for _, row := range snapshot(t, stacks).Rows {
		hits += row.Count
		qt.Check(t, qt.Equals(row.Keys[0].Uint(), uint64(process.PID)))
		testprog.RequireStacks(t)
		qt.Check(t, qt.IsTrue(row.Keys[0].IsPresent()))
		qt.Assert(t, qt.IsTrue(len(row.Stack) > 0))
		qt.Check(t, qt.Equals(row.Stack[0]%4096, s.Attachments()[0].Sites()[0].Location%4096))
	}
	qt.Assert(t, qt.Equals(hits, 7))
}

// The kernel has no room for all stacks that ever come: the session takes them.
func TestStacksAreTakenFromTheKernel(t *testing.T) {
	testprog.RequireStacks(t)
	process := start(t, "target-pie")
	stacks := &trace.Aggregation{By: []string{"stack", "probe"}}
	open(t, process, "gousdt_test:three", aggregating(stacks))
	var first []uint64
	for n := range 5 {
		process.Fire("three", n)
		if n > 0 {
			qt.Check(t, qt.Equals(sessionOf(stacks).KeptStacks(stacks), 1))
		}
		result := take(t, stacks)
		qt.Check(t, qt.Equals(sessionOf(stacks).KeptStacks(stacks), 0))
		if n == 0 {
			qt.Check(t, qt.HasLen(result.Rows, 0))
			continue
		}
		qt.Assert(t, qt.HasLen(result.Rows, 1))
		qt.Check(t, qt.Equals(result.Rows[0].Count, uint64(n)))
		if n == 1 {
			first = result.Rows[0].Stack
			qt.Assert(t, qt.IsTrue(len(first) > 0))
		}
		qt.Check(t, qt.DeepEquals(result.Rows[0].Stack, first))
	}
	// It is one row in all snapshots, although the kernel kept several stacks.
	for n := range uint64(3) {
		process.Fire("three", 1)
		result := snapshot(t, stacks).Rows
		qt.Assert(t, qt.HasLen(result, 1))
		qt.Check(t, qt.Equals(result[0].Count, n+1))
		qt.Check(t, qt.DeepEquals(result[0].Stack, first))
	}
}

func TestAggregationInEveryMode(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		got := aggregate(t, mode, trace.Aggregation{Value: "arg1", Sum: true, By: []string{"arg0"}},
			"inlined", 3)
		qt.Assert(t, qt.DeepEquals(rows(got),
			[]string{"[1] 3 -303", "[2] 3 -306", "[3] 3 -309", "[4] 3 -312", "[5] 3 -315"}))
	})
}

func TestTake(t *testing.T) {
	process := start(t, "target-pie")
	sums := &trace.Aggregation{Value: "arg1", Sum: true,
		By: []string{"arg0"}}
	histogram := &trace.Aggregation{Value: "arg0",
		Histogram: trace.Exponential(1, 0)}
	extremes := &trace.Aggregation{Value: "arg1", Min: true, Max: true,
		Where: "arg0 != 3"}
	opts := aggregating(sums, histogram, extremes)
	began := time.Now()
	open(t, process, "gousdt_test:inlined", opts)
	for _, a := range []*trace.Aggregation{sums, histogram, extremes} {
		qt.Assert(t, qt.HasLen(take(t, a).Rows, 0))
	}
	process.Fire("inlined", 3)
	first := snapshot(t, sums)
	qt.Assert(t, qt.IsTrue(began.Before(first.Start) && first.Start.Before(first.Time)))
	qt.Assert(t, qt.DeepEquals(rows(first),
		[]string{"[1] 3 -303", "[2] 3 -306", "[3] 3 -309", "[4] 3 -312", "[5] 3 -315"}))
	qt.Assert(t, qt.DeepEquals(rows(take(t, sums)), rows(first)))
	process.Fire("inlined", 2)
	second := take(t, sums)
	qt.Assert(t, qt.DeepEquals(rows(second),
		[]string{"[1] 2 -202", "[2] 2 -204", "[3] 2 -206", "[4] 2 -208", "[5] 2 -210"}))
	qt.Assert(t, qt.IsTrue(second.Start.After(first.Time)))
	qt.Assert(t, qt.HasLen(take(t, sums).Rows, 0))

	all := take(t, histogram).Rows[0]
	qt.Assert(t, qt.DeepEquals(buckets(all),
		[]string{"1..1 5", "2..2 5", "3..4 10", "5..8 5"}))
	qt.Assert(t, qt.Equals(all.Sum.Uint(), 75))
	process.Fire("inlined", 1)
	one := take(t, histogram).Rows[0]
	qt.Assert(t,
		qt.DeepEquals(buckets(one), []string{"1..1 1", "2..2 1", "3..4 2", "5..8 1"}))
	qt.Assert(t, qt.Equals(one.Sum.Uint(), 15))
	qt.Assert(t, qt.Equals(one.Count, 5))

	least := snapshot(t, extremes).Rows[0]
	qt.Assert(t, qt.Equals(fmt.Sprint(least.Count, least.Min, least.Max), "24 -105 -101"))
	take(t, extremes)
	qt.Assert(t, qt.HasLen(take(t, extremes).Rows, 0))
}

func take(t testing.TB, a *trace.Aggregation) *trace.Snapshot {
	t.Helper()
	all, err := sessionOf(a).Take(a)
	qt.Assert(t, qt.IsNil(err))
	return all[0]
}

func TestSessionsComputeTheirAggregations(t *testing.T) {
	a, other := &trace.Aggregation{}, &trace.Aggregation{}
	process := start(t, "target-pie")
	s := open(t, process, "gousdt_test:three", aggregating(other, a))
	process.Fire("three", 2)
	later := open(t, process, "gousdt_test:three", aggregating(a))
	process.Fire("three", 1)
	hits := func(s *trace.Session) uint64 {
		now, err := s.Snapshot(a)
		qt.Assert(t, qt.IsNil(err))
		return now.Rows[0].Count
	}
	qt.Check(t, qt.Equals(hits(s), 3))
	qt.Check(t, qt.Equals(hits(later), 1))
	_, err := later.Snapshot(other)
	qt.Check(t, qt.ErrorMatches(err, "the session does not compute this aggregation: .*"))
	_, err = later.Take(a, other)
	qt.Check(t, qt.ErrorMatches(err, "the session does not compute this aggregation: .*"))
	qt.Assert(t, qt.IsNil(s.Close()))
	_, err = s.Snapshot(a)
	qt.Check(t, qt.ErrorIs(err, os.ErrClosed))
	_, err = s.Take()
	qt.Check(t, qt.ErrorIs(err, os.ErrClosed))
	qt.Check(t, qt.Equals(hits(later), 1))
}

func TestLossesOfAggregations(t *testing.T) {
	process := start(t, "target-pie")
	probe := func(name string) []elfnote.Pattern {
		return []elfnote.Pattern{elfnote.Exact("gousdt_test", name)}
	}
	s := open(t, process, "gousdt_test:*", aggregating(
		// Memory that is not there.
		&trace.Aggregation{Probes: probe("fault"), Value: "arg1", Sum: true},
		// A register that is not saved.
		&trace.Aggregation{Probes: probe("vector"), By: []string{"arg1"}},
		// No such argument.
		&trace.Aggregation{Probes: probe("none"), By: []string{"arg0"}},
	))
	process.Fire("fault", 3)
	process.Fire("vector", 5)
	process.Fire("none", 7)
	losses, err := s.Losses()
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.Equals(losses, trace.Losses{Unreadable: 8}))
}

// A detached site leaves its number to another one, and its row stays.
func TestSitesAsKeysThatAreDetached(t *testing.T) {
	process := start(t, "target-pie")
	a := &trace.Aggregation{By: []string{"site"}}
	s := newSession(t, aggregating(a))
	hits := make(map[uint64]uint64)
	for i, probe := range []string{"three", "twelve", "three", "guarded", "three", "twelve"} {
		attached := attach(t, s, usdt.Target{Path: process.path}, "gousdt_test:"+probe, nil)
		process.Fire(probe, i+1)
		qt.Assert(t, qt.HasLen(attached.Sites(), 1))
		hits[attached.Sites()[0].Location] += uint64(i + 1)
		qt.Assert(t, qt.IsNil(attached.Close()))
	}
	qt.Check(t, qt.Equals(trace.SiteNumbers(s), 0))
	got := make(map[uint64]uint64)
	for _, row := range snapshot(t, a).Rows {
		got[row.Keys[0].Uint()] += row.Count
	}
	qt.Check(t, qt.DeepEquals(got, hits))
	qt.Check(t, qt.HasLen(snapshot(t, a).Rows, 3), qt.Commentf("a site has one row"))
}

func TestAggregationErrors(t *testing.T) {
	testprog.RequireBPF(t)
	pair := "a..b"
	for _, test := range []struct {
		aggregation trace.Aggregation
		want        string // after the aggregator
	}{
		{trace.Aggregation{Sum: true}, "Value: a sum, minimum, maximum or histogram needs .*"},
		{trace.Aggregation{Histogram: &trace.Histogram{}},
			"Value: a sum, minimum, maximum or histogram needs .*"},
		{trace.Aggregation{Value: "arg0", Histogram: trace.Linear(1, 10, 4)},
			"Histogram: the distance from low up to high must be a multiple of the step"},
		{trace.Aggregation{Value: "arg0", Histogram: trace.Linear(10, 1, 1)},
			"Histogram: the distance from low up to high must be a multiple of the step"},
		{trace.Aggregation{Value: "arg0", Histogram: trace.Limits(2, 1)},
			`(?s).*the limits must ascend.*`},
		{trace.Aggregation{Value: "arg0", Histogram: trace.Linear(0, 10, 0)},
			"Histogram: the distance from low up to high must be a multiple of the step"},
		{trace.Aggregation{Value: "arg0", Histogram: trace.Linear(0, math.MaxInt64, 1)},
			"Histogram: there are more than 65536 buckets.*"},
		{trace.Aggregation{Value: "arg0", Histogram: trace.Exponential(3, 0)},
			"Histogram: there can be 1, 2, 4, 8 or 16 buckets for a doubling"},
		{trace.Aggregation{Value: "arg0", Max: true, Histogram: trace.Linear(0, 8, 1)},
			"Histogram: a linear histogram has no Min and Max.*"},
		{trace.Aggregation{Value: "comm"},
			`Value: expression "comm", at column 1: a number is expected: .*`},
		{trace.Aggregation{Value: "arg"},
			`Value: expression "arg", at column 1: arg is not known.*`},
		{trace.Aggregation{By: []string{"pid", "12"}},
			`By\[1\]: expression "12", at column 1: a key is expected.*`},
		{trace.Aggregation{By: []string{"str(arg0, 256)", "str(arg1, 128)"}},
			"By: the keys take 408 bytes.*"},
		{trace.Aggregation{By: slices.Repeat([]string{"pid"}, 17)}, "By: 17 keys are more than 16"},
		{trace.Aggregation{MaxKeys: -1}, "MaxKeys: -1 is not between 0 and .*"},
		{trace.Aggregation{MaxKeys: 1 << 25}, "MaxKeys: .* is not between 0 and .*"},
		{trace.Aggregation{Where: "arg0 =="}, `Where: expression "arg0 ==", at column 8: .*`},
		{trace.Aggregation{Latency: &trace.Latency{}}, "Latency: Pair: no pair of probes is given"},
		{trace.Aggregation{Latency: &trace.Latency{Pair: pair, By: "comm"}},
			"Latency: By: .*a number is expected.*"},
		{trace.Aggregation{Latency: &trace.Latency{Pair: pair, By: "duration"}},
			"Latency: By: .*only a call between .*"},
		{trace.Aggregation{Latency: &trace.Latency{Pair: pair, By: "tid=("}},
			"Latency: By: expression .*"},
		{trace.Aggregation{Value: "start.arg0"}, "Value: .*only a call between .*"},
		{trace.Aggregation{By: []string{"duration"}}, `By\[0\]: .*only a call between .*`},
		{trace.Aggregation{Where: "duration > 5ms"},
			"Where: duration, failed and start.argN are known only at the end of a call: .*"},
		{trace.Aggregation{Where: "!(start.arg0 == 1)"},
			"Where: duration, failed and start.argN are known only at the end of a call: .*"},
	} {
		_, err := trace.New(aggregating(&trace.Aggregation{},
			&test.aggregation))
		qt.Check(t, qt.ErrorMatches(err, `option Aggregations\[1\]: `+test.want))
		var outer, inner *tracing.OptionError
		qt.Assert(t, qt.ErrorAs(err, &outer))
		qt.Check(t, qt.Equals(outer.Field, "Aggregations"))
		qt.Check(t, qt.Equals(outer.Index, 1))
		qt.Assert(t, qt.ErrorAs(outer.Err, &inner))
		qt.Check(t, qt.Equals(strings.HasPrefix(inner.Error(), inner.Field), true))
	}
	_, err := trace.New(&trace.SessionOptions{Aggregations: []*trace.Aggregation{nil}})
	qt.Check(t, qt.ErrorMatches(err, `option Aggregations\[0\]: the aggregation is nil`))
	// The hits of neither have a duration.
	_, err = trace.New(&trace.SessionOptions{Filter: "pid > 1 && duration > 5ms",
		Aggregations: []*trace.Aggregation{
			&trace.Aggregation{Latency: &trace.Latency{Pair: pair}},
			&trace.Aggregation{Value: "arg0", Sum: true}}})
	qt.Check(t, qt.ErrorMatches(err, `option Aggregations\[1\]: the filter asks for duration, .*`))
	_, err = trace.New(&trace.SessionOptions{Filter: "!failed", Events: &trace.EventOptions{},
		Aggregations: []*trace.Aggregation{
			&trace.Aggregation{Latency: &trace.Latency{Pair: pair}}}})
	qt.Check(t, qt.ErrorMatches(err, `option Events: there are no Spans: the filter asks for .*`))
	for value, want := range map[string]string{
		"arg0": ".*arg0 of gousdt_test:floats is a float.*",
		"arg7": ".*nothing can be measured: gousdt_test:.* has no arg7",
	} {
		_, err := trace.Open(usdt.Target{Path: testprog.Path(t, "target-pie")},
			aggregating(&trace.Aggregation{Value: value,
				Histogram: &trace.Histogram{}}),
			elfnote.Exact("gousdt_test", "floats"))
		qt.Check(t, qt.ErrorMatches(err, want))
	}
}

// buckets shows the buckets of a row that are not empty.
func buckets(row trace.Row) []string {
	var texts []string
	for _, b := range row.Histogram(0) {
		if b.Count > 0 {
			texts = append(texts, fmt.Sprintf("%v..%v %d", b.Low, b.High, b.Count))
		}
	}
	return texts
}

func TestHistogram(t *testing.T) {
	for _, test := range []struct {
		name, group, value string
		histogram          trace.Histogram
		by                 []string
		want               []string
		sum                string
	}{
		{"powers of two", "specs", "arg0", *trace.Exponential(1, 0), nil, []string{
			"0..0 1", "1..1 1", "2..2 1", "3..4 2", "5..8 4", "9..16 8", "17..32 16", "33..64 32",
			"65..128 64", "129..256 128", "257..512 43"}, "44850"},
		{"exponential", "specs", "arg0", trace.Histogram{}, nil, []string{
			"0..0 1", "1..1 1", "2..2 1", "3..3 1", "4..4 1", "5..5 1", "6..6 1", "7..7 1",
			"8..8 1", "9..9 1", "10..10 1", "11..11 1",
			"12..12 1", "13..13 1", "14..14 1", "15..16 2", "17..17 1", "18..19 2", "20..20 1",
			"21..22 2", "23..24 2", "25..26 2",
			"27..29 3", "30..32 3", "33..34 2", "35..38 4", "39..41 3", "42..45 4", "46..49 4",
			"50..53 4", "54..58 5", "59..64 6",
			"65..69 5", "70..76 7", "77..82 6", "83..90 8", "91..98 8", "99..107 9", "108..117 10",
			"118..128 11",
			"129..139 11", "140..152 13", "153..165 13", "166..181 16", "182..197 16",
			"198..215 18", "216..234 19", "235..256 22",
			"257..279 23", "280..304 20"}, "44850"},
		{"of a unit", "specs", "arg0", *trace.Exponential(1, 100), nil, []string{
			"0..0 1", "1..1 1", "2..3 2", "4..6 3", "7..12 6", "13..25 13", "26..50 25",
			"51..100 50", "101..200 100", "201..400 99"}, "44850"},
		{"limits", "specs", "arg0", *trace.Limits(0, 9, 250), nil,
			[]string{"0..0 1", "1..9 9", "10..250 241", "251..18446744073709551615 49"}, "44850"},
		{"negative limits", "inlined", "arg1", *trace.Limits(-104, 10), nil,
			[]string{"-9223372036854775808..-104 2", "-103..-1 3"}, "-515"},
		{"negative powers of two", "inlined", "arg1", *trace.Exponential(1, 0), nil,
			[]string{"-128..-65 5"}, "-515"},
		{"negative exponential", "inlined", "arg1", *trace.Exponential(16, 0), nil,
			[]string{"-107..-104 2", "-103..-99 3"}, "-515"},
		{"greatest powers of two", "stack", "arg7", *trace.Exponential(1, 0), nil,
			[]string{"9223372036854775809..18446744073709551615 1"}, "18000000000000000001"},
		{"least powers of two", "stack", "arg6", *trace.Exponential(1, 0), []string{"comm"},
			[]string{"-9223372036854775808..-4611686018427387905 1"}, "-9000000000000000001"},
		{"linear", "specs", "arg0", *trace.Linear(0, 300, 100), nil,
			[]string{"0..99 100", "100..199 100", "200..299 100"}, "44850"},
		{"linear with values outside", "specs", "arg0",
			*trace.Linear(100, 200, 50), []string{"probe"}, []string{
				"-9223372036854775808..99 100", "100..149 50", "150..199 50",
				"200..18446744073709551615 100"}, "44850"},
		{"negative linear", "inlined", "arg1", *trace.Linear(-105, -99, 2), nil,
			[]string{"-105..-104 2", "-103..-102 2", "-101..-100 1"}, "-515"},
		{"linear below all", "stack", "arg6", *trace.Linear(-10, 10, 5), nil,
			[]string{"-9223372036854775808..-11 1"}, "-9000000000000000001"},
		{"linear above all", "stack", "arg7", *trace.Linear(-10, 10, 5), nil,
			[]string{"10..18446744073709551615 1"}, "18000000000000000001"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := aggregate(t, usdt.ModeAuto, trace.Aggregation{Value: test.value,
				Histogram: &test.histogram, By: test.by}, test.group, 1)
			qt.Assert(t, qt.HasLen(got.Rows, 1))
			qt.Assert(t, qt.DeepEquals(buckets(got.Rows[0]), test.want))
			qt.Assert(t, qt.Equals(got.Rows[0].Sum.String(), test.sum))
		})
	}
}
