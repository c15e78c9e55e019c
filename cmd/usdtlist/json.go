// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"bufio"
	"errors"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/elffile"
	"github.com/gousdt/gousdt/internal/jsontext"
	"github.com/gousdt/gousdt/internal/terminal"
	"github.com/gousdt/gousdt/internal/truncate"
	"github.com/gousdt/gousdt/providers"
)

// jsonPrinter prints one JSON document, which doc.go describes. Each probe is
// on a line of its own, so that text tools can pick them.
type jsonPrinter struct {
	out    *bufio.Writer
	json   jsontext.Builder
	errors []failure
}

// schema is the number of the schema, see docs/json.md.
const schema = 1

func newJSONPrinter(out *bufio.Writer) *jsonPrinter {
	p := &jsonPrinter{out: out}
	p.json.Begin('{')
	p.json.Signed("schema", schema)
	p.json.Key("files")
	p.json.Begin('[')
	return p
}

// flush writes what has been built so far.
func (p *jsonPrinter) flush() {
	p.out.Write(p.json.Take())
}

func (p *jsonPrinter) file(l *listing) (int, error) {
	j := &p.json
	j.NewLine(1)
	j.Begin('{')
	if l.mapped == nil {
		j.Text("file", l.path)
	} else {
		j.Text("file", l.mapped.here)
		p.users(l.mapped)
	}
	if id, err := l.elf.BuildID(); err == nil {
		j.Text("build_id", id)
	} else {
		j.NullMember("build_id")
	}
	kind, _ := kindOf(l.elf)
	j.Fields("machine", machineName(l.elf), "class", classBits(l.elf),
		"byte_order", byteOrderName(l.elf), "kind", kind)
	j.Array("probes", func() {
		for i := range l.probes {
			p.probe(l, &l.probes[i])
			p.flush()
		}
	})
	j.Array("malformed_notes", func() {
		for _, err := range l.elf.Sites() {
			var note *elffile.NoteError
			if !errors.As(err, &note) {
				continue
			}
			j.NewLine(2)
			j.Object("", func() {
				j.Fields("index", int(note.Index),
					"provider", truncate.Text(note.Provider, maxText),
					"name", truncate.Text(note.Name, maxText), "error", errorText(note.Err))
			})
			p.flush()
		}
	})
	j.End('}')
	p.flush()
	return len(l.probes), nil
}

// errorText returns the text of an error as the document has it.
func errorText(err error) string { return terminal.Clean(truncate.Text(err.Error(), maxText)) }

func (p *jsonPrinter) failed(f failure) { p.errors = append(p.errors, f) }

func (p *jsonPrinter) close() {
	j := &p.json
	j.End(']')
	j.NewLine(0)
	j.Array("errors", func() {
		for _, e := range p.errors {
			j.NewLine(1)
			j.Object("", func() {
				j.Text("file", e.name)
				if e.pid != 0 {
					j.Signed("pid", int64(e.pid))
				}
				j.Text("error", errorText(e.err))
			})
		}
	})
	j.End('}')
	j.EndDocument()
	p.flush()
}

func (p *jsonPrinter) probe(l *listing, probe *elfnote.Probe) {
	j := &p.json
	j.NewLine(2)
	j.Begin('{')
	j.Text("provider", truncate.Text(probe.Provider, maxText))
	j.Text("name", truncate.Text(probe.Name, maxText))
	j.Key("sites")
	j.Begin('[')
	for i := range probe.Sites {
		site := &probe.Sites[i]
		if i > 0 {
			j.NewLine(3)
		}
		j.Begin('{')
		j.Unsigned("location", site.Location)
		j.UnsignedOrNull("offset", site.Offset, !attachable(l.elf))
		j.Unsigned("base", site.Base)
		j.UnsignedOrNull("semaphore", site.Semaphore, site.Semaphore == 0)
		j.UnsignedOrNull("semaphore_offset", site.SemaphoreOffset, site.SemaphoreOffset == 0)
		j.Text("arguments", truncate.Text(site.Arguments, maxText))
		j.Key("decoded")
		j.Begin('[')
		args := l.args.decode(site)
		probe := l.args.definition(site, len(args))
		for n := range args {
			var definition *providers.Argument
			if probe != nil {
				definition = &probe.Arguments[n]
			}
			p.argument(&args[n], definition)
		}
		j.End(']')
		j.End('}')
		p.flush() // a probe may have very many sites
	}
	j.End(']')
	j.End('}')
}

// argument adds an argument, with what its definition says unless that is nil.
func (p *jsonPrinter) argument(a *argspec.Arg, definition *providers.Argument) {
	j := &p.json
	j.Begin('{')
	if definition != nil {
		if definition.Name != "" {
			j.Text("name", definition.Name)
		}
		j.Text("type", definition.Type)
	}
	j.Text("raw", truncate.Text(a.Raw, maxText))
	j.Text("kind", a.Kind.String())
	j.Unsigned("size", uint64(a.Size))
	j.Boolean("signed", a.Signed)
	j.Boolean("float", a.Float)
	j.Text("text", terminal.Clean(truncate.Text(a.String(), maxText)))
	switch a.Kind {
	case argspec.Constant:
		if a.Signed {
			j.Signed("value", int64(a.Constant))
		} else {
			j.Unsigned("value", a.Constant)
		}
	case argspec.InRegister:
		j.Text("register", a.Register.Name)
		p.register("high", a.High)
		j.Unsigned("shift", uint64(a.Register.Shift))
	case argspec.Memory, argspec.Address, argspec.Bytes:
		p.register("base", a.Base)
		p.register("index", a.Index)
		if a.IndexSize == 0 {
			j.NullMember("index_extension")
		} else {
			j.Text("index_extension", map[int8]string{4: "uxtw", -4: "sxtw"}[a.IndexSize])
		}
		j.Unsigned("scale", uint64(a.Scale))
		j.Signed("displacement", a.Displacement)
		j.Boolean("address_32", a.Address32)
	default:
		j.Text("reason", errorText(a.Err))
	}
	j.End('}')
}

func (p *jsonPrinter) register(key string, r argspec.Register) {
	if r.Name == "" {
		p.json.NullMember(key)
	} else {
		p.json.Text(key, r.Name)
	}
}
