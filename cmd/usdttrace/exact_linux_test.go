// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/csv"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/commandline"
	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/stack"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
)

// The output is exact: no hit is counted twice, and no call takes longer than
// the tracing.

func TestFileOfTwoNamesIsWatchedOnce(t *testing.T) {
	testprog.Parallel(t)
	path := copyOf(t, "target-static")
	other := filepath.Join(t.TempDir(), "other")
	qt.Assert(t, qt.IsNil(os.Symlink(path, other)))
	result := startWith(t, "fire three 3\nquit\n", "--json", "--count", path, other, path,
		"gousdt_test:three", "--", path).wait()
	rows := result.objects("row")
	qt.Assert(t, qt.HasLen(rows, 1))
	qt.Check(t, qt.Equals(rows[0].Count, uint64(3)))
	qt.Check(t, qt.Equals(result.objects("summary")[0].Sites, 1))
	qt.Check(t, qt.StringContains(result.stderr,
		other+" is the same file as "+path+", and is watched once"))
}

func TestNoCallOfACommandTakesLongerThanItsTracing(t *testing.T) {
	testprog.Parallel(t)
	path := copyOf(t, "calls")
	for range 5 { // the two were once in a race
		result := startWith(t, "deep\n", "--json", "--latency", "gousdt_calls:inner", path, "--", path).wait()
		rows := result.objects("row")
		qt.Assert(t, qt.HasLen(rows, 1))
		longest, err := rows[0].Max.Float64()
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.IsTrue(longest <= 1e9*result.objects("summary")[0].Seconds),
			qt.Commentf("%s", result.stdout))
	}
}

// Sites are attached and detached one after the other. Counting begins and ends
// for all of them at the same moment.
func TestCountsOfProbesCanBeCompared(t *testing.T) {
	testprog.Parallel(t)
	path := copyOf(t, "calls")
	callAlways(t, path)
	for _, how := range [][]string{{path}, {"--interval", "30ms", path}} {
		var result result
		var started, ended uint64
		// None of the threads may have run in a short time.
		for duration := 100 * time.Millisecond; started == 0; duration *= 2 {
			qt.Assert(t, qt.IsTrue(duration < runDeadline))
			args := append([]string{"--json", "--count", "--duration", duration.String()}, how...)
			result = start(t, append(args, "gousdt_calls:*")...).wait()
			counts := make(map[any]uint64)
			for _, row := range result.objects("row") {
				counts[row.Keys["probe"]] += row.Count
			}
			started, ended = counts["gousdt_calls:left__start"], counts["gousdt_calls:left__done"]
		}
		qt.Check(t, qt.IsTrue(max(started, ended)-min(started, ended) <= 4),
			qt.Commentf("%d and %d", started, ended))
		qt.Check(t, qt.Equals(result.objects("summary")[0].Events, started+ended))
	}
}

// callAlways runs a program that makes calls in four threads.
func callAlways(t *testing.T, path string) {
	cmd := exec.Command(path, "always")
	stdin, err := cmd.StdinPipe()
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(cmd.Start()))
	t.Cleanup(func() {
		stdin.Close()
		cmd.Process.Kill()
		cmd.Wait()
	})
}

// Each call is in all tables, and in those of the same interval.
func TestTablesAreOfTheSameCalls(t *testing.T) {
	testprog.Parallel(t)
	path := copyOf(t, "calls")
	counts := func(r result) map[string][]uint64 {
		counts := make(map[string][]uint64)
		for _, row := range r.objects("row") {
			if probe := row.Keys["probe"]; probe == nil || probe == "gousdt_calls:left__done" {
				counts[row.Aggregation] = append(counts[row.Aggregation], row.Count)
			}
		}
		qt.Check(t, qt.DeepEquals(counts["sum"], counts["latency"]))
		return counts
	}
	tables := []string{"--json", "--sum", "duration", "--latency", "gousdt_calls:left", path}
	r := watching(t, append(tables, "--count", "--interval", "20ms")...)
	callAlways(t, path) // no call begins before
	r.awaitCount(&r.stdout, `"latency"`, testprog.Soak(20, 200))
	all := counts(r.interrupt())
	qt.Check(t, qt.DeepEquals(all["count"], all["latency"]))

	for range testprog.Soak(3, 100) { // of calls that began before, too
		counts(start(t, append(tables, "--duration", "50ms")...).wait())
	}
}

