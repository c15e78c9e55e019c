// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
	"github.com/google/pprof/profile"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/defs"
	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
)

const pythonScript = `
import sys
def greet(name):
    return "hello " + name
def both():
    return greet("a") + greet("b")
sys.setprofile(lambda *arguments: None)
both()
sys.setprofile(None)
print("done")
`

// The profile function, a lambda, is a function like others.
func TestPythonFunctionsAsTheyAreCalled(t *testing.T) {
	testprog.Parallel(t)
	testprog.RequireBPF(t)
	python := testprog.StartPython(t, testprog.CallsOfPython)
	python.Stop()
	script := filepath.Join(t.TempDir(), "script.py")
	qt.Assert(t, qt.IsNil(os.WriteFile(script, []byte(pythonScript), 0o644)))
	program, err := filepath.EvalSymlinks(python.File)
	qt.Assert(t, qt.IsNil(err))
	r := start(t, "--json", "--str", "0", "--str", "1", "python:function__entry", "--", program, script)
	result := r.wait()
	qt.Check(t, qt.StringContains(result.stderr, "done\n")) // ours is on standard output
	var called []string
	for _, e := range result.objects("event") {
		if *e.Args[0].Text == script && *e.Args[1].Text != "<lambda>" {
			called = append(called, fmt.Sprint(*e.Args[1].Text, " ", e.Args[2].Value))
		}
	}
	qt.Check(t, qt.DeepEquals(called, []string{"<module> 0", "both 5", "greet 3", "greet 3"}))
}

const callingScript = `
def greet(name):
    return "hello " + name
def both():
    return greet("a") + greet("b")
for _ in range(1000):
    both()
`

// In Python 3.11 function__entry fires only while python:line is attached: it
// is attached with the calls' probes, for tables, for slow calls, and for a
// trace.
func TestPythonFunctionsAreTimed(t *testing.T) {
	testprog.Parallel(t)
	testprog.RequireBPF(t)
	python := testprog.StartPython(t, testprog.CallsOfPython)
	python.Stop()
	script := filepath.Join(t.TempDir(), "script.py")
	qt.Assert(t, qt.IsNil(os.WriteFile(script, []byte(callingScript), 0o644)))
	program, err := filepath.EvalSymlinks(python.File)
	qt.Assert(t, qt.IsNil(err))
	flags := []string{"--json", "--where", fmt.Sprintf("filename == %q", script)}
	command := []string{"--", program, script}
	want := map[string]uint64{"greet": 2000, "both": 1000, "<module>": 1}
	table := start(t, slices.Concat(flags, []string{"--latency", "python:function",
		"--by", "function"}, command)...).wait()
	calls := make(map[string]uint64)
	for _, row := range table.objects("row") {
		calls[fmt.Sprint(row.Keys["function"])] = uint64(row.Count)
	}
	qt.Check(t, qt.DeepEquals(calls, want), qt.Commentf("%s", table.stderr))
	qt.Check(t, qt.StringContains(table.stderr, "; 2 sites; ")) // without the helper
	qt.Check(t, qt.StringContains(table.stderr, "times include the cost of python:line, which is attached "+
		"because these calls need it: it fires when a line is about to be run, and what fires it often seems "+
		"slower than it is\n"))
	// Calls take 9 MB. They may come faster than they are read.
	flags = append(flags, "--buffer", "32M")
	slow := start(t, slices.Concat(flags, []string{"--slow", "0", "python:function"},
		command)...).wait()
	qt.Check(t, qt.Equals(len(slow.objects("span")), 3001), qt.Commentf("%s", slow.stderr))
	file := filepath.Join(t.TempDir(), "trace.json")
	traced := start(t, slices.Concat(flags[1:], []string{"--chrome-trace", file,
		"--latency", "python:function"}, command)...).wait()
	made, err := os.ReadFile(file)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(strings.Count(string(made), `greet`) >= 2000, true),
		qt.Commentf("%s", traced.stderr))
}

