// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gousdt/gousdt/elfnote"
)

// applications begins the names of the rows about what tracing costs others.
const applications = "application/"

const (
	untraced  = "nothing attached"
	twoProbes = "usdttrace --latency, two probes"
	ofPeer    = "bpftrace, two probes and a histogram"
	countOne  = "usdttrace --count, one probe"
	countPerf = "perf stat, one probe"
	byStack   = "usdttrace --count --by stack"
	ofStack   = "bpftrace, stacks counted"

	// trapNanoseconds is what a hit takes at least. What else a tracer takes of
	// an application is at most overhead of its time.
	trapNanoseconds = 500
	overhead        = 1.03

	// aboveFloor is what a question may take of what its traps take, if these
	// are most of the time: the kernel's trap alone takes 400 to 600 ns.
	aboveFloor = 1.25
)

// A question is what is asked while an application works.
type question struct {
	name string
	// command is the tracer's, nil if there is none. FILE stands for the file
	// with the probes, PERF:NAME for perf events at the probe NAME, and
	// usdttrace and receiver are built.
	command []string
	// options are what the application needs to answer, or to answer alone.
	options []string
	// hits is how often the probes fire in a unit of work, -1 if it varies.
	hits float64
	// alone is who works with the same options and nothing attached, if there
	// are some, peer who gives the same answer, and floor who has an empty
	// program at the same probes.
	alone, peer, floor string
}

// goals are that usdttrace costs what the traps cost, and no more than a peer.
func goals(questions []question) (all []goal) {
	for _, q := range questions {
		if q.command == nil || q.command[0] != "usdttrace" {
			continue
		}
		if q.floor != "" {
			all = append(all, goal{Of: q.name, Than: q.floor, Times: aboveFloor})
		}
		if q.hits >= 0 {
			all = append(all, goal{Of: q.name, Than: cmp.Or(q.alone, untraced), Times: overhead,
				Plus: q.hits * trapNanoseconds})
		}
		if q.peer != "" {
			all = append(all, goal{Of: q.name, Than: q.peer, Times: 1})
		}
	}
	return all
}

// applicationRows measure what tracing costs the application. Each contestant
// is a way to ask, and what is measured is the application's own time.
func applicationRows() []row {
	asked := func(
		name, title string, questions []question, start func(e *env) (*application, error),
	) row {
		return row{
			name: applications + name, title: title, rounds: 5, goals: goals(questions),
			prepare: func(e *env) ([]contestant, error) {
				app, err := start(e)
				if err != nil {
					return nil, err
				}
				return e.asking(app, questions)
			},
		}
	}
	return []row{
		asked("select", "a transaction of pgbench -S, prepared, two clients", statements(1, 1),
			func(e *env) (*application, error) { return e.pgbench(6000, "-S", "-M", "prepared") }),
		asked("tpcb", "a transaction of pgbench (TPC-B), prepared, two clients", statements(7, 11),
			func(e *env) (*application, error) { return e.pgbench(1000, "-M", "prepared") }),
		asked("python", "a call of a Python function that adds two numbers", pythonQuestions,
			(*env).python),
		asked("java", "a request of a Java program with two threads, garbage and a lock", javaQuestions,
			func(e *env) (*application, error) { return e.java(40_000) }),
		asked("methods", "a request of the same, its methods traced", methodQuestions,
			func(e *env) (*application, error) { return e.java(3000) }),
		asked("web", "a request to nginx and PHP-FPM, two connections", webQuestions, (*env).web),
	}
}

// An application is a program that works while it is traced.
type application struct {
	file  string // that has the probes
	units int    // of work, in each round
	// with returns what the application does with some options.
	with func(options []string) (work, error)
}

// work does some units of work.
type work func(units int) (spent, error)

// spent is what a unit of work took, on average and by its 99th percentile, in
// nanoseconds. The percentile is 0 if it is not known.
type spent struct{ average, tail float64 }