// Beside a profile of some hits all of them may be counted. No event stands for
// the hits that came after the last sampled one.
func TestAnEventStandsForThoseThatWereNotSampled(t *testing.T) {
	testprog.Parallel(t)
	s := &summary{events: 200, collected: collected{events: 10, weight: 100},
		losses: losses{Losses: trace.Losses{NotSampled: 190, Unrepresented: 100}}}
	qt.Check(t, qt.StringContains(s.text(), "190 hits not sampled: each event stands for those of "+
		"its process and site before it, on average for 10 hits\n"+
		"100 hits came after the last one that was taken in their process and at their site: "))
}

// Stacks that are unwound here are counted from events, which can be lost.
func TestSharesOfLostEventsAreNotKnown(t *testing.T) {
	testprog.Parallel(t)
	for said, lost := range map[bool]uint64{true: 3, false: 0} {
		s := &summary{fromEvents: true, losses: losses{Losses: trace.Losses{Events: lost}}}
		qt.Check(t, qt.Equals(strings.Contains(s.text(), "\ncounts and shares are of the hits that were not lost"),
			said))
	}
}

// Where starts and ends seem not to belong together, the flag is named that may
// help, and not the reasons of other losses.
func TestMismatchesNameTheFlag(t *testing.T) {
	testprog.Parallel(t)
	for match, want := range map[string]string{
		"arg0": "calls may end elsewhere: --match arg0?\n", "": "calls may end elsewhere: --match?\n",
	} {
		s := &summary{losses: losses{Losses: trace.Losses{Unfinished: 20, Unmatched: 20, Replaced: 3,
			Mismatch: "calls may end elsewhere", Match: match}}}
		qt.Check(t, qt.StringContains(s.text(), "3 not measured: starts without an end\n"+
			"20 not measured: calls that were still running\n"+
			"20 not measured: ends without a start\n"+want))
	}
	o := &options{}
	o.match = "arg0"
	tr := &tracer{prepared: prepared{options: o, targets: newTargets(o)}}
	l := &losses{Losses: trace.Losses{Unmatched: 2}}
	qt.Check(t, qt.HasLen(tr.reasons(l, nil), 0)) // they may have begun before
	l.Exited = 2
	qt.Check(t, qt.StringContains(strings.Join(tr.reasons(l, nil), "\n"),
		"--match compares values within a process"))
	s := &summary{losses: losses{Losses: trace.Losses{NoTables: "/a/b"}}}
	qt.Check(t, qt.StringContains(s.text(), "/a/b: no unwinding tables (.eh_frame) for the probes"))
}

// The total of a profile is all hits, also those of stacks without a row.
func TestProfileHasTheHitsOfOtherStacks(t *testing.T) {
	testprog.Parallel(t)
	o := &options{tableFlags: tableFlags{by: []string{"stack", "tid"}}}
	tr := &tracer{prepared: prepared{options: o},
		opened: opened{stacks: stack.NewSymbolizer("")}}
	defer tr.stacks.Close()
	a := &aggregation{kind: kindProfile}
	row := trace.Row{Keys: []trace.Value{trace.ValueOf(uint64(1)), trace.ValueOf(uint64(2))},
		Count: 5}
	p := tr.profileOf(a, &trace.Snapshot{
		By: o.by, Rows: []trace.Row{row}, Other: trace.Row{Count: 7},
	})
	var folded strings.Builder
	qt.Assert(t, qt.IsNil(p.WriteFolded(t.Context(), &folded)))
	qt.Check(t, qt.Equals(folded.String(), "stack=(other);[unknown] 7\ntid=2;[unknown] 5\n"))
}

