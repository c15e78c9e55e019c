// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"bufio"
	"strconv"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/terminal"
)

// tablePrinter prints a line for each probe, with the terms of readelf. Where a
// site has no semaphore or no arguments, there is a dash: every line has all
// columns.
type tablePrinter struct {
	out     *bufio.Writer
	printed bool // a file before this one
}

// The columns before ARGUMENTS, which is last because it is of any length.
const (
	columnProvider = iota
	columnName
	columnSites
	columnLocation
	columnSemaphore
	columns
)

var titles = [columns]string{"PROVIDER", "NAME", "SITES", "LOCATION", "SEMAPHORE"}

func (t *tablePrinter) file(l *listing) (int, error) {
	if len(l.probes) == 0 {
		return 0, nil
	}
	if t.printed {
		t.out.WriteByte('\n')
	}
	t.printed = true

	var line []byte
	if l.heading {
		line = appendHeading(line, l)
		t.out.Write(line)
	}

	var widths [columns]int
	for i, title := range titles {
		widths[i] = len(title)
	}
	var cell []byte
	for i := range l.probes {
		for column := range columns {
			cell = appendCell(cell[:0], &l.probes[i], column)
			widths[column] = max(widths[column], terminal.Columns(string(cell)))
		}
	}

	line = line[:0]
	for column, title := range titles {
		line = appendColumn(line, []byte(title), widths[column], column)
	}
	t.out.Write(append(line, "ARGUMENTS\n"...))
	for i := range l.probes {
		line = line[:0]
		for column := range columns {
			cell = appendCell(cell[:0], &l.probes[i], column)
			line = appendColumn(line, cell, widths[column], column)
		}
		line = appendArguments(line, &l.probes[i])
		t.out.Write(append(line, '\n'))
	}
	return len(l.probes), nil
}

func (t *tablePrinter) failed(failure) {}
func (t *tablePrinter) close()         {}

// appendColumn appends a cell and the space up to the next one.
func appendColumn(line, cell []byte, width, column int) []byte {
	blanks := width - terminal.Columns(string(cell))
	if column == columnSites { // a number: to the right
		return append(append(appendBlanks(line, blanks), cell...), "  "...)
	}
	return appendBlanks(append(line, cell...), blanks+2)
}

func appendCell(cell []byte, p *elfnote.Probe, column int) []byte {
	switch column {
	case columnProvider:
		return appendCut(cell, p.Provider, maxCell)
	case columnName:
		return appendCut(cell, p.Name, maxCell)
	case columnSites:
		return strconv.AppendInt(cell, int64(len(p.Sites)), 10)
	case columnLocation:
		return appendHex(cell, p.Sites[0].Location)
	default:
		if p.Sites[0].Semaphore == 0 {
			return append(cell, '-')
		}
		return appendHex(cell, p.Sites[0].Semaphore)
	}
}

// maxCell is how many bytes of a name are shown in a column, each line of which
// is as wide as the longest name: those of untrusted files may have megabytes.
const maxCell = 100

// appendArguments appends the first site's argument string, and says how many
// sites have another one.
func appendArguments(line []byte, p *elfnote.Probe) []byte {
	first := p.Sites[0].Arguments
	if first == "" {
		line = append(line, '-')
	} else {
		line = appendCut(line, first, maxText)
	}
	different := 0
	for i := range p.Sites {
		if p.Sites[i].Arguments != first {
			different++
		}
	}
	if different > 0 {
		line = strconv.AppendInt(append(line, "  (differs at "...), int64(different), 10)
		line = strconv.AppendInt(append(line, " of "...), int64(len(p.Sites)), 10)
		line = append(line, " sites, see -v)"...)
	}
	return line
}