// asking are contestants whose application works while a question is asked.
func (e *env) asking(app *application, questions []question) ([]contestant, error) {
	replaced := []string{"FILE", app.file}
	for command, build := range map[string]func() (string, error){
		"usdttrace": func() (string, error) { return e.goBuild("usdttrace") },
		"receiver":  e.receiver,
	} {
		if slices.ContainsFunc(questions, func(q question) bool {
			return slices.Contains(q.command, command)
		}) {
			built, err := build()
			if err != nil {
				return nil, err
			}
			replaced = append(replaced, command+"\x00", built+"\x00")
		}
	}
	works := make(map[string]work)
	var all []contestant
	for _, q := range questions {
		key := strings.Join(q.options, " ")
		if works[key] == nil {
			do, err := app.with(q.options)
			if err != nil {
				all = append(all, missing(q.name, err))
				continue
			}
			works[key] = do
		}
		all = append(all, e.asks(app, q, works[key], strings.NewReplacer(replaced...)))
	}
	return all, nil
}

func (e *env) asks(app *application, q question, do work, replacer *strings.Replacer) contestant {
	var last spent
	c := contestant{Name: q.name, Tail: func() float64 { return last.tail }}
	if q.command == nil {
		c.Measure = func(int) (float64, error) {
			var err error
			last, err = do(app.units)
			return last.average, err
		}
		return c
	}
	words := strings.Split(replacer.Replace(strings.Join(q.command, "\x00")+"\x00"), "\x00")
	words = words[:len(words)-1]
	path, err := exec.LookPath(words[0])
	if err != nil {
		return missing(q.name, &unableError{"not installed"})
	}
	for i, word := range words {
		if probe, ok := strings.CutPrefix(word, "PERF:"); ok && err == nil {
			words[i], err = e.perfEvents(app.file, probe)
		}
	}
	if err != nil {
		return missing(q.name, err)
	}
	c.Measure = func(int) (float64, error) {
		stop, err := startTracer(exec.Command(path, words[1:]...), do)
		if err != nil {
			return 0, err
		}
		last, err = do(app.units)
		return last.average, errors.Join(err, stop())
	}
	return c
}

// perfEvents makes a probe known to perf, and returns the pattern of its
// events: one for each site. The kernel keeps them until the end of the row.
func (e *env) perfEvents(file, probe string) (string, error) {
	f, err := elfnote.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	tell := func(line string) error {
		words := append(slices.Clone(withTracefs), "sh", "-c",
			`echo "$0" >>/sys/kernel/tracing/uprobe_events`, line)
		if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", line, err, out)
		}
		return nil
	}
	group, count := fmt.Sprintf("%s%d", perfGroup, os.Getpid()), 0
	for site, err := range f.Sites() {
		if err != nil || site.Name != probe {
			continue
		}
		event := fmt.Sprintf("%s/%s_%d", group, probe, count)
		place := fmt.Sprintf("%s:%#x", file, site.Offset)
		if site.SemaphoreOffset != 0 {
			place += fmt.Sprintf("(%#x)", site.SemaphoreOffset)
		}
		_ = tell("-:" + event) // of another question
		if err := tell("p:" + event + " " + place); err != nil {
			return "", err
		}
		e.cleanup(func() { _ = tell("-:" + event) })
		count++
	}
	if count == 0 {
		return "", fmt.Errorf("%s has no probe %s", file, probe)
	}
	return group + ":" + probe + "_*", nil
}

// perfGroup begins the group of the events for perf.
const perfGroup = "gousdt_bench"

// withTracefs begins a command that sees tracefs. If it is not mounted, others
// do not see it: it changes how they attach.
var withTracefs = []string{"unshare", "--mount", "sh", "-c", "mountpoint -q /sys/kernel/tracing || " +
	`mount -t tracefs tracefs /sys/kernel/tracing; exec "$0" "$@"`}

// perf is a command that watches all processes.
func perf(words ...string) []string {
	return slices.Concat(withTracefs, []string{"perf"}, words)
}

// attached is what tracers print when they are: perf prints an event or counts.
var attachedLine = regexp.MustCompile(`watching|Attach(ing|ed)|^attached|` + perfGroup)