// Hits that come while sites are attached, one after the other, are outside of
// the measured time.
func TestWhatIsMeasuredBeginsWhenAllIsAttached(t *testing.T) {
	testprog.RequireBPF(t)
	p := startTarget(t, "target-pie")
	latency := trace.Latency{Pair: "gousdt_test:three..gousdt_test:twelve"}
	ends := &trace.Aggregation{Latency: &latency}
	hits := &trace.Aggregation{}
	opts := &trace.SessionOptions{Aggregations: []*trace.Aggregation{ends, hits}}
	session, err := trace.Open(usdt.Target{Path: p.path}, opts,
		elfnote.MustParsePattern("gousdt_test:t[hw]*e"))
	qt.Assert(t, qt.IsNil(err))
	defer session.Close()
	tr := &tracer{prepared: prepared{options: &options{},
		messages: commandline.NewMessages("usdttrace", io.Discard)},
		opened: opened{session: session, asked: []*aggregation{{inKernel: ends}, {inKernel: hits}}},
		ended:  ended{done: make(chan struct{})}}
	tr.ctx, tr.end = context.WithCancel(context.Background())
	p.Fire("twelve", 10) // ends without a start
	qt.Assert(t, qt.IsNil(tr.startMeasuring()))
	p.Fire("twelve", 5)
	tr.watchEnd()
	tr.end()
	<-tr.done
	qt.Check(t, qt.IsNil(tr.lost.err))
	qt.Check(t, qt.Equals(tr.lost.Unmatched, 5))
	for _, a := range tr.asked {
		snapshots, err := tr.read(a)
		qt.Assert(t, qt.IsNil(err))
		snapshot := snapshots[0]
		// A count divided by the summary's time is the rate of the row, but for
		// the time that beginning takes.
		qt.Check(t, qt.IsFalse(snapshot.Start.Before(tr.began.time)))
		qt.Check(t, qt.IsTrue(snapshot.Time.Sub(snapshot.Start) <= tr.took()))
		if a.inKernel == hits {
			qt.Assert(t, qt.HasLen(snapshot.Rows, 1))
			qt.Check(t, qt.Equals(snapshot.Rows[0].Count, 5))
		}
	}
}

// Events are not read before all sites are attached. Those that have come by
// then are not printed, and those that found no room are not reported.
func TestEventsAreOfTheTimeMeasured(t *testing.T) {
	testprog.RequireBPF(t)
	p := startTarget(t, "target-pie")
	opts := &trace.SessionOptions{Events: &trace.EventOptions{RingSize: 4096, ReuseEvents: true}}
	session, err := trace.Open(usdt.Target{Path: p.path}, opts, elfnote.MustParsePattern("gousdt_test:specs"))
	qt.Assert(t, qt.IsNil(err))
	defer session.Close()
	var stderr strings.Builder
	tr := &tracer{prepared: prepared{options: &options{},
		messages: commandline.NewMessages("usdttrace", &stderr), out: commandline.NewWriter(io.Discard)},
		opened: opened{session: session},
		ended:  ended{done: make(chan struct{})}}
	tr.ctx, tr.end = context.WithCancel(context.Background())
	p.Fire("specs", 30) // 9000 hits, more than fit into the largest page
	losses, err := session.Losses()
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsTrue(losses.Events > 0))
	qt.Assert(t, qt.IsNil(tr.startMeasuring()))
	tr.watchEnd()
	tr.end()
	tr.printer = &jsonPrinter{tracer: tr, out: io.Discard}
	var counted collected
	qt.Check(t, qt.IsNil(tr.collectEvents(&counted, new(sync.Mutex))))
	<-tr.done
	if tr.began.monotonic != 0 { // in a time namespace it is not known
		qt.Check(t, qt.Equals(counted.events, 0))
	}
	qt.Check(t, qt.Equals(tr.lost.Events, 0))
	qt.Check(t, qt.IsFalse(strings.Contains(stderr.String(), "being lost")))
}

func TestLossesSince(t *testing.T) {
	testprog.Parallel(t)
	before := losses{
		Losses: trace.Losses{Events: 10, Unreadable: 1, Starts: 2, NotSampled: 3,
			Unrepresented: 2, Left: 2, Replaced: 4, Unmatched: 5, Processes: 6},
		owners: []ownerLoss{{cgroup: 1, events: 9}, {user: 2, events: 1}},
	}
	now := losses{
		Losses: trace.Losses{Events: 25, Unreadable: 2, Starts: 4, NotSampled: 6,
			Unrepresented: 1, Left: 5, Replaced: 8, Unmatched: 10, Processes: 6},
		owners: []ownerLoss{{cgroup: 1, events: 10}, {cgroup: 3, events: 9},
			{user: 2, events: 6}, {user: 4, events: 0}},
	}
	since := now.since(before)
	// Descendants that are not watched are not watched for the whole time.
	qt.Check(t, qt.Equals(since.Losses,
		trace.Losses{Events: 15, Unreadable: 1, Starts: 2, NotSampled: 3, Left: 3, Replaced: 4, Unmatched: 5,
			Processes: 6}))
	want := []ownerLoss{{cgroup: 3, events: 9}, {user: 2, events: 5}, {cgroup: 1, events: 1}}
	qt.Check(t, qt.IsTrue(slices.Equal(since.owners, want)), qt.Commentf("%v", since.owners))
}

