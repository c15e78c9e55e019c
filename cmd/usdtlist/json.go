// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"bufio"
	"debug/elf"
	"encoding/binary"
	"errors"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/commandline"
	"github.com/gousdt/gousdt/internal/defs"
	"github.com/gousdt/gousdt/internal/elffile"
	"github.com/gousdt/gousdt/internal/procwatch"
	"github.com/gousdt/gousdt/internal/terminal"
)

// jsonPrinter prints one JSON document, which docs/json.md describes. Each
// probe is on a line of its own, so that text tools can pick them.
type jsonPrinter struct {
	out    *bufio.Writer
	json   commandline.JSON
	errors []failure
}

// schema is the number of the schema, see docs/json.md.
const schema = 1

func newJSONPrinter(out *bufio.Writer) *jsonPrinter {
	p := &jsonPrinter{out: out}
	p.json.Begin('{')
	p.json.Fields("schema", schema)
	p.json.Key("files")
	p.json.Begin('[')
	return p
}

func (p *jsonPrinter) flush() {
	p.out.Write(p.json.Take())
}

// file adds a file with its probes, which may be none.
func (p *jsonPrinter) file(l *listing) {
	j := &p.json
	j.NewLine(1)
	j.Begin('{')
	if m := l.mapped; m == nil {
		j.Fields("file", l.path)
	} else {
		j.Fields("file", m.here, "path", m.path, "deleted", m.deleted)
		j.Array("pids", func() {
			for _, u := range m.users {
				j.Value(u.Process.PID)
			}
		})
		commandline.JSONObjects(j, "processes", 2, m.users, func(u **procwatch.ProcessFile) {
			j.Fields("pid", (*u).Process.PID, "command", (*u).Process.Command, "path", (*u).Path,
				"deleted", (*u).Deleted)
		})
	}
	var buildID any
	if id, err := l.elf.BuildID(); err == nil {
		buildID = id
	}
	kind, _ := kindOf(l.elf)
	j.Fields("build_id", buildID, "machine", machineName(l.elf), "class", classBits(l.elf),
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
					"provider", elffile.Shorten(note.Provider, maxText),
					"name", elffile.Shorten(note.Name, maxText), "error", errorText(note.Err))
			})
			p.flush()
		}
	})
	j.End('}')
	p.flush()
}

func errorText(err error) string { return terminal.Clean(elffile.Shorten(err.Error(), maxText)) }

// close adds what could not be read, and ends the document.
func (p *jsonPrinter) close() {
	j := &p.json
	j.End(']')
	j.NewLine(0)
	commandline.JSONObjects(j, "errors", 1, p.errors, func(e *failure) {
		j.Fields("file", e.name)
		if e.pid != 0 {
			j.Fields("pid", e.pid)
		}
		j.Fields("error", errorText(e.err))
	})
	j.End('}')
	j.EndDocument()
	p.flush()
}

func (p *jsonPrinter) probe(l *listing, probe *defs.FileProbe) {
	j := &p.json
	j.NewLine(2)
	j.Begin('{')
	j.Fields("provider", elffile.Shorten(probe.Provider, maxText),
		"name", elffile.Shorten(probe.Name, maxText))
	j.Array("sites", func() {
		for i := range probe.Sites {
			site := &probe.Sites[i]
			if i > 0 {
				j.NewLine(3)
			}
			j.Begin('{')
			j.Fields("location", site.Location, "offset", orNull(site.Offset, attachable(l.elf)),
				"base", site.Base, "semaphore", orNull(site.Semaphore, site.Semaphore != 0),
				"semaphore_offset", orNull(site.SemaphoreOffset, site.SemaphoreOffset != 0))
			if site.SemaphoreMiscounted != 0 {
				j.Fields("semaphore_miscounted", site.SemaphoreMiscounted)
			}
			j.Fields("arguments", elffile.Shorten(site.Arguments, maxText))
			j.Array("decoded", func() {
				args, known := l.args.decode(site)
				for n := range args {
					j.Object("", func() {
						if known != nil {
							if name := known.Arguments[n].Name; name != "" {
								j.Fields("name", name)
							}
							j.Fields("type", known.Arguments[n].Type)
						}
						p.argument(&args[n])
					})
				}
			})
			j.End('}')
			p.flush() // a probe may have very many sites
		}
	})
	j.End('}')
}

// orNull returns a number, nil if there is none.
func orNull(n uint64, isThere bool) any {
	if isThere {
		return n
	}
	return nil
}

// argument adds the members about an argument that are in its file.
func (p *jsonPrinter) argument(a *argspec.Arg) {
	j := &p.json
	j.Fields("raw", elffile.Shorten(a.Raw, maxText), "kind", a.Kind.String(), "size", int(a.Size),
		"signed", a.Signed, "float", a.Float,
		"text", terminal.Clean(elffile.Shorten(a.String(), maxText)))
	switch a.Kind {
	case argspec.Constant:
		if a.Signed {
			j.Fields("value", int64(a.Constant))
		} else {
			j.Fields("value", a.Constant)
		}
	case argspec.InRegister:
		j.Fields("register", a.Register.Name, "high", register(a.High),
			"shift", int(a.Register.Shift))
	case argspec.Memory, argspec.Address, argspec.Bytes:
		var extension any
		if a.IndexSize != 0 {
			extension = map[int8]string{4: "uxtw", -4: "sxtw"}[a.IndexSize]
		}
		j.Fields("base", register(a.Base), "index", register(a.Index),
			"index_extension", extension, "scale", int(a.Scale), "displacement", a.Displacement,
			"address_32", a.Address32)
	default:
		j.Fields("reason", errorText(a.Err))
	}
}

// register returns the name of a register, nil for none.
func register(r argspec.Register) any {
	if r.Name == "" {
		return nil
	}
	return r.Name
}

// machineName returns the name of the file's machine, in text and in JSON.
func machineName(f *elfnote.File) string {
	header := f.Header()
	return elffile.MachineName(header.Machine, header.Class, header.ByteOrder)
}

func classBits(f *elfnote.File) int {
	if f.Header().Class == elf.ELFCLASS32 {
		return 32
	}
	return 64
}

func byteOrderName(f *elfnote.File) string {
	if f.Header().ByteOrder == binary.ByteOrder(binary.BigEndian) {
		return "big"
	}
	return "little"
}

// kindOf returns what a file is, as the JSON document has it and in words.
func kindOf(f *elfnote.File) (kind, words string) {
	switch {
	case f.IsDebugFile():
		return "debug_file", "separate debug file"
	case f.Header().Type == elf.ET_EXEC:
		return "executable", "executable"
	case f.Header().Type == elf.ET_REL:
		return "relocatable", "object file"
	}
	return "position_independent", "position-independent file"
}

func attachable(f *elfnote.File) bool {
	return !f.IsDebugFile() && f.Header().Type != elf.ET_REL
}
