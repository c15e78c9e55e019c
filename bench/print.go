// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/gousdt/gousdt/bench/internal/compare"
	"github.com/gousdt/gousdt/bench/internal/peer"
)

const (
	byUsdttrace     = "usdttrace"
	byUsdttraceJSON = "usdttrace --json"
	byBpftracePrint = "bpftrace"
	byBccTrace      = "bcc's trace"

	// printedAtATime are few enough for everybody's buffer.
	printedAtATime = 1000

	printPatience = time.Minute

	// bpftracePrints is what usdttrace prints.
	bpftracePrints = `usdt:PATH:bench:PROBE { printf("%s %d %d %s bench:PROBE ` +
		`arg0=%d arg1=%d arg2=%d\n", strftime("%H:%M:%S.%f", nsecs), pid, tid, comm, arg0, arg1, arg2); }`
)

func printRows() []row {
	return []row{{
		name:   "print/time",
		title:  "one event of three arguments printed by a command, with time, PID and name of the thread, none lost: its processor time",
		rounds: 20,
		goals: []compare.Goal{
			{Of: byUsdttrace, Than: byBpftracePrint, Times: 1},
			{Of: byUsdttrace, Than: byBccTrace, Times: 1},
		},
		prepare: func(e *env) ([]compare.Contestant, error) { return e.printers() },
	}}
}

// printers are commands that print each hit of a site that nobody else is
// attached to.
func (e *env) printers() ([]compare.Contestant, error) {
	if runtime.GOARCH != "amd64" {
		return nil, &unableError{"the sites in peers/target.c are written for x86-64"}
	}
	built, err := peer.Build("target")
	if err != nil {
		return nil, &notHereError{reason: err.Error()}
	}
	path, err := e.copyOf(built)
	if err != nil {
		return nil, err
	}
	target, err := e.untilClosed(peer.StartCommand(exec.Command(path)))
	if err != nil {
		return nil, err
	}
	usdttrace, err := e.goBuild("usdttrace")
	if err != nil {
		return nil, err
	}
	contestant := func(name string, twin int, command string, arguments ...string) compare.Contestant {
		probe := fmt.Sprintf("%s_%d", deliveredKinds[0].probe, twin)
		for i, a := range arguments {
			arguments[i] = strings.NewReplacer("PATH", path, "PROBE", probe).Replace(a)
		}
		c := compare.Contestant{Name: name, Once: true}
		command, err := exec.LookPath(command)
		if err != nil {
			c.Missing = errors.New("not installed")
			return c
		}
		p, err := e.startPrinter(target, probe, exec.Command(command, arguments...))
		if err != nil {
			c.Missing = err
			return c
		}
		rounds := e.pick(10, 4, 1)
		c.Measure = func(int) (float64, error) { return p.measure(rounds) }
		return c
	}
	return []compare.Contestant{
		contestant(byUsdttrace, 0, usdttrace, "PATH", "bench:PROBE"),
		contestant(byUsdttraceJSON, 1, usdttrace, "--json", "PATH", "bench:PROBE"),
		contestant(byBpftracePrint, 2, "bpftrace", "-e", bpftracePrints),
		contestant(byBccTrace, 3, bccTrace(), "-t",
			`u:PATH:PROBE "arg0=%d arg1=%d arg2=%d", arg1, arg2, arg3`),
	}, nil
}

// bccTrace returns the name that the distribution gives to the tool.
func bccTrace() string {
	const own = "/usr/share/bcc/tools/trace"
	if _, err := os.Stat(own); err == nil {
		return own
	}
	return "trace-bpfcc"
}

// printer is a running command, and who passes its probe.
type printer struct {
	command *exec.Cmd
	target  *peer.Process
	probe   string
	lines   chan struct{} // one for each event; closed at its end
}

// startPrinter starts a command and returns when it prints the events of the
// probe.
func (e *env) startPrinter(
	target *peer.Process, probe string, command *exec.Cmd,
) (*printer, error) {
	out, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, err
	}
	p := &printer{command: command, target: target, probe: probe,
		lines: make(chan struct{}, printedAtATime)}
	e.cleanup(func() {
		ended := make(chan struct{})
		go func() {
			for range p.lines {
			}
			close(ended)
		}()
		peer.Interrupt(command.Process, ended)
		command.Wait()
	})
	go p.read(out)

	// None tells all others in the same way when it has attached: so it is
	// asked until it answers.
	for end := time.Now().Add(printPatience); time.Now().Before(end); {
		if _, err := target.Ask("run", probe, 1); err != nil {
			return nil, err
		}
		select {
		case _, running := <-p.lines:
			if !running {
				return nil, &unableError{filepath.Base(command.Path) +
					" has ended instead of attaching"}
			}
			return p, p.settle()
		case <-time.After(100 * time.Millisecond):
		}
	}
	return nil, &unableError{filepath.Base(command.Path) + " prints nothing"}
}

// settle returns when nothing of what was asked before is to come any more.
func (p *printer) settle() error {
	for {
		select {
		case _, running := <-p.lines:
			if !running {
				return errors.New("it has ended")
			}
		case <-time.After(500 * time.Millisecond):
			return nil
		}
	}
}

// read counts the lines about events.
func (p *printer) read(out io.Reader) {
	defer close(p.lines)
	for scanner := bufio.NewScanner(out); scanner.Scan(); {
		if strings.Contains(scanner.Text(), "arg0=") ||
			strings.Contains(scanner.Text(), `"args":`) {
			p.lines <- struct{}{}
		}
	}
}

// measure returns the processor time of one event, over several times
// printedAtATime.
func (p *printer) measure(rounds int) (float64, error) {
	before, err := p.spent()
	if err != nil {
		return 0, err
	}
	for range rounds {
		if _, err := p.target.Ask("run", p.probe, printedAtATime); err != nil {
			return 0, err
		}
		late := time.After(printPatience)
		for i := range printedAtATime {
			select {
			case _, running := <-p.lines:
				if !running {
					return 0, errors.New("it has ended")
				}
			case <-late:
				return 0, fmt.Errorf("%d of %d events were printed", i, printedAtATime)
			}
		}
	}
	after, err := p.spent()
	return (after - before) / float64(rounds*printedAtATime), err
}

// spent returns the nanoseconds that all threads of the command have been
// running.
func (p *printer) spent() (float64, error) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", p.command.Process.Pid))
	if err != nil {
		return 0, err
	}
	var sum float64
	for _, name := range threads {
		text, err := os.ReadFile(name)
		if errors.Is(err, os.ErrNotExist) {
			continue // it has just ended
		}
		if err != nil {
			return 0, err
		}
		running, _, _ := strings.Cut(string(text), " ")
		ns, err := strconv.ParseFloat(running, 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", name, err)
		}
		sum += ns
	}
	return sum, nil
}
