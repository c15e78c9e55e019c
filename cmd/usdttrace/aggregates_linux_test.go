// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
	"github.com/google/pprof/profile"

	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
)

func TestCountsAreATable(t *testing.T) {
	testprog.Parallel(t)
	p := startTarget(t, "target-pie")
	r := watching(t, "--count", "--by", "probe,comm", p.path, "gousdt_test:three",
		"gousdt_test:twelve", "gousdt_test:none")
	p.Fire("three", 30)
	p.Fire("twelve", 10)
	result := r.interrupt()
	checkLines(t, result.ok(),
		"count",
		"PROBE               COMM        COUNT +RATE      %",
		`gousdt_test:three   target-pie     30 +([\d.]+/s|-)  75.0%  #{32}`,
		`gousdt_test:twelve  target-pie     10 +([\d.]+/s|-)  25.0%  #{11}`)
	qt.Check(t, qt.StringContains(result.stderr, "40 events, 0 lost; 3 sites; "))
}

// checkLines compares lines with regular expressions.
func checkLines(t *testing.T, lines []string, want ...string) {
	t.Helper()
	qt.Assert(t, qt.HasLen(lines, len(want)))
	for i := range want {
		qt.Check(t, qt.Matches(lines[i], want[i]))
	}
}

func TestCountWithoutKeysIsByProbe(t *testing.T) {
	testprog.Parallel(t)
	p := startTarget(t, "target-pie")
	r := watching(t, "--count", p.path, "gousdt_test:*e*e*")
	p.Fire("three", 30)
	p.Fire("twelve", 2)
	checkLines(t, r.interrupt().ok(),
		"count",
		"PROBE               COUNT +RATE      %",
		`gousdt_test:three      30 +([\d.]+/s|-)  93.8%  #{32}`,
		`gousdt_test:twelve      2 +([\d.]+/s|-)   6.2%  ##`)
	r = watching(t, "--count", p.path, "gousdt_test:three")
	qt.Check(t, qt.DeepEquals(r.interrupt().ok(), []string{"count", "nothing"}))
}

func TestSitesAreAddresses(t *testing.T) {
	testprog.Parallel(t)
	p := startTarget(t, "target-pie")
	r := watching(t, "--count", "--by", "site", p.path, "gousdt_test:three")
	p.Fire("three", 3)
	lines := r.interrupt().ok()
	qt.Assert(t, qt.HasLen(lines, 3))
	qt.Check(t, qt.Matches(strings.Fields(lines[2])[0], "0x[0-9a-f]+"))
}

func TestSumsAreATable(t *testing.T) {
	testprog.Parallel(t)
	p := startTarget(t, "target-pie")
	r := watching(t, "--sum", "arg0", "--by", "probe", p.path, "gousdt_test:three",
		"gousdt_test:split")
	p.Fire("three", 3)
	p.Fire("split", 2)
	lines := r.interrupt().ok()
	qt.Assert(t, qt.HasLen(lines, 4))
	qt.Check(t, qt.DeepEquals(strings.Fields(lines[1]),
		[]string{"PROBE", "COUNT", "RATE", "AVERAGE", "P50", "P90", "P99", "MAX", "TOTAL", "%",
			"OF", "COUNT"}))
	for _, line := range lines[2:] {
		if strings.HasPrefix(line, "gousdt_test:three") {
			fields := strings.Fields(line)
			qt.Check(t, qt.DeepEquals(append(fields[1:2], fields[3:9]...),
				[]string{"3", "-2000000000", "-2000000000", "-2000000000", "-2000000000",
					"-2000000000", "-6000000000"}))
		}
	}
}

