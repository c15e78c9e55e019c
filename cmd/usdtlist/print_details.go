// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"bufio"
	"strconv"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/cut"
	"github.com/gousdt/gousdt/internal/terminal"
)

// detailsPrinter prints every site with its arguments decoded.
type detailsPrinter struct {
	out     *bufio.Writer
	printed bool // a file before this one
	line    []byte
}

func (d *detailsPrinter) file(l *listing) (int, error) {
	if len(l.probes) == 0 {
		return 0, nil
	}
	if d.printed {
		d.out.WriteByte('\n')
	}
	d.printed = true

	line := append(appendHeading(nil, l), "  "...)
	line = append(line, machineName(l.elf)...)
	line = append(append(line, ", "...), l.elf.Kind().String()...)
	if id, err := l.elf.BuildID(); err == nil {
		line = append(append(line, ", build ID "...), id...)
	}
	if !attachable(l.elf) {
		line = append(line,
			"\n  Nothing can be attached to this file: it has the probes, but not the code that runs."...)
	}
	d.out.Write(append(line, '\n'))

	for i := range l.probes {
		p := &l.probes[i]
		d.line = appendCut(d.line[:0], p.Provider, maxText)
		d.line = appendCut(append(d.line, ':'), p.Name, maxText)
		d.line = append(d.line, '\n')
		for j := range p.Sites {
			d.appendSite(l, j, p)
		}
		d.out.Write(d.line)
	}
	return len(l.probes), nil
}

func (d *detailsPrinter) failed(failure) {}
func (d *detailsPrinter) close()         {}

func (d *detailsPrinter) appendSite(l *listing, number int, p *elfnote.Probe) {
	site := &p.Sites[number]
	line := append(d.line, "  "...)
	if len(p.Sites) > 1 {
		line = strconv.AppendInt(append(line, "site "...), int64(number+1), 10)
		line = strconv.AppendInt(append(line, " of "...), int64(len(p.Sites)), 10)
		line = append(line, ": "...)
	}
	line = appendHex(append(line, "Location: "...), site.Location)
	if attachable(l.elf) {
		line = appendHex(append(line, ", Offset: "...), site.Offset)
	}
	line = appendHex(append(line, ", Base: "...), site.Base)
	line = append(line, ", Semaphore: "...)
	if site.Semaphore == 0 {
		line = append(line, "none"...)
	} else {
		line = appendHex(line, site.Semaphore)
		if site.SemaphoreOffset != 0 {
			line = appendHex(append(line, " (offset "...), site.SemaphoreOffset)
			line = append(line, ')')
		}
	}
	line = append(line, "\n  Arguments: "...)
	if site.Arguments == "" {
		line = append(line, "none"...)
	} else {
		line = appendCut(line, site.Arguments, maxText)
	}
	line = append(line, '\n')

	args := l.args.decode(site)
	probe := l.args.definition(site, len(args))
	for i, arg := range args {
		line = strconv.AppendInt(append(line, "    "...), int64(i), 10)
		line = append(line, ": "...)
		if probe != nil && probe.Arguments[i].Name != "" {
			line = append(append(line, probe.Arguments[i].Name...), ": "...)
		}
		line = append(line, cut.Text(terminal.Clean(arg.String()), maxText)...)
		line = append(line, '\n')
	}
	if l.args.definitions != nil && number == len(p.Sites)-1 {
		if fires := l.args.definitions.Fires(p.Provider, p.Name); fires != "" {
			line = append(append(append(line, "  Fires "...), fires...), '\n')
		}
	}
	d.line = line
}