// A name that contains the word is not a term about containers, which not every
// machine has.
func TestOnlyConditionsOnContainersNeedThem(t *testing.T) {
	testprog.Parallel(t)
	for where, want := range map[string]bool{
		`comm == "containerd"`: false, `container == "4c01db"`: true,
		`pid == 1 && container != "4c01db"`: true,
		`pid == 1`:                          false,
	} {
		o := &options{scopeFlags: scopeFlags{where: where}}
		needs := o.needsContainers(&trace.SessionOptions{Filter: where}) != ""
		qt.Check(t, qt.Equals(needs, want), qt.Commentf("%s", where))
	}
}

// Sites of several files are told apart: they can have the same address.
func TestSitesOfSeveralFilesHaveTheirFile(t *testing.T) {
	testprog.Parallel(t)
	rows := func(files ...string) (text, json string) {
		var out bytes.Buffer
		s := &trace.Snapshot{By: []string{"site"}}
		for _, file := range files {
			site := &trace.Site{File: file}
			site.Location = 0x1139
			s.Rows = append(s.Rows, trace.Row{Keys: []trace.Value{trace.ValueOf(site.Location)},
				Site: site, Count: 1})
		}
		tr := &tracer{prepared: prepared{options: &options{}, targets: &targets{}}}
		a := &aggregation{kind: kindCount}
		(&textPrinter{tracer: tr, out: &out}).rows(a, s)
		text = out.String()
		out.Reset()
		(&jsonPrinter{tracer: tr, out: &out}).rows(a, s)
		return text, out.String()
	}
	text, json := rows("/lib/a.so", "/lib/b.so")
	qt.Check(t, qt.StringContains(text, "\n0x1139 a.so "))
	qt.Check(t, qt.StringContains(text, "\n0x1139 b.so "))
	qt.Check(t, qt.StringContains(json, `"keys":{"site":4409,"site_file":"/lib/b.so"}`))
	text, _ = rows("/opt/a.so", "/lib/a.so")
	qt.Check(t, qt.StringContains(text, "\n0x1139 /lib/a.so "))
	text, _ = rows("/lib/a.so", "/lib/a.so")
	qt.Check(t, qt.StringContains(text, "\n0x1139 "))
	qt.Check(t, qt.IsFalse(strings.Contains(text, "a.so")))
}

// A profile is written as a whole or not at all.
func TestProfilesAreWrittenWhole(t *testing.T) {
	testprog.Parallel(t)
	folder := t.TempDir()
	path, link := filepath.Join(folder, "a"), filepath.Join(folder, "link")
	write := func(path, text string, err error) error {
		file, err2 := commandline.CreateOutput(path)
		qt.Assert(t, qt.IsNil(err2))
		defer file.Abandon()
		return file.WriteWhole(func(w io.Writer) error {
			io.WriteString(w, text)
			return err
		})
	}
	read := func() string {
		text, err := os.ReadFile(path)
		qt.Assert(t, qt.IsNil(err))
		return string(text)
	}
	qt.Check(t, qt.ErrorIs(write(path, "cut", io.ErrShortWrite), io.ErrShortWrite))
	left, err := os.ReadDir(folder)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.HasLen(left, 0))

	qt.Check(t, qt.IsNil(write(path, "first, the longer one", nil)))
	qt.Assert(t, qt.IsNil(os.Chmod(path, 0o640)))
	qt.Check(t, qt.ErrorIs(write(path, "cut", io.ErrShortWrite), io.ErrShortWrite))
	qt.Check(t, qt.Equals(read(), "first, the longer one"))

	qt.Assert(t, qt.IsNil(os.Symlink(path, link)))
	qt.Check(t, qt.IsNil(write(link, "by a link", nil)))
	qt.Check(t, qt.Equals(read(), "by a link"))
	info, err := os.Lstat(link)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(info.Mode().Type(), os.ModeSymlink))
	info, err = os.Stat(path)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(info.Mode().Perm(), 0o640))

	second := filepath.Join(folder, "b")
	qt.Assert(t, qt.IsNil(os.Link(path, second)))
	qt.Check(t, qt.IsNil(write(second, "both", nil)))
	qt.Check(t, qt.Equals(read(), "both"))
	qt.Check(t, qt.IsNil(write("/dev/null", "nothing", nil)))
	qt.Check(t, qt.ErrorMatches(write("/dev/full", "nothing", nil),
		"/dev/full is incomplete: writing it: no space left on device"))
	open, err := os.OpenFile(path, os.O_RDWR, 0) // as a shell has the file of standard output
	qt.Assert(t, qt.IsNil(err))
	defer open.Close()
	qt.Assert(t, qt.IsNil(os.Remove(second)))
	qt.Check(t, qt.IsNil(write(fmt.Sprintf("/dev/fd/%d", open.Fd()), "same", nil)))
	text, err := io.ReadAll(open)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(string(text), "same"))
	left, err = os.ReadDir(folder)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.HasLen(left, 2))
}

