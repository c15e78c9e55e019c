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
	"time"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
)

// Probes in Go programs, which module sdt puts there.

const goShop = "../../examples/shop"

// buildGo builds a module whose tool is sdt, and returns the program.
func buildGo(t *testing.T, dir string, flags ...string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "shop")
	sdt := strings.TrimSpace(goCommand(t, dir, "tool", "-n", "sdt"))
	goCommand(t, dir, slices.Concat([]string{"build", "-o", name, "-toolexec", sdt}, flags)...)
	return name
}

func goCommand(t *testing.T, dir string, args ...string) string {
	t.Helper()
	testneeds.NoGuest(t, "it has no Go")
	cmd := exec.Command(testneeds.Tool(t, "go", "golang-go"), args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOFLAGS=-buildvcs=false", "CGO_ENABLED=1")
	out, err := cmd.CombinedOutput()
	qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", out))
	return string(out)
}

// What a server measures itself is what a tracer sees, to the last request. Its
// jobs move between threads, and none is lost or taken for another one.
func TestGoServerIsMeasuredExactly(t *testing.T) {
	testprog.Parallel(t)
	requests := testprog.Soak(10_000, 1_000_000)
	command := []string{"--", buildGo(t, goShop), "-clients", "8", "-requests", strconv.Itoa(requests)}
	run := func(args ...string) result {
		args = append([]string{"--json", "--names", goShop + "/shop.d"}, args...)
		return start(t, append(args, command...)...).wait()
	}

	result := run("--hist", "took", "--by", "str(route)", "shop:request__done")
	own := make(map[string]uint64)
	for _, m := range regexp.MustCompile(`(?m)^(\S+ \S+: at most \d+) ns: (\d+)$`).
		FindAllStringSubmatch(result.stderr, -1) {
		n, err := strconv.ParseUint(m[2], 10, 64)
		qt.Assert(t, qt.IsNil(err))
		own[m[1]] = n
	}
	seen, total := make(map[string]uint64), uint64(0)
	for _, row := range result.objects("row") {
		for i, count := range row.Exponential.Positive.Counts {
			if count > 0 {
				most := 1 << ((row.Exponential.Positive.Offset+i)>>row.Exponential.Scale + 1)
				seen[fmt.Sprintf("%s: at most %d", row.Keys["str(route)"], most)] += count
			}
		}
		total += row.Count
	}
	qt.Check(t, qt.Equals(total, uint64(requests)))
	qt.Check(t, qt.DeepEquals(seen, own))

	result = run("--latency", "shop:request", "--by", "str(start.route)")
	counts := make(map[any]uint64)
	for _, row := range result.objects("row") {
		counts[row.Keys["str(start.route)"]] = row.Count
	}
	orders := uint64(requests) / 10
	qt.Check(t, qt.DeepEquals(counts,
		map[any]uint64{"GET /items/{id}": uint64(requests) - orders, "POST /orders": orders}))
	qt.Check(t, qt.Equals(result.objects("summary")[0].Unmatched, 0))

	var measured, took time.Duration
	calls := uint64(0)
	for _, row := range run("--latency", "shop:request", "--sum", "took").objects("row") {
		n, _ := row.Sum.Int64()
		if row.Aggregation == "latency" {
			calls, measured = row.Count, time.Duration(n)
		} else {
			took = time.Duration(n)
		}
	}
	about(uint64(requests), took).check(t, "Go", "--latency shop:request", "its argument took",
		calls, measured)

	// With a wildcard, too, each pair is matched as its definition says.
	result = run("--latency", "*", "--by", "probe")
	for _, row := range result.objects("row") {
		counts[row.Keys["probe"]] = row.Count
	}
	qt.Check(t, qt.Equals(counts["shop:request__done"], uint64(requests)))
	summary := result.objects("summary")[0]
	qt.Check(t, qt.Equals(summary.Unmatched+summary.Overlapped+summary.Left, 0))

	result = run("--count", "shop:*")
	counts = make(map[any]uint64)
	for _, row := range result.objects("row") {
		counts[row.Keys["probe"]] = row.Count
	}
	qt.Check(t, qt.Equals(counts["shop:request__start"], uint64(requests)))
	qt.Check(t, qt.Equals(counts["shop:request__done"], uint64(requests)))
	qt.Check(t, qt.Equals(counts["shop:job__queued"], orders)) // which a semaphore guards
	qt.Check(t, qt.Equals(counts["shop:cache__hit"]+counts["shop:cache__miss"]+
		counts["shop:request__panic"], uint64(requests)-orders))
}

// Go programs are traced on each machine: strings, and the goroutine, which is
// in another register on each.
func TestGoProgramOfThisMachine(t *testing.T) {
	testprog.Parallel(t)
	program := testprog.Path(t, "go-shop")
	const requests = 200
	run := func(args ...string) result {
		return start(t, append(append([]string{"--json"}, args...), "--", program, "-clients", "2",
			"-requests", strconv.Itoa(requests))...).wait()
	}
	counts := make(map[any]uint64)
	for _, row := range run("--count", "--by", "str(arg0,arg1)", "shop:request__start").objects("row") {
		counts[row.Keys["str(arg0,arg1)"]] = row.Count
	}
	qt.Check(t, qt.DeepEquals(counts, map[any]uint64{"GET /items/{id}": requests * 9 / 10,
		"POST /orders": requests / 10}))
	result := run("--latency", "shop:query", "--match", "arg2")
	qt.Check(t, qt.Equals(result.objects("summary")[0].Unmatched, 0))
	qt.Check(t, qt.IsTrue(result.objects("row")[0].Count >= requests/10))
}

// The newest two releases of Go have the goroutine where the notes say.
func TestGoroutineOfReleases(t *testing.T) {
	for _, release := range []string{"go1.25.5", "go1.26.8"} {
		t.Run(release, func(t *testing.T) {
			t.Setenv("GOTOOLCHAIN", release)
			version := exec.Command(testneeds.Tool(t, "go", "golang-go"), "version")
			if out, err := version.CombinedOutput(); err != nil {
				testneeds.Missing(t, "%s", out)
			}
			result := start(t, "--json", "--names", goShop+"/shop.d", "--latency", "shop:query", "--",
				buildGo(t, goShop), "-clients", "8", "-requests", "5000").wait()
			summary := result.objects("summary")[0]
			qt.Check(t, qt.Equals(summary.Unmatched+summary.Overlapped+summary.Left, 0))
			qt.Check(t, qt.IsTrue(result.objects("row")[0].Count > 1_000))
		})
	}
}

// Strings have their lengths, numbers their types, and the stacks the callers,
// also in programs without symbols and lines.
func TestGoProbesHaveArgumentsAndStacks(t *testing.T) {
	testprog.Parallel(t)
	names := goShop + "/shop.d"
	var program string
	for _, flags := range [][]string{
		nil, {"-ldflags=-s -w"}, {"-buildmode=pie", "-ldflags=-linkmode=external -s -w"},
		{"-cover"}, {"strip"},
	} {
		isStripped := slices.Contains(flags, "strip")
		if isStripped {
			flags = nil
		}
		program = buildGo(t, goShop, flags...)
		if isStripped {
			out, err := exec.Command(testneeds.Tool(t, "strip", "binutils"), program).CombinedOutput()
			qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", out))
		}
		result := start(t, "--json", "--names", names, "--stack", "--lines", "shop:job__queued", "--",
			"env", "GOCOVERDIR="+t.TempDir(), program, "-clients", "1", "-requests", "20").wait()
		orders := result.objects("event")
		qt.Check(t, qt.HasLen(orders, 2))
		for i, e := range orders {
			var functions []string
			for _, f := range e.Stack {
				functions = append(functions, f.Function)
			}
			qt.Check(t, qt.StringContains(strings.Join(functions, " "),
				"main.(*shop).order-fm main.main.traced.func"))
			// Lines come a moment later; those of DWARF may take longer than
			// the program.
			if i > 0 && (isStripped || strings.Contains(strings.Join(flags, " "), "-s -w")) {
				qt.Check(t, qt.Matches(e.Stack[2].Source, `\S+/main\.go:\d+`), qt.Commentf("%q", flags))
			}
		}
	}
	result := start(t, "--json", "--names", names, "--where", `str(path) == "/items/42"`,
		"shop:request__start", "--", program, "-clients", "1", "-requests", "100").wait()
	events := result.objects("event")
	qt.Assert(t, qt.HasLen(events, 1))
	for i, want := range []string{"GET /items/{id}", "GET", "/items/42"} {
		qt.Check(t, qt.Equals(*events[0].Args[2*i].Text, want))
		qt.Check(t, qt.Equals(events[0].Args[2*i+1].Value.String(), strconv.Itoa(len(want))))
	}
	goroutine, err := events[0].Args[6].Value.Int64()
	qt.Check(t, qt.IsNil(err))
	qt.Check(t, qt.IsTrue(goroutine > 0))
}

// Other tools see all probes, and those that attach the values.
func TestGoProbesInOtherTools(t *testing.T) {
	testprog.Parallel(t)
	testneeds.Only(t, "gdb reads its own machine's files", "amd64")
	program := buildGo(t, goShop)
	server := exec.Command(program, "-clients", "2")
	qt.Assert(t, qt.IsNil(server.Start()))
	t.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	})
	pid := strconv.Itoa(server.Process.Pid)
	definition, err := os.ReadFile(goShop + "/shop.d")
	qt.Assert(t, qt.IsNil(err))
	var all []string
	for _, m := range regexp.MustCompile(`probe (\w+)`).FindAllSubmatch(definition, -1) {
		all = append(all, string(m[1]))
	}
	slices.Sort(all)
	tool := func(name, debian string) func(t *testing.T) string {
		return func(t *testing.T) string { return testneeds.Tool(t, name, debian) }
	}
	newest := func(name string) func(t *testing.T) string {
		return func(t *testing.T) string {
			path, err := filepath.Abs("../../docs/recipes/build/peers/bin/" + name)
			qt.Assert(t, qt.IsNil(err))
			if _, err := os.Stat(path); err != nil {
				testneeds.Missing(t, "no newest %s: internal/setup/newest-peers docs/recipes/build/peers unpacks it", name)
			}
			return path
		}
	}
	own := func(dir, name string) func(t *testing.T) string {
		return func(t *testing.T) string {
			goCommand(t, dir, "build", "-o", filepath.Dir(program), "./"+name)
			return filepath.Join(filepath.Dir(program), filepath.Base(name))
		}
	}
	profile := filepath.Join(t.TempDir(), "profile.folded")
	const values = `(?m)GET /items/\{id\}.*`
	for _, test := range []struct {
		name, args, probe string
		path              func(t *testing.T) string
	}{
		{"readelf", "--notes --wide FILE", `(?m)^ +Name: (\w+)`, tool("readelf", "binutils")},
		{"gdb", "-nx -batch -ex|info probes stap shop|FILE", `(?m)^stap +shop +(\w+)`, tool("gdb", "gdb")},
		{"perf", "list sdt", `sdt_shop:(\w+)`, tool("perf", "linux-perf")},
		{"newest perf", "list sdt", `sdt_shop:(\w+)`, newest("perf")},
		{"bpftrace lists", "-l usdt:FILE:*", `:shop:(\w+)`, tool("bpftrace", "bpftrace")},
		{"newest bpftrace lists", "-l usdt:FILE:*", `:shop:(\w+)`, newest("bpftrace")},
		{"bpftrace", "-p PID -e|usdt:FILE:shop:request__start " +
			`/arg3 == 3/ { printf("%s %d\n", str(arg0, arg1), arg1); exit(); }`,
			values + " 15$", tool("bpftrace", "bpftrace")},
		{"newest bpftrace", "-p PID -e|usdt:FILE:shop:request__start " +
			`/arg3 == 3/ { printf("%s %d\n", str(arg0, arg1 + 1), arg1); exit(); }`,
			values + " 15$", newest("bpftrace")},
		{"tplist", "-l FILE", `shop:(\w+)`, newest("tplist-bpfcc")},
		{"trace", `-p PID -M 9|u:FILE:request__start "%s %d", arg1, arg2`, values + " 15$", newest("trace-bpfcc")},
		{"usdtlist", "FILE", `(?m)^shop +(\w+)`, own("..", "usdtlist")},
		{"usdttrace", "-p PID --names NAMES --max-events 1 shop:request__start",
			`route="(GET /items/\{id\}|POST /orders)" method="(GET|POST)" path="/`, own("..", "usdttrace")},
		{"usdtprofile", "-p PID --duration 2 -o PROFILE shop:request__start",
			`main\.main\.traced\.func\d+;`, own("../../profiler", "cmd/usdtprofile")},
	} {
		t.Run(test.name, func(t *testing.T) {
			// The home keeps none of it, and debuginfod is not asked.
			home := t.TempDir()
			args := strings.Split(test.args, "|")
			words := append(strings.Fields(args[0]), args[1:]...)
			for i := range words {
				words[i] = strings.NewReplacer("PROFILE", profile, "FILE", program, "PID", pid,
					"NAMES", goShop+"/shop.d").Replace(words[i])
			}
			path := test.path(t)
			var in []string
			if test.name == "usdtprofile" {
				qt.Assert(t, qt.IsNil(testprog.AllowLockedMemory()))
				// Not every system has mounted what it asks for.
				in = []string{"unshare", "--mount", "sh", "-e", "-c",
					`cd /sys/kernel/tracing; [ -e available_events ] || mount -t tracefs tracefs .; ` +
						`cd "$OLDPWD"; exec "$@"`, "sh"}
			}
			run := func(args ...string) string {
				args = append(append(in, path), args...)
				cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
				cmd.Env = append(os.Environ(), "HOME="+home, "DEBUGINFOD_URLS=")
				out, err := cmd.CombinedOutput()
				qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", out))
				return string(out)
			}
			if strings.HasSuffix(test.name, "perf") {
				run("buildid-cache", "--add", program)
			}
			out := run(words...)
			if strings.Contains(test.args, "PROFILE") {
				folded, err := os.ReadFile(profile)
				qt.Assert(t, qt.IsNil(err))
				out = string(folded)
			}
			probe := regexp.MustCompile(test.probe)
			if probe.NumSubexp() != 1 {
				qt.Check(t, qt.IsTrue(probe.MatchString(out)), qt.Commentf("%s", out))
				return
			}
			var seen []string
			for _, m := range probe.FindAllStringSubmatch(out, -1) {
				seen = append(seen, m[1])
			}
			slices.Sort(seen)
			qt.Check(t, qt.DeepEquals(slices.Compact(seen), all), qt.Commentf("%s", out))
		})
	}
}

