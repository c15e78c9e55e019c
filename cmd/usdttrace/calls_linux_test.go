// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
)

// ownTime is what a program says of its calls by its own clocks.
type ownTime struct {
	count       uint64
	least, most time.Duration
	said        time.Duration // 0 if both are
}

// about is an ownTime by a clock that is read beside the probes, or shows less
// of them: a thread can be preempted between the two.
func about(count uint64, total time.Duration) ownTime {
	slack := total/5 + testneeds.Patience(time.Duration(count+1)*time.Millisecond)
	return ownTime{count, max(0, total-slack), total + slack, total}
}

// check compares it with what was measured, for docs/figures.md. The command
// asks for the calls, which source has measured, too.
func (o ownTime) check(
	t *testing.T, software, command, source string, count uint64, total time.Duration,
) {
	t.Helper()
	qt.Check(t, qt.Equals(count, o.count), qt.Commentf("%s", command))
	qt.Check(t, qt.IsTrue(o.count > 0 && total >= o.least && total <= o.most),
		qt.Commentf("%s: %v, but the program says %v to %v", command, total, o.least, o.most))
	text := func(times ...time.Duration) string {
		text := fmt.Sprint(plural(int(count), "call"), ", ", times[0].Round(100*time.Microsecond))
		if len(times) > 1 && times[0] != times[1] {
			text += fmt.Sprint(" to ", times[1].Round(100*time.Microsecond))
		}
		return text
	}
	own := text(o.least, o.most)
	if o.said != 0 {
		own = text(o.said)
	}
	figure{software: software, question: "how long do calls take?", command: command,
		source: source}.row(t, text(total), own)
}

// ownTimes returns the lines "own NAME COUNT LEAST MOST" of a program, in
// milliseconds: how long it slept in the calls, and what the clock around them
// says. Without LEAST it is what another clock says.
func ownTimes(t *testing.T, output string) map[string]ownTime {
	t.Helper()
	own := make(map[string]ownTime)
	for _, line := range regexp.MustCompile(`(?m)^own (\S+) (\d+) ([\d.]+)(?: ([\d.]+))?$`).
		FindAllStringSubmatch(output, -1) {
		count, err := strconv.ParseUint(line[2], 10, 64)
		qt.Assert(t, qt.IsNil(err))
		own[line[1]] = about(count, milliseconds(t, line[3]))
		if line[4] != "" {
			own[line[1]] = ownTime{count, milliseconds(t, line[3]), milliseconds(t, line[4]), 0}
		}
	}
	return own
}

func milliseconds(t *testing.T, text string) time.Duration {
	t.Helper()
	n, err := strconv.ParseFloat(text, 64)
	qt.Assert(t, qt.IsNil(err))
	return time.Duration(n * float64(time.Millisecond))
}

