// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"bytes"
	"context"
	"io"
	"math"
	"strconv"
	"time"

	"github.com/gousdt/gousdt/internal/commandline"
	"github.com/gousdt/gousdt/internal/elffile"
	"github.com/gousdt/gousdt/internal/language/symbolname"
	"github.com/gousdt/gousdt/internal/terminal"
	"github.com/gousdt/gousdt/internal/tracing"
	"github.com/gousdt/gousdt/stack"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt/proc"
)

type jsonPrinter struct {
	tracer *tracer
	out    io.Writer
	json   commandline.JSON

	hits       map[*trace.Site]*jsonHit
	thread     threadText        // of the last event
	ofThread   commandline.JSON  // builds that
	containers map[string]string // their IDs by the path of a control group, "" for none
}

// schema is the number of the schema, see docs/json.md.
const schema = 1

func (p *jsonPrinter) begin(kind string) *commandline.JSON {
	j := &p.json
	j.Reset()
	j.Begin('{')
	j.Fields("type", kind)
	return j
}

func (p *jsonPrinter) end() {
	p.json.End('}')
	p.json.EndDocument()
	p.out.Write(p.json.Bytes()) // the output keeps the error
}

// eventBegin is what begin builds for events.
var eventBegin = []byte(`{"type":"event"`)

func (p *jsonPrinter) event(e *trace.Event) {
	if e.Start != nil {
		p.span(e)
		return
	}
	j := &p.json
	j.Reset()
	j.Members(eventBegin)
	// With Fields, an event takes a twentieth longer.
	j.Key("time")
	j.Value(e.Time)
	j.Key("monotonic_ns")
	j.Int(int64(e.Monotonic))
	j.Members(p.threadOf(e))
	j.Key("cpu")
	j.Int(int64(e.CPU))
	if p.tracer.options.samples() {
		j.Fields("weight", e.Weight)
	}
	p.container(e.CgroupID)
	p.hit(e)
	if p.tracer.options.stack {
		p.stack(e.PID, p.tracer.stackOf(e))
	}
	p.end()
}

func (p *jsonPrinter) container(cgroup uint64) {
	if p.tracer.containers == nil {
		return
	}
	path, ok := p.tracer.containers.Path(cgroup)
	if !ok {
		return
	}
	if id := remember(&p.containers, path, func() string {
		c, _ := proc.ContainerOf(path)
		return cutName(c.ID)
	}); id != "" {
		p.json.Fields("container", id)
	}
}

func (p *jsonPrinter) stack(pid int, addresses []uint64) {
	j := &p.json
	frames := p.tracer.stacks.Frames(context.Background(), pid, addresses)
	commandline.JSONObjects(j, "stack", 0, frames, func(f *stack.Frame) {
		j.Fields("address", f.Address)
		if f.Function != "" {
			j.Fields("function", elffile.Shorten(f.Function, symbolname.MaxLength))
			if f.Inlined {
				j.Fields("inlined", true)
			} else {
				j.Fields("offset", f.Offset)
			}
		}
		if f.File != "" {
			j.Fields("file", f.File, "file_offset", f.FileOffset)
		}
		if f.Source != "" {
			j.Fields("source", f.Source)
		}
	})
}

func (p *jsonPrinter) rows(a *aggregation, s *trace.Snapshot) {
	for _, row := range p.tracer.rowsToRead(a, s) {
		j := p.begin("row")
		j.Fields("aggregation", a.kind, "start", s.Start, "time", s.Time)
		if row == &s.Other {
			j.Fields("other", true)
		}
		j.Object("keys", func() {
			for i, key := range row.Keys {
				p.key(s.By[i], key, row)
			}
		})
		j.Fields("count", row.Count)
		if row.Partial && row != &s.Other {
			j.Fields("partial", true)
		}
		if row.Sum.IsPresent() {
			j.Fields("sum", valueOf(row.Sum), "average", orNull(average(row)))
		}
		if row.Min.IsPresent() {
			j.Fields("min", valueOf(row.Min), "max", valueOf(row.Max))
		}
		switch {
		case a.isExponential():
			for _, q := range quantiles {
				j.Fields(q.json, orNull(row.Quantile(q.part)))
			}
			p.exponential(row)
		case a.Histogram != nil && a.rows == nil && row.Count > 0:
			commandline.JSONObjects(j, "buckets", 0, row.Histogram(0), func(b *trace.Bucket) {
				j.Fields("low", valueOf(b.Low), "high", valueOf(b.High), "count", b.Count)
			})
		}
		p.end()
	}
}

// orNull returns a number that was computed, nil for NaN, which says that there
// is none.
func orNull(x float64) any {
	if math.IsNaN(x) {
		return nil
	}
	return x
}

func (p *jsonPrinter) key(by string, key trace.Value, row *trace.Row) {
	j := &p.json
	switch {
	case by == "stack":
		p.stack(int(key.Uint()), row.Stack)
		return
	case key.Kind() == trace.Text:
		data, complete := key.Data()
		text := elffile.Shorten(string(data), maxText)
		j.Fields(by, text)
		if !complete || len(text) < len(data) {
			j.Fields(by+"_truncated", true)
		}
	default:
		j.Fields(by, valueOf(key))
		if by == "site" && row.Site != nil {
			j.Fields("site_file", row.Site.File)
		}
	}
	if name := p.tracer.targets.valueName(by, key); name != "" {
		j.Fields(by+"_name", name)
	}
}