// A call in the place of a PATTERN means its calls, not probes of that name.
func TestCallsInThePlaceOfPatterns(t *testing.T) {
	testprog.Parallel(t)
	testprog.RequireBPF(t)
	python := testprog.StartPython(t, testprog.CallsOfPython)
	python.Stop()
	script := filepath.Join(t.TempDir(), "script.py")
	qt.Assert(t, qt.IsNil(os.WriteFile(script, []byte(callingScript), 0o644)))
	program, err := filepath.EvalSymlinks(python.File)
	qt.Assert(t, qt.IsNil(err))
	run := func(args ...string) result {
		return start(t, slices.Concat([]string{"--json"}, args,
			[]string{"--", program, script})...).wait()
	}
	where := []string{"--buffer", "32M", "--where", fmt.Sprintf("filename == %q", script)}
	shown := run(append(where, "python:function")...)
	qt.Check(t, qt.HasLen(shown.objects("span"), 3001), qt.Commentf("%s", shown.stderr))
	qt.Check(t, qt.StringContains(shown.stderr,
		"python:function is a call, between the probes function__entry .. function__return"))
	for _, flags := range [][]string{{"--count"}, {"--sum", "duration"}} {
		r := run(slices.Concat(where, flags, []string{"--by", "function", "python:function"})...)
		calls := make(map[string]uint64)
		for _, row := range r.objects("row") {
			calls[fmt.Sprint(row.Keys["function"])] = uint64(row.Count)
		}
		qt.Check(t, qt.DeepEquals(calls, map[string]uint64{"greet": 2000, "both": 1000, "<module>": 1}),
			qt.Commentf("%s: %s", flags, r.stderr))
	}
	mixed := run("python:function", "python:gc__start")
	qt.Check(t, qt.StringContains(mixed.stderr,
		"python:function is a call and python:gc__start a probe: calls and hits are shown by two commands"))
	listed := start(t, "-l", program, "python:gc").wait()
	qt.Check(t, qt.StringContains(listed.stdout, "python:gc__start"))
}

const multiprocessingScript = `
import multiprocessing, sys
def sell(n):
    for i in range(n):
        sys.audit("shop.sold", i)
if __name__ == "__main__":
    for method in "fork", "spawn":
        with multiprocessing.get_context(method).Pool(3) as pool:
            pool.map(sell, [100] * 6, chunksize=1)
`

// Processes that are forked, and those that execute Python anew, are counted
// from their first instruction, with and without the FILE.
func TestProcessesOfPythonAreCountedExactly(t *testing.T) {
	testprog.Parallel(t)
	testneeds.BTF(t)
	python := testprog.StartPython(t)
	python.Stop()
	script := filepath.Join(t.TempDir(), "script.py")
	qt.Assert(t, qt.IsNil(os.WriteFile(script, []byte(multiprocessingScript), 0o644)))
	for _, file := range [][]string{nil, {python.File}} {
		args := append([]string{"--json", "--count", "--where", `str(arg0) == "shop.sold"`},
			file...)
		result := start(t, append(args, "python:audit", "--", python.File, script)...).wait()
		rows := result.objects("row")
		qt.Assert(t, qt.HasLen(rows, 1), qt.Commentf("%s", result.stderr))
		qt.Check(t, qt.Equals(rows[0].Count, 1200))
		qt.Check(t, qt.Not(qt.StringContains(result.stderr, "not seen")))
	}
}

func TestPostgresQueriesAreText(t *testing.T) {
	testprog.Parallel(t)
	testprog.RequireBPF(t)
	server := testprog.StartPostgres(t)
	r := watching(t, "--str", "0", server.File, "postgresql:query__start")
	qt.Check(t, qt.Equals(server.Query("SELECT 'one' || 'two'"), "onetwo"))
	lines := r.interrupt().ok()
	qt.Assert(t, qt.HasLen(lines, 2))
	qt.Check(t,
		qt.Matches(lines[1],
			`.* postgres +postgresql:query__start  query="SELECT 'one' \|\| 'two'"`))
}

// A query that fails passes no query__done. It is counted, and shown if the
// pair has the probe that it ends at instead.
func TestPostgresQueriesThatFail(t *testing.T) {
	testprog.Parallel(t)
	testprog.RequireBPF(t)
	server := testprog.StartPostgres(t)
	const failing = 10
	queries := slices.Repeat([]string{"SELECT 1/0"}, failing)
	usual := watching(t, "--json", "--latency", "postgresql:query", server.File)
	server.Refuse(queries...)
	server.Query("SELECT 1")
	summary := usual.interrupt().objects("summary")[0]
	qt.Check(t, qt.Equals(summary.Replaced+summary.Exited+summary.Unfinished, failing))

	const pair = "postgresql:query__start..query__done|transaction__abort"
	failed := watching(t, "--json", "--slow", "0", pair, server.File)
	server.Refuse(queries...)
	server.Query("SELECT 1")
	result := failed.interrupt()
	calls := make(map[bool]int)
	for _, span := range result.objects("span") {
		calls[span.Failed]++
		qt.Check(t, qt.Equals(span.Pair, "postgresql:query"))
	}
	qt.Check(t, qt.DeepEquals(calls, map[bool]int{true: failing, false: 1}))
	summary = result.objects("summary")[0]
	qt.Check(t, qt.Equals(summary.Replaced+summary.Unfinished, 0))
	qt.Check(t, qt.Equals(summary.Unmatched, 0))

	text := watching(t, "--slow", "0", pair, server.File)
	server.Refuse("SELECT 1/0")
	qt.Check(t, qt.StringContains(text.interrupt().stdout, `postgresql:query  failed  query="SELECT 1/0"`))
}