// startTracer returns when the tracer says that it is attached. Some say
// nothing before they see a hit: a little is done until they do.
func startTracer(cmd *exec.Cmd, do work) (stop func() error, err error) {
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	cmd.Stderr = cmd.Stdout // in which of the two it says so differs
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	attached, ended := make(chan struct{}), make(chan struct{})
	said := ""
	go func() {
		defer close(ended)
		reader := bufio.NewReader(out)
		for {
			line, err := reader.ReadString('\n')
			if err != nil {
				return
			}
			if attachedLine.MatchString(line) {
				break
			}
			said = line
		}
		close(attached)
		io.Copy(io.Discard, reader)
	}()
	stop = func() error {
		interrupt(cmd.Process, ended)
		_ = cmd.Wait() // the signal that ends it is its status
		return nil
	}
	patience := time.After(printPatience)
	for {
		select {
		case <-attached:
			return stop, nil
		case <-ended:
			return nil, errors.Join(fmt.Errorf("%s has ended instead of attaching: %s", cmd.Path,
				strings.TrimSpace(said)), stop())
		case <-patience:
			return nil, errors.Join(fmt.Errorf("%s does not attach", cmd.Path), stop())
		case <-time.After(300 * time.Millisecond):
			if _, err := do(1); err != nil {
				return nil, errors.Join(err, stop())
			}
		}
	}
}

// statements are the questions about PostgreSQL, for transactions of some
// statements, which execute something that often.
func statements(count, executions float64) []question {
	const (
		start    = "postgresql:query__execute__start"
		executed = "usdt:FILE:postgresql:query__execute__"
		text     = "usdttrace --latency, statements by SQL text"
		// Its floor: more than half of what it costs is five traps.
		traps = "bpftrace, the probes of a statement, empty programs"
	)
	return []question{
		{name: untraced},
		{name: countOne, command: []string{"usdttrace", "--count", "FILE", start},
			hits: executions, peer: countPerf},
		{name: countPerf, command: perf("stat", "-I", "100", "-a", "-e", "PERF:query__execute__start")},
		{name: twoProbes, hits: 2 * executions, peer: ofPeer,
			command: []string{"usdttrace", "--latency", "postgresql:query__execute", "FILE"}},
		{name: ofPeer, command: []string{"bpftrace", "-e", executed + "start { @s[tid] = nsecs; } " +
			executed + "done /@s[tid]/ { @t = hist(nsecs - @s[tid]); delete(@s[tid]); }"}},
		{name: "perf trace, two probes, each printed", command: perf("trace", "-a",
			"-e", "PERF:query__execute__start", "-e", "PERF:query__execute__done")},
		// Each sets what pg_stat_activity shows of it three times.
		{name: text, hits: 2*executions + 3*count, peer: textPeer, floor: traps,
			command: []string{"usdttrace", "--latency", "postgresql:statement", "--by", "query", "FILE"}},
		{name: textPeer, command: []string{"bpftrace", "-e",
			"usdt:FILE:postgresql:statement__status /arg0/ { @q[tid] = str(arg0); } " + executed + "start { @s[tid] = nsecs; } " +
				executed + "done /@s[tid]/ { @t[@q[tid]] = hist(nsecs - @s[tid]); delete(@s[tid]); }"}},
		{name: "usdttrace --slow 5ms, statements",
			command: []string{"usdttrace", "--slow", "5ms", "postgresql:statement", "FILE"},
			hits:    2*executions + 3*count, peer: slowPeer, floor: traps},
		{name: slowPeer, command: []string{"bpftrace", "-e",
			"usdt:FILE:postgresql:statement__status /arg0/ { @q[tid] = str(arg0); } " + executed + "start { @s[tid] = nsecs; } " +
				executed + "done /@s[tid]/ { if (nsecs - @s[tid] > 5000000) { " +
				`printf("%d %s\n", (nsecs - @s[tid]) / 1000, @q[tid]); } delete(@s[tid]); }`}},
		{name: traps, command: []string{"bpftrace", "-e", "usdt:FILE:postgresql:statement__status { } " +
			executed + "start { } " + executed + "done { }"}},
		{name: byStack, command: []string{"usdttrace", "--count", "--by", "stack", "FILE", start},
			hits: executions, peer: ofStack},
		{name: ofStack, command: []string{"bpftrace", "-e", executed + "start { @[ustack] = count(); }"}},
		{name: "the Collector's receiver, preset postgresql", command: []string{"env",
			"GOUSDT_TEST_RECEIVER=FILE", "GOUSDT_TEST_PRESET=postgresql", "receiver"}},
		{name: "pg_stat_statements, statements by SQL text",
			options: []string{"-c shared_preload_libraries=pg_stat_statements"}},
	}
}

