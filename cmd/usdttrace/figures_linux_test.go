// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
)

// A figure is a measured number, with the software's own.
type figure struct {
	software string // what is traced
	question string // what is asked
	command  string // what answers it: flags and patterns of usdttrace
	measured uint64
	own      uint64
	source   string // of the software's own number
}

// check fails the test unless the numbers are equal. docs/figures.md has a row
// for each figure, which make figures writes.
func (f figure) check(t testing.TB) {
	t.Helper()
	qt.Check(t, qt.Equals(f.measured, f.own), qt.Commentf("%s: %s: %s", f.software, f.question,
		f.source))
	qt.Check(t, qt.Not(qt.Equals(f.own, 0)), qt.Commentf("%s: %s: says nothing", f.software,
		f.question))
	f.row(t, f.measured, f.own)
}

// row checks that docs/figures.md has the figure, or writes it.
func (f figure) row(t testing.TB, measured, own any) {
	t.Helper()
	begin := fmt.Sprintf("| %s | %s | `%s` | ", f.software, f.question,
		strings.ReplaceAll(f.command, "|", `\|`))
	if to := os.Getenv("GOUSDT_FIGURES"); to != "" {
		file, err := os.OpenFile(to, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		qt.Assert(t, qt.IsNil(err))
		defer file.Close()
		_, err = fmt.Fprintf(file, "%s%v | %v | %s |\n", begin, measured, own, f.source)
		qt.Assert(t, qt.IsNil(err))
		return
	}
	if testneeds.IsGuest() {
		return // it has no docs
	}
	for dir := "."; ; dir = filepath.Join(dir, "..") {
		text, err := os.ReadFile(filepath.Join(dir, "docs", "figures.md"))
		if os.IsNotExist(err) && len(dir) < 100 {
			continue
		}
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.StringContains(string(text), "\n"+begin), qt.Commentf("run make figures"))
		return
	}
}