// The probe specs passes 0, 1, 2... up to 299.
func TestTablesAreSortedAndCut(t *testing.T) {
	testprog.Parallel(t)
	p := startTarget(t, "target-pie")
	r := watching(t, "--sum", "arg0", "--by", "arg0 & 3", "--sort", "max", "--top", "2", p.path,
		"gousdt_test:specs")
	p.Fire("specs", 2)
	const number = ` +[\d.]+`
	const rate = ` +([\d.]+/s|-) +`
	checkLines(t, r.interrupt().ok(),
		"sum of arg0",
		"ARG0 & 3  COUNT +RATE  AVERAGE    P50    P90    P99  MAX  TOTAL      %",
		"      +3    150"+rate+"151"+number+number+number+"  299  22650  25.3%  #{16}",
		"      +2    150"+rate+"150"+number+number+number+"  298  22500  25.1%  #{16}",
		`\(other\) +300`+rate+"148.5"+number+number+number+"  297  44550  49.7%  #{32}")

	r = watching(t, "--json", "--sum", "arg0", "--by", "arg0", "--max-keys", "10", p.path,
		"gousdt_test:specs")
	p.Fire("specs", 2)
	result := r.interrupt()
	rows := result.objects("row")
	qt.Assert(t, qt.HasLen(rows, 11))
	var hits uint64
	for i, row := range rows {
		hits += row.Count
		qt.Check(t, qt.Equals(row.Other == true, i == 10))
	}
	qt.Check(t, qt.Equals(hits, 600))
	summary := result.objects("summary")[0]
	qt.Check(t, qt.Equals(summary.Events, 600))
	qt.Check(t, qt.Equals(fmt.Sprint(summary.Other), "580"))
	qt.Check(t, qt.StringContains(result.stderr,
		"580 hits are of the less frequent keys in (other): there are more than 10 (--max-keys)\n"))
}

func TestHistogramsAreDrawn(t *testing.T) {
	testprog.Parallel(t)
	p := startTarget(t, "target-pie")
	// The probe specs passes 0, 1, 2... up to 299.
	r := watching(t, "--hist", "arg0", p.path, "gousdt_test:specs")
	p.Fire("specs", 1)
	checkLines(t, r.interrupt().ok(),
		"distribution of arg0",
		`count 300, rate ([\d.]+/s|-), average 149.5, p50 14\d[.\d]*, p90 2[67]\d[.\d]*, p99 29\d[.\d]*, max 299, total 44850`,
		"FROM   TO  COUNT      %",
		"   0    0      1   0.3%  #",
		"   1    1      1   0.3%  #",
		"   2    2      1   0.3%  #",
		"   3    4      2   0.7%  #",
		"   5    8      4   1.3%  #",
		"   9   16      8   2.7%  ##",
		"  17   32     16   5.3%  ####",
		"  33   64     32  10.7%  ########",
		"  65  128     64  21.3%  ################",
		" 129  256    128  42.7%  ################################",
		" 257  512     43  14.3%  ###########")
	r = watching(t, "--hist", "arg0", "--linear", "20:260:80", p.path, "gousdt_test:specs")
	p.Fire("specs", 1)
	checkLines(t, r.interrupt().ok(),
		"distribution of arg0",
		`count 300, rate ([\d.]+/s|-), average 149.5, total 44850`,
		"FROM    TO  COUNT      %",
		"less    19     20   6.7%  ########",
		"  20    99     80  26.7%  ################################",
		" 100   179     80  26.7%  ################################",
		" 180   259     80  26.7%  ################################",
		" 260  more     40  13.3%  ################")
}

