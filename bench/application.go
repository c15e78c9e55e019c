// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	untraced  = "nothing attached"
	twoProbes = "usdttrace --latency, two probes"
	ofPeer    = "bpftrace, two probes and a histogram"
)

// applicationRows measure what tracing costs the application. Each contestant
// is a way to ask, and what is measured is the application's own time.
func applicationRows() []row {
	goals := []goal{{Of: twoProbes, Than: ofPeer, Times: 1}}
	pgbench := func(name, title string, arguments ...string) row {
		return row{
			name: "application/" + name, title: title, rounds: 9, goals: goals,
			prepare: func(e *env) ([]contestant, error) { return e.pgbench(arguments) },
		}
	}
	return []row{
		pgbench("select", "a transaction of pgbench -S, prepared, two clients", "-S", "-M", "prepared"),
		pgbench("tpcb", "a transaction of pgbench (TPC-B), prepared, two clients", "-M", "prepared"),
		{
			name: "application/python", title: "a call of a Python function that adds two numbers",
			rounds: 9, goals: goals,
			prepare: func(e *env) ([]contestant, error) { return e.pythonCalls() },
		},
	}
}

// A question is a tracer's command, in which FILE has the probes. It is nil if
// nothing is asked.
type question struct {
	name    string
	command []string
}

// asking are contestants whose application runs while a question is asked.
func (e *env) asking(file string, questions []question, run func() (float64, error)) []contestant {
	var all []contestant
	for _, q := range questions {
		if q.command == nil {
			all = append(all, once(q.name, run))
			continue
		}
		path, err := exec.LookPath(q.command[0])
		if err != nil {
			all = append(all, missing(q.name, &unableError{"not installed"}))
			continue
		}
		arguments := slices.Clone(q.command[1:])
		for i := range arguments {
			arguments[i] = strings.ReplaceAll(arguments[i], "FILE", file)
		}
		all = append(all, once(q.name, func() (float64, error) {
			stop, err := startTracer(path, arguments)
			if err != nil {
				return 0, err
			}
			cost, err := run()
			return cost, errors.Join(err, stop())
		}))
	}
	return all
}

// startTracer returns when the tracer says that it is attached.
func startTracer(path string, arguments []string) (stop func() error, err error) {
	cmd := exec.Command(path, arguments...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	cmd.Stderr = cmd.Stdout // in which of the two it says so differs
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	attached, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		said := false
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if !said && regexp.MustCompile(`watching|Attach(ing|ed)`).MatchString(lines.Text()) {
				said = true
				close(attached)
			}
		}
	}()
	stop = func() error {
		interrupt(cmd.Process, ended)
		_ = cmd.Wait() // the signal that ends it is its status
		return nil
	}
	select {
	case <-attached:
		return stop, nil
	case <-ended:
		return nil, errors.Join(fmt.Errorf("%s has ended instead of attaching", path), stop())
	case <-time.After(printPatience):
		return nil, errors.Join(fmt.Errorf("%s does not attach", path), stop())
	}
}

