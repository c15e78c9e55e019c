// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"io"
	"strconv"
	"time"

	"github.com/gousdt/gousdt/internal/symbolname"
	"github.com/gousdt/gousdt/internal/terminal"
	"github.com/gousdt/gousdt/stack"
	"github.com/gousdt/gousdt/trace"
)

// style is how parts of the text are coloured: not at all, or by the escape
// sequences that all terminals know.
type style struct {
	header, time, probe, arg, bar, reset string
}

func newStyle(colours bool) style {
	if !colours {
		return style{}
	}
	return style{
		header: "\x1b[1m", time: "\x1b[2m", probe: "\x1b[36m", arg: "\x1b[2m", bar: "\x1b[32m",
		reset: "\x1b[0m",
	}
}

// textPrinter prints human-readable text.
type textPrinter struct {
	tracer *tracer
	out    io.Writer
	style  style

	line     []byte
	begun    bool
	probe    int // width of the column
	rendered map[*trace.Site]string
	second   int64  // for which clock was rendered
	clock    []byte // HH:MM:SS
}

const (
	commandWidth = 15 // what the kernel keeps of a name
	numberWidth  = 7  // of a PID: Linux has up to 4,194,304
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
		b = p.header(b)
	}
	b = append(b, p.style.time...)
	b = p.appendTime(b, e.Time)
	b = append(b, p.style.reset...)
	b = append(b, "  "...)
	b = appendRight(b, e.PID)
	b = append(b, "  "...)
	b = appendRight(b, e.TID)
	b = append(b, "  "...)
	start := len(b)
	b = terminal.AppendEscaped(b, e.Command)
	b = pad(b, commandWidth-terminal.Columns(string(b[start:])))
	b = append(b, "  "...)
	b = append(b, p.style.probe...)
	name := p.probeName(e.Site)
	b = append(b, name...)
	b = append(b, p.style.reset...)
	if len(e.Args) > 0 {
		b = pad(b, p.probe-terminal.Columns(name))
		b = append(b, ' ')
	}
	b = p.arguments(b, e, func(int) bool { return true })
	b = p.framesOf(append(b, '\n'), e)
	p.line = b
	p.out.Write(b) // the output keeps the error
}

func (p *textPrinter) header(b []byte) []byte {
	p.rendered = make(map[*trace.Site]string)
	p.probe = max(len("PROBE"), p.tracer.targets.probeWidth())
	b = append(b, p.style.header...)
	b = append(b, "TIME             "...)
	b = append(b, "    PID      TID  COMMAND          "...)
	b = append(b, "PROBE"...)
	b = pad(b, p.probe-len("PROBE"))
	b = append(b, "  ARGS"...)
	b = append(b, p.style.reset...)
	return append(b, '\n')
}

// probeName returns the name as it may be printed.
func (p *textPrinter) probeName(site *trace.Site) string {
	if name, ok := p.rendered[site]; ok {
		return name
	}
	if len(p.rendered) == maxRendered {
		clear(p.rendered) // of attachments that are no more
	}
	name := terminal.Escape(probeName(site))
	p.rendered[site] = name
	return name
}

// appendTime appends the wall clock's time, down to the microsecond.
func (p *textPrinter) appendTime(b []byte, t time.Time) []byte {
	if second := t.Unix(); p.clock == nil || second != p.second {
		p.second = second
		p.clock = t.AppendFormat(p.clock[:0], "15:04:05")
	}
	b = append(append(b, p.clock...), '.')
	micros := t.Nanosecond() / 1000
	for unit := 100_000; unit > 0; unit /= 10 {
		b = append(b, byte('0'+micros/unit%10))
	}
	return b
}

// appendRight appends a number, flush right.
func appendRight(b []byte, n int) []byte {
	var digits [20]byte
	text := strconv.AppendInt(digits[:0], int64(n), 10)
	return append(pad(b, numberWidth-len(text)), text...)
}

// pad appends blanks.
func pad(b []byte, n int) []byte {
	for ; n > 0; n-- {
		b = append(b, ' ')
	}
	return b
}

// appendFrame appends a line for a function on a stack.
func appendFrame(b []byte, f *stack.Frame) []byte {
	b = append(b, "    "...)
	switch {
	case f.Function != "":
		b = terminal.AppendEscaped(b, symbolname.Readable(f.Function))
		b = append(b, "+0x"...)
		b = strconv.AppendUint(b, f.Offset, 16)
	default:
		b = append(b, "0x"...)
		b = strconv.AppendUint(b, f.Address, 16)
	}
	if f.File != "" {
		b = append(b, " ("...)
		b = terminal.AppendEscaped(b, f.File)
		if f.Function == "" {
			b = append(b, "+0x"...)
			b = strconv.AppendUint(b, f.FileOffset, 16)
		}
		b = append(b, ')')
	}
	return append(b, '\n')
}
