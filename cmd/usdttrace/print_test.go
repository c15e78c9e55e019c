// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"bytes"
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gdamore/tcell/v2"
	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/defs"
	"github.com/gousdt/gousdt/stack"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
)

// The names of probes are those of untrusted files, and are printed at each
// hit.
func TestLongProbeNamesAreCut(t *testing.T) {
	long := strings.Repeat("n", 1<<20)
	event := &trace.Event{Probe: long + ":" + long,
		Site: &trace.Site{Site: usdt.Site{Site: elfnote.Site{Provider: long, Name: long}}}}
	o := &options{}
	tracer := &tracer{prepared: prepared{options: o, targets: newTargets(o)}}
	var out strings.Builder
	for _, p := range []printer{&textPrinter{tracer: tracer, out: &out},
		&jsonPrinter{tracer: tracer, out: &out}} {
		out.Reset()
		p.event(event)
		qt.Check(t, qt.IsTrue(out.Len() < 1000), qt.Commentf("%d bytes", out.Len()))
		qt.Check(t, qt.StringContains(out.String(), "nnn..."))
	}
}

// What an event has in common with those before it is not built again.
func TestJSONIsOfItsOwnEvent(t *testing.T) {
	site := func(name string) *trace.Site {
		return &trace.Site{File: "/bin/" + name,
			Site: usdt.Site{Site: elfnote.Site{Provider: "p", Name: name}}}
	}
	one, two := site("one"), site("two")
	o := &options{}
	var out strings.Builder
	p := &jsonPrinter{tracer: &tracer{prepared: prepared{options: o, targets: newTargets(o)}}, out: &out}
	for _, test := range []struct {
		behaviour string
		event     trace.Event
		want      string
	}{
		{"the first one", trace.Event{Site: one},
			`"pid":0,"tid":0,"command":"","cpu":0,"provider":"p","name":"one","file":"/bin/one","location":0,"args":[]}`},
		{"another thread", trace.Event{PID: 1, TID: 2, Command: "a", Site: one},
			`"pid":1,"tid":2,"command":"a","cpu":0,"provider":"p","name":"one","file":"/bin/one","location":0,"args":[]}`},
		{"another process", trace.Event{PID: 3, TID: 2, Command: "a", Site: one},
			`"pid":3,"tid":2,"command":"a","cpu":0,"provider":"p","name":"one",`},
		{"another name of the thread", trace.Event{PID: 3, TID: 2, Command: "b\xff", Site: one},
			`"pid":3,"tid":2,"command":"b�","command_hex":"62ff","cpu":0,`},
		{"another site",
			trace.Event{Site: two,
				Args: []trace.Value{trace.ValueOf(int64(1)), trace.ValueOf(uint64(2))}},
			`"name":"two","file":"/bin/two","location":0,"args":[{"value":1},{"value":2}]}`},
		{"the same site with other values",
			trace.Event{Site: two, Args: []trace.Value{trace.ValueOf(int64(3)), {}}},
			`"name":"two","file":"/bin/two","location":0,"args":[{"value":3},{"value":null,"unavailable":true}]}`},
		{"the first site again", trace.Event{Site: one},
			`"name":"one","file":"/bin/one","location":0,"args":[]}`},
		{"a call of both", trace.Event{Site: two, Args: []trace.Value{trace.ValueOf(int64(4)), {}},
			Start: &trace.Event{Site: one}},
			`"start":{"provider":"p","name":"one","file":"/bin/one","location":0,"args":[]},"done":{"provider":"p","name":"two","file":"/bin/two","location":0,"args":[{"value":4},`},
	} {
		out.Reset()
		p.event(&test.event)
		qt.Check(t, qt.StringContains(out.String(), test.want), qt.Commentf(test.behaviour))
	}
}

