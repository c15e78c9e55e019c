// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/go-quicktest/qt"

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
			// Its own output passes through, between the events.
			for _, answer := range []string{"ok three 3", "ok quit"} {
				qt.Check(t, qt.IsTrue(slices.Contains(lines, answer)), qt.Commentf("no %q in %q", answer, lines))
			}
			events := 0
			for _, line := range lines {
				if strings.Contains(line, "gousdt_test:three ") {
					events++
				}
			}
			qt.Check(t, qt.Equals(events, 3))
			qt.Check(t, qt.Matches(r.stderr, `3 events, 0 lost; 1 site; .*\n`))
		})
	}
}

func TestCommandIsWatchedThroughExec(t *testing.T) {
	path := copyOf(t, "target-pie")
	r := startWith(t, "fire three 3\nquit\n", "--count", "-c", launcher(t, "exec", path), "gousdt_test:three").wait()
	qt.Check(t, qt.StringContains(r.stderr, "3 events, 0 lost"))
	// The program executes itself anew: what is attached to it stays.
	var stdin io.WriteCloser
	running := startPrepared(t, func(cmd *exec.Cmd) { stdin = stdinOf(t, cmd) }, "--count", "-c", path, "gousdt_test:three")
	for _, command := range []string{"three 3", "exec", "three 2"} {
		line := command
		if line != "exec" {
			line = "fire " + line
		}
		io.WriteString(stdin, line+"\n")
		running.await(&running.stdout, "ok "+command+"\n")
	}
	stdin.Close()
	qt.Check(t, qt.StringContains(running.wait().stderr, "5 events, 0 lost"))
}

func TestCommandsFilesCanBeNamed(t *testing.T) {
	path := copyOf(t, "target-pie")
	r := startWith(t, "fire three 3\nquit\n", "--count", "-c", path, path, "gousdt_test:three").wait()
	qt.Check(t, qt.StringContains(r.stderr, "3 events, 0 lost; 1 site; "))
}

func TestCommandsEndIsTold(t *testing.T) {
	path := copyOf(t, "target-pie")
	r := startWith(t, "quit\n", "-c", launcher(t, "run", path, "exit", "3"), "gousdt_test:three").wait()
	qt.Check(t, qt.StringContains(r.stderr, "/launcher ended with exit status 3\n"))
	r = startWith(t, "", "-c", launcher(t, "kill", "9"), "gousdt_test:three").wait()
	qt.Check(t, qt.StringContains(r.stderr, "/launcher ended by a signal: killed\n"))
	qt.Check(t, qt.Equals(r.status, exitNothing))
}

func TestCommandEndsWithTheTracing(t *testing.T) {
	path := copyOf(t, "target-pie")
	var stdin io.WriteCloser
	r := startPrepared(t, func(cmd *exec.Cmd) { stdin = stdinOf(t, cmd) }, "--max-events", "2", "-c", path, "gousdt_test:three")
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
	qt.Check(t, qt.Equals(r.stdout, "two words\n"))
	qt.Check(t, qt.StringContains(r.stderr, "usdttrace: launcher ended with exit status 3\n"))
}

func TestCommandWithoutTheProbe(t *testing.T) {
	r := startWith(t, "quit\n", "-c", copyOf(t, "target-pie"), "gousdt_test:thre").wait()
	qt.Check(t, qt.Equals(r.status, exitNothing))
	qt.Check(t, qt.Matches(r.stderr,
		`usdttrace: no probe matches gousdt_test:thre in what the command has run \(descendants that live less than 20 ms are missed: .*\) \(nearest: gousdt_test:three.*\)\n`))
	qt.Check(t, qt.Equals(r.stdout, "ok quit\n"))
	r = start(t, "-c", "/nonexistent/program", "a:b").wait()
	qt.Check(t, qt.Equals(r.status, exitError))
	qt.Check(t, qt.StringContains(r.stderr, "/nonexistent/program"))
}

// The main thread's signals pass through the tracer.
func TestCommandGetsItsSignals(t *testing.T) {
	signal := decimal(int(syscall.SIGUSR1))
	r := start(t, "-c", launcher(t, "catch", signal, "kill", signal, "say", "end"), "a:b").wait()
	qt.Check(t, qt.Equals(r.stdout, "caught\nend\n"))
}
