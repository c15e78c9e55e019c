// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"io"
	"math"
	"strconv"
	"time"

	"github.com/gousdt/gousdt/internal/profile"
	"github.com/gousdt/gousdt/trace"
)

// jsonPrinter prints an object a line.
type jsonPrinter struct {
	tracer *tracer
	out    io.Writer
	json   jsonText
}

func (p *jsonPrinter) begin(kind string) *jsonText {
	j := &p.json
	j.b, j.comma = j.b[:0], false
	j.begin('{')
	j.text("type", kind)
	return j
}

func (p *jsonPrinter) end() {
	p.json.end('}')
	p.json.b = append(p.json.b, '\n')
	p.out.Write(p.json.b) // the output keeps the error
}

func (p *jsonPrinter) event(e *trace.Event) {
	j := p.begin("event")
	j.time("time", e.Time)
	j.signed("monotonic_ns", int64(e.Monotonic))
	j.signed("pid", int64(e.PID))
	j.signed("tid", int64(e.TID))
	j.text("command", e.Command)
	j.signed("cpu", int64(e.CPU))
	j.text("provider", e.Probe.Provider)
	j.text("name", e.Probe.Name)
	j.text("file", p.tracer.targets.fileName(e.Site))
	j.unsigned("location", e.Site.Location)
	j.key("args")
	j.begin('[')
	for i := range e.Args {
		p.arg(&e.Args[i], p.tracer.options.isBytes(i))
	}
	j.end(']')
	if p.tracer.options.stack {
		p.stack(e.PID, e.Stack)
	}
	p.end()
}

// arg adds an argument of an event.
func (p *jsonPrinter) arg(v *trace.Value, isBytes bool) {
	j := &p.json
	j.begin('{')
	j.key("value")
	j.value(*v)
	switch v.State() {
	case trace.Unavailable:
		j.boolean("unavailable", true)
	case trace.Unreadable:
		j.boolean("unreadable", true)
	}
	data, state := v.Data()
	switch state {
	case trace.DataUnreadable:
		j.boolean("data_unreadable", true)
	case trace.DataComplete, trace.DataTruncated:
		if isBytes {
			j.hex("bytes", string(data))
		} else {
			j.text("text", string(data))
		}
		j.boolean("truncated", state == trace.DataTruncated)
	}
	j.end('}')
}

func (p *jsonPrinter) stack(pid int, addresses []uint64) {
	j := &p.json
	j.key("stack")
	j.begin('[')
	for _, frame := range p.tracer.stacks.Frames(pid, addresses) {
		p.frame(&frame)
	}
	j.end(']')
}

func (p *jsonPrinter) frame(f *profile.Frame) {
	j := &p.json
	j.begin('{')
	j.unsigned("address", f.Address)
	if f.Function != "" {
		j.text("function", f.Function)
		j.unsigned("offset", f.Offset)
	}
	if f.File != "" {
		j.text("file", f.File)
		j.unsigned("file_offset", f.FileOffset)
	}
	j.end('}')
}

func (p *jsonPrinter) rows(a *aggregation, s *trace.Snapshot) {
	for i := range s.Rows {
		p.row(a, s, &s.Rows[i])
	}
}

func (p *jsonPrinter) row(a *aggregation, s *trace.Snapshot, row *trace.Row) {
	j := p.begin("row")
	j.text("aggregation", a.kind)
	j.time("time", s.Time)
	j.key("keys")
	j.begin('{')
	for i, key := range row.Keys {
		if s.By[i] == "stack" {
			p.stack(int(key.Uint()), row.Stack)
			continue
		}
		j.key(s.By[i])
		j.value(key)
	}
	j.end('}')
	j.unsigned("count", row.Count)
	if row.Sum.State() == trace.Present {
		j.member("sum", row.Sum)
		j.float("average", row.Average())
	}
	if row.Min.State() == trace.Present {
		j.member("min", row.Min)
		j.member("max", row.Max)
	}
	if a.Histogram != nil {
		j.key("buckets")
		j.begin('[')
		for i := range row.Buckets {
			b := &row.Buckets[i]
			j.begin('{')
			j.member("low", b.Low)
			j.member("high", b.High)
			j.unsigned("count", b.Count)
			j.end('}')
		}
		j.end(']')
	}
	p.end()
}

func (p *jsonPrinter) summary(s *summary) {
	j := p.begin("summary")
	j.unsigned("events", s.events)
	j.unsigned("lost", s.losses.Events)
	j.unsigned("lost_keys", s.losses.Keys)
	j.unsigned("lost_unreadable", s.losses.Unreadable)
	j.unsigned("lost_starts", s.losses.Starts)
	j.unsigned("unmatched", s.losses.Unmatched)
	j.signed("sites", int64(s.sites))
	j.text("mode", s.mode)
	j.float("seconds", s.took.Seconds())
	if s.costs != nil {
		p.costs(s.costs)
	}
	p.end()
}

func (p *jsonPrinter) costs(c *costs) {
	j := &p.json
	j.key("programs")
	j.begin('[')
	for _, program := range c.all() {
		j.begin('{')
		j.text("name", program.Name)
		j.unsigned("runs", program.Runs)
		j.float("ns_per_run", perRun(&program))
		j.unsigned("missed", program.Missed)
		j.signed("instructions", int64(program.Instructions))
		j.end('}')
	}
	j.end(']')
	programs, maps := c.memory()
	j.unsigned("program_bytes", programs)
	j.unsigned("map_bytes", maps)
}

func (j *jsonText) time(key string, t time.Time) {
	j.text(key, t.UTC().Format(time.RFC3339Nano))
}

func (j *jsonText) float(key string, x float64) {
	j.key(key)
	j.b = appendJSONFloat(j.b, x, 64)
	j.comma = true
}

func (j *jsonText) member(key string, v trace.Value) {
	j.key(key)
	j.value(v)
}

// value adds a number, or null if there is none, or a text.
func (j *jsonText) value(v trace.Value) {
	j.separate()
	switch {
	case v.State() != trace.Present:
		j.b = append(j.b, "null"...)
	case v.Kind() == trace.Text:
		data, _ := v.Data()
		j.b = appendJSONString(j.b, string(data))
	case v.Kind() == trace.Float:
		j.b = appendJSONFloat(j.b, v.Float(), 8*v.Size())
	case v.Kind() == trace.Signed:
		j.b = strconv.AppendInt(j.b, v.Int(), 10)
	default:
		j.b = strconv.AppendUint(j.b, v.Uint(), 10)
	}
	j.comma = true
}

// appendJSONFloat appends a number as JSON has them, null for those that it lacks.
func appendJSONFloat(b []byte, x float64, bits int) []byte {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return append(b, "null"...)
	}
	if bits != 32 {
		bits = 64
	}
	return strconv.AppendFloat(b, x, 'g', -1, bits)
}
