// SPDX-License-Identifier: BSD-2-Clause

package terminal

import (
	"io"
	"iter"
)

// Cell is text in a column of a table, or a bar.
type Cell struct {
	Text  string
	Right bool    // the text is at the right side of the column
	Bar   float64 // above 0: a bar, this share of the longest one
}

// Left and Right are cells with their text at one side of the column.
func Left(text string) Cell  { return Cell{Text: text} }
func Right(text string) Cell { return Cell{Text: text, Right: true} }

// Widths returns the width that each column needs for its texts.
func Widths(lines iter.Seq[[]Cell]) (widths []int) {
	for line := range lines {
		for i, c := range line {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], Columns(c.Text))
		}
	}
	return widths
}

// WriteTable writes lines of cells in columns, two blanks apart. It goes
// through the lines twice. bar draws bars, which are the last column only; nil
// leaves them out.
func WriteTable(w io.Writer, lines iter.Seq[[]Cell], bar func(part float64) string) {
	widths := Widths(lines)
	var b []byte // of a line
	for line := range lines {
		b = b[:0]
		for i, c := range line {
			if c.Bar > 0 && bar == nil {
				continue
			}
			if i > 0 {
				b = append(b, "  "...)
			}
			room := widths[i] - Columns(c.Text)
			if c.Bar > 0 {
				b = append(b, bar(c.Bar)...)
				continue
			}
			if c.Right {
				b = AppendBlanks(b, room)
			}
			b = append(b, c.Text...)
			if !c.Right && i < len(line)-1 {
				b = AppendBlanks(b, room)
			}
		}
		w.Write(append(b, '\n')) // a writer with a buffer keeps the error
	}
}

const blanks = "                                "

// AppendBlanks appends this many blanks, none for a number below 1.
func AppendBlanks(b []byte, n int) []byte {
	for ; n > len(blanks); n -= len(blanks) {
		b = append(b, blanks...)
	}
	return append(b, blanks[:max(n, 0)]...)
}