// Functions of scripts take the time that the scripts measure, however they
// end, and whatever runs between their parts.
func TestFunctionsTakeTheirOwnTime(t *testing.T) {
	testprog.Parallel(t)
	testprog.RequireBPF(t)
	for _, test := range []struct {
		software               string
		pair, by, name, script string
		run                    func(t *testing.T) []string // before the script's path
		probed                 func(t *testing.T) string
	}{
		{"Python", "python:function", "function", "own.py", `
import asyncio, time
own = {}
def timed(name, slept, f, count=1):
    began = time.perf_counter()
    try: f()
    except ZeroDivisionError: pass
    n, least, most = own.get(name, (0, 0, 0))
    own[name] = n + count, least + slept, most + (time.perf_counter() - began) * 1e3
def work(): time.sleep(.005)
def fails(): time.sleep(.003); 1 / 0
def deep(): fails()
def parts():
    for i in range(3): time.sleep(.004); yield i
async def sells(): time.sleep(.004); await asyncio.sleep(.02); time.sleep(.004)
async def shop(): await asyncio.gather(sells(), sells(), sells())
for i in range(10): timed("work", 5, work); timed("deep", 3, deep)
generator = parts()
for i in range(4): timed("parts", 4 * (i < 3), lambda: next(generator, None)); time.sleep(.002)
timed("sells", 24, lambda: asyncio.run(shop()), 6)
for name, numbers in own.items(): print("own", name, *numbers, flush=True)
`, func(t *testing.T) []string {
			python := testprog.StartPython(t, testprog.CallsOfPython)
			python.Stop()
			file, err := filepath.EvalSymlinks(python.File)
			qt.Assert(t, qt.IsNil(err))
			return []string{file}
		}, nil},
		{"PHP", "php:function", "str(function)", "own.php", `<?php
$own = [];
function timed($name, $slept, $f) {
	global $own;
	$began = hrtime(true);
	try { $f(); } catch (Exception $e) {}
	[$count, $least, $most] = $own[$name] ?? [0, 0, 0];
	$own[$name] = [$count + 1, $least + $slept, $most + (hrtime(true) - $began) / 1e6];
}
function work() { usleep(5000); }
function fails() { usleep(3000); throw new Exception("sold out"); }
function deep() { fails(); }
function parts() { for ($i = 0; $i < 3; $i++) { usleep(4000); yield $i; } }
for ($i = 0; $i < 10; $i++) { timed("work", 5, "work"); timed("deep", 3, "deep"); }
$began = hrtime(true);
foreach (parts() as $part) usleep(4000);
$own["parts"] = [5, 12, (hrtime(true) - $began) / 1e6 - 12]; // its making is one
foreach ($own as $name => $numbers) echo "own $name ", implode(" ", $numbers), "\n";
`, func(t *testing.T) []string {
			return []string{testneeds.Tool(t, "env", "coreutils"), "USE_ZEND_DTRACE=1",
				program(t, "php", "php-cli")}
		}, func(t *testing.T) string { return program(t, "php", "php-cli") }},
		{"Ruby", "ruby:method", "str(start.method)", "own.rb", `
calls = TracePoint.new(:call, :return) {}
$own = Hash.new { |own, name| own[name] = [0, 0, 0] }
def clock; Process.clock_gettime(Process::CLOCK_MONOTONIC); end
def timed(name, slept)
  began = clock
  begin; yield; rescue; end
  $own[name][0] += 1
  $own[name][1] += slept
  $own[name][2] += (clock - began) * 1e3
end
def work; sleep 0.005; end
def fails; sleep 0.003; raise "sold out"; end
def deep; fails; end
def thrown; sleep 0.003; throw :out; end
def parts; sleep 0.004; Fiber.yield; sleep 0.004; end
calls.enable
10.times { timed("work", 5) { work }; timed("deep", 3) { deep }; timed("thrown", 3) { catch(:out) { thrown } } }
fibers = 3.times.map { Fiber.new { timed("parts", 16) { parts } } }
2.times { fibers.each(&:resume) }
calls.disable
$own.each { |name, numbers| puts "own #{name} #{numbers.join(" ")}" }
`, func(t *testing.T) []string { return []string{program(t, "ruby", "ruby")} }, rubyLibrary},
		{"Tcl", "tcl:proc", "str(start.name)", "own.tcl", `
proc timed {name slept script} {
	global own
	set began [clock microseconds]
	catch {uplevel 1 $script}
	lassign [expr {[info exists own($name)] ? $own($name) : {0 0 0}}] count least most
	set own($name) [list [incr count] [incr least $slept] [expr {$most + ([clock microseconds] - $began) / 1e3}]]
}
proc work {} {after 5}
proc fails {} {after 3; error "sold out"}
proc deep {} {fails}
for {set i 0} {$i < 10} {incr i} {timed work 5 work; timed deep 3 deep}
foreach name [array names own] {puts "own $name [join $own($name)]"}
`, func(t *testing.T) []string {
			return []string{program(t, "../../docs/recipes/build/tcl/tcl",
				"what internal/setup/interpreter builds")}
		}, nil},
	} {
		t.Run(test.pair, func(t *testing.T) {
			run := test.run(t)
			probed := run[len(run)-1]
			if test.probed != nil {
				probed = test.probed(t)
			}
			script := filepath.Join(t.TempDir(), test.name)
			qt.Assert(t, qt.IsNil(os.WriteFile(script, []byte(test.script), 0o644)))
			args := []string{"--json", "--latency", test.pair, "--by", test.by, probed, "--"}
			result := start(t, append(append(args, run...), script)...).wait()
			own := ownTimes(t, result.stderr)
			qt.Assert(t, qt.IsTrue(len(own) > 1), qt.Commentf("%s", result.stderr))
			for _, row := range result.objects("row") {
				for _, key := range row.Keys {
					name, _ := key.(string)
					if own, ok := own[name]; ok {
						total, _ := row.Sum.Int64()
						own.check(t, test.software, fmt.Sprintf("--latency %s --where '%s == %q'", test.pair,
							test.by, name), "a clock of its own", row.Count, time.Duration(total))
					}
					delete(own, name)
				}
			}
			qt.Check(t, qt.HasLen(own, 0), qt.Commentf("not measured"))
		})
	}
}

