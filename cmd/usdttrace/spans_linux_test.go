// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"fmt"
	"io"
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

	"github.com/gousdt/gousdt/cmd/internal/testschema"
	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
)

func TestSlowCallsArePrinted(t *testing.T) {
	testprog.Parallel(t)
	path := copyOf(t, "calls")
	result := startWith(t, "nested\ncrossed\n", "--json", "--slow", "0", "--str", "1",
		"gousdt_calls:*", "--", path).wait()
	qt.Assert(t, qt.Equals(result.status, exitWatched))
	spans := result.objects("span")
	qt.Assert(t, qt.HasLen(spans, 6))
	qt.Check(t, qt.StringContains(result.stdout,
		`"pair":"gousdt_calls:outer","start":{"provider":"gousdt_calls","name":"outer__start"`))
	qt.Check(t, qt.StringContains(result.stdout, `"text":"outer `))

	result = startWith(t, "nested\n", "--slow", "200us", "--where", "start.arg0 > 0 || arg0 == 7",
		"gousdt_calls:outer", "--", path).wait()
	result.ok()
	qt.Check(t, qt.StringContains(result.stdout, "DURATION"))
	qt.Check(t, qt.Matches(result.stdout,
		`(?s).*calls +gousdt_calls:outer  arg0=\d+ arg1=\d+  -> arg0=-1 arg1=\d+\n.*`))

	result = startWith(t, "nested\n", "--slow", "1h", "gousdt_calls:*", "--", path).wait()
	qt.Check(t, qt.Not(qt.StringContains(result.stdout, "gousdt_calls")))
}

func TestTextsOfSlowCallsHaveALimit(t *testing.T) {
	path := copyOf(t, "calls")
	result := start(t, "--slow", "0", "--str", "1:30000", path, "gousdt_calls:*").wait()
	qt.Check(t, qt.Equals(result.status, exitError))
	qt.Check(t, qt.Matches(result.stderr,
		`usdttrace: --str: the captures of each start take \d+ bytes, more than 28672: capture less\n`))
}

func TestPairsAreListed(t *testing.T) {
	path := testprog.Path(t, "calls")
	lines := start(t, "--pairs", path).wait().ok()
	qt.Check(t, qt.Equals(lines[0], "File: "+path))
	qt.Check(t, qt.Matches(lines[1], `PAIR +START +DONE +MATCH +TIME WHILE`))
	qt.Check(t,
		qt.Matches(lines[2], `gousdt_calls:\w+ +gousdt_calls:\w+__start +gousdt_calls:\w+__done +tid +-`))
	qt.Check(t, qt.HasLen(lines, 2+8))
	for _, line := range start(t, "--json", "--pairs", path).wait().ok() {
		testschema.Load(t, "usdttrace").Check(t, []byte(line))
	}
	result := start(t, "--pairs", path, "gousdt_calls:l*").wait()
	qt.Check(t, qt.HasLen(result.ok(), 4))
	result = start(t, "--pairs", path, "gousdt_calls:x").wait()
	qt.Check(t, qt.Equals(result.status, exitNothing))
	result = start(t, "--slow", "1ms", path, "gousdt_calls:x").wait()
	qt.Check(t, qt.Equals(result.status, exitNothing))
	qt.Check(t, qt.StringContains(result.stderr,
		"there is no pair of probes gousdt_calls:x (there are: gousdt_calls:"))
	result = start(t, "--slow", "1ms", path, "gousdt_calls:*start..x").wait()
	qt.Check(t, qt.Equals(result.status, exitError))
	qt.Check(t,
		qt.StringContains(result.stderr,
			"the names have 1 and 0 wildcards: which start belongs to which end is not known (usdttrace --pairs lists the pairs"))
}