const (
	textPeer = "bpftrace, a histogram for each statement"
	slowPeer = "bpftrace, statements slower than 5 ms"
)

// pgbench is a server of PostgreSQL, and for other options another one.
func (e *env) pgbench(times int, arguments ...string) (*application, error) {
	servers, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if len(servers) == 0 {
		return nil, &unableError{"no PostgreSQL in /usr/lib/postgresql"}
	}
	file := slices.Max(servers)
	units := e.pick(times, times/5, 20)
	return &application{file: file, units: units, with: func(options []string) (work, error) {
		pgbench, folder, err := e.postgres(file, strings.Join(options, " "))
		if err != nil {
			return nil, err
		}
		return func(units int) (spent, error) {
			words := []string{"-n", "-l", "-c", "2", "-t", strconv.Itoa(units)}
			said, err := pgbench(append(words, arguments...)...)
			if err != nil {
				return spent{}, err
			}
			found := regexp.MustCompile(`latency average = ([\d.]+) ms`).FindStringSubmatch(said)
			if found == nil {
				return spent{}, fmt.Errorf("pgbench says %q", said)
			}
			milliseconds, err := strconv.ParseFloat(found[1], 64)
			if err != nil {
				return spent{}, err
			}
			tail, err := loggedTail(folder)
			return spent{milliseconds * 1e6, tail}, err
		}, nil
	}}, nil
}

// loggedTail returns the 99th percentile of the transactions that pgbench has
// logged, and removes the log.
func loggedTail(folder string) (float64, error) {
	logs, err := filepath.Glob(filepath.Join(folder, "pgbench_log.*"))
	if err != nil {
		return 0, err
	}
	var all []float64
	for _, name := range logs {
		text, err := os.ReadFile(name)
		if err != nil {
			return 0, err
		}
		for line := range strings.Lines(string(text)) {
			var client, transaction int
			var microseconds float64
			if _, err := fmt.Sscan(line, &client, &transaction, &microseconds); err != nil {
				return 0, fmt.Errorf("%s: %q: %w", name, line, err)
			}
			all = append(all, microseconds*1e3)
		}
		if err := os.Remove(name); err != nil {
			return 0, err
		}
	}
	return tailOf(all), nil
}

// tailOf returns the 99th percentile.
func tailOf(all []float64) float64 { return quantile(slices.Sorted(slices.Values(all)), 0.99) }