const (
	goStressProbes = `package main

//sdt:provider stress

//go:noescape
func hit(text string, number int, data []byte)
func seldom(number int)
`
	goStress = `package main

import (
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"runtime/pprof"
	"strconv"
	"sync"
	"sync/atomic"
)

var hits, seldoms atomic.Int64

// deep lets the stack grow, and be copied.
func deep(depth, number int) int {
	var room [64]byte
	room[depth%64] = byte(number)
	if depth > 0 {
		return deep(depth-1, number) + int(room[number%64])
	}
	text := strconv.Itoa(number) + "/" // on the heap, which is collected all the time
	hit(text, number, room[:number%64])
	hits.Add(1)
	return len(text)
}

func main() {
	debug.SetGCPercent(1)
	if err := pprof.StartCPUProfile(io.Discard); err != nil { // signals at any instruction
		panic(err)
	}
	n, _ := strconv.Atoi(os.Args[1])
	var done sync.WaitGroup
	for g := range 64 {
		done.Go(func() {
			for i := range n / 64 {
				deep(i%50, g+i)
				if seldomEnabled() {
					seldom(i)
					seldoms.Add(1)
				}
			}
		})
	}
	done.Wait()
	pprof.StopCPUProfile()
	fmt.Fprintln(os.Stderr, "fired", hits.Load())
}
`
)