// exponential adds a histogram with the names that OpenTelemetry's protocol has
// for its parts.
func (p *jsonPrinter) exponential(row *trace.Row) {
	var h tracing.Exponential
	for _, b := range row.Histogram(0) {
		h.Add(b.High.Float(), b.Index, b.Count)
	}
	j := &p.json
	j.Object("exponential", func() {
		j.Fields("scale", tracing.Scale(0), "zero_count", h.Zero)
		for i, buckets := range []*tracing.Buckets{&h.Positive, &h.Negative} {
			j.Object([]string{"positive", "negative"}[i], func() {
				j.Fields("offset", buckets.Offset)
				j.Array("bucket_counts", func() {
					for _, count := range buckets.Counts {
						j.Uint(count)
					}
				})
			})
		}
	})
}

func (p *jsonPrinter) summary(s *summary) {
	j := p.begin("summary")
	j.Fields("schema", schema, "events", s.events, "lost", s.losses.Events)
	if len(s.losses.owners) > 0 {
		owners := s.losses.owners[:min(len(s.losses.owners), maxOwnerLosses)]
		commandline.JSONObjects(j, "lost_by", 0, owners, func(loss *ownerLoss) {
			if loss.cgroup != 0 {
				j.Fields("cgroup", loss.cgroup)
			} else {
				j.Fields("user", loss.user)
			}
			j.Fields("events", loss.events)
		})
	}
	j.Fields("not_sampled", s.losses.NotSampled,
		"unrepresented", s.losses.Unrepresented, "other", s.others, "overflow", s.overflow,
		"lost_unreadable", s.losses.Unreadable, "lost_self", s.losses.SelfUnknown,
		"lost_starts", s.losses.Starts,
		"lost_processes", s.losses.Processes,
		"left", s.losses.Left, "overlapped", s.losses.Overlapped, "replaced", s.losses.Replaced,
		"killed", s.losses.Killed, "exited", s.losses.Exited, "unfinished", s.losses.Unfinished,
		"unmatched", s.losses.Unmatched, "unsearched", s.losses.Unsearched,
		"sites", s.sites, "mode", s.mode, "seconds", s.took.Seconds())
	if s.losses.Mismatch != "" {
		j.Fields("mismatch", s.losses.Mismatch, "match", s.losses.Match)
	}
	if s.losses.NoTables != "" {
		j.Fields("no_tables", s.losses.NoTables)
	}
	if len(s.late) > 0 {
		commandline.JSONObjects(j, "late", 0, s.late, func(f **lateFile) {
			j.Fields("file", (*f).path, "pid", (*f).pid, "processes", (*f).processes,
				"late_ns", int64((*f).by), "attached", (*f).attached)
		})
	}
	if s.frames != nil {
		j.Fields("frames", s.frames.Frames,
			"unnamed_frames", s.frames.NoFile+s.frames.NoFunction, "cut_stacks", s.frames.CutStacks)
	}
	if c := s.costs; c != nil {
		commandline.JSONObjects(j, "programs", 0, c.all(), func(program *programStats) {
			j.Fields("name", program.Info.Name, "runs", program.RunCount, "ns_per_run", perRun(program),
				"missed", program.RecursionMisses, "instructions", int64(instructions(program)))
		})
		programs, maps := c.memory()
		j.Fields("program_bytes", programs, "map_bytes", maps)
		if w := c.watch; w != nil {
			j.Fields("limited_sites", w.Sites, "limited_descriptors", w.Descriptors,
				"over_limit", w.OverLimit, "waiting", w.Waiting)
		}
	}
	p.end()
}

// maxText is how many bytes of a text are shown as a key: more than an
// argument's text has, but not all of a long name of a probe.
const maxText = 600

// valueOf returns what JSON has for a value: a number, nil if there is none, or
// a text, which may lose bytes that are not UTF-8.
func valueOf(v trace.Value) any {
	switch {
	case v.Kind() == trace.Text:
		data, _ := v.Data()
		return elffile.Shorten(string(data), maxText)
	case !v.IsPresent() || v.Kind() == trace.Bytes:
		return nil
	case v.Kind() == trace.Float:
		// A float of 32 bits gets as few digits as tell it from others of 32
		// bits.
		f, _ := strconv.ParseFloat(v.String(), 64)
		return f
	case v.Kind() == trace.Signed:
		return v.Int()
	}
	return v.Uint()
}

// jsonHit is the JSON that all hits of a site have in common.
type jsonHit struct {
	begin     []byte // "provider":"...",...,"args":[
	arguments []jsonArgument
}

// jsonArgument is what all hits of a site have in common of an argument.
type jsonArgument struct {
	begin      []byte // {"name":"...","value":
	definition *trace.Argument
	captured   *trace.Capture // its capture, or nil
}

