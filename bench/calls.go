// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package main

import (
	"fmt"
	"os/exec"
	"time"

	"github.com/gousdt/gousdt/bench/internal/compare"
	"github.com/gousdt/gousdt/bench/internal/peer"
	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
)

// Who measures calls, each at a twin of its own.
const (
	callsEmpty = iota
	callsOurs
	callsOursWithArgument
	callsByLibbpf
	callsByBpftrace
	callsCount
)

var callNames = [callsCount]string{
	callsEmpty:            "two empty programs",
	callsOurs:             "trace, without arguments of the start",
	callsOursWithArgument: "trace, with an argument of the start",
	callsByLibbpf:         "libbpf's header, a map",
	callsByBpftrace:       "bpftrace, a map",
}

// callRows is what it costs to measure a call that is too fast to be sent.
func callRows() []row {
	const title = "a call of two probes, timed and too fast to be sent"
	floor := &compare.Floor{Name: "two empty programs", Of: []string{callNames[callsEmpty]}}
	return []row{{
		name: "hit/call", title: title, rounds: 40, sample: 8 * time.Millisecond,
		goals: []compare.Goal{
			{Text: title + ", beside libbpf", Of: callNames[callsOursWithArgument],
				Than: callNames[callsByLibbpf], Times: 1, Floor: floor},
			{Text: title + ", beside bpftrace", Of: callNames[callsOursWithArgument],
				Than: callNames[callsByBpftrace], Times: 1, Floor: floor},
		},
		prepare: (*env).calls,
	}}
}

func callProbe(who int) string { return fmt.Sprintf("call_%d", who) }

func (e *env) calls() ([]compare.Contestant, error) {
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
	mode := usdt.ModeSingle
	var missing [callsCount]error
	if missing[callsByLibbpf] = e.callsByLibbpf(path, &mode); missing[callsByLibbpf] != nil {
		mode = usdt.ModeAuto
	}
	missing[callsByBpftrace] = e.callsByBpftrace(path)
	if err := e.callsOfOurs(path, mode); err != nil {
		return nil, err
	}
	var contestants []compare.Contestant
	for who := range callsCount {
		contestants = append(contestants, compare.Contestant{
			Name: callNames[who], Missing: missing[who],
			Measure: func(n int) (float64, error) {
				spent, err := target.Number("run", callProbe(who), n)
				return spent / float64(n), err
			},
		})
	}
	return contestants, nil
}

// callsByLibbpf attaches the programs of peers/hit.bpf.c, and says how libbpf
// attaches.
func (e *env) callsByLibbpf(path string, mode *usdt.Mode) error {
	p, how, err := e.libbpf()
	if err != nil {
		return err
	}
	if how == modeMulti {
		*mode = usdt.ModeMulti
	}
	for _, end := range [][2]string{{"start_call", "__start"}, {"end_call", "__done"}} {
		if _, err := p.Ask("attach", end[0], path, "bench",
			callProbe(callsByLibbpf)+end[1]); err != nil {
			return err
		}
	}
	return nil
}

func (e *env) callsByBpftrace(path string) error {
	name := callProbe(callsByBpftrace)
	script := fmt.Sprintf(`BEGIN { printf("%[1]s\n"); } usdt:%[2]s:bench:%[3]s__start { @begun[tid] = nsecs; } `+
		`usdt:%[2]s:bench:%[3]s__done /@begun[tid]/ { $took = nsecs - @begun[tid]; delete(@begun[tid]); `+
		`if ($took >= 1000000000) { printf("%%d\n", $took); } }`, ready, path, name)
	p, err := peer.StartCommand(exec.Command("bpftrace", "-e", script))
	if err != nil {
		return err
	}
	e.cleanup(func() { p.Interrupt() })
	for {
		line, err := p.Line()
		if err != nil {
			return fmt.Errorf("it cannot attach: %w", err)
		}
		if line == ready {
			return nil
		}
	}
}

// callsOfOurs attaches sessions of package trace, as libbpf attaches.
func (e *env) callsOfOurs(path string, mode usdt.Mode) error {
	tr, err := e.tracer(ownObject, usdt.ManagerOptions{Mode: mode}, 0)
	if err != nil {
		return err
	}
	empty := []elfnote.Pattern{
		elfnote.Exact("bench", callProbe(callsEmpty)+"__start"),
		elfnote.Exact("bench", callProbe(callsEmpty)+"__done"),
	}
	if _, err := tr.Attach(tr.programs["empty"], usdt.Target{Path: path}, nil,
		empty...); err != nil {
		return err
	}
	for _, who := range []int{callsOurs, callsOursWithArgument} {
		opts := &trace.SessionOptions{Mode: mode, Filter: "duration >= 1s"}
		latency := trace.Latency{Pair: elfnote.MustParsePairPattern("bench:" + callProbe(who))}
		if who == callsOurs {
			opts.NoEvents = true
			opts.Aggregators = []*trace.Aggregator{trace.NewAggregator(trace.Aggregation{Latency: &latency})}
		} else {
			opts.Spans = []trace.Latency{latency}
		}
		s, err := trace.Open(usdt.Target{Path: path}, opts)
		if err != nil {
			return err
		}
		e.cleanup(func() { s.Close() })
	}
	return nil
}
