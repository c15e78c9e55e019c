// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
)

func decimal(n int) string { return strconv.Itoa(n) }

// launcher returns a command that does such things.
func launcher(t *testing.T, words ...string) string {
	t.Helper()
	return testprog.Path(t, "launcher") + " " + strings.Join(words, " ")
}

// stdinOf returns the other end of a command's standard input.
func stdinOf(t *testing.T, cmd *exec.Cmd) io.WriteCloser {
	t.Helper()
	stdin, err := cmd.StdinPipe()
	qt.Assert(t, qt.IsNil(err))
	return stdin
}

func TestCommandIsWatchedFromItsFirstInstruction(t *testing.T) {
	for _, program := range []string{"target-pie", "target-static", "target-shared"} {
		t.Run(program, func(t *testing.T) {
			path := copyOf(t, program)
			if program == "target-shared" {
				// Its library is found beside it.
				path = copyBeside(t, path, "libtarget.so")
			}
			r := startWith(t, "fire three 3\nquit\n", "-c", path, "gousdt_test:three").wait()
			lines := r.ok()
			// Its own output does not come between the events.
			for _, answer := range []string{"ok three 3\n", "ok quit\n"} {
				qt.Check(t, qt.StringContains(r.stderr, answer))
			}
			events := 0
			for _, line := range lines {
				if strings.Contains(line, "gousdt_test:three ") {
					events++
				}
			}
			qt.Check(t, qt.Equals(events, 3))
			qt.Check(t, qt.StringContains(r.stderr, "3 events, 0 lost; 1 site; "))
			qt.Check(t, qt.HasLen(lines, 4))
		})
	}
}

func TestCommandIsWatchedThroughExec(t *testing.T) {
	path := copyOf(t, "target-pie")
	r := startWith(t, "fire three 3\nquit\n", "--count", "-c", launcher(t, "exec", path),
		"gousdt_test:three").wait()
	qt.Check(t, qt.StringContains(r.stderr, "3 events, 0 lost"))
	// The program executes itself anew: what is attached to it stays.
	var stdin io.WriteCloser
	running := startPrepared(t, func(cmd *exec.Cmd) { stdin = stdinOf(t, cmd) }, "--count", "-c",
		path, "gousdt_test:three")
	for _, command := range []string{"three 3", "exec", "three 2"} {
		line := command
		if line != "exec" {
			line = "fire " + line
		}
		io.WriteString(stdin, line+"\n")
		running.await(&running.stderr, "ok "+command+"\n")
	}
	stdin.Close()
	qt.Check(t, qt.StringContains(running.wait().stderr, "5 events, 0 lost"))
}

func TestCommandsFilesCanBeNamed(t *testing.T) {
	path := copyOf(t, "target-pie")
	r := startWith(t, "fire three 3\nquit\n", "--count", "-c", path, path,
		"gousdt_test:three").wait()
	qt.Check(t, qt.StringContains(r.stderr, "3 events, 0 lost; 1 site; "))
}

func TestCommandsEndIsTold(t *testing.T) {
	path := copyOf(t, "target-pie")
	r := startWith(t, "quit\n", "-c", launcher(t, "run", path, "exit", "3"),
		"gousdt_test:three").wait()
	qt.Check(t, qt.StringContains(r.stderr, "/launcher ended with exit status 3\n"))
	r = startWith(t, "", "-c", launcher(t, "kill", "9"), "gousdt_test:three").wait()
	qt.Check(t, qt.StringContains(r.stderr, "/launcher ended by a signal: killed\n"))
	qt.Check(t, qt.Equals(r.status, exitNothing))
}

func TestCommandEndsWithTheTracing(t *testing.T) {
	path := copyOf(t, "target-pie")
	var stdin io.WriteCloser
	r := startPrepared(t, func(cmd *exec.Cmd) { stdin = stdinOf(t, cmd) }, "--max-events", "2",
		"-c", path, "gousdt_test:three")
	io.WriteString(stdin, "fire three 3\n")
	// The command's input stays open: it does not end by itself.
	result := r.wait()
	qt.Check(t, qt.Not(qt.HasLen(result.ok(), 0)))
	qt.Check(t, qt.StringContains(result.stderr, "2 events, 0 lost"))
}

func TestCommandIsFoundAsAShellFindsIt(t *testing.T) {
	program := testprog.Path(t, "launcher")
	r := startPrepared(t, func(cmd *exec.Cmd) {
		cmd.Env = append(cmd.Env, "PATH="+filepath.Dir(program))
	}, "-c", "launcher say 'two words' exit 3", "a:b").wait()
	qt.Check(t, qt.StringContains(r.stderr, "two words\n"))
	qt.Check(t, qt.StringContains(r.stderr, "usdttrace: launcher ended with exit status 3\n"))
}

func TestCommandWithoutTheProbe(t *testing.T) {
	r := startWith(t, "quit\n", "-c", copyOf(t, "target-pie"), "gousdt_test:thre").wait()
	qt.Check(t, qt.Equals(r.status, exitNothing))
	qt.Check(t, qt.Matches(r.stderr,
		`(?s).*usdttrace: no probe matches gousdt_test:thre in what the command has run \(descendants that live less than 20 ms are missed: .*\) \(nearest: gousdt_test:three.*\)\n`))
	qt.Check(t, qt.StringContains(r.stderr, "ok quit\n"))
	r = start(t, "-c", "/nonexistent/program", "a:b").wait()
	qt.Check(t, qt.Equals(r.status, exitError))
	qt.Check(t, qt.StringContains(r.stderr, "/nonexistent/program"))
}

