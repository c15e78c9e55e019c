// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"io"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
)

func decimal(n int) string { return strconv.Itoa(n) }

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
			qt.Check(t, qt.StringContains(r.stdout, "ok three 3\nok quit\n"), qt.Commentf("its own output passes through"))
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
	r := startWith(t, "fire three 3\nquit\n", "--count", "-c", "sh -c 'exec "+path+"'", "gousdt_test:three").wait()
	qt.Check(t, qt.StringContains(r.stderr, "3 events, 0 lost"))
	// The program executes itself anew: what is attached to it stays.
	var stdin io.WriteCloser
	running := startPrepared(t, func(cmd *exec.Cmd) {
		var err error
		stdin, err = cmd.StdinPipe()
		qt.Assert(t, qt.IsNil(err))
	}, "--count", "-c", path, "gousdt_test:three")
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
	r := startWith(t, "quit\n", "-c", "sh -c '"+path+"; exit 3'", "gousdt_test:three").wait()
	qt.Check(t, qt.StringContains(r.stderr, "usdttrace: sh ended with exit status 3\n"))
	r = startWith(t, "", "-c", "sh -c 'kill -9 $$'", "gousdt_test:three").wait()
	qt.Check(t, qt.StringContains(r.stderr, "usdttrace: sh ended by a signal: killed\n"))
	qt.Check(t, qt.Equals(r.status, exitNothing))
}

func TestCommandEndsWithTheTracing(t *testing.T) {
	path := copyOf(t, "target-pie")
	r := startWith(t, "fire three 3\n", "--max-events", "2", "-c", "sh -c '"+path+" & exec "+path+"'", "gousdt_test:three")
	lines := r.wait().ok()
	qt.Check(t, qt.Not(qt.HasLen(lines, 0)))
}

func TestCommandWithoutTheProbe(t *testing.T) {
	r := startWith(t, "quit\n", "-c", copyOf(t, "target-pie"), "gousdt_test:thre").wait()
	qt.Check(t, qt.Equals(r.status, exitNothing))
	qt.Check(t, qt.Matches(r.stderr,
		`usdttrace: no probe matches gousdt_test:thre in what the command has run \(nearest: gousdt_test:three, .*\)\n`))
	qt.Check(t, qt.Equals(r.stdout, "ok quit\n"))
	r = start(t, "-c", "/nonexistent/program", "a:b").wait()
	qt.Check(t, qt.Equals(r.status, exitError))
	qt.Check(t, qt.StringContains(r.stderr, "/nonexistent/program"))
}

// The main thread's signals pass through the tracer.
func TestCommandGetsItsSignals(t *testing.T) {
	r := start(t, "-c", `sh -c 'trap "echo got it" USR1; kill -USR1 $$; echo end'`, "a:b").wait()
	qt.Check(t, qt.Equals(r.stdout, "got it\nend\n"))
}