// Two keys that differ in bytes that are not UTF-8 are two objects.
func TestJSONRowsKeepTheBytesOfKeys(t *testing.T) {
	o := &options{}
	var out strings.Builder
	p := &jsonPrinter{tracer: &tracer{prepared: prepared{options: o, targets: newTargets(o)}}, out: &out}
	snapshot := &trace.Snapshot{By: []string{"query"}, Rows: []trace.Row{
		{Keys: []trace.Value{trace.ValueOf("a\xff")}, Count: 1},
		{Keys: []trace.Value{trace.ValueOf("a\xfe")}, Count: 2},
		{Keys: []trace.Value{trace.ValueOf("plain")}, Count: 3},
	}}
	p.rows(&aggregation{kind: "count"}, snapshot)
	for _, want := range []string{
		`"keys":{"query":"a\uFFFD","query_hex":"61ff"},"count":1`,
		`"keys":{"query":"a\uFFFD","query_hex":"61fe"},"count":2`,
		`"keys":{"query":"plain"},"count":3`,
	} {
		qt.Check(t, qt.StringContains(out.String(), strings.ReplaceAll(want, `\uFFFD`, "\uFFFD")))
	}
}

func TestDurationsHaveThreeDigitsAndAUnit(t *testing.T) {
	for ns, want := range map[float64]string{
		0: "0ns", 1: "1ns", 512: "512ns", 999: "999ns", 1024: "1.02us", 65536: "65.5us",
		131072: "131us", 1e6: "1ms",
		1048576: "1.05ms", 1.5e9: "1.50s", 3.6e12: "3600s", 12.34: "12.3ns", 99.96: "100ns",
		9.999: "10.0ns",
	} {
		qt.Check(t, qt.Equals(formatDuration(ns), want), qt.Commentf("%v", ns))
	}
	for x, want := range map[float64]string{149.5: "149.5", -2e9: "-2000000000", 3.14159: "3.142",
		12345.6: "12346", 1.5e308: "1.5e+308", 9.123456e18: "9.123e+18", 1e15: "1e+15",
		math.NaN(): "-", math.Inf(1): "+Inf"} {
		qt.Check(t, qt.Equals(formatAverage(x), want))
	}
}

func TestSummarySaysWhoseEventsWereLost(t *testing.T) {
	s := &summary{losses: losses{Losses: trace.Losses{Events: 15},
		owners: []ownerLoss{{cgroup: 7, events: 12}, {user: 1000, events: 3}}}}
	qt.Check(t, qt.StringContains(s.text(),
		"\nof the lost events 12 of cgroup 7\nof the lost events 3 of user 1000\n"))
}

func TestSummarySaysWhichKeysHaveNoRow(t *testing.T) {
	// Each bucket of a histogram takes room in the kernel: 112 keys can be too
	// many at once, and are not more than 16384.
	s := &summary{others: 7, overflow: 7, maxKeys: 16384}
	qt.Check(t, qt.IsFalse(strings.Contains(s.text(), "16384")), qt.Commentf("%s", s.text()))
	s.others++
	qt.Check(t, qt.StringContains(s.text(), "\n1 hits are of the less frequent keys in (other): "+
		"there are more than 16384 (--max-keys)\n7 hits are in (other) because "))
}

func TestSummarySaysWhichCallsMayBeOfCoroutines(t *testing.T) {
	s := &summary{losses: losses{Losses: trace.Losses{Left: 32, Unmatched: 33}}}
	qt.Check(t, qt.StringContains(s.text(), "\nabout as many calls were left as ends have no start: "))
	s.losses.Unmatched = 3 // had begun before
	qt.Check(t, qt.Not(qt.StringContains(s.text(), "coroutines")))
}

// What has no time is no call for which a condition is known.
func TestSummarySaysThatCallsWithoutATimeAreCountedAnyhow(t *testing.T) {
	s := &summary{losses: losses{Losses: trace.Losses{Exited: 2}}}
	qt.Check(t, qt.Not(qt.StringContains(s.text(), "--where")))
	s.where = true
	qt.Check(t, qt.StringContains(s.text(), "\ncalls that are not measured are counted whether --where "))
	s.losses.Exited, s.losses.Events = 0, 1
	qt.Check(t, qt.Not(qt.StringContains(s.text(), "--where")))
}

// All ends without a start are of calls whose start was forgotten, if none had
// begun before.
func TestSummarySaysWhichCallsWereTooDeep(t *testing.T) {
	s := &summary{losses: losses{Losses: trace.Losses{Replaced: 40, Unmatched: 30}}}
	qt.Check(t, qt.StringContains(s.text(), "\nup to 30 of these calls may have been around more than 64 others"))
	s.watched = true
	qt.Check(t, qt.StringContains(s.text(), "\n30 of these calls were around more than 64 others"))
	s.losses.Starts = 1 // has an end, too
	qt.Check(t, qt.StringContains(s.text(), "\nup to 30 of these calls may "))
}

