// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"
)

const (
	byUsdttrace     = "usdttrace"
	byBpftracePrint = "bpftrace"
	byBccTrace      = "bcc's trace"

	// printedAtATime is the number of events in a burst, few enough for every
	// command's buffer.
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
		goals: []goal{
			{Of: byUsdttrace, Than: byBpftracePrint, Times: 1},
			{Of: byUsdttrace, Than: byBccTrace, Times: 1},
		},
		prepare: func(e *env) ([]contestant, error) { return e.printers() },
	}}
}

// printers are commands that print each hit of a site that nobody else is
// attached to.
func (e *env) printers() ([]contestant, error) {
	path, target, err := e.startTarget()
	if err != nil {
		return nil, err
	}
	usdttrace, err := e.goBuild("usdttrace")
	if err != nil {
		return nil, err
	}
	rounds := e.pick(10, 4, 1)
	by := func(name string, twin int, command string, arguments ...string) contestant {
		p, err := e.startPrinter(target, path, deliveredKinds[0].probe, twin, command, arguments...)
		if err != nil {
			return missing(name, err)
		}
		return once(name, func() (float64, error) { return p.measure(rounds) })
	}
	return []contestant{
		by(byUsdttrace, 0, usdttrace, "PATH", "bench:PROBE"),
		by(byBpftracePrint, 1, "bpftrace", "-e", bpftracePrints),
		by(byBccTrace, 2, installed("/usr/share/bcc/tools/trace", "trace-bpfcc"), "-t",
			`u:PATH:PROBE "arg0=%d arg1=%d arg2=%d", arg1, arg2, arg3`),
	}, nil
}

// printer is a running command, which prints a line for each event.
type printer struct {
	command *exec.Cmd
	target  *peer // that passes its probe
	probe   string
	count   atomic.Int64 // lines
}

// startPrinter starts a command and returns when it prints the events of a
// twin of a probe. Its arguments may contain PATH and PROBE.
func (e *env) startPrinter(
	target *peer, path, probe string, twin int, command string, arguments ...string,
) (*printer, error) {
	found, err := exec.LookPath(command)
	if err != nil {
		return nil, errors.New("not installed")
	}
	p := &printer{target: target, probe: fmt.Sprintf("%s_%d", probe, twin)}
	for i, a := range arguments {
		arguments[i] = strings.NewReplacer("PATH", path, "PROBE", p.probe).Replace(a)
	}
	p.command = exec.Command(found, arguments...)
	out, err := p.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.command.Start(); err != nil {
		return nil, err
	}
	ended := make(chan struct{})
	go func() {
		io.Copy(p, out)
		close(ended)
	}()
	e.cleanup(func() {
		interrupt(p.command.Process, ended)
		p.command.Wait()
	})
	// Commands do not tell in one way when they have attached, and a heading is
	// a line, too: so the probe is passed until each hit is printed.
	for end := time.Now().Add(printPatience); time.Now().Before(end); {
		select {
		case <-ended:
			return nil, &unableError{filepath.Base(found) + " has ended instead of attaching"}
		default:
		}
		before := p.count.Load()
		if _, err := target.Ask("run", p.probe, 10); err != nil {
			return nil, err
		}
		if p.settle(before, 10) == 10 {
			return p, nil
		}
	}
	return nil, &unableError{filepath.Base(found) + " prints nothing"}
}

// Write counts lines.
func (p *printer) Write(text []byte) (int, error) {
	p.count.Add(int64(bytes.Count(text, []byte("\n"))))
	return len(text), nil
}

// settle waits until that many lines came, or none any more, and returns how
// many did. A command may also print lines about lost events, and then fewer
// than were passed are of events.
func (p *printer) settle(before int64, passed int) int {
	last := p.count.Load()
	for quiet := time.Now(); time.Since(quiet) < 300*time.Millisecond; time.Sleep(5 * time.Millisecond) {
		now := p.count.Load()
		if now-before == int64(passed) {
			return passed
		}
		if now != last {
			last, quiet = now, time.Now()
		}
	}
	return int(last - before)
}

// measure returns the processor time of one event, over several times
// printedAtATime.
func (p *printer) measure(rounds int) (float64, error) {
	before, err := p.spent()
	if err != nil {
		return 0, err
	}
	for range rounds {
		printed := p.count.Load()
		if _, err := p.target.Ask("run", p.probe, printedAtATime); err != nil {
			return 0, err
		}
		if came := p.settle(printed, printedAtATime); came != printedAtATime {
			return 0, fmt.Errorf("%d of %d events were printed", came, printedAtATime)
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
		var running float64
		if err == nil {
			_, err = fmt.Sscan(string(text), &running)
		}
		if err != nil {
			return 0, err
		}
		sum += running
	}
	return sum, nil
}
