// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
)

// shape is where the arguments of a probe of peers/target.c are.
type shape struct {
	name  string
	count int
	// The goals for BPF_USDT of bpf/usdt.bpf.h in relation to libbpf, and for a
	// generated program in relation to an empty one; 0 for none.
	header, generated float64
	specialised       float64 // for a program made for its site, likewise
	// smoke: it is one of the few in a smoke run. It takes a second to detach
	// all tracers of one.
	smoke bool
}

var shapes = []shape{
	{name: "registers1", count: 1},
	{name: "registers3", count: 3, header: 0.87, smoke: true},
	{name: "registers6", count: 6, header: 0.74},
	{name: "registers12", count: 12, header: 0.63, generated: 1.04, specialised: 1.05, smoke: true},
	{name: "stack1", count: 1},
	{name: "stack3", count: 3},
	{name: "stack6", count: 6},
	{name: "stack12", count: 12, header: 0.80, generated: 1.25, specialised: 1.15, smoke: true},
	{name: "constants12", count: 12, smoke: true},
}

func (s shape) title() string {
	where := strings.TrimRight(s.name, "0123456789")
	switch {
	case where == "stack":
		where = "on the stack"
	case s.count == 1:
		where = strings.TrimSuffix(where, "s")
	}
	return fmt.Sprintf("one hit, %d %s", s.count, where)
}

// maxSent is what a generated program may take longer if it sends its
// arguments.
const maxSent = 30 * time.Nanosecond

var (
	// emptyProgram is what a hit costs whatever is done with it, attached in
	// one way or the other.
	emptyProgram = &floor{Name: "empty program",
		Of: []string{emptyByEvent.String(), emptyByLink.String()}}

	// generatedProgram reads all arguments at once, and does nothing else. To
	// read user memory once takes more than a tenth of a hit.
	generatedProgram = &floor{Name: "generated", Of: []string{generatedByLink.String()}}

	// emptyEvent is what it costs to send anything.
	emptyEvent = &floor{
		Name: "empty event, to empty program",
		Of:   []string{emptySends.String()},
		Than: emptyByEvent.String(),
	}
)

func hitRows() []row {
	var all []row
	for _, s := range shapes {
		var goals []goal
		if s.header > 0 {
			goals = append(goals, goal{
				Text:  s.title() + ", through bpf/usdt.bpf.h",
				Of:    headerAdds.String(),
				Than:  libbpfAdds.String(),
				Times: s.header,
				Floor: emptyProgram,
			})
		}
		if s.specialised > 0 {
			for _, id := range []tracerID{specialisedHeader, specialisedOnes, specialisedLibbpf} {
				goals = append(goals, goal{
					Text:  s.title() + ", " + id.String(),
					Of:    id.String(),
					Than:  emptyByLink.String(),
					Times: s.specialised,
					Floor: generatedProgram,
				})
			}
		}
		text := s.title() + ", by a program that package trace generates"
		if s.generated > 0 {
			goals = append(goals, goal{Text: text, Of: generatedByLink.String(),
				Than: emptyByLink.String(), Times: s.generated})
		}
		for _, other := range []tracerID{bccAdds, bpftraceAdds} {
			if unable(other, s) == nil && unable(generatedByEvent, s) == nil {
				goals = append(goals, goal{Text: text, Of: generatedByEvent.String(),
					Than: other.String(), Times: 1, Floor: emptyProgram})
			}
		}
		text += ", sent through the ring buffer"
		if unable(generatedByEvent, s) == nil {
			goals = append(goals, goal{
				Text:  text,
				Of:    generatedSends.String(),
				Than:  generatedByEvent.String(),
				More:  float64(maxSent),
				Floor: emptyEvent,
			})
		}
		goals = append(goals, goal{Text: text, Of: generatedSends.String(),
			Than: libbpfSends.String(), Times: 1})
		all = append(all, row{
			name:   "hit/" + s.name,
			title:  s.title(),
			rounds: 40,
			sample: 8 * time.Millisecond,
			goals:  goals,
			prepare: func(e *env) ([]contestant, error) {
				return e.hits(s)
			},
		})
	}
	return all
}