func TestSummarySaysWhichKeysHaveNoValueInAWorker(t *testing.T) {
	s := &summary{losses: losses{Losses: trace.Losses{Unreadable: 2}}}
	for _, test := range []struct {
		by   []string
		want string
	}{
		{[]string{"user", "activity", "pid"}, "a pointer was null or near it (user, activity: of a process"},
		{[]string{"application"}, "a pointer was null or near it, or its page"},
	} {
		tr := &tracer{prepared: prepared{options: &options{}, targets: &targets{definitions: defs.Builtin()}}}
		tr.options.patterns = []elfnote.Pattern{elfnote.Exact("postgresql", "query__start")}
		tr.options.by = test.by
		s.behind, s.unread = tr.keysBehindPointers(), tr.options.unread()
		lacks := "2 not aggregated: a value or key could not be read: " + test.want
		qt.Check(t, qt.StringContains(s.text(), "\n"+lacks))
		qt.Check(t, qt.Matches(s.quietText(), regexp.QuoteMeta(lacks)+".*\n"))
	}
	tr := &tracer{prepared: prepared{options: &options{}, targets: &targets{definitions: defs.Builtin()}}}
	tr.options.where = `user == "web"`
	tr.options.patterns = []elfnote.Pattern{elfnote.MustParsePattern("postgresql:*")}
	s.behind, s.unread = tr.keysBehindPointers(), tr.options.unread()
	qt.Check(t, qt.StringContains(s.text(),
		"\n2 left out: what --where compares could not be read: a pointer was null or near it (user: "))
	tr.options.count = true
	s.unread = tr.options.unread()
	qt.Check(t, qt.StringContains(s.quietText(), "2 not aggregated: a value or key, or what --where compares, "))
	tr.options.where, tr.options.sumIsFloat = "", true
	s.unread = tr.options.unread()
	qt.Check(t, qt.StringContains(s.text(), "\n2 not aggregated: a float was infinite or no number, or a value"))
}

// A process that SIGTRAP has ended is named only if it may run what is watched.
func TestProcessesThatRunNoWatchedFileAreNotNamed(t *testing.T) {
	for command, want := range map[string]bool{"postgres": true, "a-long-name-of-": true, "python3": true,
		"": true, "php": false, "sh": false} {
		qt.Check(t, qt.Equals(mayRun(command, map[string]bool{"postgres": true, "a-long-name-of-15": true,
			"python3.11": true}), want), qt.Commentf("%s", command))
	}
	qt.Check(t, qt.IsTrue(mayRun("php", map[string]bool{"libphp.so.8": true})))
}

func TestSummarySaysHowManyStacksWereCut(t *testing.T) {
	s := &summary{frames: &stack.Counts{Frames: 9}}
	qt.Check(t, qt.Not(qt.StringContains(s.text(), "cut")))
	s.frames.CutStacks = 2
	qt.Check(t, qt.StringContains(s.text(),
		"\n2 stacks cut: deeper, or costlier to unwind, than a limit allows\n"))
}

// Tables are no wider than the terminal, however large the numbers are.
func TestTablesOfLargeNumbersFitTheTerminal(t *testing.T) {
	for _, width := range []int{60, 80, 120} {
		for _, count := range []uint64{7, 123_456, 1_234_567, 123_456_789_012} {
			for _, by := range [][]string{nil, {"str(arg0)"}, {"comm", "str(arg0)"}} {
				row := trace.Row{Count: count, Partial: true, Sum: trace.ValueOf(count * 1000),
					Min: trace.ValueOf(uint64(1)), Max: trace.ValueOf(count)}
				for range by {
					row.Keys = append(row.Keys, trace.ValueOf(strings.Repeat("select ", 20)))
				}
				s := &trace.Snapshot{By: by, Rows: []trace.Row{row}}
				s.Time = s.Start.Add(time.Second)
				for _, sums := range []bool{false, true} {
					var out bytes.Buffer
					a := &aggregation{kind: kindSum, title: "t", Aggregation: trace.Aggregation{
						Sum: sums, Max: sums, Histogram: &trace.Histogram{}}}
					tr := &tracer{prepared: prepared{options: &options{}, targets: &targets{}}}
					p := &textPrinter{tracer: tr, out: &out,
						width: width}
					p.rows(a, s)
					for line := range strings.Lines(out.String()) {
						qt.Check(t, qt.IsTrue(len(strings.TrimRight(line, " \n")) <= width),
							qt.Commentf("%d: %s", width, line))
					}
				}
			}
		}
	}
}