// waiter waits for locks of main, which looks that it sleeps before it counts
// the time: all of that is within the call.
const libraryOwnTimes = `
#include <atomic>
#include <cstdio>
#include <cstring>
#include <pthread.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>
static double now()
{
	timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}
template <class F> static void timed(const char *name, F f)
{
	double began = now();
	for (int i = 0; i < 10; i++) f();
	printf("own %s 10 100 %.3f\n", name, now() - began);
}
struct slow { ~slow() { usleep(10000); } };
[[gnu::noinline]] static void fails() { slow s; throw 1; }
static std::atomic<pid_t> sleeper;
static std::atomic<bool> held;
static void asleep()
{
	char path[64], text[512];
	for (const char *end = nullptr; !end || strncmp(end, ") S", 3) != 0; sched_yield()) {
		snprintf(path, sizeof path, "/proc/self/task/%d/stat", sleeper.load());
		FILE *f = fopen(path, "r");
		text[fread(text, 1, sizeof text - 1, f)] = 0;
		fclose(f);
		end = strrchr(text, ')');
	}
	usleep(10000);
}
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
template <class L, class U> static void hold(L lock, U unlock)
{
	for (int i = 0; i < 10; i++) {
		lock();
		held = true;
		asleep();
		unlock();
		while (held) sched_yield();
	}
}
template <class L, class U> static void wait(const char *name, L lock, U unlock)
{
	timed(name, [&] {
		while (!held) sched_yield();
		lock();
		unlock();
		held = false;
	});
}
static void *waiter(void *)
{
	pthread_setname_np(pthread_self(), "waiter");
	sleeper = gettid();
	wait("libc:mutex_wait", [] { pthread_mutex_lock(&mutex); }, [] { pthread_mutex_unlock(&mutex); });
	wait("libc:rwlock_read_wait", [] { pthread_rwlock_rdlock(&rwlock); }, [] { pthread_rwlock_unlock(&rwlock); });
	wait("libc:rwlock_write_wait", [] { pthread_rwlock_wrlock(&rwlock); }, [] { pthread_rwlock_unlock(&rwlock); });
	return nullptr;
}
static void *joined(void *) { asleep(); return nullptr; }
int main()
{
	timed("libstdcxx:throw..libstdcxx:catch", [] { try { fails(); } catch (int) {} });
	pthread_t t;
	pthread_create(&t, nullptr, waiter, nullptr);
	while (!sleeper) sched_yield();
	hold([] { pthread_mutex_lock(&mutex); }, [] { pthread_mutex_unlock(&mutex); });
	for (int i = 0; i < 2; i++)
		hold([] { pthread_rwlock_wrlock(&rwlock); }, [] { pthread_rwlock_unlock(&rwlock); });
	pthread_join(t, nullptr);
	pthread_setname_np(pthread_self(), "joins");
	sleeper = getpid();
	timed("libc:thread_join", [] {
		pthread_t t;
		pthread_create(&t, nullptr, joined, nullptr);
		pthread_join(t, nullptr);
	});
}
`