// The main thread's signals pass through the tracer.
func TestCommandGetsItsSignals(t *testing.T) {
	signal := decimal(int(syscall.SIGUSR1))
	r := start(t, "-c", launcher(t, "catch", signal, "kill", signal, "say", "end"), "a:b").wait()
	qt.Check(t, qt.StringContains(r.stderr, "caught\nend\n"))
}

func TestCommandBehindDashes(t *testing.T) {
	program := testprog.Path(t, "launcher")
	target := copyOf(t, "target-pie")
	// Its flags are its own, and so are blanks.
	var stdin io.WriteCloser
	running := startPrepared(t, func(cmd *exec.Cmd) { stdin = stdinOf(t, cmd) }, "--json",
		"gousdt_test:three", "--",
		program, "say", "-p  two", "run", target, "exit", "3")
	for running.runs() && !strings.Contains(running.stdout.String(), `"event"`) {
		// What the launcher runs is attached some 20 ms later.
		io.WriteString(stdin, "fire three 1\n")
	}
	io.WriteString(stdin, "quit\n")
	r := running.wait()
	qt.Check(t, qt.Equals(r.status, 3))
	qt.Check(t, qt.StringContains(r.stderr, "-p  two\n"))
	qt.Check(t, qt.StringContains(r.stderr, "ended with exit status 3\n"))
	r = startWith(t, "fire three 3\n", "--count", "gousdt_test:three", "--", target).wait()
	r.ok()
	qt.Check(t, qt.Matches(r.stdout, "count\nPROBE +COUNT +RATE +%\ngousdt_test:three +3 +.*\n"))
	r = startWith(t, "", "a:b", "--").wait()
	qt.Check(t, qt.StringContains(r.stderr, "no COMMAND behind --"))
	r = startWith(t, "", "-c", "true", "a:b", "--", "true").wait()
	qt.Check(t, qt.StringContains(r.stderr, "-c and -- exclude each other"))
}

// What has the output in files leaves the standard output to the command.
func TestCommandHasTheOutputThatIsNotUsed(t *testing.T) {
	target, dir := copyOf(t, "target-pie"), t.TempDir()
	r := startWith(t, "fire three 3\nquit\n", "-o", filepath.Join(dir, "out"), "gousdt_test:three",
		"--", target).wait()
	r.ok()
	qt.Check(t, qt.Equals(r.stdout, "ok three 3\nok quit\n"))
	r = startWith(t, "fire three 3\nquit\n", "--folded", filepath.Join(dir, "folded"),
		"gousdt_test:three", "--", target).wait()
	r.ok()
	qt.Check(t, qt.Equals(r.stdout, "ok three 3\nok quit\n"))
}

func TestDescendantsAreFollowed(t *testing.T) {
	testneeds.BTF(t)
	for _, named := range []bool{false, true} {
		p := startTarget(t, "target-pie")
		args := []string{"--json", "-f", "-p", decimal(p.PID), "gousdt_test:three"}
		if named {
			args = append(args, p.path)
		}
		r := watching(t, args...)
		p.Fire("three", 1)
		child := p.Fork("three", 3) // it ends at once
		hits := make(map[int]int)
		for _, e := range r.interrupt().objects("event") {
			hits[e.PID]++
		}
		qt.Check(t, qt.DeepEquals(hits, map[int]int{p.PID: 1, child: 3}))
	}
	r := start(t, "-f", "-a", "a:b").wait()
	qt.Check(t, qt.StringContains(r.stderr, "-f goes with -p PID"))
}

func TestDescendantsThatAreNotWatchedAreTold(t *testing.T) {
	program := testprog.Path(t, "launcher")
	target := copyOf(t, "target-pie")
	// The launcher has no probes of its own: name the file of its child.
	cmd := exec.Command(program, "run", target)
	stdin := stdinOf(t, cmd)
	out, err := cmd.StdoutPipe()
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(cmd.Start()))
	defer func() {
		stdin.Close()
		cmd.Wait()
	}()
	io.WriteString(stdin, "fire three 1\n")
	answer := make([]byte, 64)
	_, err = out.Read(answer) // it runs
	qt.Assert(t, qt.IsNil(err))
	r := watching(t, "-p", decimal(cmd.Process.Pid), target, "gousdt_test:three")
	result := r.interrupt()
	qt.Check(t,
		qt.StringContains(result.stderr,
			"hit nothing; 1 descendant of it maps "+target+
				", which has matching probes: watch them, too, with -f\n"))

	r = start(t, "-p", decimal(cmd.Process.Pid), "gousdt_test:three")
	result = r.wait()
	qt.Check(t, qt.Equals(result.status, exitNothing))
	qt.Check(t, qt.Equals(result.stderr,
		fmt.Sprintf("usdttrace: no probe matches gousdt_test:three in process %d; "+
			"1 descendant of it maps %s, which has matching probes: watch them, too, with -f\n",
			cmd.Process.Pid, target)))
}
