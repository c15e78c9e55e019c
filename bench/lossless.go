// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gousdt/gousdt/bench/internal/compare"
	"github.com/gousdt/gousdt/bench/internal/peer"
	"github.com/gousdt/gousdt/trace"
)

// A trial is how long events are sent at a rate. triedRates are the rates that
// are tried after the highest: each halves what is not known, from
// lowestPart of it on.
const (
	trial      = 200 * time.Millisecond
	triedRates = 5
	lowestPart = 1.0 / 64
)

// losslessKind is what a session sends by default, and what the commands print.
var losslessKind = deliveredKinds[3]

func losslessRows() []row {
	var rows []row
	processors := []int{1}
	if runtime.NumCPU() > 2 {
		processors = append(processors, 2)
	}
	if runtime.NumCPU() > 1 {
		processors = append(processors, runtime.NumCPU())
	}
	for _, n := range processors {
		from := "one processor"
		switch {
		case n == runtime.NumCPU():
			from = fmt.Sprintf("all processors (%d)", n)
		case n > 1:
			from = fmt.Sprintf("%d processors", n)
		}
		rows = append(rows, row{
			name: fmt.Sprintf("deliver/lossless%d", n),
			title: "time between two events that come from " + from + " as fast as none is lost: " +
				losslessKind.title,
			rounds: 2,
			goals: []compare.Goal{
				{Of: byTrace, Than: byLibbpfDecoded, Times: 1.5},
				{Of: byTrace, Than: byBpftracePrint, Times: 1},
				{Of: byUsdttrace, Than: byBpftracePrint, Times: 1},
			},
			prepare: func(e *env) ([]compare.Contestant, error) { return e.losslessReaders(n) },
		})
	}
	return rows
}

// A paced target passes a probe at a rate, 0 for as often as it can, on some of
// the processors.
type paced struct {
	target     *peer.Process
	processors int
}

// pass returns how often the probe was passed, and how often in a second.
func (p *paced) pass(probe string, rate float64) (passed int, per float64, err error) {
	answer, err := p.target.Ask("pace", probe, p.processors, int(rate/float64(p.processors)),
		trial.Milliseconds())
	if err != nil || len(answer) != 2 {
		return 0, 0, errors.Join(err, fmt.Errorf("an answer of %q", answer))
	}
	if passed, err = strconv.Atoi(answer[0]); err != nil {
		return 0, 0, err
	}
	spent, err := strconv.ParseFloat(answer[1], 64)
	return passed, float64(passed) / spent * 1e9, err
}

// fastest returns the nanoseconds between two events at the highest rate at
// which try receives as many as were passed.
func fastest(
	try func(rate float64) (passed, received int, per float64, err error),
) (float64, error) {
	passed, received, highest, err := try(0)
	if err != nil || passed == received {
		return 1e9 / highest, err
	}
	best, low, high := 0.0, lowestPart, 1.0
	for range triedRates {
		part := math.Sqrt(low * high)
		passed, received, per, err := try(part * highest)
		if err != nil {
			return 0, err
		}
		if passed == received {
			best, low = max(best, per), part
		} else {
			high = part
		}
	}
	if best == 0 {
		return 0, fmt.Errorf("events are lost at %.0f a second, too", lowestPart*highest)
	}
	return 1e9 / best, nil
}

func (e *env) losslessReaders(processors int) ([]compare.Contestant, error) {
	path, target, err := e.startTarget()
	if err != nil {
		return nil, err
	}
	pacer := &paced{target: target, processors: processors}
	var all []compare.Contestant
	var ring *delivery
	for twin, name := range []string{byTrace, byKeeper} {
		v, err := e.deliver(losslessKind, path, target, twin,
			trace.SessionOptions{ReuseEvents: name == byTrace})
		if err != nil {
			return nil, err
		}
		if name == byTrace {
			ring = v
		}
		all = append(all, compare.Contestant{Name: name, Once: true, Measure: func(int) (float64, error) {
			return fastest(func(rate float64) (int, int, float64, error) {
				return v.keepUp(pacer, rate)
			})
		}})
	}
	all = append(all, e.losslessLibbpf(pacer, ring))
	usdttrace, err := e.goBuild("usdttrace")
	if err != nil {
		return nil, err
	}
	return append(all,
		e.losslessPrinter(byUsdttrace, pacer, path, 2, usdttrace, "PATH", "bench:PROBE"),
		e.losslessPrinter(byBpftracePrint, pacer, path, 3, "bpftrace", "-e", bpftracePrints),
	), nil
}