// What ends without a start had begun before, except in a command that was
// watched from its start.
func TestEndsWithoutAStartInACommand(t *testing.T) {
	for watched, want := range map[bool]string{true: "without a start\n", false: "had begun before\n"} {
		s := &summary{watched: watched, losses: losses{Losses: trace.Losses{Unmatched: 2}}}
		qt.Check(t, qt.StringContains(s.text(), want))
	}
}

// The window of --live has the hits of the last minute, and little more.
func TestLiveHasTheLastMinute(t *testing.T) {
	a := &aggregation{Aggregation: trace.Aggregation{MaxKeys: 2}}
	l := &live{tables: make(map[*aggregation]*liveRows)}
	began := time.Unix(1e9, 0)
	const step = 300 * time.Millisecond
	total := uint64(0)
	for n := range 700 {
		s := &trace.Snapshot{Start: began.Add(time.Duration(n) * step),
			Time: began.Add(time.Duration(n+1) * step), By: []string{"tid"},
			Rows: []trace.Row{{Keys: []trace.Value{trace.ValueOf(uint64(n / 500))}, Count: 1}}}
		total++
		qt.Assert(t, qt.Equals(l.add(a, s).Rows[0].Count, min(total, 500)))
		rows := l.tables[a]
		of := together(a.MaxKeys, slices.Clone(rows.visible[lastMinute])...)
		took, hits := of.Time.Sub(of.Start), uint64(0)
		for _, row := range of.Rows {
			hits += row.Count
		}
		qt.Assert(t, qt.Equals(time.Duration(hits)*step, took), qt.Commentf("step %d", n))
		all := s.Time.Sub(began)
		qt.Assert(t, qt.IsTrue(took >= min(all, minute) && took <= min(all, minute+minutePart)),
			qt.Commentf("%v of %v", took, all))
		qt.Assert(t, qt.IsTrue(len(rows.parts) <= 15), qt.Commentf("%d", len(rows.parts)))
	}
	qt.Check(t, qt.HasLen(l.tables[a].visible[lastInterval], 1))
	l.paused = true
	before := l.tables[a].visible
	l.add(a, &trace.Snapshot{Start: began.Add(700 * step), Time: began.Add(701 * step)})
	qt.Check(t, qt.IsTrue(slices.Equal(l.tables[a].visible[lastMinute], before[lastMinute])))
}

// The keys are whole on a narrow terminal, and each window says what it is.
func TestLiveOnNarrowTerminals(t *testing.T) {
	for _, width := range []int{60, 80, 120} {
		screen := tcell.NewSimulationScreen("UTF-8")
		qt.Assert(t, qt.IsNil(screen.Init()))
		screen.SetSize(width, 12)
		o := &options{}
		tr := &tracer{prepared: prepared{options: o, targets: newTargets(o)}}
		a := &aggregation{kind: kindSum, title: "sum of arg0", Aggregation: trace.Aggregation{
			Sum: true, Max: true, Histogram: &trace.Histogram{}, By: []string{"query"}, MaxKeys: 10}}
		tr.asked = []*aggregation{a}
		l := &live{screen: screen, open: true, title: "usdttrace --live",
			status: "watching 1 site (Ctrl-C ends)",
			tables: make(map[*aggregation]*liveRows)}
		shown := func() (all []string) {
			cells, columns, rows := screen.GetContents()
			qt.Assert(t, qt.Equals(columns, width))
			for y := range rows {
				line := ""
				for _, cell := range cells[y*width:][:width] {
					line += string(cell.Runes)
				}
				all = append(all, strings.TrimRight(line, " "))
			}
			return all
		}
		now := time.Unix(1e9, 0)
		for n := range 3 {
			l.add(a, &trace.Snapshot{Start: now.Add(time.Duration(n) * time.Second),
				Time: now.Add(time.Duration(n+1) * time.Second), By: a.By, Rows: []trace.Row{{Count: 123_456,
					Sum: trace.ValueOf(uint64(123_456_789)), Max: trace.ValueOf(uint64(654_321)),
					Keys: []trace.Value{trace.ValueOf(strings.Repeat("select ", 30))}}}})
		}
		l.sort = "p99"
		for _, want := range []struct{ state, count string }{{"since the start", "370368"},
			{"last 3 s", "370368"}, {"each interval", "123456"}} {
			l.draw(tr)
			lines := shown()
			qt.Check(t, qt.Matches(lines[2], `QUERY +COUNT.* P99 .*TOTAL .*`), qt.Commentf("%d", width))
			qt.Check(t, qt.Matches(lines[3], `select.* `+want.count+` .*100.0%.*`))
			qt.Check(t, qt.Matches(lines[10], `watching 1 site \(Ctrl-C ends\) .*`+want.state))
			qt.Check(t, qt.Matches(lines[11], `enter .* i window .* q quit`))
			l.key(tr, tcell.NewEventKey(tcell.KeyRune, 'i', 0))
		}
		screen.Fini()
	}
}