// pgbench are contestants with a server of PostgreSQL of their own.
func (e *env) pgbench(arguments []string) ([]contestant, error) {
	usdttrace, err := e.goBuild("usdttrace")
	if err != nil {
		return nil, err
	}
	plain, server, err := e.postgres("")
	if err != nil {
		return nil, err
	}
	counting, _, err := e.postgres("-c shared_preload_libraries=pg_stat_statements")
	if err != nil {
		return nil, err
	}
	times := strconv.Itoa(e.pick(4000, 1000, 20))
	run := func(pgbench func(...string) (string, error)) func() (float64, error) {
		return func() (float64, error) {
			said, err := pgbench(append([]string{"-n", "-c", "2", "-t", times}, arguments...)...)
			if err != nil {
				return 0, err
			}
			found := regexp.MustCompile(`latency average = ([\d.]+) ms`).FindStringSubmatch(said)
			if found == nil {
				return 0, fmt.Errorf("pgbench says %q", said)
			}
			milliseconds, err := strconv.ParseFloat(found[1], 64)
			return milliseconds * 1e6, err
		}
	}
	const executed = "usdt:FILE:postgresql:query__execute__"
	all := e.asking(server, []question{
		{untraced, nil},
		{"usdttrace --count, one probe",
			[]string{usdttrace, "--count", "FILE", "postgresql:query__execute__start"}},
		{twoProbes, []string{usdttrace, "--latency", "postgresql:query__execute", "FILE"}},
		{ofPeer, []string{"bpftrace", "-e", executed + "start { @s[tid] = nsecs; } " +
			executed + "done /@s[tid]/ { @t = hist(nsecs - @s[tid]); delete(@s[tid]); }"}},
		{"usdttrace --latency, statements by text",
			[]string{usdttrace, "--latency", "postgresql:statement", "--by", "query", "FILE"}},
		{"usdttrace --slow 5ms, statements",
			[]string{usdttrace, "--slow", "5ms", "postgresql:statement", "FILE"}},
	}, run(plain))
	return append(all, once("pg_stat_statements, statements by text", run(counting))), nil
}

// postgres starts a server, and returns how pgbench is run with it.
func (e *env) postgres(options string) (pgbench func(...string) (string, error), file string, err error) {
	servers, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	owner, err := user.Lookup("postgres")
	if len(servers) == 0 || err != nil {
		return nil, "", &unableError{"no PostgreSQL in /usr/lib/postgresql, or no user postgres"}
	}
	file = slices.Max(servers)
	folder, err := os.MkdirTemp("", "gousdt-bench-")
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
	return pgbench, file, err
}

// pythonCalls are contestants that call a Python function.
func (e *env) pythonCalls() ([]contestant, error) {
	const python = "/usr/bin/python3.11" // later ones have no probes of calls
	if _, err := os.Stat(python); err != nil {
		return nil, &unableError{"no " + python + ", which has probes of calls"}
	}
	usdttrace, err := e.goBuild("usdttrace")
	if err != nil {
		return nil, err
	}
	times := e.pick(200_000, 50_000, 1000)
	script := filepath.Join(e.dir, "calls.py")
	if err := os.WriteFile(script, fmt.Appendf(nil, "import time\ndef add(a, b):\n    return a + b\n"+
		"def main():\n    began = time.perf_counter_ns()\n    for i in range(%d):\n        add(i, 1)\n"+
		"    print(time.perf_counter_ns() - began)\nmain()\n", times), 0o644); err != nil {
		return nil, err
	}
	run := func(options ...string) func() (float64, error) {
		return func() (float64, error) {
			out, err := exec.Command(python, append(options, script)...).Output()
			if err != nil {
				return 0, err
			}
			first, _, _ := strings.Cut(string(out), "\n")
			spent, err := strconv.ParseFloat(first, 64)
			return spent / float64(times), err
		}
	}
	// Entries fire only while lines are traced, too.
	const function = "usdt:FILE:python:"
	all := e.asking(python, []question{
		{untraced, nil},
		{"usdttrace --count, returns", []string{usdttrace, "--count", "FILE", "python:function__return"}},
		{twoProbes, []string{usdttrace, "--latency", "python:function", "FILE"}},
		{ofPeer, []string{"bpftrace", "-e", function + "line { } " + function +
			"function__entry { @d[tid]++; @s[tid, @d[tid]] = nsecs; } " + function +
			"function__return /@d[tid]/ { @t = hist(nsecs - @s[tid, @d[tid]]); " +
			"delete(@s[tid, @d[tid]]); @d[tid]--; }"}},
		{"usdttrace --latency, by function",
			[]string{usdttrace, "--latency", "python:function", "--by", "function", "FILE"}},
	}, run())
	return append(all, once("cProfile", run("-m", "cProfile"))), nil
}