// Waits in the C library, and exceptions of C++, take the time that a program
// measures. The probes of the C library are those of Debian's newest.
func TestCallsOfLibrariesTakeTheirOwnTime(t *testing.T) {
	testprog.Parallel(t)
	testprog.RequireBPF(t)
	testneeds.Tool(t, "g++", "g++")
	found, err := filepath.Glob("../../docs/recipes/build/libc/usr/lib/*/ld-linux*.so.*")
	qt.Assert(t, qt.IsNil(err))
	if len(found) == 0 {
		testneeds.Missing(t, "needs a C library with probes, which internal/setup/newest-packages unpacks")
	}
	loader, err := filepath.Abs(found[0])
	qt.Assert(t, qt.IsNil(err))
	library := filepath.Join(filepath.Dir(loader), "libc.so.6")
	path := compile(t, libraryOwnTimes, "-x", "c++", "-pthread", "-Wl,--no-as-needed", "-lstdc++",
		"-Wl,--dynamic-linker="+loader, "-Wl,-rpath,"+filepath.Dir(loader))
	for _, test := range []struct{ software, file, pair, thread string }{
		{"C++", "libstdc++.so.6", "libstdcxx:throw..libstdcxx:catch", "program"},
		{"glibc", library, "libc:mutex_wait", "waiter"},
		{"glibc", library, "libc:rwlock_read_wait", "waiter"},
		{"glibc", library, "libc:rwlock_write_wait", "waiter"},
		{"glibc", library, "libc:thread_join", "joins"},
	} {
		where := fmt.Sprintf("comm == %q", test.thread)
		result := start(t, "--json", "--latency", test.pair, "--where", where, test.file, "--", path).wait()
		rows := result.objects("row")
		qt.Assert(t, qt.HasLen(rows, 1), qt.Commentf("%s", result.stderr))
		total, _ := rows[0].Sum.Int64()
		ownTimes(t, result.stderr)[test.pair].check(t, test.software, fmt.Sprintf(
			"--latency %s --where '%s'", test.pair, where), "a clock around them", rows[0].Count,
			time.Duration(total))
	}
}

// A client of libvirt measures how long it waits for the daemon, whose answers
// are held back on their way.
func TestCallsOfLibvirtTakeTheirOwnTime(t *testing.T) {
	testprog.Parallel(t)
	testprog.RequireBPF(t)
	virsh := testneeds.Tool(t, "virsh", "libvirt-clients")
	daemon := testneeds.Tool(t, "libvirtd", "libvirt-daemon")
	dir, err := os.MkdirTemp("", "libvirt") // short, for sockets
	qt.Assert(t, qt.IsNil(err))
	defer os.RemoveAll(dir)
	owner := testprog.Unprivileged(t)
	qt.Assert(t, qt.IsNil(os.Chown(dir, int(owner.Uid), int(owner.Gid))))
	config := filepath.Join(dir, "conf")
	qt.Assert(t, qt.IsNil(os.WriteFile(config, []byte("auth_unix_rw = \"none\"\n"), 0o644)))
	server := exec.Command(daemon, "-f", config)
	server.Dir, server.SysProcAttr = dir, &syscall.SysProcAttr{Credential: owner}
	server.Env = []string{"HOME=" + dir, "XDG_RUNTIME_DIR=" + dir, "PATH=" + os.Getenv("PATH")}
	qt.Assert(t, qt.IsNil(server.Start()))
	defer func() {
		qt.Check(t, qt.IsNil(server.Process.Signal(syscall.SIGTERM)))
		_ = server.Wait()
	}()
	between, err := net.Listen("unix", filepath.Join(dir, "between"))
	qt.Assert(t, qt.IsNil(err))
	defer between.Close()
	var toServer net.Conn
	testneeds.Await(t, 20*time.Second, "the daemon", func() bool {
		toServer, err = net.Dial("unix", filepath.Join(dir, "libvirt", "libvirt-sock"))
		return err == nil
	})
	const held = 10 * time.Millisecond
	answered := make(chan uint64, 1)
	go func() {
		replies := uint64(0)
		defer func() { answered <- replies }()
		defer toServer.Close()
		toClient, err := between.Accept()
		if err != nil {
			return
		}
		defer toClient.Close()
		go func() {
			_, _ = io.Copy(toServer, toClient)
			toServer.Close()
		}()
		for {
			header := make([]byte, 28) // size, program, version, procedure, type, serial, status
			if _, err := io.ReadFull(toServer, header); err != nil {
				return
			}
			rest := make([]byte, binary.BigEndian.Uint32(header)-uint32(len(header)))
			if _, err := io.ReadFull(toServer, rest); err != nil {
				return
			}
			const reply = 1
			if binary.BigEndian.Uint32(header[16:]) == reply {
				time.Sleep(held)
				replies++
			}
			if _, err := toClient.Write(append(header, rest...)); err != nil {
				return
			}
		}
	}()
	r := watching(t, "--json", "--latency", "libvirt:rpc_call", "libvirt.so.0")
	began := time.Now()
	out, err := exec.Command(virsh, "-k", "0", "-c", "test+unix:///default?socket="+between.Addr().String(),
		"list").CombinedOutput()
	took := time.Since(began)
	qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", out))
	replies := <-answered
	rows := r.interrupt().objects("row")
	qt.Assert(t, qt.HasLen(rows, 1))
	total, _ := rows[0].Sum.Int64()
	ownTime{replies, time.Duration(replies) * held, took, 0}.check(t, "libvirt",
		"--latency libvirt:rpc_call", "how long answers are held back, and a clock around the client",
		rows[0].Count, time.Duration(total))
}

