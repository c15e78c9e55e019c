// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package trace_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
)

// aggregate fires a group some times and returns what the aggregation came to.
func aggregate(
	t *testing.T, mode usdt.Mode, a trace.Aggregation, group string, times int,
) *trace.Snapshot {
	t.Helper()
	process := start(t, "target-pie")
	aggregator := trace.NewAggregator(a)
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
		want                      string // count sum min max average
	}{
		{"count", "inlined", "", "", "", "10 ? ? ? NaN"},
		{"signed in registers and memory", "inlined", "arg1", "", all, "10 -1030 -105 -101 -103"},
		{"unsigned constants", "specs", "arg0", "", all, "600 89700 0 299 149.5"},
		{"condition", "specs", "arg0", "arg0 >= 290", all, "20 5890 290 299 294.5"},
		{"signed 8 bits", "sizes", "arg0", "", all, "2 -200 -100 -100 -100"},
		{"unsigned 16 bits", "sizes", "arg3", "", all, "2 120000 60000 60000 60000"},
		{"signed 64 bits", "stack", "arg6", "", "min max",
			"2 ? -9000000000000000001 -9000000000000000001 NaN"},
		{"unsigned 64 bits", "stack", "arg7", "", "min max",
			"2 ? 18000000000000000001 18000000000000000001 NaN"},
		{"masked", "inlined", "arg0 & 3", "", all, "10 14 0 3 1.4"},
		{"float of 4 bytes", "floats", "arg0", "", all, "2 3 1.5 1.5 1.5"},
		{"negative float of 8 bytes", "floats", "arg1", "", all, "2 -4.5 -2.25 -2.25 -2.25"},
		{"large float", "floats", "arg3", "", "max", "2 ? ? 9e+299 NaN"},
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
			qt.Assert(t, qt.Equals(fmt.Sprint(row.Count, row.Sum, row.Min, row.Max, row.Average()),
				test.want))
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
			a := trace.NewAggregator(trace.Aggregation{By: test.by, Value: test.value,
				Sum: test.value != ""})
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

func TestAggregationKeysOfTheProcess(t *testing.T) {
	process := start(t, "target-pie")
	ids := trace.NewAggregator(trace.Aggregation{By: []string{"pid", "tid", "uid", "gid"}})
	sites := trace.NewAggregator(trace.Aggregation{By: []string{"site"}})
	stacks := trace.NewAggregator(trace.Aggregation{By: []string{"stack"}})
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
	stacks := trace.NewAggregator(trace.Aggregation{By: []string{"stack", "probe"}})
	open(t, process, "gousdt_test:three", aggregating(stacks))
	var first []uint64
	for n := range 5 {
		process.Fire("three", n)
		if n > 0 {
			qt.Check(t, qt.Equals(trace.KeptStacks(stacks), 1))
		}
		result, err := stacks.Take()
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.Equals(trace.KeptStacks(stacks), 0))
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
	sums := trace.NewAggregator(trace.Aggregation{Value: "arg1", Sum: true,
		By: []string{"arg0"}})
	histogram := trace.NewAggregator(trace.Aggregation{Value: "arg0",
		Histogram: trace.Exponential(1, 0)})
	extremes := trace.NewAggregator(trace.Aggregation{Value: "arg1", Min: true, Max: true,
		Where: "arg0 != 3"})
	opts := aggregating(sums, histogram, extremes)
	began := time.Now()
	open(t, process, "gousdt_test:inlined", opts)
	for _, a := range []*trace.Aggregator{sums, histogram, extremes} {
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

func take(t testing.TB, a *trace.Aggregator) *trace.Snapshot {
	t.Helper()
	s, err := a.Take()
	qt.Assert(t, qt.IsNil(err))
	return s
}

func TestAggregatorBelongsToOneSession(t *testing.T) {
	a := trace.NewAggregator(trace.Aggregation{})
	_, err := a.Snapshot()
	qt.Assert(t, qt.ErrorMatches(err, "the aggregator has no session: .*"))

	s := newSession(t, aggregating(a))
	_, err = trace.New(aggregating(trace.NewAggregator(trace.Aggregation{}), a))
	qt.Assert(t,
		qt.ErrorMatches(err, `option Aggregators\[1\]: another session has this aggregator`))
	qt.Assert(t, qt.HasLen(snapshot(t, a).Rows, 0))
	qt.Assert(t, qt.IsNil(s.Close()))
	_, err = a.Snapshot()
	qt.Assert(t, qt.ErrorIs(err, os.ErrClosed))
	_, err = a.Take()
	qt.Assert(t, qt.ErrorIs(err, os.ErrClosed))

	newSession(t, aggregating(a)) // when the one before is closed
	qt.Assert(t, qt.HasLen(snapshot(t, a).Rows, 0))
}

func TestLossesOfAggregations(t *testing.T) {
	process := start(t, "target-pie")
	probe := func(name string) []elfnote.Pattern {
		return []elfnote.Pattern{elfnote.Exact("gousdt_test", name)}
	}
	s := open(t, process, "gousdt_test:*", aggregating(
		// Memory that is not there.
		trace.NewAggregator(trace.Aggregation{Probes: probe("fault"), Value: "arg1", Sum: true}),
		// A register that is not saved.
		trace.NewAggregator(trace.Aggregation{Probes: probe("vector"), By: []string{"arg1"}}),
		// No such argument.
		trace.NewAggregator(trace.Aggregation{Probes: probe("none"), By: []string{"arg0"}}),
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
	a := trace.NewAggregator(trace.Aggregation{By: []string{"site"}})
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