// maxHits bounds the hits in a round: the events of all have to fit a ring
// buffer.
const maxHits = 60_000

// hits returns the tracers, each at its own site.
func (e *env) hits(s shape) ([]contestant, error) {
	if e.scale == smoke && !s.smoke {
		return nil, &unableError{"not in a smoke run"}
	}
	t, err := e.shared.tracers()
	if err != nil {
		return nil, err
	}
	var contestants []contestant
	for id := range tracerCount {
		c := contestant{Name: id.String(), Missing: t.missing[id]}
		if err := unable(id, s); err != nil && c.Missing == nil {
			c.Missing = err
		}
		probe := s.probe(id)
		c.Measure = func(n int) (float64, error) {
			n = min(n, maxHits)
			spent, err := t.target.Number("run", probe, n)
			if err != nil {
				return 0, err
			}
			if drain := t.drain[id]; drain != nil {
				err = drain(n)
			}
			return spent / float64(n), err
		}
		contestants = append(contestants, c)
	}
	// The one that the others are seen against comes first.
	first := contestants[headerAdds]
	return slices.Insert(slices.Delete(contestants, int(headerAdds), int(headerAdds)+1), 0, first), nil
}

// probe returns the name of the twin that a tracer is attached to. It is
// another one in each shape: the kernel finds some breakpoints a few
// nanoseconds faster than others.
func (s shape) probe(id tracerID) string {
	twin := (int(id) + slices.Index(shapes, s)) % int(tracerCount)
	return fmt.Sprintf("%s_%d", s.name, twin)
}

// unable says why a tracer cannot do what is to be done.
func unable(id tracerID, s shape) error {
	switch {
	case (id == generatedByLink || id == generatedByEvent) && s.name == "constants12":
		return &unableError{"a condition on constants is decided when it is attached"}
	case id == bpftraceAdds && s.count > bpftraceArguments:
		return &unableError{fmt.Sprintf("it reads %d arguments at most", bpftraceArguments)}
	default:
		return nil
	}
}

// Who measures calls, each at a twin of its own.
const (
	callsEmpty = iota
	callsOurs
	callsByLibbpf
	callsByBpftrace
	callsCount
)

var callNames = [callsCount]string{
	callsEmpty:      "two empty programs",
	callsOurs:       "trace, with an argument of the start",
	callsByLibbpf:   "libbpf's header, a map",
	callsByBpftrace: "bpftrace, a map",
}

// callRows is what it costs to measure a call that is too fast to be sent.
func callRows() []row {
	const title = "a call of two probes, timed and too fast to be sent"
	least := &floor{Name: "two empty programs", Of: []string{callNames[callsEmpty]}}
	return []row{{
		name: "hit/call", title: title, rounds: 40, sample: 8 * time.Millisecond,
		goals: []goal{
			{Text: title + ", beside libbpf", Of: callNames[callsOurs],
				Than: callNames[callsByLibbpf], Times: 1, Floor: least},
			{Text: title + ", beside bpftrace", Of: callNames[callsOurs],
				Than: callNames[callsByBpftrace], Times: 1, Floor: least},
		},
		prepare: (*env).calls,
	}}
}

func callProbe(who int) string { return fmt.Sprintf("call_%d", who) }

func (e *env) calls() ([]contestant, error) {
	path, target, err := e.startTarget()
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
	var contestants []contestant
	for who := range callsCount {
		contestants = append(contestants, contestant{
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
	return e.startBpftrace(script)
}

// callsOfOurs attaches a session of package trace, as libbpf attaches.
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
	s, err := trace.Open(usdt.Target{Path: path}, &trace.SessionOptions{
		Mode: mode, Filter: "duration >= 1s",
		Spans: []trace.Latency{{Pair: elfnote.MustParsePairPattern("bench:" + callProbe(callsOurs))}},
	})
	if err != nil {
		return err
	}
	e.cleanup(func() { s.Close() })
	return nil
}