// Stacks that grow, the garbage collector, signals at the site and tracers that
// come and go do a program no harm, and no hit is missed.
func TestGoProbesUnderStress(t *testing.T) {
	testprog.Parallel(t)
	sdt, err := filepath.Abs("../../sdt")
	qt.Assert(t, qt.IsNil(err))
	dir := t.TempDir()
	for name, text := range map[string]string{
		"probes.go": goStressProbes, "main.go": goStress,
		"go.mod": "module example.com/stress\n\ngo 1.25.0\n\ntool github.com/gousdt/gousdt/sdt\n\n" +
			"require github.com/gousdt/gousdt/sdt v0.0.0\n\nreplace github.com/gousdt/gousdt/sdt => " + sdt + "\n",
	} {
		qt.Assert(t, qt.IsNil(os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666)))
	}
	goCommand(t, dir, "tool", "sdt", "probes.go")
	for _, flags := range [][]string{nil, {"-race"}} {
		t.Run(strings.Join(append([]string{"flags"}, flags...), " "), func(t *testing.T) {
			hits := testprog.Soak(64*2_000, 100_000_000)
			program := buildGo(t, dir, flags...)
			counting := start(t, "--json", "--count", "stress:hit", program, "--",
				program, strconv.Itoa(hits))
			for rounds := 0; counting.runs(); rounds++ {
				other := start(t, "--json", "--count", "--duration", "50ms", "-a", program, "stress:*").wait()
				qt.Assert(t, qt.Equals(other.status, exitWatched), qt.Commentf("%s", other.stderr))
			}
			result := counting.wait()
			qt.Check(t, qt.StringContains(result.stderr, fmt.Sprintf("fired %d\n", hits)))
			rows := result.objects("row")
			qt.Assert(t, qt.HasLen(rows, 1))
			qt.Check(t, qt.Equals(rows[0].Count, uint64(hits)))
		})
	}
}