// Comma-separated values have as many columns on each line, whatever keys are.
func TestTablesAsCSV(t *testing.T) {
	testprog.Parallel(t)
	var out bytes.Buffer
	count := &aggregation{kind: kindCount, Aggregation: trace.Aggregation{By: []string{"str(arg0)"}}}
	sum := &aggregation{kind: kindSum, Aggregation: trace.Aggregation{By: []string{"pid"}, Sum: true}}
	p := newPrinter(&tracer{prepared: prepared{targets: &targets{},
		options: &options{outputFlags: outputFlags{csv: true}}},
		opened: opened{asked: []*aggregation{count, sum}}})
	p.(*csvPrinter).values = &out
	_, isMessage := p.(*csvPrinter).out.(messageWriter) // of calls that go on, which are no rows
	qt.Check(t, qt.IsTrue(isMessage))
	texts := []string{"plain", "a \"quote\", and\r\nlines", "zero\x00", "not \xff UTF-8", ""}
	now := time.Now()
	s := &trace.Snapshot{By: []string{"str(arg0)"}, Other: trace.Row{Count: 3}, Start: now,
		Time: now.Add(4 * time.Second)}
	for _, text := range texts {
		s.Rows = append(s.Rows, trace.Row{Count: 2, Keys: []trace.Value{trace.ValueOf(text)}})
	}
	p.rows(count, s)
	p.rows(sum, &trace.Snapshot{By: []string{"pid"}, Rows: []trace.Row{{Count: 4,
		Keys: []trace.Value{trace.ValueOf(uint64(17))}, Sum: trace.ValueOf(int64(-10))}}})
	qt.Check(t, qt.StringContains(out.String(), `,"a ""quote"", and`+"\r\nlines\""))
	qt.Check(t, qt.Equals(strings.Count(out.String(), "\r"), 1)) // nor is one added
	lines, err := csv.NewReader(&out).ReadAll()                  // fails for ragged rows
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.HasLen(lines, 1+len(texts)+1+1))
	qt.Check(t, qt.DeepEquals(lines[0][3:9],
		[]string{"other", "str(arg0)", "pid", "count", "rate", "sum"}))
	texts[1] = "a \"quote\", and\nlines" // the reader drops a carriage return, also where it was written
	texts[2], texts[3] = `zero\x00`, `not \xff UTF-8`
	for i, text := range texts {
		qt.Check(t, qt.DeepEquals(lines[1+i][3:9], []string{"false", text, "", "2", "0.5", ""}))
	}
	qt.Check(t, qt.DeepEquals(lines[6][3:9], []string{"true", "", "", "3", "0.75", ""}))
	qt.Check(t, qt.DeepEquals(lines[7][3:10], []string{"false", "", "17", "4", "", "-10", "-2.5"}))
	// An interval without hits has a row.
	out.Reset()
	p.(*csvPrinter).tracer.options.interval = time.Second
	p.rows(count, &trace.Snapshot{By: s.By, Start: s.Start, Time: s.Time})
	p.rows(sum, &trace.Snapshot{By: []string{"pid"}, Start: s.Start, Time: s.Time})
	lines, err = csv.NewReader(&out).ReadAll()
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.HasLen(lines, 2))
	qt.Check(t, qt.DeepEquals(lines[0][3:], []string{"false", "", "", "0", "0", "", "", "", "", "", "", ""}))
	qt.Check(t, qt.DeepEquals(lines[1][3:], []string{"false", "", "", "0", "0", "0", "", "", "", "", "", ""}))
	// What an interval has left over has no rate, nor have a few microseconds.
	row := trace.Row{Count: 8, Keys: []trace.Value{trace.ValueOf("")}}
	for took, isRest := range map[time.Duration]bool{time.Second: true, 16 * time.Microsecond: false} {
		out.Reset()
		count.isRest = isRest
		s := &trace.Snapshot{By: s.By, Start: now, Time: now.Add(took), Rows: []trace.Row{row}}
		p.rows(count, s)
		qt.Check(t, qt.StringContains(out.String(), ",8,,"), qt.Commentf("%v", took))
		qt.Check(t, qt.Equals(columnsOf(count, s)[1].text(&row), "-"))
	}
	count.isRest = false
	for _, isTerminal := range []bool{false, true} { // which must not be given control characters
		out.Reset()
		p.(*csvPrinter).onTerminal = isTerminal
		row := trace.Row{Keys: []trace.Value{trace.ValueOf("\x1b[3Jä")}}
		p.rows(count, &trace.Snapshot{By: s.By, Rows: []trace.Row{row}})
		qt.Check(t, qt.Equals(strings.Contains(out.String(), "\x1b"), !isTerminal))
		qt.Check(t, qt.Equals(strings.Contains(out.String(), `\x1b[3Jä`), isTerminal))
	}
	_, err = parseCommandLine([]string{"-a", "--csv", "p:n"})
	qt.Check(t, qt.ErrorMatches(err, "--csv is for tables: .*"))
}