// The counts equal those of the software itself. A program prints them at its
// end as "own NAME NUMBER", after which nothing is counted any more.
func TestFigures(t *testing.T) {
	testprog.Parallel(t)
	testprog.RequireBPF(t)
	python := func(t *testing.T) []string {
		p := testprog.StartPython(t)
		p.Stop()
		file, err := filepath.EvalSymlinks(p.File)
		qt.Assert(t, qt.IsNil(err))
		return []string{file}
	}
	for _, f := range []struct {
		software, question, source string
		flags, pattern             string
		name                       string // of the script
		script                     string
		run                        func(t *testing.T) []string // before the script's path
		probed                     func(t *testing.T) string   // what has the probes; nil for the program
	}{
		{
			software: "Python", question: "how many collections were there?",
			pattern: "python:gc__start", source: "`gc.get_stats()`",
			run: python, name: "collect.py", script: `
import gc, os
kept = []
for i in range(200000):
    kept.append([i])
gc.collect()
print("own", sum(g["collections"] for g in gc.get_stats()), flush=True)
os._exit(0)
`,
		},
		{
			software: "Python", question: "how many audit events of one kind?",
			flags: `--where 'str(arg0) == "shop.sold"'`, pattern: "python:audit",
			source: "a hook of its own", run: python, name: "audit.py", script: `
import os, sys
seen = 0
def hook(event, arguments):
    global seen
    seen += event == "shop.sold"
sys.addaudithook(hook)
for i in range(1000):
    sys.audit("shop.sold", i)
print("own", seen, flush=True)
os._exit(0)
`,
		},
		{
			software: "PHP", question: "how often is a function called?",
			flags: `--where 'str(arg0) == "price"'`, pattern: "php:function__entry",
			source: "a counter of its own",
			run: func(t *testing.T) []string {
				return []string{testneeds.Tool(t, "env", "coreutils"), "USE_ZEND_DTRACE=1",
					program(t, "php", "php-cli")}
			},
			probed: func(t *testing.T) string { return program(t, "php", "php-cli") },
			name:   "call.php", script: `<?php
$called = 0;
function price($fruit) { global $called; $called++; return strlen($fruit); }
for ($i = 0; $i < 5000; $i++) price("pear");
echo "own $called\n";
`,
		},
		{
			software: "PHP", question: "how many exceptions were thrown?",
			pattern: "php:exception__thrown", source: "a counter of its own",
			run:  func(t *testing.T) []string { return []string{program(t, "php", "php-cli")} },
			name: "throw.php", script: `<?php
$caught = 0;
for ($i = 0; $i < 300; $i++) {
	try { throw new Exception("sold out"); } catch (Exception $e) { $caught++; }
}
echo "own $caught\n";
`,
		},
		{
			software: "Ruby", question: "how many objects of a class were made?",
			flags: `--where 'str(arg0) == "Fruit"'`, pattern: "ruby:object__create",
			source: "a counter of its own",
			run:    func(t *testing.T) []string { return []string{program(t, "ruby", "ruby")} },
			probed: rubyLibrary, name: "make.rb", script: `
class Fruit
  @@made = 0
  def initialize; @@made += 1; end
  def self.made; @@made; end
end
2000.times { Fruit.new }
puts "own #{Fruit.made}"
`,
		},
		{
			software: "Ruby", question: "how many collections were there?",
			pattern: "ruby:gc__mark__begin", source: "`GC.count`",
			run:    func(t *testing.T) []string { return []string{program(t, "ruby", "ruby")} },
			probed: rubyLibrary, name: "collect.rb", script: `
GC.start
200_000.times { Array.new(10) }
$stdout.sync = true
GC.disable
puts "own #{GC.count}"
exit!(0)
`,
		},
		{
			software: "HotSpot", question: "how many collections were there?",
			pattern: "hotspot:gc__begin", source: "`GarbageCollectorMXBean`",
			run: func(t *testing.T) []string {
				java, _ := findJava(t)
				return []string{java, "-Xmx64m", "-XX:+UseSerialGC"}
			},
			probed: func(t *testing.T) string { _, library := findJava(t); return library },
			name:   "Collect.java", script: `
import java.lang.management.*;
public class Collect {
	static byte[][] kept = new byte[100][];
	static long collections() {
		long n = 0;
		for (GarbageCollectorMXBean b : ManagementFactory.getGarbageCollectorMXBeans())
			n += b.getCollectionCount();
		return n;
	}
	public static void main(String[] arguments) {
		System.out.println("begin " + collections());
		for (int i = 0; i < 100000; i++) kept[i % 100] = new byte[10000];
		System.gc();
		System.out.println("own " + collections());
		System.out.flush();
		Runtime.getRuntime().halt(0);
	}
}
`,
		},
		{
			software: "HotSpot", question: "how many threads of a name were started?",
			flags: `--where 'str(arg0, 6) == "seller"'`, pattern: "hotspot:thread__start",
			source: "a counter of its own",
			run: func(t *testing.T) []string {
				java, _ := findJava(t)
				return []string{java}
			},
			probed: func(t *testing.T) string { _, library := findJava(t); return library },
			name:   "Threads.java", script: `
import java.util.concurrent.atomic.AtomicLong;
public class Threads {
	public static void main(String[] arguments) throws Exception {
		AtomicLong started = new AtomicLong();
		for (int i = 0; i < 100; i++) {
			Thread t = new Thread(started::incrementAndGet, "seller");
			t.start();
			t.join();
		}
		System.out.println("own " + started);
		System.out.flush();
		Runtime.getRuntime().halt(0);
	}
}
`,
		},
	} {
		t.Run(f.software+" "+f.question, func(t *testing.T) {
			run := f.run(t)
			probed := run[len(run)-1]
			if f.probed != nil {
				probed = f.probed(t)
			}
			script := filepath.Join(t.TempDir(), f.name)
			qt.Assert(t, qt.IsNil(os.WriteFile(script, []byte(f.script), 0o644)))
			flags, err := exec.Command("sh", "-c", "printf '%s\\n' --count "+f.flags).Output()
			qt.Assert(t, qt.IsNil(err))
			args := append([]string{"--json"}, strings.Split(strings.TrimSpace(string(flags)), "\n")...)
			args = append(args, probed, f.pattern, "--")
			result := start(t, append(append(args, run...), script)...).wait()
			row := result.objects("row")
			qt.Assert(t, qt.HasLen(row, 1), qt.Commentf("%s\n%s", result.stdout, result.stderr))
			own := regexp.MustCompile(`(?m)^own (\d+)$`).FindStringSubmatch(result.stderr)
			qt.Assert(t, qt.HasLen(own, 2), qt.Commentf("%s", result.stderr))
			number, err := strconv.ParseUint(own[1], 10, 64)
			qt.Assert(t, qt.IsNil(err))
			figure{software: f.software, question: f.question,
				command:  strings.TrimSpace("--count "+f.flags) + " " + f.pattern,
				measured: row[0].Count, own: number, source: f.source}.check(t)
		})
	}
}

func TestFiguresOfOwnPrograms(t *testing.T) {
	testprog.Parallel(t)
	path := copyOf(t, "calls")
	result := startWith(t, "nested\nrecursive\nthreads\n", "--json", "--latency", "gousdt_calls:*",
		"--", path).wait()
	rows := result.objects("row")
	qt.Assert(t, qt.HasLen(rows, 1))
	lines := regexp.MustCompile(`(?m)^call `).FindAllString(result.stderr, -1)
	figure{software: "a program with probes of its own",
		question: "how many calls were there?", command: "--latency 'gousdt_calls:*'",
		measured: rows[0].Count, own: uint64(len(lines)), source: "a line for each call"}.check(t)
}

// program returns the file of a command, without links to it.
func program(t *testing.T, name, debian string) string {
	t.Helper()
	file, err := filepath.EvalSymlinks(testneeds.Tool(t, name, debian))
	qt.Assert(t, qt.IsNil(err))
	return file
}

// rubyLibrary returns the file with the probes of Ruby.
func rubyLibrary(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("ldd", program(t, "ruby", "ruby")).Output()
	qt.Assert(t, qt.IsNil(err))
	found := regexp.MustCompile(`=> (\S*libruby\S*)`).FindSubmatch(out)
	if found == nil {
		return program(t, "ruby", "ruby")
	}
	return string(found[1])
}