const javaOwnTimes = `
import java.lang.management.*;
import java.util.concurrent.locks.LockSupport;
public class Own {
	static class Slow {
		static int sold;
		static { long began = System.nanoTime(); while (System.nanoTime() - began < 30_000_000); sold = 1; }
	}
	interface Work { void run() throws Exception; }
	static void timed(String name, int count, int slept, Work work) throws Exception {
		long began = System.nanoTime();
		for (int i = 0; i < count; i++) work.run();
		System.out.println("own " + name + " " + count + " " + slept + " " + (System.nanoTime() - began) / 1e6);
	}
	static byte[][] kept = new byte[100][];
	static final Object till = new Object();
	static void hold(long ms) throws Exception { synchronized (till) { Thread.sleep(ms); } }
	public static void main(String[] arguments) throws Exception {
		ThreadMXBean threads = ManagementFactory.getThreadMXBean();
		threads.setThreadContentionMonitoringEnabled(true);
		Object monitor = new Object();
		Thread seller = new Thread(() -> { try {
			timed("hotspot:object__wait", 10, 100, () -> { synchronized (monitor) { monitor.wait(10); } });
			timed("hotspot:thread__park", 10, 100, () -> LockSupport.parkNanos(10_000_000));
			timed("hotspot:thread__sleep", 10, 100, () -> Thread.sleep(10));
			timed("hotspot:class__initialization", 1, 30, () -> Slow.sold++);
		} catch (Exception e) { throw new Error(e); } }, "seller");
		seller.start();
		seller.join();
		Thread[] buyers = new Thread[3];
		long[] blocked = new long[2];
		for (int b = 0; b < 3; b++) {
			buyers[b] = new Thread(() -> { try {
				for (int i = 0; i < 20; i++) { hold(10); Thread.sleep(5); }
				ThreadInfo info = threads.getThreadInfo(Thread.currentThread().getId());
				synchronized (blocked) {
					blocked[0] += info.getBlockedCount();
					blocked[1] += info.getBlockedTime();
				}
			} catch (Exception e) { throw new Error(e); } }, "buyer");
			buyers[b].start();
		}
		for (Thread buyer : buyers) buyer.join();
		System.out.println("own hotspot:monitor__contended " + blocked[0] + " " + blocked[1]);
		for (int i = 0; i < 60000; i++) kept[i % 100] = new byte[10000];
		System.gc();
		long count = 0, total = 0;
		for (GarbageCollectorMXBean b : ManagementFactory.getGarbageCollectorMXBeans()) {
			count += b.getCollectionCount();
			total += b.getCollectionTime();
		}
		System.out.println("own hotspot:mem__pool__gc " + count + " " + total);
		System.out.flush();
		Runtime.getRuntime().halt(0);
	}
}
`

