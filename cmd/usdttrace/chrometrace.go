// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"context"
	"io"
	"time"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/jsontext"
	"github.com/gousdt/gousdt/internal/symbolname"
	"github.com/gousdt/gousdt/internal/terminal"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
)

// tracePrinter writes events as Chrome's trace event format has them, for
// Perfetto and other viewers: an array of objects.
type tracePrinter struct {
	tracer *tracer
	out    io.Writer
	json   jsontext.Builder
	begun  bool
	known  map[[2]int]string // the name that a thread of a process has been given
	spans  uint64
}

// maxKnownThreads bounds the threads whose names are remembered. They are
// written again if they are forgotten.
const maxKnownThreads = 1 << 16

func (p *tracePrinter) object(name, phase string, pid, tid int) *jsontext.Builder {
	j := &p.json
	j.Reset()
	j.Begin('{')
	j.Fields("name", name, "ph", phase, "pid", pid, "tid", tid)
	return j
}

func (p *tracePrinter) end() {
	p.json.End('}')
	separator := ",\n"
	if !p.begun {
		p.begun, separator = true, "[\n"
	}
	io.WriteString(p.out, separator) // the output keeps the error
	p.out.Write(p.json.Bytes())
}

// microseconds are the unit of the format.
func microseconds(t time.Duration) float64 { return float64(t) / float64(time.Microsecond) }

func (p *tracePrinter) event(e *trace.Event) {
	p.nameThread(e)
	if e.Start == nil {
		j := p.object(probeName(e.Site), "i", e.PID, e.TID)
		j.Fields("ts", microseconds(e.Monotonic), "s", "t")
		p.arguments(e, nil, p.tracer.options.stack)
		p.end()
		return
	}
	p.nameThread(e.Start)
	name := probeName(e.Start.Site)
	if e.Start.PID == e.PID && e.Start.TID == e.TID {
		j := p.object(name, "X", e.PID, e.TID)
		j.Fields("ts", microseconds(e.Start.Monotonic), "dur", microseconds(e.Duration))
		p.arguments(e, e.Start, p.tracer.options.stack)
		p.end()
		return
	}
	// What goes on in several threads may overlap: it is on a track of its own.
	p.spans++
	for _, end := range []struct {
		phase string
		*trace.Event
		stack bool
	}{{"b", e.Start, p.tracer.options.starts}, {"e", e, p.tracer.options.stack}} {
		j := p.object(name, end.phase, e.Start.PID, end.TID)
		j.Fields("cat", "usdt", "id", p.spans, "ts", microseconds(end.Monotonic))
		p.arguments(end.Event, nil, end.stack)
		p.end()
	}
}

// arguments adds the arguments of a hit, and its stack if that is wanted, and
// the same of the hit that began what it ends unless that is nil.
func (p *tracePrinter) arguments(e, start *trace.Event, withStack bool) {
	j := &p.json
	j.Key("args")
	j.Begin('{')
	if start != nil {
		p.argumentsOf(start, "")
		p.argumentsOf(e, "end.")
	} else {
		p.argumentsOf(e, "")
	}
	if p.tracer.options.samples() {
		j.Fields("weight", e.Weight)
	}
	if withStack {
		p.stack("stack", e)
	}
	if p.tracer.options.starts && start != nil {
		p.stack("start.stack", start)
	}
	j.End('}')
}

func (p *tracePrinter) stack(name string, e *trace.Event) {
	p.json.Array(name, func() {
		for _, f := range p.tracer.stacks.Frames(context.Background(), e.PID, p.tracer.stackOf(e)) {
			f.Function = symbolname.Readable(f.Function)
			p.json.Value(f.String())
		}
	})
}

func (p *tracePrinter) argumentsOf(e *trace.Event, prefix string) {
	j := &p.json
	for i := range e.Args {
		v := e.Args[i]
		j.Key(prefix + terminal.Escape(e.Site.ArgumentName(i)))
		if data, _ := v.Data(); data != nil && v.Kind() != trace.Text {
			j.Value(v.String())
		} else {
			j.Value(valueOf(v))
		}
	}
}

// nameThread names a process and a thread that are new, or have another name.
func (p *tracePrinter) nameThread(e *trace.Event) {
	key := [2]int{e.PID, e.TID}
	if p.known[key] == e.Command {
		return
	}
	if p.known == nil || len(p.known) == maxKnownThreads {
		p.known = make(map[[2]int]string)
	}
	p.known[key] = e.Command
	kinds := []string{"thread_name"}
	if e.PID == e.TID {
		kinds = append(kinds, "process_name")
	}
	for _, kind := range kinds {
		j := p.object(kind, "M", e.PID, e.TID)
		j.Object("args", func() { j.Fields("name", e.Command) })
		p.end()
	}
}

// open writes calls that go on as slices without an end.
func (p *tracePrinter) open(calls []*trace.Event) {
	for i := range calls {
		start := calls[i].Start
		p.nameThread(start)
		j := p.object(start.Probe, "B", start.PID, start.TID)
		j.Fields("ts", microseconds(start.Monotonic))
		p.arguments(start, nil, p.tracer.options.starts)
		p.end()
	}
}

func (p *tracePrinter) sites(string, *usdt.Selection) {}

func (p *tracePrinter) pairs(string, []elfnote.Pair) {}

func (p *tracePrinter) rows(*aggregation, *trace.Snapshot) {}

func (p *tracePrinter) summary(*summary) {
	text := "\n]\n"
	if !p.begun {
		text = "[]\n"
	}
	io.WriteString(p.out, text)
}
