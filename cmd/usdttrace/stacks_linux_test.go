// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
	"github.com/google/pprof/profile"

	"github.com/gousdt/gousdt/internal/commandline"
	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/stack"
	"github.com/gousdt/gousdt/trace"
)

// Of stacks that are unwound here, sums are those that the kernel would have.
func TestSumsOfSamplesDoNotWrap(t *testing.T) {
	for _, test := range []struct {
		behaviour string
		value     trace.Value
		weight    uint64
		sum       float64
		profile   int64
	}{
		{"a sum of numbers is exact", trace.ValueOf(uint64(1<<62 + 1)), 1, 1<<63 + 2, math.MaxInt64},
		{"with a sign, too", trace.ValueOf(int64(-3)), 5, -30, -30},
		{"a large sum is a float", trace.ValueOf(uint64(math.MaxUint64)), 1, 1 << 65, math.MaxInt64},
		{"a weight counts", trace.ValueOf(int64(math.MinInt64)), 1 << 20, -1 << 84, math.MinInt64},
	} {
		t.Run(test.behaviour, func(t *testing.T) {
			names := stack.NewSymbolizer("")
			defer names.Close()
			table := &aggregation{Aggregation: trace.Aggregation{Sum: true}}
			s := (&tracer{prepared: prepared{messages: commandline.NewMessages("usdttrace", io.Discard),
				options: &options{tableFlags: tableFlags{by: []string{"stack"}, sum: "arg0"},
					stackFlags: stackFlags{foldedFile: "-"}}},
				opened: opened{stacks: names, asked: []*aggregation{table}}}).newSamples()
			for range 2 {
				s.add(&trace.Event{Args: []trace.Value{test.value}, Weight: test.weight}, []uint64{1})
			}
			row := table.rows.snapshot(false, maxStackRows).Rows[0]
			qt.Check(t, qt.Equals(row.Count, 2*test.weight))
			qt.Check(t, qt.Equals(row.Sum.Float(), test.sum))
			qt.Check(t, qt.Equals(row.Min, test.value))
			qt.Check(t, qt.Equals(row.Max, test.value))
			var file bytes.Buffer
			qt.Assert(t, qt.IsNil(s.profile.Write(t.Context(), &file)))
			read, err := profile.Parse(&file)
			qt.Assert(t, qt.IsNil(err))
			qt.Check(t, qt.Equals(read.Sample[0].Value[1], test.profile))
			isCut := test.profile == math.MaxInt64 || test.profile == math.MinInt64
			qt.Check(t, qt.Equals(len(read.Comments) > 0, isCut))
		})
	}
}

// Tables made of events are what the kernel makes: --count has all hits, also
// those without the value of the --sum beside it, at each interval; and there
// are --max-keys rows.
func TestTablesOfEventsAreThoseOfTheKernel(t *testing.T) {
	testprog.Parallel(t)
	testprog.RequireStacks(t)
	p := startTarget(t, "target-pie")
	for _, unwind := range []string{unwindFP, unwindDWARF} {
		r := watching(t, "--json", "--count", "--sum", "arg2", "--by", "stack,probe",
			"--max-keys", "1", "--interval", "1h", "--unwind", unwind, p.path,
			"gousdt_test:none,gousdt_test:three")
		p.Fire("none", 5)
		p.Fire("three", 2)
		var rows []string
		for _, row := range r.interrupt().objects("row") {
			rows = append(rows, fmt.Sprintf("%s %v %d %t", row.Aggregation, row.Keys["probe"], row.Count,
				row.Sum != ""))
		}
		qt.Check(t, qt.DeepEquals(rows, []string{
			"count gousdt_test:none 5 false", "count <nil> 2 false", "sum gousdt_test:three 2 true"}),
			qt.Commentf("%s", unwind))
	}
}

// A program is at other addresses in each process.
func TestStackOfTwoProcessesIsOneRow(t *testing.T) {
	testprog.Parallel(t)
	testprog.RequireStacks(t)
	p := startTarget(t, "target-pie")
	other := &traced{Process: testprog.Start(t, p.path), path: p.path}
	for by, want := range map[string][]uint64{"stack": {5}, "stack,pid": {3, 2}} {
		r := watching(t, "--json", "--count", "--by", by, p.path, "gousdt_test:three")
		p.Fire("three", 3)
		other.Fire("three", 2)
		var counts []uint64
		for _, row := range r.interrupt().objects("row") {
			counts = append(counts, row.Count)
		}
		qt.Check(t, qt.DeepEquals(counts, want), qt.Commentf("by %s", by))
	}
}

