// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/commandline"
	"github.com/gousdt/gousdt/internal/defs"
	"github.com/gousdt/gousdt/internal/elffile"
	"github.com/gousdt/gousdt/internal/terminal"
	"github.com/gousdt/gousdt/trace"
)

// durationWidth is that of the longest time, such as 123.4ms.
const durationWidth = 8

// span prints a call that has ended.
func (p *textPrinter) span(e *trace.Event) {
	state := ""
	switch {
	case e.Ended != "":
		state = p.tracer.howEnded(e)
		if p.tracer.showsVariables(e.Start.Site) {
			state += " (variables as at its start)"
		}
	case e.Failed:
		state = "failed"
	}
	p.call(e, state)
}

// call prints a call: when it began, how long it took, the arguments of its
// start, and those of its end, or of now, that differ. Before the first one it
// prints the header.
func (p *textPrinter) call(e *trace.Event, state string) {
	name := terminal.Escape(cutName(e.Pair()))
	b := p.line[:0]
	if !p.headed {
		if p.begun {
			b = append(b, '\n')
		}
		p.begun, p.headed = true, true
		b = p.header(b, "DURATION  ", "CALL", terminal.Columns(name))
	}
	b = p.hit(b, e.Start, formatDuration(float64(e.Duration)), name)
	if state != "" {
		b = append(append(append(b, "  "...), p.style.header...), state...)
		b = append(b, p.style.reset...)
	}
	isOpen := e.Probe == ""
	if len(e.Start.Args) > 0 {
		b = p.arguments(append(b, ' '), e.Start, func(i int) bool {
			return !isOpen || i >= len(e.Args) || e.Start.Args[i].IsPresent() // else only now is known
		})
	}
	if differs := func(i int) bool { return !repeats(e, i) }; anyArgument(e, differs) {
		b = p.arguments(append(b, "  ->"...), e, differs)
	}
	b = append(b, '\n')
	atStart, atEnd := p.tracer.options.starts, p.tracer.options.stack && !isOpen && e.Ended == ""
	if atStart && atEnd {
		b = append(b, "  started at\n"...)
	}
	if atStart {
		b = p.framesOf(b, e.Start)
	}
	if atStart && atEnd {
		b = append(b, "  ended at\n"...)
	}
	if atEnd {
		b = p.framesOf(b, e)
	}
	p.line = b
	p.out.Write(b) // the output keeps the error
}

// showsVariables reports whether --str shows variables at a site. What they
// were when a process ended is not known.
func (t *tracer) showsVariables(site *trace.Site) bool {
	return slices.ContainsFunc(t.options.captures, func(c trace.Capture) bool {
		if strings.HasPrefix(c.Arg, "global.") {
			return true
		}
		return t.targets.definitions.Key(c.Arg,
			[]elfnote.Pattern{elfnote.Exact(site.Provider, site.Name)}) != ""
	})
}

func anyArgument(e *trace.Event, is func(i int) bool) bool {
	for i := range e.Args {
		if is(i) {
			return true
		}
	}
	return false
}

// maxOpen is how many calls that go on are listed at a time.
const maxOpen = 20

// open lists calls that go on. Nothing but the time is known of those of
// --latency: how many there are, and which is the longest, says as much.
func (p *textPrinter) open(calls []*trace.Event) {
	if p.tracer.options.slow == nil && len(calls) > 0 {
		first, process := calls[0], ""
		if first.Start.PID != 0 {
			process = fmt.Sprintf(" in process %d (%s)", first.Start.PID,
				terminal.Escape(first.Start.Command))
		}
		fmt.Fprintf(p.out, "%s: %s open for more than %v, the longest for %s%s: --slow %[3]v lists them\n",
			terminal.Escape(cutName(first.Pair())), plural(len(calls), "call"), openFor,
			formatDuration(float64(first.Duration)), process)
		return
	}
	p.headed = p.headed && !p.tracer.options.aggregates() // after a table there is a new header
	for _, c := range calls[:min(len(calls), maxOpen)] {
		state := "open"
		if int64(c.Start.Monotonic) < p.tracer.began.monotonic {
			state = "open since before"
		}
		p.call(c, state)
	}
	if more := len(calls) - maxOpen; more > 0 {
		fmt.Fprintf(p.out, "and %s that began later\n", plural(more, "open call"))
	}
}

// repeats reports whether an argument of an end is what the start has in the
// same place.
func repeats(e *trace.Event, i int) bool {
	return i < len(e.Start.Args) && e.Site.Argument(i).Name == e.Start.Site.Argument(i).Name &&
		e.Args[i].String() == e.Start.Args[i].String()
}

