// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
)

func TestEachHitIsALine(t *testing.T) {
	testprog.Parallel(t)
	p := startTarget(t, "target-pie")
	r := watching(t, "--str", "1", p.path, "gousdt_test:three")
	p.Fire("three", 2)
	r.await(&r.stdout, "arg2=18000000000000000001\n")
	result := r.interrupt()
	lines := result.ok()
	qt.Assert(t, qt.HasLen(lines, 3))
	qt.Check(t,
		qt.Equals(lines[0],
			"TIME                 PID      TID  COMMAND          PROBE              ARGS"))
	text := testprog.ExpectedProbe(machine(t, p.path), "three").Hits[0][1].Text
	for _, line := range lines[1:] {
		qt.Check(t, qt.Matches(line, fmt.Sprintf(
			`\d\d:\d\d:\d\d\.\d{6}  %7d  %7d  target-pie       gousdt_test:three  arg0=-2000000000 arg1=%q arg2=18000000000000000001`,
			p.PID, p.PID, text)))
	}
	qt.Check(t, qt.Matches(result.stderr,
		`usdttrace: watching 1 site \(Ctrl-C ends\)\n2 events, 0 lost; 1 site; [\d.]+[mu]?s\n`))
}

// Every value of every probe that the programs have.
func TestJSONHasEveryArgument(t *testing.T) {
	testprog.Parallel(t)
	p := startTarget(t, "target-pie")
	probes := testprog.Expected(machine(t, p.path))
	args := []string{"--json", "-p", strconv.Itoa(p.PID)}
	for n := range 14 {
		args = append(args, "--str", strconv.Itoa(n))
	}
	var expected [][]testprog.Arg
	groups := make(map[string]bool)
	for _, probe := range probes {
		if probe.Provider == "gousdt_test" && probe.Group == probe.Name && len(probe.Hits) == 1 &&
			!probe.Semaphore {
			args = append(args, "gousdt_test:"+probe.Name)
		}
	}
	r := watching(t, args...)
	var names []string
	for _, probe := range probes {
		if probe.Provider == "gousdt_test" && probe.Group == probe.Name && len(probe.Hits) == 1 &&
			!probe.Semaphore && !groups[probe.Group] {
			groups[probe.Group] = true
			p.Fire(probe.Group, 1)
			expected = append(expected, probe.Hits[0])
			names = append(names, probe.Name)
		}
	}
	result := r.interrupt()
	events := result.objects("event")
	qt.Assert(t, qt.HasLen(events, len(expected)))
	for i, e := range events {
		qt.Check(t, qt.Equals(e.Provider+":"+e.Name, "gousdt_test:"+names[i]))
		qt.Check(t, qt.Equals(e.PID, p.PID))
		qt.Check(t, qt.Equals(e.File, p.path))
		qt.Check(t, qt.Equals(e.Command, "target-pie"))
		qt.Assert(t, qt.HasLen(e.Args, len(expected[i])), qt.Commentf("%s", names[i]))
		for n, want := range expected[i] {
			checkArgument(t, fmt.Sprintf("%s arg%d", names[i], n), e.Args[n], want)
		}
	}
	summary := result.objects("summary")
	qt.Assert(t, qt.HasLen(summary, 1))
	qt.Check(t, qt.Equals(summary[0].Events, uint64(len(expected))))
	qt.Check(t, qt.Equals(summary[0].Lost, 0))
}

