// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"bufio"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
)

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
		case row.Aggregation == kindLatency:
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
	testprog.RequireBPF(t)
	python := testprog.StartPython(t)
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

// A flame graph of calls has their names and own times.
func TestFoldedCalls(t *testing.T) {
	testprog.RequireBPF(t)
	python := testprog.StartPython(t)
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