// keepUp reads events while they are sent.
func (v *delivery) keepUp(
	pacer *paced, rate float64,
) (passed, received int, per float64, err error) {
	before, err := v.session.Losses()
	if err != nil {
		return 0, 0, 0, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	type outcome struct {
		came int
		err  error
	}
	read := make(chan outcome, 1)
	go func() {
		_, came, err := v.take(ctx, math.MaxInt)
		read <- outcome{came, err}
	}()
	passed, per, err = pacer.pass(v.probe, rate)
	cancel()
	o := <-read
	if err = errors.Join(err, o.err); err != nil {
		return 0, 0, 0, err
	}
	after, err := v.session.Losses()
	if err != nil {
		return 0, 0, 0, err
	}
	// What is still in the ring buffer was not lost.
	if left := passed - int(after.Events-before.Events) - o.came; left > 0 {
		ctx, cancel := context.WithTimeout(context.Background(), restPatience)
		defer cancel()
		_, came, err := v.take(ctx, left)
		if err != nil {
			return 0, 0, 0, err
		}
		o.came += came
	}
	return passed, o.came, per, nil
}

// restPatience is how long the rest may take to come.
const restPatience = 2 * time.Second

// losslessLibbpf is libbpf reading the ring buffer of a session.
func (e *env) losslessLibbpf(pacer *paced, ring *delivery) compare.Contestant {
	libbpf, err := e.start("libbpf")
	if err != nil {
		return missing(byLibbpfDecoded, err)
	}
	if _, err := libbpf.Ask("ring", ring.ring); err != nil {
		return missing(byLibbpfDecoded, err)
	}
	poll := func(milliseconds int) (int, error) {
		came, _, _, err := readByLibbpf(libbpf,
			append([]any{"poll", milliseconds}, losslessKind.decode()...)...)
		return came, err
	}
	try := func(rate float64) (passed, received int, per float64, err error) {
		var stop atomic.Bool
		read := make(chan error, 1)
		go func() {
			for {
				last := stop.Load()
				came, err := poll(20)
				received += came
				if err != nil || last {
					read <- err
					return
				}
			}
		}()
		passed, per, err = pacer.pass(ring.probe, rate)
		stop.Store(true)
		err = errors.Join(err, <-read)
		return passed, received, per, err
	}
	return compare.Contestant{Name: byLibbpfDecoded, Once: true,
		Measure: func(int) (float64, error) { return fastest(try) }}
}

// losslessPrinter is a command that prints each event.
func (e *env) losslessPrinter(
	name string, pacer *paced, path string, twin int, command string, arguments ...string,
) compare.Contestant {
	probe := fmt.Sprintf("%s_%d", losslessKind.probe, twin)
	for i, a := range arguments {
		arguments[i] = strings.NewReplacer("PATH", path, "PROBE", probe).Replace(a)
	}
	found, err := exec.LookPath(command)
	if err != nil {
		return missing(name, errors.New("not installed"))
	}
	lines, err := e.startLines(pacer.target, probe, exec.Command(found, arguments...))
	if err != nil {
		return missing(name, err)
	}
	try := func(rate float64) (passed, received int, per float64, err error) {
		before := lines.count.Load()
		passed, per, err = pacer.pass(probe, rate)
		if err != nil {
			return 0, 0, 0, err
		}
		return passed, lines.settle(before, passed), per, nil
	}
	return compare.Contestant{Name: name, Once: true,
		Measure: func(int) (float64, error) { return fastest(try) }}
}

// lineCounter counts the lines about events that a command prints.
type lineCounter struct{ count atomic.Int64 }

// Write counts what each of those lines has once.
func (l *lineCounter) Write(text []byte) (int, error) {
	l.count.Add(int64(bytes.Count(text, []byte("\n"))))
	return len(text), nil
}

// settle waits until so many lines came, or none any more, and returns how many
// did. A command that says how many were lost prints lines more, and then fewer
// than were passed are of events.
func (l *lineCounter) settle(before int64, passed int) int {
	last := l.count.Load()
	for quiet := time.Now(); time.Since(quiet) < 300*time.Millisecond; time.Sleep(5 * time.Millisecond) {
		now := l.count.Load()
		if now-before == int64(passed) {
			return passed
		}
		if now != last {
			last, quiet = now, time.Now()
		}
	}
	return int(last - before)
}

// startLines starts a command and returns when it prints the events of a probe.
func (e *env) startLines(
	target *peer.Process, probe string, command *exec.Cmd,
) (*lineCounter, error) {
	out, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, err
	}
	lines := &lineCounter{}
	ended := make(chan struct{})
	go func() {
		io.Copy(lines, out)
		close(ended)
	}()
	e.cleanup(func() {
		peer.Interrupt(command.Process, ended)
		command.Wait()
	})
	// Its heading is a line, too: so it is asked until it answers each time.
	for end := time.Now().Add(printPatience); time.Now().Before(end); {
		before := lines.count.Load()
		if _, err := target.Ask("run", probe, 10); err != nil {
			return nil, err
		}
		if lines.settle(before, 10) == 10 {
			return lines, nil
		}
	}
	return nil, &unableError{"it prints nothing"}
}
