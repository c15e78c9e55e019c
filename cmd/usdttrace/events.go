// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/gousdt/gousdt/internal/commandline"
	"github.com/gousdt/gousdt/internal/defs"
	"github.com/gousdt/gousdt/internal/elffile"
	"github.com/gousdt/gousdt/internal/language/symbolname"
	"github.com/gousdt/gousdt/internal/terminal"
	"github.com/gousdt/gousdt/internal/tracing"
	"github.com/gousdt/gousdt/stack"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
)

// style is how parts of the text are coloured: not at all, or by the escape
// sequences that all terminals know.
type style struct {
	header, time, probe, arg, bar, reset string
}

// coloured is the style of a terminal.
var coloured = style{
	header: "\x1b[1m", time: "\x1b[2m", probe: "\x1b[36m", arg: "\x1b[2m", bar: "\x1b[32m",
	reset: "\x1b[0m",
}

type textPrinter struct {
	tracer *tracer
	out    io.Writer
	style  style
	screen *os.File // the terminal, nil for a file or pipe
	width  int      // of the terminal, 0 for as much as is needed
	narrow bool     // there is no room for microseconds, threads and names of processes

	line   []byte
	begun  bool
	headed bool // the header of calls is above
	probe  int  // width of the column
	known  map[*trace.Site]*siteText
	thread threadText
	second int64  // that clock is of
	clock  []byte // HH:MM:SS
}

// siteText is the text that all hits of a site have in common. Looking
// arguments up at each hit took a quarter of the time of printing it.
type siteText struct {
	name      string // of its probe, as it may be printed
	arguments []siteArgument
}

type siteArgument struct {
	begin      string // " NAME=", with colours
	definition trace.Argument
	text       int // the argument whose length this one is, or -1
}

const (
	commandWidth = 15 // what the kernel keeps of a name
	numberWidth  = 7  // of a PID: Linux has up to 4,194,304
	narrowWidth  = 100
	maxRendered  = 1 << 16
)

func (p *textPrinter) event(e *trace.Event) {
	if e.Start != nil {
		p.span(e)
		return
	}
	b := p.line[:0]
	if !p.begun {
		p.begun = true
		p.probe = max(len("PROBE"), p.tracer.targets.probeWidth())
		b = p.header(b, "", "PROBE", p.probe)
	}
	site := p.site(e.Site)
	b = p.hit(b, e, "", site.name)
	if len(e.Args) > 0 {
		b = terminal.AppendBlanks(b, p.probe-terminal.Columns(site.name))
		b = append(b, ' ')
	}
	b = p.arguments(b, e, func(int) bool { return true })
	b = p.framesOf(append(b, '\n'), e)
	p.line = b
	p.out.Write(b) // the output keeps the error
}

// header appends the titles of the columns. For hits, duration is "".
func (p *textPrinter) header(b []byte, duration, what string, width int) []byte {
	p.resize()
	p.narrow = p.width > 0 && p.width < narrowWidth
	p.thread = threadText{}
	b = append(append(b, p.style.header...), "TIME      "...)
	others := ""
	if !p.narrow {
		b, others = append(b, "       "...), "    TID  COMMAND          "
	}
	b = append(append(append(b, duration...), "    PID  "...), others...)
	b = append(terminal.AppendBlanks(append(b, what...), width-len(what)), "  ARGS"...)
	return append(append(b, p.style.reset...), '\n')
}

// hit appends the columns that all lines have, of a call with its duration.
func (p *textPrinter) hit(b []byte, e *trace.Event, duration, name string) []byte {
	b = p.appendTime(append(b, p.style.time...), e.Time)
	b = append(append(b, p.style.reset...), "  "...)
	if duration != "" {
		b = append(append(terminal.AppendBlanks(b, durationWidth-len(duration)), duration...), "  "...)
	}
	b = append(b, p.threadOf(e)...)
	b = append(append(b, p.style.probe...), name...)
	return append(b, p.style.reset...)
}

func (p *textPrinter) site(site *trace.Site) *siteText {
	return remember(&p.known, site, func() *siteText {
		return &siteText{name: terminal.Escape(probeName(site))}
	})
}

