// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/terminal"
	"github.com/gousdt/gousdt/internal/truncate"
	"github.com/gousdt/gousdt/trace"
)

// pairName returns the name of the pair of probes that an event is the end of.
func pairName(e *trace.Event) string { return cutPair(e.Pair()) }

func cutPair(pair elfnote.Pair) string {
	for _, end := range []*elfnote.Probe{&pair.Start, &pair.Done} {
		end.Provider, end.Name = cutName(end.Provider), cutName(end.Name)
	}
	return pair.String()
}

// durationWidth is that of the longest time, such as 123.4ms.
const durationWidth = 8

// span prints a call that has ended: when it began, how long it took, the
// arguments of its start, and those of its end that are others.
func (p *textPrinter) span(e *trace.Event) {
	name, ok := p.rendered[e.Site]
	if !ok {
		if p.rendered == nil || len(p.rendered) == maxRendered {
			p.rendered = make(map[*trace.Site]string)
		}
		name = terminal.Escape(pairName(e))
		p.rendered[e.Site] = name
	}
	state := ""
	if e.Failed {
		state = "failed"
	}
	b := p.call(e.Start, e.Duration, name, state)
	own := func(i int) bool { return !repeats(e, i) }
	for i := range e.Args {
		if own(i) {
			b = p.arguments(append(b, "  ->"...), e, own)
			break
		}
	}
	b = append(b, '\n')
	switch o := p.tracer.options; {
	case o.stack && o.starts:
		b = p.framesOf(append(b, "  started at\n"...), e.Start)
		b = p.framesOf(append(b, "  ended at\n"...), e)
	case o.starts:
		b = p.framesOf(b, e.Start)
	default:
		b = p.framesOf(b, e)
	}
	p.line = b
	p.out.Write(b) // the output keeps the error
}

// call returns a line about a call, without its end, and before the first one
// the header.
func (p *textPrinter) call(start *trace.Event, d time.Duration, name, state string) []byte {
	b := p.line[:0]
	if !p.headed {
		if p.begun {
			b = append(b, '\n')
		}
		p.begun, p.headed = true, true
		b = append(b, p.style.header...)
		b = append(b, "TIME             DURATION      PID      TID  COMMAND          CALL"...)
		b = append(pad(b, terminal.Columns(name)-len("CALL")), "  ARGS"...)
		b = append(append(b, p.style.reset...), '\n')
	}
	b = append(b, p.style.time...)
	b = p.appendTime(b, start.Time)
	b = append(append(b, p.style.reset...), "  "...)
	duration := formatDuration(float64(d))
	b = append(pad(b, durationWidth-len(duration)), duration...)
	b = appendRight(append(b, "  "...), start.PID)
	b = appendRight(append(b, "  "...), start.TID)
	b = append(b, "  "...)
	begin := len(b)
	b = terminal.AppendEscaped(b, start.Command)
	b = pad(b, commandWidth-terminal.Columns(string(b[begin:])))
	b = append(append(b, "  "...), p.style.probe...)
	b = append(append(b, name...), p.style.reset...)
	if state != "" {
		b = append(append(append(b, "  "...), p.style.header...), state...)
		b = append(b, p.style.reset...)
	}
	return p.arguments(append(b, ' '), start, func(int) bool { return true })
}

// maxOpen is how many calls that go on are listed at a time.
const maxOpen = 20

// open prints calls that go on.
func (p *textPrinter) open(calls []*trace.Event) {
	p.headed = p.headed && !p.tracer.options.aggregates() // after a table there is a new header
	for i := range calls[:min(len(calls), maxOpen)] {
		c := calls[i]
		b := append(p.call(c.Start, c.Duration, terminal.Escape(cutPair(c.Pair())), "open"), '\n')
		if p.tracer.options.starts {
			b = p.framesOf(b, c.Start)
		}
		p.line = b
		p.out.Write(b) // the output keeps the error
	}
	if more := len(calls) - maxOpen; more > 0 {
		fmt.Fprintf(p.out, "and %s that began later\n", plural(more, "open call"))
	}
}

// repeats reports whether an argument of an end is what the start has in the
// same place.
func repeats(e *trace.Event, i int) bool {
	return i < len(e.Start.Args) && e.Site.ArgumentName(i) == e.Start.Site.ArgumentName(i) &&
		e.Args[i].String() == e.Start.Args[i].String()
}

