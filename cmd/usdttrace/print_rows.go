// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/gousdt/gousdt/internal/cut"
	"github.com/gousdt/gousdt/internal/terminal"
	"github.com/gousdt/gousdt/trace"
)

// barWidth is how many characters the longest bar has.
const barWidth = 32

func (p *textPrinter) rows(a *aggregation, s *trace.Snapshot) {
	var b strings.Builder
	if p.begun {
		b.WriteByte('\n')
	}
	p.begun = true
	title := a.title
	if p.tracer.options.interval > 0 {
		title = s.Time.Format("15:04:05") + "  " + title
	}
	fmt.Fprintf(&b, "%s%s%s\n", p.style.header, terminal.Clean(title), p.style.reset)
	switch {
	case len(s.Rows) == 0 && s.Other.Count == 0:
		b.WriteString("nothing\n")
	case a.drawn:
		p.histograms(&b, a, s)
	case slices.Contains(s.By, "stack"):
		p.stackRows(&b, a, s)
	default:
		p.table(&b, a, s)
	}
	p.out.Write([]byte(b.String())) // the output keeps the error
}

// rowsOf returns the rows, and behind them that of all others, if it has hits.
func rowsOf(s *trace.Snapshot) []*trace.Row {
	var all []*trace.Row
	for i := range s.Rows {
		all = append(all, &s.Rows[i])
	}
	if s.Other.Count > 0 {
		all = append(all, &s.Other)
	}
	return all
}

// otherRow is what is printed instead of the keys of all other rows.
const otherRow = "(other)"

func (p *textPrinter) summary(*summary) {} // it is on standard error

// cell is text in a column.
type cell struct {
	text  string
	right bool
}

// table prints a line for each row, with the keys in columns.
func (p *textPrinter) table(b *strings.Builder, a *aggregation, s *trace.Snapshot) {
	var lines [][]cell
	var header []cell
	for _, key := range s.By {
		header = append(header, cell{strings.ToUpper(terminal.Escape(key)), false})
	}
	columns := columnsOf(a, s)
	for _, c := range columns {
		header = append(header, cell{c.name, true})
	}
	rows := rowsOf(s)
	shares := sharesOf(a, rows)
	if len(s.By) > 0 {
		header = append(header, cell{"%", true})
	}
	lines = append(lines, header)
	for i, row := range rows {
		var line []cell
		for i, key := range row.Keys {
			line = append(line, p.keyCell(s.By[i], key))
		}
		if row == &s.Other {
			line = append(line, make([]cell, len(s.By))...)
			line[0].text = otherRow
		}
		for _, c := range columns {
			line = append(line, cell{c.text(row), true})
		}
		if len(s.By) > 0 {
			line = append(line, cell{percent(shares[i]), true},
				cell{p.bar(shares[i] / max(1e-9, slices.Max(shares))), false})
		}
		lines = append(lines, line)
	}
	writeTable(b, lines)
}

// keyCell shows a key: numbers flush right, with the names that values have,
// and addresses in hexadecimal.
func (p *textPrinter) keyCell(name string, key trace.Value) cell {
	text := cut.Text(key.String(), maxText)
	valueName := p.tracer.targets.valueName(name, key)
	switch {
	case text == "":
		text = `""`
	case valueName != "":
		text = valueName + "(" + text + ")"
	case name == "site", key.Kind() == trace.Unsigned && p.tracer.targets.isAddress(name):
		text = fmt.Sprintf("%#x", key.Uint())
	}
	return cell{text, key.Kind() != trace.Text}
}

// sharesOf returns how much of the whole each row is: of the sum where there is
// one that can be divided, else of the count.
func sharesOf(a *aggregation, rows []*trace.Row) []float64 {
	each := make([]float64, len(rows))
	ok, total := a.Sum, 0.0
	for i := range rows {
		each[i] = rows[i].Sum.Float()
		total += each[i]
		ok = ok && each[i] >= 0
	}
	if !ok || total == 0 {
		total = 0
		for i := range rows {
			each[i] = float64(rows[i].Count)
			total += each[i]
		}
	}
	for i := range each {
		each[i] /= total
	}
	return each
}

func percent(share float64) string { return fmt.Sprintf("%.1f%%", 100*share) }

// bar draws a part of the longest bar, at least a stroke for what is there at
// all.
func (p *textPrinter) bar(part float64) string {
	n := int(part*barWidth + 0.5)
	if part > 0 {
		n = max(n, 1)
	}
	return p.style.bar + strings.Repeat("#", n) + p.style.reset
}

// writeTable writes cells in columns, two blanks apart. Bars, which may carry
// colours, are the last column only.
func writeTable(b *strings.Builder, lines [][]cell) {
	var widths []int
	for _, line := range lines {
		for i, c := range line {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], terminal.Columns(c.text))
		}
	}
	for _, line := range lines {
		for i, c := range line {
			if i > 0 {
				b.WriteString("  ")
			}
			blanks := strings.Repeat(" ", widths[i]-terminal.Columns(c.text))
			switch {
			case c.right:
				b.WriteString(blanks + c.text)
			case i == len(line)-1:
				b.WriteString(c.text)
			default:
				b.WriteString(c.text + blanks)
			}
		}
		b.WriteByte('\n')
	}
}

// stackRows prints each row as a line, and the functions below it.
func (p *textPrinter) stackRows(b *strings.Builder, a *aggregation, s *trace.Snapshot) {
	rows := rowsOf(s)
	shares := sharesOf(a, rows)
	columns := columnsOf(a, s)
	for i, row := range rows {
		for _, c := range columns {
			fmt.Fprintf(b, "%s %s, ", strings.ToLower(c.name), c.text(row))
		}
		fmt.Fprintf(b, "%s%s\n", percent(shares[i]), p.keysText(s, row))
		p.stack(b, s, row)
	}
}

// keysText returns the keys of a row but the stack: ", comm postgres, pid 12".
func (p *textPrinter) keysText(s *trace.Snapshot, row *trace.Row) string {
	if row == &s.Other {
		return ", " + otherRow
	}
	var text string
	for i, key := range row.Keys {
		if s.By[i] != "stack" {
			text += ", " + terminal.Escape(s.By[i]) + " " + p.keyCell(s.By[i], key).text
		}
	}
	return text
}

// stack prints the stack of a row, if it has one.
func (p *textPrinter) stack(b *strings.Builder, s *trace.Snapshot, row *trace.Row) {
	pid, ok := stackOf(s, row)
	if !ok {
		return
	}
	var lines []byte
	for _, frame := range p.tracer.stacks.Frames(context.Background(), pid, row.Stack) {
		lines = appendFrame(lines, &frame)
	}
	if len(lines) == 0 {
		lines = append(lines, "    (no stack)\n"...)
	}
	b.Write(lines)
}

// stackOf returns whose stack a row has; ok is false if it has none.
func stackOf(s *trace.Snapshot, row *trace.Row) (pid int, ok bool) {
	i := slices.Index(s.By, "stack")
	if i < 0 || row == &s.Other {
		return 0, false
	}
	return int(row.Keys[i].Uint()), true
}