// randomList returns elements of a list, with what is shown of them: one of
// constants of equal form that follow each other where they are joined.
func randomList(r *rand.Rand, depth int, joins bool) (text, want string) {
	var texts, wants []string
	for range 1 + r.IntN(5) {
		list, short := func(joins bool) string { return "" }, ""
		if depth > 0 {
			list = func(joins bool) (text string) {
				text, short = randomList(r, depth-1, joins)
				return text
			}
		}
		element, shown := "x", "x"
		switch n := r.IntN(14); {
		case n < 7:
			element, shown = []string{"17", "-1.5e3", "'it''s, ('", "NULL", "TRUE", "$a$, NULL$a$",
				"/* , */ 0x1f"}[n], "?"
		case n == 7:
			element, shown = "'{1,2}'::text", "? :: text"
		case n == 8:
			element, shown = "DEFAULT", "DEFAULT"
		case n == 9:
			element, shown = "x is null", "x is null"
		case depth == 0:
		case n == 10:
			element = "f(" + list(false) + ")"
			shown = "f ( " + short + " )"
		case n == 11:
			element = "ARRAY[" + list(true) + "]"
			shown = "ARRAY [ " + short + " ]"
		case n == 12:
			element = "y in(" + list(true) + ")"
			shown = "y in ( " + short + " )"
		case n == 13:
			row := list(true)
			element = "(values (" + row + "), (" + row + "))"
			shown = "( values ( " + short + " ) )"
		}
		texts = append(texts, element)
		if last := len(wants) - 1; !joins || shown[0] != '?' || last < 0 || wants[last] != shown {
			wants = append(wants, shown)
		}
	}
	return strings.Join(texts, []string{",", ", ", " ,\n"}[r.IntN(3)]), strings.Join(wants, ", ")
}

func TestNormalizeListsOfAnything(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		text, want := randomList(r, 3, true)
		qt.Assert(t, qt.Equals(normalizer("sql")("insert into t values ("+text+"), ("+text+") returning x"),
			"insert into t values ( "+want+" ) returning x"), qt.Commentf("%s", text))
	}
}

// The title of live tables is a command line that shows the same.
func TestLiveTitle(t *testing.T) {
	const line = "usdttrace --live --latency postgresql:statement --by query --where 'pid != 1' " +
		"--normalize sql --sort p99 --top 5 --interval=2s --max-keys 100 -p 1 -f"
	words := strings.Fields(strings.ReplaceAll(line, "'pid != 1'", "pid!=1"))
	o, err := parseCommandLine(words[1:])
	qt.Assert(t, qt.IsNil(err))
	o.where = "pid != 1"
	qt.Check(t, qt.Equals(o.commandLine(), strings.ReplaceAll(line, "=2s", " 2s")))
}

