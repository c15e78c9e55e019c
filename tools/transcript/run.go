// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/gousdt/gousdt/tools/docs"
)

const (
	// maxLines is how many lines of output are shown.
	maxLines = 14
	// maxWidth is how much of a line is shown.
	maxWidth = 132
	// exactly after the name of a workload lets every line be compared.
	exactly = "exactly"
	// askStatus after a command shows its exit status, which may then be any.
	askStatus = "echo $?"
	// maxTries is how often a command is run at most.
	maxTries = 5
	// timeout bounds a command. Those of transcripts end by themselves.
	timeout = 2 * time.Minute
)

// runner runs the transcripts of a lane, each while its workload runs.
type runner struct {
	tools      string // where the commands are
	dir        string // where commands run, and may write
	repository string // $REPOSITORY in commands

	workload string            // that runs
	end      func()            // ends it
	env      []string          // what it gave to commands
	missing  map[string]string // why workloads cannot run

	differ int // commands that print something else
	err    error
}

// transcript runs the commands of one transcript, and replaces its output. It
// returns the differences from the old output.
func (r *runner) transcript(block *docs.Block) (problems []string, err error) {
	workload, how, _ := strings.Cut(block.Mark["workload"], " ")
	if err := r.start(workload); err != nil || r.missing[workload] != "" {
		return nil, err
	}
	var b strings.Builder
	all, status := commands(block.Text), 0
	for i, c := range all {
		var out string
		if c.line == askStatus {
			out = fmt.Sprintln(status)
		} else {
			mayFail := i+1 < len(all) && all[i+1].line == askStatus
			out, status, err = r.again(c, how, mayFail, workload != "none")
		}
		if err != nil {
			return []string{fmt.Sprintf("%s\n\tfails: %v\n%s", c.line, err, out)}, nil
		}
		shown := cut(out, maxLines)
		for _, line := range c.unknown(shown, how) {
			problems = append(problems, fmt.Sprintf("%s\n\tprints      %s\n\twhich is not there",
				c.line, line))
		}
		for _, want := range c.missing(out, how) {
			first, _, _ := strings.Cut(shown, "\n")
			problems = append(problems, fmt.Sprintf("%s\n\tprints      %s\n\tand not     %s",
				c.line, first, want))
		}
		fmt.Fprintf(&b, "$ %s\n%s", c.line, shown)
	}
	block.Text = b.String()
	return problems, nil
}

// again runs a command, and repeats it if it does not print what the transcript
// has. What happens in some seconds of a workload is chance.
func (r *runner) again(
	c command, how string, mayFail, byChance bool,
) (out string, status int, err error) {
	for try := 1; ; try++ {
		out, err = r.command(c.line)
		var exit *exec.ExitError
		if errors.As(err, &exit) && mayFail {
			status, err = exit.ExitCode(), nil
		}
		if !byChance || try == maxTries || err == nil && len(c.missing(out, how)) == 0 {
			return out, status, err
		}
		fmt.Fprintf(os.Stderr, "transcript: once more: %s\n%s", c.line, cut(out, maxLines))
	}
}

// command is a command of a transcript, and what it prints there.
type command struct{ line, output string }

// compared returns the lines of the output that have to be there again.
func (c command) compared(how string) (lines []string) {
	headers := 0
	for line := range strings.Lines(c.output) {
		line = strings.TrimSuffix(line, "\n")
		if header.MatchString(line) {
			headers++
		} else if how != exactly && len(lines) > 0 {
			continue
		}
		lines = append(lines, line)
	}
	// A command that is traced may print before, or be ended before it prints.
	runsCommand := strings.Contains(c.line, " -c ") || strings.Contains(c.line, " -- ")
	if headers > 0 && runsCommand && !header.MatchString(lines[0]) {
		lines = lines[1:]
	}
	return lines
}

// missing returns the lines that have to be in what the command prints, and are
// not.
func (c command) missing(out, how string) []string {
	// All of it: a busy machine may print more lines in between.
	text := cut(out, math.MaxInt)
	return slices.DeleteFunc(c.compared(how), func(line string) bool { return hasLine(text, line) })
}