func checkArgument(t *testing.T, name string, got argument, want testprog.Arg) {
	t.Helper()
	comment := qt.Commentf("%s: %+v, not %+v", name, got, want)
	switch want.Kind {
	case testprog.Unavailable:
		if want.Size == 16 || want.Size == 24 { // a structure, which is no number
			qt.Assert(t, qt.IsNotNil(got.Bytes), comment)
			qt.Check(t, qt.HasLen(*got.Bytes, 2*want.Size), comment)
			qt.Check(t, qt.Equals(got.Value, ""), comment)
			break
		}
		qt.Check(t, qt.IsTrue(got.Unavailable), comment)
		qt.Check(t, qt.Equals(got.Value, ""), comment)
	case testprog.Fault:
		qt.Check(t, qt.IsTrue(got.Unreadable), comment)
	case testprog.Text:
		limit := min(len(want.Text), 128)
		qt.Assert(t, qt.IsNotNil(got.Text), comment)
		qt.Check(t, qt.Equals(*got.Text, want.Text[:limit]), comment)
		qt.Check(t, qt.Equals(got.Truncated, len(want.Text) > 128), comment)
	case testprog.Value:
		switch {
		case want.Float:
			number, err := got.Value.Float64()
			qt.Check(t, qt.IsNil(err), comment)
			qt.Check(t, qt.Equals(number, floatOf(want)), comment)
		case want.Signed:
			qt.Check(t, qt.Equals(string(got.Value), strconv.FormatInt(int64(want.Value), 10)),
				comment)
		default:
			qt.Check(t, qt.Equals(string(got.Value), strconv.FormatUint(want.Value, 10)), comment)
		}
	}
}

func floatOf(a testprog.Arg) float64 {
	if a.Size == 4 {
		// As JSON has it: the shortest number that is this one in 32 bits.
		single := float64(math.Float32frombits(uint32(a.Value)))
		x, _ := strconv.ParseFloat(strconv.FormatFloat(single, 'g', -1, 32), 64)
		return x
	}
	return math.Float64frombits(a.Value)
}

func machine(t *testing.T, path string) elf.Machine {
	t.Helper()
	file, err := elfnote.Open(path)
	qt.Assert(t, qt.IsNil(err))
	defer file.Close()
	return file.Header().Machine
}

// Names and texts of the traced program must not reach the terminal as they
// are.
func TestUntrustedBytesAreEscaped(t *testing.T) {
	testprog.Parallel(t)
	p := startTarget(t, "target-pie")
	r := watching(t, "--str", "0", p.path, "gousdt::names:*")
	p.Fire("names", 1)
	for _, c := range strings.TrimSpace(strings.ReplaceAll(r.interrupt().stdout, "\n", "")) {
		qt.Assert(t, qt.IsTrue(strconv.IsPrint(c)), qt.Commentf("%q", c))
	}
}

func TestConditionsAreDecidedInTheKernel(t *testing.T) {
	testprog.Parallel(t)
	p := startTarget(t, "target-pie")
	r := watching(t, "--where", "arg0 == 17 || arg0 == -2000000000", p.path, "gousdt_test:three",
		"gousdt_test:constants")
	p.Fire("constants", 3)
	p.Fire("three", 1)
	lines := r.interrupt().ok()
	qt.Assert(t, qt.HasLen(lines, 2))
	qt.Check(t, qt.StringContains(lines[1], "gousdt_test:three"))
}

func TestConditionThatCannotHoldIsAnError(t *testing.T) {
	testprog.Parallel(t)
	r := start(t, "--where", "arg77 == 1", copyOf(t, "target-pie"), "gousdt_test:three").wait()
	qt.Check(t, qt.Equals(r.status, exitError))
	qt.Check(t,
		qt.StringContains(r.stderr,
			`the condition "arg77 == 1" can never hold: gousdt_test:three has no arg77`))
	r = start(t, "--where", "arg1 == 1", copyOf(t, "target-pie"), "gousdt_test:vector").wait()
	qt.Check(t,
		qt.Matches(r.stderr,
			`(?s).*: arg1 of gousdt_test:vector is not available: .* (xmm0|v0|f0): not in pt_regs .*\n`))
}

func TestWrongConditionIsToldByItsFlag(t *testing.T) {
	testprog.Parallel(t)
	r := start(t, "--where", "arg0 >", copyOf(t, "target-pie"), "gousdt_test:three").wait()
	qt.Check(t, qt.Equals(r.status, exitError))
	qt.Check(t, qt.Matches(r.stderr, `usdttrace: --where: expression "arg0 >", at column 7: .*\n`))
	r = start(t, "--hist", "nonsense", copyOf(t, "target-pie"), "gousdt_test:three").wait()
	qt.Check(t, qt.Matches(r.stderr, `usdttrace: --hist: expression "nonsense", .*\n`))
}

