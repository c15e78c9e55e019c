// SPDX-License-Identifier: BSD-2-Clause

package testprog

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gousdt/gousdt/internal/testneeds"
)

// answerDeadline is how long a program may take to answer one command. It is
// long enough for an emulated machine that passes a probe thousands of times.
const answerDeadline = 60 * time.Second

// Process is a running traced program. Its methods end the test when the
// program does not do what it is asked to, so they belong on the test's own
// goroutine; [Process.Command] may be called from any, one at a time.
type Process struct {
	// PID as this process sees it.
	PID int

	t       testing.TB
	cmd     *exec.Cmd
	stdin   io.WriteCloser
	answers chan string
	errs    *strings.Builder
	stopped bool
}

// Start runs a program of [Path], or any other by its absolute path that speaks
// the protocol of testdata/README.md. The end of the test kills it.
func Start(t testing.TB, name string, args ...string) *Process {
	t.Helper()
	path := name
	if !filepath.IsAbs(name) {
		path = Path(t, name)
	}
	return StartCommand(t, exec.Command(path, args...))
}

// StartCommand is [Start] for a command prepared by the caller: in a namespace,
// as another user, with another environment. It sets the command's standard
// input, output and error. When it returns, the program runs.
func StartCommand(t testing.TB, cmd *exec.Cmd) *Process {
	t.Helper()
	p := &Process{t: t, cmd: cmd, answers: make(chan string), errs: new(strings.Builder)}
	var err error
	if p.stdin, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = p.errs
	if err := cmd.Start(); err != nil {
		t.Fatalf("start the traced program: %v", err)
	}
	p.PID = cmd.Process.Pid
	go p.read(stdout)
	t.Cleanup(p.Kill)
	// Until the program answers it may still be loaded: os/exec returns before
	// its files are mapped. What it answers does not matter.
	_, _ = p.Command("pid")
	return p
}

// read hands out the answers until the program closes its output.
func (p *Process) read(stdout io.Reader) {
	defer close(p.answers)
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		p.answers <- lines.Text()
	}
}

// Command sends one line and returns what the program answers after "ok", or as
// an error what it answers instead.
func (p *Process) Command(line string) (string, error) {
	if _, err := fmt.Fprintln(p.stdin, line); err != nil {
		return "", fmt.Errorf("command %q: %w", line, err)
	}
	answer, err := p.answer()
	if err != nil {
		return "", fmt.Errorf("command %q: %w", line, err)
	}
	answer, ok := strings.CutPrefix(answer, "ok")
	if !ok {
		return "", fmt.Errorf("command %q: the program answers %q", line, answer)
	}
	return strings.TrimSpace(answer), nil
}

func (p *Process) answer() (string, error) {
	deadline := time.NewTimer(testneeds.Patience(answerDeadline))
	defer deadline.Stop()
	select {
	case answer, ok := <-p.answers:
		if !ok {
			return "", p.end()
		}
		return answer, nil
	case <-deadline.C:
		return "", fmt.Errorf("no answer in %v or more: %w", answerDeadline, os.ErrDeadlineExceeded)
	}
}

// end waits for a program that has closed its output and says how it died: a
// signal is what a tracer that damages it causes.
func (p *Process) end() error {
	p.stopped = true
	p.stdin.Close()
	kill := time.AfterFunc(testneeds.Patience(answerDeadline), func() { p.cmd.Process.Kill() })
	defer kill.Stop()
	if err := p.cmd.Wait(); err != nil {
		return fmt.Errorf("the program ended: %w %s", err, p.errs)
	}
	return errors.New("the program ended")
}

// must is [Process.Command] for those who cannot go on without an answer.
func (p *Process) must(format string, args ...any) []string {
	p.t.Helper()
	answer, err := p.Command(fmt.Sprintf(format, args...))
	if err != nil {
		p.t.Fatal(err)
	}
	return strings.Fields(answer)
}

// numbers is must for answers that end in numbers after their first words.
func (p *Process) numbers(words int, format string, args ...any) []int {
	p.t.Helper()
	fields := p.must(format, args...)
	if len(fields) < words {
		p.t.Fatalf("command %q: short answer %q", fmt.Sprintf(format, args...), fields)
	}
	var numbers []int
	for _, field := range fields[words:] {
		n, err := strconv.Atoi(field)
		if err != nil {
			p.t.Fatalf("command %q: answer %q: %v", fmt.Sprintf(format, args...), fields, err)
		}
		numbers = append(numbers, n)
	}
	return numbers
}

// Fire passes every site of a group n times, on the program's main thread. When
// it returns, the probes have been passed.
func (p *Process) Fire(group string, n int) {
	p.t.Helper()
	p.must("fire %s %d", group, n)
}

// Thread passes every site of a group once in each of n new threads, which all
// live at the same time, and returns their thread IDs.
func (p *Process) Thread(group string, n int) []int {
	p.t.Helper()
	return p.numbers(2, "thread %s %d", group, n)
}

// Fork passes every site of a group n times in a child process and returns the
// PID that the child had. The child has ended by then.
func (p *Process) Fork(group string, n int) int {
	p.t.Helper()
	return p.numbers(2, "fork %s %d", group, n)[0]
}

// Semaphores returns what the program finds in the semaphores of a group, in
// the order of its sites; nothing if it has none.
func (p *Process) Semaphores(group string) []int {
	p.t.Helper()
	return p.numbers(1, "sem %s", group)
}

// Semaphore is [Process.Semaphores] for a group that has exactly one.
func (p *Process) Semaphore(group string) int {
	p.t.Helper()
	values := p.Semaphores(group)
	if len(values) != 1 {
		p.t.Fatalf("group %s has %d semaphores, not one", group, len(values))
	}
	return values[0]
}

// Groups returns the names that [Process.Fire] takes.
func (p *Process) Groups() []string {
	p.t.Helper()
	return p.must("list")
}

// Load makes the program map a library; Unload undoes the last one.
func (p *Process) Load(path string) {
	p.t.Helper()
	p.must("load %s", path)
}

// Unload unmaps what [Process.Load] mapped last.
func (p *Process) Unload() {
	p.t.Helper()
	p.must("unload")
}

// Exec makes the process execute its program anew: the PID stays, everything
// that was mapped is mapped again elsewhere. It returns when the new program
// runs.
func (p *Process) Exec() {
	p.t.Helper()
	p.must("exec")
	p.must("pid")
}

// Leave ends the program's main thread. Another one takes the commands from
// then on, and the process looks like a zombie.
func (p *Process) Leave() {
	p.t.Helper()
	p.must("leave")
}

// Stop ends the program by closing its input, and waits for it. It fails the
// test if the program ends with an error: then something has damaged it.
func (p *Process) Stop() {
	p.t.Helper()
	if p.stopped {
		return
	}
	p.stopped = true
	p.stdin.Close()
	kill := time.AfterFunc(testneeds.Patience(answerDeadline), func() { p.cmd.Process.Kill() })
	defer kill.Stop()
	for range p.answers {
	}
	if err := p.cmd.Wait(); err != nil {
		p.t.Errorf("the traced program: %v %s", err, p.errs)
	}
}

// Kill ends the program at once, and waits for it. After [Process.Stop] or
// another Kill it does nothing.
func (p *Process) Kill() {
	if p.stopped {
		return
	}
	p.stopped = true
	p.cmd.Process.Kill()
	p.stdin.Close()
	for range p.answers {
	}
	p.cmd.Wait()
	if p.t.Failed() && p.errs.Len() > 0 {
		p.t.Logf("the traced program wrote: %s", p.errs)
	}
}