// The measured times must agree with those that pgbench prints.
func TestPostgresUnderPgbench(t *testing.T) {
	testprog.Parallel(t)
	testprog.RequireBPF(t)
	server := testprog.StartPostgres(t)
	r := watching(t, "--json", "--count", "--by", "probe", "--latency",
		"postgresql:query__start..postgresql:query__done",
		server.File, "postgresql:query__start", "postgresql:transaction__commit")
	bench := pgbench(t, server, "SELECT pg_sleep(0.002);\n", 200)
	result := r.interrupt()
	counts := make(map[string]uint64)
	average := 0.0
	for _, row := range result.objects("row") {
		switch row.Aggregation {
		case "count":
			counts[row.Keys["probe"].(string)] = row.Count
		case "latency":
			average = row.Average / 1e6
			qt.Check(t, qt.Equals(row.Count, counts["postgresql:query__start"]))
		}
	}
	started := counts["postgresql:query__start"]
	qt.Check(t, qt.Equals(started, bench.transactions))
	qt.Check(t, qt.HasLen(counts, 2)) // of the patterns, not of the pair
	// Beginning a connection is a transaction or two, too.
	committed := counts["postgresql:transaction__commit"]
	qt.Check(t, qt.IsTrue(committed >= bench.transactions && committed <= bench.transactions+20),
		qt.Commentf("%d commits, %d transactions", committed, bench.transactions))
	// pgbench's mean also has the way to the server and back, and the time that
	// either waits for a processor. The server's own time is of the same
	// process as the probes.
	qt.Check(t,
		qt.IsTrue(average <= bench.milliseconds*1.05 && average >= 2 && average >= bench.served/2),
		qt.Commentf("%.3f ms, but pgbench says %.3f ms and the server %.3f ms", average,
			bench.milliseconds, bench.served))
	qt.Check(t, qt.Equals(result.objects("summary")[0].Lost, 0))
}

type benchResult struct {
	transactions uint64
	milliseconds float64 // mean of the latency
	served       float64 // the same, as the server says
}

// pgbench runs a script some times and returns what it says.
func pgbench(t *testing.T, server *testprog.Postgres, script string, transactions int) benchResult {
	t.Helper()
	file := filepath.Join(t.TempDir(), "script.sql")
	qt.Assert(t, qt.IsNil(os.WriteFile(file, []byte(script), 0o644)))
	cmd := server.Client("pgbench", "-n", "-c", "1", "-t", strconv.Itoa(transactions), "-f", file,
		"-h", server.SocketDir, "-U", "gousdt", "postgres")
	cmd.Env = append(cmd.Env,
		"PGOPTIONS=-c log_min_duration_statement=0 -c client_min_messages=log")
	out, err := cmd.CombinedOutput()
	qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", out))
	number := func(pattern string) string {
		found := regexp.MustCompile(pattern).FindSubmatch(out)
		qt.Assert(t, qt.HasLen(found, 2), qt.Commentf("%s", out))
		return string(found[1])
	}
	var b benchResult
	b.transactions, err = strconv.ParseUint(number(`actually processed: (\d+)/`), 10, 64)
	qt.Assert(t, qt.IsNil(err))
	b.milliseconds, err = strconv.ParseFloat(number(`latency average = ([\d.]+) ms`), 64)
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.Equals(b.transactions, uint64(transactions)))
	durations := regexp.MustCompile(`duration: ([\d.]+) ms`).FindAllSubmatch(out, -1)
	qt.Assert(t, qt.HasLen(durations, transactions))
	for _, found := range durations {
		served, err := strconv.ParseFloat(string(found[1]), 64)
		qt.Assert(t, qt.IsNil(err))
		b.served += served / float64(transactions)
	}
	return b
}