// postgres starts a server, and returns how pgbench is run with it, and in
// which folder.
func (e *env) postgres(
	file, options string,
) (pgbench func(...string) (string, error), folder string, err error) {
	owner, err := user.Lookup("postgres")
	if err != nil {
		return nil, "", &unableError{"no user postgres"}
	}
	folder, err = os.MkdirTemp("", "gousdt-bench-")
	if err != nil {
		return nil, "", err
	}
	e.cleanup(func() { os.RemoveAll(folder) })
	id, _ := strconv.Atoi(owner.Uid)
	if err := os.Chown(folder, id, -1); err != nil {
		return nil, "", err
	}
	as := func(program string, arguments ...string) (string, error) {
		cmd := exec.Command("runuser", append([]string{"-u", "postgres", "--",
			filepath.Join(filepath.Dir(file), program)}, arguments...)...)
		cmd.Dir = folder
		out, err := cmd.CombinedOutput()
		if err != nil {
			return "", fmt.Errorf("%s: %w: %s", program, err, out)
		}
		return string(out), nil
	}
	pgbench = func(arguments ...string) (string, error) {
		return as("pgbench", append(arguments, "-h", folder, "postgres")...)
	}
	if _, err := as("initdb", "-D", "data"); err != nil {
		return nil, "", err
	}
	// What it writes goes to its log: a pipe would be open as long as it runs.
	if _, err := as("pg_ctl", "-D", "data", "-w", "-l", "log", "-o",
		"-k "+folder+" -c listen_addresses= -c fsync=off "+options, "start"); err != nil {
		return nil, "", err
	}
	e.cleanup(func() { _, _ = as("pg_ctl", "-D", "data", "-m", "immediate", "-w", "stop") })
	_, err = pgbench("-i", "-q")
	return pgbench, folder, err
}

// Entries fire only while lines are traced, too: two lines of the loop and one
// of the function, beside its entry and return.
// pythonQuestions are about calls that take a tenth of a trap. So the goals are
// beside the traps.
var pythonQuestions = []question{
	{name: untraced},
	{name: "usdttrace --count, returns", hits: -1, floor: returnTraps, peer: returnPeer,
		command: []string{"usdttrace", "--count", "FILE", "python:function__return"}},
	{name: returnPeer,
		command: []string{"bpftrace", "-e", pythonProbe + "function__return { @ = count(); }"}},
	{name: returnTraps, command: []string{"bpftrace", "-e", pythonProbe + "function__return { }"}},
	// A call fires its two probes, and python:line three times: at the two
	// lines of the loop and at the one of the function.
	{name: callTraps, command: []string{"bpftrace", "-e", pythonProbe + "line { } " + pythonProbe +
		"function__entry { } " + pythonProbe + "function__return { }"}},
	{name: twoProbes, command: []string{"usdttrace", "--latency", "python:function", "FILE"},
		hits: -1, floor: callTraps, peer: ofPeer},
	{name: ofPeer, command: []string{"bpftrace", "-e", pythonProbe + "line { } " + pythonProbe +
		"function__entry { @d[tid]++; @s[tid, @d[tid]] = nsecs; } " + pythonProbe +
		"function__return /@d[tid]/ { @t = hist(nsecs - @s[tid, @d[tid]]); " +
		"delete(@s[tid, @d[tid]]); @d[tid]--; }"}},
	{name: "usdttrace --latency, by function", hits: -1, floor: callTraps,
		command: []string{"usdttrace", "--latency", "python:function", "--by", "function", "FILE"}},
	{name: "cProfile", options: []string{"-m", "cProfile"}},
}

const (
	pythonProbe = "usdt:FILE:python:"
	returnPeer  = "bpftrace, returns counted"
	returnTraps = "bpftrace, returns, an empty program"
	callTraps   = "bpftrace, calls, empty programs"
)

// python is a program that calls a function.
func (e *env) python() (*application, error) {
	const python = "/usr/bin/python3.11" // later ones have no probes of calls
	if _, err := os.Stat(python); err != nil {
		return nil, &unableError{"no " + python + ", which has probes of calls"}
	}
	units := e.pick(200_000, 50_000, 1000)
	script := filepath.Join(e.dir, "calls.py")
	err := os.WriteFile(script, []byte(`import sys, time
def add(a, b):
    return a + b
def main():
    began = time.perf_counter_ns()
    for i in range(int(sys.argv[1])):
        add(i, 1)
    print(time.perf_counter_ns() - began)
main()
`), 0o644)
	return &application{file: python, units: units, with: func(options []string) (work, error) {
		return func(units int) (spent, error) {
			words := append(slices.Clone(options), script, strconv.Itoa(units))
			out, err := exec.Command(python, words...).Output()
			if err != nil {
				return spent{}, err
			}
			first, _, _ := strings.Cut(string(out), "\n")
			took, err := strconv.ParseFloat(first, 64)
			return spent{average: took / float64(units)}, err
		}, nil
	}}, err
}