// The lines of the program's source follow the functions.
func TestStacksHaveLines(t *testing.T) {
	testprog.Parallel(t)
	p := startTarget(t, "target-pie")
	r := watching(t, "--json", "--lines", "--count", "--by", "stack", p.path, "gousdt_test:three")
	p.Fire("three", 1)
	qt.Check(t, qt.Matches(strings.Join(r.interrupt().ok(), "\n"),
		`(?s).*"function":"fire_three"[^}]*"source":"[^"]*\.c:[0-9]+".*`))

	r = watching(t, "--lines", "--stack", p.path, "gousdt_test:three")
	p.Fire("three", 1)
	qt.Check(t, qt.Matches(strings.Join(r.interrupt().ok(), "\n"),
		`(?s).* fire_three\+0x[0-9a-f]+ \(.*target-pie\) /\S+\.c:[0-9]+\n.*`))
}

// Flame graphs have each hit once, in whatever processes, also of those that
// have ended.
func TestFlameGraphsHaveAllHits(t *testing.T) {
	testprog.Parallel(t)
	p := startTarget(t, "target-pie")
	other := &traced{Process: testprog.Start(t, p.path), path: p.path}
	dir := t.TempDir()
	folded, page := filepath.Join(dir, "stacks.folded"), filepath.Join(dir, "stacks.html")
	r := watching(t, "--folded", folded, "--flamegraph", page, p.path, "gousdt_test:three")
	p.Fire("three", 3)
	other.Fire("three", 2)
	other.Stop()
	r.interrupt().ok()
	lines, err := os.ReadFile(folded)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Matches(strings.TrimSpace(string(lines)), `.*;main;.*fire_three 5`))
	text, err := os.ReadFile(page)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.StringContains(string(text), `"title":"gousdt_test:three target-pie"`))
	qt.Check(t, qt.StringContains(string(text), `"root":{"name":"all","value":5,`))
}

// A process that maps, hits and ends at once has names on its stacks. That
// holds for any parent, and where its paths mean other files here.
func TestShortLivesHaveNames(t *testing.T) {
	testprog.Parallel(t)
	testneeds.Root(t)
	testneeds.BTF(t)
	testneeds.Tool(t, "unshare", "util-linux")
	lives := testprog.Soak(100, 1000)
	const hidden = `mount -t tmpfs none "$dir" && cp "$program" "$dir/inside" && program=$dir/inside`
	for _, test := range []struct {
		name, prepare string
		args          []string
	}{
		{"of all", "", []string{"-a", "--stack", "PROGRAM"}},
		{"of all, walked by the kernel", "", []string{"-a", "--unwind", "fp", "--stack", "PROGRAM"}},
		{"of a process", "", []string{"-f", "-p", "PID", "--stack", "PROGRAM"}},
		{"in a container", hidden, []string{"-a", "--stack"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			program, dir := copyOf(t, "target-pie"), t.TempDir()
			cmd := exec.Command("unshare", "-m", "sh", "-ec", test.prepare+`
				printf "fire three 1\nquit\n" >"$dir/input"
				mkfifo "$dir/held"
				"$program" <"$dir/held" & # it is there all the time
				exec 3>"$dir/held"
				echo ready >&3
				read go
				while [ $lives -gt 0 ]; do
					"$program" <"$dir/input" >/dev/null
					lives=$((lives-1))
				done
				echo done
				read go || :`)
			cmd.Env = append(os.Environ(), "program="+program, "dir="+dir, "lives="+decimal(lives))
			stdin := stdinOf(t, cmd)
			out, err := cmd.StdoutPipe()
			qt.Assert(t, qt.IsNil(err))
			qt.Assert(t, qt.IsNil(cmd.Start()))
			defer func() {
				stdin.Close()
				qt.Check(t, qt.IsNil(cmd.Wait()))
			}()
			said := bufio.NewReader(out)
			await := func(want string) {
				for line := ""; !strings.HasPrefix(line, want); {
					line, err = said.ReadString('\n')
					qt.Assert(t, qt.IsNil(err))
				}
			}
			await("error") // the one that is there has begun
			for i, arg := range test.args {
				switch arg {
				case "PROGRAM":
					test.args[i] = program
				case "PID":
					test.args[i] = decimal(cmd.Process.Pid)
				}
			}
			r := watching(t, append(test.args, "--json", "gousdt_test:three")...)
			io.WriteString(stdin, "go\n")
			await("done")
			others := func(o object) bool { return o.File != program && o.File != dir+"/inside" }
			events := slices.DeleteFunc(r.interrupt().objects("event"), others)
			qt.Check(t, qt.HasLen(events, lives))
			lost := 0
			for _, e := range events {
				qt.Assert(t, qt.Not(qt.HasLen(e.Stack, 0)))
				named := e.Stack[0].Function == "fire_three"
				if test.args[1] != "--unwind" {
					named = named && slices.ContainsFunc(e.Stack,
						func(f frame) bool { return f.Function == "main" }) &&
						!slices.ContainsFunc(e.Stack, func(f frame) bool { return f.File == "" })
				}
				if !named {
					if lost++; lost == 1 {
						t.Errorf("%+v", e.Stack)
					}
				}
			}
			qt.Check(t, qt.Equals(lost, 0), qt.Commentf("of %d", lives))
		})
	}
}