// A key that is cut says so, also as CSV.
func TestCutKeysAsCSV(t *testing.T) {
	testprog.Parallel(t)
	p := startTarget(t, "target-pie")
	r := watching(t, "--csv", "--count", "--by", "str(arg1,3)", p.path, "gousdt_test:three")
	p.Fire("three", 1)
	text := testprog.ExpectedProbe(machine(t, p.path), "three").Hits[0][1].Text
	qt.Check(t, qt.StringContains(r.interrupt().stdout, ",false,"+text[:3]+"...,1,"))
}

// callTimes are what a function has in all of its calls.
type callTimes struct {
	count uint64
	took  time.Duration
}

// ownByPath runs a script. It returns the own times of its calls by their path,
// and what the script printed of each function.
func ownByPath(
	t *testing.T, pair, probed, name, script string, run ...string,
) (own, said map[string]callTimes) {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	qt.Assert(t, qt.IsNil(os.WriteFile(path, []byte(script), 0o644)))
	args := append([]string{"--json", "--latency", pair, "--self", "--sum", "duration",
		"--by", "calls(function)", probed, "--"}, run...)
	result := start(t, append(args, path)...).wait()
	own, said = make(map[string]callTimes), make(map[string]callTimes)
	var all, outermost time.Duration
	for _, row := range result.objects("row") {
		path, _ := row.Keys["calls(function)"].(string)
		sum, err := row.Sum.Int64()
		qt.Assert(t, qt.IsNil(err))
		switch took := time.Duration(sum); {
		case row.Aggregation == kindSelf:
			own[path] = callTimes{row.Count, took}
			all += took
		case !strings.Contains(path, ";"):
			outermost += took
		}
	}
	qt.Check(t, qt.Equals(all, outermost), qt.Commentf("own times are all of the time, to the nanosecond"))
	summary := result.objects("summary")[0]
	qt.Check(t, qt.Equals(fmt.Sprint(summary.Unmatched, summary.Left, summary.Replaced, summary.Unfinished),
		"0 0 0 0"), qt.Commentf("%s", result.stderr))
	lines := bufio.NewScanner(strings.NewReader(result.stderr))
	for lines.Scan() {
		var name string
		var count uint64
		var took float64
		if n, _ := fmt.Sscanf(lines.Text(), "said %s %d %g", &name, &count, &took); n == 3 {
			said[name] = callTimes{count, time.Duration(took * 1e6)}
		}
	}
	qt.Assert(t, qt.IsTrue(len(own) > 0 && len(said) > 0), qt.Commentf("%s", result.stderr))
	return own, said
}