// Neither the program nor the library has frame pointers.
func TestThrowingStacksAreAProfile(t *testing.T) {
	testprog.Parallel(t)
	testprog.RequireBPF(t)
	p := testprog.StartThrow(t)
	file := filepath.Join(t.TempDir(), "throws.pb.gz")
	r := watching(t, "--pprof", file, "-p", strconv.Itoa(p.PID), "libstdcxx:throw",
		"libstdcxx:rethrow")
	for range 4 {
		p.Do("throw")
	}
	for range 3 {
		p.Do("2")
	}
	result := r.interrupt()
	result.ok()
	qt.Check(t, qt.StringContains(result.stderr, "14 events, 0 lost"))
	qt.Check(t, qt.DeepEquals(chains(t, file), map[string]int64{
		"__cxa_throw throw_it descend throw_again main":                 4,
		"__cxa_throw throw_it descend descend descend throw_again main": 3,
		"__cxa_rethrow throw_again main":                                7,
	}))
}

func TestThrowingStacksOfACommand(t *testing.T) {
	testprog.Parallel(t)
	testprog.RequireBPF(t)
	testprog.StartThrow(t).Stop() // the library has probes
	file := filepath.Join(t.TempDir(), "throws.pb.gz")
	r := startWith(t, strings.Repeat("1\n", 50), "--pprof", file, "libstdcxx:throw", "--",
		testprog.Path(t, "throw"))
	qt.Assert(t, qt.Equals(r.wait().status, exitWatched))
	const stack = "__cxa_throw throw_it descend descend throw_again main"
	thrown := chains(t, file)
	qt.Check(t, qt.DeepEquals(thrown, map[string]int64{stack: 50}))
	figure{software: "C++", question: "how many exceptions were thrown from where?",
		command: "--pprof FILE libstdcxx:throw", measured: uint64(thrown[stack]), own: 50,
		source: "as many lines that ask for one"}.check(t)
}

// chains returns the stacks of a profile down to main, innermost function
// first, with their last values.
func chains(t *testing.T, path string) map[string]int64 {
	t.Helper()
	file, err := os.Open(path)
	qt.Assert(t, qt.IsNil(err))
	defer file.Close()
	read, err := profile.Parse(file)
	qt.Assert(t, qt.IsNil(err))
	all := make(map[string]int64)
	for _, sample := range read.Sample {
		var names []string
		for _, location := range sample.Location {
			name := "?"
			if len(location.Line) > 0 {
				// A part of a function that is seldom executed can have a name
				// of its own.
				name = strings.TrimSuffix(location.Line[0].Function.Name, ".cold")
			}
			if names = append(names, name); name == "main" {
				break
			}
		}
		all[strings.Join(names, " ")] += sample.Value[len(sample.Value)-1]
	}
	return all
}

// The library has hundreds of sites. The launcher loads it while it runs, and
// may have ended before that is noticed: so it is named.
func TestJavaVirtualMachine(t *testing.T) {
	testprog.Parallel(t)
	testprog.RequireBPF(t)
	java, library := findJava(t)
	file, err := elfnote.Open(library)
	qt.Assert(t, qt.IsNil(err))
	defer file.Close()
	pattern, err := elfnote.ParsePattern("hotspot*:*")
	qt.Assert(t, qt.IsNil(err))
	listing, err := defs.List(file, pattern)
	qt.Assert(t, qt.IsNil(err))
	sites := 0
	for _, probe := range listing.Probes {
		sites += len(probe.Sites)
	}
	result := start(t, "--json", "--count", "--by", "probe", library, pattern.String(), "--", java,
		"-version").wait()
	counts := make(map[string]uint64)
	for _, row := range result.objects("row") {
		counts[row.Keys["probe"].(string)] = row.Count
	}
	qt.Check(t, qt.Equals(counts["hotspot:vm__shutdown"], 1), qt.Commentf("%v", counts))
	qt.Check(t, qt.Equals(result.objects("summary")[0].Sites, sites))
	qt.Check(t, qt.IsTrue(sites > 300))
}

// The virtual machine's texts do not end in a zero: the next argument says how
// long they are.
func TestJavaClassNames(t *testing.T) {
	testprog.Parallel(t)
	testprog.RequireBPF(t)
	java, library := findJava(t)
	result := start(t, "--json", "--str", "0:arg1", library, "hotspot:class__loaded", "--", java,
		"-version").wait()
	names := make(map[string]bool)
	for _, event := range result.objects("event") {
		if text := event.Args[0].Text; text != nil {
			names[*text] = true
		}
	}
	for _, name := range []string{"java/lang/Object", "java/lang/String"} {
		qt.Check(t, qt.IsTrue(names[name]),
			qt.Commentf("%s is not among %d names", name, len(names)))
	}
}