func TestLatencyIsMeasuredBetweenTwoProbes(t *testing.T) {
	testprog.Parallel(t)
	p := startTarget(t, "target-pie")
	r := watching(t, "--json", "--latency", "three..twelve", "--by", "comm", p.path)
	for range 5 {
		p.Fire("three", 1)
		p.Fire("twelve", 1)
	}
	p.Fire("twelve", 1) // ends nothing
	result := r.interrupt()
	rows := result.objects("row")
	qt.Assert(t, qt.HasLen(rows, 1))
	qt.Check(t, qt.Equals(rows[0].Aggregation, "latency"))
	qt.Check(t, qt.Equals(rows[0].Count, 5))
	qt.Check(t, qt.DeepEquals(rows[0].Keys, map[string]any{"comm": "target-pie"}))
	qt.Check(t, qt.IsTrue(rows[0].Average > 1000 && rows[0].Average < 60e9),
		qt.Commentf("%v ns", rows[0].Average))
	qt.Check(t, qt.Equals(result.objects("summary")[0].Unmatched, 1))

	// A sum beside it is of the calls, unless other probes are given.
	for _, test := range []struct {
		args  []string
		count uint64
	}{
		{[]string{"--sum", "arg0"}, 2},
		{[]string{"--hist", "arg0", "--where", "duration > 1ns"}, 2},
		{[]string{"--sum", "start.arg0"}, 2},
		{[]string{"--sum", "arg0", "gousdt_test:three"}, 3},
	} {
		r = watching(t, append(test.args, "--json", "--latency", "three..twelve", p.path)...)
		p.Fire("three", 1)
		p.Fire("twelve", 1)
		p.Fire("three", 1)
		p.Fire("three", 1)
		p.Fire("twelve", 1)
		row := r.interrupt().objects("row")[0]
		qt.Check(t, qt.Not(qt.Equals(row.Aggregation, "latency")))
		qt.Check(t, qt.Equals(row.Count, test.count), qt.Commentf("%v", test.args))
	}
	for _, test := range [][2]string{
		{"--sum", "--sum arg5: no probe that ends a call has arg5 (start.arg5 is of the start)"},
		{"--by", "--by arg5: no probe that ends a call has arg5 (start.arg5 is of the start)"},
	} {
		wrong := start(t, "--latency", "twelve..three", test[0], "arg5", p.path).wait()
		qt.Check(t, qt.Equals(wrong.stderr, "usdttrace: "+test[1]+"\n"))
	}
	wrong := start(t, "--latency", "three..twelve", "--count", "--where", "duration > 1us",
		p.path).wait()
	qt.Check(t, qt.Equals(wrong.stderr, "usdttrace: --count: the filter asks for duration, failed or "+
		"start.argN, which only calls have (Latency), not hits\n"))

	r = watching(t, "--latency", "three..twelve", p.path)
	p.Fire("three", 1)
	p.Fire("twelve", 1)
	lines := r.interrupt().ok()
	qt.Check(t, qt.Equals(lines[0], "time from three to twelve"))
	qt.Check(t, qt.Matches(lines[1],
		`count 1, rate ([\d.]+/s|-), average [\d.]+(us|ms|s), p50 [\d.]+(us|ms|s), .*`))
	qt.Check(t, qt.Matches(lines[3], ` *[\d.]+(us|ms|s) +[\d.]+(us|ms|s) +1 +100.0%  #{32}`))
}

func TestLatencyWithoutOneEndIsAnError(t *testing.T) {
	testprog.Parallel(t)
	path := copyOf(t, "target-pie")
	r := start(t, "--latency", "thre..twelve", path).wait()
	qt.Check(t, qt.Equals(r.status, exitNothing))
	qt.Check(t, qt.StringContains(r.stderr, "no probe matches thre in "+path+
		" (nearest: gousdt_test:three"))
	r = start(t, "--latency", "three..twelve", "--match", "arg2=arg99", path).wait()
	qt.Check(t, qt.Equals(r.status, exitError))
	qt.Check(t,
		qt.Equals(r.stderr, "usdttrace: no pair of probes has the arguments that --match names\n"))
	// The other end might be in a file that is still to come.
	r = startWith(t, "quit\n", "--latency", "gousdt_test:thre..twelve", "--", path).wait()
	qt.Check(t, qt.Equals(r.status, exitNothing))
	qt.Check(t, qt.StringContains(r.stderr,
		"usdttrace: there is no pair of probes gousdt_test:thre..twelve"))
	p := testprog.Start(t, path)
	r = start(t, "--latency", "gousdt_test:thre..twelve", "-p", decimal(p.PID)).wait()
	qt.Check(t, qt.Equals(r.status, exitNothing))
	qt.Check(t, qt.StringContains(r.stderr,
		"usdttrace: there is no pair of probes gousdt_test:thre..twelve"))
	p.Stop()
}