// arguments appends the arguments that are wanted. On a terminal that has no
// room for them, texts are cut.
func (p *textPrinter) arguments(b []byte, e *trace.Event, wanted func(i int) bool) []byte {
	var texts [][2]int // where they begin and end
	known := p.site(e.Site).of(e, &p.style)
	for i := range e.Args {
		a := &known[i]
		if a.text >= 0 && a.text < len(e.Args) { // the length of a text that is shown
			if data, _ := e.Args[a.text].Data(); data != nil {
				continue
			}
		}
		if !wanted(i) {
			continue
		}
		b = append(b, a.begin...)
		from := len(b)
		b = appendArgument(b, &e.Args[i], &a.definition)
		if data, _ := e.Args[i].Data(); p.width > 0 && data != nil {
			texts = append(texts, [2]int{from, len(b)})
		}
	}
	if len(texts) == 0 {
		return b
	}
	least := leastText
	if p.narrow {
		least = 14
	}
	line := b[bytes.LastIndexByte(b, '\n')+1:] // the header may be above
	over := terminal.Columns(colouring.ReplaceAllString(string(line), "")) - p.width
	for i := len(texts) - 1; i >= 0 && over > 0; i-- {
		from, to := texts[i][0], texts[i][1]
		text := string(b[from:to])
		columns := terminal.Columns(text)
		if room := max(least, columns-over); room < columns {
			text = strings.TrimSuffix(terminal.Cut(text, room-1), "...")
			if text[0] == '"' {
				text += `"`
			} else { // bytes, not half a one
				text = text[:strings.LastIndexByte(text, ' ')+1]
			}
			b, over = slices.Replace(b, from, to, []byte(text+"...")...), over-columns+room
		}
	}
	return b
}

// colouring matches the sequences that colour a text.
var colouring = regexp.MustCompile("\x1b\\[[0-9]*m")

func (p *textPrinter) framesOf(b []byte, e *trace.Event) []byte {
	if p.tracer.stacks != nil {
		for _, frame := range p.tracer.stacks.Frames(context.Background(), e.PID,
			p.tracer.stackOf(e)) {
			b = appendFrame(b, frame)
		}
	}
	return b
}

func (p *textPrinter) pairs(file string, pairs []defs.Pair) {
	lines := [][]terminal.Cell{{left("PAIR"), left("START"), left("DONE"), left("MATCH"),
		left("TIME WHILE")}}
	for _, pair := range pairs {
		var line []terminal.Cell
		facts := p.tracer.targets.factsOf(&pair)
		if facts.counts == "alone" {
			facts.match += ", alone"
		}
		for _, text := range []string{pair.String(), facts.start, facts.done, facts.match,
			cmp.Or(facts.time, "-")} {
			line = append(line, left(terminal.Escape(elffile.Shorten(text, maxText))))
		}
		lines = append(lines, line)
	}
	p.fileTable(file, lines)
}

func (p *jsonPrinter) span(e *trace.Event) {
	j := p.call("span", e)
	if e.Failed {
		j.Fields("failed", true)
	}
	p.hitOf("start", e.Start, p.tracer.options.starts)
	if e.Ended != "" {
		j.Fields("ended", p.tracer.howEnded(e))
		p.end()
		return
	}
	p.hitOf("done", e, false)
	if p.tracer.options.stack {
		p.stack(e.PID, p.tracer.stackOf(e))
	}
	p.end()
}

func (p *jsonPrinter) open(calls []*trace.Event) {
	for _, c := range calls {
		p.call("open_call", c)
		if c.Start.Site != nil {
			p.hitOf("start", c.Start, p.tracer.options.starts)
		}
		if c.Site != nil {
			p.hitOf("now", c, false)
		}
		p.end()
	}
}

// call begins an object for a call, which has no site if it goes on.
func (p *jsonPrinter) call(kind string, e *trace.Event) *commandline.JSON {
	j := p.begin(kind)
	j.Fields("time", e.Start.Time, "monotonic_ns", int64(e.Start.Monotonic),
		"duration_ns", int64(e.Duration))
	if kind == "span" {
		j.Members(p.threadOf(e))
		j.Fields("cpu", e.CPU)
		if p.tracer.options.samples() {
			j.Fields("weight", e.Weight)
		}
		p.container(e.CgroupID)
	} else {
		j.Members(p.threadOf(e.Start))
		p.container(e.Start.CgroupID)
	}
	j.Fields("pair", cutName(e.Pair()))
	return j
}

func (p *jsonPrinter) hitOf(name string, e *trace.Event, withStack bool) {
	p.json.Object(name, func() {
		p.hit(e)
		if withStack {
			p.stack(e.PID, p.tracer.stackOf(e))
		}
	})
}

func (p *jsonPrinter) pairs(file string, pairs []defs.Pair) {
	for _, pair := range pairs {
		facts := p.tracer.targets.factsOf(&pair)
		j := p.begin("pair")
		j.Fields("pair", elffile.Shorten(pair.String(), maxText), "file", file,
			"start", facts.start, "done", facts.done, "match", facts.match)
		if facts.counts != "" {
			j.Fields("counts", facts.counts)
		}
		if facts.time != "" {
			j.Fields("time", facts.time)
		}
		p.end()
	}
}

// openFor is how long a call has been going on that --latency lists. --slow has
// its own limit.
const openFor = time.Second

// measuresCalls reports whether there are calls that can be open.
func (o *options) measuresCalls() bool { return o.slow != nil || o.latency != nil }

func (t *tracer) askOpen() []*trace.Event {
	if !t.options.measuresCalls() {
		return nil
	}
	longer := openFor
	if t.options.slow != nil {
		longer = 0 // the filter has the limit
	}
	open, err := t.session.OpenCalls(longer)
	if err != nil {
		t.warnFailed(err)
	}
	return open
}

// printOpen prints the calls that go on.
func (t *tracer) printOpen(open []*trace.Event) {
	if t.stacks != nil {
		t.stacks.Remember()
	}
	t.printer.open(open)
}
