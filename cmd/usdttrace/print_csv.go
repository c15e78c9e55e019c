// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"context"
	"encoding/csv"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/cut"
	"github.com/gousdt/gousdt/internal/symbolname"
	"github.com/gousdt/gousdt/internal/terminal"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
)

// csvPrinter prints comma-separated values (RFC 4180), with a line of names
// wherever the columns are others than before.
type csvPrinter struct {
	tracer *tracer
	out    *csv.Writer
	header []string
	most   int // arguments that have a column

	escapes bool // what could drive a terminal
}

// record prints a line, after one of names if these are others than before.
func (p *csvPrinter) record(header, fields []string) {
	if !slices.Equal(header, p.header) {
		p.header = header
		p.out.Write(header) // the output keeps the error
	}
	for i := range fields {
		if p.escapes {
			fields[i] = terminal.Clean(fields[i])
		}
		fields[i] = strings.ToValidUTF8(fields[i], "\uFFFD")
	}
	p.out.Write(fields)
	p.out.Flush()
}

func (p *csvPrinter) sites(file string, sel *usdt.Selection) {
	for _, site := range sel.Sites() {
		p.record([]string{"file", "provider", "name", "location", "arguments"},
			[]string{file, cutName(site.Provider), cutName(site.Name), fmt.Sprint(site.Location),
				argumentTypes(site.Args)})
	}
}

func (p *csvPrinter) pairs(file string, pairs []elfnote.Pair) {
	for _, pair := range pairs {
		p.record([]string{"file", "pair", "start", "done"}, []string{
			file, cut.Text(pair.String(), maxText),
			cutName(pair.Start.Provider) + ":" + cutName(pair.Start.Name),
			cutName(pair.Done.Provider) + ":" + cutName(pair.Done.Name),
		})
	}
}

func (p *csvPrinter) event(e *trace.Event) {
	p.most = max(p.most, p.tracer.targets.mostArguments())
	header := []string{"time", "pid", "tid", "command", "cpu"}
	fields := []string{csvTime(e.Time), fmt.Sprint(e.PID), fmt.Sprint(e.TID), e.Command,
		fmt.Sprint(e.CPU)}
	add := func(name, field string) { header, fields = append(header, name), append(fields, field) }
	if p.tracer.options.samples() {
		add("weight", fmt.Sprint(e.Weight))
	}
	arguments := func(e *trace.Event, prefix string) {
		for i := range p.most {
			field := ""
			if i < len(e.Args) {
				field = csvValue(e.Args[i])
			}
			add(prefix+"arg"+strconv.Itoa(i), field)
		}
	}
	if e.Start != nil {
		fields[0] = csvTime(e.Start.Time)
		add("duration_ns", fmt.Sprint(e.Duration.Nanoseconds()))
		add("pair", pairName(e))
		arguments(e.Start, "")
		arguments(e, "done.")
	} else {
		add("probe", probeName(e.Site))
		arguments(e, "")
	}
	if p.tracer.options.stack {
		add("stack", p.stack(e.PID, p.tracer.stackOf(e)))
	}
	if p.tracer.options.starts {
		add("start.stack", p.stack(e.PID, p.tracer.stackOf(e.Start)))
	}
	p.record(header, fields)
}

func (p *csvPrinter) rows(a *aggregation, s *trace.Snapshot) {
	for _, row := range rowsOf(s) {
		header := []string{"aggregation", "start", "time"}
		fields := []string{a.kind, csvTime(s.Start), csvTime(s.Time)}
		add := func(name, field string) {
			header, fields = append(header, name), append(fields, field)
		}
		for i, by := range s.By {
			switch {
			case i >= len(row.Keys):
				add(by, otherRow)
			case by == "stack":
				add(by, p.stack(int(row.Keys[i].Uint()), row.Stack))
			default:
				add(by, csvValue(row.Keys[i]))
			}
		}
		add("count", fmt.Sprint(row.Count))
		if a.Sum {
			add("sum", csvValue(row.Sum))
			add("average", strconv.FormatFloat(row.Average(), 'g', -1, 64))
		}
		if a.Max {
			add("min", csvValue(row.Min))
			add("max", csvValue(row.Max))
		}
		if a.Max && a.rows == nil {
			for _, q := range quantiles {
				add(q.json, strconv.FormatFloat(row.Quantile(q.part), 'g', -1, 64))
			}
		}
		if len(row.Buckets) == 0 {
			p.record(header, fields)
			continue
		}
		for _, b := range row.Buckets {
			p.record(append(slices.Clone(header), "low", "high", "bucket_count"),
				append(slices.Clone(fields), csvValue(b.Low), csvValue(b.High),
					fmt.Sprint(b.Count)))
		}
	}
}

func (p *csvPrinter) summary(*summary) {} // it is on standard error

// stack returns the names of functions, the outermost first, divided by ';'.
func (p *csvPrinter) stack(pid int, addresses []uint64) string {
	var names []string
	for _, f := range slices.Backward(p.tracer.stacks.Frames(context.Background(), pid,
		addresses)) {
		name := fmt.Sprintf("%#x", f.Address)
		if f.Function != "" {
			name = strings.ReplaceAll(symbolname.Readable(f.Function), ";", ":")
		}
		names = append(names, name)
	}
	return strings.Join(names, ";")
}

func csvTime(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// csvValue returns a number, the text or the bytes behind it, or "" if there is
// none. A text is as it is, not escaped; one that was cut ends in "...".
func csvValue(v trace.Value) string {
	if !v.IsPresent() {
		return ""
	}
	text := v.String()
	data, complete := v.Data()
	isText := v.Kind() == trace.Text || data != nil && strings.HasPrefix(text, `"`)
	switch {
	case !isText:
		return text
	case !complete:
		return string(data) + "..."
	}
	return string(data)
}