func TestSlowCallsHaveStacksOfBothEnds(t *testing.T) {
	testprog.Parallel(t)
	path := copyOf(t, "calls")
	// The command runs until its call is printed: its memory has the names.
	nested := func(printed string, flags ...string) result {
		var stdin io.WriteCloser
		r := startPrepared(t, func(cmd *exec.Cmd) { stdin = stdinOf(t, cmd) },
			append(flags, "--slow", "0", "--start-stack", "gousdt_calls:outer", "--", path)...)
		io.WriteString(stdin, "nested\n")
		r.await(&r.stdout, printed)
		stdin.Close()
		return r.wait()
	}
	result := nested("  ended at\n", "--stack")
	result.ok()
	qt.Check(t,
		qt.Matches(result.stdout,
			`(?s).*  started at\n    outer\+0x.*\(.*calls\)\n.*  ended at\n    outer\+0x.*\(.*calls\)\n.*`))

	result = nested(`"done":`, "--json")
	qt.Check(t, qt.Matches(result.ok()[0],
		`.*"start":\{[^}]*"args":.*"stack":\[\{[^}]*"function":"outer".*"done":\{.*`))
	testschema.Load(t, "usdttrace").Check(t, []byte(result.ok()[0]))

	result = start(t, "--start-stack", path, "gousdt_calls:outer__start").wait()
	qt.Check(t, qt.Equals(result.status, exitError))
	qt.Check(t, qt.StringContains(result.stderr, "--start-stack goes with --slow"))
}

// That a thread exits with a call open does not say when the call ended, if it
// can fail unseen.
func TestExitsAreNoCalls(t *testing.T) {
	testprog.Parallel(t)
	path := copyOf(t, "calls")
	result := start(t, "--slow", "0", path, "gousdt_calls:left", "--", "sh", "-c",
		"echo call | "+path+" leave >&2").wait()
	qt.Check(t, qt.Equals(result.stdout, ""))
	qt.Check(t, qt.StringContains(result.stderr, "1 without an end: calls whose thread or process exited"))
}

// A call whose process is killed inside it is printed as such, however it is
// watched, and is in no table.
func TestKilledCallsArePrinted(t *testing.T) {
	testprog.Parallel(t)
	path := copyOf(t, "calls")
	const (
		line  = `gousdt_calls:left  killed by SIGKILL, unless it had ended before  arg0=1 arg1="one at a time"`
		count = "1 without an end: calls whose process was killed by a signal, or that had failed"
	)
	chrome := filepath.Join(t.TempDir(), "trace.json")
	for name, test := range map[string]struct {
		flags []string
		check func(result)
	}{
		"file":   {[]string{"--slow", "1us", "--str", "1"}, nil},
		"PID":    {[]string{"--slow", "1us", "--str", "1"}, nil},
		"all":    {[]string{"--slow", "1us", "--str", "1", "-a"}, nil},
		"failed": {[]string{"--slow", "1us", "--str", "1", "--where", "failed"}, nil},
		"thread": {[]string{"--slow", "1us", "--str", "1", "--match", "arg0=arg1"}, nil},
		"JSON": {[]string{"--slow", "1us", "--str", "1", "--json"}, func(r result) {
			spans := r.objects("span")
			qt.Assert(t, qt.HasLen(spans, 1))
			qt.Check(t, qt.Equals(spans[0].Ended, "killed by SIGKILL, unless it had ended before"))
			qt.Check(t, qt.IsTrue(spans[0].Failed))
			qt.Check(t, qt.StringContains(string(spans[0].Start), "one at a time"))
			qt.Check(t, qt.Equals(r.objects("summary")[0].Killed, 1))
		}},
		"latency": {[]string{"--latency"}, func(r result) {
			qt.Check(t, qt.StringContains(r.stdout, "nothing"))
		}},
		"Chrome": {[]string{"--slow", "1us", "--chrome-trace", chrome}, func(result) {
			text, err := os.ReadFile(chrome)
			qt.Assert(t, qt.IsNil(err))
			qt.Check(t, qt.StringContains(string(text), `"ended":"killed by SIGKILL, unless it had ended before"`))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			program := exec.Command(path, "slowly")
			stdin, err := program.StdinPipe()
			qt.Assert(t, qt.IsNil(err))
			stdout, err := program.StdoutPipe()
			qt.Assert(t, qt.IsNil(err))
			qt.Assert(t, qt.IsNil(program.Start()))
			t.Cleanup(func() { _ = program.Process.Kill(); _ = program.Wait() })
			flags := append(slices.Clone(test.flags), "gousdt_calls:left")
			switch pid := strconv.Itoa(program.Process.Pid); name {
			case "PID":
				flags = append(flags, "-p", pid)
			case "all":
				flags = append(flags, "--where", "pid == "+pid)
			default:
				flags = append(flags, path)
			}
			run := watching(t, flags...)
			fmt.Fprintln(stdin)
			_, err = io.ReadFull(stdout, make([]byte, len("ok\n")))
			qt.Assert(t, qt.IsNil(err))
			qt.Assert(t, qt.IsNil(program.Process.Kill()))
			_ = program.Wait()
			end := run.interrupt
			if name == "PID" {
				end = run.wait
			}
			result := end()
			qt.Assert(t, qt.Equals(result.status, exitWatched))
			if qt.Check(t, qt.StringContains(result.stderr, count)); test.check != nil {
				test.check(result)
				return
			}
			qt.Check(t, qt.StringContains(result.stdout, line))
			qt.Check(t, qt.StringContains(result.stderr, "1 event, 0 lost"))
		})
	}

	t.Run("command", func(t *testing.T) {
		var stdin io.WriteCloser
		run := startPrepared(t, func(cmd *exec.Cmd) { stdin = stdinOf(t, cmd) },
			"--slow", "1us", "--str", "1", path, "gousdt_calls:left",
			"--", "sh", "-c", `echo PID $$ . >&2; exec "$0" slowly`, path)
		run.await(&run.stderr, " .\n")
		fmt.Fprintln(stdin)
		run.await(&run.stderr, "\nok\n") // not on the standard output of the calls
		pid, err := strconv.Atoi(regexp.MustCompile(`PID (\d+)`).FindStringSubmatch(run.stderr.String())[1])
		qt.Assert(t, qt.IsNil(err))
		qt.Assert(t, qt.IsNil(syscall.Kill(pid, syscall.SIGKILL)))
		result := run.wait()
		qt.Check(t, qt.StringContains(result.stdout, line))
		qt.Check(t, qt.StringContains(result.stderr, count))
	})
}