// threadText is what is printed of a thread, which often has event after event.
type threadText struct {
	pid, tid int
	command  string
	text     []byte
}

// of returns the text of an event's thread, which build appends if it is
// another one than before. It is valid until the next call.
func (t *threadText) of(e *trace.Event, build func(b []byte) []byte) []byte {
	if len(t.text) == 0 || e.PID != t.pid || e.TID != t.tid || e.Command != t.command {
		t.pid, t.tid, t.command = e.PID, e.TID, e.Command
		t.text = build(t.text[:0])
	}
	return t.text
}

func (p *textPrinter) threadOf(e *trace.Event) []byte {
	return p.thread.of(e, func(b []byte) []byte {
		b = append(appendRight(b, e.PID), "  "...)
		if p.narrow {
			return b
		}
		b = append(appendRight(b, e.TID), "  "...)
		command := terminal.Escape(e.Command)
		b = append(b, command...)
		return append(terminal.AppendBlanks(b, commandWidth-terminal.Columns(command)), "  "...)
	})
}

// of returns what all hits of a site have in common of their arguments. A call
// that was open before may have another number of them.
func (s *siteText) of(e *trace.Event, style *style) []siteArgument {
	if len(s.arguments) >= len(e.Args) {
		return s.arguments
	}
	s.arguments = make([]siteArgument, max(len(e.Args), len(e.Site.Args)))
	for i := range s.arguments {
		s.arguments[i].text = -1
	}
	for i := range s.arguments {
		a := &s.arguments[i]
		a.definition = e.Site.Argument(i)
		a.begin = " " + style.arg + a.definition.Name + "=" + style.reset
		if of := a.definition.Length; of >= 0 && of < len(s.arguments) && s.arguments[of].text < 0 {
			s.arguments[of].text = i
		}
	}
	return s.arguments
}

// remember returns the value kept for a key, or creates and keeps one. At
// maxRendered values it forgets all: most are of attachments that have ended.
func remember[K comparable, V any](kept *map[K]V, key K, create func() V) V {
	value, known := (*kept)[key]
	if !known {
		if *kept == nil || len(*kept) == maxRendered {
			*kept = make(map[K]V)
		}
		value = create()
		(*kept)[key] = value
	}
	return value
}

// appendTime appends the wall clock's time, down to the microsecond if there is
// room.
func (p *textPrinter) appendTime(b []byte, t time.Time) []byte {
	if second := t.Unix(); p.clock == nil || second != p.second {
		p.second = second
		p.resize()
		p.clock = t.AppendFormat(p.clock[:0], "15:04:05")
	}
	if b = append(b, p.clock...); p.narrow {
		return b
	}
	b = append(b, ".000000"...)
	micros := t.Nanosecond() / 1000
	for i := len(b) - 1; micros > 0; i, micros = i-1, micros/10 {
		b[i] += byte(micros % 10)
	}
	return b
}

func (p *textPrinter) resize() {
	if p.screen != nil {
		p.width = terminal.Width(p.screen)
	}
}

func appendRight(b []byte, n int) []byte {
	var digits [20]byte
	text := strconv.AppendInt(digits[:0], int64(n), 10)
	return append(terminal.AppendBlanks(b, numberWidth-len(text)), text...)
}

func appendFrame(b []byte, f stack.Frame) []byte {
	f.Function = terminal.Escape(symbolname.Readable(f.Function))
	f.File, f.Source = terminal.Escape(f.File), terminal.Escape(f.Source)
	return fmt.Appendf(b, "    %s\n", f)
}

// printer prints the output, as text or as JSON. The output keeps the errors of
// writing.
type printer interface {
	sites(file string, sites []usdt.Site)
	pairs(file string, pairs []defs.Pair)
	event(*trace.Event)
	rows(*aggregation, *trace.Snapshot)
	open([]*trace.Event)
	summary(*summary)
}

// A messageWriter prints what is no value to standard error.
type messageWriter struct{ *commandline.Messages }