func TestArgumentsThatNoSiteHas(t *testing.T) {
	testprog.Parallel(t)
	path := copyOf(t, "target-pie")
	for flag, want := range map[string]string{
		"--by":  "usdttrace: --by arg7: no site has arg7\n",
		"--sum": "usdttrace: --sum arg7: no site has arg7\n",
	} {
		r := start(t, "--count", flag, "arg7", path, "gousdt_test:three").wait()
		qt.Check(t, qt.Equals(r.status, exitError))
		qt.Check(t, qt.Equals(r.stderr, want))
	}
	for _, flags := range [][]string{{"--hist", "relation"}, {"--count", "--by", "str(relation)"},
		{"--str", "relation"}} { // which the built-in definitions know of others
		r := start(t, append(flags, path, "gousdt_test:three")...).wait()
		qt.Check(t, qt.Equals(r.status, exitError))
		qt.Check(t, qt.Matches(r.stderr,
			`.*: (no site has|gousdt_test:three has no) relation\n`))
	}
	names := filepath.Join(t.TempDir(), "own.d")
	qt.Assert(t, qt.IsNil(os.WriteFile(names, []byte("provider gousdt_test { "+
		"probe three(int first, const char *text, unsigned long third); };\n"+
		"#pragma gousdt note gousdt_test:three first in furlongs\n"), 0o644)))
	noted := start(t, "--names", names, "--sum", "first", "--duration", "1ms", path,
		"gousdt_test:three").wait()
	qt.Check(t, qt.StringContains(noted.stderr,
		"usdttrace: first of gousdt_test:three: in furlongs\n"))
	calls := copyOf(t, "calls")
	qt.Assert(t, qt.IsNil(os.WriteFile(names, []byte("provider gousdt_calls { "+
		"probe left__start(int id); probe left__done(int failed, int result); };\n"), 0o644)))
	for sum, want := range map[string]string{"start.result": "no probe that starts a call has result",
		"id": "no probe that ends a call has id (start.id is of the start)"} {
		r := start(t, "--names", names, "--latency", "gousdt_calls:left", "--sum", sum, calls).wait()
		qt.Check(t, qt.Equals(r.status, exitError))
		qt.Check(t, qt.Equals(r.stderr, "usdttrace: --sum "+sum+": "+want+"\n"))
	}
	unmatched := start(t, "--names", names, "--latency", "gousdt_calls:left", "--match", "result",
		"--duration", "1ms", "-p", decimal(startProgram(t, calls).PID)).wait()
	qt.Check(t, qt.StringContains(unmatched.stderr, "no pair of probes has the arguments that --match names\n"))
	r := start(t, "--str", "5", path, "gousdt_test:three").wait()
	qt.Check(t, qt.Equals(r.status, exitError))
	qt.Check(t, qt.Equals(r.stderr, "usdttrace: --str 5: no site has arg5\n"))
	r = start(t, "--bytes", "1:arg5", path, "gousdt_test:three").wait()
	qt.Check(t, qt.Equals(r.status, exitError))
	qt.Check(t, qt.Equals(r.stderr, "usdttrace: --bytes arg1 by arg5: no site has arg5\n"))
	r = start(t, "--bytes", "0:8", "--duration", "1ms", path, "gousdt_test:three").wait()
	qt.Check(t, qt.StringContains(r.stderr,
		"usdttrace: --bytes 0: arg0 of gousdt_test:three is not a pointer: i32\n"))
	r = start(t, "--sum", "arg1", path, "gousdt_test:vector").wait()
	qt.Check(t,
		qt.Matches(r.stderr,
			"usdttrace: --sum arg1: arg1 of gousdt_test:vector is not available: .* (xmm0|v0|f0): not in pt_regs .*\n"))
	r = start(t, "--count", "--by", "bogus", path, "gousdt_test:three").wait()
	qt.Check(t, qt.StringContains(r.stderr, "--by: "))
	qt.Check(t, qt.StringContains(r.stderr, "as keys site, stack"))
}