// Calls that go on are listed when that is asked for, at each interval, and at
// the end.
func TestOpenCallsArePrinted(t *testing.T) {
	testprog.Parallel(t)
	path := copyOf(t, "calls")
	const (
		text = `\d+:\d+:\d+\.\d+ +\S+ +\d+ +\d+  calls +gousdt_calls:left  open`
		json = `{"type":"open_call",.*"command":"calls".*"pair":"gousdt_calls:left"`
	)
	for name, test := range map[string]struct {
		flags []string
		line  string
		asked bool
	}{
		"slow":     {[]string{"--slow", "1ms", "--str", "1"}, text + ".*one at a time", true},
		"interval": {[]string{"--slow", "1ms", "--str", "1", "--interval", "10ms"}, text, false},
		"latency": {[]string{"--latency"}, `gousdt_calls:left: 1 call open for more than 1s, ` +
			`the longest for \S+ in process \d+ \(calls\): --slow 1s lists them\n`, true},
		"slow, JSON":  {[]string{"--json", "--slow", "1ms", "--str", "1"}, json + ".*one at a time", true},
		"latency too": {[]string{"--json", "--latency"}, json, true},
	} {
		t.Run(name, func(t *testing.T) {
			run := watching(t, append(test.flags, "gousdt_calls:left", path)...)
			program := exec.Command(path, "slowly")
			stdin, err := program.StdinPipe()
			qt.Assert(t, qt.IsNil(err))
			qt.Assert(t, qt.IsNil(program.Start()))
			t.Cleanup(func() {
				stdin.Close()
				program.Wait()
			})
			fmt.Fprintln(stdin)

			line := regexp.MustCompile(test.line)
			late := time.After(testneeds.Patience(runDeadline))
			for !line.MatchString(run.stdout.String()) {
				if test.asked {
					qt.Assert(t, qt.IsNil(run.cmd.Process.Signal(syscall.SIGQUIT)))
				}
				select {
				case <-run.stdout.changed:
				case <-time.After(100 * time.Millisecond):
				case <-late:
					t.Fatalf("no open call:\n%s", &run.stdout)
				}
			}
			before := len(line.FindAllString(run.stdout.String(), -1))
			result := run.interrupt()
			qt.Assert(t, qt.Equals(result.status, exitWatched))
			qt.Check(t, qt.IsTrue(len(line.FindAllString(result.stdout, -1)) > before))
			if strings.Contains(name, "JSON") {
				qt.Check(t, qt.IsTrue(len(result.objects("open_call")) > 0))
			}
		})
	}
}