func TestNormalize(t *testing.T) {
	for _, test := range []struct{ dialect, text, want string }{
		{"sql", "SELECT abalance FROM pgbench_accounts WHERE aid = 17;",
			"SELECT abalance FROM pgbench_accounts WHERE aid = ?"},
		{"sql", "UPDATE t SET a = a + -2312 WHERE b = 'it''s'",
			"UPDATE t SET a = a + ? WHERE b = ?"},
		{"sql", `select 'a\', "Id" from t -- 5`, `select ?, "Id" from t`},
		{"mysql", `select 'a\', 5' from t`, `select ? from t`},
		{"sql", "select x\n\tfrom t where id in (1, 2, 3)", "select x from t where id in ( ? )"},
		{"sql", "/* traceparent='00-ab' */ select $1 as y", "select $1 as y"},
		{"sql", "select * from t where name = 'cut her", "select * from t where name = ?"},
		{"sql", "select 1 /*traceparent='00-4bf9", "select ?"},
		{"sql", "select $a$cut her", "select ?"},
		{"mysql", "select 5 /*cut her", "select ?"},
		{"sql", "/* a /* b */ SECRET */ select 1 /* /* */ */ from t", "select ? from t"},
		{"sql", "select 1 /* a /* b */ SECRET", "select ?"},
		{"mysql", "select x--1, y from t -- 5", "select x - ?, y from t"},
		{"mysql", "select 1 --\tSECRET\nfrom t--", "select ? from t"},
		{"sql", "select 1_000_567, 0x_ff, 0b1_01, 1_0.5_0e1_0, t1_0 from t",
			"select ?, ?, ?, ?, t1_0 from t"},
		{"sql", "select x-1, f(x) -2, $1-3, 4-5", "select x - ?, f ( x ) - ?, $1 - ?, ? - ?"},
		{"sql", "select x+1 from t", "select x + ? from t"},
		{"sql", "select -1 where a in (-1, +2) and b = -3 and c between -4 and -5 limit -6",
			"select ? where a in ( ? ) and b = ? and c between ? and ? limit ?"},
		{"sql", "", ""},

		// Lists, also of parameters, rows and what was cut.
		{"sql", "select x from t where id in (1, 2, 'cut", "select x from t where id in ( ? )"},
		{"sql", "select x from t where id in (1, -", "select x from t where id in ( ? )"},
		{"sql", "select x from t where id in (1, 2,", "select x from t where id in ( ? )"},
		{"sql", "select x from t where id in ($1, $2, $3) and y = $4",
			"select x from t where id in ( $1 ) and y = $2"},
		{"sql", "select x from t where id in (1, null)", "select x from t where id in ( ? )"},
		{"sql", "select x from t where (a, b) in ((1, 2), (3, 4), (5",
			"select x from t where ( a, b ) in ( ( ? ) )"},
		{"sql", "select x from t where id in (select a, a from t where b in ($1, $2)) and c is null",
			"select x from t where id in ( select a, a from t where b in ( $1 ) ) and c is null"},
		{"sql", "select x from t where id in (a, b, 1", "select x from t where id in ( a, b, ?"},
		{"sql", `select "in ( $1, $2 )" from t`, `select "in ( $1, $2 )" from t`},
		{"sql", "insert into t (a, b) values (1, 2), (3, null), ( null,4 ) returning a, b",
			"insert into t ( a, b ) values ( ? ) returning a, b"},
		{"sql", "insert into t values ($1, $2), ($3, $4), ($5, $6) on conflict do update set a = $7",
			"insert into t values ( $1, $2 ) on conflict do update set a = $3"},
		{"sql", "insert into t values (1, now()), (2, now()), (3, default), (4, now())",
			"insert into t values ( ?, now ( ) ), ( ?, default )"},
		{"sql", "insert into t values (1, 2), (3, ", "insert into t values ( ? )"},
		{"sql", "insert into t values (1, 2),", "insert into t values ( ? )"},
		{"sql", "insert into t values (1, 'cut", "insert into t values ( ? )"},
		{"sql", "insert into t values (now(", "insert into t values ( now ("},
		{"mysql", "insert into t values (1), (2) on duplicate key update a = values(a), b = values(b)",
			"insert into t values ( ? ) on duplicate key update a = values ( a ), b = values ( b )"},
		{"sql", "select * from (values (1, NULL, 'x')) v(a,b,c)",
			"select * from ( values ( ? ) ) v ( a, b, c )"},
		{"sql", "select * from (values (1, NULL, NULL, NULL)) v(a)",
			"select * from ( values ( ? ) ) v ( a )"},
		{"sql", "select greatest(1, NULL, 2, now() is null, 3)",
			"select greatest ( ?, ?, ?, now ( ) is null, ? )"},
		{"sql", `INSERT INTO "acct" ("id","bal","owner") VALUES (1, NULL, NULL)`,
			`INSERT INTO "acct" ( "id", "bal", "owner" ) VALUES ( ? )`},
		{"sql", "insert into t values (1, default, 2, 3, f(x, 4, NULL, y), 5)",
			"insert into t values ( ?, default, ?, f ( x, ?, ?, y ), ? )"},

		// Only the lists of IN and VALUES, and arrays, are of any length.
		{"sql", "select round(2.5), round(2.5, 0), substr('abc', 1, 2), a[1], (1, 2) = (x, 3)",
			"select round ( ? ), round ( ?, ? ), substr ( ?, ?, ? ), a [ ? ], ( ?, ? ) = ( x, ? )"},
		{"sql", "select x = any(ARRAY[1,2]), ARRAY [ [1,2], [3,4] ], array['a'::text, 'b'::text], " +
			"array[x, 1, 2]",
			"select x = any ( ARRAY [ ? ] ), ARRAY [ [ ? ] ], array [ ? :: text ], array [ x, ? ]"},
		{"sql", "select ARRAY[1, 2, 'cut", "select ARRAY [ ? ]"},
		{"sql", "select x from t where id in ('a'::uuid, 'b'::uuid, 'cut'::uu",
			"select x from t where id in ( ? :: uuid )"},
		{"sql", "select x in (select 1, 2, 3), extract(epoch from f(a, 1, NULL, b))",
			"select x in ( select ?, ?, ? ), extract ( ? from f ( a, ?, ?, b ) )"},
		{"sql", `select x in (E'a\' 5', 'b')`, "select x in ( E ?, ? )"},
		{"sql", "(values (1), (2)) union select f(3, 4)", "( values ( ? ) ) union select f ( ?, ? )"},
		{"mysql", "select f(?, ?) where x in (?, ?) and y in (/* a */ 'b', \"c\")",
			"select f ( ?, ? ) where x in ( ? ) and y in ( ? )"},

		// Names of savepoints.
		{"sql", "SAVEPOINT sp15513107531905013529", "SAVEPOINT ?"},
		{"sql", "SAVEPOINT __asyncpg_savepoint_161__;", "SAVEPOINT ?"},
		{"sql", `RELEASE SAVEPOINT "s 3"`, "RELEASE SAVEPOINT ?"},
		{"sql", "release sa_savepoint_3", "release ?"},
		{"sql", "ROLLBACK TO sp_1; ROLLBACK  WORK TO SAVEPOINT sp_2",
			"ROLLBACK TO ?; ROLLBACK WORK TO SAVEPOINT ?"},
		{"sql", "ROLLBACK", "ROLLBACK"},
		{"sql", "select savepoint a", "select savepoint a"},
	} {
		qt.Check(t, qt.Equals(normalizer(test.dialect)(test.text), test.want))
	}
	keys := (&options{tableFlags: tableFlags{normalize: normalizer("sql")}}).normalizeKeys()
	qt.Check(t, qt.Equals(keys("client", "127.0.0.1"), "127.0.0.1"))
	qt.Check(t, qt.Equals(keys("start.query", "select 1"), "select ?"))
	_, err := parseCommandLine([]string{"-a", "--count", "--normalize", "html", "*"})
	qt.Check(t, qt.ErrorMatches(err, `--normalize "html": want sql or mysql`))
}

// Texts are untrusted, and may be no SQL.
func FuzzNormalize(f *testing.F) {
	for _, text := range []string{"select $a$ b $a$ 'c\\' \"d", "[a].`b` /* - -- # 0x1e-5 e'\\",
		"\xff\x00日"} {
		f.Add(text)
	}
	sql, mysql := normalizer("sql"), normalizer("mysql")
	f.Fuzz(func(t *testing.T, text string) {
		sql(text)
		mysql(text)
	})
}