// arguments appends the arguments that are wanted.
func (p *textPrinter) arguments(b []byte, e *trace.Event, wanted func(i int) bool) []byte {
	for i := range e.Args {
		if isShownLength(e, i) || !wanted(i) {
			continue
		}
		b = append(append(b, ' '), p.style.arg...)
		definition := argumentOf(e.Site, i)
		b = appendArgumentName(b, definition, i)
		b = append(append(b, '='), p.style.reset...)
		b = appendArgument(b, &e.Args[i], definition)
	}
	return b
}

// framesOf appends the stack of an event.
func (p *textPrinter) framesOf(b []byte, e *trace.Event) []byte {
	if p.tracer.stacks != nil {
		for _, frame := range p.tracer.stacks.Frames(context.Background(), e.PID,
			p.tracer.stackOf(e)) {
			b = appendFrame(b, &frame)
		}
	}
	return b
}

// pairs prints a line for each pair of a file.
func (p *textPrinter) pairs(file string, pairs []elfnote.Pair) {
	var b strings.Builder
	if p.begun {
		b.WriteByte('\n')
	}
	p.begun = true
	fmt.Fprintf(&b, "%sFile: %s%s\n", p.style.header, terminal.Escape(file), p.style.reset)
	lines := [][]cell{{{"PAIR", false}, {"START", false}, {"DONE", false}}}
	for _, pair := range pairs {
		var line []cell
		start, done := p.tracer.targets.endsOf(&pair)
		for _, text := range []string{pair.String(), start, done} {
			line = append(line, cell{terminal.Escape(truncate.Text(text, maxText)), false})
		}
		lines = append(lines, line)
	}
	writeTable(&b, lines)
	p.out.Write([]byte(b.String())) // the output keeps the error
}

// span prints an object for a call.
func (p *jsonPrinter) span(e *trace.Event) {
	j := p.begin("span")
	j.Time("time", e.Start.Time)
	j.Signed("monotonic_ns", int64(e.Start.Monotonic))
	j.Signed("duration_ns", int64(e.Duration/time.Nanosecond))
	j.Members(p.thread.of(e))
	j.Signed("cpu", int64(e.CPU))
	if p.tracer.options.samples() {
		j.Unsigned("weight", e.Weight)
	}
	p.container(e.CgroupID)
	j.Text("pair", pairName(e))
	if e.Failed {
		j.Boolean("failed", true)
	}
	for _, end := range []struct {
		name  string
		event *trace.Event
	}{{"start", e.Start}, {"done", e}} {
		j.Key(end.name)
		j.Begin('{')
		p.hit(end.event)
		if end.event == e.Start && p.tracer.options.starts {
			p.stack(e.PID, p.tracer.stackOf(e.Start))
		}
		j.End('}')
	}
	if p.tracer.options.stack {
		p.stack(e.PID, p.tracer.stackOf(e))
	}
	p.end()
}

// open prints an object for each call that goes on.
func (p *jsonPrinter) open(calls []*trace.Event) {
	for i := range calls {
		c := calls[i]
		j := p.begin("open_call")
		j.Time("time", c.Start.Time)
		j.Signed("monotonic_ns", int64(c.Start.Monotonic))
		j.Signed("duration_ns", int64(c.Duration/time.Nanosecond))
		j.Members(p.thread.of(c.Start))
		p.container(c.Start.CgroupID)
		j.Text("pair", cutPair(c.Pair()))
		if c.Start.Site != nil {
			j.Key("start")
			j.Begin('{')
			p.hit(c.Start)
			if p.tracer.options.starts {
				p.stack(c.Start.PID, p.tracer.stackOf(c.Start))
			}
			j.End('}')
		}
		p.end()
	}
}

// pairs prints an object for each pair of a file.
func (p *jsonPrinter) pairs(file string, pairs []elfnote.Pair) {
	for _, pair := range pairs {
		j := p.begin("pair")
		j.Text("pair", truncate.Text(pair.String(), maxText))
		j.Text("file", file)
		start, done := p.tracer.targets.endsOf(&pair)
		j.Text("start", start)
		j.Text("done", done)
		p.end()
	}
}