func (p *jsonPrinter) newHit(e *trace.Event) *jsonHit {
	var j commandline.JSON
	j.Fields("provider", cutName(e.Site.Provider), "name", cutName(e.Site.Name),
		"file", e.Site.File, "location", e.Site.Location)
	j.Key("args")
	j.Begin('[')
	hit := &jsonHit{begin: bytes.Clone(j.Bytes())}
	for i := range e.Args {
		definition := e.Site.Argument(i)
		j.Reset()
		j.Begin('{')
		if definition.Name != "arg"+strconv.Itoa(i) { // it has a definition
			j.Fields("name", definition.Name)
		}
		j.Key("value")
		hit.arguments = append(hit.arguments,
			jsonArgument{bytes.Clone(j.Bytes()), &definition, p.tracer.options.capture(e.Site, i)})
	}
	return hit
}

// hit adds which site was hit, and its arguments.
func (p *jsonPrinter) hit(e *trace.Event) {
	hit := remember(&p.hits, e.Site, func() *jsonHit { return p.newHit(e) })
	j := &p.json
	j.Members(hit.begin)
	for i := range e.Args {
		hit.arguments[i].add(j, &e.Args[i])
	}
	j.End(']')
}

// add adds the argument with the value that it has at a hit.
func (a *jsonArgument) add(j *commandline.JSON, v *trace.Value) {
	j.Members(a.begin)
	if a.definition.Type == "" && a.captured == nil {
		// Most arguments are numbers: there is nothing more to say.
		switch v.Kind() {
		case trace.Signed:
			j.Int(v.Int())
			j.End('}')
			return
		case trace.Unsigned:
			j.Uint(v.Uint())
			j.End('}')
			return
		}
	}
	j.Value(valueOf(*v))
	if v.IsPresent() && v.Kind() != trace.Bytes {
		if name := a.definition.Values[v.Int()]; name != "" {
			j.Fields("value_name", name)
		}
	}
	switch v.Kind() {
	case trace.Unavailable:
		j.Fields("unavailable", true)
	case trace.Unreadable:
		j.Fields("unreadable", true)
	}
	data, complete := v.Data()
	switch {
	case a.captured == nil && v.Kind() != trace.Bytes, data == nil && complete:
	case data == nil && v.IsPresent() && v.Int() == 0: // null
	case data == nil:
		j.Fields("data_unreadable", true)
	default:
		if v.Kind() == trace.Bytes || a.captured.Bytes {
			j.Hex("bytes", string(data))
		} else {
			j.Fields("text", string(data))
		}
		j.Fields("truncated", !complete)
	}
	j.End('}')
}

// threadOf returns the members that say which thread an event is of.
func (p *jsonPrinter) threadOf(e *trace.Event) []byte {
	return p.thread.of(e, func(b []byte) []byte {
		p.ofThread.Reset()
		p.ofThread.Fields("pid", e.PID, "tid", e.TID, "command", e.Command)
		return append(b, p.ofThread.Bytes()...)
	})
}

// tracePrinter writes events as Chrome's trace event format has them, for
// Perfetto and other viewers: an array of objects.
type tracePrinter struct {
	printer // nil: --chrome-trace goes with no lists and tables
	tracer  *tracer
	out     io.Writer
	json    commandline.JSON
	begun   bool
	known   map[[2]int]string // the name that a thread of a process has been given
	spans   uint64
}

// maxKnownThreads bounds the threads whose names are remembered. They are
// written again if they are forgotten.
const maxKnownThreads = 1 << 16

func (p *tracePrinter) object(name, phase string, pid, tid int) *commandline.JSON {
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
	name := cutName(e.Pair())
	if e.Start.PID == e.PID && e.Start.TID == e.TID {
		j := p.object(name, "X", e.PID, e.TID)
		j.Fields("ts", microseconds(e.Start.Monotonic), "dur", microseconds(e.Duration))
		p.arguments(e, e.Start, p.tracer.options.stack)
		p.end()
		return
	}
	// Calls across threads may overlap: each is on a track of its own.
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

// arguments adds the arguments of a hit, and those of the start of its call
// unless that is nil, with the stacks that are wanted.
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
	if e.Failed {
		j.Fields("failed", true)
	}
	if e.Ended != "" {
		j.Fields("ended", p.tracer.howEnded(e))
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
		j.Key(prefix + terminal.Escape(e.Site.Argument(i).Name))
		data, complete := v.Data()
		captured := p.tracer.options.capture(e.Site, i)
		switch {
		case data == nil:
			j.Value(valueOf(v))
		case v.Kind() == trace.Bytes || captured == nil || captured.Bytes:
			j.Value(v.String())
		case complete:
			j.Value(string(data))
		default:
			j.Value(string(data) + "...")
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
		j := p.object(cutName(calls[i].Pair()), "B", start.PID, start.TID)
		j.Fields("ts", microseconds(start.Monotonic))
		p.arguments(start, nil, p.tracer.options.starts)
		p.end()
	}
}

func (p *tracePrinter) summary(*summary) {
	text := "\n]\n"
	if !p.begun {
		text = "[]\n"
	}
	io.WriteString(p.out, text)
}