// Other processes may come, so it is no error.
func TestArgumentsThatNoSiteOfAProcessHas(t *testing.T) {
	testprog.Parallel(t)
	p := startTarget(t, "target-pie")
	r := watching(t, "-p", strconv.Itoa(p.PID), "--sum", "arg1", "--by", "str(arg0),arg1",
		"gousdt_test:vector").interrupt()
	for _, term := range []string{"--sum arg1", "--by arg1"} {
		qt.Check(t, qt.StringContains(r.stderr, "usdttrace: "+term+
			": arg1 of gousdt_test:vector is not available: "))
	}
	qt.Check(t, qt.Not(qt.StringContains(r.stderr, "str(arg0)")))
	r = watching(t, "-p", strconv.Itoa(p.PID), "--count", "--by", "arg1",
		"gousdt_test:vector,gousdt_test:three").interrupt()
	qt.Check(t, qt.Not(qt.StringContains(r.stderr, "not available")),
		qt.Commentf("another probe has it"))
}

// A captured member stands after the arguments of the probe.
func TestMembersOfAProcessAreNotMissing(t *testing.T) {
	testprog.Parallel(t)
	p := startProgram(t, copyOf(t, "members"))
	names := filepath.Join(t.TempDir(), "members.d")
	qt.Assert(t, qt.IsNil(os.WriteFile(names, []byte(
		"provider members { probe request(struct request *request, int code); };"), 0o600)))
	r := start(t, "-p", decimal(p.PID), "--duration", "1ms", "--names", names,
		"--str", "request->id", "members:request").wait()
	r.ok()
	qt.Check(t, qt.Not(qt.StringContains(r.stderr, "no site has")))
}

func TestFileWithoutTheProbesIsTold(t *testing.T) {
	testprog.Parallel(t)
	path, other := copyOf(t, "target-pie"), testprog.Path(t, "launcher")
	r := start(t, "--duration", "1ms", path, other, "gousdt_test:three").wait()
	r.ok()
	qt.Check(t, qt.StringContains(r.stderr, "usdttrace: "+other+": the file has no USDT probes\n"))
}

func TestItEndsAfterSoManyEvents(t *testing.T) {
	testprog.Parallel(t)
	p := startTarget(t, "target-pie")
	r := watching(t, "--max-events", "3", p.path, "gousdt_test:three")
	p.Fire("three", 10)
	result := r.wait()
	qt.Check(t, qt.HasLen(result.ok(), 4))
	qt.Check(t, qt.StringContains(result.stderr, "3 events, 0 lost"))
}

func TestProcessThatMayNotBeLookedIntoIsAnError(t *testing.T) {
	testprog.Parallel(t)
	setpriv := testneeds.Tool(t, "setpriv", "util-linux")
	self, err := os.Executable()
	qt.Assert(t, qt.IsNil(err))
	p := startTarget(t, "target-pie")
	for _, scope := range []string{"-p", "-fp"} {
		r := startPrepared(t, func(cmd *exec.Cmd) {
			cmd.Args = append([]string{setpriv, "--inh-caps=-all",
				"--bounding-set=-all,+bpf,+perfmon,+sys_resource", self}, cmd.Args[1:]...)
			cmd.Path = setpriv
		}, scope, strconv.Itoa(p.PID), "--duration", "1m", "gousdt_test:three").wait()
		qt.Check(t, qt.Equals(r.status, exitError))
		qt.Check(t, qt.StringContains(r.stderr, fmt.Sprintf("process %d: ", p.PID)))
		qt.Check(t, qt.StringContains(r.stderr, "no access to the process"))
		qt.Check(t, qt.Not(qt.StringContains(r.stderr, "Ctrl-C ends")), qt.Commentf("%s", scope))
	}
}