func (w messageWriter) Write(text []byte) (int, error) {
	w.Print(string(text))
	return len(text), nil
}

func newPrinter(t *tracer) printer {
	if t.options.chromeTrace != "" {
		return &tracePrinter{tracer: t, out: t.out}
	}
	if t.options.json {
		return &jsonPrinter{tracer: t, out: t.out}
	}
	p := &textPrinter{tracer: t, out: t.out}
	if t.options.csv {
		p.out = messageWriter{t.messages}
		return &csvPrinter{textPrinter: p, values: t.out,
			onTerminal: t.file == nil && terminal.IsTerminal(t.stdout)}
	}
	if t.file == nil && terminal.IsTerminal(t.stdout) {
		p.screen = t.stdout
	}
	colour := t.options.color
	if colour == "always" ||
		colour != "never" && p.screen != nil && os.Getenv("NO_COLOR") == "" {
		p.style = coloured
	}
	return p
}

// appendArgument appends a value: a pointer in hexadecimal, one of an
// enumeration as its name with the number.
func appendArgument(b []byte, v *trace.Value, definition *trace.Argument) []byte {
	if v.IsPresent() && v.Kind() != trace.Bytes {
		switch data, complete := v.Data(); {
		case data == nil && !definition.IsText && strings.HasSuffix(definition.Type, "*"):
			return strconv.AppendUint(append(b, "0x"...), v.Uint(), 16)
		case data != nil && definition.Type == tracing.TypeName:
			name := symbolname.ReadableType(string(data), complete)
			if complete || name == symbolname.UnknownType {
				return strconv.AppendQuote(b, name)
			}
		}
		if name := definition.Values[v.Int()]; name != "" {
			b = append(append(b, name...), '(')
			return append(v.AppendTo(b), ')')
		}
	}
	return v.AppendTo(b)
}

// shownName returns PROVIDER:NAME as it is shown.
func shownName(provider, name string) string { return cutName(provider) + ":" + cutName(name) }

func siteName(site *usdt.Site) string { return shownName(site.Provider, site.Name) }

func probeName(site *trace.Site) string { return siteName(&site.Site) }

func cutName(s string) string { return elffile.ShortName(s) }

// formatDuration returns a time in nanoseconds with three digits and the unit
// that suits it: "512ns", "1.02us".
func formatDuration(ns float64) string {
	unit := "ns"
	for _, larger := range []string{"us", "ms", "s"} {
		if math.Abs(ns) < 1000 {
			break
		}
		ns, unit = ns/1000, larger
	}
	return formatNumber(ns, 3) + unit
}

// formatAverage returns a number with four digits, or all digits before the
// point if they are more, "-" for NaN.
func formatAverage(x float64) string { return formatNumber(x, 4) }

// leastRated is the shortest time for which a rate is shown: a command that
// ends after some microseconds has not passed its probes a million times a
// second.
const leastRated = 10 * time.Millisecond

// rate returns how many hits there were in a second, or NaN.
func rate(a *aggregation, s *trace.Snapshot, row *trace.Row) float64 {
	took := s.Time.Sub(s.Start)
	if a.isRest || took < leastRated {
		return math.NaN()
	}
	return float64(row.Count) / took.Seconds()
}

// formatRate returns a rate, or "-" for NaN.
func formatRate(rate float64) string {
	if math.IsNaN(rate) {
		return "-"
	}
	return formatAverage(rate) + "/s"
}

// formatNumber returns a number with this many digits, or all digits before the
// point if they are more.
func formatNumber(x float64, digits int) string {
	switch {
	case math.IsNaN(x):
		return "-"
	case math.Abs(x) >= 1e15: // more digits than it has, or than a column
		return strconv.FormatFloat(x, 'g', digits, 64)
	case x == math.Trunc(x):
		return strconv.FormatFloat(x, 'f', 0, 64)
	}
	before := 1 // digits before the point, once it is rounded
	for limit := 10 - 5*math.Pow10(-digits+1); math.Abs(x) >= limit &&
		before < digits; limit *= 10 {
		before++
	}
	return strconv.FormatFloat(x, 'f', digits-before, 64)
}
