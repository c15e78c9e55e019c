// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/procfs"
	"github.com/gousdt/gousdt/internal/procwatch"
	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
)

func decimal(n int) string { return strconv.Itoa(n) }

// stdinOf returns the other end of a command's standard input.
func stdinOf(t *testing.T, cmd *exec.Cmd) io.WriteCloser {
	t.Helper()
	stdin, err := cmd.StdinPipe()
	qt.Assert(t, qt.IsNil(err))
	return stdin
}

func TestCommandIsWatchedFromItsFirstInstruction(t *testing.T) {
	testprog.Parallel(t)
	for _, program := range []string{"target-pie", "target-static", "target-shared"} {
		t.Run(program, func(t *testing.T) {
			path := copyOf(t, program)
			if program == "target-shared" {
				// Its library is found beside it.
				path = copyBeside(t, path, "libtarget.so")
			}
			r := startWith(t, "fire three 3\nquit\n", "gousdt_test:three", "--", path).wait()
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
	testprog.Parallel(t)
	path := copyOf(t, "target-pie")
	r := startWith(t, "fire three 3\nquit\n", "--count", "gousdt_test:three", "--", testprog.Path(t,
		"launcher"), "exec", path).wait()
	qt.Check(t, qt.StringContains(r.stderr, "3 events, 0 lost"))
	// The program executes itself anew: what is attached to it stays.
	var stdin io.WriteCloser
	running := startPrepared(t, func(cmd *exec.Cmd) { stdin = stdinOf(t, cmd) }, "--count",
		"gousdt_test:three", "--", path)
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

// A call does not outlive its program, and is not inside those of the next one.
func TestExecEndsCalls(t *testing.T) {
	testprog.Parallel(t)
	for _, flags := range [][]string{{"--slow", "0"}, {"--latency"}} {
		var stdin io.WriteCloser
		r := startPrepared(t, func(cmd *exec.Cmd) { stdin = stdinOf(t, cmd) },
			append(flags, "gousdt_calls:left", "--json", "--", copyOf(t, "calls"), "exec")...)
		io.WriteString(stdin, "\n")
		r.await(&r.stderr, "ok\n") // the new program reads the rest
		io.WriteString(stdin, "end\ncall\n")
		stdin.Close()
		all := r.wait()
		qt.Check(t, qt.Equals(len(all.objects("span"))+len(all.objects("row")), 1))
		summary := all.objects("summary")[0]
		qt.Check(t, qt.Equals(summary.Events, 1))
		qt.Check(t, qt.Equals(summary.Replaced+summary.Left, 1))
		qt.Check(t, qt.Equals(summary.Unfinished, 0))
		qt.Check(t, qt.Equals(summary.Unmatched, 1))
	}
}

func TestCommandsFilesCanBeNamed(t *testing.T) {
	testprog.Parallel(t)
	path := copyOf(t, "target-pie")
	r := startWith(t, "fire three 3\nquit\n", "--count", path, "gousdt_test:three", "--", path).wait()
	qt.Check(t, qt.StringContains(r.stderr, "3 events, 0 lost; 1 site; "))
}

func TestCommandsEndIsTold(t *testing.T) {
	testprog.Parallel(t)
	path := copyOf(t, "target-pie")
	r := startWith(t, "quit\n", "gousdt_test:three", "--", testprog.Path(t, "launcher"), "run",
		path, "exit", "3").wait()
	qt.Check(t, qt.StringContains(r.stderr, "/launcher ended with exit status 3\n"))
	r = startWith(t, "", "gousdt_test:three", "--", testprog.Path(t, "launcher"), "kill", "9").wait()
	qt.Check(t, qt.StringContains(r.stderr, "/launcher ended by a signal: killed\n"))
	qt.Check(t, qt.Equals(r.status, exitNothing))
}

func TestCommandEndsWithTheTracing(t *testing.T) {
	testprog.Parallel(t)
	path := copyOf(t, "target-pie")
	for name, test := range map[string]struct {
		flags  []string
		end    func(*running)
		status int
		why    string
	}{
		"max-events": {[]string{"--max-events", "2"}, func(*running) {}, exitEnded,
			"after --max-events 2"},
		"duration": {[]string{"--duration", "1"}, func(*running) {}, exitEnded,
			"after --duration 1s"},
		"Ctrl-C": {nil, func(r *running) { r.cmd.Process.Signal(syscall.SIGINT) },
			128 + int(syscall.SIGINT), "after the signal: interrupt"},
	} {
		t.Run(name, func(t *testing.T) {
			var stdin io.WriteCloser
			r := startPrepared(t, func(cmd *exec.Cmd) { stdin = stdinOf(t, cmd) },
				append(test.flags, "gousdt_test:three", "--", path)...)
			io.WriteString(stdin, "fire three 3\n")
			r.await(&r.stderr, "ok three 3\n")
			test.end(r)
			// The command's input stays open: it does not end on its own.
			result := r.wait()
			qt.Check(t, qt.Equals(result.status, test.status))
			qt.Check(t, qt.Matches(result.stderr,
				"(?s).*usdttrace: "+test.why+", the command is ended by SIGTERM\n"))
		})
	}
}

func TestCommandIsFoundAsAShellFindsIt(t *testing.T) {
	testprog.Parallel(t)
	program := testprog.Path(t, "launcher")
	r := startPrepared(t, func(cmd *exec.Cmd) {
		cmd.Env = append(cmd.Env, "PATH="+filepath.Dir(program))
	}, "a:b", "--", "launcher", "say", "two words", "exit", "3").wait()
	qt.Check(t, qt.StringContains(r.stderr, "two words\n"))
	qt.Check(t, qt.StringContains(r.stderr, "usdttrace: launcher ended with exit status 3\n"))
}

func TestCommandWithoutTheProbe(t *testing.T) {
	testprog.Parallel(t)
	r := startWith(t, "quit\n", "gousdt_test:thre", "--", copyOf(t, "target-pie")).wait()
	qt.Check(t, qt.Equals(r.status, exitNothing))
	qt.Check(t, qt.Matches(r.stderr,
		`(?s).*usdttrace: no probe matches gousdt_test:thre in what the command and its descendants have run \(nearest: gousdt_test:three.*\)\n`))
	qt.Check(t, qt.StringContains(r.stderr, "ok quit\n"))
	r = start(t, "a:b", "--", "/nonexistent/program").wait()
	qt.Check(t, qt.Equals(r.status, exitError))
	qt.Check(t, qt.StringContains(r.stderr, "/nonexistent/program"))
}

// The main thread's signals pass through the tracer.
func TestCommandGetsItsSignals(t *testing.T) {
	testprog.Parallel(t)
	signal := decimal(int(syscall.SIGUSR1))
	r := start(t, "a:b", "--", testprog.Path(t, "launcher"), "catch", signal, "kill", signal, "say",
		"end").wait()
	qt.Check(t, qt.StringContains(r.stderr, "caught\nend\n"))
}

func TestCommandBehindDashes(t *testing.T) {
	testprog.Parallel(t)
	program := testprog.Path(t, "launcher")
	target := copyOf(t, "target-pie")
	// The command's flags and blanks are passed on as they are.
	r := startWith(t, "fire three 2\nquit\n", "--json", "gousdt_test:three", "--", program, "say",
		"-p  two", "run", target, "exit", "3").wait()
	qt.Check(t, qt.Equals(r.status, 3))
	qt.Check(t, qt.Equals(strings.Count(r.stdout, `"event"`), 2))
	qt.Check(t, qt.StringContains(r.stderr, "-p  two\n"))
	qt.Check(t, qt.StringContains(r.stderr, "ended with exit status 3\n"))
	r = startWith(t, "fire three 3\n", "--count", "gousdt_test:three", "--", target).wait()
	r.ok()
	qt.Check(t, qt.Matches(r.stdout, "count\nPROBE +COUNT +RATE +%\ngousdt_test:three +3 +.*\n"))
	r = startWith(t, "", "a:b", "--").wait()
	qt.Check(t, qt.StringContains(r.stderr, "no COMMAND after --"))
}

// With all output in files, standard output is left to the command.
func TestCommandHasTheOutputThatIsNotUsed(t *testing.T) {
	testprog.Parallel(t)
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
	testprog.Parallel(t)
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

// startWithPipes starts a command, which ends with the test and its input.
func startWithPipes(t *testing.T, cmd *exec.Cmd) (stdin io.WriteCloser, stdout io.Reader) {
	stdin = stdinOf(t, cmd)
	stdout, err := cmd.StdoutPipe()
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(cmd.Start()))
	t.Cleanup(func() {
		stdin.Close()
		cmd.Wait()
	})
	return stdin, stdout
}

// What is attached once a descendant has mapped it is late, as that of a
// command, and stays attached for the next one that runs it.
func TestProgramsThatDescendantsExecuteAreLate(t *testing.T) {
	testprog.Parallel(t)
	testneeds.Tool(t, "sh", "dash")
	target := copyOf(t, "target-pie")
	const commands = "fire three 5\\nquit\\n"
	cmd := exec.Command("sh", "-c", "while read line; do printf '"+commands+"' | "+target+"; done")
	stdin, out := startWithPipes(t, cmd)
	r := watching(t, "--json", "-f", "-p", decimal(cmd.Process.Pid), "gousdt_test:three")
	answers := bufio.NewScanner(out)
	run := func() {
		io.WriteString(stdin, "\n")
		for answers.Scan() && answers.Text() != "ok quit" {
		}
	}
	// On a busy machine the first ones end before they are attached.
	for !strings.Contains(r.stderr.String(), "also watching 1 site in "+target) {
		run()
	}
	run()
	stdin.Close()
	result := r.wait()
	qt.Check(t, qt.StringContains(result.stderr, "not seen: hits in "+target+" for up to "))
	qt.Check(t, qt.HasLen(result.objects("summary")[0].Late, 1))
	hits, last := make(map[int]int), 0
	for _, e := range result.objects("event") {
		hits[e.PID]++
		last = e.PID
	}
	qt.Check(t, qt.Equals(hits[last], 5), qt.Commentf("it is not late any more"))
}

func TestDescendantsThatAreNotWatchedAreTold(t *testing.T) {
	testprog.Parallel(t)
	program := testprog.Path(t, "launcher")
	target := copyOf(t, "target-pie")
	// The launcher has no probes of its own: name the file of its child.
	cmd := exec.Command(program, "run", target)
	stdin, out := startWithPipes(t, cmd)
	io.WriteString(stdin, "fire three 1\n")
	answer := make([]byte, 64)
	_, err := out.Read(answer) // it runs
	qt.Assert(t, qt.IsNil(err))
	r := watching(t, "-p", decimal(cmd.Process.Pid), target, "gousdt_test:three")
	result := r.interrupt()
	qt.Check(t,
		qt.StringContains(result.stderr,
			"hit nothing; 1 descendant of it maps "+target+
				", which has matching probes: watch them, too, with -f\n"))

	r = watching(t, "-p", decimal(cmd.Process.Pid), "gousdt_test:three")
	result = r.interrupt()
	descendant := "1 descendant of it maps " + target +
		", which has matching probes: watch them, too, with -f\n"
	qt.Check(t, qt.StringContains(result.stderr, "is watched alone: "+descendant))
	qt.Check(t, qt.Matches(result.stderr, fmt.Sprintf(
		"(?s).*usdttrace: no probe matches gousdt_test:three in process %d; %s",
		cmd.Process.Pid, descendant)))
}

// hitsOfScript runs a script under usdttrace, and returns how many hits that
// has counted and what it says.
func hitsOfScript(t *testing.T, script string, args ...string) (count uint64, stderr string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "script")
	testprog.WriteProgram(t, path, []byte(script))
	r := start(t, append(append([]string{"--json", "--count"}, args...), "--", path)...).wait()
	for _, row := range r.objects("row") {
		count += row.Count
	}
	return count, r.stderr
}

// No part of a file that is an operand of the command is executed.
func TestFilesThatACommandIsAboutAreOnlyRead(t *testing.T) {
	testprog.Parallel(t)
	dir, err := os.MkdirTemp("/tmp", "u") // its name is short
	qt.Assert(t, qt.IsNil(err))
	t.Cleanup(func() { os.RemoveAll(dir) })
	linker := filepath.Join(dir, "l")
	testprog.WriteProgram(t, linker, []byte("#!/bin/sh\n: >"+dir+"/ran\n"))
	program := copyOf(t, "target-shared")
	contents, err := os.ReadFile(program)
	qt.Assert(t, qt.IsNil(err))
	at := bytes.Index(contents, []byte("/ld")) // of the path of the linker
	qt.Assert(t, qt.IsTrue(at > 0))
	begin := bytes.LastIndexByte(contents[:at], 0) + 1
	end := at + bytes.IndexByte(contents[at:], 0)
	qt.Assert(t, qt.IsTrue(end-begin > len(linker)))
	clear(contents[begin:end])
	copy(contents[begin:], linker)
	testprog.WriteProgram(t, program, contents)
	start(t, "gousdt_test:three", "--", testprog.Path(t, "launcher"), "say", program).wait()
	_, err = os.Stat(filepath.Join(dir, "ran"))
	qt.Check(t, qt.ErrorIs(err, fs.ErrNotExist))
}

// The program's file is attached before the first of its processes begins.
func TestFamilyOfACommandIsCountedExactly(t *testing.T) {
	testprog.Parallel(t)
	testneeds.BTF(t)
	testneeds.Tool(t, "sh", "dash")
	target := copyOf(t, "target-pie")
	fire := "printf 'fire three 5\\nquit\\n' | " + target + " >&2\n"
	forks := strings.Repeat("fork three 100\\n", 6)
	makefile := filepath.Join(t.TempDir(), "Makefile")
	qt.Assert(t, qt.IsNil(os.WriteFile(makefile, []byte(
		"all: 1 2 3 4 5 6 7 8\n1 2 3 4 5 6 7 8:\n\t@"+fire), 0o644)))
	for name, test := range map[string]struct {
		script string
		want   uint64
	}{
		"a server that forks": {"printf '" + forks + "quit\\n' | " + target + " >&2\n", 600},
		"a pipeline":          {"printf 'fire three 7\\nquit\\n' | " + target + " | cat >&2\n", 7},
		"one after another":   {strings.Repeat(fire, 4), 20},
		"all at a time":       {strings.Repeat(strings.TrimSpace(fire)+" &\n", 4) + "wait\n", 20},
		"make -j":             {"make -s -j4 -f " + makefile + "\n", 40},
	} {
		t.Run(name, func(t *testing.T) {
			count, _ := hitsOfScript(t, "#!/bin/sh\n"+test.script, target, "gousdt_test:three")
			qt.Check(t, qt.Equals(count, test.want))
		})
	}
}

// The programs of a script are known when they are executed. The summary says
// which process was late.
func TestFamilySaysWhoWasLate(t *testing.T) {
	testprog.Parallel(t)
	testneeds.BTF(t)
	testneeds.Tool(t, "sh", "dash")
	for name, script := range map[string]string{
		// It is there for as long as it waits for the pipe.
		"attached":  "{ echo fire three 5; sleep 1; echo fire three 2; echo quit; } | %s >&2\n",
		"too short": "%s </dev/null >&2\n",
	} {
		t.Run(name, func(t *testing.T) {
			target := copyOf(t, "target-pie")
			path := filepath.Join(t.TempDir(), "script")
			qt.Assert(t, qt.IsNil(os.WriteFile(path,
				fmt.Appendf(nil, "#!/bin/sh\n"+script, target), 0o755)))
			r := start(t, "--count", "gousdt_test:three", "--", path).wait()
			qt.Check(t, qt.Matches(r.stderr, `(?s).*not seen: hits in `+target+`.* process \d+.*`))
		})
	}
	// A process may have another root, where this one has another file.
	path := filepath.Join(t.TempDir(), "program")
	testprog.WriteProgram(t, path, nil)
	root := t.TempDir()
	qt.Assert(t, qt.IsNil(os.MkdirAll(root+filepath.Dir(path), 0o755)))
	qt.Assert(t, qt.IsNil(os.Rename(copyOf(t, "target-static"), root+path)))
	stdin, input, err := os.Pipe()
	qt.Assert(t, qt.IsNil(err))
	r := startPrepared(t, func(cmd *exec.Cmd) { cmd.Stdin = stdin }, "--count", "gousdt_test:three",
		"--", "chroot", root, path)
	stdin.Close()
	r.await(&r.stderr, "also watching 1 site in "+path)
	qt.Assert(t, qt.IsNil(input.Close())) // which ends it
	qt.Check(t, qt.StringContains(r.wait().stderr, "\nnot seen: hits in "+path+" for up to"))

	// What cannot be attached is not late.
	refused := startWith(t, "quit\n", "--slow", "0", "gousdt_test:thre", "--",
		copyOf(t, "target-pie")).wait()
	qt.Check(t, qt.StringContains(refused.stderr, "there is no pair of probes gousdt_test:thre"))
	qt.Check(t, qt.Not(qt.StringContains(refused.stderr, "not seen")))

	// From then on nothing is missed.
	target := copyOf(t, "target-pie")
	script := "#!/bin/sh\n{ sleep 1; echo quit; } | " + target + " >&2\n" +
		strings.Repeat("echo fire three 5 | "+target+" >&2\n", 4)
	count, _ := hitsOfScript(t, script, "gousdt_test:three")
	qt.Check(t, qt.Equals(count, 20))
}

// A program that is run again and again is hit from its start by -a too: its
// file stays attached for a second.
func TestNextProcessIsNotLate(t *testing.T) {
	copied := copyOf(t, "target-pie")
	own := filepath.Join(filepath.Dir(copied), "own"+decimal(os.Getpid()))
	qt.Assert(t, qt.IsNil(os.Rename(copied, own)))
	first := startProgram(t, own)
	r := watching(t, "-a", "--count", "--by", "comm", "gousdt_test:three")
	first.Fire("three", 5)
	first.Stop()
	for range 8 {
		second := exec.Command(first.path)
		second.Stdin = strings.NewReader("fire three 5\nquit\n")
		qt.Assert(t, qt.IsNil(second.Run()))
	}
	qt.Check(t, qt.Matches(r.interrupt().stdout, `(?s).*`+filepath.Base(own)+` +45 .*`))
}

// So is one that no process runs for longer than a moment. What its first runs
// did is said to be missed.
func TestProgramThatEndsAtOnceIsFound(t *testing.T) {
	target := copyOf(t, "target-static")
	r := watching(t, "-a", "--count", "gousdt_test:three")
	runs := 0
	run := func() {
		runs++
		short := exec.Command(target)
		short.Stdin = strings.NewReader("fire three 5\n")
		qt.Assert(t, qt.IsNil(short.Run()))
	}
	attached := func() bool {
		return strings.Contains(r.stderr.String(), "also watching 1 site in "+target)
	}
	for r.runs() && runs < 1000 && !attached() {
		run()
	}
	qt.Assert(t, qt.IsTrue(attached()))
	for range 8 {
		run()
	}
	result := r.interrupt()
	count := regexp.MustCompile(`gousdt_test:three +(\d+) `).FindStringSubmatch(result.stdout)
	qt.Assert(t, qt.HasLen(count, 2), qt.Commentf("%s", result.stdout))
	hits, err := strconv.Atoi(count[1])
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.IsTrue(hits >= 40 && hits <= 5*runs), qt.Commentf("%d hits of %d runs", hits, runs))
	qt.Check(t, qt.IsTrue(hits == 5*runs || strings.Contains(result.stderr, " ended before "+target)),
		qt.Commentf("%s", result.stderr))
}

// A file of a process that has ended says itself whether hits in it were
// missed, as long as it is at its path.
func TestFileOfAnEndedProcessIsRead(t *testing.T) {
	testprog.Parallel(t)
	testneeds.Root(t)
	buildID := []byte("\x03\x00\x00\x00GNU\x00")
	for _, keepsID := range []bool{true, false} {
		target := copyOf(t, "target-pie")
		contents, err := os.ReadFile(target)
		qt.Assert(t, qt.IsNil(err))
		if !keepsID {
			contents = bytes.ReplaceAll(contents, buildID, []byte("\x03\x00\x00\x00GNV\x00"))
			testprog.WriteProgram(t, target, contents)
		}
		c, err := hold([]string{target}, os.Stderr)
		qt.Assert(t, qt.IsNil(err))
		records, err := procwatch.OpenRecords(c.tid, true)
		qt.Assert(t, qt.IsNil(err))
		qt.Assert(t, qt.IsNil(c.release()))
		<-c.done
		all := procwatch.Drain(records)
		records.Close()
		i := slices.IndexFunc(all, func(r procwatch.Record) bool { return r.Path == target })
		qt.Assert(t, qt.IsTrue(i >= 0))
		record := &all[i]
		is := func(pattern string) (bool, error) {
			o := &options{scopeFlags: scopeFlags{
				patterns: []elfnote.Pattern{elfnote.MustParsePattern(pattern)}}}
			return (&latecomers{tracer: &tracer{prepared: prepared{options: o}}}).isLate(record)
		}
		late, err := is("gousdt_test:three")
		qt.Check(t, qt.IsTrue(late))
		qt.Check(t, qt.IsNil(err))
		late, err = is("gousdt_test:thre")
		qt.Check(t, qt.IsFalse(late))
		qt.Check(t, qt.IsNil(err))

		// Of another file at its path nothing is known.
		qt.Assert(t, qt.IsNil(os.Rename(target, target+".old")))
		other := bytes.Replace(contents, buildID, append(buildID[:7:7], 1), 1)
		testprog.WriteProgram(t, target, other)
		late, err = is("gousdt_test:thre")
		qt.Check(t, qt.IsTrue(late))
		qt.Check(t, qt.ErrorIs(err, procfs.ErrChanged))
		qt.Assert(t, qt.IsNil(os.Remove(target)))
		qt.Assert(t, qt.IsNil(unix.Mkfifo(target, 0o755)))
		late, err = is("gousdt_test:thre") // which would wait for a writer
		qt.Check(t, qt.IsFalse(late))
		qt.Check(t, qt.IsNil(err))
	}
}