// While the reader stands still nothing can be delivered beyond what the ring
// buffer holds, and all else is counted.
func TestLostEventsAreCounted(t *testing.T) {
	testprog.Parallel(t)
	p := startTarget(t, "target-pie")
	r := watching(t, "--json", "--buffer", "4k", p.path, "gousdt_test:three")
	stop(t, r.cmd.Process)
	const hits = 2000
	p.Fire("three", hits)
	qt.Assert(t, qt.IsNil(r.cmd.Process.Signal(syscall.SIGCONT)))
	result := r.interrupt()
	events, summary := result.objects("event"), result.objects("summary")
	qt.Assert(t, qt.HasLen(summary, 1))
	qt.Check(t, qt.IsTrue(summary[0].Lost > hits/2), qt.Commentf("%d", summary[0].Lost))
	qt.Check(t, qt.Equals(summary[0].Events, uint64(len(events))))
	qt.Check(t, qt.Equals(summary[0].Events+summary[0].Lost, hits))
	qt.Check(t,
		qt.StringContains(result.stderr, "events are being lost, because the ring buffer is full"))
	qt.Check(t, qt.StringContains(result.stderr, fmt.Sprintf("%d events, %d lost; ", len(events),
		summary[0].Lost)))
}

// stop stops a process, and returns when it stands still.
func stop(t *testing.T, process *os.Process) {
	t.Helper()
	qt.Assert(t, qt.IsNil(process.Signal(syscall.SIGSTOP)))
	var status unix.WaitStatus
	// The end of the process can still be waited for.
	_, err := unix.Wait4(process.Pid, &status, unix.WUNTRACED, nil)
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsTrue(status.Stopped()))
}

func TestProcessIsWatchedWithWhatItLoadsUntilItEnds(t *testing.T) {
	testprog.Parallel(t)
	p := startTarget(t, "target-pie")
	library := copyOf(t, "libtarget.so")
	r := watching(t, "--json", "--max-events", "1000", "-p", strconv.Itoa(p.PID),
		"gousdt_test:three")
	p.Fire("three", 1)
	r.await(&r.stdout, "\n")
	p.Do("load " + library)
	r.await(&r.stderr, "usdttrace: also watching 1 site in "+library+"\n")
	p.Stop()
	result := r.wait() // without a signal
	qt.Check(t, qt.HasLen(result.objects("event"), 1))
	qt.Check(t, qt.Equals(result.objects("summary")[0].Sites, 2))
}

func TestOtherProcessesOfTheFileAreLeftAlone(t *testing.T) {
	testprog.Parallel(t)
	p := startTarget(t, "target-pie")
	other := &traced{Process: testprog.Start(t, p.path), path: p.path}
	r := watching(t, "--json", "-p", strconv.Itoa(p.PID), p.path, "gousdt_test:three")
	other.Fire("three", 5)
	p.Fire("three", 1)
	events := r.interrupt().objects("event")
	qt.Assert(t, qt.HasLen(events, 1))
	qt.Check(t, qt.Equals(events[0].PID, p.PID))
}

func TestAllProcessesAreWatchedAlsoLaterOnes(t *testing.T) {
	r := start(t, "--json", "-a", "gousdt_test:t[h]ree")
	r.await(&r.stderr, "(Ctrl-C ends)")
	ours := map[int]bool{}
	// A program, and one whose probes are in a library.
	for _, program := range []string{"target-pie", "target-shared"} {
		p := testprog.Start(t, program)
		ours[p.PID] = true
		// A new file is attached some 20 ms after a process has mapped it.
		// Others may be running the program, too.
		for its := fmt.Sprintf(`"pid":%d,`, p.PID); r.runs() && !strings.Contains(r.stdout.String(), its); {
			p.Fire("three", 1)
		}
	}
	seen := map[string]bool{}
	for _, e := range r.interrupt().objects("event") {
		if ours[e.PID] {
			seen[filepath.Base(e.File)] = true
		}
	}
	qt.Check(t, qt.DeepEquals(seen, map[string]bool{"target-pie": true, "libtarget.so": true}))
}