func TestIntervalsStartAnew(t *testing.T) {
	testprog.Parallel(t)
	p := startTarget(t, "target-pie")
	r := watching(t, "--json", "--count", "--interval", "50ms", p.path, "gousdt_test:three")
	// One at a time: several hits might come in two intervals.
	p.Fire("three", 1)
	r.await(&r.stdout, `"count":1`)
	r.await(&r.stdout, `"keys":{},"count":0}`)
	p.Fire("three", 1)
	result := r.interrupt()
	rows := slices.DeleteFunc(result.objects("row"), func(row object) bool { return row.Count == 0 })
	qt.Assert(t, qt.HasLen(rows, 2))
	qt.Check(t, qt.Equals(rows[1].Count, 1))
	qt.Check(t, qt.Equals(result.objects("summary")[0].Events, 2))

	r = watching(t, "--count", "--interval", "50ms", p.path, "gousdt_test:three")
	r.await(&r.stdout, "  count\nnothing\n\n")
	r.interrupt()
	// Nor is a run without any table, however short its only interval is.
	result = watching(t, "--count", "--interval", "1h", p.path, "gousdt_test:three").interrupt()
	qt.Check(t, qt.Matches(result.stdout, `\d\d:\d\d:\d\d  count\nnothing\n`))
}

// An interval can end while sites are detached, for seconds on some kernels.
// Its rate is that of the time in which hits counted.
func TestRatesAreOfTheTimeThatCounts(t *testing.T) {
	testprog.Parallel(t)
	began := time.Now().Add(-time.Minute)
	over := moment{time: began.Add(time.Second)}
	tr := &tracer{prepared: prepared{options: &options{tableFlags: tableFlags{interval: time.Second}}},
		attached: attached{began: moment{time: began}},
		ended:    ended{done: make(chan struct{})}}
	table := &aggregation{rows: &eventRows{tracer: tr, since: began}}
	tr.asked = []*aggregation{table}
	tr.over.Store(&over)
	snapshots, err := tr.read(table)
	qt.Assert(t, qt.IsNil(err))
	snapshot := snapshots[0]
	qt.Check(t, qt.Equals(snapshot.Time.Sub(snapshot.Start), time.Second))
	// What is left of an interval after another table has none.
	tr.options.interval, tr.printer = time.Hour, newPrinter(tr)
	close(tr.done)
	table.shown = true
	qt.Assert(t, qt.IsNil(tr.printRows()))
	qt.Check(t, qt.IsTrue(table.isRest))
}

func TestSeveralAggregationsAtATime(t *testing.T) {
	testprog.Parallel(t)
	p := startTarget(t, "target-pie")
	r := watching(t, "--json", "--count", "--sum", "arg0", "--hist", "arg0", p.path,
		"gousdt_test:three")
	p.Fire("three", 2)
	var kinds []string
	for _, row := range r.interrupt().objects("row") {
		kinds = append(kinds, row.Aggregation)
		qt.Check(t, qt.Equals(row.Count, 2))
	}
	qt.Check(t, qt.DeepEquals(kinds, []string{"count", "sum", "hist"}))
}

func TestKeysAreShownAsWhatTheyAre(t *testing.T) {
	testprog.Parallel(t)
	p := startTarget(t, "target-pie")
	names := filepath.Join(t.TempDir(), "names.d")
	qt.Assert(t, qt.IsNil(os.WriteFile(names, []byte(`
enum color { green = -2000000000, red };
provider gousdt_test { probe three(color c, char *text, void *mutex); };
`), 0o644)))
	r := watching(t, "--names", names, "--count", "--by", "c,text,mutex,arg2,arg0 & 1", p.path,
		"gousdt_test:three")
	p.Fire("three", 2)
	lines := r.interrupt().ok()
	qt.Assert(t, qt.HasLen(lines, 3))
	qt.Check(t, qt.Matches(lines[2],
		`green\(-2000000000\)  hello, gousdt  0xf9ccd8a1c5080001  0xf9ccd8a1c5080001  +0  +2 .*`))
}