// pathsFrom returns the paths from a function on, with their counts.
func pathsFrom(own map[string]callTimes, name string) (all []string) {
	for path, of := range own {
		if i := strings.Index(";"+path+";", ";"+name+";"); i >= 0 {
			all = append(all, fmt.Sprintf("%s %d", path[i:], of.count))
		}
	}
	slices.Sort(all)
	return all
}

// check compares the own times of functions with what a profiler says.
func checkOwnTimes(t *testing.T, own, said map[string]callTimes, leasts map[string]time.Duration) {
	t.Helper()
	found := make(map[string]callTimes)
	for path, of := range own {
		name := path[strings.LastIndex(path, ";")+1:]
		found[name] = callTimes{found[name].count + of.count, found[name].took + of.took}
	}
	for _, name := range slices.Sorted(maps.Keys(said)) {
		is, says := found[name], said[name]
		qt.Check(t, qt.Equals(is.count, says.count), qt.Commentf("%s", name))
		// The profiler's part of a call is around what the probes see, and the
		// traced lines are in what both see.
		least, most := leasts[name], says.took+says.took/10+time.Duration(says.count)*50*time.Microsecond
		qt.Check(t, qt.IsTrue(is.took >= least && is.took <= most),
			qt.Commentf("%s: %v is not between %v and %v", name, is.took, least, most))
	}
}

// The own times of Python's functions are those that cProfile finds in the same
// run: with recursion, exceptions, generators, coroutines and threads.
func TestOwnTimesOfPython(t *testing.T) {
	testprog.Parallel(t)
	testprog.RequireBPF(t)
	python := testprog.StartPython(t, testprog.CallsOfPython)
	python.Stop()
	file, err := filepath.EvalSymlinks(python.File)
	qt.Assert(t, qt.IsNil(err))
	own, said := ownByPath(t, "python:function", file, "own.py", `
import cProfile, pstats, threading, time
def leaf(): time.sleep(.002)
def mid():
    leaf(); time.sleep(.003); leaf()
def rec(n):
    time.sleep(.001)
    if n: rec(n - 1)
def deep(n):
    if n: deep(n - 1)
def parts():
    for i in range(3): time.sleep(.001); yield i
def thrower(): time.sleep(.001); raise ValueError
def through(): thrower()
def catcher():
    try: through()
    except ValueError: time.sleep(.001)
async def sells(n):
    time.sleep(.001)
    if n: await sells(n - 1)
def drive():
    try:
        while True: sells(2).send(None)
    except StopIteration: pass
def main():
    for i in range(5):
        mid(); rec(4); list(parts()); catcher(); drive()
    deep(100)
def other():
    profile = cProfile.Profile(builtins=False)
    profile.enable()
    main()
    profile.disable()
    all.append(profile)
all = []
threads = [threading.Thread(target=other) for i in range(2)]
for thread in threads: thread.start()
for thread in threads: thread.join()
said = {}
for profile in all:
    for (path, line, name), (_, count, took, _, _) in pstats.Stats(profile).stats.items():
        if path == __file__ and name != "other":
            n, ms = said.get(name, (0, 0))
            said[name] = n + count, ms + took * 1e3
for name, (count, ms) in said.items(): print("said", name, count, ms, flush=True)
`, file, "-S")
	slept := map[string]time.Duration{"leaf": 20 * 2, "mid": 10 * 3, "rec": 50, "parts": 30, "thrower": 10,
		"catcher": 10, "sells": 30}
	for name := range slept {
		slept[name] *= time.Millisecond
	}
	checkOwnTimes(t, own, said, slept)
	qt.Check(t, qt.HasLen(said, 11), qt.Commentf("%v", said))
	qt.Check(t, qt.DeepEquals(pathsFrom(own, "catcher"), []string{"catcher 10", "catcher;through 10",
		"catcher;through;thrower 10"}))
	qt.Check(t, qt.DeepEquals(pathsFrom(own, "drive"), []string{"drive 10", "drive;sells 10",
		"drive;sells;sells 10", "drive;sells;sells;sells 10"}))
	qt.Check(t, qt.DeepEquals(pathsFrom(own, "mid"), []string{"mid 10", "mid;leaf 20"}))
	qt.Check(t, qt.HasLen(pathsFrom(own, "deep"), 101))
}