// Calls of the Java virtual machine take the time that it measures itself: of
// the pools, each begins before the first ends.
func TestCallsOfJavaTakeTheirOwnTime(t *testing.T) {
	testprog.Parallel(t)
	testprog.RequireBPF(t)
	java, library := findJava(t)
	source := filepath.Join(t.TempDir(), "Own.java")
	qt.Assert(t, qt.IsNil(os.WriteFile(source, []byte(javaOwnTimes), 0o644)))
	result := start(t, "--json", "--slow", "0", library, "hotspot:object__wait",
		"hotspot:thread__park", "hotspot:thread__sleep", "hotspot:class__initialization",
		"hotspot:monitor__contended", "hotspot:mem__pool__gc", "--", java,
		"-XX:+DTraceMonitorProbes", "-XX:+UseSerialGC", "-Xmx64m", source).wait()
	counts, totals := make(map[string]uint64), make(map[string]time.Duration)
	for _, span := range result.objects("span") {
		var begin object
		qt.Assert(t, qt.IsNil(json.Unmarshal(span.Start, &begin)))
		var texts []string
		for _, arg := range begin.Args {
			if arg.Text != nil {
				texts = append(texts, *arg.Text)
			}
		}
		switch {
		case span.Pair == "hotspot:mem__pool__gc":
			if texts[1] != "Eden Space" {
				continue
			}
		case span.Pair == "hotspot:class__initialization":
			// The initializer itself finds that the class is being initialized.
			if texts[0] != "Own$Slow" || span.Duration < time.Millisecond {
				continue
			}
		case span.Command != "seller" && span.Command != "buyer",
			span.Pair == "hotspot:thread__sleep" && span.Command == "buyer":
			continue
		}
		counts[span.Pair]++
		totals[span.Pair] += span.Duration
	}
	own := ownTimes(t, result.stderr)
	qt.Assert(t, qt.HasLen(own, 6), qt.Commentf("%s", result.stderr))
	for pair, own := range own {
		source := "a clock around them"
		switch pair {
		case "hotspot:monitor__contended":
			source = "`ThreadInfo.getBlockedTime`"
		case "hotspot:mem__pool__gc":
			source = "`GarbageCollectorMXBean`"
		}
		own.check(t, "HotSpot", "--latency "+pair, source, counts[pair], totals[pair])
	}

	loaded := filepath.Join(t.TempDir(), "loaded")
	result = start(t, "--json", "--latency", "hotspot:method__compile", "--count", library,
		"hotspot:class__loaded", "--", java, "-Xbatch", "-XX:+CITime", "-Xlog:class+load:file="+loaded,
		"-Xshare:off", "-version").wait()
	log, err := os.ReadFile(loaded)
	qt.Assert(t, qt.IsNil(err))
	said := regexp.MustCompile(`(?s)Total compilation time +: +([\d.]+) s.*Total compiled methods +: +(\d+) `).
		FindStringSubmatch(result.stderr)
	qt.Assert(t, qt.HasLen(said, 3), qt.Commentf("%s", result.stderr))
	compiled, err := strconv.ParseUint(said[2], 10, 64)
	qt.Assert(t, qt.IsNil(err))
	for _, row := range result.objects("row") {
		if row.Keys["probe"] == "hotspot:class__loaded" {
			figure{"HotSpot", "how many classes were loaded?", "--count hotspot:class__loaded", row.Count,
				uint64(strings.Count(string(log), "source:")), "`-Xlog:class+load`"}.check(t)
		}
		if row.Aggregation != "latency" {
			continue
		}
		total, _ := row.Sum.Int64()
		about(compiled, 1000*milliseconds(t, said[1])).check(t, "HotSpot",
			"--latency hotspot:method__compile", "`-XX:+CITime`", row.Count, time.Duration(total))
	}
}

