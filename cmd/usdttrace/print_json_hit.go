// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"bytes"

	"github.com/gousdt/gousdt/internal/jsontext"
	"github.com/gousdt/gousdt/providers"
	"github.com/gousdt/gousdt/trace"
)

// jsonHit is the JSON that all hits of a site have in common.
type jsonHit struct {
	begin     []byte // "provider":"...",...,"args":[
	arguments []jsonArgument
}

// jsonArgument is what all hits of a site have in common of an argument.
type jsonArgument struct {
	begin      []byte              // {"name":"...","value":
	definition *providers.Argument // nil if there is none
	behind     *capture            // what was to be brought from behind it, or nil
}

func (p *jsonPrinter) newHit(e *trace.Event) *jsonHit {
	var j jsontext.Builder
	j.Text("provider", cutName(e.Site.Provider))
	j.Text("name", cutName(e.Site.Name))
	j.Text("file", e.Site.File)
	j.Unsigned("location", e.Site.Location)
	j.Key("args")
	j.Begin('[')
	hit := &jsonHit{begin: bytes.Clone(j.Bytes())}
	for i := range e.Args {
		definition := argumentOf(e.Site, i)
		j.Reset()
		j.Begin('{')
		if definition != nil && definition.Name != "" {
			j.Text("name", definition.Name)
		}
		j.Key("value")
		hit.arguments = append(hit.arguments,
			jsonArgument{bytes.Clone(j.Bytes()), definition, p.tracer.options.capture(e.Site, i)})
	}
	return hit
}

// hit adds which site was hit, and its arguments.
func (p *jsonPrinter) hit(e *trace.Event) {
	hit := p.hits[e.Site]
	if hit == nil {
		if p.hits == nil || len(p.hits) == maxRendered {
			p.hits = make(map[*trace.Site]*jsonHit) // others are of attachments that are no more
		}
		hit = p.newHit(e)
		p.hits[e.Site] = hit
	}
	j := &p.json
	j.Members(hit.begin)
	for i := range e.Args {
		hit.arguments[i].add(j, &e.Args[i])
	}
	j.End(']')
}

// add adds the argument with the value that it has at a hit.
func (a *jsonArgument) add(j *jsontext.Builder, v *trace.Value) {
	j.Members(a.begin)
	if a.definition == nil && a.behind == nil {
		// Most arguments are numbers, of which there is nothing more to say.
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
	addValue(j, *v)
	if a.definition != nil && v.IsPresent() && v.Kind() != trace.Bytes {
		if name := a.definition.ValueName(v.Int()); name != "" {
			j.Text("value_name", name)
		}
	}
	switch v.Kind() {
	case trace.Unavailable:
		j.Boolean("unavailable", true)
	case trace.Unreadable:
		j.Boolean("unreadable", true)
	}
	data, complete := v.Data()
	switch {
	case a.behind == nil && v.Kind() != trace.Bytes, data == nil && complete:
	case data == nil:
		j.Boolean("data_unreadable", true)
	default:
		if v.Kind() == trace.Bytes || a.behind.Bytes {
			j.Hex("bytes", string(data))
		} else {
			j.Text("text", string(data))
		}
		j.Boolean("truncated", !complete)
	}
	j.End('}')
}

// jsonThread is the JSON of a thread, which often has event after event.
type jsonThread struct {
	pid, tid int
	command  string
	json     jsontext.Builder
}

// of returns the members that say which thread an event is of. They are valid
// until the next call.
func (t *jsonThread) of(e *trace.Event) []byte {
	if len(t.json.Bytes()) == 0 || e.PID != t.pid || e.TID != t.tid || e.Command != t.command {
		t.pid, t.tid, t.command = e.PID, e.TID, e.Command
		t.json.Reset()
		t.json.Signed("pid", int64(e.PID))
		t.json.Signed("tid", int64(e.TID))
		t.json.Text("command", e.Command)
	}
	return t.json.Bytes()
}