func TestOwnTimesOfPHP(t *testing.T) {
	testprog.Parallel(t)
	testprog.RequireBPF(t)
	php := program(t, "php", "php-cli")
	own, said := ownByPath(t, "php:function", php, "own.php", `<?php
function leaf() { usleep(2000); }
function mid() { leaf(); usleep(3000); leaf(); }
function rec($n) { usleep(1000); if ($n) rec($n - 1); }
function parts() { for ($i = 0; $i < 3; $i++) { usleep(1000); yield $i; } }
function thrower() { usleep(1000); throw new Exception("sold out"); }
function through() { thrower(); }
function catcher() { try { through(); } catch (Exception $e) { usleep(1000); } }
function all() { foreach (parts() as $part) usleep(1000); }
$began = hrtime(true);
for ($i = 0; $i < 5; $i++) { mid(); rec(4); catcher(); all(); }
foreach (["leaf" => [10, 20], "mid" => [5, 15], "rec" => [25, 25], "thrower" => [5, 5], "through" => [5, 0],
	"catcher" => [5, 5], "all" => [5, 15], "parts" => [25, 15]] as $name => $is)
	// There is no profiler: what is not slept is shared.
	echo "said $name $is[0] ", $is[1] + (hrtime(true) - $began) / 1e6 - 100, "\n";
`, testneeds.Tool(t, "env", "coreutils"), "USE_ZEND_DTRACE=1", php)
	checkOwnTimes(t, own, said, map[string]time.Duration{"leaf": 20e6, "mid": 15e6, "rec": 25e6,
		"thrower": 5e6, "catcher": 5e6, "all": 15e6, "parts": 15e6})
	qt.Check(t, qt.DeepEquals(pathsFrom(own, "catcher"), []string{"catcher 5", "catcher;through 5",
		"catcher;through;thrower 5"}))
	qt.Check(t, qt.DeepEquals(pathsFrom(own, "all"), []string{"all 5", "all;parts 25"}))
}

// A request that runs into its time limit has no ends of its functions.
func TestFunctionsOfPHPEndWithTheirRequest(t *testing.T) {
	testprog.Parallel(t)
	testprog.RequireBPF(t)
	php := program(t, "php", "php-cli")
	script := filepath.Join(t.TempDir(), "limit.php")
	qt.Assert(t, qt.IsNil(os.WriteFile(script, []byte(`<?php
function limited() { set_time_limit(1); while (true); }
function quick() {}
quick();
limited();
`), 0o644)))
	for pair, measured := range map[string]int{"php:function": 1, // quick, and with that set_time_limit
		"php:execute": 2, "php:execute__entry..php:execute__return": 2} {
		r := start(t, "--json", "--slow", "0", pair, php, "--", "/bin/sh", "-c",
			"USE_ZEND_DTRACE=1 "+php+" -d display_errors=stderr "+script+"; true").wait()
		summary := r.objects("summary")[0]
		qt.Check(t, qt.Equals(fmt.Sprint(summary.Unmatched, summary.Left, summary.Replaced, summary.Exited,
			summary.Unfinished), "0 2 0 0 0"), qt.Commentf("%s: %s", pair, r.stderr))
		qt.Check(t, qt.HasLen(r.objects("span"), measured), qt.Commentf("%s: %s", pair, r.stdout))
	}
}

// A flame graph of calls has their names and own times.
func TestFoldedCalls(t *testing.T) {
	testprog.Parallel(t)
	testprog.RequireBPF(t)
	python := testprog.StartPython(t, testprog.CallsOfPython)
	python.Stop()
	file, err := filepath.EvalSymlinks(python.File)
	qt.Assert(t, qt.IsNil(err))
	folded := filepath.Join(t.TempDir(), "folded")
	r := start(t, "-q", "--latency", "python:function", "--by", "function", "--self", "--top", "3",
		"--folded", folded, file, "--", file, "-S", "-c", `
import time
def leaf(): time.sleep(.02)
def mid(): leaf(); time.sleep(.01)
for i in range(3): mid()
`).wait()
	r.ok()
	qt.Check(t, qt.Matches(r.stdout, `own time of python:function\n(.|\n)*leaf +3 (.|\n)*`))
	content, err := os.ReadFile(folded)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Matches(string(content),
		`(.|\n)*<module>;mid \d{8,9}\n<module>;mid;leaf \d{8,9}\n(.|\n)*`))
}