func TestStacksCanBeKeys(t *testing.T) {
	testprog.Parallel(t)
	testprog.RequireStacks(t)
	p := startTarget(t, "target-pie")
	r := watching(t, "--count", "--by", "stack,comm", p.path, "gousdt_test:three")
	p.Fire("three", 2)
	lines := r.interrupt().ok()
	qt.Assert(t, qt.IsTrue(len(lines) >= 3))
	qt.Check(t, qt.Matches(lines[1], `count 2, rate ([\d.]+/s|-), 100.0%, comm target-pie`))
	qt.Check(t, qt.Matches(lines[2], `    fire_three\+0x.*`))

	r = watching(t, "--json", "--count", "--by", "stack", p.path, "gousdt_test:three")
	p.Fire("three", 2)
	rows := r.interrupt().objects("row")
	qt.Assert(t, qt.HasLen(rows, 1))
	text, err := json.Marshal(rows[0].Keys["stack"])
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.StringContains(string(text), `"function":"fire_three"`))
}

func TestProfileOpensInPprof(t *testing.T) {
	testprog.Parallel(t)
	testprog.RequireStacks(t)
	p := startTarget(t, "target-pie")
	file := filepath.Join(t.TempDir(), "stacks.pb.gz")
	r := watching(t, "--pprof", file, "--sum", "arg2 & 255", p.path, "gousdt_test:three")
	p.Fire("three", 5)
	p.Stop() // the names are known after the end of the process
	result := r.interrupt()
	result.ok()
	qt.Check(t, qt.StringContains(result.stderr, "usdttrace: wrote 1 stack to "+file))
	hits := pprofTop(t, "-sample_index=hits", file)
	qt.Check(t, qt.Matches(hits["fire_three"], `5 +100% .*`))
	// 18000000000000000001 ends with the byte 1.
	sums := pprofTop(t, file)
	qt.Check(t, qt.Matches(sums["fire_three"], `5 +100% .*`))
}

func TestProfileReplacesTheFile(t *testing.T) {
	testprog.Parallel(t)
	p := startTarget(t, "target-pie")
	path := filepath.Join(t.TempDir(), "stacks.pb.gz")
	qt.Assert(t, qt.IsNil(os.WriteFile(path, make([]byte, 1<<20), 0o644)))
	r := watching(t, "--pprof", path, p.path, "gousdt_test:three")
	p.Fire("three", 1)
	r.interrupt().ok()
	qt.Check(t, qt.DeepEquals(hitsOf(t, path), []int64{1}))
}

// hitsOf returns how often each stack of a profile was hit.
func hitsOf(t *testing.T, path string) (hits []int64) {
	t.Helper()
	file, err := os.Open(path)
	qt.Assert(t, qt.IsNil(err))
	defer file.Close()
	read, err := profile.Parse(file)
	qt.Assert(t, qt.IsNil(err))
	for _, sample := range read.Sample {
		hits = append(hits, sample.Value[0])
	}
	return hits
}

// A profile is made from events while the kernel counts hits.
func TestProfileHasKeysAndSums(t *testing.T) {
	testprog.Parallel(t)
	p := startTarget(t, "target-pie")
	path := filepath.Join(t.TempDir(), "stacks.pb.gz")
	r := watching(t, "--json", "--count", "--pprof", path, "--by", "comm,probe,arg0", "--sum",
		"arg0", p.path, "gousdt_test:three")
	p.Fire("three", 5)
	result := r.interrupt()
	rows := result.objects("row")
	qt.Assert(t, qt.HasLen(rows, 2))
	qt.Check(t, qt.Equals(rows[0].Count, 5))
	qt.Check(t, qt.Equals(result.objects("summary")[0].Events, 5))

	file, err := os.Open(path)
	qt.Assert(t, qt.IsNil(err))
	defer file.Close()
	read, err := profile.Parse(file)
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.HasLen(read.Sample, 1))
	sample := read.Sample[0]
	qt.Check(t, qt.DeepEquals(sample.Value, []int64{5, -5 * 2_000_000_000}))
	qt.Check(t, qt.DeepEquals(sample.Label["comm"], []string{"target-pie"}))
	qt.Check(t, qt.DeepEquals(sample.Label["probe"], []string{"gousdt_test:three"}))
	qt.Check(t, qt.DeepEquals(sample.Label["arg0"], []string{"-2000000000"}))
}