func TestNoSuchProbeInAProcess(t *testing.T) {
	testprog.Parallel(t)
	p := startTarget(t, "target-pie")
	r := watching(t, "-p", strconv.Itoa(p.PID), "gousdt_test:thre")
	qt.Check(t, qt.Matches(r.stderr.String(), fmt.Sprintf(
		`usdttrace: process %d has no matching probe yet \(nearest: gousdt_test:three.*\); what it maps later is watched \(Ctrl-C ends\)\n`,
		p.PID)))
	listed := start(t, "-l", "-p", decimal(p.PID), "gousdt_test:thre").wait()
	qt.Check(t, qt.Matches(listed.stderr, `usdttrace: no probe matches gousdt_test:thre in process \d+ `+
		`\(nearest: gousdt_test:three.*\)\n`))
	another := watching(t, "-p", decimal(p.PID), "gousdt_test:thre", "gousdt_test:twelve")
	qt.Check(t, qt.Matches(another.interrupt().stderr, `(?s)usdttrace: no probe matches gousdt_test:thre yet `+
		`\(nearest: gousdt_test:three.*\)\nusdttrace: watching .*`))
	p.Stop()
	result := r.wait()
	qt.Check(t, qt.Equals(result.status, exitNothing))
	qt.Check(t, qt.Matches(result.stderr, fmt.Sprintf(
		`(?s).*usdttrace: no probe matches gousdt_test:thre in process %d \(nearest: gousdt_test:three.*\)\n`,
		p.PID)))
}

// The probes of the provider are named if none is near, and if a process has
// none, which builds do.
func TestNoProbeIsLikeTheOneThatIsWanted(t *testing.T) {
	testprog.Parallel(t)
	p := startTarget(t, "target-pie")
	for pattern, want := range map[string]string{
		"gousdt_test:frobnicated": ` \(there are: gousdt_test:\w+, .*, \.\.\.\)`,
		"node:*":                  `: Node.js contains probes up to version 18, .*`,
		"python:exception":        `: exceptions have no probe.*`,
	} {
		r := watching(t, "-p", decimal(p.PID), pattern)
		qt.Check(t, qt.Matches(r.stderr.String(), fmt.Sprintf(
			`usdttrace: process %d has no matching probe%s; only what it maps or executes later can have one `+
				`\(Ctrl-C ends\)\n`, p.PID, want)))
		qt.Check(t, qt.Matches(r.interrupt().stderr, fmt.Sprintf(
			`(?s).*usdttrace: no probe matches %s in process %d%s\n`, regexp.QuoteMeta(pattern), p.PID, want)))
	}
}

// A process may execute the program, or load the library, only later.
func TestProcessThatHasTheProbeLater(t *testing.T) {
	testprog.Parallel(t)
	testneeds.Tool(t, "sh", "dash")
	for _, follow := range [][]string{nil, {"-f"}} {
		if follow != nil {
			testneeds.BTF(t)
		}
		cmd := exec.Command("sh", "-c", "read go; exec "+copyOf(t, "target-pie"))
		stdin := stdinOf(t, cmd)
		qt.Assert(t, qt.IsNil(cmd.Start()))
		r := watching(t, append(follow, "--count", "-p", decimal(cmd.Process.Pid),
			"gousdt_test:three")...)
		io.WriteString(stdin, "go\n")
		r.await(&r.stderr, "also watching 1 site in")
		io.WriteString(stdin, "fire three 3\nquit\n")
		cmd.Wait()
		result := r.wait()
		result.ok()
		qt.Check(t, qt.Matches(result.stdout, "count\nPROBE +COUNT +RATE +%\ngousdt_test:three +3 +.*\n"))
	}
}