// findJava returns a virtual machine with probes, and the library that has
// them.
func findJava(t *testing.T) (java, library string) {
	t.Helper()
	libraries, _ := filepath.Glob("/usr/lib/jvm/*/lib/server/libjvm.so")
	for _, library := range libraries {
		if file, err := elfnote.Open(library); err == nil {
			listing, err := defs.List(file)
			file.Close()
			if err == nil && len(listing.Probes) > 0 {
				return filepath.Join(filepath.Dir(library), "../../bin/java"), library
			}
		}
	}
	testneeds.Missing(t,
		"needs a Java virtual machine with probes in /usr/lib/jvm (Debian: default-jre-headless)")
	return "", ""
}

// The address of a type differs in each process; its name does not.
func TestTypesOfExceptionsHaveNames(t *testing.T) {
	testprog.Parallel(t)
	p := testprog.StartThrow(t)
	pid := strconv.Itoa(p.PID)
	r := watching(t, "-p", pid, "libstdcxx:throw")
	p.Do("throw")
	qt.Check(t, qt.StringContains(r.interrupt().stdout, ` type_info="std::runtime_error"`))
	r = watching(t, "--json", "--stack", "-p", pid, "libstdcxx:rethrow")
	p.Do("throw")
	events := r.interrupt().objects("event")
	qt.Assert(t, qt.HasLen(events, 1))
	qt.Check(t, qt.Equals(*events[0].Args[1].Text, "St13runtime_error"))

	for _, probe := range []string{"throw", "rethrow", "catch"} {
		for _, by := range []string{"type_info", "str(type_info)"} {
			r = watching(t, "--count", "--by", by, "--where", `type_info == "St13runtime_error"`,
				"-p", pid, "libstdcxx:"+probe)
			p.Do("throw")
			qt.Check(t, qt.StringContains(r.interrupt().stdout, "\nstd::runtime_error "))
		}
	}
	r = watching(t, "-p", pid, "libstdcxx:catch")
	p.Do("throw")
	qt.Check(t, qt.StringContains(r.interrupt().stdout, ` type_info="std::runtime_error"`))
	r = watching(t, "--count", "--by", "type_info", "--json", "-p", pid, "libstdcxx:throw")
	p.Do("throw")
	qt.Check(t, qt.DeepEquals(r.interrupt().objects("row")[0].Keys, map[string]any{
		"type_info": "St13runtime_error", "type_info_name": "std::runtime_error"}))
	r = watching(t, "--latency", "libstdcxx:throw..libstdcxx:catch", "--by", "start.type_info",
		"-p", pid)
	p.Do("throw")
	qt.Check(t, qt.StringContains(r.interrupt().stdout, "\nstd::runtime_error "))
}

// The header of an exception that std::rethrow_exception throws has the
// exception itself in the place of its type, and so the message as its name.
func TestMessagesOfExceptionsAreNoTypes(t *testing.T) {
	p := testprog.StartThrow(t)
	pid := strconv.Itoa(p.PID)
	for _, by := range []string{"type_info", "str(type_info, 8)"} {
		table := watching(t, "--count", "--by", "probe,"+by, "-p", pid, "libstdcxx:*")
		events := watching(t, "-p", pid, "libstdcxx:*")
		p.Do("pointer")
		for _, r := range []result{table.interrupt(), events.interrupt()} {
			qt.Check(t, qt.StringContains(r.stdout, "(unknown type)"))
			qt.Check(t, qt.Not(qt.StringContains(r.stdout, "refused")))
		}
	}
}