// unknown returns the lines that a list of a file's probes has, and that are
// not there. Other commands print more on a busy machine.
func (c command) unknown(shown, how string) (lines []string) {
	if how != exactly || !strings.HasPrefix(c.line, "usdtlist ") {
		return nil
	}
	for line := range strings.Lines(shown) {
		if line = strings.TrimSuffix(line, "\n"); !hasLine(c.output, line) {
			lines = append(lines, line)
		}
	}
	return lines
}

func commands(text string) []command {
	var all []command
	continued := false
	for line := range strings.Lines(text) {
		switch rest, ok := strings.CutPrefix(line, "$ "); {
		case ok:
			all = append(all, command{line: strings.TrimSuffix(rest, "\n")})
		case continued:
			all[len(all)-1].line += "\n" + strings.TrimSuffix(line, "\n")
		case len(all) > 0:
			all[len(all)-1].output += line
		}
		continued = strings.HasSuffix(line, "\\\n") && len(all) > 0 && all[len(all)-1].output == ""
	}
	return all
}

func (r *runner) command(line string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", strings.ReplaceAll(line, "sudo ", ""))
	cmd.Dir = r.dir
	cmd.Env = append(append(os.Environ(), "PATH="+r.tools+":"+os.Getenv("PATH"),
		"REPOSITORY="+r.repository), r.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// start starts a workload, unless it runs already.
func (r *runner) start(name string) error {
	if name == r.workload {
		return nil
	}
	r.stop()
	r.workload, r.env = name, nil
	if name == "none" || r.missing[name] != "" {
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, filepath.Join(workloads, name))
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 30 * time.Second
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		cancel()
		return fmt.Errorf("workload %s: %w", name, err)
	}
	r.end = func() {
		cancel()
		_ = cmd.Wait() // it was ended
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
	for in := bufio.NewScanner(stdout); in.Scan(); {
		switch line := in.Text(); {
		case line == "ready":
			go io.Copy(io.Discard, stdout)
			return nil
		case strings.HasPrefix(line, "missing"):
			r.missing[name] = line
			return nil
		case strings.Contains(line, "="):
			r.env = append(r.env, line)
		}
	}
	return fmt.Errorf("workload %s: it ended before it was ready", name)
}

// stop ends the workload that runs.
func (r *runner) stop() {
	if r.end != nil {
		r.end()
	}
	r.end, r.workload = nil, ""
}

// hasLine reports whether one of the lines of a text is like this one, or
// begins like it where it was cut.
func hasLine(text, want string) bool {
	want, isCut := strings.CutSuffix(want, "...")
	want = shape(want)
	for line := range strings.Lines(text) {
		line = shape(strings.TrimSuffix(line, "\n"))
		if line == want || isCut && strings.HasPrefix(line, want) {
			return true
		}
	}
	return false
}

// header matches a line that names the columns of a table.
var header = regexp.MustCompile(`^ *[A-Z][A-Z0-9_%(), ]*$`)

// ofTheMachine matches a line about processes that have nothing to do with the
// workload.
var ofTheMachine = regexp.MustCompile(`: left out: (process|[0-9]+ process)`)

// cut shortens output to maxLines.
func cut(out string, maxLines int) string {
	if out == "" {
		return ""
	}
	var b strings.Builder
	lines := strings.SplitAfter(strings.TrimRight(out, "\n")+"\n", "\n")
	lines = slices.DeleteFunc(lines[:len(lines)-1], ofTheMachine.MatchString)
	for i, line := range lines {
		if i >= maxLines-2 && len(lines) > maxLines && i < len(lines)-1 {
			if i == maxLines-2 {
				b.WriteString("...\n")
			}
			continue
		}
		text := strings.TrimRight(line, " \n")
		if runes := []rune(text); len(runes) > maxWidth {
			text = string(runes[:maxWidth]) + "..."
		}
		b.WriteString(text + "\n")
	}
	return b.String()
}

var changing = regexp.MustCompile(`0x[0-9a-f]+|[0-9]+([.:][0-9]+)*(ns|µs|us|ms|s)?|#+| +`)

// shape returns what stays the same of a line in all runs.
func shape(line string) string {
	return changing.ReplaceAllStringFunc(line, func(s string) string {
		switch s[0] {
		case ' ':
			return " "
		case '#':
			return "#"
		}
		return "0"
	})
}