// A program that is built anew, or upgraded, is another file at the same path.
// The one before is watched while a process runs it.
func TestFileMeansThePath(t *testing.T) {
	testprog.Parallel(t)
	old := startTarget(t, "target-pie")
	r := watching(t, "--json", old.path, "gousdt_test:three")
	contents, err := os.ReadFile(old.path)
	qt.Assert(t, qt.IsNil(err))
	want := map[int]int{old.PID: 3}
	for i, replace := range []func(){
		func() {
			qt.Assert(t, qt.IsNil(os.Remove(old.path)))
			testprog.WriteProgram(t, old.path, contents)
		},
		func() { qt.Assert(t, qt.IsNil(os.Rename(copyOf(t, "target-pie"), old.path))) },
	} {
		old.Fire("three", 1)
		replace()
		const said = "is another file now: also watching 1 site in it, from now on\n"
		r.awaitCount(&r.stderr, said, i+1)
		p := testprog.Start(t, old.path)
		p.Fire("three", 2)
		want[p.PID] = 2
		p.Stop()
	}
	old.Fire("three", 1)
	testprog.WriteProgram(t, old.path+".new", []byte("#!/bin/sh\n"))
	qt.Assert(t, qt.IsNil(os.Chtimes(old.path+".new", time.Time{}, time.Now().Add(-time.Hour))))
	qt.Assert(t, qt.IsNil(os.Rename(old.path+".new", old.path)))
	r.await(&r.stderr, "is another file now, which is not watched: ")
	hits := make(map[int]int)
	for _, e := range r.interrupt().objects("event") {
		hits[e.PID]++
	}
	qt.Check(t, qt.DeepEquals(hits, want))
}

func TestReaderWhoHasSeenEnoughEndsIt(t *testing.T) {
	testprog.Parallel(t)
	p := startTarget(t, "target-pie")
	reader, writer, err := os.Pipe()
	qt.Assert(t, qt.IsNil(err))
	r := startPrepared(t, func(cmd *exec.Cmd) { cmd.Stdout = writer }, p.path, "gousdt_test:three")
	writer.Close()
	r.await(&r.stderr, "(Ctrl-C ends)")
	reader.Close()
	p.Fire("three", 1) // one is enough: no other one has to come
	result := r.wait()
	qt.Check(t, qt.Equals(result.status, exitPipe))
	qt.Check(t, qt.Equals(result.stderr, "usdttrace: watching 1 site (Ctrl-C ends)\n"))
}

func TestStacksHaveNames(t *testing.T) {
	testprog.Parallel(t)
	p := startTarget(t, "target-pie")
	r := watching(t, "--json", "--stack", "-p", strconv.Itoa(p.PID), "gousdt_test:three")
	p.Fire("three", 1)
	result := r.interrupt()
	events := result.objects("event")
	qt.Assert(t, qt.HasLen(events, 1))
	qt.Assert(t, qt.Not(qt.HasLen(events[0].Stack, 0)))
	innermost := events[0].Stack[0]
	qt.Check(t, qt.Equals(innermost.Function, "fire_three"))
	qt.Check(t, qt.Equals(filepath.Base(innermost.File), "target-pie"))
	unnamed := 0
	for _, frame := range events[0].Stack {
		if frame.Function == "" {
			unnamed++
		}
	}
	summary := result.objects("summary")[0]
	qt.Check(t, qt.Equals(summary.Frames, uint64(len(events[0].Stack))))
	qt.Check(t, qt.Equals(summary.UnnamedFrames, uint64(unnamed)))
	// It was built without frame pointers.
	qt.Check(t, qt.IsTrue(slices.ContainsFunc(events[0].Stack,
		func(f frame) bool { return f.Function == "main" })))

	r = watching(t, "--stack", "-p", strconv.Itoa(p.PID), "gousdt_test:three")
	p.Fire("three", 1)
	qt.Check(t, qt.Matches(r.interrupt().ok()[2], `    fire_three\+0x[0-9a-f]+ \(.*/target-pie\)`))
}