// Hits that are left out are counted, and those taken stand for them.
func TestSampledHitsStandForAll(t *testing.T) {
	testprog.Parallel(t)
	p := startTarget(t, "target-pie")
	folded, page := filepath.Join(t.TempDir(), "stacks.folded"),
		filepath.Join(t.TempDir(), "stacks.html")
	r := watching(t, "--json", "--every", "10", "--folded", folded, "--flamegraph", page, "--count",
		"--by", "stack",
		"--sum", "arg0", p.path, "gousdt_test:specs")
	const hits = 30 * 300
	p.Fire("specs", 30)
	result := r.interrupt()
	summary := result.objects("summary")[0]
	qt.Check(t, qt.Equals(summary.Events+summary.NotSampled+summary.Lost, hits))
	qt.Check(t, qt.IsTrue(summary.Events < hits/5), qt.Commentf("%d events", summary.Events))
	text, err := os.ReadFile(page)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t,
		qt.StringContains(string(text), ` gousdt_test:specs target-pie, from one hit in 10"`))
	counted, sum := make(map[string]uint64), int64(0)
	for _, row := range result.objects("row") { // one for each site
		counted[row.Aggregation] += row.Count
		if row.Aggregation == "sum" {
			part, err := row.Sum.Int64()
			qt.Assert(t, qt.IsNil(err))
			sum += part
		}
	}
	for _, kind := range []string{"count", "sum"} {
		qt.Check(t, qt.Equals(counted[kind]+summary.Unrepresented, hits), qt.Commentf("%s", kind))
	}
	qt.Check(t,
		qt.StringContains(result.stderr,
			fmt.Sprintf("%d hits not sampled: each event stands for those of its process and site "+
				"before it, on average for %.3g hits\n%d hits came after the last one that was taken in their process",
				summary.NotSampled, float64(counted["count"])/float64(summary.Events),
				summary.Unrepresented)))
	average := float64(sum) / float64(counted["sum"])
	qt.Check(t, qt.IsTrue(average > 130 && average < 170), qt.Commentf("of 0 to 299: %v", average))
	lines, err := os.ReadFile(folded)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.StringContains(string(lines), ";fire_specs"))
}

func TestSamplingIsOfEventsAndStacks(t *testing.T) {
	testprog.Parallel(t)
	for _, test := range []struct{ args, want string }{
		{"--every 2 --rate 3 p:n", "--every and --rate exclude each other"},
		{"--every 2 --count p:n", "what is counted in the kernel is counted of all hits"},
		{"--rate 2 --by stack --hist arg0 p:n", "--every and --rate do not go with --hist"},
		{"--rate 0 p:n", "want a number above 0"},
	} {
		r := start(t, append(strings.Fields(test.args), "/bin/true")...).wait()
		qt.Check(t, qt.Equals(r.status, exitError))
		qt.Check(t, qt.StringContains(r.stderr, test.want))
	}
}

