// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package main

import (
	"fmt"
	"slices"

	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
)

// shape is where the arguments of a probe of peers/target.c are.
type shape struct {
	name, title string
	count       int
	// The goals for BPF_USDT of bpf/usdt.bpf.h in relation to libbpf, and for a
	// generated program in relation to an empty one, 0 for none.
	header, generated float64
}

var shapes = []shape{
	{name: "registers3", title: "one hit, 3 registers", count: 3, header: 0.87},
	{name: "registers12", title: "one hit, 12 registers", count: 12,
		header: 0.63, generated: 1.04},
	{name: "stack3", title: "one hit, 3 on the stack", count: 3},
	{name: "stack12", title: "one hit, 12 on the stack", count: 12,
		header: 0.80, generated: 1.25},
}

// asFast is the ratio that a hit may have to a peer's that does the same loads:
// where in its tree the kernel finds the breakpoint matters more.
const asFast = 1.03

func hitRows() []row {
	var all []row
	for _, s := range shapes {
		var goals []goal
		for _, g := range []goal{
			{Of: headerAdds, Than: libbpfAdds, Times: s.header},
			{Of: generatedByLink, Than: emptyByLink, Times: s.generated},
			{Of: generatedByEvent, Than: bccAdds, Times: asFast},
			{Of: generatedByLink, Than: bpftraceAdds, Times: asFast},
			{Of: generatedSends, Than: libbpfSends, Times: 1},
		} {
			if g.Times > 0 {
				goals = append(goals, g)
			}
		}
		all = append(all, row{
			name: "hit/" + s.name, title: s.title, rounds: 40, times: hitsAtATime,
			goals:   goals,
			prepare: func(e *env) ([]contestant, error) { return e.hits(s) },
		})
	}
	return all
}

// hitsAtATime take some 8 ms. The events of all fit a ring buffer.
const hitsAtATime = 15_000

// hits returns the tracers, each at its own site.
func (e *env) hits(s shape) ([]contestant, error) {
	t, err := e.tracers()
	if err != nil {
		return nil, err
	}
	var contestants []contestant
	for id, a := range t.all {
		run := ask(t.target, "run", s.probe(id))
		c := contestant{Name: a.name, Missing: a.missing, Measure: func(n int) (float64, error) {
			spent, err := run(n)
			if err == nil && a.drain != nil {
				err = a.drain(n)
			}
			return spent, err
		}}
		contestants = append(contestants, c)
	}
	return contestants, nil
}

// probe returns the name of the twin that a tracer is attached to. It is
// another one in each shape: the kernel finds some breakpoints a few
// nanoseconds faster than others.
func (s shape) probe(id int) string {
	return fmt.Sprintf("%s_%d", s.name, (id+slices.Index(shapes, s))%twins)
}

// twins is how many sites peers/target.c has of each shape.
const twins = 18

// The contestants that measure calls, each at a twin of its own.
const (
	callsByOurs     = "trace, with an argument of the start"
	callsByLibbpf   = "libbpf's header, a map"
	callsByBpftrace = "bpftrace, a map"
	callsByFrames   = "trace, calls known by their frames"
)

// callRows has the cost of measuring a call that is too fast to be sent.
func callRows() []row {
	return []row{{
		name: "hit/call", title: "a call of two probes, timed and too fast to be sent",
		rounds: 40, times: hitsAtATime,
		goals: []goal{
			{Of: callsByOurs, Than: callsByLibbpf, Times: 1},
			{Of: callsByOurs, Than: callsByBpftrace, Times: 1},
			{Of: callsByFrames, Than: callsByOurs, Times: 1.01},
		},
		prepare: (*env).calls,
	}}
}

func (e *env) calls() ([]contestant, error) {
	path, target, err := e.startTarget()
	if err != nil {
		return nil, err
	}
	var contestants []contestant
	add := func(name string, attach func(call string) error) {
		call := fmt.Sprintf("call_%d", len(contestants))
		contestants = append(contestants,
			contestant{Name: name, Missing: attach(call), Measure: ask(target, "run", call)})
	}
	libbpf, libbpfErr := e.libbpf()
	var failed error // of ours
	ours := func(call string) error {
		var s *trace.Session
		if s, failed = trace.Open(usdt.Target{Path: path}, &trace.SessionOptions{
			Filter: "duration >= 1s",
			Events: &trace.EventOptions{
				Spans: []trace.Latency{{Pair: "bench:" + call}}},
		}); failed == nil {
			e.cleanup(func() { s.Close() })
		}
		return failed
	}
	add(callsByOurs, ours)
	add(callsByLibbpf, func(call string) error {
		if libbpfErr != nil {
			return libbpfErr
		}
		_, err := libbpf.Ask("attach", "start_call", path, "bench", call+"__start")
		if err == nil {
			_, err = libbpf.Ask("attach", "end_call", path, "bench", call+"__done")
		}
		return err
	})
	add(callsByBpftrace, func(call string) error {
		return e.startBpftrace(fmt.Sprintf(`BEGIN { printf("%[1]s\n"); } `+
			`usdt:%[2]s:bench:%[3]s__start { @begun[tid] = nsecs; } `+
			`usdt:%[2]s:bench:%[3]s__done /@begun[tid]/ { $took = nsecs - @begun[tid]; `+
			`delete(@begun[tid]); if ($took >= 1000000000) { printf("%%d\n", $took); } }`,
			ready, path, call))
	})
	if failed == nil {
		add(callsByFrames, ours)
	}
	return contestants, failed
}

// fireRows has the cost of a probe in a Go program that nobody traces, the
// fastest of many short rounds without that of the loop. The goals stand for
// 0.5 ns and 2.5 ns where a call of C takes 30 ns.
func fireRows() []row {
	const cgo = "cgo, an empty function"
	return []row{{
		name: "hit/untraced", title: "a probe in a Go program, untraced", rounds: 10, times: 10_000,
		goals: []goal{
			{Of: "go tool sdt, asked first", Than: cgo, Times: 0.5 / 30},
			{Of: "go tool sdt, bare", Than: cgo, Times: 2.5 / 30},
		},
		prepare: func(e *env) (contestants []contestant, err error) {
			p, err := e.start("fire")
			if err != nil {
				return nil, &unableError{err.Error()}
			}
			for _, way := range [][2]string{
				{"go tool sdt, asked first", "guarded"}, {"go tool sdt, bare", "bare"}, {cgo, "cgo"},
				{"cgo, sys/sdt.h", "sdt.h"},
			} {
				contestants = append(contestants, contestant{Name: way[0],
					Measure: func(n int) (float64, error) { return p.Number(way[1], n) }})
			}
			return append(contestants, missing("libstapsdt", errNoLibstapsdt)), nil
		},
	}}
}

// errNoLibstapsdt: it calls C to fire, as the others, and libffi there.
var errNoLibstapsdt = &unableError{"Debian does not have it; it takes a call of C at least"}