const greenletScript = `
import greenlet, heapq, sys, time
hub, ready, n = greenlet.getcurrent(), [], 0
said = {}
def later(g, at):
    global n
    n += 1
    heapq.heappush(ready, (at, n, g))
def pause(s):
    later(greenlet.getcurrent(), time.perf_counter() + s)
    hub.switch()
def timed(f, *args):
    before = time.perf_counter()
    inner = f(*args)
    count, least, most = said.get(f.__name__, (0, 0, 0))
    said[f.__name__] = count + 1, least + inner, most + time.perf_counter() - before
def crunch():
    began = time.perf_counter()
    return time.perf_counter() - began
def wait(s):
    began = time.perf_counter()
    pause(s)
    return time.perf_counter() - began
def report(i):
    began = time.perf_counter()
    timed(crunch)
    timed(wait, .001 * (i % 3))
    timed(crunch)
    return time.perf_counter() - began
def handle(i):
    began = time.perf_counter()
    timed(wait, .002 * (i % 7))
    timed(report, i)
    return time.perf_counter() - began
def work(i):
    for k in range(5): list(map(timed, [handle], [i + k])) # in a loop of its own
for i in range(30):
    later(greenlet.greenlet(lambda i=i: work(i)), 0)
while ready:
    at, _, g = heapq.heappop(ready)
    time.sleep(max(0, at - time.perf_counter()))
    g.switch()
for name, (count, least, most) in said.items():
    print("said", name, count, int(least * 1e9), int(most * 1e9), file=sys.stderr)
`

func greenlets(t *testing.T) (program, script string) {
	testprog.RequireBPF(t)
	python := testprog.StartPython(t, testprog.CallsOfPython)
	python.Stop()
	program, err := filepath.EvalSymlinks(python.File)
	qt.Assert(t, qt.IsNil(err))
	if exec.Command(program, "-c", "import greenlet").Run() != nil {
		testneeds.Missing(t, "greenlets of %s (Debian: python3-greenlet)", program)
	}
	script = filepath.Join(t.TempDir(), "greenlets.py")
	qt.Assert(t, qt.IsNil(os.WriteFile(script, []byte(greenletScript), 0o644)))
	return program, script
}

// Greenlets have one stack in turn. The program says how long each function
// ran, as seen from inside and from outside.
func TestGreenletsOfPython(t *testing.T) {
	testprog.Parallel(t)
	program, script := greenlets(t)
	r := start(t, "--json", "--latency", "python:function__entry..python:function__return", "--self",
		"--sum", "duration", "--by", "calls(function),function", "--where",
		fmt.Sprintf("filename == %q", script), "--", program, script).wait()
	calls, took := make(map[string]uint64), make(map[string]int64)
	for _, row := range r.objects("row") {
		if function := fmt.Sprint(row.Keys["function"]); row.Aggregation != kindSelf {
			sum, err := row.Sum.Int64()
			qt.Assert(t, qt.IsNil(err))
			took[function] += sum
			calls[fmt.Sprint(row.Keys["calls(function)"])] += uint64(row.Count)
		}
	}
	const handle = "<lambda>;work;timed;handle"
	for path, want := range map[string]uint64{handle: 150, handle + ";timed;wait": 150,
		handle + ";timed;report": 150, handle + ";timed;report;timed;wait": 150,
		handle + ";timed;report;timed;crunch": 300, "<lambda>;work": 30} {
		qt.Check(t, qt.Equals(calls[path], want), qt.Commentf("%s\n%v\n%s", path, calls, r.stderr))
	}
	said := 0
	for line := range strings.Lines(r.stderr) {
		var name string
		var count, least, most int64
		if n, _ := fmt.Sscanf(line, "said %s %d %d %d", &name, &count, &least, &most); n == 4 {
			said++
			qt.Check(t, qt.IsTrue(took[name] >= least && took[name] <= most),
				qt.Commentf("%s: %d is not from %d to %d", name, took[name], least, most))
		}
	}
	qt.Check(t, qt.Equals(said, 4))
}

// Where the interpreter's frame is not known, here for want of the function
// that leads to it, no call is measured once greenlets have been seen.
func TestGreenletsWithoutFrames(t *testing.T) {
	testprog.Parallel(t)
	program, script := greenlets(t)
	names := filepath.Join(t.TempDir(), "python.d")
	qt.Assert(t, qt.IsNil(os.WriteFile(names,
		[]byte("#pragma gousdt frame python:function no_such_function 24,24\n"), 0o644)))
	r := start(t, "--json", "--names", names, "--latency", "python:function", "--self", "--by",
		"calls(function),function", "--where", fmt.Sprintf("filename == %q", script), "--", program,
		script).wait()
	for _, row := range r.objects("row") {
		function := fmt.Sprint(row.Keys["function"])
		qt.Check(t, qt.IsFalse(slices.Contains([]string{"wait", "report", "handle", "work"}, function)),
			qt.Commentf("%v", row))
	}
	summary := r.objects("summary")[0]
	qt.Check(t, qt.IsTrue(summary.Overlapped >= 1000), qt.Commentf("%v", summary))
	qt.Check(t, qt.StringContains(r.stdout, "as with greenlets"))
}