// The target was built without frame pointers.
func TestStacksOfRowsAreUnwound(t *testing.T) {
	testprog.Parallel(t)
	testprog.RequireStacks(t)
	p := startTarget(t, "target-pie")
	r := watching(t, "--count", "--by", "stack", p.path, "gousdt_test:three")
	p.Fire("three", 2)
	qt.Check(t, qt.Matches(strings.Join(r.interrupt().ok(), "\n"),
		`(?s)count\ncount 2, rate \S+, 100.0%\n    fire_three.*    main\+.*`))

	r = watching(t, "--hist", "arg0", "--by", "stack", p.path, "gousdt_test:three")
	p.Fire("three", 2)
	qt.Check(t,
		qt.Matches(r.interrupt().stderr, `(?s).*stacks are found by frame pointers, which `+p.path+
			` seems to have been built without: .* \(with --hist there is no other way\).*`))
}

func TestChromeTrace(t *testing.T) {
	testprog.Parallel(t)
	p := startTarget(t, "target-pie")
	path := filepath.Join(t.TempDir(), "trace.json")
	type event struct {
		Name, Phase string
		PID, TID    int
		Time        float64
		Duration    float64
		Args        map[string]any
	}
	read := func(flags ...string) (events []event) {
		r := watching(t, append([]string{"--chrome-trace", path, p.path}, flags...)...)
		p.Fire("three", 2)
		p.Fire("twelve", 1)
		qt.Check(t, qt.DeepEquals(r.interrupt().ok(), []string{""}))
		text, err := os.ReadFile(path)
		qt.Assert(t, qt.IsNil(err))
		var all []struct {
			Name, Ph string
			PID, TID int
			TS, Dur  float64
			Args     map[string]any
		}
		qt.Assert(t, qt.IsNil(json.Unmarshal(text, &all)), qt.Commentf("%s", text))
		for _, e := range all {
			qt.Check(t, qt.Equals(e.PID, p.PID))
			if e.Ph == "M" {
				qt.Check(t, qt.DeepEquals(e.Args, map[string]any{"name": "target-pie"}))
				continue
			}
			events = append(events, event{e.Name, e.Ph, e.PID, e.TID, e.TS, e.Dur, e.Args})
		}
		return events
	}
	events := read("gousdt_test:three", "gousdt_test:twelve")
	qt.Assert(t, qt.HasLen(events, 3))
	qt.Check(t, qt.Equals(events[0].Phase, "i"))
	qt.Check(t, qt.Equals(events[0].Name, "gousdt_test:three"))
	qt.Check(t, qt.Equals(events[0].Args["arg0"], any(-2e9)))
	qt.Check(t, qt.IsTrue(events[0].Time < events[1].Time))

	events = read("--str", "arg9", "gousdt_test:twelve")
	qt.Assert(t, qt.HasLen(events, 1))
	qt.Check(t, qt.Equals(events[0].Args["arg9"], any("hello, gousdt")))
	events = read("--str", "arg9:5", "gousdt_test:twelve")
	qt.Check(t, qt.Equals(events[0].Args["arg9"], any("hello...")))

	events = read("--latency", "gousdt_test:three..gousdt_test:split|gousdt_test:twelve")
	qt.Assert(t, qt.Not(qt.HasLen(events, 0)))
	qt.Check(t, qt.Equals(events[0].Args["failed"], any(true)))

	events = read("--latency", "gousdt_test:three..gousdt_test:twelve")
	qt.Assert(t, qt.Not(qt.HasLen(events, 0)))
	qt.Check(t, qt.Equals(events[0].Phase, "X"))
	qt.Check(t, qt.Equals(events[0].Name, "gousdt_test:three..gousdt_test:twelve"))
	qt.Check(t, qt.IsNil(events[0].Args["failed"]))
	qt.Check(t, qt.IsTrue(events[0].Duration > 0))
	qt.Check(t, qt.Equals(events[0].Args["arg0"], any(-2e9)))
}
