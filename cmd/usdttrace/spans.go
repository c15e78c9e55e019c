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
func pairName(e *trace.Event) string {
	pair := e.Pair()
	for _, end := range []*elfnote.Probe{&pair.Start, &pair.Done} {
		end.Provider, end.Name = cutName(end.Provider), cutName(end.Name)
	}
	return pair.String()
}

// durationWidth is that of the longest time, such as 123.4ms.
const durationWidth = 8

// span prints a call: when it began, how long it took, the arguments of its
// start, and those of its end that are others.
func (p *textPrinter) span(e *trace.Event) {
	b := p.line[:0]
	if !p.begun {
		p.begun = true
		p.rendered = make(map[*trace.Site]string)
		b = append(b, p.style.header...)
		b = append(b, "TIME             DURATION      PID      TID  COMMAND          CALL"...)
		b = append(pad(b, terminal.Columns(terminal.Escape(pairName(e)))-len("CALL")), "  ARGS"...)
		b = append(append(b, p.style.reset...), '\n')
	}
	b = append(b, p.style.time...)
	b = p.appendTime(b, e.Start.Time)
	b = append(append(b, p.style.reset...), "  "...)
	duration := formatDuration(float64(e.Duration))
	b = append(pad(b, durationWidth-len(duration)), duration...)
	b = appendRight(append(b, "  "...), e.PID)
	b = appendRight(append(b, "  "...), e.TID)
	b = append(b, "  "...)
	begin := len(b)
	b = terminal.AppendEscaped(b, e.Command)
	b = pad(b, commandWidth-terminal.Columns(string(b[begin:])))
	b = append(append(b, "  "...), p.style.probe...)
	name, ok := p.rendered[e.Site]
	if !ok {
		if len(p.rendered) == maxRendered {
			clear(p.rendered)
		}
		name = terminal.Escape(pairName(e))
		p.rendered[e.Site] = name
	}
	b = append(append(b, name...), p.style.reset...)
	if e.Failed {
		b = append(append(append(b, "  "...), p.style.header...), "failed"...)
		b = append(b, p.style.reset...)
	}
	b = p.arguments(append(b, ' '), e.Start, func(int) bool { return true })
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
		for _, text := range []string{pair.String(), pair.Start.Provider + ":" + pair.Start.Name,
			pair.Done.Provider + ":" + pair.Done.Name} {
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

// pairs prints an object for each pair of a file.
func (p *jsonPrinter) pairs(file string, pairs []elfnote.Pair) {
	for _, pair := range pairs {
		j := p.begin("pair")
		j.Text("pair", truncate.Text(pair.String(), maxText))
		j.Text("file", file)
		j.Text("start", cutName(pair.Start.Provider)+":"+cutName(pair.Start.Name))
		j.Text("done", cutName(pair.Done.Provider)+":"+cutName(pair.Done.Name))
		p.end()
	}
}
