// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"bufio"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/terminal"
)

// jsonPrinter prints one JSON document, which doc.go describes. Each probe is
// on a line of its own, so that text tools can pick them.
type jsonPrinter struct {
	out    *bufio.Writer
	json   jsonText
	errors []failure
}

func newJSONPrinter(out *bufio.Writer) *jsonPrinter {
	p := &jsonPrinter{out: out}
	p.json.begin('{')
	p.json.key("files")
	p.json.begin('[')
	return p
}

// flush writes what has been built so far.
func (p *jsonPrinter) flush() {
	p.out.Write(p.json.b)
	p.json.b = p.json.b[:0]
}

func (p *jsonPrinter) file(l *listing) (int, error) {
	j := &p.json
	j.newLine(1)
	j.begin('{')
	if l.mapped == nil {
		j.text("file", l.path)
	} else {
		j.text("file", l.mapped.here)
		p.users(l.mapped)
	}
	if id, err := l.elf.BuildID(); err == nil {
		j.text("build_id", id)
	} else {
		j.null("build_id")
	}
	j.text("machine", machineName(l.elf))
	j.unsigned("class", classBits(l.elf))
	j.text("byte_order", byteOrderName(l.elf))
	j.text("kind", kindName(l.elf.Kind()))

	j.key("probes")
	j.begin('[')
	for i := range l.probes {
		p.probe(l, &l.probes[i])
		p.flush()
	}
	j.end(']')

	j.key("broken_notes")
	j.begin('[')
	for _, note := range l.broken {
		j.newLine(2)
		j.begin('{')
		j.unsigned("index", uint64(note.Index))
		j.text("provider", note.Provider)
		j.text("name", note.Name)
		j.text("error", terminal.Clean(note.Err.Error()))
		j.end('}')
		p.flush()
	}
	j.end(']')
	j.end('}')
	p.flush()
	return len(l.probes), nil
}

func (p *jsonPrinter) failed(f failure) {
	p.errors = append(p.errors, f)
}

func (p *jsonPrinter) close() {
	j := &p.json
	j.end(']')
	j.newLine(0)
	j.key("errors")
	j.begin('[')
	for _, e := range p.errors {
		j.newLine(1)
		j.begin('{')
		j.text("file", e.name)
		if e.pid != 0 {
			j.signed("pid", int64(e.pid))
		}
		j.text("error", terminal.Clean(e.err.Error()))
		j.end('}')
	}
	j.end(']')
	j.end('}')
	p.flush()
	p.out.WriteByte('\n')
}

func (p *jsonPrinter) probe(l *listing, probe *elfnote.Probe) {
	j := &p.json
	j.newLine(2)
	j.begin('{')
	j.text("provider", probe.Provider)
	j.text("name", probe.Name)
	j.key("sites")
	j.begin('[')
	for i := range probe.Sites {
		site := &probe.Sites[i]
		if i > 0 {
			j.newLine(3)
		}
		j.begin('{')
		j.unsigned("location", site.Location)
		j.unsignedOrNull("offset", site.Offset, !attachable(l.elf))
		j.unsigned("base", site.Base)
		j.unsignedOrNull("semaphore", site.Semaphore, site.Semaphore == 0)
		j.unsignedOrNull("semaphore_offset", site.SemaphoreOffset, site.SemaphoreOffset == 0)
		j.text("arguments", site.Arguments)
		j.key("decoded")
		j.begin('[')
		args := l.args.decode(site)
		for n := range args {
			p.argument(&args[n])
		}
		j.end(']')
		j.end('}')
	}
	j.end(']')
	j.end('}')
}

func (p *jsonPrinter) argument(a *argspec.Arg) {
	j := &p.json
	j.begin('{')
	j.text("raw", a.Raw)
	j.text("kind", a.Kind.String())
	j.unsigned("size", uint64(a.Size))
	j.boolean("signed", a.Signed)
	j.boolean("float", a.Float)
	j.text("text", terminal.Clean(a.String()))
	switch a.Kind {
	case argspec.Constant:
		if a.Signed {
			j.signed("value", int64(a.Constant))
		} else {
			j.unsigned("value", a.Constant)
		}
	case argspec.InRegister:
		j.text("register", a.Register.Name)
		j.unsigned("shift", uint64(a.Register.Shift))
	case argspec.Memory:
		p.register("base", a.Base)
		p.register("index", a.Index)
		j.unsigned("scale", uint64(a.Scale))
		j.signed("displacement", a.Displacement)
		j.boolean("address_32", a.Address32)
	default:
		j.text("reason", terminal.Clean(a.Err.Error()))
	}
	j.end('}')
}

func (p *jsonPrinter) register(key string, r argspec.Register) {
	if r.IsZero() {
		p.json.null(key)
	} else {
		p.json.text(key, r.Name)
	}
}