func TestStacksThatTheKernelWalks(t *testing.T) {
	testprog.Parallel(t)
	testprog.RequireStacks(t)
	p := startTarget(t, "target-pie")
	r := watching(t, "--json", "--stack", "--unwind", "fp", "-p", strconv.Itoa(p.PID),
		"gousdt_test:three")
	p.Fire("three", 1)
	events := r.interrupt().objects("event")
	qt.Assert(t, qt.HasLen(events, 1))
	qt.Assert(t, qt.Not(qt.HasLen(events[0].Stack, 0)))
	qt.Check(t, qt.Equals(events[0].Stack[0].Function, "fire_three"))
}

// deployed are builds of one program. A breakpoint that is left of one of them
// is inside an instruction of another one, which it kills.
const deployed = `
#include <string.h>
#include <unistd.h>
#include <sys/sdt.h>
__attribute__((noinline)) void f(volatile int i)
{
#ifndef FIRST
	char b[40]; memset(b, i, 40); i += b[3]; i *= 5; i ^= 0x1234567;
#endif
	DTRACE_PROBE1(deployed, tick, i);
}
int main(void) { for (int i = 0; i < 50; i++) { f(i); usleep(1000); } return 0; }
`

// The old program is stopped, the new one is written over it and started.
func TestDeploymentsInPlaceEndWell(t *testing.T) {
	testprog.Parallel(t)
	testprog.RequireBPF(t)
	gcc := testneeds.Tool(t, "gcc", "gcc")
	builds := t.TempDir()
	source := filepath.Join(builds, "deployed.c")
	qt.Assert(t, qt.IsNil(os.WriteFile(source, []byte(deployed), 0o600)))
	var contents [][]byte // the first is the old program
	for _, flags := range []string{"-O2 -DFIRST", "-O0", "-O2", "-O0 -fno-pie -no-pie",
		"-O1 -fstack-protector-all", "-O3 -fno-omit-frame-pointer"} {
		output := filepath.Join(builds, "build")
		build := exec.Command(gcc, append(strings.Fields(flags), source, "-o", output)...)
		built, err := build.CombinedOutput()
		qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", built))
		text, err := os.ReadFile(output)
		qt.Assert(t, qt.IsNil(err))
		contents = append(contents, text)
	}
	shm, err := os.MkdirTemp("/dev/shm", "deployed")
	qt.Assert(t, qt.IsNil(err))
	defer os.RemoveAll(shm)
	for _, dir := range []string{t.TempDir(), shm} {
		file := filepath.Join(dir, "deployed")
		deploy := func(text []byte) *exec.Cmd {
			qt.Assert(t, qt.IsNil(os.WriteFile(file, text, 0o755)))
			for {
				run := exec.Command(file)
				err := run.Start()
				if errors.Is(err, syscall.ETXTBSY) { // a child of another goroutine has it open
					continue
				}
				qt.Assert(t, qt.IsNil(err))
				return run
			}
		}
		qt.Assert(t, qt.IsNil(deploy(contents[0]).Wait()))
		for _, args := range [][]string{{file}, {"-a"}} {
			r := watching(t, append(slices.Clip(args), "deployed:*")...)
			for range testprog.Soak(1, 50) {
				for i, pause := range []time.Duration{0, 0, 50 * time.Millisecond,
					300 * time.Millisecond, 0} {
					old := deploy(contents[0])
					time.Sleep(20 * time.Millisecond) // it is found under -a
					old.Process.Kill()
					_ = old.Wait()
					time.Sleep(pause)
					qt.Check(t, qt.IsNil(deploy(contents[1+i]).Wait()),
						qt.Commentf("%v, build %d", args, 1+i))
				}
			}
			// A busy machine may have found none of them.
			for r.runs() && !strings.Contains(r.stdout.String(), "deployed:tick") {
				qt.Check(t, qt.IsNil(deploy(contents[0]).Wait()))
			}
			r.interrupt().ok()
		}
	}
}