// pprofTop returns the lines of go tool pprof -top by function.
func pprofTop(t *testing.T, args ...string) map[string]string {
	t.Helper()
	goCommand := testneeds.Tool(t, "go", "golang-go")
	out, err := exec.Command(goCommand,
		append([]string{"tool", "pprof", "-top"}, args...)...).CombinedOutput()
	qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", out))
	lines := make(map[string]string)
	for _, line := range strings.Split(string(out), "\n") {
		if fields := strings.Fields(line); len(fields) > 5 {
			lines[strings.Join(fields[5:], " ")] = strings.TrimSpace(line)
		}
	}
	return lines
}

func TestCostsAreTold(t *testing.T) {
	testprog.Parallel(t)
	p := startTarget(t, "target-pie")
	r := watching(t, "--stats", "--count", p.path, "gousdt_test:three")
	p.Fire("three", 20)
	qt.Check(t, qt.Matches(r.interrupt().stderr,
		`(?s).*PROGRAM +RUNS +NS/RUN +MISSED +INSTRUCTIONS\ngousdt_te_three +20 +\d+ +0 +\d+\nmemory in the kernel: .*`))

	r = watching(t, "--stats", "--json", "-p", decimal(p.PID), "gousdt_test:three")
	p.Fire("three", 20)
	p.Stop() // what was attached to an ended process is told too
	summary := r.wait().objects("summary")
	qt.Assert(t, qt.HasLen(summary, 1))
	qt.Assert(t, qt.HasLen(summary[0].Programs, 1))
	qt.Check(t, qt.Equals(summary[0].Programs[0].Runs, 20))
}

func TestValuesOfKeysHaveNames(t *testing.T) {
	testprog.Parallel(t)
	p := startTarget(t, "target-pie")
	names := filepath.Join(t.TempDir(), "names.d")
	qt.Assert(t, qt.IsNil(os.WriteFile(names, []byte(`
		enum hue { red, green };
		provider gousdt_test { probe specs(enum hue colour); probe three(int count, char *text, long colour); };
	`), 0o644)))
	for _, key := range []string{"colour", "arg0"} {
		r := watching(t, "--names", names, "--count", "--by", key, p.path, "gousdt_test:specs")
		p.Fire("specs", 1)
		text := r.interrupt().stdout
		qt.Check(t, qt.Matches(text, `(?s).*\n *red\(0\) +1 .*\n *green\(1\) +1 .*\n +2 +1 .*`))
	}
	r := watching(t, "--json", "--names", names, "--count", "--by", "colour", p.path,
		"gousdt_test:specs")
	p.Fire("specs", 1)
	qt.Check(t, qt.StringContains(r.interrupt().stdout,
		`"keys":{"colour":1,"colour_name":"green"},"count":1`))

	// The other probe has another argument there.
	r = watching(t, "--names", names, "--count", "--by", "colour", p.path, "gousdt_test:specs",
		"gousdt_test:three")
	p.Fire("specs", 1)
	qt.Check(t, qt.Not(qt.StringContains(r.interrupt().stdout, "green")))
}

// Floats are added up. They have no quantiles.
func TestFloatsAreAddedUp(t *testing.T) {
	testprog.Parallel(t)
	p := startTarget(t, "target-pie")
	r := watching(t, "--sum", "arg1", p.path, "gousdt_test:floats")
	p.Fire("floats", 3)
	lines := r.interrupt().ok()
	qt.Assert(t, qt.HasLen(lines, 3))
	qt.Check(t, qt.Matches(lines[1], "COUNT +RATE +AVERAGE +MAX +TOTAL"))
	qt.Check(t, qt.Matches(lines[2], " +3 .* -2.250 +-2.25 +-6.75"))

	// Also in what processes map, and by stacks.
	r = watching(t, "--sum", "arg1", "--by", "comm,stack", "-p", strconv.Itoa(p.PID),
		"gousdt_test:floats")
	p.Fire("floats", 2)
	qt.Check(t, qt.Matches(r.interrupt().ok()[1],
		"count 2, .* average -2.250, max -2.25, total -4.5, .*"))
	r = startWith(t, "fire floats 4\nquit\n", "--sum", "arg1", "gousdt_test:floats", "--", p.path)
	qt.Check(t, qt.Matches(r.wait().ok()[2], " +4 .* -2.250 +-2.25 +-9"))
}