// Calls of PostgreSQL take the time that the server measures itself.
func TestCallsOfPostgresTakeTheirOwnTime(t *testing.T) {
	testprog.Parallel(t)
	testprog.RequireBPF(t)
	server := testprog.StartPostgres(t)
	server.Query("CREATE TABLE fruit AS SELECT i, repeat('x', 100) AS text FROM generate_series(1, 200000) i")
	calls := func(during func(), args ...string) (spans []object, total time.Duration, summary object) {
		t.Helper()
		r := watching(t, append([]string{"--json", "--slow", "0", server.File}, args...)...)
		during()
		result := r.interrupt()
		spans = result.objects("span")
		for _, span := range spans {
			total += span.Duration
		}
		return spans, total, result.objects("summary")[0]
	}
	const (
		traced = "SET client_min_messages = log; SET trace_sort = on; SET max_parallel_workers_per_gather = 0; " +
			"SET enable_hashjoin = off; SET enable_nestloop = off"
		sort  = "SELECT count(*) FROM (SELECT i FROM fruit ORDER BY text, i DESC OFFSET 0) x"
		sorts = sort + " JOIN (SELECT i FROM fruit ORDER BY i DESC OFFSET 0) y USING (i)"
	)
	sorted := regexp.MustCompile(`sort (?:of worker -1 )?ended.* elapsed: ([\d.]+) s`)

	relation := server.Query("SELECT pg_relation_filenode('fruit')")
	var out string
	wants := []string{"postgresql:buffer__read", "--where", "is_hit == 0 && relation == " + relation}
	if server.Version >= 17 {
		wants = append(wants, "--match", "block")
	}
	spans, total, summary := calls(func() {
		out = server.Query("SET track_io_timing = on; SET max_parallel_workers_per_gather = 0",
			"EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, TIMING OFF) SELECT count(*) FROM fruit")
	}, wants...)
	read := regexp.MustCompile(`(?s)read=(\d+).*?I/O Timings: .*?read=([\d.]+)`).FindStringSubmatch(out)
	qt.Assert(t, qt.HasLen(read, 3), qt.Commentf("%s", out))
	if server.Version < 18 {
		qt.Check(t, qt.Equals(strconv.Itoa(len(spans)), read[1]))
		reads := ownTime{uint64(len(spans)), milliseconds(t, read[2]), time.Hour, milliseconds(t, read[2])}
		reads.check(t, "PostgreSQL", "--latency postgresql:buffer__read --where 'is_hit == 0'",
			"`EXPLAIN (ANALYZE, BUFFERS)`: the system calls in them", uint64(len(spans)), total)
		qt.Check(t, qt.Equals(summary.Overlapped+summary.Unmatched, 0))
	} else { // another process ends them
		qt.Check(t, qt.Equals(strconv.FormatUint(uint64(len(spans))+summary.Unmatched, 10), read[1]))
	}

	spans, total, summary = calls(func() { out = server.Query(traced, sort, sort) }, "postgresql:sort")
	elapsed, ended := time.Duration(0), sorted.FindAllStringSubmatch(out, -1)
	for _, line := range ended {
		elapsed += 1000 * milliseconds(t, line[1])
	}
	about(uint64(len(ended)), elapsed).check(t, "PostgreSQL",
		"--latency postgresql:sort", "`trace_sort`", uint64(len(spans)), total)
	qt.Check(t, qt.Equals(summary.Overlapped, 0))

	for _, pair := range []string{"postgresql:sort__start..postgresql:sort__done", "postgresql:so*"} {
		spans, _, summary = calls(func() { out = server.Query(traced, sorts) }, pair)
		qt.Check(t, qt.HasLen(spans, 0))
		qt.Check(t, qt.Equals(summary.Overlapped, uint64(len(sorted.FindAllString(out, -1)))),
			qt.Commentf("%s", out))
	}

	// What is left of a sort at an error does not overlap what follows.
	spans, _, summary = calls(func() {
		server.Refuse(traced, "SET statement_timeout = 10", sort, "SET statement_timeout = 0", sort,
			"SELECT 1/0")
	}, "postgresql:sort")
	qt.Check(t, qt.HasLen(spans, 1))
	qt.Check(t, qt.Equals(summary.Left, 1))
	qt.Check(t, qt.Equals(summary.Overlapped, 0))

	// One waits until it has the lock, and one gives up.
	spans, total, _ = calls(func() {
		holder := server.Client("psql", "-q", "-h", server.SocketDir, "-U", "gousdt", "-d", "postgres")
		stdin := stdinOf(t, holder)
		qt.Assert(t, qt.IsNil(holder.Start()))
		defer holder.Wait()
		defer stdin.Close()
		fmt.Fprintln(stdin, "BEGIN; LOCK TABLE fruit;")
		are := func(what, locks string) {
			testneeds.Await(t, 10*time.Second, what, func() bool {
				return server.Query("SELECT count(*) FROM pg_locks WHERE mode = 'Access"+locks) != "0"
			})
		}
		are("a lock", "ExclusiveLock' AND locktype = 'relation'")
		server.Refuse("SET lock_timeout = 100", "SELECT count(*) FROM fruit")
		done := make(chan struct{})
		go func() {
			defer close(done)
			are("a session that waits", "ShareLock' AND waitstart < clock_timestamp() - interval '100 ms'")
			stdin.Close()
		}()
		out = server.Query("SET client_min_messages = log; SET log_lock_waits = on; SET deadlock_timeout = '10ms'",
			"SELECT count(*) FROM fruit")
		<-done
	}, "postgresql:lock__wait")
	qt.Assert(t, qt.HasLen(spans, 2))
	qt.Check(t, qt.IsTrue(spans[0].Failed && !spans[1].Failed))
	waited := regexp.MustCompile(`acquired .* after ([\d.]+) ms`).FindStringSubmatch(out)
	qt.Assert(t, qt.HasLen(waited, 2), qt.Commentf("%s", out))
	about(2, 100*time.Millisecond+milliseconds(t, waited[1])).check(t, "PostgreSQL",
		"--latency postgresql:lock__wait", "`log_lock_waits`, `lock_timeout`", 2, total)

	spans, total, _ = calls(func() {
		out = server.Query("BEGIN", "SELECT pg_sleep(0.05)",
			"SELECT extract(epoch FROM clock_timestamp() - transaction_timestamp()) * 1000", "COMMIT")
	}, "postgresql:transaction", "--where", "duration > 40ms")
	about(1, milliseconds(t, strings.TrimSpace(out))).check(t, "PostgreSQL",
		"--latency postgresql:transaction", "`transaction_timestamp`", uint64(len(spans)), total)

	// A checkpoint has parts, whose times the server adds up.
	parts, statistics := "SELECT checkpoint_write_time, checkpoint_sync_time FROM pg_stat_bgwriter "+
		"WHERE checkpoints_req > 0", "bgwriter"
	if server.Version >= 17 {
		parts, statistics = "SELECT write_time, sync_time FROM pg_stat_checkpointer WHERE num_requested > 0",
			"checkpointer"
	}
	server.Query("UPDATE fruit SET i = i", "SELECT pg_stat_reset_shared('"+statistics+"')")
	var took time.Duration
	write, sync := "postgresql:buffer__checkpoint__start..postgresql:buffer__checkpoint__sync__start",
		"postgresql:buffer__checkpoint__sync__start..postgresql:buffer__checkpoint__done"
	spans, _, _ = calls(func() {
		began := time.Now()
		server.Query("CHECKPOINT")
		took = time.Since(began)
	}, write, sync, "postgresql:checkpoint")
	testneeds.Await(t, 20*time.Second, "the server's times", func() bool {
		out = server.Query(parts)
		return out != ""
	})
	wrote, synced, _ := strings.Cut(out, "|")
	totals := make(map[string]time.Duration)
	for _, span := range spans {
		totals[span.Pair] += span.Duration
	}
	qt.Assert(t, qt.HasLen(totals, 3))
	ownTime{1, totals[write] + totals[sync], took, 0}.check(t, "PostgreSQL",
		"--latency postgresql:checkpoint", "its parts, and a clock around the command", 1,
		totals["postgresql:checkpoint"])
	for pair, own := range map[string]string{write: wrote, sync: synced} {
		about(1, milliseconds(t, own)).check(t, "PostgreSQL", "--latency "+pair, "`pg_stat_bgwriter`", 1,
			totals[pair])
	}

	// Each lock that is released was held: in what order is known, or it is
	// counted.
	r := watching(t, "--json", "--latency", "postgresql:lwlock", "--count", server.File,
		"postgresql:lwlock__release")
	server.Query("INSERT INTO fruit SELECT i, 'apple' FROM generate_series(1, 100) i", sorts)
	result := r.interrupt()
	counts := make(map[string]uint64)
	for _, row := range result.objects("row") {
		if row.Aggregation == "latency" || row.Keys["probe"] == "postgresql:lwlock__release" {
			counts[row.Aggregation] = row.Count
		}
	}
	summary = result.objects("summary")[0]
	qt.Check(t, qt.Equals(counts["latency"]+summary.Overlapped+summary.Unmatched, counts["count"]))
	qt.Check(t, qt.IsTrue(counts["latency"] > counts["count"]/2))
}

// A pair that is not there is named as a pair, and is no error if there are
// calls of another one.
func TestAPairOfSeveralMayLack(t *testing.T) {
	testprog.Parallel(t)
	path := copyOf(t, "calls")
	r := startWith(t, "nested\n", "--slow", "0", "gousdt_calls:inner", "gousdt_calls:nothing", "--",
		path).wait()
	r.ok()
	qt.Check(t, qt.StringContains(r.stderr, "usdttrace: there is no pair of probes gousdt_calls:nothing in "))
	qt.Check(t, qt.Not(qt.StringContains(r.stderr, "no probe matches")))
}