const (
	javaProbe    = "usdt:FILE:hotspot:"
	monitorsFlag = "-XX:+DTraceMonitorProbes"
	methodsFlag  = "-XX:+DTraceMethodProbes"
	monitorsOnly = "nothing attached, " + monitorsFlag
	methodsOnly  = "nothing attached, " + methodsFlag
	monitorsPeer = "bpftrace, waits for monitors by class"
	methodsPeer  = "bpftrace, methods by name"
)

// Collections are so rare that their hits are nothing of a request.
var javaQuestions = []question{
	{name: untraced},
	{name: "usdttrace --latency, collections",
		command: []string{"usdttrace", "--latency", "hotspot:gc__begin..hotspot:gc__end", "FILE"},
		peer:    "bpftrace, collections"},
	{name: "bpftrace, collections", command: []string{"bpftrace", "-e", javaProbe +
		"gc__begin { @s = nsecs; } " + javaProbe + "gc__end /@s/ { @t = hist(nsecs - @s); @s = 0; }"}},
	{name: "-Xlog:gc*,safepoint", options: []string{"-Xlog:gc*,safepoint:file=DIR/gc.log"}},
	{name: "usdttrace --count --by stack, collections",
		command: []string{"usdttrace", "--count", "--by", "stack", "FILE", "hotspot:gc__begin"}},
	{name: monitorsOnly, options: []string{monitorsFlag}},
	{name: "usdttrace --latency, waits for monitors by class",
		options: []string{monitorsFlag}, hits: -1, alone: monitorsOnly, peer: monitorsPeer,
		command: []string{"usdttrace", "--latency", "hotspot:monitor__contended",
			"--by", "str(start.class)", "FILE"}},
	{name: monitorsPeer, options: []string{monitorsFlag},
		command: []string{"bpftrace", "-e", javaProbe +
			"monitor__contended__enter { @s[tid] = nsecs; } " + javaProbe +
			"monitor__contended__entered /@s[tid]/ { @t[str(arg2, arg3)] = hist(nsecs - @s[tid]); delete(@s[tid]); }"}},
}

var methodQuestions = []question{
	{name: untraced},
	{name: methodsOnly, options: []string{methodsFlag}},
	{name: "usdttrace --count, methods by name", options: []string{methodsFlag},
		hits: methodsOfRequest, alone: methodsOnly, peer: methodsPeer,
		command: []string{"usdttrace", "--count", "--by", "str(class,32),str(method,32)",
			"FILE", "hotspot:method__entry"}},
	{name: methodsPeer, options: []string{methodsFlag},
		command: []string{"bpftrace", "-e", javaProbe +
			"method__entry { @[str(arg1, arg2), str(arg3, arg4)] = count(); }"}},
}

// methodsOfRequest is how many methods a request of peers/Requests.java calls.
const methodsOfRequest = 96

// java is a program whose requests need memory and a lock.
func (e *env) java(requests int) (*application, error) {
	library, err := libjvm()
	if err != nil {
		return nil, err
	}
	if out, err := exec.Command("javac", "-d", e.dir, "peers/Requests.java").CombinedOutput(); err != nil {
		return nil, &unableError{fmt.Sprintf("javac: %v: %s", err, out)}
	}
	units := e.pick(requests, requests/5, 10)
	return &application{file: library, units: units, with: func(options []string) (work, error) {
		arguments := []string{"-Xmx64m", "-cp", e.dir}
		for _, option := range options {
			arguments = append(arguments, strings.ReplaceAll(option, "DIR", e.dir))
		}
		return func(units int) (s spent, err error) {
			out, err := exec.Command("java",
				append(slices.Clip(arguments), "Requests", strconv.Itoa(units))...).Output()
			if err == nil {
				_, err = fmt.Sscan(string(out), &s.average, &s.tail)
			}
			return s, err
		}, nil
	}}, nil
}
